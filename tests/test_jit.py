"""Lean kernels: numba does not count who holds their arrays, so none may be made or returned."""

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from numba.core import types

import desim
from desim.jit import lean_inline, lean_kernel

SMALL: dict[str, Any] = {
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 3},
    },
    "network": {"link": {"jitter": {"lognormal": 0.3}, "loss": "20 %"}},
    "stop": {"rounds": 3},
}
STAR = SMALL | {"algorithm": {"name": "fedavg", "local": {"solver": "noisy", "tau": 0.1}}}
RING = SMALL | {
    "algorithm": {"name": "zcdp-nfl", "rho": 0.3, "eta": 0.1},
    "network": SMALL["network"] | {"topology": "ring"},
    "privacy": {"noise": {"sigma": 0.1}},
}


def lean_functions() -> dict[str, Any]:
    """Every function of desim that was compiled without counting."""
    found = {}
    for module in pkgutil.walk_packages(desim.__path__, "desim."):
        if module.name.startswith(("desim.kernels", "desim.privacy", "desim.log")):
            for name, one in vars(importlib.import_module(module.name)).items():
                if getattr(one, "targetoptions", {}).get("_nrt") is False:
                    found[name] = one
    return found


def holds_an_array(kind: Any) -> bool:
    """Whether values of this compiled type hold memory that somebody must count."""
    return isinstance(kind, types.Array) or any(map(holds_an_array, getattr(kind, "types", ())))


def returns(function: Any) -> list[Any]:
    """Types that the function's compiled forms return."""
    return [form.signature.return_type for form in function.overloads.values()]


@pytest.mark.filterwarnings("ignore")
def test_no_lean_function_returns_an_array() -> None:
    for scenario in (STAR, RING):
        problem = scenario["problem"] | {"loss": "logistic", "clip": 1.0}
        desim.run(scenario | {"problem": problem})
    lean = lean_functions()
    assert {"call", "broadcast", "write", "charge"} <= lean.keys()
    compiled = [kind for function in lean.values() for kind in returns(function)]
    assert compiled
    assert not any(map(holds_an_array, compiled))


def test_a_lean_function_that_returns_an_array_is_seen() -> None:
    leak = lean_inline(lambda array: array)
    assert lean_kernel(lambda array: leak(array)[0])(np.ones(2)) == 1.0
    assert any(map(holds_an_array, returns(leak)))
