"""Federated averaging of a torch network under pfl's simulation; `networks` runs it.

PYTHON with_pfl.py FILE CLIENTS ROUNDS    # prints the seconds of each round
"""

import json
import sys
import time
from importlib.metadata import version

import numpy as np
import torch
from network import BATCH, STEP, STEPS, images, network
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

FILE, CLIENTS, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])


class Network(nn.Module):
    """The convolutional network of 9606 parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.net = network()

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
    pixels, labels = images(FILE)
    share = len(pixels) // CLIENTS

    def user(i: int) -> Dataset:
        rows = int(i) * share + torch.arange(BATCH * STEPS) % share  # it stops at their end
        return Dataset([pixels[rows], labels[rows]])

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
        local_num_epochs=None, local_num_steps=STEPS, local_learning_rate=STEP,
        local_batch_size=BATCH,
    )  # fmt: skip
    FederatedAveraging().run(
        params, backend, model, train, callbacks=[moments], send_metrics_to_platform=False,
    )  # fmt: skip
    seconds = np.diff(moments.seen).tolist()
    print("RESULT", json.dumps({"rounds": seconds, "version": f"pfl {version('pfl')}"}))


if __name__ == "__main__":
    main()
