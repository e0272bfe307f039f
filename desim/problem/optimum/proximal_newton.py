"""The optimum of a convex problem with kinks, to all digits, by a proximal Newton method.

Each iteration solves the model problem at x, then tries to finish: Newton's method on the kinks
that hold, as equations. Where that does not certify, a line search makes progress and it goes on.
Clarabel (Goulart and Chen 2024, arXiv 2405.12762) solves the model problem; its multipliers say
which kinks hold with equality.
"""

from typing import Any, NamedTuple

import clarabel
import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from desim.arrays import Array
from desim.errors import InputError, RunError
from desim.numerics.jit import one_blas_thread
from desim.problem.optimum.objective_parts import Kinks, Smooth, relaxed

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
