"""Lower bounds on a privacy loss from two samples of scores; statistics only, nothing is played.

The scores of runs on data D (`old`) and on its neighbour D' (`new`) are compared by events chosen
on one share of the runs and certified on the other, so that the bounds hold at their level whatever
the score is. All of them are one-sided: they can contradict a claim and can never confirm it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import betaincinv, ndtri, xlogy

from desim.arrays import Array

DECIMALS = 9
ORDERS = np.concatenate([[1.0], 1.0 + np.geomspace(0.05, 200.0, 40)])


def rounded(scores: Array) -> Array:
    """Scores (n,) to 1e-9, so that a real-number mechanism is audited.

    The last bits of a double tell how it was computed: o = a + noise and o = b + noise round
    differently (Mironov 2012, doi 10.1145/2382196.2382264), and a score that is constant in real
    numbers then separates the two perfectly.
    """
    return np.round(scores, DECIMALS) + 0.0


def share_low(count: Any, n: int, level: float) -> Array:
    """Lower confidence limit of a share, `count` of n (Clopper, Pearson 1934), wrong by `level`."""
    count = np.asarray(count, float)
    return np.where(count > 0, betaincinv(np.maximum(count, 1.0), n - count + 1.0, level), 0.0)


def share_high(count: Any, n: int, level: float) -> Array:
    """Upper confidence limit of a share, `count` of n (Clopper, Pearson 1934), wrong by `level`."""
    return 1.0 - share_low(n - np.asarray(count, float), n, level)


@dataclass(frozen=True)
class Certified:
    """An event that D' shows with probability >= new and D with probability <= old, both arrays.

    The smallest parameters that such an event leaves possible are the lower bounds, >= 0.
    """

    new: Any
    old: Any

    def epsilon(self, delta: float) -> Array:
        """Epsilon of (epsilon, delta)-DP: new <= e^epsilon old + delta, and the same reversed."""
        with np.errstate(divide="ignore", invalid="ignore"):
            forward = np.log(np.maximum(self.new - delta, 0.0) / self.old)
            backward = np.log(np.maximum(1.0 - self.old - delta, 0.0) / (1.0 - self.new))
        return _positive(np.fmax(forward, backward))

    @property
    def mu(self) -> Array:
        """The mu of mu-GDP (Dong, Roth, Su 2022, Definition 2.6)."""
        with np.errstate(invalid="ignore"):
            return _positive(ndtri(self.new) - ndtri(self.old))

    @property
    def rho(self) -> Array:
        """The rho of rho-zCDP: Renyi divergence of every order a is <= a rho, of events too."""
        new, old = np.asarray(self.new, float)[..., None], np.asarray(self.old, float)[..., None]
        ahead = np.maximum(_renyi(new, old), _renyi(old, new)) / ORDERS
        return np.asarray(np.where(self.new > self.old, ahead.max(axis=-1), 0.0))


def _positive(values: Array) -> Array:
    return np.where(values > 0.0, values, 0.0)


def _renyi(p: Array, q: Array) -> Array:
    """Renyi divergence of orders ORDERS of Bernoulli(p) from Bernoulli(q), both (..., 1)."""
    a = ORDERS[1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p, log_q, log_p1, log_q1 = np.log(p), np.log(q), np.log1p(-p), np.log1p(-q)
        head, tail = a * log_p + (1 - a) * log_q, a * log_p1 + (1 - a) * log_q1
        higher = np.logaddexp(head, tail) / (a - 1)
        first = xlogy(p, p / q) + xlogy(1 - p, (1 - p) / (1 - q))
    both = np.concatenate([first, higher], axis=-1)
    return np.asarray(np.nan_to_num(both, nan=0.0, posinf=np.inf))


Strength = Callable[[Certified], Array]


@dataclass(frozen=True)
class Event:
    """Score > threshold, or <= it where `above` is False."""

    threshold: float
    above: bool = True

    def share(self, scores: Array) -> float:
        """Share of the scores (n,) that show the event."""
        above = float(np.mean(scores > self.threshold))
        return above if self.above else 1.0 - above


def best_event(old: Array, new: Array, strength: Strength, level: float) -> Event:
    """The event of the largest strength, its shares being certified on these scores themselves."""
    thresholds = np.unique(np.concatenate([old, new]))
    above_old = len(old) - np.searchsorted(np.sort(old), thresholds, side="right")
    above_new = len(new) - np.searchsorted(np.sort(new), thresholds, side="right")
    found = [
        (strength(Certified(share_low(n, len(new), level), share_high(o, len(old), level))), above)
        for n, o, above in (
            (above_new, above_old, True),
            (len(new) - above_new, len(old) - above_old, False),
        )
    ]
    values, above = max(found, key=lambda pair: float(np.max(pair[0])))
    top = np.flatnonzero(values == values.max())
    return Event(float(thresholds[top[len(top) // 2]]), above)


def certify(event: Event, old: Array, new: Array, level: float) -> Certified:
    """Shares of `event`, both at once right with probability 1 - level, on scores not used yet."""
    counts = round(event.share(new) * len(new)), round(event.share(old) * len(old))
    return Certified(
        share_low(counts[0], len(new), level / 2), share_high(counts[1], len(old), level / 2)
    )


def mean_low(values: Array, level: float) -> float:
    """Lower confidence limit of the mean of values (n,) in [0, 1], wrong by `level`.

    Empirical Bernstein (Maurer, Pontil 2009, arXiv 0907.3740, Theorem 4).
    """
    n, odds = len(values), np.log(2.0 / level)
    if n < 2:
        return 0.0
    spread = np.sqrt(2.0 * float(np.var(values, ddof=1)) * odds / n)
    return max(float(np.mean(values)) - float(spread) - 7.0 * float(odds) / (3.0 * (n - 1)), 0.0)


def hockey_stick(
    old: Array, new: Array, delta: float, level: float, epsilons: Array
) -> tuple[float, Array]:
    """(the largest of `epsilons` that delta contradicts, or 0; lower bounds of delta for each).

    old, new (n,): exact log-likelihood ratios of D' against D in runs on D and on D'; then
    delta(epsilon) is the mean of (1 - e^(epsilon - ratio))_+ over D', and with the sign reversed
    over D. epsilons must not depend on the scores; all bounds hold at once at `level`.
    """
    each = level / (2 * len(epsilons))
    low = np.zeros(len(epsilons))
    for k, epsilon in enumerate(epsilons):
        for ratio in (new, -old):
            excess = -np.expm1(np.minimum(epsilon - ratio, 0.0))
            low[k] = max(low[k], mean_low(excess, each))
    broken = epsilons[low > delta]
    return (float(broken.max()) if len(broken) else 0.0), low


def rho_low(old: Array, new: Array, level: float) -> float:
    """Lower bound of the rho of rho-zCDP that log-likelihood ratios leave, wrong by `level`.

    old, new (n,): of D' against D in runs on D and on D'. All n values z = new and -old have
    E e^((a - 1) z) <= e^(a (a - 1) rho) for every a > 1, as Renyi divergences are a rho at most
    (Bun, Steinke 2016, Definition 1.1). By Chernoff's bound at a - 1 = t / (2 rho) their mean is
    above rho + t with probability e^(-n t^2 / (4 rho)) at most: t = sqrt(4 rho ln(1 / level) / n)
    for all runs of both sides together. The bound is the smallest rho that this does not reject;
    infinite for an infinite ratio, 0 where a ratio is no number.
    """
    ratios = np.concatenate([new, -old])
    if np.isnan(ratios).any() or (ratios == -np.inf).any():
        return 0.0
    mean = float(np.mean(ratios))
    if not 0.0 < mean < np.inf:
        return max(mean, 0.0)
    width = np.sqrt(4.0 * np.log(1.0 / level) / len(ratios))
    return float((2.0 * mean / (width + np.sqrt(width * width + 4.0 * mean))) ** 2)


def certain(old: Array, new: Array, level: float) -> float:
    """Lower bound of the delta that no epsilon helps with: how often a ratio is infinite.

    What D' shows in such runs (or D, with the sign reversed) the other data cannot show.
    """
    shares = ((new == np.inf, len(new)), (old == -np.inf, len(old)))
    return max(float(share_low(np.count_nonzero(times), n, level / 2)) for times, n in shares)
