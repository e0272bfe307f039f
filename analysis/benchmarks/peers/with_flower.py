"""Federated averaging of a torch network under Flower's simulation; `networks` runs it.

PYTHON with_flower.py FILE CLIENTS ROUNDS    # prints the seconds of each round
"""

import json
import sys
import time

import flwr
import numpy as np
import torch
from flwr.client import ClientApp, NumPyClient
from flwr.common import Context, ndarrays_to_parameters
from flwr.server import ServerApp, ServerAppComponents, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.simulation import run_simulation
from network import network, trained

FILE, CLIENTS, ROUNDS = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
moments: list[float] = []


class Client(NumPyClient):
    """A share of the images."""

    def __init__(self, place: int) -> None:
        self.place = place

    def fit(self, parameters: list, config: dict) -> tuple:
        """Train the model that came, and return it."""
        torch.set_num_threads(1)
        net = network()
        with torch.no_grad():
            for own, new in zip(net.parameters(), parameters, strict=True):
                own.copy_(torch.from_numpy(new))
        rows = trained(net, FILE, CLIENTS, self.place)
        return [one.detach().numpy() for one in net.parameters()], rows, {}


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


def main() -> None:
    """Play, and print what it took."""
    run_simulation(
        server_app=ServerApp(server_fn=server), client_app=ClientApp(client_fn=client),
        num_supernodes=CLIENTS,
        backend_config={
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0}, "init_args": {"num_cpus": 1},
        },
    )  # fmt: skip
    seconds = np.diff(moments)[1:].tolist()
    print("RESULT", json.dumps({"rounds": seconds, "version": f"Flower {flwr.__version__}"}))


if __name__ == "__main__":
    main()
