"""The ledger of releases, and the only door to the noise stream: who draws noise writes its row.

A release is a transmitted value computed from private data. Its id is round * agents + agent. Views
of an adversary, sensitivities and scales stand in the row, so that every accountant is a replay.
"""

from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.columns import Deferred, Words
from desim.kernels.clients import charge
from desim.kernels.order import time_order
from desim.keys import seed_word
from desim.memory import Tree, fill, recall, told
from desim.privacy.charges import charge_each, deliver, empty, part, stamp
from desim.privacy.draws import add_discrete, add_laplace, add_normal, add_spherical

NUMBERED = 255 << 24  # step of draws that a method numbers itself: no exchange comes that far


class Mechanism(IntEnum):
    """How a release was randomised, and what sensitivity D and scale s of its row mean.

    gaussian: L2 and standard deviation, (D/s)-GDP; noisy-gradient: the same for the end of a noisy
    training, D being the effective sensitivity; laplace: L1 and b; discrete-gaussian: L2 on a
    lattice, zCDP D^2/(2 s^2); objective-perturbation: noise on the objective that is minimised,
    zCDP D^2/(2 s^2) and a rest of 1e-8; sparse-vector: one noisy comparison, pure DP D/s; reused: a
    noise draw that has served another value, infinite; l2-laplace: density exp(-||e||/s), L2, pure
    DP D/s; objective-laplace: the same on an objective; none: infinite unless D = 0.
    """

    NONE = 0
    GAUSSIAN = 1
    NOISY_GRADIENT = 2
    LAPLACE = 3
    DISCRETE_GAUSSIAN = 4
    OBJECTIVE_PERTURBATION = 5
    SPARSE_VECTOR = 6
    REUSED = 7
    L2_LAPLACE = 8
    OBJECTIVE_LAPLACE = 9


class View(IntEnum):
    """Who receives a release."""

    COORDINATOR = 0
    NEIGHBOURS = 1
    PUBLIC = 2


@dataclass(frozen=True)
class Terms:
    """What one release of each agent costs, arrays (agents,).

    sensitivity: replace-one, of the value before noise, in the norm of the mechanism (inf:
    unbounded); scale: of the noise per coordinate in the same unit; sampling: fraction of the rows
    used, nan for all; resolution: distance of the levels of discrete noise; coupled: bound on the
    L2 difference of two values with the same noise inside, None where it is the sensitivity.
    """

    mechanism: Mechanism
    view: View
    sensitivity: NDArray[np.float64]
    scale: NDArray[np.float64]
    sampling: NDArray[np.float64]
    resolution: float = 0.0
    coupled: NDArray[np.float64] | None = None

    def of(self, who: Any) -> "Terms":
        """Rows (n,) of agents who (n,)."""
        coupled = None if self.coupled is None else self.coupled[who]
        rows = self.sensitivity[who], self.scale[who], self.sampling[who]
        return Terms(self.mechanism, self.view, *rows, self.resolution, coupled)

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


MECHANISMS = [one.name.lower().replace("_", "-") for one in Mechanism]
VIEWS = [one.name.lower() for one in View]


