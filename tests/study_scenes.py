"""A small scenario and study for tests: four agents, a few milliseconds a run."""

from typing import Any

BASE: dict[str, Any] = {
    "name": "small",
    "seed": 1,
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "classification", "rows": 10, "dim": 3},
        "loss": "logistic",
        "regularizer": {"l2": 1.0},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "gradient", "epochs": 3}},
    "network": {"link": {"latency": "10 ms"}},
    "compute": {"speed": {"lognormal": ["1000 /s", 0.5]}},
    "observe": {"metrics": ["error", "loss"]},
    "stop": {"rounds": 12},
}
STUDY: dict[str, Any] = {
    "name": "policies",
    "base": BASE,
    "grid": {"policy": ["all", {"deadline": "100 ms"}], "seed": ["0..3"]},
    "compare": {"targets": {"error": [0.5, 1e-9]}},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The study with some of its keys replaced."""
    return {**STUDY, **changes}


def with_failures() -> dict[str, Any]:
    """A study in which one of two cases diverges in every run."""
    steps = [0.1, 1e9]
    return changed(grid={"algorithm.local.step": steps, "seed": "0..2"}, compare={})


def stillborn(pipe: Any, do: Any) -> None:
    """A worker that ends before it begins."""
    raise SystemExit(3)
