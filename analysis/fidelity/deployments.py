"""Scenarios played by real processes over the kernel's TCP, beside their simulations.

    python -m analysis.fidelity.deployments [--repeats 3] [PART OF A NAME ...]

First two deployments, with a seed of their own, tell what these processes cost besides links and
speeds: seconds per computation, per reply and per number that the coordinator takes in. The
simulations have these as `compute.overhead` and `compute.coordinator`, columns `simulated`; `bare`
is without them, `ideal` with latency + bits / bandwidth besides. Then all of `configurations`,
those that the law is held to three times. What is measured goes to `measured/deployments.csv` (a
row for each play) and `measured/rounds.csv` (a row for each round); the verdicts are printed.
"""

import argparse
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import desim
from analysis.fidelity.configurations import (
    AGENTS,
    SIZES,
    TARGET,
    Configuration,
    configurations,
    made,
)
from analysis.fidelity.verdicts import verdicts
from desim.deployments.fidelity.clock_errors import ClockErrors
from desim.runs.run import Run

MEASURED = Path(__file__).parent / "measured"
SEED = 1009  # of the deployments that costs come from


def duration(one: Configuration, run: Run) -> float:
    """When a run's last round was over, s; of methods that are ranked, when the target was met."""
    if one.kind == "order":
        return run.time_to(*TARGET)
    rounds = run.events[run.events["kind"] == "aggregate"]
    return float(rounds["time"].max())


def costs() -> Mapping[str, float]:
    """What these processes cost, as keys of `compute`."""
    overheads, gaps = [], {}
    for size in ("1 kB", "400 kB"):
        scenario = {**made("cost", size, "all").scenario, "seed": SEED}
        errors = desim.clock_errors(desim.deploy(scenario), desim.run(scenario))
        overheads.append(-errors.computations["error"].median())
        events = errors.real.events
        sends = events[(events["kind"] == "send") & (events["agent"] < 0)]
        closed = events[events["kind"] == "aggregate"].set_index("round")["time"]
        later = sends.groupby("round")["time"].min().iloc[1:]
        gaps[size] = float(np.median(later.to_numpy() - closed[later.index - 1].to_numpy()))
    few, many = (SIZES[size] for size in gaps)
    number = max(gaps["400 kB"] - gaps["1 kB"], 0.0) / (AGENTS * (many - few))
    reply = max(gaps["1 kB"] / AGENTS - number * few, 0.0)
    seconds = {"overhead": float(np.median(overheads)), "reply": reply, "number": number}
    print(", ".join(f"{name} {value:.3g} s" for name, value in seconds.items()), flush=True)
    return seconds


def simulated(one: Configuration, spent: Mapping[str, float]) -> tuple[Run, Run, Run]:
    """The simulation with what processes cost, without that, and with ideal links besides."""
    compute = {**one.scenario["compute"], "overhead": f"{spent['overhead']!r} s"}
    if "topology" not in one.scenario["network"]:
        compute["coordinator"] = {key: f"{spent[key]!r} s" for key in ("reply", "number")}
    scenarios = {**one.scenario, "compute": compute}, one.scenario, one.beside("ideal")
    first, second, third = (desim.run(scenario) for scenario in scenarios)
    return first, second, third


def row(
    one: Configuration, repeat: int, errors: ClockErrors, bare: Run, ideal: Run
) -> dict[str, Any]:
    """What one play and its simulation have in common, and what not."""
    wide, narrow = errors.accepted["wide"], errors.accepted["narrow"]
    lines, models = errors.real.manifest["clock"]["links"], errors.models
    return {
        "name": one.name,
        "kind": one.kind,
        "repeat": repeat,
        "real": duration(one, errors.real),
        "simulated": duration(one, errors.simulated),
        "bare": duration(one, bare),
        "ideal": duration(one, ideal),
        "same": wide[0],
        "collections": wide[1],
        "same_narrow": narrow[0],
        "narrow": narrow[1],
        "ordered": errors.ordered[0],
        "pairs": errors.ordered[1],
        "apart": models.distance if models is not None else float("nan"),
        "late": lines["late"],
    }


def played(
    one: Configuration, repeats: int, spent: Mapping[str, float]
) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
    """The row of each play, and its rounds."""
    whole, bare, ideal = simulated(one, spent)
    for repeat in range(repeats):
        errors = desim.clock_errors(desim.deploy(one.scenario), whole)
        rounds = errors.rounds[["round", "real", "simulated"]].copy()
        rounds.insert(0, "repeat", repeat)
        rounds.insert(0, "name", one.name)
        yield row(one, repeat, errors, bare, ideal), rounds


def measured(chosen: list[Configuration], repeats: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Play all, and tell of each as it is done."""
    plays, rounds, spent = [], [], costs()
    for one in chosen:
        began = time.monotonic()
        some = []
        for play, table in played(one, repeats if one.kind == "kernel" else 1, spent):
            some.append(play)
            rounds.append(table)
        plays += some
        shares = ", ".join(f"{play['simulated'] / play['real'] - 1:+.2%}" for play in some)
        print(f"{one.name:48} {shares}   ({time.monotonic() - began:.1f} s)", flush=True)
    return pd.DataFrame(plays), pd.concat(rounds)


def main() -> None:
    """Measure, store, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    chosen = [
        one for one in configurations()
        if not asked.names or any(name in one.name for name in asked.names)
    ]  # fmt: skip
    plays, rounds = measured(chosen, asked.repeats)
    if not asked.names:
        plays.to_csv(MEASURED / "deployments.csv", index=False, float_format="%.7g")
        rounds.to_csv(MEASURED / "rounds.csv", index=False, float_format="%.7g")
    print(verdicts(plays, rounds))


if __name__ == "__main__":
    main()
