"""What attackers send in place of what a method has them send: a listener of messages.

On a star a listener sees all replies of one collection, on every engine: those who collude know the
honest ones among them, as the papers assume, and agree on one message. Without honest replies in
the collection, and as long as an attack is none of messages, they send what the method says. Rows
are taken in an order of their own, so that the order of agents changes no bit.
"""

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.engine.signals import Listener, Message
from desim.methods.shared.robust_rules import mean_of, ordered
from desim.numerics import keys
from desim.numerics.keys import Stream

if TYPE_CHECKING:
    from desim.engine.settings import Settings

WHO, SENT = 0, 2  # sub-counters of draws: who attacks, what is sent
COLLUDING = ("a-little-is-enough", "inner-product", "mimic")
ALONE = ("sign-flip", "gaussian")
OF_MESSAGES = (*ALONE, *COLLUDING)


def drawn_attackers(seed: int, agents: int, number: int) -> Int:
    """So many of the agents, ascending, drawn by the seed alone."""
    place = {"step": WHO}
    return np.sort(keys.permutation(seed, Stream.ATTACK, agents, **place)[:number])


def least_that_is_enough(agents: int, attackers: int) -> float:
    """How many deviations from the mean pass for honest.

    Baruch, Baruch, Goldberg 2019 (arXiv 1902.06156), Algorithm 3: z_max = Phi^-1((n - m - s) / (n -
    m)) with s = floor(n / 2 + 1) - m of m attackers among n agents.
    """
    honest = agents - attackers
    others = max(agents // 2 + 1 - attackers, 0)
    share = min(max((honest - others) / honest, 0.5), 1.0 - 0.5 / honest)
    return NormalDist().inv_cdf(share)  # (1)


def small_shift(honest: Array, z: float) -> Array:
    """The mean of honest rows (n, dim) minus z of their deviations, by coordinate: ibid."""
    rows = ordered(honest)
    mean = mean_of(rows)
    variance = np.add.reduce((rows - mean) ** 2, axis=0) / max(len(rows) - 1, 1)
    return np.asarray(mean - z * np.sqrt(variance))  # (2)


def negated_mean(honest: Array, epsilon: float) -> Array:
    """- epsilon times the mean (dim,) of honest rows (n, dim).

    Inner product manipulation: Xie, Koyejo, Gupta 2020 (arXiv 1903.03936), Section 3.
    """
    return np.asarray(-epsilon * mean_of(ordered(honest)))  # (3)


class Attack(NamedTuple):
    """What agents who (n,) do: its kind and its number.

    That is how many times a sign-flip is as long, sigma of gaussian, z of a-little-is-enough, or
    epsilon of inner-product.
    """

    kind: str
    amount: float
    who: Int

    @property
    def of_messages(self) -> bool:
        """Whether it is what they send."""
        return self.kind in OF_MESSAGES


class Attackers(Listener):
    """Agents that lie, and what they have done; as a listener it has entries of the summary."""

    name = "attackers"
    summary = "agents that send something else, flip labels, are late or silent: `attackers`"

    def __init__(self, attack: Attack, text: str) -> None:
        self.attack, self.text = attack, text
        self.seed, self.dim, self.lies = 0, 0, 0

    def begun(self, settings: "Settings") -> None:
        """A play begins."""
        self.seed, self.lies = settings.seed, 0
        self.among = np.zeros(settings.problem.agents, bool)
        self.among[self.attack.who] = True

    def ended(self, time: float) -> Mapping[str, Any]:
        """Who attacked, how, and how many of their messages were lies."""
        found: dict[str, Any] = {"agents": self.attack.who.tolist(), "attack": self.text}
        return found | ({"messages": self.lies} if self.attack.of_messages else {})


class Lying(Attackers):
    """Those whose attack is what they send."""

    def sending(self, message: Message) -> Array:
        """What is received (n, dim): of attackers their lies."""
        mine = self.among[message.who]
        if not mine.any():
            return message.payload
        lies = self.lying(message, mine)
        if lies is None:
            return message.payload
        self.lies += int(np.count_nonzero(mine))
        received = message.payload.copy()
        received[mine] = lies
        return received

    def lying(self, message: Message, mine: Mask) -> Array | None:
        """Lies (m, dim), or one (dim,), of the m attackers where `mine` (n,); None for none."""
        kind, amount, payload = self.attack.kind, self.attack.amount, message.payload
        if kind == "sign-flip":
            return np.asarray(-amount * payload[mine])  # (4)
        if kind == "gaussian":
            place = {"agent": message.who[mine], "round": message.round[mine], "step": SENT}
            size = payload.shape[1]
            return np.asarray(amount * keys.normals(self.seed, Stream.ATTACK, size=size, **place))
        honest = payload[~mine]
        if not len(honest):
            return None
        if kind == "mimic":  # all copy one honest agent, the first that is there
            return np.asarray(honest[np.argmin(message.who[~mine])])  # (5)
        if kind == "inner-product":
            return negated_mean(honest, amount)
        z = amount
        if math.isnan(z):
            z = least_that_is_enough(len(mine), int(np.count_nonzero(mine)))
        return small_shift(honest, z)


def listener(attack: Attack, text: str) -> Attackers:
    """What hangs on a play for this attack, called `text`."""
    return (Lying if attack.of_messages else Attackers)(attack, text)
