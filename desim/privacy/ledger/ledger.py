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
from desim.network.timeline.record import (
    DROPPED,
    LEAVES,
    RELEASED,
    STAYS,
    Appended,
    Rows,
    charge,
    release_id,
    time_order,
)
from desim.network.timeline.together import TOGETHER, normal_pairs
from desim.numerics.jit import kernel, lean_inline, lean_kernel
from desim.numerics.keys import (
    Stream,
    address,
    counter,
    exponential,
    laplace,
    normal,
    seed_word,
    words,
)
from desim.privacy.ledger.mechanisms import (
    AMOUNTS,
    MECHANISMS,
    VIEWS,
    Mechanism,
    Terms,
    View,
    plain,
)

# Release rows, as compiled code appends and changes them: charge, serve, stamp, let go.


@lean_kernel
def charge_each(
    charges: Any, time: Any, who: Any, round_: Any, exchange: int, agents: int, terms: Any,
    where: Any, release: Any,
) -> None:  # fmt: skip
    """Append a row for each agent who[r] if where[r]; fill release (n,) with ids, else -1.

    charges: Rows as a plain tuple, here and below.
    """
    rows = Rows(*charges)
    mechanism, view, amounts = terms
    for r in range(who.shape[0]):
        release[r] = -1
        if where[r] and time[r] < np.inf:
            i, k = who[r], round_[r]
            release[r] = release_id(agents, i, k, exchange)
            sensitivity, scale, sampling = amounts[0, r], amounts[1, r], amounts[2, r]
            charge(
                rows, time[r], i, k, release[r], mechanism, view, 0, sensitivity, scale, sampling
            )  # fmt: skip


@lean_kernel
def deliver(charges: Any, release: Any, delivered: Any) -> bool:
    """Add the recipients of release[r]; both run in one order, the newest rows at the end."""
    ints, _, _, n = charges
    row = n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and ints[row, 2] != release[r]:
            row -= 1
        if row < 0:
            return False
        ints[row, 5] += delivered[r]
    return True


@lean_kernel
def stamp(charges: Any, release: Any, time: Any, live: Any) -> None:
    """Rows of noise drawn ahead happen at time[r] s, when what came of it is sent."""
    ints, floats, _, n = charges
    row = n[0] - 1
    for r in range(release.shape[0] - 1, -1, -1):
        if release[r] < 0:
            continue
        while row >= 0 and ints[row, 2] != release[r]:
            row -= 1
        if row >= 0 and live[r]:
            floats[row, 0] = time[r]


@lean_kernel
def let_go(charges: Any, frontier: float, bared: Any, fate: Any) -> None:
    """Say which rows leave, fate (n,): those earlier than `frontier` s.

    bared (views, agents), empty to keep all rows: whom a release without noise has laid open; a
    second one tells nobody anything worse, and its row is dropped.
    """
    ints, floats, _, n = charges
    for row in range(n[0]):
        fate[row] = LEAVES if floats[row, 0] < frontier else STAYS
        exposes = ints[row, 3] == 0 and floats[row, 1] > 0.0 and ints[row, 5] > 0
        if bared.shape[1] and fate[row] == LEAVES and exposes:
            view, agent = ints[row, 4], ints[row, 0]
            if bared[view, agent]:
                fate[row] = DROPPED
            bared[view, agent] = True


# Noise of releases, drawn at addresses (stream noise, agent, round, step; coordinate).


NOISE = int(Stream.NOISE)


@lean_inline
def _place(who: Any, round_: Any, step: int, first: int, last: int, places: Any) -> int:
    """Fill places with blocks first .. last - 1 of every row; return how many there are."""
    p = 0
    for r in range(who.shape[0]):
        k1, c0 = address(NOISE, who[r], -1), counter(round_[r], step)
        for block in range(first, last):
            places[0, p], places[1, p], places[2, p] = k1, c0, block
            p += 1
    return p


