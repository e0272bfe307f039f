"""How messages move: what an engine offers to `us` and to `hub`."""

from typing import Any, Protocol

from desim.arrays import Array, Int, Mask
from desim.engine.requests import Heard


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
