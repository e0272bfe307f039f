"""desim beside NumPy, JAX, tvopt and decent-bench: Fed-PLT on the same data, the same iterates.

    python -m analysis.benchmarks.peers --environments FOLDER [--agents 10 100 1000] [--turns 7]
        [--only NAME...] [--print]

Each peer has its own interpreter and environment under FOLDER, made on demand. All are pinned to
one processor, but for what stores desim's log where that is said, and take turns; what does not
find the same models within 1e-8 is marked. A peer that cannot be installed is skipped with its
reason. Writes results/peers.csv, results/order.csv and the section of README.md, or with --print
only prints that.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np

from analysis.benchmarks.peers import contest, order, report

DIM, ROWS, EPOCHS, RHO, WEIGHT = 16, 20, 10, 0.3, 0.5


def problem(agents: int, folder: Path) -> Path:
    """The file of one problem: random classification data, the step of gradient descent."""
    random = np.random.default_rng(agents)
    A = random.normal(size=(agents, ROWS, DIM))
    A[:, :, 0] = 1.0  # an intercept, which tvopt always has
    b = np.where(A @ random.normal(size=DIM) + random.logistic(size=(agents, ROWS)) > 0, 1.0, -1.0)
    steepest = max(np.linalg.norm(one, 2) ** 2 / (4.0 * ROWS) for one in A) + WEIGHT
    gamma = 2.0 / (WEIGHT + steepest + 2.0 / RHO)
    path = folder / f"problem-{agents}.npz"
    np.savez(path, A=A, b=b, weight=WEIGHT, gamma=gamma, rho=RHO, epochs=EPOCHS)
    return path


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(prog="python -m analysis.benchmarks.peers")
    parser.add_argument("--environments", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--agents", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--only", nargs="+", default=list(contest.CONTESTANTS), metavar="NAME")
    parser.add_argument("--print", action="store_true", help="write no file")
    chosen = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for agents in chosen.agents:
            file = problem(agents, Path(folder))
            rows += contest.held(file, agents, chosen.only, chosen.environments, chosen.turns)
        effects = order.measured(problem(10, Path(folder)), chosen.environments)
    if chosen.print:
        sys.stdout.write(report.section(rows, effects))
    else:
        report.write(rows, effects)


if __name__ == "__main__":
    main()
