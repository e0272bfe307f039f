"""A model that a user brings, or rows: losses and their gradients, as functions of flat vectors.

A model is a pure function: what it returns depends on its arguments alone. Random layers take
their numbers from `Rows.key`, which is a function of the scenario's seed, the agent, the round and
the step, so that engines, batches and threads change no bit.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array

GRADIENT_NUMBERS = 1 << 24  # numbers of examples' gradients that are in memory at a time


class Rows(NamedTuple):
    """Rows of one agent, or of n agents with an axis (n,) in front of all three.

    inputs (m, *shape) and labels (m, ...) as the data have them; key: a word for random layers, in
    training only: a model that is measured has none.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    key: Any = None

    def agent(self, r: int) -> "Rows":
        """The rows of the agent in place r, of n."""
        return Rows(self.inputs[r], self.labels[r], None if self.key is None else int(self.key[r]))

    def part(self, low: int, high: int) -> "Rows":
        """Rows low to high - 1 of one agent."""
        return self._replace(inputs=self.inputs[low:high], labels=self.labels[low:high])


class Facts(NamedTuple):
    """What a model may know when it is made.

    shape: of one input; classes: how many labels 0, 1, ... there are, 0 where labels are no
    classes; precision: of parameters and of inputs that are no whole numbers; device: cpu, cuda;
    seed: the scenario's.
    """

    shape: tuple[int, ...]
    classes: int
    precision: Literal["float32", "float64"] = "float32"
    device: str = "cpu"
    seed: int = 0


class LacksError(NotImplementedError):
    """A model is asked for what it does not define."""


