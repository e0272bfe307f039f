"""The optimum of a convex problem with kinks, to all digits, by a proximal Newton method.

Each iteration solves the model problem at x, then tries to finish: Newton's method on the kinks
that hold, as equations. Where that does not certify, a line search makes progress and it goes on.
Clarabel (Goulart and Chen 2024, arXiv 2405.12762) solves the model problem; its multipliers say
which kinks hold with equality.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from desim.arrays import Array
from desim.errors import InputError, RunError
from desim.numerics.jit import one_blas_thread
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import HUBER, LOGISTIC, Loss, bends_into, slopes_into, values_into
from desim.problem.problem import Problem

# The objective as the optimiser sees it: a smooth convex part, and kinks.


@dataclass(frozen=True, eq=False)
class Smooth:
    """S(x) = sum_h weight_h loss(a_h . x, b_h) + l2/2 ||x||^2 + linear . x, slopes cut at limit.

    A (rows, dim); b, weight and limit (rows,); linear (dim,) or 0.
    """

    loss: Loss
    A: Array
    b: Array
    weight: Array
    limit: Array
    l2: float
    linear: Array | float = 0.0

    def value(self, x: Array) -> float:
        """S(x)."""
        rest = 0.5 * self.l2 * (x @ x) + np.sum(self.linear * x)
        return float(self.weight @ self._each(values_into, x) + rest)

    def gradient(self, x: Array) -> Array:
        """Gradient (dim,)."""
        terms = self.A.T @ (self.weight * self.slopes(x))
        return np.asarray(terms + (self.l2 * x + self.linear))

    def hessian(self, x: Array) -> Array:
        """Generalised Hessian (dim, dim)."""
        return np.asarray((self.A.T * self.bends(x)) @ self.A + self.l2 * np.eye(len(x)))

    def magnitude(self, x: Array) -> float:
        """Sum of the norms of the terms that cancel in the gradient: rounding is relative to it."""
        norms = np.sqrt(np.einsum("hj,hj->h", self.A, self.A))
        terms = float(norms @ (self.weight * np.abs(self.slopes(x))))
        return terms + self.l2 * float(np.linalg.norm(x))

    @property
    def cut(self) -> NDArray[np.bool_]:
        """Rows (rows,) whose slope is bounded, by clipping or by huber's knee."""
        return self.limit < (1.0 if self.loss.code == LOGISTIC else np.inf)

    def excess(self, x: Array) -> Array:
        """How far (rows,) u = A x lies beyond the nearest point at which the slope is not cut."""
        u = np.asarray(self.A @ x)
        if self.loss.code != LOGISTIC:
            r = u - self.b
            return np.asarray(r - np.clip(r, -self.limit / 2.0, self.limit / 2.0))
        c = np.where(self.cut, self.limit, 0.5)
        margin = np.where(self.cut, np.log1p(-c) - np.log(c), -np.inf)
        return np.asarray(self.b * np.minimum(0.0, self.b * u - margin))

    def bends(self, x: Array, e: Array | float = 0.0) -> Array:
        """weight_h times the second derivative (rows,) at u - e, u = A x."""
        out = np.empty(len(self.b))
        u = np.asarray(self.A @ x - e)
        bends_into(self.loss.code, u, self.b, float(self.loss.knee), self.limit * (1 + 1e-9), out)
        self.loss.verify()
        return self.weight * out

    def frozen(self, sign: Array) -> "Smooth":
        """The smooth function that this one is wherever the rows (rows,) with a sign stay cut."""
        on = sign == 0.0
        loss = Loss("squared") if self.loss.code == HUBER else self.loss
        beyond = sign[~on] * self.weight[~on] * self.limit[~on]
        A, b, weight = self.A[on], self.b[on], self.weight[on]
        free = np.full(len(b), np.inf)
        return Smooth(loss, A, b, weight, free, self.l2, self.A[~on].T @ beyond)

    def slopes(self, x: Array) -> Array:
        """Derivative (rows,) of each row's loss in u."""
        return self._each(slopes_into, x)

    def _each(self, kernel: object, x: Array) -> Array:
        out = np.empty(len(self.b))
        u = np.asarray(self.A @ x)
        kernel(self.loss.code, u, self.b, float(self.loss.knee), self.limit, out)  # type: ignore[operator]
        self.loss.verify()
        return out


