"""Whether a method's result depends on the order in which methods are played, at equal seeds."""

import hashlib
import subprocess
from pathlib import Path
from typing import NamedTuple

import desim
from analysis.benchmarks.peers.environments import Unavailable, interpreter

SCRIPT = Path(__file__).resolve().parent / "order_in_decent_bench.py"
ROUNDS, EPOCHS, ACTIVE = 30, 10, 0.5


class Effect(NamedTuple):
    """Hashes of the method's final models where it is played first, and where it is second."""

    name: str
    first: str
    second: str


def measured(file: Path, folder: Path) -> list[Effect]:
    """The effect in decent-bench, if it is there, and in desim, on the problem of a file."""
    effects = [Effect("desim, fed-plt and fedavg", *(played(order) for order in (1, -1)))]
    try:
        python = interpreter("decent-bench", folder)
        hashes = (benched(python, file, order) for order in (1, -1))
        effects.append(Effect("decent-bench, FedLT and FedAvg", *hashes))
    except Unavailable as why:
        effects.append(Effect("decent-bench, FedLT and FedAvg", f"skipped: {why}", ""))
    return effects


def played(order: int) -> str:
    """Play both methods of desim in one order; the hash of Fed-PLT's models."""
    found = {}
    for name in ("fed-plt", "fedavg")[::order]:
        local = {"epochs": EPOCHS}
        own = {"rho": 0.3} if name == "fed-plt" else {}
        scenario = {
            "name": name,
            "problem": {
                "agents": 10,
                "data": {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 16},
                "loss": "squared",
                "regularizer": {"l2": 5.0},
            },
            "algorithm": {"name": name, **own, "local": local},
            "participation": {"bernoulli": ACTIVE},
            "observe": {"metrics": []},
            "stop": {"rounds": ROUNDS},
        }
        found[name] = desim.run(scenario).state["x"]
    return hashlib.sha256(found["fed-plt"].tobytes()).hexdigest()[:12]


def benched(python: Path, file: Path, order: int) -> str:
    """Play both methods of decent-bench in one order; the hash of FedLT's models."""
    command = [str(python), str(SCRIPT), str(file), *("FedLT", "FedAvg")[::order]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable((done.stderr.strip() or "no reason given").splitlines()[-1])
    return done.stdout.strip()
