"""Losses of plug-ins: three functions of one number, called by the kernels that know no names."""

import hashlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from numba.core.errors import NumbaError

from desim.errors import InputError, RunError, shortened
from desim.numerics.foreign import handle_of, raise_again, raised
from desim.problem.losses.scalar import OWN, Loss

FUNCTIONS = ("value", "slope", "bend")
COMPILED = "numbers, math, numpy and functions of numba.njit, imported above the class"


class ScalarLoss(ABC):
    """A convex loss of one row that depends on the model through the number u = a.x alone.

    A subclass in a plug-in is registered by its `name`. Its three functions are compiled by numba:
    they take and return one float and may use math, numpy and functions decorated with numba.njit.
    One that raises ends the run.
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
    except Exception as error:  # numba has many, not all of them its own
        lines = [one.strip() for one in str(error).splitlines() if one.strip()]
        told = lines[1] if isinstance(error, NumbaError) and len(lines) > 1 else lines[0]
        which = ".".join([of.__name__, *getattr(error, "__notes__", ())[-1:]])
        file = getattr(inspect.getmodule(of), "__file__", "")
        text = f"numba cannot compile {which} of a plug-in ({file})"
        text = f"problem.loss: {text}: {shortened(told)}; allowed: {COMPILED}"
        raise InputError(text) from None


@dataclass(frozen=True, repr=False)
class PluggedLoss(Loss):
    """The loss that a class of a plug-in describes."""

    of: type[ScalarLoss] = field(kw_only=True)
    seen: tuple[float, ...] = field(init=False, compare=False)  # how often its functions raised

    def __post_init__(self) -> None:
        object.__setattr__(self, "knee", _handle(self.of))
        object.__setattr__(self, "seen", raised(self.knee))

    def __repr__(self) -> str:
        """What stays the same for as long as the numbers do, whatever the process."""
        source = hashlib.sha256(inspect.getsource(inspect.getmodule(self.of) or self.of).encode())
        return f"PluggedLoss({self.name!r}, {source.hexdigest()})"

    def __reduce__(self) -> tuple[Callable[..., "PluggedLoss"], tuple[type[ScalarLoss]]]:
        return plugged, (self.of,)

    def verify(self) -> None:
        """Raise what a function has raised since the last time: a kernel took that as nan."""
        now = raised(self.knee)
        if now != self.seen:
            which = next(k for k, times in enumerate(now) if times != self.seen[k])
            object.__setattr__(self, "seen", now)
            raise_again(self.knee, which)
            where = f"{self.of.__name__}.{FUNCTIONS[which]}"
            raise RunError(f"problem.loss: {where} of a plug-in raised, compiled, for some row")

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
