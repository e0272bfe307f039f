"""Which method is first over many problems: expected times, distribution functions, profiles.

A problem is what the methods have in common: data, network, devices. Each target on it counts by
itself. Bands and intervals come from seeds that are drawn again jointly for all methods, problems
and targets, as runs with one seed share their draws.

Expected running times and simulated restarts are COCO's (arXiv 1603.08785, 1605.03560): a run that
does not meet the target is started again, with other draws, until one does, so that ERT = (what all
runs spent until they met it, or ended) / (how many met it). Intervals are of the studentised
bootstrap of log ERT, or of its difference between two methods, with the error of the delta method
(Efron, Tibshirani 1993, ch. 12). Measured coverage at 95 %, of lognormal times (deviation 1) for 5
to 20 seeds: .90 to .93, .93 to .96 where a third fails, .86 to .89 where a tenth fails; the
percentile bootstrap has .72 to .92; of ratios .92 to .93, and .81 to .92 where 35 and 50 % fail.

A profile (Dolan, Moré 2002, doi 10.1007/s101070100263) is the share of problems on which a method
takes at most so many times the best. Methods that tie are all the best; a problem that nobody
solves counts for nobody, and stays among all.
"""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from desim.amounts import amount
from desim.arrays import Array, Int, Mask
from desim.errors import InputError
from desim.experiments.studies.statistics import FLOOR, Estimate, fewest, resamples
from desim.experiments.studies.trials import Cell, Trials, unit
from desim.experiments.studies.words import one_epsilon
from desim.log.column_meanings import described
from desim.numerics.later import pd
from desim.tabulated import Table

# Tables for readers, and what is to be known of them.
WITHIN = (1.0, 1.5, 2.0, 5.0, 10.0)  # ratios to the best
MAX_ROWS = 40  # of a table
ADDED = (
    "epsilon: restarts add up, as in basic composition, and so do their deltas; an expectation is "
    "no guarantee"
)


def answer_tables(
    found: Trials, frame: "pd.DataFrame", shares: "pd.DataFrame", spent: str = "time"
) -> list[Table]:
    """A table for each target of expected running times, `frame`; then the profile, `shares`."""
    tables = [_ert(frame[frame["target"] == target], spent) for target in found.targets]
    tables.append(profile_table(shares, spent))
    last = tables[-1]
    notes = (*last.notes, *notes_on(found, frame, spent))
    return [*tables[:-1], Table(last.title, last.head, last.rows, notes)]


def _ert(rows: "pd.DataFrame", spent: str) -> Table:
    """One target: a row for each problem and method."""
    level, several = float(rows["level"].iloc[0]), rows["problem"].nunique() > 1
    interval = f"[{100 * level:g}% interval]"
    head = ["method", *(["problem"] * several), "met", f"ERT {interval}", f"over best {interval}"]
    body, shown = [], list[Any](rows.head(MAX_ROWS).itertuples())
    for row in shown:
        ratio = amount(row.ratio) + _interval(row.ratio_low, row.ratio_high, "")
        endless = spent == "epsilon" and row.met
        value = one_epsilon(row.value) if endless else amount(row.value, row.unit)
        body.append([
            str(row.method), *([str(row.problem)] if several else []), f"{row.met} of {row.runs}",
            value + _interval(row.low, row.high, row.unit),
            "best" if row.method == row.best else ratio,
        ])  # fmt: skip
    more = [f"... and {len(rows) - MAX_ROWS} more rows"] if len(rows) > MAX_ROWS else []
    return Table(f"expected {spent} to {rows['target'].iloc[0]}", head, body, more)


def _interval(low: float, high: float, of: str) -> str:
    """The interval in brackets; nothing where there is none."""
    if np.isnan(low) or not low < high:
        return ""
    return f" [{amount(low, of)}, {amount(high, of)}]"


def profile_table(frame: "pd.DataFrame", spent: str) -> Table:
    """On what share of problems each method is within so many times the best."""
    names = ["best", *(f"within {ratio:g}x" for ratio in WITHIN[1:]), "ever"]
    body = []
    for method, rows in frame.groupby("method", sort=False):
        at, share = rows["ratio"].to_numpy(), rows["share"].to_numpy()
        found = [share[at <= ratio][-1] for ratio in (*WITHIN, np.inf)]
        body.append([str(method), *(f"{100 * one:.3g} %" for one in found)])
    n = int(frame["problems"].iloc[0])
    some = f"{n} problems and targets" if n > 1 else "one problem and target"
    return Table(f"profile of expected {spent} over {some}", ["method", *names], body)


def notes_on(found: Trials, frame: "pd.DataFrame", spent: str) -> Iterator[str]:
    """What an expected running time is, and what is behind these."""
    yield (
        f"ERT: the {spent} of all runs, until they met the target or ended, over how many met it; "
        "a run that failed counts with what it had spent"
    )
    least, needed = int(frame["runs"].min()), fewest("mean", found.level)
    if least < needed:
        yield f"no interval: that of an expected {spent} needs {needed} seeds"
    lost = int(frame["value"].isna().sum())
    if lost:
        yield f"no ERT in {lost} places: runs failed with nothing known of what they had spent"
    if spent == "epsilon":
        yield from found.about
        yield ADDED


