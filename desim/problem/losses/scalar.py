"""The scalar losses: everything that depends on one example only through u = a.x.

A plug-in's loss has the code OWN, and where others have a knee the handle of its functions.

Kernels import the compiled `value`, `slope` and their clipped forms; `Loss` is what the rest of
desim knows about one. With r = u - b: squared r^2, absolute |r|, huber r^2 up to a knee and then
linear, hinge max(0, 1 - b u) and logistic log(1 + exp(-b u)), the last two with b in {-1, 1}.
"""
# mypy: disable-error-code="no-any-return"

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from desim.arrays import Array
from desim.numerics.elementary import exp_, log_
from desim.numerics.foreign import BEND, SLOPE, VALUE, call
from desim.numerics.jit import inline, kernel, lean_inline
from desim.numerics.lanes import pick

SQUARED = 0
ABSOLUTE = 1
HUBER = 2
HINGE = 3
LOGISTIC = 4
OWN = 5

CODES = {
    "squared": SQUARED,
    "absolute": ABSOLUTE,
    "huber": HUBER,
    "hinge": HINGE,
    "logistic": LOGISTIC,
}


@inline
def _log1p(e: float) -> float:
    """log(1 + e) for 0 <= e <= 1; the quotient mends the rounding of 1 + e (Kahan 1982)."""
    w = 1.0 + e
    return e if w == 1.0 else log_(w) * (e / (w - 1.0))


@inline
def value(code: int, u: float, b: float, knee: float) -> float:
    """The loss of one example at u = a.x."""
    if code == OWN:
        return call(VALUE, knee, u, b)
    if code == SQUARED:
        return (u - b) * (u - b)
    if code == ABSOLUTE:
        return abs(u - b)
    if code == HUBER:
        r = abs(u - b)
        return r * r if r <= knee else knee * (2.0 * r - knee)
    z = b * u
    if code == HINGE:
        return max(0.0, 1.0 - z)
    return _log1p(exp_(-abs(z))) + max(0.0, -z)


@inline
def slope(code, u, b, knee):  # type: ignore[no-untyped-def]
    """The derivative of `value` in u; at a kink the subgradient nearest zero, so sign(0) = 0.

    u and b: numbers or lanes. Not for OWN: see `own_slopes`, which keeps calls out of the loops of
    all others.
    """
    if code == SQUARED:
        return 2.0 * (u - b)
    if code == ABSOLUTE:
        return pick(u > b, 1.0, 0.0) - pick(u < b, 1.0, 0.0)
    if code == HUBER:
        r = u - b
        r = pick(r < knee, r, knee)
        return 2.0 * pick(r > -knee, r, -knee)
    if code == HINGE:
        return pick(b * u < 1.0, -b, 0.0 * b)
    return -b / (1.0 + exp_(b * u))


@inline
def clipped_slope(code: int, u: float, b: float, knee: float, c: float) -> float:
    """`slope` clipped to [-c, c]: with c = C / ||a|| the example's gradient has norm at most C."""
    if code == OWN:
        return max(-c, min(c, call(SLOPE, knee, u, b)))
    return max(-c, min(c, slope(code, u, b, knee)))


@lean_inline
def own_slopes(handle: float, b: Array, u: Array) -> None:
    """Replace u[h] (rows,) by the slope of a plug-in's loss there."""
    for h in range(b.size):
        u[h] = call(SLOPE, handle, u[h], b[h])


@inline
def _own_clipped_value(handle: float, u: float, b: float, c: float) -> float:
    """`clipped_value` of a plug-in's loss: straight on from where its slope is c, by bisection."""
    s = call(SLOPE, handle, u, b)
    if not abs(s) > c:
        return call(VALUE, handle, u, b)
    side = 1.0 if s > 0.0 else -1.0
    near, step = u, 1.0
    far = u - side
    while side * call(SLOPE, handle, far, b) > c and step < 1e300:
        step *= 2.0
        far = u - side * step
    for _ in range(2000):
        middle = near + 0.5 * (far - near)
        if middle == near or middle == far:
            break
        if side * call(SLOPE, handle, middle, b) > c:
            near = middle
        else:
            far = middle
    return call(VALUE, handle, far, b) + side * c * (u - far)


@inline
def clipped_value(code: int, u: float, b: float, knee: float, c: float) -> float:
    """The convex function whose derivative is `clipped_slope`, equal to `value` where none is cut.

    Clipping each example's gradient does not bias a fixed loss, it replaces the loss: clipped
    squared is Huber with knee c/2 (notably not least squares), clipped logistic goes on linearly
    below the margin log((1 - c)/c), and clipped absolute and hinge are scaled by min(1, c).
    """
    if code == OWN:
        return _own_clipped_value(knee, u, b, c)
    if code == SQUARED or code == HUBER:
        bend = 0.5 * c if code == SQUARED else min(knee, 0.5 * c)
        return value(HUBER, u, b, bend)
    if code == ABSOLUTE or code == HINGE:
        return min(1.0, c) * value(code, u, b, knee)
    if c >= 1.0:
        return value(code, u, b, knee)
    z = b * u
    margin = math.log1p(-c) - math.log(c)
    return value(code, max(z, margin), 1.0, knee) + c * max(0.0, margin - z)


