"""Latency and rate of a line by the profile of their misfit: every pair that fits, and intervals.

What a message takes over TCP is a law in pieces, each for a number of round trips, so that several
pairs may fit equally well: no parabola around one of them says how far off it is. An interval is
the set of values from which the misfit, the other parameter fitted at each, is no more than noise
above the least; it may be several. Profiles of likelihoods: Venzon, Moolgavkar (1988); of
M-estimators, whose misfits are scaled as their scores vary: Heritier, Ronchetti (1994).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.deployments.measuring.fitted_laws import (
    CLUSTERS,
    NARROW,
    SHAKEN,
    Fit,
    Law,
    Sent,
    fitted,
    pulls,
    slopes,
    weights,
)
from desim.numerics.later import optimize, special

LEVEL = 0.95
STEP = 1.08  # from one rate that is tried to the next
DEPTH, TRIED = 20.0, 22  # how far below what a message takes latencies are tried, and how many
FLAT = 0.01  # of the quickest message: a rate at which the largest takes less is as good as none
NO_RATE = 1e15  # bit/s: no rate at all
SEVERAL = 3  # minima along the latency that are followed, at each rate
FINER, NEAR = 8, 0.03  # rates between two that were tried; logarithms of latencies around
HOPELESS = 0.4  # of logarithms: how much worse than the best pair what is followed may be
POLISHED = 8  # of the minima: how many are looked at closely
GOLDEN = 0.6180339887498949
NARROWED = 9  # times a minimum along the latency is
MESSAGES_OF_A_KIND = 20  # messages of a kind of lines by which minima are looked for
NEARLY, NOTHING = 1e-4, 1e-9  # residuals: of what may be exact, and what is
CLOSE = 1e-3  # of logarithms: pairs that are one
ALIKE = 2.0  # times the mean deviation of the best pair up to which others are compared with it
SIZES = [a * 10.0**k for k in range(3, 7) for a in (1, 2, 5)] + [1e7]  # bytes of what might tell
EFFICIENT = 0.37  # of a median of sizes beside a root of squares, for the scale of normal residuals
MEAN_STIFF, MEAN_SQUARE = 0.34509, 0.14045  # of the loss of normal residuals: curvature, slope^2
FLOORED = 0.1  # of a deviation: residuals that are less than their floor are not noise
LEVEL_STEP = 2.0  # standard errors, where an interval ends if the misfit is a parabola
HALVED = 6  # times an end of an interval is
AT_ONCE = 64  # pairs: few, since a first call may be played before its kernel is compiled
LEVELS, ACROSS, SHRUNK = 5, 9, 4.0  # of zooming in on a minimum: how often, rates each, by which
FARTHEST = 7.0  # of logarithms: what is farther off than a thousandfold is not bounded

Interval = tuple[float, float]


@dataclass(frozen=True)
class Profile:
    """Pairs of latency s and rate bit/s that fit, the best first, and sets of intervals of each.

    A rate that is not bounded from above is inf there, a latency from below 0. corners: pairs at
    the ends of the intervals of rates.
    """

    pairs: tuple[Fit, ...]
    latencies: tuple[Interval, ...]
    rates: tuple[Interval, ...]
    corners: tuple[Array, ...] = ()

    @property
    def best(self) -> Fit:
        """The pair that fits best."""
        return self.pairs[0]


@dataclass(frozen=True)
class Measured:
    """Messages that were sent, (n,), the seconds that they took, and a law that may explain them.

    floor: relative error that is not less for more messages, of the law and of clocks.
    """

    law: Law
    sent: Sent
    seconds: Array
    floor: float

    def model(self, at: Array) -> Array:
        """Seconds (n,) by a latency and a rate."""
        return self.law.seconds(float(at[0]), float(at[1]), self.sent)

    def jittered(self, at: Array) -> Array:
        """The same where the messages' latencies are longer by `SHAKEN`."""
        return self.law.seconds(float(at[0]), float(at[1]), self.sent, 1.0 + SHAKEN)

    def fit(self, start: Array) -> Fit:
        """The pair near `start` that fits best."""
        return fitted(
            self.model, self.seconds, start, self.sent.line, quantile=self.law.quantile,
            jittered=self.jittered,
        )  # fmt: skip

    @cached_property
    def thin(self) -> "Measured":
        """The same for a few lines of each kind, which is how many messages of which sizes."""
        line, bits = self.sent.line, self.sent.bits
        chosen, seen = np.zeros(len(line), bool), dict[tuple[int, float], int]()
        for one in np.unique(line):
            own = line == one
            kind = int(own.sum()), float(bits[own].sum())
            if seen.get(kind, 0) < MESSAGES_OF_A_KIND:
                seen[kind] = seen.get(kind, 0) + kind[0]
                chosen |= own
        _, place = np.unique(line[chosen], return_inverse=True)
        sent = Sent(self.sent.begin[chosen], bits[chosen], place.astype(np.int64))
        return Measured(self.law, sent, self.seconds[chosen], self.floor)

    def mean(self, at: Array) -> float:
        """Mean |log(law / measured)| of one pair."""
        return float(self.off(at[:1], at[1:])[0])

    def off(self, latencies: Array, rates: Array) -> Array:
        """Mean |log(law / measured)| (k,) of k pairs."""
        found = np.empty(len(latencies))
        for first in range(0, len(found), AT_ONCE):
            some = slice(first, first + AT_ONCE)
            law = self.law.seconds(latencies[some], rates[some], self.sent)
            away = np.log(np.maximum(law, 1e-12) / self.seconds)
            found[some] = np.abs(away).mean(axis=1)
        return found


