"""Random private scenarios of honest methods, with every way to end a run: no audit refutes one.

    python -m analysis.fuzz_audits 200

Each draw is a small scenario; what is impossible, or fails, is drawn again. Of the others the check
of transcripts compares a play with its replay on data in which one record differs, and so does a
pair of the distinguishing game. What either finds is printed with its scenario, and the exit code
is 1. Number i of a seed is always the same.
"""

import random
import sys
from typing import Any

import numpy as np

import desim
from analysis.fuzz_rules import LINKS, OWN, policy
from analysis.fuzz_scenarios import arguments, until
from desim.engine.play import Simulation
from desim.errors import InputError, RunError
from desim.experiments.audit.neighbours import neighbours, worst_pair
from desim.experiments.audit.of_method import HIDDEN
from desim.experiments.audit.pairs import play_pair, unobserved
from desim.experiments.audit.transcript_check import transcript_check
from desim.log.parquet import Tables
from desim.scenario.build import build

NOISY = {"solver": "noisy", "epochs": 2, "tau": 0.05}
PLAUSIBLE = {"eta": 0.4, "beta": 0.01, "splits": 0.2}
TRAINED: dict[str, dict[str, Any]] = {  # at a coordinator, with noise in local training
    "fed-plt": {"rho": 0.5}, "fedavg": {}, "fedprox": {"mu": 0.5}, "feddyn": {"alpha": 0.5},
    "scaffold": {}, "led": {}, "fedlin": {}, "fed-pd": {"eta": 0.3}, "5gcs": {"tau": 0.2},
    "fedasync": {"alpha": 0.3, "rho": 0.1}, "tamuna": {"p": 0.3},
}  # fmt: skip
STAR: dict[str, dict[str, Any]] = {
    "dp-admm": OWN["dp-admm"],
    "fedbuff": {"global_step": 0.5, "clip": 0.3},
}
GRAPH: dict[str, dict[str, Any]] = {
    **{name: OWN[name] for name in ("zcdp-nfl", "zcdp-subgradient", "p-admm", "dsgd", "q-dpsgd-1",
                                    "d-zoa", "gossip", "ad-psgd", "gradient-tracking",
                                    "push-sum", "choco-sgd",
                                    "muffliato", "decor")},
    "pvp": {"rho": 0.4}, "pr-admm": {"eta": 0.4, "U": 5.0}, "pp-admm": PLAUSIBLE,
    "ipp-admm": {**PLAUSIBLE, "c": 4}, "dvp": {"rho": 2.0}, "m-admm": {"eta": 1.0},
    "r-admm": {"eta": 1.0, "gamma": 1.0}, "sdm-dsgd": {"alpha": 0.2, "theta": 0.5, "c": 0.4},
    "led": {"local": NOISY},
}  # fmt: skip
CENTRAL: dict[str, dict[str, Any]] = {
    "gradient-descent": {}, "or-zo": {"samples": 4, "step": 0.5},
    "zoo-admm": {"rho": 0.5, "step": 0.2, "samples": 4},
}  # fmt: skip


def stop(draw: random.Random) -> dict[str, Any]:
    """When a run ends: a time that agents are on the way at, rounds, a metric."""
    time = f"{10 ** draw.uniform(-1.5, 0.0):.4f} s"
    target = {"metric": {"loss": draw.choice([0.1, 0.6, 0.69])}}
    return draw.choice([
        {"time": time}, {"time": time}, {"time": time, "rounds": draw.randint(2, 9)},
        {"rounds": draw.randint(2, 9)}, {"time": time, **target}, {"rounds": 9, **target},
    ])  # fmt: skip


