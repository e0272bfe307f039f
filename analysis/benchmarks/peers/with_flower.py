"""Federated averaging of a torch network under Flower's simulation; run by `networks`.

PYTHON with_flower.py FILE CLIENTS ROUNDS    # prints seconds of rounds, and peak memory in MB
"""

import json
import sys
import time

import numpy as np
import psutil
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from torch import nn

STEPS, BATCH = 5, 32
FILE, CLIENTS, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
moments: list[float] = []


def network() -> nn.Module:
    """The convolutional network of 9606 parameters."""
    layers = nn.Linear(400, 20), nn.ReLU(), nn.Linear(20, 10)
    seen = nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()
    return nn.Sequential(*seen, nn.Flatten(), *layers)


def data() -> tuple[torch.Tensor, torch.Tensor]:
    """All images and labels of a process."""
    if not kept:
        with np.load(FILE) as found:
            images = torch.from_numpy(found["x_train"]).float().unsqueeze(1) / 255.0
            kept.append((images, torch.from_numpy(found["y_train"]).long()))
    return kept[0]


kept: list[tuple[torch.Tensor, torch.Tensor]] = []


class Client(NumPyClient):
    """STEPS batches of an own share of the images."""

    def __init__(self, place: int) -> None:
        self.place = place

    def fit(self, parameters: list, config: dict) -> tuple:
        """Train the model that came, and return it."""
        torch.set_num_threads(1)
        net = network()
        with torch.no_grad():
            for own, new in zip(net.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(new))
        images, labels = data()
        share = len(images) // CLIENTS
        optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
        for _ in range(STEPS):
            rows = self.place * share + torch.randperm(share)[:BATCH]
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(images[rows]), labels[rows]).backward()
            optimiser.step()
        return [one.detach().numpy() for one in net.parameters()], len(rows), {}


def noted(round_: int, parameters: list, config: dict) -> None:
    """Note when a round is over; nothing is measured."""
    moments.append(time.perf_counter())


def client(context: Context) -> object:
    """The client of a node."""
    return Client(int(context.node_config["partition-id"])).to_client()


def server(context: Context) -> ServerAppComponents:
    """Averaging of all clients in every round."""
    start = ndarrays_to_parameters([one.detach().numpy() for one in network().parameters()])
    strategy = FedAvg(
        fraction_fit=1.0, fraction_evaluate=0.0, min_fit_clients=CLIENTS,
        min_available_clients=CLIENTS, initial_parameters=start, evaluate_fn=noted,
    )  # fmt: skip
    return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=ROUNDS))


def memory() -> float:
    """MB of this process and those that it has begun."""
    own = psutil.Process()
    family = [own, *own.children(recursive=True)]
    return sum(one.memory_info().rss for one in family if one.is_running()) / 1e6


def main() -> None:
    """Play, and print what it took: rounds after the first, in which processes begin."""
    run_simulation(
        server_app=ServerApp(server_fn=server), client_app=ClientApp(client_fn=client),
        num_supernodes=CLIENTS,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )  # fmt: skip
    seconds = np.diff(moments)[1:]
    print("RESULT", json.dumps({"round": float(np.median(seconds)), "memory": memory()}))


if __name__ == "__main__":
    main()