def starts(few: Measured) -> list[Array]:
    """Minima of the mean deviation over latency and rate, the least first."""
    bits, seconds = few.sent.bits, few.seconds
    lowest = 0.7 * float(np.quantile(bits / seconds, 0.9))
    highest = max(float(bits.max()) / (FLAT * float(seconds.min())), 2.0 * lowest)
    rates = lowest * STEP ** np.arange(int(np.log(highest / lowest) / np.log(STEP)) + 2)
    small = bits == bits.min()
    rest = np.median(seconds[small]) - bits.min() / rates
    tops = 1.2 * np.maximum(rest, 0.05 * seconds[small].min())
    grid = tops[:, None] * DEPTH ** -np.linspace(0.0, 1.0, TRIED)
    found = few.off(grid.ravel(), np.repeat(rates, TRIED)).reshape(grid.shape)
    edged = np.pad(found, ((0, 0), (1, 1)), constant_values=np.inf)
    low = (found <= edged[:, :-2]) & (found <= edged[:, 2:])
    low &= found <= found.min() + HOPELESS
    low &= found <= np.sort(np.where(low, found, np.inf), axis=1)[:, [SEVERAL - 1]]
    which, place = np.nonzero(low)
    width = float(np.log(DEPTH)) / (TRIED - 1)
    middle = np.log(grid[which, place])
    latencies, costs = _golden(few, middle - width, middle + width, np.asarray(rates[which]))
    return _between(few, np.exp(latencies), which, costs, lowest)


