"""Sums of a trusted coordinator: who sees nothing else, and which of them hold what agents said.

A reply to a call is in the sums of its round that came after it, or, where it came late, in that
which a row of its own names. An agent is charged for those alone: others do not depend on its data,
once it is known who was in which. Where that stays secret all agents are charged for all of them,
at the price of a sum that an agent may be in (amplification by sampling).
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from desim.arrays import Mask
from desim.columns import Columns, Pieces, Words, gathered, joined, rows_of
from desim.network.timeline.record import SUMMED, WHOLE, release_id
from desim.privacy.accounting.prices import OF_AGENTS, SECURE, SUMS
from desim.privacy.accounting.views import MODELS, Adversary
from desim.privacy.correlated.charged import ONE_RELEASE, chained, correlated
from desim.privacy.ledger.mechanisms import MECHANISMS, VIEWS, Mechanism, View

NAMES = [MECHANISMS[one] for one in SUMS]
REPLY = (1 << 48 + 8) - 1  # of a late reply's row: the exchange, round and agent of the reply
LEFT_OUT = "one record of one agent is left out, and its reply is any other one of norm up to clip"
TRUSTED = "the coordinator is trusted: it and who reads its lines see changes without noise"


def summed(pieces: Pieces) -> Columns:
    """The rows of whole sums, which are no agent's."""
    return gathered(pieces, lambda rows: rows["agent"] < 0)


def of_sums(rows: Columns) -> Mask:
    """Which rows (n,) are of sums, or of late replies in them."""
    return np.asarray(np.any([rows["mechanism"].equal(name) for name in NAMES], axis=0))


def secured(sums: Columns) -> bool:
    """Whether nobody sees but sums: those of whole numbers that agents mask."""
    return any(sums["mechanism"].equal(MECHANISMS[one]).any() for one in SECURE)


def replies(rows: Columns) -> Columns:
    """The rows of agents' replies themselves."""
    return rows_of(rows, ~of_sums(rows))


def held(rows: Columns, sums: Columns) -> Columns:
    """For replies of agents the rows of the sums that hold them; rows: of replies, late ones too.

    A reply that was lost is in none, nor is one that no data moves, such as one of keys. One that
    was sent before the sum of its round and came after it, to be dropped, is charged as if it were
    in it: an upper bound.
    """
    late = of_sums(rows)
    known = rows["release"][late] & REPLY
    fresh = ~late & (rows["delivered"] > 0) & ~np.isin(rows["release"], known)
    fresh &= np.asarray(rows["sensitivity"], float) > 0.0
    entire = np.flatnonzero(sums["release"] >> 48 & WHOLE)  # else each part has a row of its own
    order = entire[np.argsort(sums["round"][entire], kind="stable")]
    own, rounds = np.flatnonzero(fresh), sums["round"][order]
    low, high = (np.searchsorted(rounds, rows["round"][own], side) for side in ("left", "right"))
    number = high - low
    reply = np.repeat(own, number)
    begin = np.repeat(np.cumsum(number) - number, number)
    place = order[np.repeat(low, number) + np.arange(len(reply)) - begin]
    inside = rows["time"][reply] <= sums["time"][place]
    reply, place = reply[inside], place[inside]
    found = rows_of(sums, place)
    found["agent"] = rows["agent"][reply]
    mark = (found["release"] >> 48 & 0xF00) | SUMMED  # the number of the sum in its round
    found["release"] = rows["release"][reply] | mark << 48
    found = joined([found, rows_of({name: rows[name] for name in found}, late)])
    return chained(found, sums) if correlated(sums) else found


def law_of(sums: Columns, relation: str) -> str:
    """By which draw of agents all sums are amplified under a relation; empty for none."""
    used = {sums["mechanism"].words[code] for code in np.unique(sums["mechanism"].codes)}
    share = np.asarray(sums["sampling"], float)
    if len(used) != 1 or not ((share > 0.0) & (share < 1.0)).all():
        return ""
    (name,) = used
    left_out, subset = relation == "add-or-remove-agent", MECHANISMS[Mechanism.SUBSET_SUM]
    drawn = (MECHANISMS[Mechanism.POISSON_SUM],) if left_out else (subset,)
    return name if name in drawn and relation != "add-or-remove-one" else ""


