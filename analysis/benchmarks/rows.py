"""Whether rows padded to eight would train sooner: local steps on a few numbers of rows.

    python -m analysis.benchmarks.rows

Lanes take eight rows at a time, then four, then each by itself: 24 rows take what padding makes of
17 to 23. 100 agents, ten local steps, 16 features, one thread.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

from functools import partial
from typing import Any

from analysis.benchmarks.engines import STAR, bare
from analysis.benchmarks.timing import interleaved, machine
from desim.scenario.build import build
from desim.scenario.load import load

ROWS = 16, 17, 20, 21, 23, 24
SOLVERS: dict[str, dict[str, Any]] = {"gradient": {}, "noisy": {"tau": 0.01}}
AGENTS, STEPS, TURNS = 100, 10, 60


def trainings(rows: int, solver: str) -> Any:
    """The local training of all agents, twenty times."""
    data = {**STAR["problem"]["data"], "rows": rows}
    problem = {**STAR["problem"], "agents": AGENTS, "data": data}
    local = {"solver": solver, "epochs": STEPS, **SOLVERS[solver]}
    algorithm = {**STAR["algorithm"], "local": local}
    return partial(bare, build(load({**STAR, "problem": problem, "algorithm": algorithm})), 20)


def main() -> None:
    """Measure and print."""
    print(f"{machine()}\n\n| solver | {' | '.join(map(str, ROWS))} |\n|{'---|' * (len(ROWS) + 1)}")
    for solver in SOLVERS:
        calls = {str(rows): trainings(rows, solver) for rows in ROWS}
        least = [1e6 * low / (20 * AGENTS) for low, _ in interleaved(calls, TURNS).values()]
        print(f"| {solver} | {' | '.join(f'{one:.2f}' for one in least)} |", flush=True)


if __name__ == "__main__":
    main()