def _between(
    few: Measured, latencies: Array, which: Any, costs: Array, lowest: float
) -> list[Array]:
    """The minima among rates between those that were tried and are good, each zoomed in on.

    which (k,): powers of `STEP` times the lowest rate.
    """
    good = costs <= ALIKE * costs.min() + NEAR
    power = which[good][:, None] * FINER + np.arange(-FINER // 2, FINER - FINER // 2)
    rates = lowest * STEP ** (power / FINER)
    places = latencies[good][:, None], lowest * STEP ** which[good][:, None]
    found, off = _golden(few, *_along(few, *places, rates, NEAR), rates.ravel(), NARROWED + 6)
    power, minima = power.ravel(), []
    for k in np.argsort(off, kind="stable"):
        near = (np.abs(power - power[k]) == 1) & (np.abs(found - found[k]) < NEAR / 2.0)
        if not (off[near] < off[k]).any():
            minima.append(k)
    some = np.array(minima[:POLISHED])
    width = float(np.log(STEP)) / FINER
    return _zoomed(few, np.exp(found[some]), rates.ravel()[some], off[some], width)


def _along(
    few: Measured, latencies: Array, rates: Array, tried: Array, width: float
) -> tuple[Array, Array]:
    """Between which logarithms (k * l,) latencies are best at rates tried (k, l).

    latencies, rates (k, 1): pairs, from which latencies do not move by more than keeps the time of
    a small message that meets each once; width: of what is around.
    """
    small = float(few.sent.bits.min())
    there = np.log(np.maximum(latencies + small / rates - small / tried, 0.1 * latencies)).ravel()
    here = np.log(latencies + 0.0 * tried).ravel()
    return np.minimum(here, there) - width, np.maximum(here, there) + width


def _zoomed(
    few: Measured, latencies: Array, rates: Array, costs: Array, width: float
) -> list[Array]:
    """Each minimum, looked for closer and closer: rates around, and the best latency at each."""
    k = np.arange(len(rates))
    for _ in range(LEVELS):
        tried = rates[:, None] * np.exp(width * np.linspace(-1.0, 1.0, ACROSS))
        ends = _along(few, latencies[:, None], rates[:, None], tried, width)
        found, off = _golden(few, *ends, tried.ravel(), NARROWED + 2)
        best = off.reshape(tried.shape).argmin(axis=1)
        better = off.reshape(tried.shape)[k, best] < costs
        costs = np.where(better, off.reshape(tried.shape)[k, best], costs)
        latencies = np.where(better, np.exp(found.reshape(tried.shape)[k, best]), latencies)
        rates = np.where(better, tried[k, best], rates)
        width /= SHRUNK
        good = costs <= ALIKE * costs.min() + width
        latencies, rates, costs, k = latencies[good], rates[good], costs[good], k[: good.sum()]
    return [np.array([latencies[one], rates[one]]) for one in np.argsort(costs, kind="stable")]


def _golden(
    few: Measured, low: Array, high: Array, rates: Array, times: int = NARROWED
) -> tuple[Array, Array]:
    """Minima (k,) between logarithms of latencies, by golden sections, and the deviations there."""
    first, second = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    one, other = few.off(np.exp(first), rates), few.off(np.exp(second), rates)
    for _ in range(times):
        left = one <= other
        low, high = np.where(left, low, first), np.where(left, second, high)
        ahead = np.where(left, high - GOLDEN * (high - low), low + GOLDEN * (high - low))
        new = few.off(np.exp(ahead), rates)
        first, second = np.where(left, ahead, second), np.where(left, first, ahead)
        one, other = np.where(left, new, other), np.where(left, one, new)
    return np.where(one <= other, first, second), np.minimum(one, other)


def pairs_of(all_: Measured, begin: Sequence[Array]) -> list[Fit]:
    """The pairs that fit messages, found near those in `begin` first by a few, the best first."""
    few = all_.thin
    near: list[tuple[float, Array]] = []
    for start in begin:
        values = min((few.fit(start).values, start), key=few.mean)
        apart = [np.abs(np.log(values / one)).max() for _, one in near]
        if min(apart, default=np.inf) > CLOSE:
            near.append((few.mean(values), values))
    near.sort(key=lambda one: one[0])
    good = [one for off, one in near if off <= ALIKE * near[0][0] + few.floor]
    fits = [_exact(all_, all_.fit(one)) for one in good]
    misfits = [float(np.mean(np.abs(one.residuals))) for one in fits]
    return [fits[k] for k in np.argsort(misfits, kind="stable")]


def _exact(all_: Measured, fit: Fit) -> Fit:
    """The same fit, or the one that leaves nothing, which may be beside a step of the law."""
    off = float(np.mean(np.abs(fit.residuals)))
    if fit.left > NEARLY or off < NOTHING:
        return fit
    latency, rate = fit.values[:1], fit.values[1:]
    near = _zoomed(all_, latency, rate, np.array([off]), 30.0 * max(off, NEARLY))[0]
    return min(fit, all_.fit(near), key=lambda one: float(np.abs(one.residuals).mean()))


class Misfit:
    """How badly pairs fit, in units of noise, whose size is that of the best pair's residuals."""

    def __init__(self, all_: Measured, best: Fit) -> None:
        self.all_, self.best = all_, best
        self.scale = np.maximum(best.scale, 2.0 * all_.floor)
        self.measured = np.log(all_.seconds)
        self.slopes = slopes(self.law, np.log(best.values)) / self.scale[:, None]
        self.bread, self.filling = self._sandwich()
        self.spread = self._spread()

    def law(self, at: Array) -> Array:
        """Logarithms (n,) of what the messages take, by those of a pair."""
        return np.asarray(np.log(np.maximum(self.all_.model(np.exp(at)), 1e-12)))

    def __call__(self, at: Array) -> float:
        """Of logarithms of a pair."""
        away = self.law(at) - self.measured
        u = away * weights(away, self.all_.law.quantile) / self.scale
        return float(np.sum(NARROW**2 * (np.sqrt(1.0 + (u / NARROW) ** 2) - 1.0)))

    def _sandwich(self) -> tuple[Array, Array]:
        """Curvature of the misfit, and the variance of its slope: messages' or lines', and floor's.

        The floor is one error for all messages of one size.
        """
        u = self.best.residuals / self.scale
        pull, stiff = pulls(u)
        bread = (self.slopes * stiff[:, None]).T @ self.slopes
        scores, line = self.slopes * pull[:, None], self.all_.sent.line
        names = np.unique(line)
        self.free = max(int(EFFICIENT * len(u)) - 1, 1)
        if len(names) >= CLUSTERS:
            scores = np.stack([scores[line == one].sum(axis=0) for one in names])
            scores = scores * np.sqrt(len(names) / (len(names) - 1.0))
            self.free = len(names) - 1
        else:  # a residual is less than what it is of, by its message's pull on the fit (HC3)
            turn = np.linalg.pinv(bread)
            held = np.einsum("ni,ij,nj->n", self.slopes, turn, self.slopes) * stiff
            scores = scores / np.maximum(1.0 - held, 0.5)[:, None]
        shares = self.slopes * (stiff * self.all_.floor / self.scale)[:, None]
        bits = self.all_.sent.bits
        floor = np.stack([shares[bits == one].sum(axis=0) for one in np.unique(bits)])
        return bread, scores.T @ scores + floor.T @ floor

    def _spread(self) -> Array:
        """Variances of both logarithms where the misfit is a parabola; inf where it is flat."""
        try:
            self._inverse = inverse = np.linalg.inv(self.bread)
        except np.linalg.LinAlgError:
            return np.full(2, np.inf)
        found = np.diag(inverse @ self.filling @ inverse)
        if np.median(np.abs(self.best.residuals / self.scale)) < FLOORED:
            return np.asarray(found)
        usual = np.diag(np.linalg.pinv(self.slopes.T @ self.slopes)) * MEAN_SQUARE / MEAN_STIFF**2
        return np.asarray(np.maximum(found, usual))

    def cut(self, which: int) -> float:
        """How much above the least misfit a parameter's interval reaches."""
        reach = float(special.stdtrit(self.free, 0.5 + LEVEL / 2.0))
        if not np.isfinite(self.spread[which]) or not self._inverse[which, which] > 0.0:
            ratio = float(np.trace(self.filling) / max(np.trace(self.bread), 1e-300))
        else:
            ratio = float(self.spread[which] / self._inverse[which, which])
        return 0.5 * reach**2 * ratio


class Along:
    """The misfit by one parameter's logarithm, the other one fitted, from a pair on."""

    def __init__(self, misfit: Misfit, which: int, begin: Fit) -> None:
        self.misfit, self.which, self.other = misfit, which, 1 - which
        self.last = np.log(begin.values)
        stiff = float(misfit.bread[self.other, self.other])
        self.ridge = -float(misfit.bread[0, 1]) / stiff if stiff > 0.0 else 0.0
        self.width = min(4.0 * stiff**-0.5, 0.2) if stiff > 0.0 else 0.2

    def __call__(self, value: float) -> float:
        """The misfit; `last` is then the pair's logarithms."""
        at = self.last.copy()
        step = self.ridge * (value - at[self.which])
        at[self.which] = value
        if self.misfit.all_.law.lossy:  # what most messages take is the latency alone
            self.last = at
            return self.misfit(at)
        middle, wide = at[self.other] + step, self.width + 1.5 * abs(step)

        def along(there: float) -> float:
            at[self.other] = there
            return self.misfit(at)

        found = optimize.minimize_scalar(
            along, bounds=(middle - wide, middle + wide), method="bounded",
            options={"xatol": 3e-3 * wide, "maxiter": 20},
        )  # fmt: skip
        at[self.other] = found.x
        self.last = at
        return float(found.fun)


def interval(misfit: Misfit, which: int, begin: Fit, least: float) -> tuple[Interval, list[Array]]:
    """The values of a parameter around a pair's that noise allows; 0 or inf: not bounded there.

    And the pairs (2,) at its ends.
    """
    middle, cut = float(np.log(begin.values[which])), least + misfit.cut(which)
    first = LEVEL_STEP * float(np.sqrt(misfit.spread[which]))
    first = min(max(first, 1e-9), 0.3) if np.isfinite(first) else 0.3
    ends, corners = [], []
    for side in (-1.0, 1.0):
        along = Along(misfit, which, begin)
        inside, outside = 0.0, first
        while outside < FARTHEST and along(middle + side * outside) <= cut:
            inside, outside = outside, 2.0 * outside
        corners.append(np.exp(along.last))
        if outside >= FARTHEST:
            ends.append(np.inf if side > 0.0 else 0.0)
            continue
        for _ in range(HALVED):
            half = 0.5 * (inside + outside)
            if along(middle + side * half) <= cut:
                inside = half
            else:
                outside = half
        wide = outside + 2.0 * misfit.all_.floor  # beside a step of the law the misfit is too steep
        ends.append(float(np.exp(middle + side * wide)))
        corners[-1] = np.exp(along.last)
    return (ends[0], ends[1]), corners


def united(several: Sequence[Interval]) -> tuple[Interval, ...]:
    """Intervals of which none touches another."""
    found: list[Interval] = []
    for low, high in sorted(several):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], high)
        else:
            found.append((low, high))
    return tuple(found)


