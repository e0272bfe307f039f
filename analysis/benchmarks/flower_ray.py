"""An app by desim in one process, and by Flower's own simulation on Ray, turn by turn.

    python -m analysis.benchmarks.flower_ray

Needs ray beside desim[flower]. Each play is in a process of its own, which says how long it took
and what it and its children cost the processor; Ray's that outlive it are not in that.
"""

import logging
import resource
import subprocess
import sys
import time
from typing import Any

from analysis.benchmarks import flower_sums

CLIENTS = 10, 100
ROUNDS = 5


def desim_play(clients: int) -> None:
    """The app under desim's clock."""
    flower_sums.NODES = clients
    flower_sums.played("plain", "4g", 1)


def flower_play(clients: int) -> None:
    """The same clients and strategy by Flower's simulation."""
    sys.path.insert(0, str(flower_sums.APP))
    import digits_client
    import numpy as np
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.serverapp import ServerApp
    from flwr.simulation import run_simulation

    def server_fn(context: Any) -> Any:
        start = ndarrays_to_parameters([np.zeros((65, 10))])
        strategy = FedAvg(initial_parameters=start, fraction_evaluate=0.0)
        return ServerAppComponents(config=ServerConfig(num_rounds=ROUNDS), strategy=strategy)

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0}}
    run_simulation(ServerApp(server_fn=server_fn), digits_client.plain, clients, resources)


def timed(kind: str, clients: int) -> None:
    """Print what one play took."""
    logging.disable(logging.WARNING)
    begun = time.perf_counter()
    {"desim": desim_play, "flower": flower_play}[kind](clients)
    wall = time.perf_counter() - begun
    used = [resource.getrusage(one) for one in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    processor = sum(one.ru_utime + one.ru_stime for one in used)
    print(f"{clients} clients, {kind}: {wall:.1f} s, processor {processor:.1f} s", flush=True)


def turns() -> None:
    """Both, one after the other, and the first one again."""
    for clients in CLIENTS:
        for kind in ("desim", "flower", "desim"):
            own = [sys.executable, "-m", "analysis.benchmarks.flower_ray", kind, str(clients)]
            subprocess.run(own, check=True)


if __name__ == "__main__":
    timed(sys.argv[1], int(sys.argv[2])) if sys.argv[1:] else turns()
