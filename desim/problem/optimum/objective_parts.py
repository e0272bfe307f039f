"""The objective as the optimiser sees it: a smooth convex part, and kinks.

F(x) = S(x) + sum_k max(l_k v_k, r_k v_k) with v = K x - at. Every example of absolute or hinge loss
is a kink, and so is every |x_j| (l, r finite) and every bound of a box (one of them infinite).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from desim.arrays import Array
from desim.problem.losses.regularizers import Regularizer
from desim.problem.losses.scalar import HUBER, LOGISTIC, Loss, bends_into, slopes_into, values_into
from desim.problem.problem import Problem


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