def profiled(all_: Measured, pairs: Sequence[Fit]) -> Profile:
    """The pairs, the best first, that fit as well as noise allows, and intervals of both."""
    off = np.abs(pairs[0].residuals)
    if pairs[0].left <= NEARLY and off.mean() > NOTHING:  # no noise is that small: the law's steps
        all_ = replace(all_, floor=max(all_.floor, float(off.max())))
    misfit = Misfit(all_, pairs[0])
    values = [misfit(np.log(one.values)) for one in pairs]
    least = min(values)
    good = [one for one, value in zip(pairs, values, strict=True)
            if value - least <= misfit.cut(1)]  # fmt: skip
    good = good or [pairs[0]]
    apart: list[Fit] = []
    found: tuple[list[Interval], list[Interval]] = [], []
    corners: list[Array] = []
    for one in good:
        inside = [
            any(low <= value <= high for low, high in some)
            for value, some in zip(one.values, found, strict=True)
        ]
        if all(inside):
            continue
        apart.append(one)
        found[0].append(interval(misfit, 0, one, least)[0])
        reach, ends = interval(misfit, 1, one, least)
        found[1].append(reach)
        corners += ends
    return Profile(tuple(apart), united(found[0]), united(found[1]), tuple(corners))


def telling(law: Law, pairs: Sequence[Array], least: float) -> "Telling | None":
    """The smallest message that tells pairs of latency and rate apart by a share `least`, if any.

    After a pause, and right after another one of its size, which finds a window that is wider.
    """
    sizes = np.array(SIZES)
    line = np.arange(len(sizes))
    found = np.empty((len(pairs), 2, len(sizes)))
    for place, (latency, rate) in enumerate(pairs):
        alone = Sent(np.zeros(len(sizes)), 8.0 * sizes, line)
        found[place, 0] = law.seconds(float(latency), float(rate), alone)
        begin = np.concatenate([alone.begin, found[place, 0] * (1.0 + 1e-9)])
        twice = Sent(begin, np.tile(alone.bits, 2), np.tile(line, 2))
        found[place, 1] = law.seconds(float(latency), float(rate), twice)[len(sizes) :]
    low, high = found.min(axis=0), found.max(axis=0)
    apart = np.argwhere((high > (1.0 + least) * low).T)
    if not len(apart):
        return None
    size, state = apart[0]
    words = ("after a pause", "right after another")[state]
    return Telling(int(sizes[size]), words, (float(low[state, size]), float(high[state, size])))


@dataclass(frozen=True)
class Telling:
    """A message that tells pairs apart: bytes, when it is sent, and what it takes by these, s."""

    size: int
    state: str
    seconds: Interval
