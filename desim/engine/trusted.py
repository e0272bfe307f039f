"""A coordinator that is trusted: it clips what agents reply, and noise goes to the sum.

McMahan, Ramage, Talwar, Zhang 2018, "Learning differentially private recurrent language models"
(arXiv 1710.06963): replies of norm S at most each, plus N(0, sd^2 I), over the number that is
expected: the one that came would be a release of its own, and would move the mean. Replies are
clipped before they are weighed, and where a weight is above 1 once more; one that is not finite
counts as 0. Who is late or lost makes the sum smaller, and not its noise.

Andrew, Thakkar, McMahan, Ramaswamy 2021, "Differentially private learning with adaptive clipping"
(arXiv 1905.03871), Algorithm 1: S <- S exp(-rate (b - quantile)), b the share of replies that were
not longer than S, of whose sum of +-1/2 the noise has deviation `noise`. The multiplier z is that
of both sums together, so that the larger one has (z^-2 - (2 noise)^-2)^(-1/2), Theorem 1.

A sum is one row of the ledger, of agent -1, for all replies to calls of its round that came before
it. A reply to an older call that is in it has a row of its own beside.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.signals import Feature
from desim.memory import Tree, recall
from desim.network.timeline.record import SUMMED, WHOLE, release_id
from desim.privacy.correlated.factors import Factor
from desim.privacy.ledger.ledger import BESIDE, Mechanism, View, add_normal
from desim.privacy.ledger.mechanisms import CLIPS, Gaussian, Terms
from desim.problem.kernels.sums import clipped_rows, column_sums

if TYPE_CHECKING:
    from desim.engine.world import World

NOBODY = np.array([-1])  # whose noise it is


@dataclass(frozen=True)
class Quantile:
    """Adaptive clipping: the quantile of norms that S follows, how fast, and noise on the count."""

    quantile: float
    rate: float
    noise: float

    def widened(self, multiplier: float) -> float:
        """That of the sum, so that with the count both have this multiplier."""
        if multiplier < 1e-100:  # what the count tells is nothing beside, and squares end
            return multiplier
        return float((multiplier**-2 - (2.0 * self.noise) ** -2) ** -0.5)

    def moved(self, clip: float, share: float) -> float:
        """The next S, where a share of the replies was not longer."""
        with np.errstate(over="ignore"):
            return float(np.clip(clip * np.exp(-self.rate * (share - self.quantile)), *CLIPS))


@dataclass(frozen=True)
class Trust:
    """What a trusted coordinator does: clip S (where it starts), noise, None for none.

    relative: whether the deviation of the noise is in units of S; number: of replies that are
    expected; law, share: how those in a sum were drawn, see `Mechanism`; factor: of noise that is
    correlated over rounds, where contributions of an agent are so many rounds apart at least.
    """

    clip: float
    noise: Gaussian | None
    number: float
    relative: bool = False
    adaptive: Quantile | None = None
    law: Mechanism = Mechanism.SUM
    share: float = np.nan
    factor: Factor | None = None
    apart: int = 1

    def feature(self, world: "World") -> "Trusted":
        """What hangs on a coordinator's calls."""
        return Trusted(world)

    @property
    def says(self) -> str:
        """Who is trusted with what, in words."""
        return "coordinator: trusted; clips replies to"

    def program(self, program: Any) -> Any:
        """The program of a coordinator, as it is."""
        return program

    @property
    def given(self) -> dict[str, float]:
        """What a target calibrates: {key of privacy.noise: value}."""
        if self.noise is None:
            return {}
        return {"multiplier" if self.relative else "sigma": self.noise.sigma}

    def multiplier(self, round_: int) -> float:
        """Deviation of the noise of a round as the scenario has it, see `relative`."""
        return 0.0 if self.noise is None else float(self.noise.deviation(round_, np.ones(1))[0])

    def deviation(self, round_: int, clip: float) -> float:
        """That of the noise on the sum itself, with a count its part of both."""
        one = self.multiplier(round_)
        if self.adaptive is not None and one > 0.0:
            one = self.adaptive.widened(one)
        return clip * one if self.relative else one

    def terms(self, round_: int, clip: float) -> tuple[int, int, float, float, float]:
        """Mechanism, view, sensitivity, scale and sampling of a round's row: 2 S, as replaced."""
        adapts = self.adaptive is not None
        scale = clip * self.multiplier(round_) if adapts else self.deviation(round_, clip)
        law, share = self.law, self.share
        if self.factor is not None and scale > 0.0:
            law, share = self.factor.charged(round_)
        return int(law), int(View.PUBLIC), 2.0 * clip, scale, share

    def of_each(self, round_: int, agents: int) -> Terms:
        """Terms (agents,) of a sum of a round for each that is in it, as a budget counts them."""
        _, _, moved, scale, _ = self.terms(round_, self.clip)
        every = np.ones(agents)
        return Terms(Mechanism.SUM, View.PUBLIC, moved * every, scale * every, np.nan * every)

    def at_most(self) -> tuple[int, int, float, float, float]:
        """Terms of one row that costs as much as all sums with correlated noise may."""
        assert self.factor is not None
        moved = 2.0 * self.clip * float(np.sqrt(self.factor.bound(self.factor.rounds, self.apart)))
        return int(Mechanism.SUM), int(View.PUBLIC), moved, self.deviation(1, self.clip), np.nan