@inline
def clipped_change(code: int, u: float, d: float, b: float, knee: float, c: float) -> float:
    """`clipped_value` at u + d less that at u; (2 r + d) d where it is r^2, which cancels less.

    No slope is above c, so that no change is above c |d|, however large the values are that cancel;
    one that is no number is 0.
    """
    if d == 0.0:
        return 0.0
    r = u - b
    bend = 0.5 * c if code == SQUARED else min(knee, 0.5 * c)
    if (code == SQUARED or code == HUBER) and abs(r) <= bend and abs(r + d) <= bend:
        change = (2.0 * r + d) * d
    else:
        change = clipped_value(code, u + d, b, knee, c) - clipped_value(code, u, b, knee, c)
    if c == np.inf:
        return change
    if not abs(change) > c * abs(d):
        return change if change == change else 0.0
    return c * abs(d) if change > 0.0 else -c * abs(d)


@inline
def clipped_bend(code: int, u: float, b: float, knee: float, c: float) -> float:
    """The second derivative of `clipped_value` in u, 0 where it does not exist."""
    if code == SQUARED or code == HUBER:
        bend = 0.5 * c if code == SQUARED else min(knee, 0.5 * c)
        return 2.0 if abs(u - b) <= bend else 0.0
    if code == ABSOLUTE or code == HINGE:
        return 0.0
    if code == OWN:
        return 0.0 if abs(call(SLOPE, knee, u, b)) > c else call(BEND, knee, u, b)
    e = exp_(-abs(u))
    if abs(slope(LOGISTIC, u, b, knee)) > c:
        return 0.0
    return e / ((1.0 + e) * (1.0 + e))


@kernel
def values_into(code: int, u: Array, b: Array, knee: float, limit: Array, out: Array) -> None:
    """out[h] = clipped_value of row h; u, b, limit and out (rows,)."""
    for h in range(u.size):
        out[h] = clipped_value(code, u[h], b[h], knee, limit[h])


@kernel
def slopes_into(code: int, u: Array, b: Array, knee: float, limit: Array, out: Array) -> None:
    """out[h] = clipped_slope of row h; u, b, limit and out (rows,)."""
    for h in range(u.size):
        out[h] = clipped_slope(code, u[h], b[h], knee, limit[h])


@kernel
def bends_into(code: int, u: Array, b: Array, knee: float, limit: Array, out: Array) -> None:
    """out[h] = clipped_bend of row h; u, b, limit and out (rows,)."""
    for h in range(u.size):
        out[h] = clipped_bend(code, u[h], b[h], knee, limit[h])


@dataclass(frozen=True)
class Loss:
    """One loss by name; `knee` is the residual at which huber turns linear."""

    modelled: ClassVar[bool] = False  # whether a user's model gives it
    name: str
    knee: float = 1.0

    def __post_init__(self) -> None:
        if self.name not in CODES:
            raise ValueError(f"loss: {self.name!r} is unknown; allowed: {', '.join(CODES)}")
        if not 0.0 < self.knee < np.inf:
            raise ValueError(f"loss.huber.knee: {self.knee} is not a positive number")

    @property
    def code(self) -> int:
        """What the compiled functions know it by."""
        return CODES[self.name]

    @property
    def smooth(self) -> bool:
        """Whether the derivative is continuous."""
        return self.name in ("squared", "huber", "logistic")

    @property
    def quadratic(self) -> bool:
        """Whether its Hessian is constant (as long as nothing is clipped)."""
        return self.name == "squared"

    @property
    def classification(self) -> bool:
        """Whether labels must be -1 or 1."""
        return self.name in ("hinge", "logistic")

    @property
    def curvature(self) -> float:
        """The largest slope of `slope`, in u: 2, 1/4, or infinite at a kink."""
        return {"squared": 2.0, "huber": 2.0, "logistic": 0.25}.get(self.name, np.inf)

    @property
    def linear(self) -> bool:
        """Whether the loss of an example depends on the model through one number a.x alone."""
        return True

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in the parameters."""
        return True

    @property
    def classifies(self) -> bool:
        """Whether labels are classes, so that accuracy has a meaning."""
        return self.classification

    def row_losses(self, A: Any, b: Any, x: Array) -> Array:
        """Losses (rows,) of rows A (rows, ...) with labels b at the model x; of no linear model."""
        raise NotImplementedError

    def dimension(self, features: int) -> int:
        """How many parameters a model on so many features has."""
        return features

    def with_classes(self, *labels: Array | None) -> "Loss":
        """The loss once labels (rows,) have told what they can: how many classes there are."""
        return self

    def verify(self) -> None:
        """Raise what a function of a plug-in has raised inside a kernel since the last time."""

    def problems(self, b: Array) -> list[str]:
        """What is wrong with labels b (rows,), one line each."""
        odd = b[~np.isin(b, (-1.0, 1.0))] if self.classification else b[:0]
        if not len(odd):
            return []
        return [f"problem.loss: {self.name} needs labels -1 and 1; found {odd[0]:g}"]

    def predictions(self, A: Array, x: Array) -> Array:
        """Labels (rows,) of rows A at the model x (dim,): the sign of a.x, 0 counts as 1."""
        return np.where(A @ x >= 0.0, 1.0, -1.0)
