"""The transcript check: does what is declared about every release hold on a neighbouring problem?

A play is recorded and replayed with one record replaced. The changed agent's releases may move by
what it declared; its messages must be functions of its releases; nobody else may move at all, nor
may times, sizes and silences. This finds a sensitivity that is wrong, not noise that is too small.
"""

from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import pandas as pd

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.errors import RunError
from desim.experiments.audit.neighbours import Neighbours, turned, worst_pair
from desim.experiments.audit.pairs import (
    Released,
    Transcript,
    completed,
    ended,
    rounding,
    unobserved,
)
from desim.log.parquet import Tables
from desim.privacy.ledger.ledger import Mechanism

MARGIN = 1e-9  # of the declared sensitivity
UNBOUNDED = ("none", "reused", "objective-perturbation", "objective-laplace")
SEEN = {"events": ["time", "kind", "agent", "peer", "round", "bytes", "release"]}
COLUMNS = ["what", "agent", "round", "release", "difference", "declared", "ratio", "violated"]


@dataclass(frozen=True)
class TranscriptCheck:
    """Outcome for the pair that differs in record `row` of `agent`.

    rows: one for each release, message and for the traffic: what, agent, round, release (-1: none),
    difference, declared, ratio (0 for 0 / 0) and violated. Releases compare in the norm of their
    mechanism, L1 for Laplace and L2 for all other, and in L2 with what Terms.coupled says; traffic
    counts the rows of log and ledger that differ.
    """

    agent: int
    row: int
    rows: pd.DataFrame

    @property
    def violations(self) -> pd.DataFrame:
        """Rows where more moved than is declared."""
        return self.rows[self.rows.violated]

    @property
    def largest(self) -> float:
        """Largest ratio of difference to declared sensitivity among the changed agent's releases.

        Near 1 the pair is a worst case; 0 where nothing finite is declared.
        """
        own = self.rows[(self.rows.what == "release") & (self.rows.agent == self.agent)]
        return float(own.ratio.max()) if len(own) else 0.0

    def demand(self) -> None:
        """Raise RunError that names the first violations, if there are any."""
        found = self.violations
        if len(found):
            lines = [_sentence(one) for one in found.head(3).itertuples()]
            more = [f"and {len(found) - 3} more"] if len(found) > 3 else []
            raise RunError("\n".join([*lines, *more]))


def transcript_check(
    of: Neighbours | Simulation, rounds: int | None = None, pinned: bool = False
) -> TranscriptCheck:
    """Record a play on the first problem of a pair, replay it on the second, compare.

    of: the pair, or a simulation whose worst pair is searched, `pinned` as in `worst_pair`, and
    then one whose gradients turn, if that shows more than is declared; rounds: play at most so
    many. Targets of metrics do not stop the plays: they depend on data. RunError where one fails.
    """
    if isinstance(of, Neighbours):
        return _of_pair(of, rounds)
    simulation = unobserved(of, rounds)
    found = _of_pair(worst_pair(simulation, pinned=pinned), rounds)
    if len(found.violations):
        return found
    with suppress(RunError):  # diverges: said of the worst pair, where a clip excludes it
        for pair in turned(simulation, found.agent, found.row):
            if len((other := _of_pair(pair, rounds)).violations):
                return other
    return found


def _of_pair(pair: Neighbours, rounds: int | None) -> TranscriptCheck:
    one, tables = Transcript(), Tables()
    completed(unobserved(pair.first, rounds).play(tables, listeners=[one]))
    replay, other = Transcript(one), Tables()
    outcome = ended(unobserved(pair.second, rounds), replay, other)
    if replay.failed:
        text = f"with record {pair.row} of agent {pair.agent} replaced the run fails"
        raise RunError(f"{text}: {outcome.reason}") from outcome.error
    bounded = _bounded(tables.read("releases"), pair.agent)
    rows = [*_releases(one, replay, pair.agent), *_messages(one, replay, pair.agent, bounded)]
    apart = _different(tables, other) + (replay.apart or len(one.releases) != len(replay.releases))
    declared = 0.0 if bounded else np.inf
    traffic: Row = ("traffic", pair.agent, -1, -1, float(apart), declared, 0.0)
    return TranscriptCheck(pair.agent, pair.row, _judged([traffic, *rows]))


Row = tuple[str, int, int, int, float, float, float]  # what ... declared; the size of rounding


