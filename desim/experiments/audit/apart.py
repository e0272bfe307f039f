"""In what two plays with one transcript differ beyond what noise covers, if they do.

A replay lets go out what was recorded. What an agent sends is then a function of public things, and
so are its times, sizes and silences; where one of them differs, no noise stands between the data
and who sees it, and the likelihood ratio is infinite. What was released counts as seen.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from desim.experiments.audit.transcript import Released, Sent, Transcript

Bool = NDArray[np.bool_]
ROUNDING = 1e-12  # of the numbers compared
TOGETHER = 64  # batches of messages that are compared at once
RELEASES = "releases or messages that are made with one and not with the other data"
TRAFFIC = "times, sizes or silences that depend on data"
MESSAGES = "messages that are no function of what was released"
ENDS = "runs that fail, or tell what is no number, with one and not with the other data"
KINDS = (RELEASES, TRAFFIC, MESSAGES, ENDS)


def apart(first: Transcript, second: Transcript, agents: Bool) -> str:
    """What of `agents` (agents,) tells a play from its replay on other data; empty if nothing.

    Who sees a run sees whether it fails, whatever the view.
    """
    if first.failed != second.failed or any(
        _unlike(*one, agents) for one in aligned(first, second)
    ):
        return ENDS
    if len(first.releases) != len(second.releases) or second.apart:
        return RELEASES
    if len(first.messages) != len(second.messages):
        return TRAFFIC
    pairs = list(zip(first.messages, second.messages, strict=True))
    found = ""
    for begin in range(0, len(pairs), TOGETHER):
        block = pairs[begin : begin + TOGETHER]
        if _same(block):
            continue
        if any(_moved(*one, agents) for one in block):
            return TRAFFIC
        if any((beyond(*one) & agents[one[0].who]).any() for one in block):
            found = MESSAGES
    return found


def _same(block: list[tuple[Sent, Sent]]) -> bool:
    """Whether messages are the same to the last bit, and in all that is seen of them."""
    if any(mine.payload.shape != theirs.payload.shape for mine, theirs in block):
        return False
    sides = zip(*block, strict=True)
    mine, theirs = (
        [(one.who, *one.traffic, one.payload.ravel()) for one in side] for side in sides
    )
    columns = zip(zip(*mine, strict=True), zip(*theirs, strict=True), strict=True)
    return all(np.array_equal(np.concatenate(a), np.concatenate(b)) for a, b in columns)


def _moved(mine: Sent, theirs: Sent, agents: Bool) -> bool:
    """Whether messages of `agents` go out at other times, in another size, or not at all."""
    if mine.payload.shape != theirs.payload.shape or not np.array_equal(mine.who, theirs.who):
        return True
    seen = zip(mine.traffic, theirs.traffic, strict=True)
    return any(bool(((a != b) & agents[mine.who]).any()) for a, b in seen)


def _unlike(mine: Released, theirs: Released, agents: Bool) -> bool:
    """Whether values of `agents` that noise is added to are numbers in one play only."""
    one, other = (np.isfinite(batch.value).all(axis=1) for batch in (mine, theirs))
    out = (mine.release >= 0) & (theirs.release >= 0) & agents[mine.who]
    return bool(((one != other) & out).any())


def beyond(mine: Sent, theirs: Sent) -> Bool:
    """Which messages (n,) of two batches of one shape differ by more than rounding."""
    a, b = mine.payload, theirs.payload
    if a is b or np.array_equal(a, b):
        return np.zeros(len(a), bool)
    moved = np.linalg.norm(b - a, axis=1)
    return np.asarray(~(moved <= rounding(a)))


def rounding(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """What rounding may move vectors (n, dim) by, (n,) in L2."""
    return np.asarray(ROUNDING * np.linalg.norm(values, axis=1))


def aligned(first: Transcript, second: Transcript) -> Iterator[tuple[Released, Released]]:
    """Batches of releases of the same agents and ids in both plays, up to where they part."""
    for mine, theirs in zip(first.releases, second.releases, strict=False):
        same = mine.output.shape == theirs.output.shape
        if not (same and np.array_equal(mine.who, theirs.who)):
            return
        yield mine, theirs