def drawn(draw: random.Random) -> dict[str, Any]:
    """A private scenario, possible or not."""
    where = draw.choice(["star", "star", "graph", "graph", "graph", "central"])
    methods = {"star": {**TRAINED, **STAR}, "graph": GRAPH, "central": CENTRAL}[where]
    name = draw.choice(list(methods))
    kind = draw.choice(["classification", "regression"])
    data: dict[str, Any] = {"source": "synthetic", "kind": kind, "rows": 6, "dim": 4}
    loss = "logistic" if kind == "classification" else draw.choice(["squared", {"huber": 0.7}])
    scenario: dict[str, Any] = {
        "seed": draw.randrange(1 << 30),
        "problem": {"agents": 6, "data": data, "loss": loss, "regularizer": {"l2": 1.0},
                    "clip": draw.choice([0.3, 1.0]), "row_norm": {"clip": 2.0}},
        "algorithm": {"name": name, **methods[name]},
        "compute": {"speed": {"uniform": [50, 900]}, "redraw": draw.choice(["run", "round"])},
        "observe": {"metrics": ["loss"]},
        "stop": stop(draw),
        "privacy": {},
    }  # fmt: skip
    if name in TRAINED and where == "star":
        scenario["algorithm"]["local"] = NOISY
    elif "local" not in methods[name]:
        noise = {"kind": "l2-laplace"} if name in ("dvp", "m-admm", "r-admm") else {}
        scenario["privacy"]["noise"] = {**noise, "sigma": draw.choice([0.1, 0.5])}
    if name == "fedbuff":
        scenario["privacy"]["relation"] = "agent"
    if where == "central":
        del scenario["problem"]["agents"]
        return budgeted(draw, scenario)
    scenario["network"] = {"link": draw.choice(LINKS)}
    if where == "graph":
        scenario["network"]["topology"] = draw.choice(["ring", {"regular": 3}, "complete"])
    elif draw.random() < 0.3:
        scenario["participation"] = draw.choice([{"bernoulli": 0.6}, {"uniform": 3}])
    scenario["policy"] = draw.choice(["all", policy(draw, where == "graph")])
    if where == "graph" and draw.random() < 0.15:
        scenario["policy"] = "each"
    if draw.random() < 0.25:
        away = {"up": f"{draw.uniform(0.3, 3):.3f} s", "down": f"{draw.uniform(0.01, 0.1):.3f} s"}
        scenario["churn"] = {key: {"exponential": value} for key, value in away.items()}
        if draw.random() < 0.3:
            scenario["churn"]["memory"] = "lost"
    if draw.random() < 0.3:
        scenario["engine"] = "agents"
    return budgeted(draw, scenario)


def budgeted(draw: random.Random, scenario: dict[str, Any]) -> dict[str, Any]:
    """The scenario, perhaps with a budget that ends agents or the run."""
    if draw.random() < 0.25:
        given = {"budget": 10 ** draw.uniform(0.5, 3.0)}
        scenario["privacy"] |= given | {"on_exhausted": draw.choice(["retire", "stop"])}
    return scenario


def _scored(simulation: Simulation, agent: int) -> bool:
    """Whether noise of finite cost is added to all that an agent releases."""
    tables = Tables()
    unobserved(simulation).play(tables)
    own = tables.read("releases").query(f"agent == {agent}")
    return bool((~own.mechanism.isin(HIDDEN) & (own.sensitivity < np.inf)).all())


def tried(number: int, seed: int) -> tuple[str, str]:
    """What became of draw `number`, and what an audit holds against it."""
    draw = random.Random(f"{seed} {number}")
    scenario = drawn(draw)
    try:
        simulation = build(desim.load(scenario))
        agent = draw.randrange(simulation.problem.agents)
        row = draw.randrange(int(simulation.problem.rows[agent]))
        pair = neighbours(simulation, agent, row)
        if draw.random() < 0.2:
            pair = worst_pair(simulation, agent, row)
        found = transcript_check(pair).violations
        scored = _scored(pair.first, agent)
        apart = play_pair(pair.first, pair.second, seed, agent).apart if scored else ""
    except InputError as error:
        return "refused", "" if str(error).strip() else f"without a word: {scenario!r}"
    except RunError:
        return "failed", ""
    wrong = apart or ("" if found.empty else f"\n{found.head(5)}")
    how = "refuted" if wrong else "time" if "time" in scenario["stop"] else "rounds"
    return how, f"number {number}: {wrong}: {scenario!r}" if wrong else ""


def main() -> None:
    """Draw until so many were audited, and print what became of them."""
    given = arguments(__doc__, 200).parse_args()
    counts, _ = until(lambda number: tried(number, given.seed), given.count)
    sys.exit(bool(counts["refuted"]))


if __name__ == "__main__":
    main()