@dataclass(frozen=True, eq=False)
class Kinks:
    """sum_k max(left_k v_k, right_k v_k), v = K x - at; K (kinks, dim) sparse, the rest (kinks,).

    coordinate (kinks,): j where the row of K is the j-th unit vector, else -1.
    """

    K: sparse.csr_array
    at: Array
    left: Array
    right: Array
    coordinate: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.at)

    def offset(self, x: Array) -> Array:
        """How far x is from each kink: v (kinks,)."""
        return np.asarray(self.K @ x - self.at)

    def values(self, x: Array) -> Array:
        """Each kink's term (kinks,); infinite where x is outside a bound."""
        v = self.offset(x)
        slopes = np.where(v > 0.0, self.right, self.left)
        return np.multiply(slopes, v, out=np.zeros(len(v)), where=v != 0.0)

    def feasible(self, x: Array) -> Array:
        """X moved onto the bounds that it violates."""
        x = x.copy()
        v = self.offset(x)
        outside = ((v > 0.0) & np.isinf(self.right)) | ((v < 0.0) & np.isinf(self.left))
        x[self.coordinate[outside]] = self.at[outside]
        return x


def taken_apart(problem: Problem) -> tuple[Smooth, Kinks]:
    """The problem's objective, taken apart."""
    weight = np.repeat(problem.scale, problem.rows)
    limit = problem.limit if problem.clipped else np.full(len(problem.b), np.inf)
    if problem.loss.code == HUBER:
        limit = np.minimum(limit, 2.0 * problem.loss.knee)
    smooth_rows = slice(None) if problem.loss.smooth else slice(0)
    smooth = Smooth(
        problem.loss,
        problem.A[smooth_rows],
        problem.b[smooth_rows],
        weight[smooth_rows],
        limit[smooth_rows],
        problem.regularizer.l2,
    )
    parts = _coordinate_kinks(problem.regularizer, problem.dim)
    if not problem.loss.smooth:
        weight = weight * np.minimum(1.0, limit)
        one_sided = problem.loss.classification
        left = np.where(one_sided & (problem.b < 0.0), 0.0, -weight)
        right = np.where(one_sided & (problem.b > 0.0), 0.0, weight)
        nowhere = np.full(len(weight), -1)
        parts.insert(0, (sparse.csr_array(problem.A), problem.b, left, right, nowhere))
    return smooth, _joined(parts, problem.dim)


Part = tuple[sparse.csr_array, Array, Array, Array, NDArray[np.int64]]


def relaxed(smooth: Smooth, kinks: Kinks, x: Array) -> tuple[Array, Array, Array, Kinks]:
    """The model of F at x in (w, e): point, gradient, Hessian and kinks.

    Cutting the slope of a convex loss at c is the infimal convolution min_e loss(u - e) + c |e|
    (Hiriart-Urruty 1980), so a model in (w, e) keeps the curvature that is cut off at x; for
    squared and huber it is F itself. One e for each row whose slope is bounded.
    """
    rows = smooth.cut
    e, slopes = smooth.excess(x), smooth.weight * smooth.slopes(x)
    bends = smooth.bends(x, e)
    A, cut = smooth.A[rows], smooth.weight[rows] * smooth.limit[rows]
    corner = (smooth.A.T * bends) @ smooth.A + smooth.l2 * np.eye(len(x))
    side = -sparse.diags_array(bends[rows]) @ A
    H = sparse.block_array([[corner, side.T], [side, sparse.diags_array(bends[rows])]])
    K = sparse.csr_array(sparse.block_diag([kinks.K, sparse.eye_array(len(A))]))
    wider = Kinks(
        K,
        np.concatenate([kinks.at, np.zeros(len(A))]),
        np.concatenate([kinks.left, -cut]),
        np.concatenate([kinks.right, cut]),
        np.concatenate([kinks.coordinate, len(x) + np.arange(len(A))]),
    )
    g = np.concatenate([smooth.gradient(x), -slopes[rows]])
    return np.concatenate([x, e[rows]]), g, H, wider


