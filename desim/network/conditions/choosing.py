"""Whom a coordinator invites who remembers: choices by what it has seen, among them TiFL and Oort.

Replies and their times are seen by whoever coordinates; losses are seen only because agents send
them, which is a release. No choice reads rows, and none is a uniform secret draw: a subset that is
chosen so amplifies no privacy.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.numerics import keys
from desim.numerics.keys import Stream

# What is seen, and simple choices.
STEP = 1 << 21  # of draws that no other participation and no matching makes
TIES, CANDIDATES, TIER = STEP, STEP + 1, STEP + 2


def least(numbers: Array, count: int) -> Int:
    """Places of so many of the numbers (n,), the least ones, of two alike the earlier."""
    if count >= len(numbers):
        return np.arange(len(numbers))
    if count < 1:
        return np.empty(0, np.int64)
    bar = np.partition(numbers, count - 1)[count - 1]
    below, alike = np.flatnonzero(numbers < bar), np.flatnonzero(numbers == bar)
    return np.concatenate([below, alike[: count - len(below)]])


def quantile(numbers: Array, share: float) -> float:
    """The quantile of numbers (n,) as np.quantile has it, in a fifth of its time."""
    place = share * (len(numbers) - 1)
    below, above = int(place), min(int(place) + 1, len(numbers) - 1)
    low, high = np.partition(numbers, (below, above))[[below, above]].tolist()
    part = place - below
    return float(high - (high - low) * (1.0 - part) if part >= 0.5 else low + (high - low) * part)


@dataclass(frozen=True)
class Losses:
    """What each reply says of its agent's losses: their mean, or (power 2) that of their squares.

    clip: each row's loss is cut to [0, clip], None: to nothing; sigma: the standard deviation of
    the noise on the mean.
    """

    power: Literal[1, 2]
    clip: float | None = None
    sigma: float = 0.0


@dataclass
class Seen:
    """What a coordinator has seen of its agents, arrays (agents,), when it invites.

    took: s from the latest call to its reply, at least as long as it was waited for; heard: the
    round in which the latest reply was taken in, 0 for none; picks: how often each was invited;
    loss: what the latest reply said of the agent's losses, nan for none; rows: how many it has;
    own: what the chooser itself remembers, by name.
    """

    took: Array
    heard: Int
    picks: Int
    loss: Array
    rows: Int
    own: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Chooser:
    """`count` agents a round, chosen of those that are free: they owe nothing, and are not retired.

    available: of those that are up, too; losses: what replies say of them, None for nothing;
    separation: rounds between two contributions of an agent at least.
    """

    agents: int
    count: int
    seed: int
    available: bool = False
    losses: Losses | None = None
    separation: int = 1
    uniform: ClassVar[bool] = False  # cohorts are no uniform draw
    remembers: ClassVar[bool] = True

    @property
    def least(self) -> float:
        """The size of a cohort, where so many agents are free."""
        return self.count

    def draw(self, round_: int) -> Int:
        """Whom it may choose from, ascending: all."""
        return np.arange(self.agents)

    def start(self) -> dict[str, NDArray[Any]]:
        """What it remembers before the first round, by name."""
        return {}

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents (n,) of the free ones, in any order; asked once a round."""
        raise NotImplementedError

    def learnt(self, round_: int, who: Int, seen: Seen) -> None:
        """Replies of agents who (n,) have been taken in and noted in `seen`."""

    def lots(self, round_: int, who: Int, step: int, weight: Array | None = None) -> Array:
        """Numbers (n,) whose order is random; weight (n,): the first k are a draw by weight.

        Successive draws without replacement in proportion to the weights (Efraimidis, Spirakis
        2006): exponential draws over weights, the smallest first.
        """
        place = {"agent": who, "round": round_, "step": step}
        drawn: Array = keys.exponentials(self.seed, Stream.PARTICIPATION, **place)[:, 0]
        return drawn if weight is None else drawn / weight

    def first(self, round_: int, free: Int, rank: Array | None = None) -> Int:
        """Those `count` of the free agents whose ranks (n,) are least; ties are broken by lot."""
        sure, alike = free[:0], free
        if rank is not None and 0 < self.count < len(free):
            bar = np.partition(rank, self.count - 1)[self.count - 1]
            sure, alike = free[rank < bar], free[rank == bar]
        lacking = self.count - len(sure)
        if lacking < len(alike):
            alike = alike[least(self.lots(round_, alike, TIES), lacking)]
        return np.concatenate([sure, alike])


