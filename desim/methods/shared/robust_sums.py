"""Where a coordinator takes a robust rule in place of the mean of replies: it hangs on `hub.total`.

A rule gives a mean; the sum is that times the number of replies. Rules see replies as they weigh.
Replies with numbers that are not finite, or too large to square, are left out. Where too few are
left for the rule, it is as if nobody had replied: the model stays, and a warning says so.
"""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from desim.arrays import Array, Int
from desim.engine.signals import Feature
from desim.memory import Tree, recall
from desim.methods.shared.robust_rules import (
    bucket_means,
    centred_clipping,
    coordinate_median,
    geometric_median,
    mean_of,
    mixed_with_nearest,
    multi_krum,
    ordered,
    sound,
    trimmed_mean,
)
from desim.numerics import keys
from desim.numerics.keys import Stream

if TYPE_CHECKING:
    from desim.engine.hub import Hub
    from desim.engine.requests import Replies
    from desim.engine.world import World

BUCKETS = 1  # sub-counter of the draws of buckets, apart from those of who attacks


class Rule(NamedTuple):
    """A rule by name, with what it needs, and what is done to replies before.

    share: of values that trimmed-mean drops on each side; f, m: of krum and multi-krum; nu, tau,
    iterations: of geometric-median and centred-clipping; nearest: f of nearest-neighbour mixing,
    bucket: replies in a bucket; 0 for neither.
    """

    kind: str
    share: float = 0.0
    f: int = 0
    m: int = 1
    nu: float = 1e-6
    tau: float = np.inf
    iterations: int = 1
    nearest: int = 0
    bucket: int = 1

    def seen(self, n: int) -> int:
        """How many rows the rule sees of n replies."""
        return -(-n // self.bucket)

    @property
    def least(self) -> int:
        """How many replies it needs."""
        need = 1
        if self.kind in ("krum", "multi-krum"):
            need = max(2 * self.f + 3, self.m)  # n > 2 f + 2
        need = max(need, 2 * self.nearest + 1)
        return (need - 1) * self.bucket + 1

    def borne(self, n: int) -> int:
        """How many of n replies may be anything: what the rule is made for."""
        n = self.seen(n)
        bears = {"mean": 0, "krum": self.f, "multi-krum": self.f, "trimmed-mean": self.dropped(n)}
        if self.kind == "multi-krum":  # the mean of more takes some of them in for sure
            bears["multi-krum"] = min(self.f, n - self.m)
        most = min(bears.get(self.kind, (n - 1) // 2), (n - 1) // 2)
        if self.nearest:  # with it a mean is a rule, too
            most = self.nearest if self.kind == "mean" else min(most, self.nearest)
        return most  # an attacker spoils one bucket at most

    def dropped(self, n: int) -> int:
        """How many of n values are dropped on each side."""
        return min(int(self.share * n + 1e-9), (n - 1) // 2)

    def value(self, rows: Array, centre: Array) -> Array:
        """What it makes of rows (n, dim); centre (dim,): what it made of the latest ones."""
        rows = mixed_with_nearest(rows, self.nearest) if self.nearest else rows
        match self.kind:
            case "median":
                return coordinate_median(rows)
            case "trimmed-mean":
                return trimmed_mean(rows, self.dropped(len(rows)))
            case "krum" | "multi-krum":
                return multi_krum(rows, self.f, self.m)
            case "geometric-median":
                return geometric_median(rows, self.nu, self.iterations)
            case "centred-clipping":
                return centred_clipping(rows, centre, self.tau, self.iterations)
        return mean_of(ordered(rows))

    def feature(self, world: "World") -> "Robust":
        """What hangs on a coordinator's calls."""
        return Robust(world, self)


class Robust(Feature):
    """The sums of one play."""

    name = "robust"

    def __init__(self, world: "World", rule: Rule) -> None:
        self.world, self.rule = world, rule
        self.centre = np.zeros(0)  # (dim,) the latest aggregate, once there is one
        self.void = 0  # rounds in which some replied, but too few

    def total(self, hub: "Hub", replies: "Replies") -> tuple[Array, float]:
        """What the rule makes of replies, times how many these are; nothing where too few are."""
        rows = np.ascontiguousarray(replies.weighed, float)
        usable = sound(rows)
        who, rows = np.asarray(replies.who)[usable], rows[usable]
        if len(self.centre) != rows.shape[1]:
            self.centre = np.zeros(rows.shape[1])
        if len(rows) < self.rule.least:
            self._caution(int(hub.round), len(rows), len(usable))
            return np.zeros(rows.shape[1]), 0
        if self.rule.bucket > 1:
            rows = bucket_means(rows, self.lots(who, int(hub.round)), self.rule.bucket)
        self.centre = self.rule.value(rows, self.centre)
        return self.centre * float(len(replies.who)), len(replies.who)

    def lots(self, who: Int, round_: int) -> Int:
        """The places (n,) that agents who (n,) draw in a round."""
        agents = self.world.settings.problem.agents
        place = {"round": round_, "step": BUCKETS}
        drawn = keys.permutation(self.world.settings.seed, Stream.ATTACK, agents, **place)
        return np.asarray(drawn)[who]

    def _caution(self, round_: int, here: int, arrived: int) -> None:
        """Say so once, of the first round in which anybody replied."""
        if not arrived:
            return
        self.void += 1
        if self.void == 1:
            whole = "" if here == arrived else f" of {arrived} with numbers that can be used"
            text = f"round {round_} has {here} replies{whole}, and {self.rule.kind} needs "
            text += f"{self.rule.least}: its model stays"
            self.world.caution(f"algorithm.aggregate: {text}; it may be so in later rounds, too")

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return {"centre": self.centre, "void": self.void}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.centre = np.array(tree["centre"], float)
        recall(self, tree, "void")
