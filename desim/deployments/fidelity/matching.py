"""What is the same in two runs, by how much its seconds differ, and why: messages to rounds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.agent_names import agent_named, called, edge_of
from desim.amounts import best_unit
from desim.arrays import Array
from desim.numerics.later import pd
from desim.runs.reading.critical import LINK, computations, messages, rounds
from desim.runs.reading.traffic import hearing
from desim.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd


FREE = ("each", "buffer")  # policies under which a reply's round is a matter of luck


@dataclass(frozen=True)
class Matched:
    """What is in both runs, and how many each has alone.

    frame: keys, real and simulated seconds, error = simulated - real s, relative = error / real,
    and columns with the ending _real or _simulated.
    """

    frame: "pd.DataFrame"
    only_real: int
    only_simulated: int


def matched(real: "pd.DataFrame", simulated: "pd.DataFrame", keys: Sequence[str]) -> Matched:
    """Rows of two tables that agree in `keys`, which are of one row each."""
    found = real.merge(simulated, on=list(keys), suffixes=("_real", "_simulated"), sort=False)
    found = found.rename(columns={f"seconds_{end}": end for end in ("real", "simulated")})
    found["error"] = found["simulated"] - found["real"]
    found["relative"] = relative(found["real"].to_numpy(float), found["simulated"].to_numpy(float))
    names = [*keys, "real", "simulated", "error", "relative"]
    frame = found[[*names, *(name for name in found if name not in names)]]
    return Matched(frame, len(real) - len(frame), len(simulated) - len(frame))


def relative(real: Array, simulated: Array) -> Array:
    """(simulated - real) / real (n,): 0 where both are 0, nan where only the real one is."""
    with np.errstate(divide="ignore", invalid="ignore"):
        share = (simulated - real) / real
    share = np.where(np.isfinite(share), share, np.nan)
    return np.asarray(np.where((real == 0.0) & (simulated == 0.0), 0.0, share))


def matches_of(real: Run, simulated: Run) -> dict[str, Matched]:
    """Messages by sender, receiver, round and number in it, computations by agent, and rounds.

    Of collections that take replies as they come by their number on the link, or of the agent,
    alone.
    """
    known = real.known
    star = known is None or known.network.topology.kind in ("star", "tree")
    policies = [known.policy, *(one.policy for one in known.network.levels or ())] if known else []
    free = star and any(one.kind in FREE for one in policies)
    found = {}
    for what, table, owner in (
        ("messages", messages, LINK), ("computations", computations, ["agent"])
    ):  # fmt: skip
        one, other = table(real.events), table(simulated.events)
        for rows in (one, other) if free else ():
            rows["nth"] = rows.groupby(owner).cumcount()
        keys = [*owner, "nth"] if free else [*owner, "round", "nth"]
        found[what] = matched(one, other, keys)
    found["rounds"] = matched(rounds(real.events), rounds(simulated.events), ["round"])
    return found


# Why a message, a computation or a round took longer or shorter than it was simulated.

SEGMENT = 1448  # bytes of payload in a packet of 1500 with IPv4, TCP and timestamps
NOTHING = 1e-9  # s: no clock is so fine
ALONE = 0.5  # of an agent's error: below, its usual one explains it


def spelled(seconds: float) -> str:
    """A duration with the unit in which it reads best."""
    if abs(seconds) < NOTHING:
        return "0 s"
    unit, factor = best_unit(abs(seconds), "s")
    return f"{seconds * factor:.3g} {unit}"


def percent(share: float) -> str:
    """A relative error in percent, with its sign."""
    if not np.isfinite(share):
        return "-"
    whole = 100.0 * share
    return f"{whole:+.0f} %" if abs(whole) >= 100.0 else f"{whole:+.3g} %"


def parted(row: "Mapping[str, Any] | pd.Series[Any]") -> str:
    """What both clocks say: real 57.9 ms, simulated 22.8 ms."""
    return f"real {spelled(row['real'])}, simulated {spelled(row['simulated'])}"


def of_message(row: Mapping[str, Any], all_messages: "pd.DataFrame") -> str:
    """What is known of a message: its segments, its link's idleness, resends, company."""
    count = max(1, -(-int(row["bytes_real"]) // SEGMENT))
    words = [f"{count} segment{'s' * (count > 1)}"]
    idle = float(row["idle_real"])
    if np.isinf(idle):
        words[0] += ", the first on its link"
    elif idle >= 0.0:
        words[0] += f" after {spelled(idle)} of idleness"
    else:
        words[0] += ", sent before the one before it had arrived"
    for run, name in (("real", "in reality"), ("simulated", "in the simulation")):
        again = int(row[f"attempts_{run}"]) - 1
        if again > 0:
            words.append(f"sent {again + 1} times {name}")
    beside = _beside(row, all_messages)
    if beside:
        words.append(f"{beside} other{'s' * (beside > 1)} of its sender or receiver on the way")
    return ", ".join(words)


def _beside(row: Mapping[str, Any], table: "pd.DataFrame") -> int:
    """How many messages that leave its sender or reach its receiver were on the way meanwhile."""
    overlap = (table["begin_real"] < row["time_real"]) & (table["time_real"] > row["begin_real"])
    ends = (table["sender"] == row["sender"]) | (table["receiver"] == row["receiver"])
    return int((overlap & ends).sum()) - 1


def of_computation(row: Mapping[str, Any], table: "pd.DataFrame") -> str:
    """Whether all of an agent's computations are off by as much, or this one alone."""
    own = table.loc[table["agent"] == row["agent"], "relative"].dropna()
    usual = float(own.median()) if len(own) else np.nan
    if len(own) < 3 or not np.isfinite(usual):
        return f"one of {len(own)} of its computations"
    apart = abs(float(row["relative"]) - usual)
    text = f"the median of its {len(own)} is {100 * usual:+.2g} %"
    return f"as others of this agent: {text}" if apart < ALONE * abs(usual) else f"alone: {text}"


def of_round(
    row: Mapping[str, Any],
    closers: tuple[Mapping[int, int], Mapping[int, int]],
    messages: "pd.DataFrame",
    computations: "pd.DataFrame",
    name: Callable[[int], str],
) -> str:
    """Who closed the round in both runs, and what of that one's part differs most."""
    number = int(row["round"])
    real, simulated = (one.get(number, -3) for one in closers)
    same = (
        f", simulated by {closing(simulated, name)}"
        if real != simulated
        else " in both" * (real >= 0)
    )
    part = _largest(number, real, messages, computations) if real >= 0 else ""
    closer = "the coordinator" if real == -1 else closing(real, name)
    return f"closed by {closer}{same}" + (f": its {part}" if part else "")


def closing(who: int, name: Callable[[int], str]) -> str:
    """Who closes a wait."""
    return {-2: "the deadline", -3: "nobody"}.get(who) or name(who)


def naming(run: Run) -> Callable[[int], str]:
    """What agents are called, and edges of a tree."""
    return lambda who: (
        called(who) if edge_of(run.manifest, who) is None else agent_named(run.manifest, who)
    )


def _largest(
    number: int, who: int, messages: "pd.DataFrame", computations: "pd.DataFrame"
) -> str:  # fmt: skip
    """The message or computation of an agent in a round that differs most, in words."""
    found: list[tuple[float, str]] = []
    own = computations[computations["agent"] == who]
    sent, got = messages["sender"] == who, messages["receiver"] == who
    parts = {"computation": own, "message": messages[sent], "call": messages[got]}
    for what, rows in parts.items():
        key = "round" if "round" in rows else "round_real"
        rows = rows[rows[key] == number]
        if len(rows):
            worst = rows.iloc[int(np.argmax(rows["error"].abs().to_numpy()))]
            found.append((abs(float(worst["error"])), f"{what} {parted(worst)}"))
    return max(found)[1] if found else ""


# The largest errors of a simulated clock, each with its reason as far as the logs say it.

WORST = 3  # of each kind
COLUMNS = ["what", "who", "round", "real", "simulated", "error", "relative", "reason"]


def worst(real: Run, simulated: Run, matches: Mapping[str, Matched]) -> "pd.DataFrame":
    """What is farthest off in seconds: WORST messages, computations and rounds, columns COLUMNS."""
    messages, computations = matches["messages"].frame, matches["computations"].frame
    closers, name = (_closers(real), _closers(simulated)), naming(real)
    reasons: dict[str, Callable[[dict[str, Any]], tuple[str, str]]] = {
        "message": lambda row: (
            f"{name(int(row['sender']))} to {name(int(row['receiver']))}",
            of_message(row, messages),
        ),
        "computation": lambda row: (
            f"agent {int(row['agent'])}", of_computation(row, computations)
        ),
        "round": lambda row: ("all", of_round(row, closers, messages, computations, name)),
    }  # fmt: skip
    records: list[tuple[Any, ...]] = []
    for what, reason in reasons.items():
        for row in _largest_rows(matches[f"{what}s"].frame):
            who, why = reason(row)
            number = int(row["round"] if "round" in row else row["round_real"])
            seconds = (float(row[name]) for name in COLUMNS[3:7])
            records.append((what, who, number, *seconds, why))
    return pd.DataFrame(records, columns=COLUMNS)


def _largest_rows(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows with the largest errors; none that is off by rounding alone."""
    size = frame["error"].abs()
    some = size[size > NOTHING].sort_values(ascending=False, kind="stable").index[:WORST]
    return [{str(key): value for key, value in frame.loc[one].items()} for one in some]


def _closers(run: Run) -> Mapping[int, int]:
    """Who closed each round: the closer of its last wait."""
    waits = run.waits()
    if (hub := waits["agent"] < 0).any():  # of a tree, where edges wait, too
        waits = waits[hub]
    last = waits.sort_values("time", kind="stable").groupby("round").tail(1)
    return dict(zip(last["round"].astype(int), last["closer"].astype(int), strict=True))


# Whether the same replies count in both runs, how narrow that was, and who comes before whom.

MAX_REPLIES = 1500  # replies of a round whose pairs are counted
NARROW = 0.02  # of a round: no law of a link decides a margin below


def replies(real: Run, simulated: Run) -> "pd.DataFrame":
    """A row for each collection of both: round, same, margin, share, pairs, ordered.

    same: whether the same replies count; margin: s between closing and the next reply that could
    have been on the other side, the narrower one of both runs, inf where none could; share: of the
    real round; pairs: of replies that both have and the simulation tells apart, `ordered` of them
    as in reality. On a graph the messages of a round are its replies, and there is nothing to be
    missed.
    """
    sides = [_Collections(run) for run in (real, simulated)]
    both = [one for one in sides[0].closing if one in sides[1].closing]
    rows = []
    for number in both:
        sets = [side.accepted(number) for side in sides]
        margin = min(side.margin(number) for side in sides)
        lasted = sides[0].lasted(number)
        pairs, ordered = _ordered(*(side.arrivals(number) for side in sides))
        share = margin / lasted if lasted > 0.0 else np.inf
        rows.append((number, sets[0] == sets[1], margin, share, pairs, ordered))
    columns = ["round", "same", "margin", "share", "pairs", "ordered"]
    return pd.DataFrame(rows, columns=columns)


class _Collections:
    """The collections of a run: when each closes, which replies came, which of them count."""

    def __init__(self, run: Run) -> None:
        events = run.events
        levels = run.scenario.network.levels  # the cloud's replies are those of edges
        self._void = hearing(run.scenario)["void"] and not run.scenario.network.topology.tree
        limit = (levels[0] if levels else run.scenario).policy.deadline
        self._limit = np.inf if limit is None else float(limit)
        closed, hub = events[events["kind"] == "aggregate"], events[events["agent"] < 0]
        at_hub = closed[closed["agent"] < 0].sort_values("round")
        self.star = len(at_hub) > 0
        if self.star:
            closed = at_hub.set_index("round")
        else:
            closed = closed.groupby("round").max(numeric_only=True)
        came = hub if self.star else events
        self._came = came = came[came["kind"] == "deliver"]
        self._by_round: dict[Any, Any] = dict(iter(came.groupby("round")))
        numbers, times = closed.index.tolist(), closed["time"].to_numpy(float).tolist()
        self.closing: dict[int, float] = dict(zip(numbers, times, strict=True))
        self._opened: dict[int, float] = dict(zip(numbers, [0.0, *times[:-1]], strict=True))
        self._waited: dict[int, float] = dict(zip(numbers, closed["seconds"].tolist(), strict=True))
        self._times = came["time"].to_numpy(float)
        self._who = came["peer"].to_numpy(int)

    def lasted(self, number: int) -> float:
        """How long the round was, s."""
        return self.closing[number] - self._opened[number]

    def arrivals(self, number: int) -> "pd.Series":
        """When the replies to the calls of a round came, s, by who sent them."""
        rows = self._by_round.get(number)
        if rows is None:
            rows = self._came[:0]
        return rows.groupby(["peer", "agent"])["time"].min()

    def accepted(self, number: int) -> frozenset[int]:
        """Whose replies count."""
        if not self.star:
            return frozenset()
        last = self.closing[number]
        if self._void:
            came = self.arrivals(number)
            inside = came.to_numpy(float) <= last
            return frozenset(came.index.get_level_values("peer")[inside].tolist())
        inside = (self._times > self._opened[number]) & (self._times <= last)
        return frozenset(self._who[inside].tolist())

    def margin(self, number: int) -> float:
        """How far s from the closing the nearest reply was that could have been beyond it."""
        if not self.star:
            return np.inf
        last = self.closing[number]
        begun = last - self._waited[number]
        end = begun + self._limit
        times = self.arrivals(number).to_numpy(float) if self._void else self._times
        if end < np.inf:  # a deadline: replies near to it, before and after
            near = np.abs(times[times > begun] - end)
        else:
            near = times[times > last] - last
        return float(near.min()) if len(near) else np.inf


def _ordered(real: "pd.Series", simulated: "pd.Series") -> tuple[int, int]:
    """Pairs of replies to one receiver that both have, and how many come in the same order.

    Those that the simulation has level, to the last bit, have no order that could be wrong.
    """
    both = real.index.intersection(simulated.index)
    where = both.get_level_values("agent")
    pairs = ordered = 0
    for receiver in where.unique():
        some = both[where == receiver][:MAX_REPLIES]
        first, second = (one.loc[some].to_numpy(float) for one in (real, simulated))
        upper = np.triu_indices(len(some), 1)
        signs = _signs(second, upper)
        pairs += int((signs != 0.0).sum())
        ordered += int((_signs(first, upper) == signs)[signs != 0.0].sum())
    return pairs, ordered


def _signs(times: Array, pairs: Any) -> Array:
    return np.asarray(np.sign(times[pairs[0]] - times[pairs[1]]))