def _coordinate_kinks(regularizer: Regularizer, dim: int) -> list[Part]:
    """The kinks of h: at 0 and at the bounds of every coordinate, one where they coincide."""
    slopes: dict[float, tuple[float, float]] = {}
    if regularizer.l1 > 0.0:
        slopes[0.0] = (-regularizer.l1, regularizer.l1)
    for bound, left, right in (
        (regularizer.lower, -np.inf, 0.0),
        (regularizer.upper, 0.0, np.inf),
    ):
        if np.isfinite(bound):
            before = slopes.get(bound, (0.0, 0.0))
            slopes[bound] = (before[0] + left, before[1] + right)
    return [
        (
            sparse.csr_array(sparse.eye_array(dim)),
            np.full(dim, at),
            np.full(dim, left),
            np.full(dim, right),
            np.arange(dim),
        )
        for at, (left, right) in slopes.items()
    ]


def _joined(parts: list[Part], dim: int) -> Kinks:
    if not parts:
        none = np.empty(0)
        return Kinks(sparse.csr_array((0, dim)), none, none, none, np.empty(0, np.int64))
    K, *columns = zip(*parts, strict=True)
    return Kinks(sparse.csr_array(sparse.vstack(K)), *(np.concatenate(c) for c in columns))


# The model problem, solved by Clarabel's interior point method.


def model_minimum(x: Array, g: Array, H: Any, kinks: Kinks) -> tuple[Array, Array]:
    """argmin_w g.(w - x) + (w - x)' H (w - x)/2 + kinks(w), and the slopes taken at the kinks.

    x, g (dim,), H (dim, dim); the slopes (kinks,) lie in [left, right]. The answer is what the
    method reached: the caller certifies it.
    """
    if not len(kinks):
        return x + _newton_direction(g, H), np.empty(0)
    dim = len(x)
    free = np.isfinite(kinks.left) & np.isfinite(kinks.right)  # terms; the others are bounds
    terms = int(free.sum())
    P = sparse.triu(sparse.block_diag([H, sparse.csc_array((terms, terms))]), format="csc")
    inside = np.where(np.isinf(kinks.left), kinks.right, kinks.left)[~free]  # slope where allowed
    q = np.concatenate([g - H @ x + kinks.K[~free].T @ inside, np.ones(terms)])
    rows, bounds = [], []
    for slopes in (kinks.left, kinks.right):  # slope (K w - at) <= the term's own variable
        scaled = sparse.diags_array(slopes[free]) @ kinks.K[free]
        rows.append(sparse.hstack([scaled, -sparse.eye_array(terms)]))
        bounds.append(slopes[free] * kinks.at[free])
    side = np.where(np.isinf(kinks.left[~free]), -1.0, 1.0)
    single = sparse.diags_array(side) @ kinks.K[~free]
    rows.append(sparse.hstack([single, sparse.csc_array((len(side), terms))]))
    bounds.append(side * kinks.at[~free])
    w, y = _clarabel(P, q, sparse.csc_array(sparse.vstack(rows)), np.concatenate(bounds))
    slope = np.empty(len(kinks))
    slope[free] = kinks.left[free] * y[:terms] + kinks.right[free] * y[terms : 2 * terms]
    slope[~free] = inside + side * y[2 * terms :]
    return w[:dim], np.clip(slope, kinks.left, kinks.right)


