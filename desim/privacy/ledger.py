"""The ledger of releases, and the only door to the noise stream: who draws noise writes its row.

A release is a transmitted value computed from private data. Its id is round * agents + agent. Views
of an adversary, sensitivities and scales stand in the row, so that every accountant is a replay.
"""

from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.jit import kernel
from desim.kernels.clients import Charges, charge, release_id
from desim.keys import Stream, address, counter, normal, seed_word

NOISE = int(Stream.NOISE)


class Mechanism(IntEnum):
    """How a release was randomised."""

    NONE = 0
    GAUSSIAN = 1
    NOISY_GRADIENT = 2


class View(IntEnum):
    """Who receives a release."""

    COORDINATOR = 0
    NEIGHBOURS = 1


@dataclass(frozen=True)
class Terms:
    """What one release of each agent costs, arrays (agents,).

    sensitivity: L2, replace-one, of the value before noise (inf: unbounded); scale: standard
    deviation per coordinate in the same unit; sampling: fraction of the rows used, nan for all.
    """

    mechanism: Mechanism
    view: View
    sensitivity: NDArray[np.float64]
    scale: NDArray[np.float64]
    sampling: NDArray[np.float64]

    @cached_property
    def compiled(self) -> tuple[int, int, NDArray[np.float64]]:
        """(mechanism, view, (3, agents) sensitivity, scale, sampling) for kernels."""
        amounts = np.array([self.sensitivity, self.scale, self.sampling], float)
        return int(self.mechanism), int(self.view), amounts


def plain(agents: int, view: View, sensitivity: float = np.inf) -> Terms:
    """Terms of a release without noise."""
    return Terms(
        Mechanism.NONE,
        view,
        np.full(agents, sensitivity),
        np.zeros(agents),
        np.full(agents, np.nan),
    )


@kernel
def _charge_each(
    charges: Any, time: Any, who: Any, round_: Any, exchange: int, agents: int, terms: Any,
    where: Any, release: Any,
) -> None:  # fmt: skip
    mechanism, view, amounts = terms
    for r in range(who.shape[0]):
        release[r] = -1
        if where[r] and time[r] < np.inf:
            i, k = who[r], round_[r]
            release[r] = release_id(agents, i, k, exchange)
            sensitivity, scale, sampling = amounts[0, r], amounts[1, r], amounts[2, r]
            charge(
                charges, time[r], i, k, release[r], mechanism, view, 0, sensitivity, scale, sampling
            )  # fmt: skip


@kernel
def _add_normals(
    seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any, out: Any
) -> None:
    for r in range(who.shape[0]):
        k1 = address(NOISE, who[r], -1)
        c0 = counter(round_[r], step)
        for j in range(value.shape[1]):
            out[r, j] = value[r, j]
            if where[r]:
                out[r, j] += scale[r] * normal(seed, k1, c0, j)


@kernel
def _deliver(charges: Any, release: Any, delivered: Any) -> bool:
    """Add the recipients of release[r]; both run in one order, the newest rows at the end."""
    row = charges.n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and charges.ints[row, 2] != release[r]:
            row -= 1
        if row < 0:
            return False
        charges.ints[row, 5] += delivered[r]
    return True


MECHANISMS = pd.Index([one.name.lower().replace("_", "-") for one in Mechanism])
VIEWS = pd.Index([one.name.lower() for one in View])


class Ledger:
    """Release rows of a run, in buffers that compiled code appends to."""

    def __init__(self, seed: int, agents: int) -> None:
        self.seed = seed_word(seed)
        self.agents = agents
        self.charges = _empty(1024)

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        used = int(self.charges.n[0])
        if used + rows > len(self.charges.ints):
            larger = _empty(2 * (used + rows))
            larger.ints[:used] = self.charges.ints[:used]
            larger.floats[:used] = self.charges.floats[:used]
            larger.n[0] = used
            self.charges = larger

    def release(
        self,
        time: Any,
        who: Any,
        round_: Any,
        exchange: int,
        value: NDArray[np.float64],
        terms: Terms,
        where: Any,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Charge the releases of agents who[r] if where[r]; return (value + noise, release ids).

        value (n, dim); terms hold arrays (n,); exchange: releases of this round before this one,
        so that no draw serves twice. Without noise the value comes back as it is.
        """
        self.reserve(len(who))
        ids = np.empty(len(who), np.int64)
        costs = terms.compiled
        _charge_each(self.charges, time, who, round_, exchange, self.agents, costs, where, ids)
        if terms.mechanism is Mechanism.NONE:
            return value, ids
        noisy = np.empty_like(value)
        _add_normals(self.seed, who, round_, exchange << 24, terms.scale, where, value, noisy)
        return noisy, ids

    def noise_key(self, terms: Terms | None) -> np.uint64:
        """Return the key of in-kernel noise for calls charged with `terms`; refuse all others."""
        if terms is None or terms.mechanism is Mechanism.NONE:
            raise RuntimeError("noise was asked for by a call that declares no charge")
        return np.uint64(self.seed)

    def charge_one(
        self, time: float, agent: int, round_: int, release: int, terms: tuple[Any, ...],
        delivered: int,
    ) -> None:  # fmt: skip
        """Write the row of one release whose noise a charged job draws."""
        self.reserve(1)
        mechanism, view, sensitivity, scale, sampling = terms
        charge(
            self.charges, time, agent, round_, release, mechanism, view, delivered,
            sensitivity, scale, sampling,
        )  # fmt: skip

    def delivered(self, release: NDArray[np.int64], recipients: NDArray[np.int64]) -> None:
        """Note that the network serves recipients (n,) of each release (n,); follows release()."""
        if not _deliver(self.charges, release, recipients):
            raise RuntimeError("a release must be sent before its agent yields again")

    def take(self, frontier: float) -> dict[str, Any]:
        """Remove and return the rows earlier than `frontier` s as columns, by (time, release)."""
        used = int(self.charges.n[0])
        ints, floats = self.charges.ints[:used], self.charges.floats[:used]
        early = floats[:, 0] < frontier
        columns = _columns(ints[early], floats[early])
        late_ints, late_floats = ints[~early], floats[~early]
        self.charges.ints[: len(late_ints)] = late_ints
        self.charges.floats[: len(late_floats)] = late_floats
        self.charges.n[0] = len(late_ints)
        return columns


def _empty(capacity: int) -> Charges:
    return Charges(
        np.empty((capacity, 6), np.int64), np.empty((capacity, 4)), np.zeros(1, np.int64)
    )


def _columns(ints: NDArray[np.int64], floats: NDArray[np.float64]) -> dict[str, Any]:
    order = np.lexsort((ints[:, 2], floats[:, 0]))
    ints, floats = ints[order], floats[order]
    return {
        "time": floats[:, 0],
        "agent": ints[:, 0],
        "round": ints[:, 1],
        "release": ints[:, 2],
        "mechanism": pd.Categorical.from_codes(ints[:, 3], MECHANISMS),
        "sensitivity": floats[:, 1],
        "scale": floats[:, 2],
        "sampling": floats[:, 3],
        "seen_by": pd.Categorical.from_codes(ints[:, 4], VIEWS),
        "delivered": ints[:, 5],
    }
