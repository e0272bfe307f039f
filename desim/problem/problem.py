"""What is minimised: sum_i f_i(x) + h(x), with every agent's rows in flat arrays.

f_i(x) = scale_i sum_h loss(a_h . x, b_h) + (1/agents) of the agents' regulariser; h is the
coordinator's. Clipping each example's gradient to norm C replaces the loss by the one that has
these gradients (desim.problem.losses.scalar.clipped_value), here and in the optimum.
"""

import hashlib
from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.numerics.jit import one_blas_thread
from desim.problem.kernels.gradients import Data, gradient, transpose
from desim.problem.kernels.sums import agent_losses
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import Loss, values_into

if TYPE_CHECKING:
    from desim.problem.kernels.layered import Layered
    from desim.problem.kernels.modelled import Modelled
    from desim.problem.models.augment import Augmentation


# Rows that stay in their file or array, and are read when somebody asks for them.


ROOM = 1 << 26  # bytes of rows that are looked at at a time


class Joined:
    """Arrays (rows, ...) one behind the other, as one array that is nowhere copied whole."""

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.starts = np.cumsum([0, *(len(one) for one in parts)])
        self.shape: tuple[int, ...] = (int(self.starts[-1]), *parts[0].shape[1:])
        self.dtype = np.result_type(*(one.dtype for one in parts))

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by their numbers, an array of any shape."""
        place = np.asarray(place)
        found = np.empty((*place.shape, *self.shape[1:]), self.dtype)
        for part, low in zip(self.parts, self.starts, strict=False):
            here = (place >= low) & (place < low + len(part))
            if here.any():
                found[here] = part[place[here] - low]
        return found


class Gathered:
    """Rows source[order] (rows, ...), read when they are asked for: an array without its copy.

    source: an array, a memory map or Joined; order (rows,): numbers of its rows, by default all;
    kind: type of what is given, by default the source's; divisor: of every number.
    """

    def __init__(
        self, source: Any, order: Int | None = None, kind: Any = None, divisor: float = 1.0
    ) -> None:
        self.source, self.divisor = source, divisor
        self.order = np.arange(len(source)) if order is None else order
        self.dtype = np.dtype(source.dtype if kind is None else kind).newbyteorder("=")
        self.shape: tuple[int, ...] = (len(self.order), *source.shape[1:])
        self.ndim, self.itemsize = len(self.shape), self.dtype.itemsize
        self.size = int(np.prod(self.shape, dtype=object))

    def __reduce__(self) -> tuple[Any, ...]:
        return Gathered, (self.source[self.order], None, self.dtype, self.divisor)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, place: Any) -> NDArray[Any]:
        """Rows by number, by numbers (an array of any shape), by a slice or a mask."""
        found = np.asarray(self.source[self.order[place]])
        if self.divisor == 1.0:
            return found.astype(self.dtype, copy=False)
        if found.dtype == np.uint8:
            return np.asarray(np.divide(found, self.divisor, dtype=self.dtype))
        return np.asarray((np.asarray(found, float) / self.divisor).astype(self.dtype))

    def take(self, place: Any, axis: int = 0, out: None = None, mode: str = "") -> NDArray[Any]:
        """Rows by their numbers, as numpy.take asks for them."""
        return self[place]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self[:].astype(dtype or self.dtype, copy=False)

    def copy(self) -> NDArray[Any]:
        """All rows, in memory."""
        return np.array(self[:])

    def rows(self, chosen: Any) -> "Gathered":
        """Some of the rows, by their numbers (n,)."""
        return Gathered(self.source, self.order[chosen], self.dtype, self.divisor)

    def astype(self, kind: Any, copy: bool = False) -> "Gathered":
        """The same rows in another type."""
        return Gathered(self.source, self.order, kind, self.divisor)


def chunks(rows: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """The rows of an array or of Gathered, some at a time, and the number of the first."""
    some = max(1, ROOM // max(1, rows.dtype.itemsize * int(np.prod(rows.shape[1:]))))
    for low in range(0, len(rows), some):
        yield low, np.asarray(rows[low : low + some])


def stored(rows: Any) -> np.dtype[Any]:
    """The type in which rows are kept, whatever they are given as."""
    dtype: np.dtype[Any] = rows.source.dtype if isinstance(rows, Gathered) else rows.dtype
    return dtype


def largest(rows: Any) -> float:
    """The largest number of rows, 0 where there is none."""
    return max((float(part.max(initial=0)) for _, part in chunks(rows)), default=0.0)


# Checks: what makes arrays, loss and numbers no problem at all, in words.


def impossible(problem: Any) -> list[str]:
    """One line for each thing that makes these arrays no problem at all."""
    A, b, start, found = problem.A, problem.b, problem.start, list[str]()
    any_shape = problem.loss.modelled and A.ndim > 1 and b.shape[:1] == A.shape[:1]
    if (not any_shape and (A.ndim != 2 or b.shape != A.shape[:1])) or start.ndim != 1:
        return [f"problem.data: A {A.shape} and b {b.shape} are not (rows, features) and (rows,)"]
    if len(start) < 2 or start[0] != 0 or start[-1] != len(A):
        return [f"problem.data: the agents' rows end at {start[-1:]}, not at {len(A)}"]
    found += [
        f"problem.data: agent {agent} has no rows; use fewer agents or another partition"
        for agent in np.flatnonzero(np.diff(start) < 1)
    ]
    facts = getattr(problem.loss, "facts", None)
    kind = problem.precision if facts is None else facts.precision
    found += [*_not_finite("A", A, kind), *_not_finite("b", b, kind)]
    found += problem.loss.problems(b)
    if problem.average not in ("mean", "sum"):
        found.append(f"problem.average: {problem.average!r}; allowed: mean, sum")
    if problem.agent_regularizer.boxed:
        found.append("problem.regularizer: a box cannot be at the agents, it has no subgradient")
    if problem.precision != "float64" and problem.loss.linear:
        found.append(f"problem.precision: {problem.precision} is for softmax and mlp")
    if not problem.row_norm > 0.0:
        found.append(f"problem.row_norm: {problem.row_norm} is not > 0")
    elif np.isfinite(problem.row_norm):
        found += _too_long(problem)
    if not problem.clip > 0.0:
        found.append(f"problem.clip: {problem.clip} is not > 0")
    elif problem.clipped and problem.loss.linear:
        found += _too_short(problem)
    return found


def _not_finite(name: str, array: Array, kind: str) -> list[str]:
    """One line if a number of the rows (rows, ...) is none, or none in the type of arithmetic."""
    most = float(np.finfo(kind).max)
    narrow = f" in {kind}; allowed: up to {most:.4g}, or problem.precision: float64"
    for low, part in chunks(array) if stored(array).kind == "f" else ():
        for row, *column in np.argwhere(~(np.abs(part) <= most))[:1]:
            place = ", ".join(map(str, column or [0]))
            text = f"problem.data: {name} is not finite in row {low + row}, column {place}"
            return [text + (narrow if kind != "float64" else "")]
    return []


@np.errstate(over="ignore")
def _too_short(problem: Any) -> list[str]:
    """One line if the clip is so small that no slope other than zero is left to a row."""
    if problem.limit.all():
        return []
    longest = float(np.linalg.norm(problem.A[problem.limit == 0.0], axis=1).max())
    text = f"found {problem.clip:g}, which is 0 when divided by the norm {longest:.3g} of a row"
    return [f"problem.clip: {text}; allowed: a larger number"]


def _too_long(problem: Any) -> list[str]:
    """One line if a row is longer than row_norm; dividing by a norm rounds."""
    norms = np.linalg.norm(problem.A, axis=1)
    longer = np.flatnonzero(norms > problem.row_norm * (1.0 + 1e-12))
    if not len(longer):
        return []
    place = int(longer[0])
    agent = int(np.searchsorted(problem.start, place, side="right")) - 1
    text = f"found {problem.row_norm:g}, but row {place - problem.start[agent]} of agent {agent}"
    allowed = f"at least {norms.max():.6g}, the longest, or {{clip: {problem.row_norm:g}}}"
    return [f"problem.row_norm: {text} has norm {norms[place]:.6g}; allowed: {allowed}"]


# The problem itself.
Rows = NDArray[np.int64]
TOGETHER = 4096  # agents whose Gram matrices are in memory at a time
SOME = 256  # agents whose gradients of large models are
TINY = 1e-280  # squares of norms below which norms are taken in units of their largest number


@dataclass(frozen=True, eq=False)
class Problem:
    """Data, loss and regularisers of all agents; agent i holds rows start[i]:start[i+1].

    A (total_rows, features) and b (total_rows,) float64; start (agents + 1,) int64; average: "mean"
    or "sum" over an agent's rows; both regularisers are whole (agent i takes 1/agents of its own);
    clip: largest norm of one example's gradient; test_A, test_b: rows for accuracy; names: of the
    features; protected, test_protected (rows,): 1 for rows of the protected group, else 0;
    precision: of a layered model's rows and gradients (models are float64); row_norm: bound on the
    norm of a row that holds for every data set; augment: what is done to rows of a model while they
    are trained on; test_start (agents + 1,): agent i's own test rows are test_start[i]:test_start[i
    + 1], if they are agents'. Raises InputError where shapes, labels or numbers are impossible.
    """

    A: Array
    b: Array
    start: Rows
    loss: Loss
    average: str = "mean"
    agent_regularizer: Regularizer = field(default_factory=Regularizer)
    coordinator_regularizer: Regularizer = field(default_factory=Regularizer)
    clip: float = np.inf
    test_A: Array | None = None
    test_b: Array | None = None
    names: tuple[str, ...] = ()
    protected: Array | None = None
    test_protected: Array | None = None
    precision: Literal["float64", "float32"] = "float64"
    sites: tuple[str, ...] = ()
    row_norm: float = np.inf
    augment: "tuple[Augmentation, ...]" = ()
    test_start: Rows | None = None

    def __post_init__(self) -> None:
        kinds = (("A", float), ("b", float), ("start", np.int64))
        for name, dtype in kinds[2:] if self.loss.modelled else kinds:
            object.__setattr__(self, name, np.require(getattr(self, name), dtype, ["C", "W"]))
        problems = impossible(self)
        if problems:
            raise InputError(problems)

    @property
    def agents(self) -> int:
        """How many agents there are."""
        return len(self.start) - 1

    @cached_property
    def dim(self) -> int:
        """Parameters of the model."""
        return self.loss.dimension(self.A.shape[1])

    @cached_property
    def rows(self) -> Rows:
        """Rows of each agent (agents,)."""
        return np.diff(self.start)

    @property
    def test_rows(self) -> Rows | None:
        """Each agent's own test rows (agents,), if they have some."""
        return None if self.test_start is None else np.diff(self.test_start)

    @cached_property
    def scale(self) -> Array:
        """What each agent's sum is multiplied by (agents,): 1/m_i for the mean, else 1."""
        return np.asarray(1.0 / self.rows if self.average == "mean" else np.ones(self.agents))

    @cached_property
    def ridge(self) -> Array:
        """Coefficient of ||x||^2 / 2 in each f_i (agents,)."""
        return np.full(self.agents, self.agent_regularizer.l2 / self.agents)

    @cached_property
    def lasso(self) -> Array:
        """Coefficient of |x|_1 in each f_i (agents,)."""
        return np.full(self.agents, self.agent_regularizer.l1 / self.agents)

    @property
    def regularizer(self) -> Regularizer:
        """Agents' and coordinator's together: what the objective has."""
        return self.agent_regularizer + self.coordinator_regularizer

    @property
    def clipped(self) -> bool:
        """Whether examples' gradients are clipped."""
        return self.clip < np.inf

    @cached_property
    def limit(self) -> Array:
        """Largest |slope| of each row (total_rows,): clip / ||a_h||, infinite where none."""
        squares = np.einsum("hj,hj->h", self.A, self.A)
        norms = np.sqrt(squares)
        if (small := squares < TINY).any():  # squares of such numbers lose their digits
            size = np.abs(self.A[small]).max(axis=1, initial=0.0)
            unit = self.A[small] / np.where(size > 0.0, size, 1.0)[:, None]
            norms[small] = size * np.sqrt(np.einsum("hj,hj->h", unit, unit))
        free = np.full(len(norms), np.inf)
        with np.errstate(over="ignore"):
            return np.asarray(np.divide(self.clip, norms, out=free, where=norms > 0.0))

    @cached_property
    def transposed(self) -> Array:
        """The (dim, m_i) blocks of all agents, flat; agent i's starts at start[i] * dim."""
        return np.asarray(transpose(self.A, self.start))

    @cached_property
    def data(self) -> "Data | Layered | Modelled":
        """All that the kernels need, as their one argument."""
        if not self.loss.linear:
            from desim.problem.kernels.of_models import data_of

            found: Layered | Modelled = data_of(self)
            return found
        return Data(
            self.A, self.transposed, self.b, self.start, self.limit, self.scale, self.ridge,
            self.lasso, self.loss.code, float(self.loss.knee), self.clipped,
        )  # fmt: skip

    def in_batches(self, batch: int) -> "Data":
        """The data of a linear model with `batch` rows of an agent, in their order, as one agent.

        Its f is an estimate of that of the agent, all of whose rows are in one of them.
        """
        each = self.rows // batch
        start = np.append(batch * np.arange(each.sum()), len(self.A))
        return Data(
            self.A, transpose(self.A, start), self.b, start, self.limit,
            np.repeat(self.scale * each, each), np.repeat(self.ridge, each),
            np.repeat(self.lasso, each), self.loss.code, float(self.loss.knee), self.clipped,
        )  # fmt: skip

    def agent_values(self, x: Array, who: Rows | None = None) -> Array:
        """f_i(x) (n,) of agents who (n,), by default all; x (dim,) or one model each (n, dim)."""
        who = np.arange(self.agents) if who is None else np.asarray(who, np.int64)
        models = np.broadcast_to(np.asarray(x, float), (len(who), self.dim))
        out = np.empty(len(who))
        agent_losses(who, models, self.data, out)
        if self.agent_regularizer.l2:
            out += 0.5 * self.ridge[who] * np.sum(models * models, axis=1)
        if self.agent_regularizer.l1:
            out += self.lasso[who] * np.sum(np.abs(models), axis=1)
        self.loss.verify()
        return out

    def objective(self, x: Array) -> float:
        """sum_i f_i(x) + h(x) at x (dim,)."""
        return float(np.sum(self.agent_values(x))) + self.coordinator_regularizer.value(x)

    def total_gradient(self, x: Array) -> Array:
        """Gradient (dim,) of the objective's smooth part: a subgradient of the losses, and l2 x.

        A layered model's objective knows no clip, so neither does this gradient.
        """
        models = np.broadcast_to(np.asarray(x, float), (self.agents, self.dim))
        smooth: Any = self.data._replace(lasso=np.zeros_like(self.data.lasso))
        if not isinstance(smooth, Data):
            smooth = smooth._replace(clip=np.inf)
        if not self.loss.modelled:
            each = gradient(np.arange(self.agents), models, smooth)
            self.loss.verify()
            return np.asarray(each.sum(axis=0) + self.coordinator_regularizer.l2 * x)
        total, smooth = (
            self.coordinator_regularizer.l2 * x,
            smooth._replace(augment=(), measured=True),
        )
        for some in np.array_split(np.arange(self.agents), -(-self.agents // SOME)):
            total = total + gradient(some, models[some], smooth).sum(axis=0)
        return np.asarray(total)

    def tested_on(self, places: Rows) -> "Problem":
        """The same with some of its test rows, places (n,) ascending."""
        found = copy(self)  # not made anew: all of it has been looked at
        for name in ("test_A", "test_b", "test_protected"):
            rows = getattr(self, name)
            object.__setattr__(found, name, None if rows is None else rows[places])
        if self.test_start is not None:
            object.__setattr__(found, "test_start", np.searchsorted(places, self.test_start))
        return found

    def accuracy(self, x: Array) -> float:
        """Share of test rows whose label the model x (dim,) predicts (Loss.predictions)."""
        if self.test_A is None or self.test_b is None:
            raise InputError("observe.metrics: accuracy needs test rows; set problem.data.test")
        if not self.loss.classifies:
            raise InputError(f"observe.metrics: accuracy has no meaning for {self.loss.name} loss")
        if self.loss.modelled:
            from desim.problem.kernels.modelled import accuracy

            return float(accuracy(self.test_A, self.test_b, x, self.loss))
        return float(np.mean(self.loss.predictions(self.test_A, x) == np.asarray(self.test_b)))

    @cached_property
    def moduli(self) -> tuple[Array, Array]:
        """Strong convexity and smoothness (lo, hi) (agents,) of each f_i, tight from eigenvalues.

        hi = curvature scale_i lambda_max(A_i' A_i) + ridge; lo = ridge, and for unclipped squared
        loss 2 scale_i lambda_min(A_i' A_i) more. A nonsmooth f_i has hi = inf. (Bastianello, Liu,
        Johansson 2024, Section VII, for logistic loss; printed with eps for ridge = eps/agents.)
        mlp: nothing is known, lo = -inf and hi = inf; softmax under a clip is not monotone, so lo
        is no contraction there (see LocalTraining.terms_of).
        """
        if not self.loss.convex:
            return np.full(self.agents, -np.inf), np.full(self.agents, np.inf)
        ends = self.spectra
        lo, hi = self.ridge.copy(), np.full(self.agents, np.inf)
        if self.loss.smooth:
            finite = self.loss.curvature * self.scale * ends[:, 1] + self.ridge
            hi = np.where(self.lasso > 0.0, np.inf, finite)
        if self.loss.quadratic and not self.clipped:
            lo += self.loss.curvature * self.scale * ends[:, 0]
        return lo, hi

    @cached_property
    def spectra(self) -> Array:
        """Smallest and largest eigenvalue (agents, 2) of every agent's A_i' A_i."""
        with _libraries().limit(limits=1):
            return _spectra(self.A, self.start)

    def with_rows(self, agent: int, A: Array, b: Array, protected: Any = None) -> "Problem":
        """The same on A, b and protected, in which rows of one agent are others: spectra are kept.

        An audit asks for hundreds of such problems, which differ in a row.
        """
        found = replace(self, A=A, b=b, protected=protected)
        if "spectra" in self.__dict__:
            ends, own = self.spectra.copy(), slice(*self.start[agent : agent + 2])
            with _libraries().limit(limits=1):
                ends[agent] = _extremes(A[None, own])[0]
            found.__dict__["spectra"] = ends
        return found

    @cached_property
    def public_moduli(self) -> tuple[Array, Array]:
        """Bounds (lo, hi) (agents,) of `moduli` that hold for every data set, as row_norm does.

        lo = ridge; hi = curvature row_norm^2 scale_i m_i + ridge, inf where nothing bounds it.
        """
        hi = np.full(self.agents, np.inf)
        if self.loss.convex and self.loss.smooth and not self.agent_regularizer.l1:
            with np.errstate(over="ignore"):
                square = np.square(np.float64(self.row_norm))
                hi = self.loss.curvature * square * self.scale * self.rows + self.ridge
        return self.ridge.copy(), hi

    def spans(self) -> list[tuple[int, int]]:
        """First row and end of every agent."""
        return list(zip(self.start[:-1].tolist(), self.start[1:].tolist(), strict=True))

    def digest(self) -> str:
        """Hash of what is minimised and tested; how it is trained is none of it.

        A clip is part of a linear loss; a layered one's objective is that of no clipped gradient.
        """
        said = (self.loss, self.average, self.agent_regularizer, self.coordinator_regularizer)
        clip = float(self.clip) if self.loss.linear else np.inf
        found = hashlib.sha256(repr((said, clip, self.A.shape)).encode())
        for array in (self.A, self.b, self.start, self.test_A, self.test_b):
            for _, part in () if array is None else chunks(array):
                found.update(np.ascontiguousarray(part).data)
            found.update(b"none" if array is None else b"")
        for group in (self.protected, self.test_protected, self.test_start):
            found.update(b"" if group is None else group.tobytes())
        return found.hexdigest()


@cache
def _libraries() -> ThreadpoolController:
    """The numerical libraries of this process; finding them takes longer than a small problem."""
    return ThreadpoolController()


def _spectra(A: Array, start: Rows) -> Array:
    """Smallest and largest eigenvalue (agents, 2) of every agent's A_i' A_i."""
    rows = np.diff(start)
    if np.any(rows != rows[0]):
        blocks = [A[None, i:j] for i, j in pairwise(start)]
    else:
        alike = A.reshape(len(rows), rows[0], -1)
        blocks = [alike[i : i + TOGETHER] for i in range(0, len(rows), TOGETHER)]
    return np.concatenate([_extremes(block) for block in blocks])


def _extremes(A: Array) -> Array:
    """The same (n, 2) of A (n, rows, dim), from the smaller of the two Gram matrices."""
    columns = A.transpose(0, 2, 1)
    wide = A.shape[1] < A.shape[2]
    ends = np.linalg.eigvalsh(A @ columns if wide else columns @ A)[:, [0, -1]]
    ends[:, 0] = 0.0 if wide else np.maximum(0.0, ends[:, 0])
    return np.asarray(ends)


# Losses that an agent may send: its number has the same bits whoever else is asked.


def row_losses(problem: Problem, agent: int, x: Array) -> Array:
    """The loss (rows,) of each row of an agent at the model x (dim,); no regulariser.

    Of a linear model under problem.clip it is the loss that has the clipped gradients.
    """
    part = slice(int(problem.start[agent]), int(problem.start[agent + 1]))
    A, b, loss = problem.A[part], problem.b[part], problem.loss
    if not loss.linear:
        return loss.row_losses(A, b, x)
    u, out = np.ascontiguousarray(A @ x), np.empty(len(b))
    values_into(loss.code, u, b, float(loss.knee), problem.limit[part], out)
    loss.verify()
    return out


def mean_losses(
    problem: Problem, who: Int, x: Array, power: int = 1, clip: float | None = None
) -> Array:
    """Means (n,) over the rows of agents who (n,) of their losses at x (n, dim), to a power.

    clip: each loss is cut to [0, clip] before, and is 0 where it is no number. One row replaced
    moves the mean by at most clip^power / rows.
    """
    out = np.empty(len(who))
    with one_blas_thread():
        for r, i in enumerate(who.tolist()):
            losses = row_losses(problem, i, x[r])
            if clip is not None:
                losses = np.where(np.isnan(losses), 0.0, np.clip(losses, 0.0, clip))
            out[r] = np.mean(losses**power)
    return out
