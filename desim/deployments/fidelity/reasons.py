"""Why a message, a computation or a round took longer or shorter than it was simulated."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.amounts import best_unit
from desim.runs.reading.sites import called

if TYPE_CHECKING:
    import pandas as pd

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
) -> str:
    """Who closed the round in both runs, and what of that one's part differs most."""
    number = int(row["round"])
    real, simulated = (one.get(number, -3) for one in closers)
    if real < 0:
        names = {-2: "the deadline", -3: "nobody"}
        same = "" if real == simulated else f", simulated by {named(simulated)}"
        return f"closed by {names.get(real, 'the coordinator')}{same}"
    same = " in both" if real == simulated else f", simulated by {named(simulated)}"
    part = _largest(number, real, messages, computations)
    return f"closed by agent {real}{same}" + (f": its {part}" if part else "")


def named(who: int) -> str:
    """Who closes a wait."""
    return {-2: "the deadline", -3: "nobody"}.get(who, called(who))


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
