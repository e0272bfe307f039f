"""An app by desim in one process, and by Flower's own simulation on Ray, turn by turn.

    python -m analysis.benchmarks.flower_ray
    python -m analysis.benchmarks.flower_ray --clients 10

Needs ray beside desim[flower]. Each play is in a process of its own, which says how long it took
and what it and its children cost the processor; Ray's that outlive it are not in that. All clients
train in all rounds of both, and the last models are compared: else the two did not do the same.
"""

import argparse
import logging
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from analysis.benchmarks import flower_sums

CLIENTS = 10, 100
ROUNDS = 5
TOLERANCE = 1e-12  # of models whose sums have two orders, relative to the largest number


def desim_play(clients: int) -> tuple[Any, list[int]]:
    """The app under desim's clock: its last model, and how many replies each average had."""
    flower_sums.NODES = clients
    run = flower_sums.played("plain", "4g", 1)
    closed = run.events[run.events["kind"] == "aggregate"]
    return run.model[-1], closed.groupby("round")["value"].last().astype(int).tolist()


def flower_play(clients: int) -> tuple[Any, list[int]]:
    """The same clients and strategy by Flower's simulation.

    Nodes register one by one, and a strategy trains those that it finds: without `min_...` of all,
    the first round would have two.
    """
    sys.path.insert(0, str(flower_sums.APP))
    import digits_client
    from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
    from flwr.server import ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    models, averaged = list[Any](), list[int]()

    class Noted(FedAvg):  # type: ignore[misc]
        def aggregate_fit(self, server_round: int, results: Any, failures: Any) -> Any:
            found = super().aggregate_fit(server_round, results, failures)
            averaged.append(len(results))
            models.append(found[0])
            return found

    def server_fn(context: Any) -> Any:
        strategy = Noted(
            initial_parameters=ndarrays_to_parameters([np.zeros((65, 10))]),
            fraction_evaluate=0.0, min_fit_clients=clients, min_available_clients=clients,
        )  # fmt: skip
        return ServerAppComponents(config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(ServerApp(server_fn=server_fn), digits_client.plain, clients, "ray", resources)
    return np.concatenate([one.ravel() for one in parameters_to_ndarrays(models[-1])]), averaged


def timed(kind: str, clients: int, file: Path) -> None:
    """Print what one play took, and store its last model."""
    logging.disable(logging.WARNING)
    begun = time.perf_counter()
    model, averaged = {"desim": desim_play, "flower": flower_play}[kind](clients)
    wall = time.perf_counter() - begun
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(one.ru_utime + one.ru_stime for one in used)
    if averaged != [clients] * ROUNDS:
        raise SystemExit(f"{kind}: found averages of {averaged} replies; allowed: {clients} each")
    np.save(file, model)
    print(f"{clients} clients, {kind}: {wall:.1f} s, processor {processor:.1f} s", flush=True)


def turns(sizes: list[int]) -> None:
    """Both, one after the other, and the first one again; then how far their models differ."""
    with tempfile.TemporaryDirectory() as place:
        for clients in sizes:
            models = []
            for number, kind in enumerate(("desim", "flower", "desim")):
                file = Path(place) / f"{clients}-{number}.npy"
                own = [sys.executable, "-m", __spec__.name, "--play", kind, str(clients), str(file)]
                subprocess.run(own, check=True)
                models.append(np.ravel(np.load(file)))
            scale = np.abs(models[1]).max()
            apart = max(float(np.abs(one - models[1]).max() / scale) for one in models[::2])
            print(f"{clients} clients: largest difference of models {apart:.1e}", flush=True)
            if apart > TOLERANCE:
                raise SystemExit(f"found {apart:.1e}; allowed: {TOLERANCE:g} of the largest number")


def main() -> None:
    """Play one, or all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", metavar="N", type=int, action="append", help="10 and 100")
    parser.add_argument("--play", metavar="X", nargs=3, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.play:
        kind, clients, file = asked.play
        timed(kind, int(clients), Path(file))
    else:
        turns(asked.clients or [*CLIENTS])


if __name__ == "__main__":
    main()
