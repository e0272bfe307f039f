"""What several runs cost together, for whoever sees all of them, and accounts as plain values.

Runs on the same data add up, and so do runs of which nobody can tell whether their data overlap.
Runs that draw noise at the same addresses (seed, agent, round, exchange) share that noise: where
their values or scales differ, a difference of messages shows them in the clear. The same run twice
is one.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from desim.columns import gathered
from desim.errors import DesimError, InputError
from desim.privacy.accounting.accountants import Block
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.loss_distribution import spent
from desim.privacy.accounting.prices import LOST, NOTHING, Tally, dearest
from desim.privacy.accounting.risk import Risk, of_tally
from desim.privacy.accounting.views import (
    Signs,
    adversary,
    assumptions,
    flags,
    require_seen,
)
from desim.runs.allowance import allowed, stand_in
from desim.runs.likeness import same_data, same_noise, same_run, same_seed, same_values, unrelated
from desim.runs.premises import plugged, readable_terms, real, stored, trusted, void
from desim.runs.privacy import Statement, views_of
from desim.runs.run import (
    RELEASED,
    One,
    Run,
    arrivals,
    as_run,
    doubts,
    require_known,
    with_coordinator,
)
from desim.tabulated import each_once

FIXED = "which runs are made, and with which settings, was fixed before the first of them"
Addresses = dict[int, frozenset[int]]  # rounds and exchanges of noise, by agent


class Joint(NamedTuple):
    """What all runs cost together for one view; agent: who spends most, in its run's numbering."""

    view: str
    relation: str
    delta: float
    epsilon: float
    agent: int
    method: str
    risk: Risk
    assumptions: tuple[str, ...]
    flags: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Charged:
    """What a view is charged for in one run: its agents' sums, their noise, and what to say.

    anybody: what a record costs that may be with any of the agents, or with all.
    """

    label: str
    run: Run
    agents: Mapping[int, Tally]
    anybody: Tally
    noise: Addresses
    signs: Signs
    flags: tuple[str, ...]


