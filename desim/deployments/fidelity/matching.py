"""The same message, computation or round in two runs, and by how much its seconds differ."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from desim.arrays import Array
from desim.numerics.later import pd
from desim.runs.reading.exchanges import LINK, computations, messages, rounds
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


def matched_messages(real: Run, simulated: Run) -> Matched:
    """Messages by sender, receiver, round and number in it; see `reading.exchanges.messages`.

    Of collections that take replies as they come by their number on the link alone.
    """
    first, second = messages(real.events), messages(simulated.events)
    return _matched(first, second, LINK, _free(real))


def matched_computations(real: Run, simulated: Run) -> Matched:
    """Computations by agent, round and number in it."""
    first, second = computations(real.events), computations(simulated.events)
    return _matched(first, second, ["agent"], _free(real))


def matched_rounds(real: Run, simulated: Run) -> Matched:
    """Rounds by number."""
    return matched(rounds(real.events), rounds(simulated.events), ["round"])


def _matched(
    real: "pd.DataFrame", simulated: "pd.DataFrame", whose: list[str], free: bool
) -> Matched:  # fmt: skip
    """Rows of the same owner, round and number in it; free: and number of all its rows."""
    if not free:
        return matched(real, simulated, [*whose, "round", "nth"])
    for table in (real, simulated):
        table["nth"] = table.groupby(whose).cumcount()
    return matched(real, simulated, [*whose, "nth"])


def _free(run: Run) -> bool:
    known = run.known
    star = known is None or known.network.topology.kind == "star"
    return bool(known and star and known.policy.kind in FREE)
