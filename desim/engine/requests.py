"""The requests that an algorithm's generator yields, and what engines offer to answer them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.network.timeline.waiting_rule import ALL, Rule

Job = Callable[..., Array]


class Compute(NamedTuple):
    """Run job(us, *inputs), a pure function of rows; it takes `seconds` (n,) of each agent's time.

    value (n,): what the log shows for it (samples, or nan). paced: the agent's speed makes the
    seconds, so that another beginning may make others.
    """

    job: Job
    inputs: tuple[NDArray[Any], ...]
    seconds: Array
    value: Array
    paced: bool = False


class Gather(NamedTuple):
    """Wait for messages of this iteration from neighbours, until `rule` closes the wait.

    newest: wait for nothing and hear the newest messages, whatever their iteration. later: a
    message of a later iteration does as well, and the newest is heard.
    """

    rule: Rule
    newest: bool = False
    later: bool = False

    @property
    def patient(self) -> bool:
        """Whether it waits for every neighbour."""
        return self.rule.kind == ALL and not self.newest

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: found a request; write heard = yield us.gather()")


@dataclass(frozen=True)
class Collect:
    """A coordinator waits until its policy closes the collection."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name}: found a request; write replies = yield hub.collect()")


COLLECT = Collect()


@dataclass
class Heard:
    """Latest messages from the neighbours, in the order of their numbers.

    Agent r of the cohort hears values[index[e]] for e in pointer[r]..pointer[r+1]. fresh
    (messages,): the message belongs to the latest iteration, or came since the last hearing of
    the newest.
    """

    pointer: NDArray[np.int64]
    index: NDArray[np.int64]
    values: Array
    fresh: NDArray[np.bool_]
    total: Array | None = None  # the plain sum, once it is known

    @property
    def count(self) -> Array:
        """How many fresh messages each agent has heard (n, 1)."""
        before = np.zeros(len(self.fresh) + 1)
        self.fresh.cumsum(dtype=float, out=before[1:])
        return np.asarray(before[self.pointer[1:]] - before[self.pointer[:-1]])[:, None]


class Replies(NamedTuple):
    """A closed collection: agents who (n,) ascending, payload (n, dim), round (n,) of calls.

    weight (n,): what the policy says that each weighs by its staleness, 1 where it says nothing.
    """

    who: NDArray[np.int64]
    payload: Array
    round: NDArray[np.int64]
    weight: Array

    @property
    def weighed(self) -> Array:
        """The payload (n, dim), each reply times its weight."""
        return self.payload if (self.weight == 1.0).all() else self.payload * self.weight[:, None]


# How messages move: what an engine offers to `us` and to `hub`.


class Carrier(Protocol):
    """How an engine moves messages for a cohort; ahead: of all, a whole round at a time."""

    ahead: bool

    def send(self, us: Any, payload: Array, bits: Int, silent: Mask, used: Mask | None) -> None:
        """Put the messages of the cohort's agents, of bits (n,), on their links, or the used."""

    def known(self, us: Any, values: Array) -> Heard:
        """What the cohort hears when every agent i has announced values[i]."""


class Station(Protocol):
    """How an engine carries calls out."""

    @property
    def ahead(self) -> bool:
        """Whether no row of a round is written after its end that is not later in time."""

    @property
    def now(self) -> float:
        """Virtual time s."""

    def call(self, hub: Any, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Send a call to agents who (n,)."""

    def post(self, hub: Any, who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply."""