@kernel
def normal_into(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                out: Any) -> None:  # fmt: skip
    """Draws of many agents, TOGETHER pairs at once: as many rows as have them, or part of one."""
    dim, n = value.shape[1], who.shape[0]
    width = (dim + 1) // 2
    rows = max(1, TOGETHER // max(1, width))
    places, pairs = np.empty((3, TOGETHER), np.uint64), np.empty((2, TOGETHER))
    for low in range(0, n, rows):
        high = min(low + rows, n)
        for first in range(0, width, TOGETHER):
            last = min(first + TOGETHER, width)
            drawn = _place(who[low:high], round_[low:high], step, first, last, places)
            normal_pairs(seed, places, pairs[:, :drawn])
            p = 0
            for r in range(low, high):
                if not where[r]:
                    out[r] = value[r]
                    p += last - first
                    continue
                for j in range(first, last):
                    out[r, 2 * j] = value[r, 2 * j] + scale[r] * pairs[0, p]
                    if 2 * j + 1 < dim:
                        out[r, 2 * j + 1] = value[r, 2 * j + 1] + scale[r] * pairs[1, p]
                    p += 1


@kernel
def laplace_into(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                 out: Any) -> None:  # fmt: skip
    """As `add_laplace`."""
    for r in range(who.shape[0]):
        k1 = address(NOISE, who[r], -1)
        c0 = counter(round_[r], step)
        for j in range(value.shape[1]):
            out[r, j] = value[r, j]
            if where[r]:
                out[r, j] += scale[r] * laplace(seed, k1, c0, j)


def add_normal(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus scale (n,) times N(0, I) in the rows `where` (n,)."""
    out = np.empty_like(value)
    normal_into(seed, who, round_, step, scale, where, value, out)
    return out


def add_laplace(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus independent Laplace noise of scale b (n,) in the rows `where` (n,)."""
    out = np.empty_like(value)
    laplace_into(seed, who, round_, step, scale, where, value, out)
    return out


@kernel
def _add_spherical(seed: Any, who: Any, round_: Any, step: int, scale: Any, where: Any, value: Any,
                   out: Any) -> None:  # fmt: skip
    for r in range(who.shape[0]):
        c0, k1 = counter(round_[r], step), address(NOISE, who[r], -1)
        length, radius = 0.0, 0.0
        for j in range(value.shape[1]):
            out[r, j] = normal(seed, k1, c0, j)
            length += out[r, j] * out[r, j]
            radius += exponential(seed, address(NOISE, who[r], who[r]), c0, j)
        size = scale[r] * radius / np.sqrt(length) if where[r] else 0.0
        for j in range(value.shape[1]):
            out[r, j] = value[r, j] + size * out[r, j]


def add_spherical(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array
) -> Array:
    """Value (n, dim) plus noise of density exp(-||e|| / scale) in the rows `where` (n,).

    A uniform direction times scale (n,) times Gamma(dim, 1), which is a sum of dim exponentials;
    these have the agent as their peer.
    """
    out = np.empty_like(value)
    _add_spherical(seed, who, round_, step, scale, where, value, out)
    return out


def add_discrete(
    seed: Any, who: Int, round_: Int, step: int, scale: Array, where: Any, value: Array,
    resolution: float,
) -> Array:  # fmt: skip
    """Value (n, dim) rounded to multiples of `resolution`, plus resolution N_Z(0, s^2), exactly.

    s = scale / resolution (n,): the deviation in levels; only the rows `where` (n,) get noise.
    """
    from desim.numerics import discrete_gaussian

    levels = np.rint(value / resolution)
    deviation = np.where(where, scale / resolution, 0.0)
    _, k1, c0, _ = words(0, NOISE, agent=who, round=round_, step=step)
    noise = discrete_gaussian.draws(seed, k1, c0, deviation, value.shape[1])
    return np.asarray(resolution * (levels + noise))


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
        self.chained: Any = None  # what noise remembers that is correlated over rounds

    def keep(self) -> None:
        """Keep every row, before there is any."""
        self._bared = self._bared[:, :0].copy()

    def release(
        self, time: Any, who: Any, round_: Any, exchange: int, value: Array, terms: Terms,
        where: Any, draw: int | None = None, kept: bool = False,
    ) -> tuple[Array, Int]:  # fmt: skip
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
        if terms.mechanism is Mechanism.CHAINED_GAUSSIAN:
            from desim.privacy.ledger.chains import Chains

            self.chained = self.chained or Chains(self.agents)
            return np.asarray(self.chained.added(*place[1:], terms.chain, self.draws))
        if terms.mechanism in (Mechanism.LAPLACE, Mechanism.SPARSE_VECTOR):
            return add_laplace(*place)
        if terms.mechanism in (Mechanism.L2_LAPLACE, Mechanism.OBJECTIVE_LAPLACE):
            return add_spherical(*place)
        if terms.mechanism is Mechanism.DISCRETE_GAUSSIAN:
            return add_discrete(*place, terms.resolution)
        return add_normal(*place)

    def draws(self, who: Int, round_: Int, number: int, dim: int) -> Array:
        """So many independent draws (number, n, dim) of agents who (n,) in rounds (n,), N(0, 1)."""
        rows = np.ones(len(who)), np.ones(len(who), bool), np.zeros((len(who), dim))
        return np.array([add_normal(self.seed, who, round_, h, *rows) for h in range(number)])

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