def joint(
    runs: Sequence[One], delta: float | None = None, view: str | None = None,
    relation: str | None = None,
) -> list[Joint]:  # fmt: skip
    """Account for runs together, for a view, or for each that applies to all of them.

    InputError where the runs' scenarios state delta or relation differently and none is given, or
    for terms that have no meaning for one of them.
    """
    if not runs:
        raise InputError("no run to account for")
    found = [as_run(run) for run in runs]
    terms = [readable_terms(run) for run in found]
    delta = _agreed("delta", delta, [one.delta for one in terms])
    relation = _agreed("relation", relation, [one.relation for one in terms])
    check_delta(delta)
    single, repeated = _once(found)
    star = all(with_coordinator(run) for _, run in single)
    views = [view] if view is not None else views_of(star)
    return [_joint(single, repeated, delta, str(one), relation) for one in views]


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for each run, by which it can be told from the others."""
    names = [str(run.directory) if run.directory else run.name for run in runs]
    twice = len(set(names)) < len(names)
    return [f"{name} ({k})" if twice else name for k, name in enumerate(names, 1)]


def _agreed(name: str, asked: Any, stated: Sequence[Any]) -> Any:
    """What is asked for, or what all runs state."""
    if asked is None and len(set(stated)) > 1:
        found = " and ".join(f"{one}" for one in dict.fromkeys(stated))
        raise InputError(f"{name}: the runs state {found}; allowed: one for all, by --{name}")
    return stated[0] if asked is None else asked


def _once(runs: Sequence[Run]) -> tuple[list[tuple[str, Run]], list[str]]:
    """Each run once with its label, that of which most is known of those that are one; and that."""
    found: list[tuple[str, Run]] = []
    repeated = []
    named = list(zip(labels(runs), runs, strict=True))
    known = []
    for run in runs:  # a test is not its simulation
        pieces = run.store.pieces("releases", ["delivered"])
        arrived = sum(int((rows["delivered"] > 0).sum()) for rows in pieces)
        known.append((bool(void(run)), int(pieces.first[-1]), arrived))
    for place in sorted(range(len(runs)), key=lambda k: known[k], reverse=True):
        label, run = named[place]
        might = allowed(run)
        loose = might is not None and might.rows is None  # when it ended says something, perhaps
        twin = next((name for name, other in found if not loose and same_run(other, run)), None)
        if twin is None:
            found.append((label, run))
        else:
            repeated.append(f"{label} has released nothing that {twin} has not: both are one")
    return sorted(found, key=lambda one: named.index(one)), repeated


def _joint(
    runs: Sequence[tuple[str, Run]], repeated: Sequence[str], delta: float, view: str,
    relation: str,
) -> Joint:  # fmt: skip
    charged = [_block(label, run, runs, delta, view, relation) for label, run in runs]
    broken = dict(_broken(charged))
    holders = [(place, agent) for place, one in enumerate(charged) for agent in one.agents]
    sums = [_together(charged, broken, *one) for one in holders] or [NOTHING]
    final, method = spent(sums, delta)
    first = int(final.argmax())
    best = sums[first]
    found = [*repeated, *_shared(charged, broken), *_related(charged)]
    bound = any("added up" in text for text in found)
    risk = of_tally(best)
    said = each_once([(one.label, one.flags) for one in charged])
    return Joint(
        view, relation, delta, float(final[first]), holders[first][1] if holders else 0,
        "GDP, an upper bound" if best.exact and bound else method,
        risk._replace(exact=risk.exact and not bound),
        (*assumptions(relation, [one.signs for one in charged]), FIXED), (*found, *said),
    )  # fmt: skip


def _block(
    label: str, run: Run, runs: Sequence[tuple[str, Run]], delta: float, view: str, relation: str
) -> Charged:
    """What the view is charged for; batches that another run has drawn too are known ones."""
    require_known(run, relation)
    if trusted(run):
        text = f"found {label}, whose coordinator is trusted with sums, of which no joint account"
        raise InputError(f"run: {text} is known; allowed: runs that trust nobody, or one alone")
    rows = gathered(run.store.pieces("releases", [*RELEASED, "round"]))
    owned = run.manifest.get("rows")
    owned = None if owned is None else np.asarray(owned, np.int64)
    agents = 1 + int(rows["agent"].max(initial=-1)) if owned is None else len(owned)
    star = bool(rows["seen_by"].equal("coordinator").any())
    who = adversary(view, agents)
    require_seen(who, star, len(rows["agent"]))
    shared = any(other is not run and same_seed(run, other) for _, other in runs)
    alone = not shared and not real(run.manifest)  # else batches are known
    block = Block.of(rows, who, arrivals(run, view), owned, relation, alone)
    agent = np.asarray(block.seen["agent"], np.int64)
    own = block.by_agent()
    drawn = ~block.seen["mechanism"].equal("none") & (np.asarray(block.seen["scale"], float) > 0.0)
    exchange = np.asarray(block.seen["release"], np.int64) >> 48
    address = exchange << 32 | np.asarray(block.seen["round"], np.int64)  # both in one number
    noise = {i: frozenset(address[drawn & (agent == i)].tolist()) for i in own}
    why = tuple[str, ...]()
    if allowed(run) is not None:
        might, why = stand_in(run, bool(block.priced.gaussian.all()), relation)
        own = dict.fromkeys(range(agents), LOST)
        if might is not None:
            block = Block.of(might, adversary("eavesdropper", agents), None, owned, relation, alone)
            own = block.by_agent()
    every = list(own.values())
    anybody = reduce(Tally.plus, every, NOTHING) if relation == "agent" else dearest(every)
    signs = Signs.of(block.seen, block.priced)
    said = [*flags(who, star, [signs], delta, owned), *doubts(run)]
    try:
        said += (f"tuned on data, not charged: {text}" for text in stored(run).get("tuned", ()))
    except DesimError as error:
        said.append(f"settings cannot be read: {str(error).splitlines()[0]}")
    if reason := void(run):
        own, anybody, why = dict.fromkeys(range(agents), LOST), LOST, (reason, *why)
    return Charged(label, run, own, anybody, noise, signs, (*why, *said))


def _broken(charged: Sequence[Charged]) -> Iterator[tuple[tuple[int, int], list[str]]]:
    """(place of a run, agent) whose noise another run has drawn too; plug-ins number their own."""
    found: dict[tuple[int, int], list[str]] = {}
    for (j, one), (k, other) in combinations(enumerate(charged), 2):
        if not same_noise(one.run, other.run) or same_values(one.run, other.run):
            continue
        own = any(plugged(each.run)[0] for each in (one, other))
        for agent in one.noise.keys() & other.noise.keys():
            mine, others = one.noise[agent], other.noise[agent]
            if mine & others or (own and mine and others):
                found.setdefault((j, agent), []).append(other.label)
                found.setdefault((k, agent), []).append(one.label)
    yield from found.items()


def _together(charged: Sequence[Charged], broken: Any, place: int, agent: int) -> Tally:
    """What all runs reveal of a record (or all) that an agent holds in the run at `place`.

    Where data are dealt anew a record may be with any agent, and an agent's records with all.
    """
    sums = NOTHING
    for k, other in enumerate(charged):
        if same_data(charged[place].run, other.run) or k == place:
            part = other.agents.get(agent, NOTHING)
            lost = (k, agent) in broken
        elif not unrelated(charged[place].run, other.run):
            part, lost = other.anybody, any(run == k for run, _ in broken)
        else:
            continue
        sums = sums.plus(part.plus(LOST) if lost else part)
    return sums


def _shared(charged: Sequence[Charged], broken: Any) -> Iterator[str]:
    """Which runs share noise."""
    pairs = {
        frozenset((charged[k].label, name)) for (k, _), names in broken.items() for name in names
    }
    for pair in sorted(pairs, key=sorted):
        agents = {
            i for (k, i), names in broken.items() if charged[k].label in pair and pair & {*names}
        }
        yield (
            f"infinite: {' and '.join(sorted(pair))} have one seed and so the same noise on other "
            f"values or scales ({len(agents)} agents): a difference of messages removes it"
        )


def _related(charged: Sequence[Charged]) -> Iterator[str]:
    """What is known of the data of each two runs, where it is not that they are the same."""
    for one, other in combinations(charged, 2):
        both = f"{one.label} and {other.label}"
        if same_values(one.run, other.run):
            yield f"{both}: one training, of which each shows a part: added up, at most twice"
        if same_data(one.run, other.run):
            continue
        if unrelated(one.run, other.run):
            yield f"{both}: rows generated from different seeds, no record is in both: not added"
        else:
            yield (
                f"{both}: nobody can tell whether a record is in both (problem_sha256 differs): "
                "added up, as if any agent of one had it in the other"
            )


# What is said of a run's privacy, as plain values for a file or another program.


def plain(statement: Statement) -> dict[str, Any]:
    """A statement about one run: a list of views, and what is to be said of all of them.

    Numbers that are infinite are the word `infinite`, those that are not known are None.
    """
    paper: dict[str, Any] = {"claims": statement.silence}
    if (claim := statement.claim) is not None:
        bound = claim.bound
        paper = {
            "theorem": bound.theorem, "paper": bound.paper, "view": bound.view,
            "relation": claim.relation, "method": claim.method, "verdict": bound.verdict,
            "epsilon": number(claim.worst), "delta": claim.delta, "unmet": list(claim.unmet),
        }  # fmt: skip
    return {
        "views": [_view(row, statement) for _, row in statement.table.iterrows()],
        "paper": paper,
        "tuned on data, not charged": list(statement.tuned),
        "caveats": list(statement.caveats),
    }


def together(found: Joint) -> dict[str, Any]:
    """A statement about several runs for one view."""
    values = found._asdict() | found.risk.plain | {"epsilon": number(found.epsilon)}
    del values["risk"]
    return values | {name: list(values[name]) for name in ("assumptions", "flags")}


def number(value: float) -> float | str | None:
    """A number as JSON can hold it."""
    if math.isnan(value):
        return None
    return "infinite" if math.isinf(value) else float(value)


def _view(row: Any, statement: Statement) -> dict[str, Any]:
    values: dict[str, Any] = {name: str(row[name]) for name in ("view", "relation", "method")}
    values |= {"delta": float(row["delta"]), "epsilon": number(row["rigorous epsilon"])}
    values |= {"agent": int(row["agent"]), "median epsilon": number(row["median epsilon"])}
    values |= {"paper epsilon": number(row["paper epsilon"]), **row["risk"].plain}
    if statement.accountant:
        values |= {"accountant": statement.accountant, "own epsilon": number(row["own epsilon"])}
    values |= {"sensitivities": statement.unsure or "desim's"}
    return values | {name: list(row[name]) for name in ("assumptions", "flags")}