# Performance profiles: ratios to the best, and their distribution functions.


def ratios(taken: Array) -> Array:
    """Ratios (..., methods, problems) to the best on each problem; inf for never.

    taken: what each takes, inf for never. Where the best takes nothing, ratios are 1 or infinite.
    """
    best = taken.min(axis=-2, keepdims=True)
    with np.errstate(invalid="ignore", divide="ignore"):
        found = taken / best
    found = np.where(taken == best, 1.0, found)
    return np.asarray(np.where(np.isinf(taken), np.inf, found))


def share_within(values: Array, at: Array) -> Array:
    """Shares (m,) of values (n,) that are at most each of `at` (m,)."""
    places = np.searchsorted(np.sort(values), at, side="right")
    return np.asarray(places / len(values), float)


def steps(values: Array, most: int) -> Array:
    """Where the distribution function of values (n,) rises: at most so many, evenly ranked."""
    found = np.unique(values[np.isfinite(values)])
    if len(found) > most:
        found = found[np.unique(np.linspace(0, len(found) - 1, most).round().astype(int))]
    return np.asarray(found, float)


def ends(shares: Array, level: float) -> tuple[Array, Array]:
    """Lower and upper ends (m,) of the percentile interval of resampled shares (resamples, m)."""
    ordered = np.sort(shares, axis=0)
    cut = int(0.5 * (1.0 - level) * len(ordered))
    return np.asarray(ordered[cut]), np.asarray(ordered[-1 - cut])


def expected_all(spent: Sequence[Array], met: Sequence[Array | Mask], drawn: Array) -> Array:
    """Resampled ERTs (m, pairs) of what runs spent and whether they met it, each (seeds,).

    drawn (m, seeds): how often each seed is in a resample; nan: the seed has no run.
    """
    known = [~np.isnan(one) for one in spent]
    sums = drawn @ np.array([np.where(k, one, 0.0) for k, one in zip(known, spent, strict=True)]).T
    counts = drawn @ np.array([np.where(k, one, 0.0) for k, one in zip(known, met, strict=True)]).T
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(counts > 0.0, sums / counts, np.inf))


# Expected running times, their intervals, and simulated restarts.
SAMPLES = 200  # simulated restarts of one method, problem and target, at least


def expected(spent: Array, met: Mask) -> float:
    """ERT of runs that spent (n,) until they met the target, or ended; inf where none met it."""
    successes = int(met.sum())
    return float(spent.sum()) / successes if successes else math.inf


def weights(n: int) -> Array:
    """How often each of n seeds is drawn in each of RESAMPLES resamples (RESAMPLES, n)."""
    parts = []
    for rows in resamples(n):
        places = rows + n * np.arange(len(rows))[:, None]
        counts = np.bincount(places.ravel(), minlength=rows.size)
        parts.append(counts.reshape(rows.shape).astype(float))
    return np.concatenate(parts)


def expected_estimate(spent: Array, met: Mask, drawn: Array, level: float = 0.95) -> Estimate:
    """ERT and its interval; drawn (m, n): how often each seed is in each resample.

    nan in spent: the seed has no run. inf as an end: of too many resamples none meets the target.
    """
    known = ~np.isnan(spent)
    value = expected(spent[known], met[known])
    terms = np.array([np.where(known, spent, 0.0), np.where(known, met, 0.0)])
    ends = _ends(terms, np.array([1.0, -1.0]), drawn, level, int(known.sum()))
    return Estimate(value, *ends, int(known.sum()))


def ratio_estimate(spent: Array, met: Mask, drawn: Array, level: float = 0.95) -> Estimate:
    """ERT of the first over that of the second, spent and met (2, n) seed by seed; its interval."""
    known = ~np.isnan(spent)
    one, two = (expected(spent[k, known[k]], met[k, known[k]]) for k in (0, 1))
    pairs = int(known.all(axis=0).sum())
    terms = np.array([*np.where(known, spent, 0.0), *np.where(known, met, 0.0)])
    ends = _ends(terms, np.array([1.0, -1.0, -1.0, 1.0]), drawn, level, pairs)
    return Estimate(ratio_of(one, two), *ends, pairs)


def ratio_of(one: float, best: float) -> float:
    """One expected time over another; 1 for two that are 0, nan for two that are infinite."""
    if one == best:
        return 1.0 if math.isfinite(one) else math.nan
    return one / best if best > 0.0 else math.inf


def _ends(terms: Array, signs: Array, drawn: Array, level: float, n: int) -> tuple[float, float]:
    """Ends of the interval of exp(sum of signs * log(sums of terms (k, seeds)))."""
    total = terms.sum(axis=1)
    if n < fewest("mean", level) or not np.isfinite(total).all() or not (total > 0.0).all():
        return math.nan, math.nan
    value, error = _contrast(terms, signs, np.ones((1, terms.shape[1])))
    if error[0] == 0.0:
        return float(np.exp(value[0])), float(np.exp(value[0]))
    found, errors = _contrast(terms, signs, drawn)
    with np.errstate(invalid="ignore"):
        away = (found - value) / np.maximum(errors, FLOOR * error)
    away = np.sort(np.where(np.isnan(away), np.inf, away))
    cut = int(0.5 * (1.0 - level) * len(drawn))
    with np.errstate(over="ignore"):
        ends = np.exp(value - away[[-1 - cut, cut]] * error)
    return float(ends[0]), float(ends[1])


