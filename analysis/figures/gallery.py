"""The gallery: one figure of each kind, from the shipped scenarios.

python -m analysis.figures.gallery          # a minute of one core; writes gallery-*.svg beside it
"""

from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

import desim
from desim.interface.plots import bars, ecdf, profile, staleness, tradeoff

FOLDER = Path(__file__).parent
SCENARIOS = FOLDER.parents[1] / "scenarios"
QUICKSTART = SCENARIOS / "quickstart.yaml"
SEEDS = range(8)
POLICIES: dict[str, Any] = {
    "wait for all": "all",
    "deadline 1 s": {"deadline": "1 s"},
    "buffer of 5": {"buffer": 5},
    "each reply": "each",
}
CONTEST: dict[str, Any] = {
    "name": "contest",
    "base": "papers/fed-plt-in-seconds",
    "list": [
        {"label": label, "algorithm": {**own, "local": {"solver": "gradient", **local}}}
        for label, own, local in (
            ("Fed-PLT", {"name": "fed-plt", "rho": 0.255}, {"epochs": 5, "step": 0.0855}),
            ("LED", {"name": "led", "beta": 0.43}, {"epochs": 1, "step": 0.23}),
            ("TAMUNA", {"name": "tamuna", "chi": 1.41}, {"epochs": 1, "step": 0.248}),
        )
    ],
    "grid": {"network": ["lan", "wifi", "4g", "satellite", "stragglers"], "seed": "0..9"},
    "compare": {"targets": {"error": [1e-2, 1e-4, 1e-6]}},
}
NOISE = (0.03, 0.1, 0.3, 1.0)


def place(name: str) -> Path:
    """Where the figure of this name is."""
    return FOLDER / f"gallery-{name}.svg"


def of_policies() -> None:
    """Many seeds of four ways of waiting: curves against seconds, bytes and epsilon, and bars."""
    runs = {
        name: list(
            desim.repeat(
                QUICKSTART, SEEDS, {"name": name, "policy": policy, "stop": {"time": "12 s"}}
            )
        )
        for name, policy in POLICIES.items()
    }
    ends = {name: runs[name] for name in ("wait for all", "each reply")}
    desim.plot(ends, metric="accuracy", out=place("seconds"))
    desim.plot(ends, metric="loss", x="bytes", out=place("bytes"))
    desim.plot(ends, metric="loss", x="round", out=place("rounds"))
    desim.plot(ends, metric="accuracy", x="epsilon", out=place("epsilon-curve"))
    bars(runs, metric="accuracy", target=0.94, out=place("bars"))
    late = [runs[name][0] for name in ("buffer of 5", "each reply")]
    staleness(late, out=place("staleness"))


def of_noise() -> None:
    """More and less noise, with two methods: what privacy costs."""
    runs = []
    for name, own in (("fed-plt", {"rho": 0.5}), ("fedavg", {})):
        for tau in (*NOISE, None):
            noisy = {"solver": "noisy", "epochs": 10, "tau": tau}
            local = noisy if tau else {"solver": "gradient", "epochs": 10}
            algorithm = {"name": name, **own, "local": local}
            changes = {"name": name, "algorithm": algorithm, "stop": {"rounds": 20}}
            runs += list(desim.repeat(QUICKSTART, SEEDS, changes))
    tradeoff(runs, metric="accuracy", out=place("tradeoff"))


def of_contest() -> None:
    """Three methods on five networks: who is first, and what is met by when."""
    found = desim.study(CONTEST, workers=0)
    profile(found, out=place("profile"))
    ecdf(found, out=place("ecdf"))


def of_runs() -> None:
    """Who computes, sends and waits, where, and what each agent has spent."""
    quick = desim.run(QUICKSTART)
    quick.plot.timeline(rounds=(1, 12), out=place("timeline"))
    quick.plot.utilisation(out=place("utilisation"))
    quick.plot.network(out=place("network-star"))
    asynchronous = SCENARIOS / "asynchronous.yaml"
    desim.run(asynchronous).plot.timeline(out=place("timeline-asynchronous"))
    bounded = desim.run(asynchronous, overrides={"privacy": {"budget": 4}})
    bounded.plot.epsilon(out=place("epsilon"))
    changes = {"network": {"include": "4g", "topology": {"regular": 4}}, "stop.rounds": 60}
    graph = desim.run(SCENARIOS / "networked-admm.yaml", overrides=changes)
    graph.plot.timeline(rounds=(1, 12), out=place("timeline-many"))
    graph.plot.network(out=place("network-graph"))


def of_pairs() -> None:
    """What agents on a ring learn of each other: the scenario of the page."""
    page = (SCENARIOS.parent / "analysis" / "docs" / "howto" / "pairs.md").read_text("utf-8")
    run = desim.run(YAML().load(page.split("```yaml\n")[1].split("```")[0]))
    run.plot.pairs(out=place("pairs"))
    run.plot.distance(out=place("distance"))
    run.plot.learnt(out=place("learnt"))


def main() -> None:
    """Draw them all."""
    of_pairs()
    of_runs()
    of_noise()
    of_policies()
    of_contest()


if __name__ == "__main__":
    main()
