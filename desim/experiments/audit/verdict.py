"""The claims that an audit tests, and its verdict on each: `refuted` or `not refuted`, no more.

The scores of runs on data D (`old`) and on its neighbour D' (`new`) are compared by events that one
share of the runs chooses and the other certifies, so that the bounds hold at their level whatever
the score is. All are one-sided: they can contradict a claim and never confirm it.

A claim is tested as it is stated: (epsilon, delta) by events and, where the score is the exact
likelihood ratio, by the hockey-stick divergence; mu-GDP and rho-zCDP by an event of their own,
which takes far fewer runs, and, where the ratio is exact, by its mean, which takes fewer still and
needs no share of the runs to choose an event. Where ratios are infinite, by how often they are. The
tests of a claim share its level: the mean has half of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from scipy.special import betaincinv, ndtr, ndtri, xlogy

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.papers.theorems import claim_of

# Lower bounds on a privacy loss from two samples of scores.
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


# A claim against its lower bounds.
SELECTION = 0.3  # share of the runs that chooses the event
GRID = 60


@dataclass(frozen=True)
class Claim:
    """A privacy claim for one agent, and where it comes from.

    mu, rho: the claim also says mu-GDP, rho-zCDP; None where it says (epsilon, delta)-DP only.
    """

    name: str
    epsilon: float
    delta: float
    mu: float | None = None
    rho: float | None = None
    about: str = ""

    def misses(self, false_alarms: Array) -> Array:
        """Least share of misses (n,) that the claim leaves at these shares of false alarms (n,).

        The best of what its parameters say: (epsilon, delta) (Wasserman, Zhou 2010), mu-GDP (Dong,
        Roth, Su 2022), and rho-zCDP by the Renyi divergence of the two-valued outcome.
        """
        a = np.asarray(false_alarms, float)
        with np.errstate(over="ignore"):
            rate = np.exp(self.epsilon)
            misses = np.maximum(1.0 - self.delta - rate * a, (1.0 - self.delta - a) / rate)
        misses = np.maximum(misses, 0.0)
        if self.mu is not None:
            misses = np.maximum(misses, ndtr(ndtri(1.0 - a) - self.mu))
        if self.rho is not None:
            low, high = a.copy(), np.ones_like(a)
            for _ in range(60):  # bisection: more detection needs a larger rho
                middle = 0.5 * (low + high)
                allowed = Certified(middle, a).rho <= self.rho
                low, high = np.where(allowed, middle, low), np.where(allowed, high, middle)
            misses = np.maximum(misses, 1.0 - low)
        return np.asarray(misses)


@dataclass(frozen=True)
class Comparison:
    """One parameter of a claim against its lower bound; the event that gave it, if one did."""

    parameter: str
    method: str
    claimed: float
    low: float
    event: Event | None = None
    certified: Certified | None = None

    @property
    def refutes(self) -> bool:
        """Whether the mechanism exceeds what is claimed."""
        return self.low > self.claimed


@dataclass(frozen=True)
class Finding:
    """What the runs say about one claim; false alarms have probability `level` at most."""

    claim: Claim
    level: float
    tests: tuple[Comparison, ...]

    @property
    def verdict(self) -> Literal["refuted", "not refuted"]:
        """`refuted` if any test contradicts the claim; an audit cannot verify."""
        return "refuted" if any(test.refutes for test in self.tests) else "not refuted"

    @property
    def epsilon_low(self) -> float:
        """The largest lower bound of epsilon at the claim's delta."""
        return max(test.low for test in self.tests if test.parameter == "epsilon")


def judge(
    claim: Claim, old: Array, new: Array, *, exact: bool, level: float = 0.01, ratio: bool = False
) -> Finding:
    """Test `claim` on scores of runs on D (`old`) and on D' (`new`), rounded already.

    exact: the scores are log-likelihood ratios of all that the view shows; ratio: those that are
    infinite are, whether the others are exact or not.
    """
    strengths: dict[str, tuple[float, Callable[[Certified], Array]]] = {
        "epsilon": (claim.epsilon, lambda shown: shown.epsilon(claim.delta))
    }
    if claim.mu is not None:
        strengths["mu"] = claim.mu, lambda shown: shown.mu
    if claim.rho is not None:
        strengths["rho"] = claim.rho, lambda shown: shown.rho
    rest = level / 2 if exact and len(strengths) > 1 else level
    certainly = exact or ratio
    share = rest / (len(strengths) + exact + certainly)
    tests = _events(strengths, _known(old), _known(new), share)
    if exact:
        tests += _means(claim, old, new, level / 2)
        top = 2.0 * claim.epsilon if 0.5 < claim.epsilon < np.inf else 30.0
        grid = np.linspace(0.0, top, GRID)
        low, _ = hockey_stick(_known(old), _known(new), claim.delta, share, grid)
        tests.append(Comparison("epsilon", "hockey-stick", claim.epsilon, low))
    if certainly and certain(old, new, share) > claim.delta:
        tests.append(Comparison("epsilon", "infinite ratio", claim.epsilon, np.inf))
    return Finding(claim, level, tuple(tests))