class Ledger:
    """Release rows of a run, in buffers that compiled code appends to.

    whole: keep every row; else a release without noise leaves none once the agent has made one that
    was delivered to the same view: its epsilon is infinite from then on.
    """

    def __init__(self, seed: int, agents: int, whole: bool = True) -> None:
        self.seed = seed_word(seed)
        self.agents = agents
        self._told = np.zeros((len(View), 0 if whole else agents), bool)
        self.charges = empty(1024)
        self.waiting: NDArray[np.float64] | None = None  # (agents,) s, see `wait`
        self.served: dict[tuple[int, int], tuple[Any, int]] = {}  # by numbered draws

    def reserve(self, rows: int) -> None:
        """Make room for `rows` more rows."""
        used = int(self.charges.n[0])
        if used + rows > len(self.charges.ints):
            larger = empty(2 * (used + rows))
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
        draw: int | None = None,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Charge the releases of agents who[r] if where[r]; return (value + noise, release ids).

        value (n, dim); terms hold arrays (n,); exchange: releases of this round before this one,
        so that no draw serves twice. draw: use the noise of this number instead; the same value
        again is the same release, another one is charged as `reused`. Without noise the value comes
        back as it is.
        """
        self.reserve(len(who))
        ids, first = np.empty(len(who), np.int64), int(self.charges.n[0])
        costs = terms.compiled
        charge_each(self.charges, time, who, round_, exchange, self.agents, costs, where, ids)
        if terms.mechanism is Mechanism.NONE:
            return value, ids
        if draw is None:
            return self._noisy(who, round_, exchange << 24, value, terms, where), ids
        self._redrawn(draw, who, value, terms, ids, first)
        return self._noisy(who, np.full_like(round_, draw), NUMBERED, value, terms, where), ids

    def ahead(
        self, who: Any, round_: Any, exchange: int, dim: int, terms: Terms, where: Any
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Draw noise (n, dim) that enters a computation, and charge what will come of it.

        The rows wait for `sent` to say when that leaves the agent; until then they cost nothing.
        """
        first, now = int(self.charges.n[0]), np.zeros(len(who))
        noise, ids = self.release(
            now, who, round_, exchange, np.zeros((len(who), dim)), terms, where
        )
        self.charges.floats[first : int(self.charges.n[0]), 0] = np.inf
        return noise, ids

    def sent(self, release: NDArray[np.int64], time: Any, live: Any) -> None:
        """What came of the noise of release[r], drawn ahead, leaves at time[r] s if live[r]."""
        stamp(self.charges, release, time, live)

    def compare(
        self, time: Any, who: Any, round_: Any, exchange: int, margin: NDArray[np.float64],
        terms: Terms, query_scale: Any, threshold_scale: Any, where: Any,
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:  # fmt: skip
        """Charge noisy comparisons; return (noisy margins (n,), release ids).

        margin (n,): query minus threshold, which get fresh Laplace noise of their scales (n,): each
        of the two makes the answer D/scale-DP, so that terms have the larger one.
        """
        self.reserve(len(who))
        ids, nothing = np.empty(len(who), np.int64), np.zeros((len(who), 2))
        costs = terms.compiled
        charge_each(self.charges, time, who, round_, exchange, self.agents, costs, where, ids)
        place = self.seed, who, round_, exchange << 24
        noise = add_laplace(*place, np.ones(len(who)), where, nothing)
        return margin + query_scale * noise[:, 0] - threshold_scale * noise[:, 1], ids

    def _noisy(
        self, who: Any, round_: Any, step: int, value: NDArray[np.float64], terms: Terms, where: Any
    ) -> NDArray[np.float64]:
        place = (self.seed, who, round_, step, terms.scale, where, value)
        if terms.mechanism in (Mechanism.LAPLACE, Mechanism.SPARSE_VECTOR):
            return add_laplace(*place)
        if terms.mechanism in (Mechanism.L2_LAPLACE, Mechanism.OBJECTIVE_LAPLACE):
            return add_spherical(*place)
        if terms.mechanism is Mechanism.DISCRETE_GAUSSIAN:
            return add_discrete(*place, terms.resolution)
        return add_normal(*place)

    def _redrawn(
        self, draw: int, who: Any, value: NDArray[np.float64], terms: Terms,
        ids: NDArray[np.int64], first: int,
    ) -> None:  # fmt: skip
        """Compare with what the noise of this number served before, row by row from `first`."""
        rows = self.charges.ints
        for row, r in enumerate(np.flatnonzero(ids >= 0), first):
            told = (int(terms.mechanism), float(terms.scale[r]), value[r].tobytes())
            before, release = self.served.setdefault((int(who[r]), draw), (told, int(ids[r])))
            if before == told:
                rows[row, 2] = ids[r] = release
            else:
                rows[row, 3] = Mechanism.REUSED

    def noise_key(self, terms: Terms | None) -> np.uint64:
        """Return the key of in-kernel noise for calls charged with `terms`; refuse all others."""
        if terms is None or terms.mechanism is Mechanism.NONE:
            raise RuntimeError("noise was asked for by a call that declares no charge")
        return np.uint64(self.seed)

    def noise(
        self, who: Any, round_: Any, exchange: int, value: NDArray[np.float64], terms: Terms
    ) -> NDArray[np.float64]:
        """Value (n, dim) of charged calls to agents who (n,) with the noise of terms (agents,)."""
        self.noise_key(terms)
        mine, everybody = replace(terms, scale=terms.scale[who]), np.ones(len(who), bool)
        return self._noisy(who, round_, exchange << 24, value, mine, everybody)

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
        if not deliver(self.charges, release, recipients):
            raise RuntimeError("a release must be sent before its agent yields again")

    def wait(self, who: Any, time: NDArray[np.float64]) -> None:
        """Keep the rows of agents who (n,) from time (n,) s on: their message is not sent yet."""
        if self.waiting is None:
            self.waiting = np.full(self.agents, np.inf)
        self.waiting[who] = np.minimum(self.waiting[who], time)

    def settled(self, frontier: float) -> float:
        """Time s, `frontier` at most, before which every row knows whom it was delivered to."""
        return frontier if self.waiting is None else min(frontier, float(self.waiting.min()))

    def take(self, frontier: float) -> Deferred:
        """Remove and return the rows earlier than `frontier` s as columns, by (time, release)."""
        gone = self.charges
        early = self.drop(frontier)
        return Deferred(early, partial(_columns, gone.ints[:early], gone.floats[:early]))

    def drop(self, frontier: float) -> int:
        """Remove the rows earlier than `frontier` s; return how many."""
        gone = self.charges
        self.charges = empty(len(gone.ints))
        return int(part(tuple(gone), frontier, self._told, tuple(self.charges)))

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush; numbered draws are not in it."""
        ints, floats, n = self.charges
        return {"ints": ints[: n[0]], "floats": floats[: n[0]]} | told(self, "waiting _told")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.reserve(used := len(tree["ints"]))
        fill(self.charges.ints[:used], tree["ints"])
        fill(self.charges.floats[:used], tree["floats"])
        self.charges.n[0] = used
        self.waiting = tree.get("waiting")
        recall(self, tree, "_told")


def _columns(ints: NDArray[np.int64], floats: NDArray[np.float64]) -> dict[str, Any]:
    order = time_order(np.ascontiguousarray(floats[:, 0]), ints[:, 2:3])
    ints, floats = ints[order], floats[order]
    return {
        "time": floats[:, 0],
        "agent": ints[:, 0],
        "round": ints[:, 1],
        "release": ints[:, 2],
        "mechanism": Words(ints[:, 3].astype(np.int8), MECHANISMS),
        "sensitivity": floats[:, 1],
        "scale": floats[:, 2],
        "sampling": floats[:, 3],
        "seen_by": Words(ints[:, 4].astype(np.int8), VIEWS),
        "delivered": ints[:, 5],
    }
