"""How much each key alone matters: the share of the differences between candidates it explains.

Candidates are ranked by what they needed on the seeds that all of them met, and grouped by a key's
values, of a range by thirds. The share is epsilon squared of a one-way analysis of those ranks
(Kelley 1935): eta squared less what groups of mere chance explain, so that it is about 0 for a key
that does not matter. What keys do together is in none of them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.experiments.studies.ranges import Range, Vary
from desim.numerics.later import pd
from desim.runs.reading.series import setting_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

PARTS = 3  # of a range
FEWEST = 2  # candidates more than there are groups


def importance(vary: Vary, candidates: "pd.DataFrame", goal: str) -> "pd.DataFrame":
    """Columns key, share, groups, candidates, largest first; share nan where too few differ."""
    rows = []
    known = candidates[candidates["seeds"] > 0] if len(candidates) else candidates
    for key, one in vary.items():
        if not len(known):
            continue
        needed = known[goal].to_numpy(float)
        group = _groups(one, known[key])
        share = explained(needed, group)
        rows.append({"key": key, "share": share, "groups": len(set(group.tolist())),
                     "candidates": len(needed)})  # fmt: skip
    table = pd.DataFrame(rows, columns=["key", "share", "groups", "candidates"])
    return table.sort_values("share", ascending=False, ignore_index=True)


def explained(needed: "NDArray[np.float64]", group: "NDArray[np.int64]") -> float:
    """Epsilon squared of ranks of `needed` (n,) between groups (n,); nan where undefined."""
    ranked = np.asarray(pd.Series(needed).rank().to_numpy(float))
    groups = [ranked[group == one] for one in np.unique(group)]
    n, k = len(ranked), len(groups)
    whole = float(((ranked - ranked.mean()) ** 2).sum())
    if k < 2 or n < k + FEWEST or whole == 0.0:
        return float("nan")
    within = sum(float(((one - one.mean()) ** 2).sum()) for one in groups)
    return max(0.0, 1.0 - (within / (n - k)) / (whole / (n - 1)))


def _groups(one: Any, column: "pd.Series[Any]") -> "NDArray[np.int64]":
    if isinstance(one, Range):
        numbers = np.array([float(str(value).split()[0]) for value in column])
        low, high = one.low, one.high
        if one.kind == "log_uniform":
            numbers, low, high = np.log(numbers), np.log(low), np.log(high)
        part = PARTS * (numbers - low) / (high - low)
        return np.asarray(np.clip(part.astype(np.int64), 0, PARTS - 1))
    names = [str(setting_text(value)) if isinstance(value, Mapping | list | tuple) else str(value)
             for value in column]  # fmt: skip
    known = list(dict.fromkeys(names))
    return np.array([known.index(name) for name in names], np.int64)