class Trusted(Feature):
    """The sums of one play; noise at addresses of rounds alone."""

    name = "trusted"

    def __init__(self, world: "World") -> None:
        trust = world.settings.trust
        assert trust is not None
        self.world, self.trust = world, trust
        world.ledger.keep()  # a sum is charged by the replies that came
        self.clip = trust.clip
        self.latest = 0  # round of the latest sum

    def total(self, hub: Any, replies: Any) -> tuple[Array, float]:
        """The sum (dim,) of clipped replies with its noise, and how many were expected."""
        trust, clip, round_ = self.trust, self.clip, int(hub.round)
        self.refuse_more(round_, replies.who)
        rows = np.ascontiguousarray(replies.payload, float)
        total = self.noised(column_sums(self.shortened(replies, rows)), round_)
        self.charge(hub, replies, trust.terms(round_, clip))
        if trust.adaptive is not None:
            short = np.sqrt(np.add.reduce(rows * rows, axis=1)) <= clip
            self.clip = trust.adaptive.moved(clip, self.share(short, round_))
        return total, trust.number

    def refuse_more(self, round_: int, who: Int) -> None:
        """RuntimeError for what moves sums by more than was planned: an agent is in one, once."""
        if self.latest == round_:
            text = "found two sums in a round; allowed: one, of replies that hold all parts of both"
            raise RuntimeError(f"hub.total: {text}")
        if len(np.unique(who)) < len(who):
            raise RuntimeError("hub.total: found two replies of an agent; allowed: one")

    def shortened(self, replies: Any, rows: Array) -> Array:
        """The rows (n, dim) of replies, clipped and weighed; no weight lengthens them."""
        weighed = replies._replace(payload=clipped_rows(rows, self.clip)).weighed
        longer = not (np.abs(replies.weight) <= 1.0).all()
        return np.asarray(clipped_rows(weighed, self.clip) if longer else weighed)

    def noised(self, total: Array, round_: int) -> Array:
        """The sum (dim,) of replies of a round as it is released."""
        return self.drawn(total, round_, 0, self.trust.deviation(round_, self.clip))

    def drawn(self, value: Array, round_: int, step: int, scale: float) -> Array:
        """Value (dim,) plus noise of this deviation, at an address of its own."""
        place = self.world.ledger.seed, NOBODY, np.array([round_]), step
        everybody = np.ones(1, bool)
        noisy = add_normal(*place, np.array([scale]), everybody, value[None].astype(float))
        return np.asarray(noisy[0])

    def share(self, short: Array, round_: int) -> float:
        """The noised share of replies that are `short` (n,), of as many as are expected."""
        adaptive = self.trust.adaptive
        assert adaptive is not None
        value = np.array([float(np.count_nonzero(short)) - 0.5 * len(short)])
        said = self.drawn(value, round_, BESIDE, adaptive.noise)
        return float(said[0]) / self.trust.number + 0.5

    def charge(self, hub: Any, replies: Any, terms: tuple[Any, ...]) -> None:
        """Write the row of a sum, and one for each reply in it to an older call."""
        ledger, agents, round_, now = self.world.ledger, hub.agents, int(hub.round), hub.now
        self.latest = round_
        whole = int(release_id(agents, 0, round_, SUMMED | WHOLE))
        ledger.charge_one(now, -1, round_, whole, terms, 1)
        late = np.flatnonzero(replies.round != round_)
        single = int(Mechanism.SUM), *terms[1:4], np.nan
        who, rounds = replies.who[late], replies.round[late]
        exchange = exchanges(hub, who) | SUMMED
        for i, id_ in zip(who, release_id(agents, who, rounds, exchange), strict=True):
            ledger.charge_one(now, int(i), round_, int(id_), single, 1)

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return {"clip": self.clip}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "clip")


def exchanges(hub: Any, who: Int) -> Int:
    """Which calls of their rounds agents who (n,) have answered."""
    return np.array([hub.assignments.exchange(i) for i in who.tolist()], np.int64)
