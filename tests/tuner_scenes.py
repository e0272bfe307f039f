"""A small tuner for tests: six candidates of a scenario of a few milliseconds."""

from typing import Any

from study_scenes import BASE

VARY: dict[str, Any] = {
    "algorithm.rho": [1.0, 3.0],
    "algorithm.local.epochs": [1, 2, 5],
}
TUNE: dict[str, Any] = {
    "vary": VARY, "until": {"error": 1e-1}, "seeds": "0..3", "runs": 30, "batch": 3, "fresh": 2,
    "seed": 1,
}  # fmt: skip
TUNER: dict[str, Any] = {"name": "small", "base": BASE, "tune": TUNE}


def tuner(**changes: Any) -> dict[str, Any]:
    """The tuner with some of the keys of its section replaced; None leaves one out."""
    found = {key: one for key, one in {**TUNE, **changes}.items() if one is not None}
    return {**TUNER, "tune": found}


def private(**changes: Any) -> dict[str, Any]:
    """A tuner of a scenario with noise."""
    base = {
        **BASE,
        "problem": {
            **BASE["problem"], "clip": 1.0, "data": {**BASE["problem"]["data"], "test": "50 %"},
        },
        "algorithm": {
            "name": "fed-plt", "rho": 1.0,
            "local": {"solver": "noisy", "epochs": 2, "tau": 0.1},
        },
        "privacy": {"relation": "replace-one", "view": "coordinator"},
        "observe": {"metrics": ["accuracy"]},
    }  # fmt: skip
    vary = {"algorithm.local.tau": [0.02, 0.1, 0.5], "algorithm.local.epochs": [1, 2]}
    made = tuner(vary=vary, until={"accuracy": 0.7}, **changes)
    return {**made, "base": base}
