"""What a play reveals, kept and replayed: the same transcript on other data shows what moved.

In a replay every release and message goes out as it was recorded, so that what an agent would have
released is compared under the same past: recorded against recomputed is the conditional
sensitivity. Both plays draw the same noise, so that differences of outputs are those of values.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int

if TYPE_CHECKING:
    from desim.privacy.ledger.ledger import Mechanism, Terms

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
    mechanism: "Mechanism"
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


class Transcript:
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

    def release(
        self, who: Int, round_: Int, release: Int, value: Array, output: Array, terms: "Terms",
        rows: Any = slice(None),
    ) -> Array:  # fmt: skip
        """Keep a batch of releases (fields of Released); return what goes out (n, dim).

        terms[rows] are those of the batch.
        """
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

    def keep(self, ids: Int, kept: bool) -> None:
        """Note that releases ids (n,), -1 for none, wait for a message, or do so no more."""
        if kept or self.kept:
            named = set(ids[ids >= 0].tolist())
            self.kept = self.kept | named if kept else self.kept - named

    def send(
        self, who: Int, round_: Int, release: Int, payload: Array,
        traffic: tuple[NDArray[Any], ...], out: Any = slice(None),
    ) -> Array:  # fmt: skip
        """Keep those messages of a batch (fields of Sent) that go `out`; return it as received.

        The others reach nobody: of what an agent computes once the run is over for it nothing is
        released, so that its numbers may depend on data.
        """
        mine = Sent(
            who[out], round_[out], release[out], payload[out].copy(),
            tuple(part[out] for part in traffic),
        )  # fmt: skip
        self.messages.append(mine)
        if self.recorded is None:
            return payload
        theirs = _counterpart(self.recorded.messages, len(self.messages) - 1)
        if (
            theirs is None
            or theirs.payload.shape != mine.payload.shape
            or not np.array_equal(theirs.who, mine.who)
            or not np.array_equal(theirs.round_, mine.round_)
        ):
            self.apart = True
            return payload
        received = payload.copy()
        received[out] = theirs.payload
        return received


def said_last(transcript: Transcript) -> dict[int, Array]:
    """The last message (dim,) of every agent that has said something."""
    return {
        int(sent.who[r]): sent.payload[r]
        for sent in transcript.messages
        for r in np.flatnonzero(sent.spoken)
    }


def _counterpart(batches: list[Batch], place: int) -> Batch | None:
    return batches[place] if place < len(batches) else None