def _newton_direction(g: Array, H: Array) -> Array:
    """-H^-1 g, of least norm where H is singular; nan where they are not finite."""
    if not (np.isfinite(H).all() and np.isfinite(g).all()):
        return np.full_like(g, np.nan)
    try:
        factor = np.linalg.cholesky(H)
        if np.min(np.diag(factor)) ** 2 > 1e-13 * np.max(np.diag(H)):
            return np.asarray(-np.linalg.solve(H, g))
    except np.linalg.LinAlgError:
        pass
    return np.asarray(-np.linalg.lstsq(H, g, rcond=1e-13)[0])


def _clarabel(P: object, q: Array, M: sparse.csc_array, d: Array) -> tuple[Array, Array]:
    """The minimiser of z'Pz/2 + q.z with M z <= d and the multipliers, as exact as it gets."""
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    cones = [clarabel.NonnegativeConeT(len(d))]
    for tolerance in (1e-11, 1e-9, 1e-7):
        settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = tolerance
        found = clarabel.DefaultSolver(sparse.csc_matrix(P), q, M, d, cones, settings).solve()
        if found.status == clarabel.SolverStatus.Solved:
            break
    return np.array(found.x), np.array(found.z)


# Newton's method.
EXACT = 1e-12  # of the sizes that cancel in the subgradient and in the gap
ENOUGH = 1e-9  # where rounding allows no more
ITERATIONS = 60


class Found(NamedTuple):
    """A point (dim,), slopes at its kinks (kinks,), certificate, and that over the sizes."""

    x: Array
    slopes: Array
    certificate: float
    relative: float
    method: str = ""
    unique: bool = False


def minimise(smooth: Smooth, kinks: Kinks) -> Found:
    """The certified minimiser of smooth + kinks; one thread, so that threads change no bit."""
    with one_blas_thread(), np.errstate(all="ignore"):  # a wild step is refused, not an error
        found = _search(smooth, kinks)
        method = "proximal newton, clarabel" if len(kinks) else "newton"
        return found._replace(method=method, unique=_unique(smooth, kinks, found))


def _search(smooth: Smooth, kinks: Kinks) -> Found:
    x = kinks.feasible(np.zeros(smooth.A.shape[1]))
    best = Found(x, np.zeros(len(kinks)), np.inf, np.inf)
    models = (_plain, _wide) if np.any(smooth.cut) else (_plain,)
    heights = [np.inf]
    while len(heights) < ITERATIONS and not _stalled(heights):
        for model in models:
            target, slopes, guide = model(smooth, kinks, x)
            found = _finish(smooth, guide, kinks, kinks.feasible(target), slopes)
            best = min(best, found, key=lambda one: one.relative)
            _refuse_separable(smooth, kinks, best.x)
            if best.relative <= EXACT:
                return best
            lower = _lower(smooth, kinks, x, target, 40 if model is models[-1] else 4)
            if lower is not None:
                x = lower
                break
        heights.append(smooth.value(x) + float(kinks.values(x).sum()))
    start = kinks.feasible(np.zeros(len(x)))
    for place in () if best.relative <= ENOUGH else (x, start):
        # Where all rows fit, nothing is left that cancels, and rounding is all of the gradient: a
        # model that is exact, as `_wide` is of cut squares, may still end at zeros.
        target, slopes, guide = models[-1](smooth, kinks, place)
        found = _finish(smooth, guide, kinks, kinks.feasible(target), slopes)
        best = min(best, found, key=lambda one: one.relative)
    if best.relative <= ENOUGH:
        return best
    raise RunError(
        f"the optimum of the problem was not found to {ENOUGH:g}: after {len(heights)} steps the "
        f"relative certificate is {best.relative:.3g}; scale the features (problem.data.scale) or "
        "add a regulariser (problem.regularizer: {l2: ...})"
    )


def _stalled(heights: list[float]) -> bool:
    """Whether three steps in a row gained nothing above rounding, or are no numbers."""
    return len(heights) > 4 and not heights[-4] - heights[-1] > 1e-13 * abs(heights[-1])


