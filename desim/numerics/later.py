"""Libraries, names and kernels that are imported when they are first asked for something.

    from desim.numerics.later import pd, special

A start is short, and a run whose method, data, network and noise do not need them never has them.
"""

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Later", "kernel_of", "names_of", "optimize", "pd", "signal", "sparse", "special"]


class Later:
    """Stands for a module until then; what was asked for once is an attribute from then on."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever inspects objects asks everything for these
            raise AttributeError(attribute)
        value = getattr(import_module(self._name), attribute)
        setattr(self, attribute, value)
        return value


def names_of(homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a module whose further names, words by module, lie elsewhere."""
    places = {name: home for home, names in homes.items() for name in names.split()}

    def found(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"found {name!r}, which is not there")
        return getattr(import_module(places[name]), name)

    return found


def kernel_of(module: str, name: str) -> Any:
    """A compiled function of a module that is imported once a caller is played or compiled."""
    import numba

    from desim.numerics import plain

    whole = cache(lambda: getattr(import_module(module), name))

    def played(*arguments: Any) -> Any:
        return plain.twin(whole())(*arguments)

    entrance = numba.njit(_nrt=False)(played)  # itself it is never compiled
    if entrance is not played:
        entrance.get_call_template = lambda *kinds: whole().get_call_template(*kinds)
        entrance.get_overload = lambda signature: whole().get_overload(signature)
        entrance.plainly = played
        again = {"__reduce__": lambda _: (kernel_of, (module, name))}  # what pickles callers asks
        entrance.__class__ = type("Late", (type(entrance),), again)
    return entrance


if TYPE_CHECKING:
    import pandas as pd
    from scipy import optimize, signal, sparse, special
else:
    pd, special = Later("pandas"), Later("scipy.special")
    optimize, sparse = Later("scipy.optimize"), Later("scipy.sparse")
    signal = Later("scipy.signal")
