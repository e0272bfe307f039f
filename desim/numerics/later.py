"""Libraries that are imported when they are first asked for something, so that a start is short.

    from desim.numerics.later import pd, special

A run whose data, network and noise do not need them never imports them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__all__ = ["Later", "optimize", "pd", "sparse", "special"]


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


if TYPE_CHECKING:
    import pandas as pd
    from scipy import optimize, sparse, special
else:
    pd = Later("pandas")
    optimize, sparse = Later("scipy.optimize"), Later("scipy.sparse")
    special = Later("scipy.special")
