"""The exact price of Gaussian noise: epsilon, mu and delta; and the profiles of releases.

A Gaussian release of L2 sensitivity D and standard deviation s is exactly (D/s)-GDP, and releases
compose to the root of the sum of the squares (Dong, Roth and Su 2022, Cor. 3.3). Balle and Wang
(2018, Thm 8): delta = Phi(mu/2 - eps/mu) - e^eps Phi(-mu/2 - eps/mu). With eps = mu^2/2 + mu t and
Mills' ratio R = (1 - Phi)/phi that is delta = phi(t) (R(t) - R(t + mu)), which neither overflows
nor cancels; it is log-concave in t, so Newton's method from the right converges monotonically.

A pair of laws dominates a mechanism if its hockey-stick divergence is at least that of any two
neighbours at every order e^e; pairs that dominate compose, however releases follow from those
before (Zhu, Dong and Wang 2022, Thm 10). Of two laws delta(-e) = 1 - e^-e + e^-e delta'(e), delta'
being that of the second from the first, so that e >= 0 says everything; all pairs of the profiles
are symmetric, as relations are, but for sums that somebody is left out of.

Sums that an agent is in with probability q, or left out of: (1 - q) N(0) + q N(a) against N(0) one
way, N(0) against that the other way; each way composes by itself, and the larger epsilon counts
(Zhu, Dong and Wang 2022, Thm 11). With r the ratio of densities N(a) / N(0), the first is q times
the delta of N(a) from N(0) at ln(1 + (e^e - 1) / q). The second has 1 > e^e (1 - q + q r) where r
is below c = (e^-e - 1 + q) / q, so that it is e^e q c times that of N(0) from N(a) at -ln c.

Batches without replacement, replace-one. Write the two laws of one release as P = (1 - q) M + q A
and P' = (1 - q) M + q A', q = batch / rows, M without the record and A, A' with it. Replacing it by
a random record outside the batch turns A into M, and A into A' the record itself, so that both are
moved by one replacement. Advanced joint convexity (Balle, Barthe and Gaboardi 2018, Thm 2 and 10)
bounds the divergence at e >= 0 by q times that of the whole mechanism at ln(1 + (e^e - 1) / q), and
a replacement that is undone by symmetry at e < 0. Both bounds are attained, (1 - q) N(0) + q N(a)
against N(0) at e >= 0 and the other way round at e < 0: no single pair that dominates is smaller.
No single pair of data sets attains both, so that many releases may cost less than its composition:
epsilon is 2 to 12 % above that of the first of the two, repeated, in most settings, and by sqrt 2
where few rows, many releases and little noise come together.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.errors import InputError, refusal
from desim.numerics.later import optimize, special

SERIES = 1e-3  # below, R(t) - R(t + mu) by Taylor's series about the middle
LARGE = 1e4  # above, all start from one t
BLOCK = 4096  # values solved at once, so that they stay in a cache
STEPS = 60  # never all taken: about eight are needed
LOG_ROOT_2PI = 0.5 * np.log(2.0 * np.pi)

EPSILON_LIMIT = 1e12  # an epsilon beyond which the equation of mu has no root in doubles


def epsilon_of(mu: ArrayLike, delta: float) -> Array:
    """Smallest epsilon >= 0 at which mu-GDP is (epsilon, delta)-DP; shaped as `mu`.

    mu = 0 costs 0 and mu = inf costs inf. InputError unless 0 < delta < 1 and every mu >= 0.
    """
    check_delta(delta)
    whole = np.asarray(mu, float)
    if not np.all(whole >= 0.0):
        raise InputError("mu: found a negative value or nan; allowed: mu >= 0")
    flat = whole.ravel()
    epsilon = np.where(np.isinf(flat), np.inf, 0.0)
    costly = np.flatnonzero(np.isfinite(flat) & (special.erf(flat / np.sqrt(8.0)) > delta))
    with np.errstate(over="ignore"):
        epsilon[costly] = _solved(flat[costly], delta)
    return epsilon.reshape(whole.shape)


def delta_of(epsilon: ArrayLike, mu: ArrayLike) -> Array:
    """Smallest delta at which mu-GDP is (epsilon, delta)-DP; shapes broadcast (Balle-Wang, Thm 8).

    InputError unless every epsilon >= 0 and mu >= 0.
    """
    e, m = np.broadcast_arrays(np.asarray(epsilon, float), np.asarray(mu, float))
    if not (np.all(e >= 0.0) and np.all(m >= 0.0)):
        raise InputError("found a negative value or nan; allowed: epsilon >= 0 and mu >= 0")
    delta = np.where(np.isinf(m) & np.isfinite(e), 1.0, 0.0)
    inside = (m > 0.0) & np.isfinite(m) & np.isfinite(e)
    with np.errstate(over="ignore", under="ignore"):
        t = e[inside] / m[inside] - 0.5 * m[inside]
        delta[inside] = np.exp(_log_delta(t, m[inside]))
    return delta


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu at which mu-GDP is (epsilon, delta)-DP; sigma = sensitivity / mu.

    InputError unless 0 < delta < 1 and epsilon is 0 to EPSILON_LIMIT, or infinite.
    """
    check_delta(delta)
    if not epsilon >= 0.0:
        raise InputError(f"epsilon: {refusal(epsilon, 'a number >= 0')}")
    if np.isinf(epsilon):
        return np.inf
    if epsilon > EPSILON_LIMIT:
        raise InputError(f"epsilon: {refusal(epsilon, f'at most {EPSILON_LIMIT:g}, or infinite')}")
    free = float(np.sqrt(8.0) * special.erfinv(delta))  # the root at epsilon = 0
    if epsilon == 0.0:
        return free
    tail = float(-special.ndtri(delta))
    least = max(free, float(np.hypot(tail, np.sqrt(2.0 * epsilon))) - tail)  # as t <= tail
    low, high = 0.5 * least, 2.0 * least
    while _excess(high, epsilon, delta) < 0.0:
        low, high = high, 2.0 * high
    return float(optimize.brentq(_excess, low, high, (epsilon, delta), xtol=1e-300, rtol=1e-15))