def _events(strengths: Any, old: Array, new: Array, level: float) -> list[Comparison]:
    """The test of each parameter by an event, at `level` each."""
    first, second, tests = _shares(old), _shares(new), []
    for parameter, (claimed, strength) in strengths.items():
        event = best_event(first[0], second[0], strength, level / 2)
        shown = certify(event, first[1], second[1], level)
        low = float(strength(shown))
        tests.append(Comparison(parameter, "event", claimed, low, event, shown))
    return tests


def _means(claim: Claim, old: Array, new: Array, level: float) -> list[Comparison]:
    """The test of mu or rho by the mean ratio; mu-GDP is mu^2/2-zCDP. One bound serves both."""
    low = rho_low(old, new, level)
    known = (("mu", claim.mu, float(np.sqrt(2.0 * low))), ("rho", claim.rho, low))
    return [
        Comparison(name, "mean ratio", claimed, found)
        for name, claimed, found in known
        if claimed is not None
    ]


def _known(scores: Array) -> Array:
    """The scores, 0 in place of what is no number: a score like any other."""
    return np.where(np.isnan(scores), 0.0, scores)


def _shares(scores: Array) -> tuple[Array, Array]:
    """The runs that choose the event, and those that certify it."""
    cut = int(np.ceil(SELECTION * len(scores)))
    return scores[:cut], scores[cut:]


# Claims that can be tested: the rigorous epsilon of the releases, the paper's, or a given one.
RELATION = "replace-one"  # of every pair that is played
CURVES = ("fed-plt/adp", "zcdp-nfl/corollary")  # epsilons that state rho-zCDP, or an RDP line


@dataclass(frozen=True)
class AuditedPlay:
    """One play of the simulation whose claims are tested: its tables, and for whom they are made.

    claims are about `agent`, at `delta`, for `view`, under `relation`; secret: whether who takes
    part in a sum is drawn anew in every run.
    """

    simulation: Simulation
    releases: pd.DataFrame
    events: pd.DataFrame
    agent: int
    view: str
    delta: float
    relation: str = RELATION
    secret: bool = False

    @property
    def agent_releases(self) -> pd.DataFrame:
        """The releases of the agent."""
        return self.releases[self.releases["agent"] == self.agent]

    @property
    def sampled(self) -> bool:
        """Whether some of the agent's releases are of batches."""
        return bool((self.agent_releases["sampling"] < 1.0).any())


def claims_of(names: Sequence[str | float], audited: AuditedPlay) -> tuple[list[Claim], list[str]]:
    """The claims of these names that can be tested, and why the others cannot."""
    known = {"rigorous": rigorous, "paper": paper}
    every = [
        known[name](audited)
        if isinstance(name, str) and name in known
        else Claim("given", float(name), audited.delta, about="as it was given")
        for name in names
    ]
    claims = [one for one in every if isinstance(one, Claim)]
    return claims, [one for one in every if isinstance(one, str)]


def rigorous(audited: AuditedPlay) -> Claim:
    """What desim says of the releases, known batches included; mu too where it is exact."""
    replay = account(
        audited.releases,
        rows=audited.simulation.problem.rows,
        delta=audited.delta,
        view=audited.view,
        relation=audited.relation,
        events=audited.events,
        amplification=audited.secret,
    )
    epsilon = float(replay.final[audited.agent])
    exact = replay.method == "exact GDP" and np.isfinite(epsilon)
    about = "; ".join([replay.method, *replay.flags])
    mu = mu_of(epsilon, audited.delta) if exact else None
    return Claim("rigorous", epsilon, audited.delta, mu=mu, about=about)


def paper(audited: AuditedPlay) -> Claim | str:
    """What the method's paper says, zCDP too where its epsilon comes from that; or why not."""
    if audited.simulation.settings.trust is not None:
        return "the paper's claim is about agents that add noise, not about a trusted coordinator"
    method = audited.simulation.method
    if (inputs := method.claimed()) is None:
        return "the paper claims nothing about this method and noise"
    said = claim_of(inputs, audited.releases, audited.delta, method.bounds)
    bound = said.bound
    if audited.sampled:
        return f"{bound.theorem} counts on secret batches, which the game does not draw anew"
    epsilon = float(said.epsilon[audited.agent])
    about = [f"{bound.paper}, {bound.theorem}: {said.method}"]
    if not bound.covers(audited.view):
        about.append(f"covers {bound.view}, not this view")
    about += [f"needs what this run does not meet: {text}" for text in said.unmet]
    curve = np.isfinite(epsilon) and bound.name in CURVES
    rho = zcdp_of(epsilon, audited.delta) if curve else None
    return Claim("paper", epsilon, audited.delta, rho=rho, about="; ".join(about))


def zcdp_of(epsilon: float, delta: float) -> float:
    """The rho whose epsilon is rho + 2 sqrt(rho ln(1/delta)) (Bun, Steinke 2016, Prop. 1.3)."""
    odds = np.log(1.0 / delta)
    return float((np.sqrt(odds + epsilon) - np.sqrt(odds)) ** 2)
