"""The largest errors of a simulated clock, each with its reason as far as the logs tell it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from desim.deployments.fidelity.matching import Matched
from desim.deployments.fidelity.reasons import NOTHING, of_computation, of_message, of_round
from desim.numerics.later import pd
from desim.runs.reading.sites import called
from desim.runs.run import Run

if TYPE_CHECKING:
    import pandas as pd

TOLD = 3  # of each kind
COLUMNS = ["what", "who", "round", "real", "simulated", "error", "relative", "reason"]


def worst(real: Run, simulated: Run, matches: Mapping[str, Matched]) -> "pd.DataFrame":
    """What is farthest off in seconds: TOLD messages, computations and rounds, columns COLUMNS."""
    messages, computations = matches["messages"].frame, matches["computations"].frame
    closers = _closers(real), _closers(simulated)
    records: list[tuple[Any, ...]] = []
    for row in _largest(messages):
        who = f"{called(int(row['sender']))} to {called(int(row['receiver']))}"
        records.append(("message", who, *_numbers(row), of_message(row, messages)))
    for row in _largest(computations):
        reason = of_computation(row, computations)
        records.append(("computation", f"agent {int(row['agent'])}", *_numbers(row), reason))
    for row in _largest(matches["rounds"].frame):
        reason = of_round(row, closers, messages, computations)
        records.append(("round", "all", *_numbers(row), reason))
    return pd.DataFrame(records, columns=COLUMNS)


def _largest(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    """The rows with the largest errors; none that is off by rounding alone."""
    size = frame["error"].abs()
    some = size[size > NOTHING].sort_values(ascending=False, kind="stable").index[:TOLD]
    return [{str(key): value for key, value in frame.loc[one].items()} for one in some]


def _numbers(row: Mapping[str, Any]) -> tuple[int, float, float, float, float]:
    number = row["round"] if "round" in row else row["round_real"]
    return (
        int(number), float(row["real"]), float(row["simulated"]), float(row["error"]),
        float(row["relative"]),
    )  # fmt: skip


def _closers(run: Run) -> Mapping[int, int]:
    """Who closed each round: the closer of its last wait."""
    waits = run.waits()
    last = waits.sort_values("time", kind="stable").groupby("round").tail(1)
    return dict(zip(last["round"].astype(int), last["closer"].astype(int), strict=True))
