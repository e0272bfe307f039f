"""The loss that a user's model gives a row, as the rest of desim sees it."""

import hashlib
import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ClassVar

import numpy as np

from desim.arrays import Array
from desim.numerics.jit import one_blas_thread
from desim.problem.losses.scalar import Loss
from desim.problem.models.checked import first_look, second_look
from desim.problem.models.user_model import Facts, Model, Rows

TOGETHER = 256  # rows that are measured at a time, at most: in a cache, and parts for workers
ROOM = 1 << 26  # bytes of their inputs
HASHES = "fixed_sha256", "first_sha256"


@cache
def _source_of(of: type[Model]) -> str:
    """The hash of the file of a model, as it was when this was first asked."""
    return hashlib.sha256(inspect.getsource(inspect.getmodule(of) or of).encode()).hexdigest()


@dataclass(frozen=True, repr=False)
class ModelLoss(Loss):
    """A model of class `of`; made, with its parameters' number, once the data's facts are known."""

    modelled: ClassVar[bool] = True
    of: type[Model] = field(kw_only=True)
    parameters: Any = field(kw_only=True, default=None)
    facts: Facts | None = field(kw_only=True, default=None)
    model: Any = field(kw_only=True, default=None, compare=False)
    start: Any = field(kw_only=True, default=None, compare=False)

    def __repr__(self) -> str:
        """What stays the same for as long as the numbers do, whatever the process."""
        parameters, facts = self.parameters and self.parameters.model_dump(), self.facts
        facts = facts and facts._replace(device="cpu")
        return f"ModelLoss({self.name!r}, {_source_of(self.of)}, {parameters}, {facts})"

    def __reduce__(self) -> tuple[Callable[..., "ModelLoss"], tuple[Any, ...]]:
        looked = None if self.model is None else (self.model.sample, self.model.first_sha256)
        return loss_of, (self.of, self.parameters, self.facts, self.start, looked)

    def __post_init__(self) -> None:
        """No kernel knows it by its name; its source is that of now, should the file change."""
        with suppress(OSError, TypeError):
            _source_of(self.of)

    @property
    def recorded(self) -> dict[str, Any]:
        """What its bits rest on: for these, the same seed gives the same bits."""
        libraries = {name: _version(name) for name in self.of.libraries}
        device = "cpu" if self.facts is None else self.facts.device
        found = {"name": self.name, "libraries": libraries, "device": device, "threads": 1}
        if self.model is None:
            return found
        known = {key: getattr(self.model, key) for key in ("hardware", *HASHES)}
        return found | {key: one for key, one in known.items() if one}

    @property
    def linear(self) -> bool:
        """Whether the loss of an example depends on the model through one number a.x alone."""
        return False

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in the parameters: nothing is known of it."""
        return False

    @property
    def smooth(self) -> bool:
        """Whether gradients are what methods need."""
        return True

    @property
    def quadratic(self) -> bool:
        """Whether its Hessian is constant."""
        return False

    @property
    def classification(self) -> bool:
        """Whether labels must be -1 or 1."""
        return False

    @property
    def classifies(self) -> bool:
        """Whether labels are classes, so that accuracy has a meaning."""
        return self.of.labels != "numbers"

    @property
    def curvature(self) -> float:
        """Nothing bounds it."""
        return np.inf

    def dimension(self, features: int) -> int:
        """How many parameters the model has."""
        return len(self.start)

    def of_data(
        self, facts: Facts, rows: Rows, clip: float = np.inf, gradients: bool = True
    ) -> "ModelLoss":
        """The loss with its model, which some rows have shown to be one; InputError else.

        gradients: whether anybody wants its gradients.
        """
        with one_blas_thread():
            model, start = first_look(self.of, self.parameters, facts, rows, clip, gradients)
        return replace(self, facts=facts, model=model, start=start)

    def on_others(self, rows: Rows, clip: float, gradients: bool) -> "ModelLoss":
        """Itself, if rows of other numbers than those it was shown are looked at as well."""
        with one_blas_thread():
            second_look(self.model, self.start, rows, clip, gradients)
        return self

    def problems(self, b: Array) -> list[str]:
        """What is wrong with labels b, one line each."""
        return []

    def row_losses(self, A: Any, b: Any, x: Array) -> Array:
        """As `losses`, with the model made ready."""
        with self.model.computing():
            return self.losses(A, b, x)

    def losses(self, inputs: Any, labels: Any, x: Array) -> Array:
        """Losses (rows,) of all rows at the model x (dim,), float64, some rows at a time."""
        x, out = x.astype(self.model.facts.precision), np.empty(len(labels))
        many = self.together(len(out))
        for low in range(0, len(out), many):
            part = slice(low, low + many)
            out[part] = self.model.loss(x, Rows(inputs[part], labels[part]))
        return out

    def predictions(self, A: Array, x: Array) -> Array:
        """What the model x (dim,) says of rows A (rows, *shape)."""
        x, many = x.astype(self.model.facts.precision), self.together(len(A))
        none = np.zeros(many)
        parts = [A[low : low + many] for low in range(0, len(A), many)]
        with self.model.computing():
            said = [self.model.predict(x, Rows(one, none[: len(one)])) for one in parts]
        return np.concatenate(said)

    def together(self, rows: int) -> int:
        """How many of so many rows are measured at a time: on this number bits may depend.

        All but the last time the same, and then hardly fewer: parts that take as long.
        """
        facts: Facts = self.model.facts
        row = math.prod(facts.shape) * np.dtype(facts.precision).itemsize
        most = max(1, min(TOGETHER, ROOM // row))
        return max(1, -(-rows // max(1, -(-rows // most))))


def loss_of(
    of: type[Model], parameters: Any, facts: Facts | None = None, start: Any = None,
    looked: Any = None,
) -> ModelLoss:  # fmt: skip
    """What desim computes with: a model of this class with these parameters."""
    model = None if facts is None else of(parameters, facts)
    if model is not None:
        model.sample, model.first_sha256 = looked or (None, "")
    return ModelLoss(of.name, of=of, parameters=parameters, facts=facts, model=model, start=start)


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "unknown"
