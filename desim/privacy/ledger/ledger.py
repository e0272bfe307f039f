"""The ledger of releases, and the only door to the noise stream: who draws noise writes its row.

A release is a transmitted value computed from private data; its id: `record.release_id`. Views of
an adversary, sensitivities and scales stand in the row, so that every accountant is a replay.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.columns import Columns, Words
from desim.memory import Tree, attributes, recall
from desim.network.timeline.record import RELEASED, Appended, charge, time_order
from desim.numerics.keys import seed_word
from desim.privacy.ledger.charges import charge_each, deliver, let_go, stamp
from desim.privacy.ledger.noise import add_discrete, add_laplace, add_normal, add_spherical
from desim.privacy.ledger.terms import AMOUNTS, MECHANISMS, VIEWS, Mechanism, Terms, View, plain

__all__ = ["AMOUNTS", "MECHANISMS", "VIEWS", "Ledger", "Mechanism", "Terms", "View", "plain"]

NUMBERED = 255 << 24  # step of draws that a method numbers itself: no release comes that far
BESIDE = 1 << 23  # steps of an exchange from which on draws beside its reply's are
WEYL = 0x9E3779B97F4A7C15  # odd: its multiples are keys that differ


class Ledger(Appended):
    """Release rows of a run, in buffers that compiled code appends to.

    whole: keep every row; else a release without noise leaves none once the agent has made one that
    was delivered to the same view: its epsilon is infinite from then on.
    """

    def __init__(self, seed: int, agents: int, whole: bool = True) -> None:
        super().__init__(RELEASED, 1024)
        self.seed = seed_word(seed)
        self.agents = agents
        self._bared = np.zeros((len(View), 0 if whole else agents), bool)
        self.waiting: Array | None = None  # (agents,) s, see `wait`
        self.served: dict[tuple[int, int], tuple[Any, int]] = {}  # by numbered draws

    def release(
        self,
        time: Any,
        who: Any,
        round_: Any,
        exchange: int,
        value: Array,
        terms: Terms,
        where: Any,
        draw: int | None = None,
        kept: bool = False,
    ) -> tuple[Array, Int]:
        """Charge the releases of agents who[r] if where[r]; return (value + noise, release ids).

        value (n, dim); terms hold arrays (n,); exchange: releases of this round before this one,
        so that no draw serves twice. draw: use the noise of this number instead; the same value
        again is the same release, another one is charged as `reused`. Without noise the value comes
        back as it is. kept: what comes of it waits for a message, and the rows wait for `sent`, as
        those of `ahead`.
        """
        place, first = (time, who, round_, exchange), int(self.rows.n[0])
        if terms.mechanism is Mechanism.NONE:
            return value, self.charged(*place, terms, where, kept)
        scale = terms.compiled[2][1]
        if draw is None:
            ids = self.charged(*place, terms, where, kept)
            return self._noisy(who, round_, exchange << 24, value, terms, scale, where), ids
        ids = self.charged(*place, terms, where)
        self._redrawn(draw, who, value, terms, ids, first)
        numbered = np.full_like(round_, draw), NUMBERED
        return self._noisy(who, *numbered, value, terms, scale, where), ids

    def charged(
        self, time: Any, who: Any, round_: Any, exchange: int, terms: Terms, where: Any,
        kept: bool = False,
    ) -> Int:  # fmt: skip
        """Write the rows; return the ids (n,) of the releases, -1 for none. kept: see `sent`."""
        self.reserve(len(who))
        ids, costs, first = np.empty(len(who), np.int64), terms.compiled, int(self.rows.n[0])
        charge_each(self.flat, time, who, round_, exchange, self.agents, costs, where, ids)
        if kept:
            self.rows.floats[first : int(self.rows.n[0]), 0] = np.inf
        return ids

    def ahead(
        self, who: Any, round_: Any, exchange: int, dim: int, terms: Terms, where: Any
    ) -> tuple[Array, Int]:
        """Draw noise (n, dim) that enters a computation, and charge what will come of it.

        The rows wait for `sent` to say when that leaves the agent; until then they cost nothing.
        """
        now = np.zeros(len(who))
        ids = self.charged(now, who, round_, exchange, terms, where, True)
        noise = np.zeros((len(who), dim))
        if terms.mechanism is not Mechanism.NONE:
            scale = terms.compiled[2][1]
            noise = self._noisy(who, round_, exchange << 24, noise, terms, scale, where)
        return noise, ids

    def sent(self, release: Int, time: Any, live: Any) -> None:
        """What came of release[r], drawn ahead or kept, leaves at time[r] s if live[r].

        Until then it costs nothing: what never leaves an agent nobody sees.
        """
        stamp(self.flat, release, time, live)

    def compare(
        self, time: Any, who: Any, round_: Any, exchange: int, margin: Array,
        terms: Terms, query_scale: Any, threshold_scale: Any, where: Any,
    ) -> tuple[Array, Int]:  # fmt: skip
        """Charge noisy comparisons; return (noisy margins (n,), release ids).

        margin (n,): query minus threshold, which get fresh Laplace noise of their scales (n,): each
        of the two makes the answer D/scale-DP, so that terms have the larger one.
        """
        ids = self.charged(time, who, round_, exchange, terms, where)
        nothing = np.zeros((len(who), 2))
        place = self.seed, who, round_, exchange << 24
        noise = add_laplace(*place, np.ones(len(who)), where, nothing)
        return margin + query_scale * noise[:, 0] - threshold_scale * noise[:, 1], ids

    def _noisy(
        self, who: Any, round_: Any, step: int, value: Array, terms: Terms, scale: Array, where: Any
    ) -> Array:
        place = (self.seed, who, round_, step, scale, where, value)
        if terms.mechanism in (Mechanism.LAPLACE, Mechanism.SPARSE_VECTOR):
            return add_laplace(*place)
        if terms.mechanism in (Mechanism.L2_LAPLACE, Mechanism.OBJECTIVE_LAPLACE):
            return add_spherical(*place)
        if terms.mechanism is Mechanism.DISCRETE_GAUSSIAN:
            return add_discrete(*place, terms.resolution)
        return add_normal(*place)

    def _redrawn(
        self, draw: int, who: Any, value: Array, terms: Terms,
        ids: Int, first: int,
    ) -> None:  # fmt: skip
        """Compare with what the noise of this number served before, row by row from `first`."""
        rows = self.rows.ints
        for row, r in enumerate(np.flatnonzero(ids >= 0), first):
            asked = (int(terms.mechanism), float(terms.scale[r]), value[r].tobytes())
            before, release = self.served.setdefault((int(who[r]), draw), (asked, int(ids[r])))
            if before == asked:
                rows[row, 2] = ids[r] = release
            else:
                rows[row, 3] = Mechanism.REUSED

    def noise_key(self, terms: Terms | None, number: int = 0) -> np.uint64:
        """Return the key of in-kernel noise for calls charged with `terms`; refuse all others.

        number: of releases of this round before it: kernels that draw by round alone share none.
        """
        if terms is None or terms.mechanism is Mechanism.NONE:
            raise RuntimeError("noise was asked for by a call that declares no charge")
        return np.uint64((int(self.seed) + number * WEYL) % (1 << 64))

    def noise(self, who: Any, round_: Any, exchange: int, value: Array, terms: Terms) -> Array:
        """Value (n, dim) of charged calls to agents who (n,) with the noise of terms (agents,)."""
        self.noise_key(terms)
        scale, everybody = terms.compiled[2][1][who], np.ones(len(who), bool)
        return self._noisy(who, round_, exchange << 24, value, terms, scale, everybody)

    def beside(self, who: Any, round_: Any, exchange: Int, value: Array, terms: Terms) -> Array:
        """Value (n, dim) that goes beside the replies of charged calls, with the noise of terms.

        exchange (n,): of the calls; terms (agents,). Nothing else draws at these addresses.
        """
        if terms.mechanism is Mechanism.NONE:
            return value
        scale, out = terms.compiled[2][1][who], np.empty_like(value)
        for one in np.unique(exchange).tolist():
            rows = np.flatnonzero(exchange == one)
            place = who[rows], round_[rows], one << 24 | BESIDE, value[rows], terms, scale[rows]
            out[rows] = self._noisy(*place, np.ones(len(rows), bool))
        return out

    def charge_one(
        self, time: float, agent: int, round_: int, release: int, terms: tuple[Any, ...],
        delivered: int,
    ) -> None:  # fmt: skip
        """Write the row of one release whose noise a charged job draws."""
        self.reserve(1)
        mechanism, view, sensitivity, scale, sampling = terms
        charge(
            self.rows, time, agent, round_, release, mechanism, view, delivered,
            sensitivity, scale, sampling,
        )  # fmt: skip

    def delivered(self, release: Int, recipients: Int) -> None:
        """Note that the network serves recipients (n,) of each release (n,); follows release()."""
        if not deliver(self.flat, release, recipients):
            raise RuntimeError("a release must be sent before its agent yields again")

    def wait(self, who: Any, time: Array) -> None:
        """Keep the rows of agents who (n,) from time (n,) s on: their message is not sent yet."""
        if self.waiting is None:
            self.waiting = np.full(self.agents, np.inf)
        self.waiting[who] = np.minimum(self.waiting[who], time)

    def settled(self, frontier: float) -> float:
        """Time s, `frontier` at most, before which every row knows whom it was delivered to."""
        return frontier if self.waiting is None else min(frontier, float(self.waiting.min()))

    def remembered(self) -> Tree:
        """What a checkpoint needs, after a flush; numbered draws are not in it."""
        return super().remembered() | attributes(self, "written waiting _bared")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        super().recall(tree)
        self.waiting = tree.get("waiting")
        recall(self, tree, "written _bared")

    def _fate(self, frontier: float) -> NDArray[np.int8]:
        fate = np.empty(self.rows.n[0], np.int8)
        let_go(self.flat, frontier, self._bared, fate)
        return fate

    @staticmethod
    def columns(ints: Int, floats: Array, first: int) -> Columns:
        """The rows as columns of the releases table, by (time, release)."""
        order = time_order(np.ascontiguousarray(floats[:, 0]), ints[:, 2:3], floats[:, :0])
        time, sensitivity, scale, sampling = floats[order].T
        agent, round_, release, mechanism, view, delivered = ints[order].T
        return {
            "time": time,
            "agent": agent,
            "round": round_,
            "release": release,
            "mechanism": Words(mechanism.astype(np.int8), MECHANISMS),
            "sensitivity": sensitivity,
            "scale": scale,
            "sampling": sampling,
            "seen_by": Words(view.astype(np.int8), VIEWS),
            "delivered": delivered,
        }