def of_anybody(sums: Columns, who: Adversary, agents: int) -> Columns:
    """The sums as releases of an agent 0 that may be in any of them.

    Whoever is an agent knows whether it was invited: of a fixed number so many, or all, are others.
    """
    rows = dict(sums)
    rows["agent"] = np.zeros(len(sums["agent"]), np.int64)
    others = agents - max(len(who.agents), who.kind == "participants")
    subset = sums["mechanism"].equal(MECHANISMS[Mechanism.SUBSET_SUM])
    wider = np.minimum(sums["sampling"] * agents / max(others, 1), 1.0)
    rows["sampling"] = np.where(subset, wider, sums["sampling"])
    return rows


def remarks(
    sums: Columns, who: Adversary, relation: str, delta: float, agents: int
) -> Iterator[str]:
    """What a reader of an epsilon of sums has to know."""
    if secured(sums) and who.agents:
        yield f"optimistic: {who} knows its shares of the noise, which hide nothing from it"
    if who.kind not in MODELS and not secured(sums):
        yield TRUSTED
        return
    share = np.asarray(sums["sampling"], float)
    if (share < 1.0).any() and not law_of(sums, relation):
        name = sums["mechanism"].words[int(sums["mechanism"].codes[0])]
        yield f"no amplification: no theorem is used for {name} under {relation}"
    if relation in OF_AGENTS and delta * agents >= 1.0:
        yield f"delta {delta:g} is not below 1 / agents: there are {agents} only"


def premises(law: str, sums: Columns, masked: bool = False) -> Iterator[str]:
    """What an account of sums takes for granted; law: by which draw they are amplified.

    masked: whether agents mask what they reply.
    """
    if correlated(sums):
        yield ONE_RELEASE
    if masked:
        yield "masks hold: fewer than a threshold collude with a coordinator that does as it should"
        yield "who looks knows no share of the noise; an agent knows its own, one of those in a sum"
    else:
        yield "the coordinator is trusted with changes before noise, and so are its lines"
    yield "who is called when, what is lost or late, and when, depends on no data"
    if law == MECHANISMS[Mechanism.POISSON_SUM]:
        yield "who is in a sum is drawn for each agent by itself and stays secret, also to clocks"
    elif law:
        yield "who is in a sum is drawn without replacement, and stays secret, also to clocks"


# What is planned, as a table of releases.

Terms = tuple[int, float, float, float]  # mechanism, sensitivity, scale, sampling


def table_of_sums(terms: Sequence[Terms], who: int, agents: int) -> Columns:
    """Sums of these terms, a round each, to which agents 0 .. who - 1 of so many reply."""
    law, *amounts = (np.array(column) for column in zip(*terms, strict=True))
    k = np.arange(1, len(terms) + 1)
    rounds, replied = np.repeat(k, who), np.tile(np.arange(who), len(k))
    nothing = np.zeros(len(rounds))

    def both(sums: Any, replies: Any) -> Any:
        return np.concatenate([sums, replies])

    codes = both(law, nothing + Mechanism.NONE).astype(np.int8)
    views = both(0 * k + View.PUBLIC, nothing + View.COORDINATOR).astype(np.int8)
    marked = release_id(agents, 0, k, SUMMED | WHOLE)
    return {
        "time": both(k, rounds).astype(float), "round": both(k, rounds),
        "agent": both(0 * k - 1, replied),
        "release": both(marked, release_id(agents, replied, rounds, 0)),
        "mechanism": Words(codes, MECHANISMS), "seen_by": Words(views, VIEWS),
        "sensitivity": both(amounts[0], nothing + np.inf), "scale": both(amounts[1], nothing),
        "sampling": both(amounts[2], nothing + np.nan),
        "delivered": np.ones(len(k) + len(rounds), np.int64),
    }  # fmt: skip
