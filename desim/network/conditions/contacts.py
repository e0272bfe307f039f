"""Contact traces: who is near whom and when, as graphs of rounds or links that come and go."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.timeline.messages import Links
from desim.readers import arrays, require_whole

MOST = 1_000_000  # rounds of a trace
NEAR = 1e-6  # of a round
COLUMNS = ("agent", "peer", "begin", "end")


@dataclass(frozen=True)
class Contacts:
    """Pairs (contacts, 2) are in contact from span[:, 0] s up to span[:, 1] s, and again each lap.

    lap s: when all begins again. directed: messages go from pairs[:, 0] to pairs[:, 1] only.
    """

    pairs: Int
    span: Array
    lap: float
    directed: bool = False

    @property
    def agents(self) -> int:
        """How many agents it takes to have those that are named."""
        return int(self.pairs.max()) + 1

    @property
    def edges(self) -> list[tuple[int, int]]:
        """All who ever meet."""
        return [(int(i), int(j)) for i, j in np.unique(self.pairs, axis=0)]

    def slots(self, lasting: float) -> list[list[tuple[int, int]]]:
        """Who meets in slot n, from n `lasting` s on for `lasting` s, however shortly.

        What begins or ends within a millionth of a slot's bounds does so there: times are rounded.
        The last slot may be shorter. InputError where there are too many.
        """
        if self.lap / lasting > MOST:
            text = f"found {lasting:g} s, of which the trace has {self.lap / lasting:.3g}"
            raise InputError(f"network.topology.round: {text}; allowed: at most {MOST}")
        bounds = self.span / lasting
        nearest = np.rint(bounds)
        bounds = np.where(np.abs(bounds - nearest) < NEAR, nearest, bounds)
        last = np.maximum(np.ceil(bounds[:, 1]).astype(np.int64) - 1, 0)
        first = np.minimum(np.floor(bounds[:, 0]).astype(np.int64), last)
        found: list[set[tuple[int, int]]] = [set() for _ in range(int(last.max()) + 1)]
        for pair, begin, end in zip(self.pairs.tolist(), first, last, strict=True):
            for slot in range(begin, end + 1):
                found[slot].add((pair[0], pair[1]))
        return [sorted(one) for one in found]

    def along(self, links: Links) -> Links:
        """The links with a bandwidth that is theirs during contacts, and 0 between them.

        Bits leave while the link is there; those of a message that has not left when it goes wait
        for the next time. InputError for a bandwidth that is infinite or changes by itself.
        """
        rates = links.wires[1]
        if links.plays.shape[1] or not (rates < np.inf).all():
            found = "a trace" if links.plays.shape[1] else "inf"
            text = f"found {found} with links that come and go"
            raise InputError(f"network.link.bandwidth: {text}; allowed: a value, a distribution")
        spans: dict[tuple[int, int], list[tuple[float, float]]] = {}
        for (i, j), (begin, end) in zip(self.pairs.tolist(), self.span.tolist(), strict=True):
            for ends in ((i, j),) if self.directed else ((i, j), (j, i)):
                spans.setdefault(ends, []).append((begin, end))
        parts = [
            _rates(spans[i, j], rate, self.lap)
            for i, j, rate in zip(*links.ends.tolist(), rates.tolist(), strict=True)
        ]
        first = np.cumsum([0, *(part.shape[1] for part in parts)])
        samples = np.ascontiguousarray(np.concatenate(parts, axis=1))
        return links._replace(
            plays=np.array([first[:-1], first[1:] - 1]), samples=samples, loops=True
        )


def _rates(spans: Sequence[tuple[float, float]], rate: float, lap: float) -> Array:
    """Samples (3, n) of a link that has `rate` bit/s during spans (begin s, end s), else none."""
    times, levels = [0.0], [0.0]
    for begin, end in _merged(spans):
        if begin == 0.0:
            levels[0] = rate
        else:
            times.append(begin)
            levels.append(rate)
        if end < lap:
            times.append(end)
            levels.append(0.0)
    time = np.array([*times, lap])
    sent = np.concatenate([[0.0], np.cumsum(np.array(levels) * np.diff(time))])
    return np.array([time, [*levels, 0.0], sent])


def _merged(spans: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """The same times, ascending, without overlaps."""
    found: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((begin, end))
    return found


def switched(
    turns: Sequence[Sequence[tuple[int, int]]], lasting: float, directed: bool
) -> Contacts:
    """Lists of edges, each of which holds for `lasting` s, in turn."""
    rows = [(*pair, n) for n, edges in enumerate(turns) for pair in edges]
    table = np.array(rows, np.int64).reshape(-1, 3)
    begin = table[:, 2] * lasting
    pairs = table[:, :2] if directed else np.sort(table[:, :2], axis=1)
    span = np.column_stack([begin, (table[:, 2] + 1) * lasting])
    return Contacts(pairs, span, len(turns) * lasting, directed)


def recorded(path: Path, where: str) -> Contacts:
    """Contacts of a csv file, or arrays of an npz: agent, peer, begin s, end s, in any order.

    InputError at `where` for anything else, a loop, or a contact that does not end after its begin.
    """
    found = arrays(path, where, COLUMNS)
    if not {*COLUMNS} <= {*found}:
        names = ", ".join(found) or "nothing that is numbers"
        raise InputError(f"{where}: found {names}; allowed: {', '.join(COLUMNS)}")
    if len({found[name].shape for name in COLUMNS}) > 1 or found["agent"].ndim != 1:
        shapes = ", ".join(str(found[name].shape) for name in COLUMNS)
        raise InputError(f"{where}: found shapes {shapes}; allowed: equal lengths")
    if not len(found["agent"]):
        raise InputError(f"{where}: found no contact; allowed: at least one")
    _faultless(found, where)
    pairs = np.sort(np.column_stack([found["agent"], found["peer"]]).astype(np.int64), axis=1)
    span = np.column_stack([found["begin"], found["end"]]) - found["begin"].min()
    return Contacts(pairs, span, float(span.max()))


def _faultless(found: Mapping[str, Array], where: str) -> None:
    i, j, begin, end = (found[name] for name in COLUMNS)
    for name in ("agent", "peer"):
        require_whole(found[name], name, where, 0, 2**27 - 1, "whole numbers from 0 on")
    if len(wrong := np.flatnonzero(i == j)):
        text = f"found agent {i[wrong[0]]:g} with itself in row {wrong[0]}"
        raise InputError(f"{where}: {text}; allowed: two different agents")
    if len(wrong := np.flatnonzero(~(np.isfinite(begin) & np.isfinite(end) & (begin < end)))):
        text = f"found begin {begin[wrong[0]]:g} and end {end[wrong[0]]:g} in row {wrong[0]}"
        raise InputError(f"{where}: {text}; allowed: an end after the begin, in s")
