"""Trees of coordinators played by real processes, beside their simulations, and a star for scale.

    python -m analysis.fidelity.trees [--repeats 3]

Digits and softmax over TCP on lines of this machine, in two and three levels. What is measured goes
to `measured/trees.csv`, a row for each play with the load of the machine before it; the table that
the page on trees has is printed.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

import desim

FILE = Path(__file__).parent / "measured" / "trees.csv"
TCP: Mapping[str, Any] = {"tcp": {}}


def star(agents: int, rounds: int, method: str = "fedavg", **more: Any) -> dict[str, Any]:
    """So many agents at the far end of a slow line."""
    return {
        "name": "measured", "seed": 3,
        "problem": {
            "agents": agents, "loss": "softmax", "regularizer": {"l2": 0.01},
            "data": {"source": "sklearn", "name": "digits", "test": "25 %", "scale": "max"},
        },
        "algorithm": {"name": method, "local": {"epochs": 1}, **more},
        "network": {"link": {"latency": "95 ms", "bandwidth": "2 Mbit/s", "transport": TCP}},
        "compute": {"speed": {"lognormal": ["400 /s", 0.3]}},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": rounds},
    }  # fmt: skip


def level(rounds: int, latency: str = "80 ms", rate: str = "2 Mbit/s", **more: Any) -> Any:
    """Edges that make so many rounds, and their line to what is above."""
    link = {"latency": latency, "bandwidth": rate, "transport": TCP}
    return {"link": link, "rounds": rounds, **more}


def tree(sizes: list[int], *levels: Any, rounds: int, **more: Any) -> dict[str, Any]:
    """A tree whose clients are near to their edges."""
    clients = 1
    for size in sizes:
        clients *= size
    scenario = star(clients, rounds, **more)
    near = {"latency": "15 ms", "bandwidth": "20 Mbit/s", "transport": TCP}
    network = {"topology": {"tree": sizes}, "levels": [*levels], "link": near}
    return {**scenario, "network": network}


INCREMENTS = {"method": "fed-plt", "rho": 1.0, "send": "increments"}
CASES = {
    "a star of six over both lines": star(6, 15),
    "`fedavg`, `[2, 3]`, k2 = 1": tree([2, 3], level(1), rounds=15),
    "`fed-plt`, `[2, 3]`, k2 = 3": tree([2, 3], level(3), rounds=6, **INCREMENTS),
    "`fedavg`, `[2, 2, 2]`, k2 = 2 and 2": tree(
        [2, 2, 2], level(2), level(2, "40 ms", "5 Mbit/s"), rounds=4
    ),
    "`scaffold`, `[3, 2]`, k2 = 2, `quorum: 2` above": tree(
        [3, 2], level(2, policy={"quorum": 2}), rounds=8, method="scaffold"
    ),
}


def measured(case: str) -> Iterator[tuple[str, Any]]:
    """One play of a case beside its simulation: names and values of a row."""
    yield from (("case", case), ("load", round(os.getloadavg()[0], 1)))
    errors = desim.clock_errors(desim.deploy(CASES[case]), desim.run(CASES[case]))
    whole, summary = errors.targets.iloc[-1], errors.summary.set_index("what")
    yield from (("real", whole["real"]), ("simulated", whole["simulated"]))
    for what in ("rounds", "messages", "computations"):
        yield what, summary.loc[what, "median"]
    yield "n", summary.loc["messages", "n"]
    yield "equal", errors.models is not None and errors.models.distance == 0.0


def table(rows: pd.DataFrame) -> Iterator[str]:
    """Lines of the page's table: medians over plays, and the range of what is off in all."""
    for case, plays in rows.groupby("case", sort=False):
        off = 100.0 * (plays["simulated"] / plays["real"] - 1.0)
        times = (f"{plays[name].median():.2f} s" for name in ("real", "simulated"))
        sizes = (100.0 * plays[name].median() for name in ("rounds", "messages", "computations"))
        cells = [f"{off.median():.2f} % ({off.min():.2f} to {off.max():.2f})"]
        cells += [f"{size:.2f} %" for size in sizes]
        yield f"| {case} | {' | '.join([*times, *cells])} |"


def main() -> None:
    """Measure, store and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    rows = []
    for _ in range(parser.parse_args().repeats):
        for case in CASES:
            rows.append(dict(measured(case)))
            print(rows[-1], flush=True)
            pd.DataFrame(rows).to_csv(FILE, index=False, float_format="%.6g")
    print("\n".join(table(pd.DataFrame(rows))))


if __name__ == "__main__":
    main()