def _plain(smooth: Smooth, kinks: Kinks, x: Array) -> tuple[Array, Array, Smooth]:
    """Minimum of the quadratic model of S plus the kinks, and the slopes there."""
    w, slopes = model_minimum(x, smooth.gradient(x), smooth.hessian(x), kinks)
    return w, slopes, smooth


def _wide(smooth: Smooth, kinks: Kinks, x: Array) -> tuple[Array, Array, Smooth]:
    """The same of the model that knows the curvature where slopes are cut, and which are."""
    point, g, H, wider = relaxed(smooth, kinks, x)
    w, slopes = model_minimum(point, g, H, wider)
    n, k = len(x), len(kinks)
    uncut = _active(wider, w, slopes, float(np.linalg.norm(g)))[k:]
    sign = np.zeros(len(smooth.b))
    sign[smooth.cut] = np.where(uncut, 0.0, np.sign(w[n:]))
    return w[:n], slopes[:k], smooth.frozen(sign)


def _lower(smooth: Smooth, kinks: Kinks, x: Array, target: Array, halvings: int) -> Array | None:
    """A point towards the target at which F has fallen enough (Armijo 1966), if there is one."""
    value = smooth.value(x) + float(kinks.values(x).sum())
    d = kinks.feasible(target) - x
    promised = float(smooth.gradient(x) @ d + (kinks.values(x + d) - kinks.values(x)).sum())
    for step in 0.5 ** np.arange(halvings if promised < 0.0 else 0):
        there = kinks.feasible(x + step * d)
        reached = smooth.value(there) + float(kinks.values(there).sum())
        if reached <= value + 1e-4 * step * promised:
            return there
    return None


def _finish(smooth: Smooth, guide: Smooth, kinks: Kinks, x: Array, slopes: Array) -> Found:
    """Newton on the guide, with the kinks that hold as equations, while it gains digits."""
    if not np.isfinite(x).all():
        return Found(x, slopes, np.inf, np.inf)
    active = _active(kinks, x, slopes, float(np.linalg.norm(guide.gradient(x))))
    v = kinks.offset(x)
    passive = np.where(v > 0.0, kinks.right, kinks.left)
    slopes = np.where(active | np.isinf(passive), slopes, passive)
    best = _certified(smooth, kinks, x, slopes)
    where = _independent(kinks, np.flatnonzero(active))
    active_rows = kinks.K[where].toarray()
    residual = np.inf
    for _ in range(50):
        r = guide.gradient(x) + kinks.K.T @ slopes
        error = float(np.linalg.norm(r) + np.linalg.norm(kinks.offset(x)[where]))
        if not error < 0.9 * residual:
            break
        residual = error
        dx, change = _newton_step(guide.hessian(x), active_rows, r, kinks.offset(x)[where])
        x = _snapped(kinks, active, x + dx)
        slopes = slopes.copy()
        slopes[where] += change
        found = _certified(smooth, kinks, x, slopes)
        best = found if found.relative < best.relative else best
    return best


def _active(kinks: Kinks, x: Array, slopes: Array, steepness: float) -> NDArray[np.bool_]:
    """Kinks whose slope is further inside its interval than x is from the kink, both relative.

    Slopes at a bound, whose interval is infinite, are relative to 1 + steepness.
    """
    width = kinks.right - kinks.left
    bound = np.isinf(width)
    inside = np.minimum(slopes - kinks.left, kinks.right - slopes)
    size = np.where(bound, 1.0 + steepness, width)
    lengths = np.sqrt(np.asarray(kinks.K.multiply(kinks.K).sum(axis=1)).ravel())
    distance = np.abs(kinks.offset(x)) / (1.0 + lengths * np.linalg.norm(x) + np.abs(kinks.at))
    return np.asarray(inside / size > distance)