class Fastest(Chooser):
    """The least time to the latest reply first; whoever was never invited comes before."""

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by time s, those never invited at -1."""
        return self.first(round_, free, np.where(seen.picks[free] > 0, seen.took[free], -1.0))


class Oldest(Chooser):
    """The greatest age first: rounds since an agent was heard.

    Yang, Arafa, Quek, Poor 2020, "Age-based scheduling policy for federated learning in mobile edge
    networks" (ICASSP, arXiv 1910.14648), where all links are alike. Who is never in time stays old.
    """

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by the round in which they were heard."""
        return self.first(round_, free, seen.heard[free].astype(float))


class RoundRobin(Chooser):
    """In turn, by number; whoever is not free when its turn comes misses it."""

    def start(self) -> dict[str, NDArray[Any]]:
        """Whose turn is next."""
        return {"next": np.zeros(1, np.int64)}

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents from the one on whose turn it is."""
        chosen = free[np.argsort((free - seen.own["next"]) % self.agents)[: self.count]]
        if len(chosen):
            seen.own["next"][0] = (chosen[-1] + 1) % self.agents
        return chosen


class Available(Chooser):
    """Uniformly of those that are free, and up where that is asked."""

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents by lot."""
        return self.first(round_, free)


@dataclass(frozen=True)
class PowerOfChoice(Chooser):
    """Of `candidates` drawn by their shares of the rows, those with the greatest losses.

    Cho, Wang, Joshi 2020, "Client selection in federated learning: convergence analysis and
    power-of-choice selection strategies" (arXiv 2010.01243), Section 3, variant rpow-d: losses are
    those of the latest replies, infinite before the first one. There they are means over local
    training; here over the agent's rows, at its model x: with FedAvg and its like the model that it
    was sent, before it trained, with others the one that it trained.
    """

    candidates: int = 1

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Candidates by loss, ties by lot."""
        if len(free) <= self.count:
            return free
        drawn = self.lots(round_, free, CANDIDATES, seen.rows[free] / seen.rows.sum())
        some = free[least(drawn, self.candidates)]
        loss = seen.loss[some]
        return self.first(round_, some, -np.where(np.isnan(loss), np.inf, loss))


# TiFL: agents in tiers by how long they take, and in each round agents of one tier. Chai, Ali,
# Zawad, Truex, Anwar, Baracaldo, Zhou, Ludwig, Yan, Cheng 2020, "TiFL: a tier-based federated
# learning system" (HPDC, arXiv 2001.09249), Algorithm 2. Its adaptive form asks for the accuracy of
# each tier on test rows of that tier, which agents would have to give away; here the mean of the
# losses that came with the latest replies stands for it. Agents that profiling does not hear are
# dropouts there; here they are the last of the slowest tier.
SAME = 1e-9  # of a loss: a smaller difference is one of rounding


@dataclass(frozen=True)
class Tiers(Chooser):
    """Some agents of one tier, drawn each round; tiers are told apart by reply times: TiFL.

    `tiers` of equally many agents, profiled in the first `profile` rounds, which invite all.

    probabilities (tiers,): of drawing each, fastest first, None: all alike; credits (tiers,): how
    often each may be drawn, None for no end; interval: rounds after which the adaptive form looks
    at losses.
    """

    tiers: int = 2
    profile: int = 1
    probabilities: tuple[float, ...] | None = None
    credits: tuple[int, ...] | None = None
    interval: int | None = None

    def start(self) -> dict[str, NDArray[Any]]:
        """Each agent's tier (-1 before profiling), what is left, and the losses of an interval."""
        left = np.full(self.tiers, -1) if self.credits is None else np.array(self.credits)
        return {
            "tier": np.full(self.agents, -1),
            "credits": left,
            "probabilities": np.array(self.probabilities or (1.0 / self.tiers,) * self.tiers),
            "before": np.full(self.tiers, np.nan),
            "current": np.zeros(1, np.int64),
        }

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """Agents of one tier by lot; all while they are profiled."""
        if round_ <= self.profile or not len(free):
            return free
        own = seen.own
        if own["tier"][0] < 0:
            order = np.lexsort((np.arange(self.agents), seen.took, seen.heard == 0))
            for number, members in enumerate(np.array_split(order, self.tiers)):
                own["tier"][members] = number
        self._look_back(round_ - self.profile, seen)
        current = self._drawn(round_, free, own)
        return self.first(round_, free[own["tier"][free] == current])

    def _drawn(self, round_: int, free: Int, own: dict[str, NDArray[Any]]) -> int:
        """A tier by its probability, of those with credits and free agents; it pays a credit.

        Where none of these is to be drawn, all of them are alike; where none has credits, all with
        free agents.
        """
        there = np.isin(np.arange(self.tiers), own["tier"][free])
        rich = there & (own["credits"] != 0)
        weights = (np.where(rich, own["probabilities"], 0.0), rich * 1.0, there * 1.0)
        weight = next(one for one in weights if one.any())
        u = float(keys.uniforms(self.seed, Stream.PARTICIPATION, round=round_, step=TIER)[0])
        sums = np.cumsum(weight)
        current = int(np.searchsorted(sums, u * sums[-1], side="right"))
        own["current"][0] = current
        own["credits"][current] -= own["credits"][current] > 0
        return current

    def _look_back(self, r: int, seen: Seen) -> None:
        """ChangeProbs, where the latest tier is no better than an interval ago (Algorithm 2)."""
        own = seen.own
        if self.interval is None or (r - 1) % self.interval:
            return
        losses, current = self.losses_of_tiers(seen), own["current"][0]
        if losses[current] >= own["before"][current]:
            rank = ranks_of(losses)
            own["probabilities"][:] = rank / rank.sum()  # the greatest loss has the most
        own["before"][:] = losses

    def losses_of_tiers(self, seen: Seen) -> Array:
        """Mean (tiers,) of what the latest replies of each tier's agents said; -inf for none."""
        known = ~np.isnan(seen.loss)
        tier = np.asarray(seen.own["tier"], np.int64)[known]
        number = np.bincount(tier, minlength=self.tiers)
        total = np.bincount(tier, seen.loss[known], minlength=self.tiers)
        return np.where(number > 0, total / np.maximum(number, 1), -np.inf)