def _contrast(terms: Array, signs: Array, drawn: Array) -> tuple[Array, Array]:
    """Logarithms (m,) of the contrast in each resample, and their errors by the delta method."""
    sums = drawn @ terms.T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(sums > 0.0, np.log(sums), -np.inf) @ signs
        scaled = signs / sums
        products = np.array([[drawn @ (one * two) for two in terms] for one in terms])
        squares = np.einsum("mk,ml,klm->m", scaled, scaled, products)
    return values, np.sqrt(np.maximum(np.nan_to_num(squares, nan=0.0, posinf=0.0), 0.0))


def draws(n: int) -> Iterator[Int]:
    """Which of n runs each simulated one starts with, and then goes on with, again and again.

    Every run begins equally many, as in cocopp; the same for the same n, so that methods with the
    same seeds are restarted on the same ones.
    """
    size = n * math.ceil(SAMPLES / n)
    rng = np.random.default_rng([n, size])
    yield np.arange(size) % n
    while True:
        yield rng.integers(n, size=size)


def restarted(spent: Array, met: Mask, chosen: Iterator[Int]) -> Array:
    """What simulated runs spend that are restarted until they meet the target; inf for never.

    spent, met (..., n): until the target or the end; chosen: indices (samples,) of the first run,
    then of those after each restart, the same for all rows. Returns (..., samples).
    """
    first = next(chosen)
    total, going = spent[..., first].astype(float), ~met[..., first]
    hopeless = ~met.any(axis=-1, keepdims=True)
    going &= ~hopeless
    while going.any():
        again = next(chosen)
        total = np.where(going, total + spent[..., again], total)
        going &= ~met[..., again]
    return np.where(hopeless, np.inf, total)


# The answers themselves, from the trials of all methods.
POINTS = 400  # of a curve, at most
BENDS = 100  # of the band of a profile, at most
BANDS = 199  # resamples of the seeds for a band of restarts
Pair = tuple[str, str]  # problem, target
UNKNOWN = Estimate(np.nan, np.nan, np.nan, 0)


def ert(found: Trials, spent: str = "time") -> "pd.DataFrame":
    """Expected running times, a row for each method, problem and target.

    Columns method, problem, target, spent, unit, runs, met, rate, value (inf: no run met it; nan:
    some failed with nothing known of what they spent), low, high, level; best, the method with the
    least on that problem; ratio to it, with ratio_low and ratio_high.
    """
    cells, drawn = found.cells(spent), weights(len(found.seeds))
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
    taken = {
        method: UNKNOWN if one.unknown else expected_estimate(one.spent, one.met, drawn, level)
        for method, one in own.items()
    }
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


def profile(found: Trials, spent: str = "time") -> "pd.DataFrame":
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
        low = high = np.full(len(at), np.nan)
        if again is not None:  # where the band rises, too
            at = np.unique(np.concatenate([at, steps(again[:, k].ravel(), BENDS)]))
            shares = (again[:, k, :, None] <= at).mean(axis=1)
            low, high = ends(shares, found.level)
        curve = {"ratio": at, "share": share_within(one[k], at), "low": low, "high": high}
        frames.append(pd.DataFrame({"method": method, **curve}))
    known = {"level": found.level, "problems": len(pairs)}
    return described(pd.concat(frames, ignore_index=True).assign(**known), "profile")


def _taken(by_method: Sequence[Sequence[Cell]], drawn: Array) -> Array:
    """ERTs (resamples, methods, pairs)."""
    sides = [([one.spent for one in own], [one.met for one in own]) for own in by_method]
    return np.stack([expected_all(*side, drawn) for side in sides], axis=1)


def _enough(by_method: Sequence[Sequence[Cell]], level: float) -> bool:
    """Whether every method has seeds enough for an interval on every problem."""
    return all(one.counted.sum() >= fewest("mean", level) for own in by_method for one in own)


def ecdf(found: Trials, spent: str = "time") -> "pd.DataFrame":
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
            again = next(resamples(len(found.seeds)))[:BANDS]  # of seeds, for all problems together
            shares = [_shares_again(cell, at, again) for cell in own]
            low, high = ends(np.asarray(np.nanmean(shares, axis=0)), found.level)
        curve = {"value": at, "unit": unit(spent), "share": share, "low": low, "high": high}
        frames.append(pd.DataFrame({"method": method, **curve}))
    known = {"level": found.level, "problems": len(pairs)}
    return described(pd.concat(frames, ignore_index=True).assign(**known), "ecdf")


def _simulated(spent: Array, met: Mask) -> Array:
    return restarted(spent, met, draws(spent.shape[-1]))


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
