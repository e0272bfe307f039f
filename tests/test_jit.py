"""Lean kernels: numba does not count who holds their arrays, so none may be made or returned."""

import importlib
import pkgutil
from typing import Any

import numpy as np
import pytest
from numba.core import types
from numba.core.errors import TypingError

import desim
from desim.network.timeline.record import release_id
from desim.numerics import afar
from desim.numerics.afar import address_of, called
from desim.numerics.jit import far_kernel, lean_inline, lean_kernel
from desim.problem.kernels.local import train_rows

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


ROOMS = (
    "desim.problem.kernels",
    "desim.network.timeline",
    "desim.engine.compiled",
    "desim.privacy",
    "desim.log",
)
OF_NUMBERS = (
    "desim.numerics.keys",
    "desim.numerics.elementary",
    "desim.problem.losses.scalar",
    "desim.numerics.distributions",
)


def lean_functions() -> dict[str, Any]:
    """Every function of desim that was compiled without counting."""
    found = {}
    for module in pkgutil.walk_packages(desim.__path__, "desim."):
        if module.name.startswith(ROOMS):
            for name, one in vars(importlib.import_module(module.name)).items():
                if getattr(one, "targetoptions", {}).get("_nrt") is False:
                    found[name] = one
    return found


def holds_an_array(kind: Any) -> bool:
    """Whether values of this compiled type hold memory that somebody must count."""
    return isinstance(kind, types.Array) or any(map(holds_an_array, getattr(kind, "types", ())))


def returns(function: Any) -> list[Any]:
    """Types that the function's compiled forms return: for Python, and for other functions."""
    both = function, getattr(function, "part", lambda: function)()
    return [form.signature.return_type for one in both for form in one.overloads.values()]


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


def called_by(function: Any) -> list[Any]:
    """Compiled functions of desim that the source of this one names."""
    code, known = function.py_func.__code__, function.py_func.__globals__
    named = [known.get(name) for name in code.co_names]
    return [one for one in named if hasattr(one, "targetoptions")]


def counting(function: Any) -> bool:
    """Whether a function may count the holders of arrays: it is not lean, nor one of numbers.

    A lean caller would compile it without counting, for all who then find it in the cache.
    """
    lean = function.targetoptions.get("_nrt") is False
    return not (lean or function.py_func.__module__ in OF_NUMBERS or function is release_id)


def test_lean_functions_call_no_others_with_arrays() -> None:
    lean = lean_functions()
    assert {"advance", "train_in", "call"} <= lean.keys()
    found = [
        f"{name} calls {one.__name__}"
        for name, function in lean.items()
        for one in called_by(function)
        if counting(one)
    ]
    assert found == []


def test_a_lean_function_that_calls_another_is_seen() -> None:
    assert [one.__name__ for one in called_by(lean_functions()["train_in"])] == ["_train"]
    assert "memory_for" in [one.__name__ for one in called_by(train_rows)]
    assert counting(train_rows)


@far_kernel
def noted(k, pair):
    pair[0][k] = pair[1]


@lean_kernel
def noted_through(address, k, pair):
    called(noted, address, (k, pair))


def test_a_kernel_is_called_by_its_address_for_the_types_that_it_knows():
    array = np.zeros(3)
    address = address_of(noted, (0, (array, 2.5)))
    noted_through(address, 1, (array, 2.5))
    assert array.tolist() == [0.0, 2.5, 0.0]
    with pytest.raises(TypingError):
        noted_through(address, 1, (array, 2))
    assert address_of(noted.py_func, (0, (array, 2.5))) == 0


def test_types_are_named_once_for_all_arguments_like_these(monkeypatch):
    one, other = (0, (np.zeros(3), 2.5)), (0, (np.zeros(3), 2))
    addresses = address_of(noted, one), address_of(noted, other)
    assert addresses[0] != addresses[1]

    def again(value):
        raise AssertionError("named again")

    monkeypatch.setattr(afar, "typeof", again)
    assert (address_of(noted, one), address_of(noted, other)) == addresses
    with pytest.raises(AssertionError, match="named again"):
        address_of(noted, (0, (np.zeros(3, np.int64), 2)))