def check_delta(delta: float) -> None:
    """Raise InputError unless 0 < delta < 1."""
    real = isinstance(delta, int | float | np.floating) and not isinstance(delta, bool)
    if not real or not 0.0 < delta < 1.0:
        raise InputError(f"delta: {refusal(delta, '0 < delta < 1')}")


def _excess(mu: float, epsilon: float, delta: float) -> float:
    t = np.array([epsilon / mu - 0.5 * mu])
    return float(_log_delta(t, np.array([mu]))[0] - np.log(delta))


def _solved(mu: Array, delta: float) -> Array:
    """Epsilon (n,) of mu (n,), all finite and with a positive epsilon: a function of each alone."""
    knots, roots = _table(delta)
    t = np.empty_like(mu)
    for first in range(0, len(mu), BLOCK):
        block = slice(first, first + BLOCK)
        t[block] = _newton(mu[block], delta, np.interp(np.log(mu[block]), knots, roots))
    return np.maximum(mu * (0.5 * mu + t), 0.0)


@lru_cache(maxsize=64)
def _table(delta: float) -> tuple[Array, Array]:
    """Log mu and t at BLOCK values of mu, from which others start."""
    knots = np.geomspace(min(np.sqrt(8.0) * special.erfinv(delta), 1.0), LARGE, BLOCK)
    return np.log(knots), _newton(knots, delta, np.full_like(knots, -special.ndtri(delta)))


def _newton(mu: Array, delta: float, t: Array) -> Array:
    """Solve log delta(t) = log delta for t (n,), from the start `t`; each until it stands still."""
    moving = np.ones(len(mu), bool)
    for _ in range(STEPS):
        after = t + mu
        fall = _mills_fall(t, mu)
        excess = np.log(fall) - 0.5 * t * t - LOG_ROOT_2PI - np.log(delta)
        step = np.where(moving, excess * fall / (mu * _mills(after)), 0.0)
        t = t + step
        moving &= np.abs(step) > 1e-9 * (1.0 + np.abs(t))  # what is left is its square
        if not moving.any():
            break
    return t


def _log_delta(t: Array, mu: Array) -> Array:
    """Log of phi(t) (R(t) - R(t + mu)); t is kept where that is neither 0 nor 1 to the last bit."""
    inside = np.clip(t, -30.0, 1e3)
    return np.asarray(np.log(_mills_fall(inside, mu)) - 0.5 * inside * inside - LOG_ROOT_2PI)


def _mills(t: Array) -> Array:
    return np.asarray(np.sqrt(0.5 * np.pi) * special.erfcx(t * np.sqrt(0.5)))


def _mills_fall(t: Array, mu: Array) -> Array:
    """R(t) - R(t + mu), from R' = t R - 1 and R^(n+1) = n R^(n-1) + t R^(n) where mu is small."""
    fall = _mills(t) - _mills(t + mu)
    small = mu < SERIES
    if np.any(small):
        h = mu[small]
        middle = t[small] + 0.5 * h
        value = _mills(middle)
        first = middle * value - 1.0
        third = 2.0 * first + middle * (value + middle * first)
        fall[small] = -h * (first + third * h * h / 24.0)
    return np.asarray(fall)


# Privacy profiles: delta (e) of one release at e >= 0, the same for both of two neighbours.


class Kind(NamedTuple):
    """One kind of release. law: gaussian, size D / s; laplace, L1 / b; pure, epsilon; batch, D / s.

    share: of a batch, batch / rows. poisson: a sum that an agent is in with that probability, D / s
    of what it adds; poisson-back: of the sums without it from those with it.
    """

    law: str
    size: float
    share: float = 1.0

    @property
    def back(self) -> "Kind":
        """The pair the other way round."""
        turned = {"poisson": "poisson-back", "poisson-back": "poisson"}
        return self._replace(law=turned.get(self.law, self.law))


def profile(kind: Kind, loss: Array) -> Array:
    """Return delta (n,) of a release at epsilon = loss (n,) >= 0."""
    if kind.law == "gaussian":
        return delta_of(loss, kind.size)
    if kind.law == "poisson-back":
        inside = -np.expm1(-loss) < kind.share  # where c > 0
        left = 1.0 + np.expm1(-loss[inside]) / kind.share  # c
        found = np.zeros_like(loss)
        weight = kind.share * np.exp(loss[inside]) * left
        found[inside] = weight * delta_of(np.maximum(-np.log(left), 0.0), kind.size)
        return found
    if kind.law in ("batch", "poisson"):
        whole = np.log1p(np.expm1(loss) / kind.share)
        return np.asarray(kind.share * delta_of(whole, kind.size))
    if kind.law == "laplace":
        return np.asarray(np.maximum(-np.expm1(0.5 * (loss - kind.size)), 0.0))
    # randomised response dominates all that is epsilon-DP (Kairouz, Oh and Viswanath 2015)
    answered = np.exp(-kind.size) + 1.0
    return np.asarray(np.maximum(-np.expm1(loss - kind.size), 0.0) / answered)
