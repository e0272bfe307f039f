"""Random ways of waiting, inviting, weighing and coding: the same bits on every engine.

    python -m analysis.fuzz_rules 500
    python -m analysis.fuzz_rules 500 --compiled

Each draw is a small scenario; what is impossible is refused in words and drawn again. Played on all
engines that can, its events, releases, metrics and models must be equal to the last bit. Whatever
is not is printed with its scenario, and the exit code is 1. Number i of a seed is always the same.
--compiled draws what the compiled engine may play, on compiled code from the first call on, and
counts what it does play.
"""

import os
import random
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

import desim
from analysis.fuzz_scenarios import arguments, until
from desim.errors import InputError, RunError
from desim.runs.run import Run
from desim.scenario import registry
from desim.scenario.build import check

ENGINES = ("agents", "cohort", "compiled")
TABLES = ("events", "releases", "metrics")
LINKS: list[dict[str, Any]] = [
    {"latency": {"uniform": ["5 ms", "40 ms"]}, "bandwidth": {"uniform": ["1 Mbit/s", "9 Mbit/s"]},
     "jitter": {"lognormal": 0.3}},
    {"latency": "10 ms", "bandwidth": "1 Mbit/s", "loss": "10 %", "timeout": "60 ms", "limit": 5},
    {"latency": "10 ms", "bandwidth": "1 Mbit/s", "loss": "10 %", "on_loss": "drop"},
    {"latency": {"lognormal": ["20 ms", 0.5]}, "bandwidth": "2 Mbit/s", "transport": "tcp"},
    {"latency": "0 s", "bandwidth": "inf"},
]  # fmt: skip
OWN: dict[str, dict[str, Any]] = {  # what some methods cannot do without
    "fed-plt": {"rho": 0.5},
    "zcdp-nfl": {"rho": 0.4, "eta": 0.2},
    "zcdp-subgradient": {"step": 0.1},
    "p-admm": {"rho": 0.4},
    "dp-admm": {"rho": 0.5, "eta": 1.0},
    "led": {"beta": 0.5},
    "dvp": {"eta": 0.5},
    "dsgd": {"alpha": 0.2},
    "q-dpsgd-1": {"alpha": 0.2, "mixing": 0.5, "bits": 6, "resolution": 0.05, "deadline": "20 ms"},
    "d-zoa": {"rho": 1.0, "inner": 3, "samples": 3, "step": 0.3},
    "gossip": {"alpha": 0.1},
    "muffliato": {"alpha": 0.1, "gossip": 2},
    "decor": {"alpha": 0.1, "shared": 0.3},
    "ad-psgd": {"alpha": 0.1},
    "gradient-tracking": {"alpha": 0.05},
    "push-sum": {"alpha": 0.1},
    "choco-sgd": {"alpha": 0.1},
}
STAR = (
    "fed-plt fedavg scaffold fed-pd 5gcs dp-admm led fedlin tamuna fedasync fedbuff fedprox feddyn"
).split()
GRAPH = (
    "zcdp-nfl zcdp-subgradient p-admm dsgd q-dpsgd-1 d-zoa dvp gossip ad-psgd gradient-tracking "
    "push-sum choco-sgd muffliato decor"
).split()


def policy(draw: random.Random, graph: bool) -> Any:
    """A rule of waiting, and what it combines with."""
    seconds, number = f"{draw.uniform(0.01, 0.4):.3f} s", draw.randint(1, 6)
    adaptive = draw.choice([
        {"mad": draw.choice([0, 0.5, 1, 3])}, {"quantile": round(draw.uniform(0.05, 1.0), 2)},
    ])  # fmt: skip
    if draw.random() < 0.3:
        adaptive["times"] = round(draw.uniform(0.5, 2.0), 2)
    rules = [{"deadline": seconds}, {"quorum": number}, {"adaptive": adaptive}]
    rules += ["all"] if graph else ["all", "each", {"buffer": number}]
    rule = draw.choice(rules)
    if isinstance(rule, str):
        return rule
    if "deadline" not in rule and draw.random() < 0.5:
        rule["at_most"] = f"{draw.uniform(0.02, 0.4):.3f} s"
    if draw.random() < 0.4:
        rule["at_least"] = draw.randint(1, 3)
    if not graph and draw.random() < 0.5:
        rule["late"] = draw.choice(["carry", "discard"])
    if not graph and draw.random() < 0.3:
        laws = ["constant", {"polynomial": 0.5}, {"hinge": {"a": 0.5, "b": 1}}]
        rule["staleness"] = draw.choice(laws)
    return rule


def participation(draw: random.Random, aimed: bool) -> Any:
    """Who is invited; aimed: by nobody who remembers."""
    choosers = "fastest oldest round-robin power-of-choice oort available tiers".split()
    chosen = {"choose": draw.choice(choosers), "invite": draw.randint(1, 6)}
    plain = ["all", {"bernoulli": 0.6}, {"uniform": draw.randint(2, 6)},
             {"schedule": [[0, 2, 4], [], [1, 5]]}]  # fmt: skip
    return chosen if draw.random() < 0.4 and not aimed else draw.choice(plain)