def _bounded(releases: pd.DataFrame, agent: int) -> bool:
    """Whether all that the agent released has a finite cost that a difference can be held to.

    A silence that was charged without bound bounds itself: its difference is what is looked for.
    """
    own = releases[(releases.agent == agent) & (releases.sensitivity > 0.0)]
    own = own[~((own.mechanism == "sparse-vector") & (own.scale == 0.0))]
    return bool((~own.mechanism.isin(UNBOUNDED) & np.isfinite(own.sensitivity)).all())


def _releases(one: Transcript, replay: Transcript, agent: int) -> list[Row]:
    found: list[Row] = []
    for mine, theirs in zip(one.releases, replay.releases, strict=False):
        if mine.output.shape != theirs.output.shape:
            continue
        slack, sent = rounding(mine.output), ~np.isin(mine.release, list(one.unsent))
        for order, bound in _bounds(mine):
            moved = np.linalg.norm(theirs.output - mine.output, ord=order, axis=1)
            for r in np.flatnonzero((mine.release >= 0) & (theirs.release >= 0) & sent):
                own = int(mine.who[r]) == agent
                place = int(mine.who[r]), int(mine.round[r]), int(mine.release[r])
                declared, free = (float(bound[r]), float(slack[r])) if own else (0.0, 0.0)
                found.append(("release", *place, float(moved[r]), declared, free))
    return found


def _bounds(batch: Released) -> list[tuple[int, Array]]:
    """Orders of norms and what differences of outputs with the same noise are held to in them.

    The sensitivity of noise inside a kernel is an equivalent, and one that is less than `coupled`
    supposes what earlier noise has covered: they bound no difference themselves.
    """
    norm = 1 if batch.mechanism is Mechanism.LAPLACE else 2
    if batch.coupled is None:
        return [(norm, batch.sensitivity)]
    inside = batch.mechanism is Mechanism.NOISY_GRADIENT
    inside = inside or bool((batch.coupled > batch.sensitivity).any())
    own = [] if inside else [(norm, batch.sensitivity)]
    return [*own, (2, batch.coupled)]


def _messages(one: Transcript, replay: Transcript, agent: int, bounded: bool) -> list[Row]:
    found: list[Row] = []
    for mine, theirs in zip(one.messages, replay.messages, strict=False):
        if mine.payload.shape != theirs.payload.shape or not np.array_equal(mine.who, theirs.who):
            continue
        moved = np.linalg.norm(theirs.payload - mine.payload, axis=1)
        rows = zip(mine.who, mine.round, moved, rounding(mine.payload), strict=True)
        for who, round_, difference, free in rows:
            declared = np.inf if who == agent and not bounded else 0.0
            place = int(who), int(round_), -1
            found.append(("message", *place, float(difference), declared, float(free)))
    return found


def _different(one: Tables, two: Tables) -> int:
    """How many rows of the log and of the ledger differ, contents aside."""
    count = 0
    for name in ("events", "releases"):
        a, b = (tables.read(name, SEEN.get(name)) for tables in (one, two))
        if a.equals(b):
            continue
        shorter, surplus = min(len(a), len(b)), abs(len(a) - len(b))
        a, b = a.iloc[:shorter].astype(object), b.iloc[:shorter].astype(object)
        same = (a == b) | (a.isna() & b.isna())
        count += int((~same.all(axis=1)).sum()) + surplus
    return count


def _judged(rows: list[Row]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=[*COLUMNS[:6], "slack"])
    moved, declared = table.difference.to_numpy(), table.declared.to_numpy()
    ratio = np.where(moved > 0.0, np.inf, 0.0)
    np.divide(moved, declared, out=ratio, where=declared > 0.0)
    table["ratio"] = ratio
    finite = np.where(np.isfinite(declared), declared, 0.0)
    within = moved <= declared + MARGIN * finite + table.slack.to_numpy()
    table["violated"] = ~within
    return table[COLUMNS]


def _sentence(row: object) -> str:
    one: dict[str, object] = row._asdict()  # type: ignore[attr-defined]
    allowed = f"found a difference of {one['difference']:.6g}; allowed: {one['declared']:.6g}"
    if one["what"] == "traffic":
        return f"agent {one['agent']}: times, sizes or silences depend on data: {allowed} rows"
    where = f"agent {one['agent']}, round {one['round']}"
    if one["what"] == "message":
        return f"{where}: its message is no function of what it released: {allowed}"
    return f"{where}, release {one['release']}: the value before noise moves: {allowed}"
