"""Measured latencies: a matrix between sites, and which agent sits at which of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.readers import matrices, select

SITES = 3  # sub-counter of the draw, apart from those of links and traces
WHERE = "network.latency_matrix"
UNITS = {"_us": 1e-6, "_ms": 1e-3, "_s": 1.0}  # that an array's name may end with


@dataclass(frozen=True)
class Latencies:
    """seconds (sites, sites): one way from a row's site to a column's; NaN: not measured.

    missing: error, mirror (what the opposite direction has, else an error) or median (the same,
    else the median of all that was measured between two sites).
    """

    seconds: Array
    missing: Literal["error", "mirror", "median"]

    def between(self, source: Int, target: Int) -> Array:
        """Latencies (links,) s from sites source to sites target; 0 within a site by default.

        InputError where nothing was measured and nothing stands in for it.
        """
        taken = self.seconds[source, target]
        taken = np.where((source == target) & np.isnan(taken), 0.0, taken)
        if self.missing != "error":
            taken = np.where(np.isnan(taken), self.seconds[target, source], taken)
        lacking = np.isnan(taken)
        if lacking.any() and self.missing == "median":
            taken[lacking] = self.median()
        elif lacking.any():
            e = int(np.argmax(lacking))
            others = f"; {int(lacking.sum())} of {len(taken)} links lack it"
            allowed = "missing: mirror or median" if self.missing == "error" else "missing: median"
            raise InputError(
                f"{WHERE}: found no measurement from site {source[e]} to {target[e]}{others}; "
                f"allowed: {allowed}, or other places"
            )
        return np.asarray(taken)

    def median(self) -> float:
        """The median s over pairs of sites that were measured; InputError if none was."""
        known = self.seconds[~np.isnan(self.seconds) & ~np.eye(len(self.seconds), dtype=bool)]
        if not len(known):
            raise InputError(f"{WHERE}: found no measurement at all; allowed: at least one")
        return float(np.median(known))


def latencies(
    path: Path,
    field: str | None,
    slot: int,
    unit: float | None,
    share: float,
    missing: Literal["error", "mirror", "median"],
) -> Latencies:
    """Read a matrix (sites, sites), or its slice `slot` where the file has several of them.

    share: of a measurement that is one way, 1/2 of a round trip that the row's site measured; unit:
    s of a 1 in the file, by default as the array's name ends (rtt_ms). 0 off the diagonal and NaN:
    not measured. InputError for other shapes, negative and infinite entries, and without a unit.
    """
    found = {
        name: array
        for name, array in matrices(path, WHERE).items()
        if array.ndim in (2, 3) and array.shape[-1] == array.shape[-2]
    }
    if field is not None:
        found = select(found, [field], WHERE)
    if len(found) != 1:
        text = f"found {len(found)} square matrices in {path}"
        allowed = f"field: one of {', '.join(found)}" if found else "one, sites x sites"
        raise InputError(f"{WHERE}: {text}; allowed: {allowed}")
    ((name, matrix),) = found.items()
    slots = len(matrix) if matrix.ndim == 3 else 1
    if slot >= slots:
        raise InputError(f"{WHERE}.slice: found {slot}; allowed: 0 to {slots - 1}")
    matrix = matrix[slot] if matrix.ndim == 3 else matrix
    wrong = (matrix < 0.0) | np.isinf(matrix)
    if wrong.any():
        i, j = np.argwhere(wrong)[0]
        text = f"found {matrix[i, j]:g} from site {i} to {j}"
        raise InputError(f"{WHERE}: {text}; allowed: finite latencies, 0 or NaN where missing")
    if unit is None:
        unit = next((scale for end, scale in UNITS.items() if name.endswith(end)), None)
    if unit is None:
        text = (
            f"missing, and {path.name} does not say what its numbers are (median {_middle(matrix)})"
        )
        raise InputError(f"{WHERE}.unit: {text}; allowed: ms, us, s or the like")
    seconds = matrix * (unit * share)
    seconds[(seconds == 0.0) & ~np.eye(len(seconds), dtype=bool)] = np.nan
    return Latencies(seconds, missing)


def _middle(matrix: Array) -> str:
    """The median of what was measured, as the file has it."""
    known = matrix[(matrix > 0.0) & ~np.isnan(matrix)]
    return f"{np.median(known):g}" if len(known) else "of none"


def sites(
    places: str | Sequence[int], coordinator: int | None, star: bool, agents: int, have: int,
    seed: int,
) -> Int:  # fmt: skip
    """The sites (agents + 1,) of the agents, and last that of the coordinator, -1 without one.

    places: first (agent i at site i, the coordinator behind them), random (drawn without
    replacement) or a list. InputError if there are too few sites.
    """
    needed = agents + (star and coordinator is None)
    if isinstance(places, str) and needed > have:
        who = f"{agents} agents" + (" and the coordinator" if needed > agents else "")
        raise InputError(f"{WHERE}: found {have} sites for {who}; allowed: at least {needed}")
    if places == "first":
        chosen = np.arange(agents)
        hub = agents
    elif places == "random":
        drawn = keys.permutation(seed, Stream.LINK, have, step=SITES)[:needed]
        chosen, hub = drawn[:agents], int(drawn[-1])
    else:
        chosen, hub = np.array(places, np.int64), -1
        if len(chosen) != agents:
            text = f"found {len(chosen)} sites; allowed: {agents}, one for each agent"
            raise InputError(f"{WHERE}.places: {text}")
        if star and coordinator is None:
            text = "missing; where places are listed, the coordinator's site is needed, too"
            raise InputError(f"{WHERE}.coordinator: {text}")
    if coordinator is not None:
        hub = coordinator
    for key, found in (("places", int(chosen.max())), ("coordinator", hub if star else 0)):
        if found >= have:
            raise InputError(f"{WHERE}.{key}: found site {found}; allowed: 0 to {have - 1}")
    return np.append(chosen, hub if star else -1).astype(np.int64)