def _independent(kinks: Kinks, where: NDArray[np.int64]) -> NDArray[np.int64]:
    """Of these kinks as many as have independent rows: thousands of examples may share a kink."""
    if np.all(kinks.coordinate[where] >= 0):
        return where
    rows = kinks.K[where].toarray()
    r, order = linalg.qr(rows.T, mode="r", pivoting=True)
    sizes = np.abs(np.diag(r))
    return np.asarray(where[np.sort(order[: int(np.sum(sizes > 1e-12 * sizes[0]))])])


def _newton_step(H: Array, active_rows: Array, r: Array, v: Array) -> tuple[Array, Array]:
    """Solve H dx + held' ds = -r, held dx = -v, with least norm where that is not unique.

    No step where numbers are not finite: LAPACK would complain by itself, or never end.
    """
    n, m = len(r), len(v)
    system = np.block([[H, active_rows.T], [active_rows, np.zeros((m, m))]])
    right = -np.concatenate([r, v])
    if not (np.isfinite(system).all() and np.isfinite(right).all()):
        return np.zeros(n), np.zeros(m)
    try:
        factors, pivots, ok = linalg.lapack.dgetrf(system)
        diagonal = np.abs(np.diag(factors))
        if ok == 0 and diagonal.min() > 1e-13 * diagonal.max():
            step = linalg.lapack.dgetrs(factors, pivots, right)[0]
        else:
            step = np.linalg.lstsq(system, right, rcond=1e-13)[0]
    except np.linalg.LinAlgError:
        step = np.zeros(n + m)
    return step[:n], step[n:]


def _snapped(kinks: Kinks, active: NDArray[np.bool_], x: Array) -> Array:
    """X with the coordinates that are held exactly where they are held, and inside the bounds."""
    single = active & (kinks.coordinate >= 0)
    x = x.copy()
    x[kinks.coordinate[single]] = kinks.at[single]
    return kinks.feasible(x)


def _certified(smooth: Smooth, kinks: Kinks, x: Array, slopes: Array) -> Found:
    """The point with its certificate: slopes moved into [left, right], then subgradient and gap."""
    slopes = np.clip(slopes, kinks.left, kinks.right)
    subgradient = float(np.linalg.norm(smooth.gradient(x) + kinks.K.T @ slopes))
    terms = kinks.values(x)
    gap = float(np.sum(terms - slopes * kinks.offset(x)))
    lengths = np.sqrt(np.asarray(kinks.K.multiply(kinks.K).sum(axis=1)).ravel())
    size = max(1.0, smooth.magnitude(x) + float(lengths @ np.abs(slopes)))
    height = max(1.0, abs(smooth.value(x)) + float(np.abs(terms).sum()))
    if not np.isfinite(subgradient + gap + size + height):  # over an infinite size all is nothing
        return Found(x, slopes, np.inf, np.inf)
    return Found(x, slopes, max(subgradient, gap), max(subgradient / size, gap / height))


def _unique(smooth: Smooth, kinks: Kinks, found: Found) -> bool:
    """Whether F surely grows in every direction from x: curved where no kink that holds bends."""
    steepness = float(np.linalg.norm(smooth.gradient(found.x)))
    active = _active(kinks, found.x, found.slopes, steepness)
    active_rows = kinks.K[_independent(kinks, np.flatnonzero(active))].toarray()
    free = linalg.null_space(active_rows) if len(active_rows) else np.eye(len(found.x))
    curvature = np.linalg.eigvalsh(free.T @ smooth.hessian(found.x) @ free)
    return bool(free.shape[1] == 0 or curvature[0] > 1e-12 * max(curvature[-1], 1e-300))


def _refuse_separable(smooth: Smooth, kinks: Kinks, x: Array) -> None:
    """Logistic loss on separated classes falls for ever along the separating direction."""
    apart = smooth.loss.name == "logistic" and smooth.l2 == 0.0 and not len(kinks)
    if apart and np.all(smooth.b * (smooth.A @ x) > 0.0):
        raise InputError(
            "problem.regularizer: found none; the classes can be separated, so logistic loss has "
            "no minimiser; allowed: {l2: ...}, {l1: ...} or a box"
        )
