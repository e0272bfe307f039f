"""What a play reveals, kept and replayed: the same transcript on other data shows what moved.

In a replay every release and message goes out as it was recorded, so that what an agent would have
released is compared under the same past: recorded against recomputed is the conditional
sensitivity. Both plays draw the same noise, so that differences of outputs are those of values.
"""

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.signals import Listener, Message, Release
from desim.privacy.ledger.terms import Mechanism

Batch = TypeVar("Batch")


@dataclass(frozen=True)
class Released:
    """One batch of releases of agents who (n,) in round_ (n,) with ids release (n,), -1 for none.

    value (n, dim): what noise was added to (of noise in a kernel: the result without it); output
    (n, dim): with noise, as computed; sensitivity, scale, coupled (n,): as in Terms.
    """

    who: Int
    round_: Int
    release: Int
    value: Array
    output: Array
    mechanism: Mechanism
    sensitivity: Array
    scale: Array
    coupled: Array | None


@dataclass(frozen=True)
class Sent:
    """Messages that went out, a batch of who (n,) in round_ (n,): payload (n, dim) as computed.

    release (n,): ids of the latest releases that they carry, -1 for none; traffic: arrays
    (n,) of what is seen of messages that are not read, times s, sizes in bits, silences.
    """

    who: Int
    round_: Int
    release: Int
    payload: Array
    traffic: tuple[NDArray[Any], ...]

    @property
    def spoken(self) -> NDArray[np.bool_]:
        """Which messages (n,) say something: a null does not."""
        silent = self.traffic[-1]
        return ~silent if silent.dtype == bool else np.ones(len(self.who), bool)


class Transcript(Listener):
    """Releases and messages of one play in their order; with `recorded`, a replay of that one.

    apart: releases or messages came in another order or number than recorded; kept: ids of the
    releases that no message has told of; failed: whether the play ended before its time.
    """

    def __init__(self, recorded: "Transcript | None" = None) -> None:
        self.releases: list[Released] = []
        self.messages: list[Sent] = []
        self.recorded = recorded
        self.apart = self.failed = False
        self.kept: set[int] = set()

    def releasing(self, batch: Release) -> Array:
        """Keep a batch of releases; return what goes out (n, dim)."""
        who, round_, release = batch.who, batch.round, batch.release
        value, output, terms, rows = batch.value, batch.output, batch.terms, batch.rows
        sensitivity, scale = terms.sensitivity[rows], terms.scale[rows]
        coupled = None if terms.coupled is None else terms.coupled[rows]
        if terms.resolution > 0.0:  # discrete noise is centred on the level next to the value
            value = terms.resolution * np.rint(value / terms.resolution)
        mechanism, value, mine = terms.mechanism, value.copy(), output.copy()
        self.releases.append(
            Released(who, round_, release, value, mine, mechanism, sensitivity, scale, coupled)
        )
        if self.recorded is None:
            return output
        theirs = _counterpart(self.recorded.releases, len(self.releases) - 1)
        if theirs is None or theirs.output.shape != output.shape:
            self.apart = True
            return output
        same = theirs.release == release
        self.apart |= not same.all()
        if same.all() and release.min(initial=0) >= 0:
            return theirs.output.copy()
        return np.where((same & (release >= 0))[:, None], theirs.output, output)

    def waiting(self, ids: Int, waits: bool) -> None:
        """Note that releases ids (n,), -1 for none, wait for a message, or do so no more."""
        if waits or self.kept:
            named = set(ids[ids >= 0].tolist())
            self.kept = self.kept | named if waits else self.kept - named

    def sending(self, message: Message) -> Array:
        """Keep a batch of messages; return what is received (n, dim)."""
        who, round_, payload = message.who, message.round, message.payload
        self.messages.append(Sent(who, round_, message.release, payload.copy(), message.traffic))
        if self.recorded is None:
            return payload
        theirs = _counterpart(self.recorded.messages, len(self.messages) - 1)
        if (
            theirs is None
            or theirs.payload.shape != payload.shape
            or not np.array_equal(theirs.who, who)
            or not np.array_equal(theirs.round_, round_)
        ):
            self.apart = True
            return payload
        return theirs.payload.copy()


def said_last(transcript: Transcript) -> dict[int, Array]:
    """The last message (dim,) of every agent that has said something."""
    return {
        int(sent.who[r]): sent.payload[r]
        for sent in transcript.messages
        for r in np.flatnonzero(sent.spoken)
    }


def _counterpart(batches: list[Batch], place: int) -> Batch | None:
    return batches[place] if place < len(batches) else None
