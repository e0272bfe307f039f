"""Federated averaging of a torch network under pfl's simulation; run by `networks`.

PYTHON with_pfl.py FILE CLIENTS ROUNDS    # prints seconds of rounds, and peak memory in MB
"""

import json
import sys
import time

import numpy as np
import psutil
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import nn

STEPS, BATCH = 5, 32
FILE, CLIENTS, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Network(nn.Module):
    """The convolutional network of 9606 parameters."""

    def __init__(self) -> None:
        super().__init__()
        layers = nn.Linear(400, 20), nn.ReLU(), nn.Linear(20, 10)
        seen = nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()
        self.net = nn.Sequential(*seen, nn.Flatten(), *layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores."""
        return self.net(x)

    def loss(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> torch.Tensor:
        """The mean cross-entropy."""
        return nn.functional.cross_entropy(self(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor, eval: bool = False) -> dict:
        """Nothing that costs."""
        return {"rows": Weighted(len(y), 1)}


class Moments(TrainingProcessCallback):
    """Notes when a round is over."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def after_central_iteration(self, aggregate, model, *, central_iteration):  # type: ignore
        """Go on."""
        self.seen.append(time.perf_counter())
        return False, Metrics()


def main() -> None:
    """Play, and print what it took: rounds after the first."""
    torch.set_num_threads(1)
    with np.load(FILE) as found:
        images = torch.from_numpy(found["x_train"]).float().unsqueeze(1) / 255.0
        labels = torch.from_numpy(found["y_train"]).long()
    share = len(images) // CLIENTS

    def user(i: int) -> Dataset:
        rows = slice(int(i) * share, int(i) * share + BATCH * STEPS)
        return Dataset([images[rows], labels[rows]])

    sampler = get_user_sampler("minimize_reuse", list(range(CLIENTS)))
    dataset = FederatedDataset(user, sampler)
    module, moments = Network(), Moments()
    model = PyTorchModel(
        module, local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )  # fmt: skip
    backend = SimulatedBackend(training_data=dataset, val_data=dataset)
    params = NNAlgorithmParams(
        central_num_iterations=ROUNDS, evaluation_frequency=10**6,
        train_cohort_size=CLIENTS, val_cohort_size=0,
    )  # fmt: skip
    train = NNTrainHyperParams(
        local_num_epochs=None, local_num_steps=STEPS, local_learning_rate=0.05,
        local_batch_size=BATCH,
    )  # fmt: skip
    FederatedAveraging().run(
        params, backend, model, train, callbacks=[moments], send_metrics_to_platform=False,
    )  # fmt: skip
    memory = psutil.Process().memory_info().rss / 1e6
    print(
        "RESULT", json.dumps({"round": float(np.median(np.diff(moments.seen))), "memory": memory})
    )


if __name__ == "__main__":
    main()
