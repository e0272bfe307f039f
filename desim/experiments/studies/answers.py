"""Which method is first over many problems: expected times, distribution functions, profiles.

A problem is what the methods have in common: data, network, devices. Each target on it counts by
itself. Bands and intervals come from seeds that are drawn again jointly for all methods, problems
and targets, as runs with one seed share their draws.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

import numpy as np
import pandas as pd

from desim.arrays import Array, Int, Mask
from desim.errors import InputError
from desim.experiments.studies.measures import unit
from desim.experiments.studies.profiles import ends, expected_all, ratios, share_within, steps
from desim.experiments.studies.restarts import (
    draws,
    expected_estimate,
    ratio_estimate,
    restarted,
    weights,
)
from desim.experiments.studies.statistics import Estimate, fewest, resamples
from desim.experiments.studies.trials import Cell, Trials
from desim.log.described import described

POINTS = 400  # of a curve, at most
BENDS = 100  # of the band of a profile, at most
BANDS = 199  # resamples of the seeds for a band of restarts
Pair = tuple[str, str]  # problem, target
UNKNOWN = Estimate(np.nan, np.nan, np.nan, 0)


def ert(found: Trials, spent: str = "time") -> pd.DataFrame:
    """Expected running times, a row for each method, problem and target.

    Columns method, problem, target, spent, unit, runs, met, rate, value (inf: no run met it; nan:
    some failed with nothing known of what they spent), low, high, level; best, the method with the
    least on that problem; ratio to it, with ratio_low and ratio_high.
    """
    cells = found.cells(spent)
    drawn = weights(len(found.seeds))
    rows = []
    for problem in found.problems:
        for target in found.targets:
            own = {m: cells[m, problem, target] for m in found.methods
                   if (m, problem, target) in cells}  # fmt: skip
            rows += _rows(own, (problem, target), drawn, found.level)
    frame = pd.DataFrame(rows)
    frame.insert(3, "spent", spent)
    frame.insert(4, "unit", unit(spent))
    return described(frame, "ert")


def _rows(own: dict[str, Cell], pair: Pair, drawn: Array, level: float) -> list[dict[str, Any]]:
    """The rows of all methods on one problem until one target."""
    taken = {method: _estimate(cell, drawn, level) for method, cell in own.items()}
    known = {m: one.value for m, one in taken.items() if np.isfinite(one.value)}
    best = min(known, key=lambda m: known[m]) if known else ""
    rows = []
    for method, cell in own.items():
        one, n, met = taken[method], int(cell.counted.sum()), int(cell.met.sum())
        ratio = _ratio(cell, own[best], drawn, level) if best else UNKNOWN
        rows.append({
            "method": method, "problem": pair[0], "target": pair[1], "runs": n + cell.unknown,
            "met": met, "rate": met / max(n + cell.unknown, 1), "value": one.value,
            "low": one.low, "high": one.high, "level": level, "best": best, "ratio": ratio.value,
            "ratio_low": ratio.low, "ratio_high": ratio.high,
        })  # fmt: skip
    return rows


def _estimate(cell: Cell, drawn: Array, level: float) -> Estimate:
    if cell.unknown:
        return UNKNOWN
    return expected_estimate(cell.spent, cell.met, drawn, level)


def _ratio(cell: Cell, best: Cell, drawn: Array, level: float) -> Estimate:
    if cell is best:
        return Estimate(1.0, 1.0, 1.0, int(cell.counted.sum()))
    if cell.unknown:
        return UNKNOWN
    both = np.array([cell.spent, best.spent]), np.array([cell.met, best.met])
    return ratio_estimate(*both, drawn, level)


def common(found: Trials, spent: str) -> tuple[dict[tuple[str, str, str], Cell], list[Pair]]:
    """All cells, and the problems and targets that all methods have runs of, nothing unknown.

    InputError where there is none.
    """
    cells = found.cells(spent)
    pairs = [
        (problem, target)
        for problem in found.problems
        for target in found.targets
        if all(
            (m, problem, target) in cells and not cells[m, problem, target].unknown
            for m in found.methods
        )
    ]
    if not pairs:
        raise InputError("found no problem that all methods have runs of; allowed: at least one")
    return cells, pairs


def profile(found: Trials, spent: str = "time") -> pd.DataFrame:
    """Performance profiles of expected running times (Dolan, Moré 2002).

    A row for each method and ratio at which its curve or band rises, from 1 on: columns method,
    ratio, share (of the problems and targets on which it is within that ratio of the best), low,
    high, level, problems. InputError for fewer than two methods, or problems that nobody solves.
    """
    if len(found.methods) < 2:
        raise InputError(
            f"profile: found one method, {found.methods[0]}; allowed: at least two, which differ "
            "in keys of algorithm, policy, participation or codec, or in those of methods"
        )
    cells, pairs = common(found, spent)
    by_method = [[cells[m, *pair] for pair in pairs] for m in found.methods]
    drawn = np.ones((1, len(found.seeds)))
    one = ratios(_taken(by_method, drawn))[0]
    if not np.isfinite(one).any():
        raise InputError(
            f"profile: found no method with a finite expected {spent}; allowed: targets that some "
            "run meets" + ", and epsilons that are finite" * (spent == "epsilon")
        )
    enough = _enough(by_method, found.level)
    again = ratios(_taken(by_method, weights(len(found.seeds)))) if enough else None
    frames = []
    for k, method in enumerate(found.methods):
        at = np.unique(np.append(steps(one[k], POINTS), 1.0))
        if again is not None:  # where the band rises, too
            some = steps(again[:, k].ravel(), BENDS)
            at = np.unique(np.concatenate([at, some]))
        low = high = np.full(len(at), np.nan)
        if again is not None:
            shares = (again[:, k, :, None] <= at).mean(axis=1)
            low, high = ends(shares, found.level)
        frames.append(pd.DataFrame({
            "method": method, "ratio": at, "share": share_within(one[k], at), "low": low,
            "high": high, "level": found.level, "problems": len(pairs),
        }))  # fmt: skip
    return described(pd.concat(frames, ignore_index=True), "profile")


def _taken(by_method: Sequence[Sequence[Cell]], drawn: Array) -> Array:
    """ERTs (resamples, methods, pairs)."""
    every = [
        expected_all([one.spent for one in own], [one.met for one in own], drawn)
        for own in by_method
    ]
    return np.stack(every, axis=1)


def _enough(by_method: Sequence[Sequence[Cell]], level: float) -> bool:
    """Whether every method has seeds enough for an interval on every problem."""
    return all(one.counted.sum() >= fewest("mean", level) for own in by_method for one in own)


def ecdf(found: Trials, spent: str = "time") -> pd.DataFrame:
    """Distribution functions of what is spent until targets, with simulated restarts (COCO).

    A row for each method and value at which its curve rises: columns method, value, unit, share
    (of problems, targets and simulated runs that have met it), low, high, level, problems. A method
    that never meets a target has one row, at 0.
    """
    cells, pairs = common(found, spent)
    frames = []
    for method in found.methods:
        own = [cells[method, *pair] for pair in pairs]
        runs = [_simulated(cell.spent[cell.counted], cell.met[cell.counted]) for cell in own]
        at = np.unique(np.append(steps(np.concatenate(runs), POINTS), 0.0))
        share = np.mean([share_within(one, at) for one in runs], axis=0)
        low = high = np.full(len(at), np.nan)
        if _enough([own], found.level):
            low, high = ends(_again(own, at, len(found.seeds)), found.level)
        frames.append(pd.DataFrame({
            "method": method, "value": at, "unit": unit(spent), "share": share, "low": low,
            "high": high, "level": found.level, "problems": len(pairs),
        }))  # fmt: skip
    return described(pd.concat(frames, ignore_index=True), "ecdf")


def _simulated(spent: Array, met: Mask) -> Array:
    return restarted(spent, met, draws(spent.shape[-1]))


def _again(own: Sequence[Cell], at: Array, seeds: int) -> Array:
    """Shares (resamples, m) at m values, each of seeds drawn again for all problems together."""
    rows = next(islice(resamples(seeds), 1))[:BANDS]
    shares = [_shares_again(cell, at, rows) for cell in own]
    return np.asarray(np.nanmean(shares, axis=0))


def _shares_again(cell: Cell, at: Array, rows: Int) -> Array:
    """Shares (resamples, m) of one cell; nan where none of its seeds was drawn."""
    if cell.counted.all():
        found = _simulated(cell.spent[rows], cell.met[rows])
        return np.array([share_within(one, at) for one in found])
    shares = np.full((len(rows), len(at)), np.nan)
    for number, row in enumerate(rows):
        known = row[cell.counted[row]]
        if len(known):
            shares[number] = share_within(_simulated(cell.spent[known], cell.met[known]), at)
    return shares
