"""How far the orders of federated_in_seconds can be trusted: other networks, other devices.

python -m analysis.studies.robustness [--sets N] [--worlds N]

In every world latency, bandwidth, speed and loss are multiplied by factors between 1/2 and 2, the
same for all methods, as `desim robust` does. A conclusion is about medians over data sets: it holds
in a world where the median of the ratios, data set by data set, is above 1 there.
"""

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from analysis.reproductions import page
from analysis.reproductions.monte_carlo import SCENARIOS, share_of_auto
from analysis.studies.contests import METHODS, NETWORKS, SCENARIO, Contest, Point
from desim.arrays import Array
from desim.experiments.ranking.contenders import aimed, entered
from desim.experiments.ranking.worlds import Race, World, laws, points, times, wilson
from desim.scenario.build import build
from desim.scenario.load import load
from desim.scenario.schema import Scenario

RESULTS = Path(__file__).parent / "results"
TUNED = RESULTS / "federated_in_seconds.csv"
TARGET = ("error", 1e-6)
SETS, WORLDS = 50, 512
NAMES = [Contest("", method, "all") for method in METHODS] + [Contest("", "fed-plt", "buffer")]


class Claim(NamedTuple):
    """A published order: on a network, `first` needs less time than `second`."""

    network: str
    first: Contest
    second: Contest


def claims() -> list[Claim]:
    """What the page says of who is before whom."""

    def one(network: str, first: str, second: str) -> Claim:
        made = [Contest("", *text.split(":")) for text in (f"{first}:all", f"{second}:all")]
        return Claim(network, *made)

    found = [one("lan", "led", "scaffold")]
    found += [one("lan", name, "fed-plt") for name in ("led", "scaffold", "tamuna", "fedavg")]
    for network in NETWORKS[1:]:
        found.append(one(network, "scaffold", "fed-plt"))
        found += [one(network, "fed-plt", name) for name in METHODS if name not in
                  ("scaffold", "fed-plt")]  # fmt: skip
    waiting = Contest("", "fed-plt", "buffer"), Contest("", "fed-plt", "all")
    return [*found, *(Claim(network, *waiting) for network in ("wifi", "stragglers"))]


def parameters() -> Mapping[tuple[str, str, str], Point]:
    """The tuned parameters by network, method and way."""
    table = pd.read_csv(TUNED)
    return {
        (row["network"], row["method"], row["way"]): Point(row["own"], row["step"], row["epochs"])
        for row in table.to_dict("records")
    }


def scenario(contest: Contest, point: Point, seed: int) -> Scenario:
    """A contestant on a data set, whose local step is a number."""
    case = contest.case(point)
    loaded = load(SCENARIOS / f"{SCENARIO}.yaml", {**case.overrides, "seed": seed})
    local = build(loaded).method.local
    step = share_of_auto(point.step)(local) / local.unit
    changed = {**case.overrides, "seed": seed, "algorithm.local.step": step}
    return load(SCENARIOS / f"{SCENARIO}.yaml", changed)


def played(network: str, sets: int, worlds: int) -> dict[Contest, Array]:
    """Seconds (sets, worlds) of each contestant on a network; the first world is the page's."""
    tuned, inputs = parameters(), laws({"behind": "none", "overhead": "none"})
    chosen = points(len(inputs), worlds, seed=0)
    shares = np.concatenate([chosen.first, chosen.second])
    columns = {name: law.of(shares[:, i]) for i, (name, law) in enumerate(inputs.items())}
    every = [World({name: float(columns[name][k]) for name in columns}) for k in range(len(shares))]
    known = [one for one in NAMES if one.way == "all" or network in ("wifi", "stragglers")]
    found = []
    for seed in range(1, sets + 1):
        own = []
        for one in known:
            made = scenario(
                one._replace(network=network), tuned[network, one.method, one.way], seed
            )
            own.append(entered(aimed(made, TARGET), TARGET))
        found.append(times(Race({None: own}), [World({}), *every], workers=2))
    return {one: np.array(found)[:, :, k] for k, one in enumerate(known)}


def held(first: Array, second: Array) -> dict[str, Any]:
    """In how many worlds the median ratio of second over first (sets, worlds) is above 1."""
    never = np.isinf(first) & np.isinf(second)
    with np.errstate(invalid="ignore"):
        ratios = np.where(never, 1.0, second / first)
    medians = np.median(ratios, axis=0)
    worlds = medians[1:]
    met = int(np.count_nonzero(worlds > 1.0))
    low, high = wilson(met, len(worlds))
    return {
        "ratio": medians[0], "ratio_low": np.quantile(worlds, 0.025),
        "ratio_high": np.quantile(worlds, 0.975), "share": met / len(worlds), "low": low,
        "high": high, "single": float(np.mean(ratios[:, 1:] > 1.0)),
    }  # fmt: skip


def rows(sets: int, worlds: int) -> list[dict[str, Any]]:
    """One row for each claim."""
    found = []
    for network in NETWORKS:
        began = time.perf_counter()
        seconds = played(network, sets, worlds)
        print(f"{network}: {time.perf_counter() - began:.0f} s", flush=True)
        for claim in claims():
            if claim.network == network:
                own = held(seconds[claim.first], seconds[claim.second])
                names = {"first": _name(claim.first), "second": _name(claim.second)}
                found.append({"network": network, **names, **own})
    return found


def _name(one: Contest) -> str:
    return METHODS[one.method].label + (", five replies" if one.way == "buffer" else "")


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", type=int, default=SETS)
    parser.add_argument("--worlds", type=int, default=WORLDS)
    parser.add_argument("--out", type=Path, help="folder; default: results/")
    asked = parser.parse_args(arguments)
    found = rows(asked.sets, asked.worlds)
    print(pd.DataFrame(found).to_string(index=False))
    if asked.out or (asked.sets, asked.worlds) == (SETS, WORLDS):
        page.write_csv(asked.out or RESULTS, "robustness", found)


if __name__ == "__main__":
    main()
