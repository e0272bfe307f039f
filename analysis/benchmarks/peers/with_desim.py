"""Fed-PLT in desim: `played` with network, clocks and a log that is stored, or `bare` kernels."""

import sys
import tempfile
from functools import cache
from pathlib import Path

import numpy as np
from worker import Problem, Run, serve

from desim.engine.world import Discard
from desim.log.parquet import Tables
from desim.problem.kernels.local import train
from desim.scenario.build import build
from desim.scenario.load import load


def simulations(p: Problem, noise: float):  # type: ignore[no-untyped-def]
    """simulation(rounds): the scenario that says the same as the problem."""
    file = Path(tempfile.mkdtemp()) / "data.npz"
    np.savez(file, A=p.A, b=p.b)
    solver = {"solver": "noisy", "tau": noise} if noise else {"solver": "gradient"}

    @cache
    def simulation(rounds: int):  # type: ignore[no-untyped-def]
        scenario = {
            "name": "peers",
            "problem": {
                "data": {"source": "npz", "file": str(file)},
                "loss": "logistic",
                "regularizer": {"l2": p.weight * len(p.A)},
            },
            "algorithm": {
                "name": "fed-plt",
                "rho": p.rho,
                "local": {**solver, "epochs": p.epochs, "step": p.gamma},
            },
            "observe": {"metrics": []},
            "stop": {"rounds": rounds},
        }
        return build(load(scenario))

    return simulation


def played(p: Problem, noise: float = 0.0) -> Run:
    """The whole simulation, its log written to a directory."""
    simulation = simulations(p, noise)

    def run(rounds: int) -> np.ndarray:
        with tempfile.TemporaryDirectory() as folder:
            tables = Tables(Path(folder))
            outcome = simulation(rounds).play(tables)
            tables.finish()
        return outcome.state["x"]

    return run


def silent(p: Problem) -> Run:
    """The whole simulation, its log thrown away."""
    simulation = simulations(p, 0.0)
    return lambda rounds: simulation(rounds).play(Discard()).state["x"]


def bare(p: Problem) -> Run:
    """The kernel of local training in a loop, as fast as desim could be."""
    made = simulations(p, 0.0)(1)
    local, data, who = made.method.local, made.problem.data, np.arange(len(p.A))

    def run(rounds: int) -> np.ndarray:
        x, z = np.zeros((len(who), p.A.shape[2])), np.zeros((len(who), p.A.shape[2]))
        for k in range(rounds):
            y = z.mean(axis=0)
            v, round_ = 2.0 * y - z, np.full(len(who), k)
            x = train(who, x, v, round_, local.epochs, 1, local.plan, data)
            z = z + 2.0 * (x - y)
        return x

    return run


MAKERS = {"played": played, "noisy": lambda p: played(p, 0.01), "silent": silent, "bare": bare}

if __name__ == "__main__":
    serve(MAKERS[sys.argv[5]], ("desim", "numba", "numpy"))