def ranks_of(losses: Array) -> Array:
    """Ranks (n,) of losses (n,), 1 for the least; those equal but for rounding share their mean.

    So tiers that nobody has trained yet, whose losses are those of the start, are drawn alike.
    """
    near = SAME * np.where(np.isfinite(losses), np.abs(losses), 0.0)
    above = (losses[:, None] > losses + near).sum(axis=1)
    below = (losses[:, None] < losses - near).sum(axis=1)
    return np.asarray(0.5 * (1.0 + above + len(losses) - below))


# Oort: agents with much to learn from that are quick, and some that nobody has seen yet. Lai, Zhu,
# Madhyastha, Chowdhury 2021, "Oort: efficient federated learning via guided participant selection"
# (OSDI, arXiv 2010.06081), Algorithm 1 and Section 4. Printed there, the pacer looks back in every
# round; here, as in the authors' program (github.com/SymbioticLab/Oort), once in a window: losses
# fall as a model learns, and looking each round would slacken the pace each round. All else is the
# paper's, where the program has other rules: it slackens the pace where two windows differ by a
# tenth at most, tightens it where by five times, has T as a percentile of durations, and scales
# utilities to [0, 1] before it adds the temporal uncertainty, which is added here as it is, though
# one grows with the rows and the other does not.
EXPLOITED, EXPLORED, REST = STEP + 3, STEP + 4, STEP + 5
FAINT = 1e-9  # share of the greatest utility that the least one counts for in a draw