def codec(draw: random.Random) -> Any:
    """How messages are coded."""
    share = f"{draw.randint(10, 90)} %"
    return draw.choice([
        "float32", "float16", {"top-k": share}, {"random-k": share},
        {"quantise": {"bits": draw.randint(2, 8)}},
    ])  # fmt: skip


def drawn(draw: random.Random, aimed: bool = False) -> dict[str, Any]:
    """A scenario, possible or not; aimed: at what the compiled engine plays."""
    graph = draw.random() < 0.4 and not aimed
    name = draw.choice([one for one in (GRAPH if graph else STAR) if one in registry.OWN])
    network: dict[str, Any] = {"link": draw.choice(LINKS)}
    algorithm: dict[str, Any] = {"name": name, **OWN.get(name, {})}
    if graph:
        network["topology"] = draw.choice(["ring", {"regular": 3}, "complete"])
    elif draw.random() < 0.6:
        algorithm["local"] = {"epochs": draw.randint(1, 3)}
    data = {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4}
    scenario = {
        "seed": draw.randrange(1 << 30),
        "problem": {"agents": 6, "data": data, "loss": "logistic", "regularizer": {"l2": 1.0}},
        "algorithm": algorithm,
        "policy": policy(draw, graph),
        "network": network,
        "compute": {"speed": {"uniform": [50, 900]}, "redraw": draw.choice(["run", "round"])},
        "observe": {"metrics": ["loss"], "iterates": True},
        "stop": draw.choice([{"rounds": 10}, {"rounds": 10}, {"time": "0.7 s"}]),
    }
    if not graph:
        scenario["participation"] = participation(draw, aimed)
    if draw.random() < 0.25 and not aimed:
        scenario["codec"] = codec(draw)
    if draw.random() < 0.25:
        scenario["problem"]["clip"] = 1.0
        scenario["privacy"] = {"noise": {"kind": "gaussian", "sigma": 0.1}}
    return varied(draw, scenario) if aimed else scenario


def varied(draw: random.Random, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario with other arithmetic inside its rounds."""
    problem, algorithm = scenario["problem"], scenario["algorithm"]
    kind = draw.choice(["classification", "regression"])
    losses = {"classification": ["logistic"], "regression": ["squared", {"huber": 0.7}]}
    problem["data"] = {**problem["data"], "kind": kind, "rows": draw.randint(1, 9)}
    problem["loss"] = draw.choice(losses[kind])
    problem["average"] = draw.choice(["mean", "sum"])
    algorithm["local"] = {"epochs": draw.randint(1, 4), "step": draw.choice(["auto", 0.01])}
    solver = draw.choice(["gradient", "accelerated", {"sgd": draw.randint(1, 4)}])
    if isinstance(solver, dict):
        algorithm["local"] |= {"solver": "sgd", "batch": solver["sgd"]}
    else:
        algorithm["local"]["solver"] = solver
    scenario["observe"] = {
        "metrics": draw.choice([["loss"], ["error"], []]), "iterates": draw.random() < 0.5,
    }  # fmt: skip
    scenario["stop"] = draw.choice([{"rounds": 40}, {"time": "3 s"}, {"rounds": 3}])
    return scenario


def outcomes(scenario: dict[str, Any]) -> Iterator[tuple[str, Run | str]]:
    """What each engine makes of it: a run, or the words with which it ends."""
    for engine in ENGINES:
        try:
            loaded = desim.load(scenario, {"engine": engine})
            check(loaded)
        except InputError:
            if engine == ENGINES[0]:
                raise
            continue
        try:
            yield engine, desim.run(loaded)
        except RunError as error:
            yield engine, str(error)


def differs(one: Run | str, other: Run | str) -> list[str]:
    """What two outcomes differ in, to the last bit."""
    if isinstance(one, str) or isinstance(other, str):
        return [] if isinstance(one, str) and isinstance(other, str) else ["one ends in words"]
    found = [name for name in TABLES if not getattr(one, name).equals(getattr(other, name))]
    for name in ("iterates", "model"):
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None) or (
            a is not None and not np.array_equal(a, b, equal_nan=True)
        ):
            found.append(name)
    return found


def tried(number: int, seed: int, aimed: bool = False) -> tuple[str, str]:
    """The outcome of draw `number`, and what is wrong with it."""
    scenario = drawn(random.Random(f"{seed} {number}"), aimed)
    try:
        if aimed:
            check(desim.load(scenario, {"engine": "compiled"}))
        (_, first), *others = list(outcomes(scenario))
    except InputError as error:
        return "refused", "" if str(error).strip() else f"without a word: {scenario!r}"
    wrong = {engine: found for engine, other in others if (found := differs(first, other))}
    kind = "ended in words" if isinstance(first, str) else f"on {1 + len(others)} engines"
    return kind, f"number {number}: {wrong}: {scenario!r}" if wrong else ""


def main() -> None:
    """Draw until so many were played, and print what became of them."""
    parser = arguments(__doc__, 500)
    parser.add_argument("--compiled", action="store_true", help="what the compiled engine plays")
    given = parser.parse_args()
    if given.compiled:
        os.environ.setdefault("DESIM_COMPILE", "at-once")
    _, faults = until(lambda number: tried(number, given.seed, given.compiled), given.count)
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