class Model(ABC):
    """A model and the loss of its rows; parameters x (dim,) of type `facts.precision`.

    A subclass in a plug-in is registered by its `name`. It defines `initial`, `loss`, and
    `gradient` or `example_gradients`, but for methods that want none; `predict` for accuracy.
    Clipping needs `example_gradients`.
    """

    #: what a scenario calls it, in problem.model
    name: ClassVar[str]
    #: one line for `desim list models`
    summary: ClassVar[str]
    #: what a scenario may write below problem.model beside the name: a class that is Strict
    Parameters: ClassVar[Any] = None
    #: classes 0, 1, ..., numbers, or the arrays of the data as they are, such as tokens
    labels: ClassVar[Literal["classes", "numbers", "arrays"]] = "classes"
    #: whether several threads may call it at once
    threads: ClassVar[bool] = False
    #: distributions whose versions decide its bits
    libraries: ClassVar[tuple[str, ...]] = ("numpy",)

    #: where it can compute
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    #: where random numbers may come from, in words
    draws: ClassVar[str] = "random numbers from rows.key"
    #: the shape of an input and how many classes, of rows that the contract generates
    example: ClassVar[tuple[tuple[int, ...], int]] = ((6,), 3)

    #: some rows of the data, on which it may try itself
    sample: Any = None
    #: hash of where it starts and of its first gradients, bit by bit
    first_sha256: str = ""

    def __init__(self, parameters: Any, facts: Facts) -> None:
        self.parameters, self.facts = parameters, facts

    @abstractmethod
    def initial(self, seed: int) -> Array:
        """Where all agents start, (dim,)."""

    @abstractmethod
    def loss(self, x: Array, rows: Rows) -> Array:
        """The loss (m,) of each row at x (dim,)."""

    def gradient(self, x: Array, rows: Rows) -> Array:
        """The gradient (dim,) of the sum of the rows' losses at x (dim,)."""
        return self._sum(x, rows, np.inf)

    def example_gradients(self, x: Array, rows: Rows) -> Array:
        """The gradient (m, dim) of each row's loss at x (dim,)."""
        raise LacksError(f"{type(self).__name__} has no example_gradients")

    def predict(self, x: Array, rows: Rows) -> Array:
        """What the model says of each row, of the shape of its labels."""
        raise LacksError(f"{type(self).__name__} has no predict")

    def clipped(self, x: Array, rows: Rows, clip: float) -> Array:
        """The sum (dim,) of the rows' gradients, each cut to the norm `clip`; not finite: 0."""
        return self._sum(x, rows, clip)

    def gradients(self, x: Array, rows: Rows, clip: float) -> Array:
        """Sums (n, dim) of the rows' gradients of n agents with models x (n, dim).

        Override it where the library does many at a time; rows (bits) must not depend on n.
        """
        out = np.empty_like(x)
        for r in range(len(x)):
            own = rows.agent(r)
            out[r] = self.gradient(x[r], own) if np.isinf(clip) else self.clipped(x[r], own, clip)
        return out

    def alone(self, x: Array, rows: Rows, clip: float) -> Array:
        """The sum (dim,) of one agent's gradients, cut to `clip`, as one device would compute it.

        What is timed: override it where many agents go together at a price that one does not pay.
        """
        return self.gradient(x, rows) if np.isinf(clip) else self.clipped(x, rows, clip)

    def flops(self, m: int) -> float:
        """Floating point operations of the gradient of m rows; 0 where nobody counts them."""
        return 0.0

    def memory(self, m: int, clipped: bool) -> float:
        """Bytes that the gradient of m rows needs, at least; clipped: of each row's, cut to a norm.

        Parameters, a gradient, the rows' own where these are needed, so many at a time as have
        room, and the rows' inputs. What the model keeps between layers only itself can tell.
        """
        x = self.initial(self.facts.seed)
        each = clipped or type(self).gradient is Model.gradient
        gradients = 1 + (min(m, max(1, GRADIENT_NUMBERS // len(x))) if each else 0)
        inputs = 0 if self.sample is None else self.sample.inputs[:1].nbytes
        size = np.dtype(self.facts.precision).itemsize
        return float(size * len(x) * (1 + gradients) + m * inputs)

    @classmethod
    def gives_each(cls) -> bool:
        """Whether it has gradients of single rows."""
        return cls.example_gradients is not Model.example_gradients

    @classmethod
    def derives(cls) -> bool:
        """Whether it has gradients at all."""
        return cls.gradient is not Model.gradient or cls.cuts()

    @classmethod
    def cuts(cls) -> bool:
        """Whether it can clip gradients row by row."""
        own = cls.clipped is not Model.clipped or cls.gradients is not Model.gradients
        return own or cls.gives_each()

    @property
    def fixed_sha256(self) -> str:
        """Hash of the numbers that no training changes, as a frozen backbone's; "": unknown."""
        return ""

    @property
    def hardware(self) -> str:
        """What it computes on, where that is a kind of graphics card; else nothing."""
        return ""

    def settled(self) -> None:
        """InputError where a gradient has changed what the model is."""
        return

    def computing(self) -> AbstractContextManager[None]:
        """What holds while it is called."""
        return nullcontext()

    def _sum(self, x: Array, rows: Rows, clip: float) -> Array:
        """The same from `example_gradients`, so many rows at a time as have room."""
        many, total = max(1, GRADIENT_NUMBERS // len(x)), np.zeros(len(x))
        for low in range(0, len(rows.labels), many):
            part = rows.part(low, low + many)
            if rows.key is not None and low:
                part = part._replace(key=(int(rows.key) + low) % (1 << 64))
            each = np.asarray(self.example_gradients(x, part))
            total += each.sum(0, dtype=float) if np.isinf(clip) else clipped_sum(each, clip)
        return total


def clipped_sum(each: Array, clip: float) -> Array:
    """The sum (dim,) of gradients (m, dim), each cut to the norm `clip`.

    One whose norm is not finite, as float64 has it, counts as 0.
    """
    norms = np.sqrt(np.einsum("hj,hj->h", each, each, dtype=float))
    short = clip * (1.0 - 4.0 * np.finfo(each.dtype).eps)  # rounding lifts no norm above the clip
    factors = np.where(norms > short, short / np.where(norms > 0.0, norms, 1.0), 1.0)
    if not (sound := np.isfinite(norms)).all():
        each, factors = np.where(sound[:, None], each, 0.0), np.where(sound, factors, 0.0)
    return np.asarray(factors @ each.astype(float, copy=False))


# A data set that a user brings: rows, who they belong to, and which are for testing.


class Examples(NamedTuple):
    """Rows of all agents, not yet dealt.

    inputs (rows, ...) and labels (rows, ...): arrays, or anything with `shape`, `dtype`, `len` and
    rows by an array of their numbers, such as a memory map; columns (rows,) by name, which
    partitions may go by; test (rows,): True for test rows, None where the data set brings none;
    classes: how many labels 0, 1, ... there are, whatever the rows are; 0: they are counted.
    """

    inputs: Any
    labels: Any
    columns: Mapping[str, Any] = MappingProxyType({})
    test: Any = None
    classes: int = 0


class Dataset(ABC):
    """A data set of a plug-in: `problem.data: {source: plugin, name: ..., arguments: {...}}`."""

    #: what a scenario calls it, in problem.data.name
    name: ClassVar[str]
    #: one line for `desim list sources`
    summary: ClassVar[str]

    @abstractmethod
    def read(self, **arguments: Any) -> Examples:
        """The rows, a function of the arguments alone; no network."""
