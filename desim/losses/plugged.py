"""Losses of plug-ins: three functions of one number, called by the kernels that know no names."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numba.core.errors import NumbaError

from desim.compiling.foreign import handle_of
from desim.errors import InputError
from desim.losses.scalar import OWN, Loss

FUNCTIONS = ("value", "slope", "bend")


class ScalarLoss(ABC):
    """A convex loss of one row that depends on the model through the number u = a.x alone.

    A subclass in a plug-in is registered by its `name`. Its three functions are compiled by numba:
    they take and return one float and may use math, numpy and functions decorated with numba.njit.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    labels: ClassVar[Literal["numbers", "signs"]] = "numbers"  # signs: -1 and 1, for accuracy
    curvature: ClassVar[float] = np.inf  # the largest `bend`; infinite where `slope` jumps

    @staticmethod
    @abstractmethod
    def value(u: float, b: float) -> float:
        """The loss at u = a.x of a row with label b."""

    @staticmethod
    @abstractmethod
    def slope(u: float, b: float) -> float:
        """Its derivative in u; at a kink the subgradient nearest zero."""

    @staticmethod
    @abstractmethod
    def bend(u: float, b: float) -> float:
        """Its second derivative in u, 0 where there is none."""


_handles: dict[type, float] = {}


def _handle(of: type[ScalarLoss]) -> float:
    if of not in _handles:
        _handles[of] = _compiled(of)
    return _handles[of]


def _compiled(of: type[ScalarLoss]) -> float:
    try:
        return handle_of(tuple(getattr(of, name) for name in FUNCTIONS))
    except NumbaError as error:
        line = next((one for one in str(error).splitlines()[1:] if one.strip()), str(error))
        raise InputError(
            f"problem.loss: numba cannot compile {of.__name__} of a plug-in: {line.strip()}"
        ) from None


@dataclass(frozen=True, repr=False)
class PluggedLoss(Loss):
    """The loss that a class of a plug-in describes."""

    of: type[ScalarLoss] = field(kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "knee", _handle(self.of))

    def __repr__(self) -> str:
        """What stays the same for as long as the numbers do, whatever the process."""
        source = hashlib.sha256(inspect.getsource(inspect.getmodule(self.of) or self.of).encode())
        return f"PluggedLoss({self.name!r}, {source.hexdigest()})"

    def __reduce__(self) -> tuple[Callable[..., "PluggedLoss"], tuple[type[ScalarLoss]]]:
        return plugged, (self.of,)

    @property
    def code(self) -> int:
        """What the compiled functions know it by."""
        return OWN

    @property
    def smooth(self) -> bool:
        """Whether the derivative is continuous."""
        return bool(np.isfinite(self.of.curvature))

    @property
    def classification(self) -> bool:
        """Whether labels must be -1 or 1."""
        return self.of.labels == "signs"

    @property
    def curvature(self) -> float:
        """The largest slope of `slope`."""
        return float(self.of.curvature)


def plugged(of: type[ScalarLoss]) -> PluggedLoss:
    """What desim computes with."""
    return PluggedLoss(of.name, of=of)