@dataclass(frozen=True)
class Oort(Chooser):
    """Those with large losses that are quick, and some that were not heard yet: Oort.

    alpha: of the straggler penalty; exploration, with its decay and least: epsilon, how it falls.

    cutoff: share c of the cut-off utility that admits; quantile: of the utilities, at which they
    are cut; window: W rounds; pace: step of T in s, None: such that T covers W K agents more;
    explore: unseen agents by speed (agents,) or at random; most: picks after which an agent is no
    longer exploited, None for none.
    """

    alpha: float = 2.0
    exploration: float = 0.9
    exploration_decay: float = 0.98
    exploration_least: float = 0.2
    cutoff: float = 0.95
    quantile: float = 0.95
    window: int = 20
    pace: float | None = None
    explore: Literal["speed", "random"] = "speed"
    most: int | None = None
    speed: Array | None = None

    def start(self) -> dict[str, NDArray[Any]]:
        """Steps of the pacer, and the utility of each of the latest 2 W rounds."""
        return {"steps": np.ones(1, np.int64), "achieved": np.zeros(2 * self.window)}

    def epsilon(self, round_: int) -> float:
        """Share of explorers: decayed once a round while it is above the least."""
        if self.exploration_decay == 1.0:
            return self.exploration
        falls = np.log(self.exploration_least / self.exploration) / np.log(self.exploration_decay)
        often = max(0, int(np.ceil(falls - 1e-9)))
        return float(self.exploration * self.exploration_decay ** min(round_ - 1, often))

    def learnt(self, round_: int, who: Int, seen: Seen) -> None:
        """Add the utility of agents who (n,) to that of the round."""
        seen.own["achieved"][round_ % (2 * self.window)] += self.statistical(who, seen).sum()

    def statistical(self, who: Int, seen: Seen) -> Array:
        """U (n,) of agents who (n,): rows times the root of the mean squared loss, 0 for none."""
        loss = seen.loss[who]
        mean = np.where(np.isnan(loss), 0.0, np.maximum(loss, 0.0))
        return np.asarray(seen.rows[who] * np.sqrt(mean))

    def utility(self, round_: int, known: Int, seen: Seen) -> Array:
        """Util (n,) of agents known (n,)."""
        heard = self.statistical(np.flatnonzero(~np.isnan(seen.loss)), seen)
        cap = quantile(heard, self.quantile)  # outliers are cut
        util = np.minimum(self.statistical(known, seen), cap)
        util = util + np.sqrt(0.1 * np.log(round_) / seen.heard[known])  # temporal uncertainty
        preferred, took = self.preferred(seen), seen.took[known]
        late = took > preferred
        lag = np.where(late, preferred / np.where(late, took, 1.0), 1.0)
        return np.asarray(util * lag**self.alpha)  # global system utility

    def preferred(self, seen: Seen) -> float:
        """T s: how long a round should take."""
        steps = int(seen.own["steps"][0])
        if self.pace is not None:
            return steps * self.pace
        took = seen.took[~np.isnan(seen.loss)]
        place = min(steps * self.window * self.count, len(took)) - 1
        return float(np.partition(took, place)[place])

    def _look_back(self, round_: int, seen: Seen) -> None:
        """The pacer: T grows by a step where the latest W rounds achieved less than those before.

        And forget the round that is overwritten now.
        """
        achieved, w = seen.own["achieved"], self.window
        if round_ > 2 * w and (round_ - 1) % w == 0:
            latest = achieved[np.arange(round_ - w, round_) % (2 * w)].sum()
            seen.own["steps"] += achieved.sum() - latest > latest
        achieved[round_ % (2 * w)] = 0.0

    def chosen(self, round_: int, free: Int, seen: Seen) -> Int:
        """SelectParticipant: (1 - epsilon) K by utility, epsilon K that are not known yet."""
        self._look_back(round_, seen)
        if len(free) <= self.count:
            return free
        new = np.isnan(seen.loss[free])
        worn = np.zeros(len(free), bool) if self.most is None else seen.picks[free] > self.most
        known, unseen = free[~new & ~worn], free[new]
        k = min(self.count, len(free))
        explorers = min(round(self.epsilon(round_) * k), len(unseen))
        exploited = self._exploited(round_, known, k - explorers, seen)
        explored = self._explored(round_, unseen, k - len(exploited))
        chosen = np.concatenate([exploited, explored])
        if len(chosen) == k:
            return chosen
        rest = np.setdiff1d(free, chosen)  # who is worn out fills up
        return np.concatenate([chosen, rest[least(self.lots(round_, rest, REST), k - len(chosen))]])

    def _exploited(self, round_: int, known: Int, k: int, seen: Seen) -> Int:
        """At most k of agents known (n,), drawn by utility of those above the cut-off."""
        if not min(k, len(known)):
            return known[:0]
        util = self.utility(round_, known, seen)
        place = len(util) - min(k, len(util))
        bar = self.cutoff * np.partition(util, place)[place]
        known, util = known[util >= bar], util[util >= bar]
        weight = np.maximum(util, FAINT * util.max()) if util.max() > 0.0 else None
        lots = self.lots(round_, known, EXPLOITED, weight)
        return known[least(lots, k)]

    def _explored(self, round_: int, unseen: Int, k: int) -> Int:
        """At most k of agents unseen (n,), by speed or at random."""
        if not k:
            return unseen[:0]
        weight = None if self.speed is None else self.speed[unseen]
        return unseen[least(self.lots(round_, unseen, EXPLORED, weight), k)]


CHOOSERS: dict[str, type[Chooser]] = {
    "fastest": Fastest,
    "oldest": Oldest,
    "round-robin": RoundRobin,
    "available": Available,
    "power-of-choice": PowerOfChoice,
    "oort": Oort,
    "tiers": Tiers,
}
