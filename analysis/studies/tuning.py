"""How many runs a tuner needs, beside all of a grid; and a race, beside runs on seeds of their own.

python -m analysis.studies.tuning [--repeats N] [--races N] [--out FOLDER]

Every cell of three grids is played on ten seeds. `desim tune` then looks for the least time with a
fifth of these runs, again and again with other seeds of its sampler; its runs, which are the same
bits, are taken from those of the grid. Last, a race between candidates that meet the same seeds
is held against one between candidates that have seeds of their own.
"""

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from analysis.reproductions import page
from analysis.studies.tuned_scenarios import SCENARIOS
from analysis.studies.unpaired import unpaired_worse
from desim.arrays import Array
from desim.experiments.pool import Play, players
from desim.experiments.studies.work import Job, Result
from desim.experiments.tuning.candidates import Planned, planned
from desim.experiments.tuning.search import FIRST, RunCache, Search, Wanted, medians, part, worse

RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS.parent / "tuning.md"
SAMPLERS = ("random", "tpe")
SHARE = 0.2  # of the runs of the whole grid
REPEATS, RACES, LONGEST = 10, 100, 150
LEVEL = 0.95
RIVALS, CLOSE = 10, 1.35  # candidates of a race, evenly from cells within so much of the least
WORSE = 0.1
TOLERANCE = 0.05


def tuner(name: str, **changes: Any) -> dict[str, Any]:
    """The tuner's file of a scenario."""
    base, tune = SCENARIOS[name]
    return {"name": name, "base": base, "tune": {**tune, "cap": False, "fresh": 0, **changes}}


def searched(plan: Planned, carry: Play) -> tuple[Search, RunCache]:
    """A search that is done, and its runs."""
    book = RunCache(plan.tune, plan.asked, carry, None, "", False, None)
    search = Search(plan.study, plan.folder, plan.sampler, book)
    search.run()
    return search, book


def exhaustive(name: str) -> tuple[Planned, Search, RunCache]:
    """Every cell of the grid on every seed."""
    plan = planned(tuner(name, sampler="grid", race=False, runs=10**6, batch=10**6))
    with players(0, None, None) as carry:
        search, book = searched(plan, carry)
    return plan, search, book


def looked_up(known: Mapping[str, Result]) -> Play:
    """Results of runs that were played already."""

    def carry(jobs: list[Job]) -> Iterator[Result]:
        yield from (known[job.key] for job in jobs)

    return carry


def tuned(name: str, whole: Search, book: RunCache, repeats: int) -> list[dict[str, Any]]:
    """A row for each sampler and seed of it: how far above the grid's least, by how many runs."""
    seeds = whole.seeds
    every = medians(book.table(whole.candidates, seeds))[0]
    least, runs = float(every.min()), len(every) * len(seeds)
    rows = []
    for sampler in SAMPLERS:
        for seed in range(repeats):
            plan = planned(tuner(name, sampler=sampler, seed=seed, runs=int(SHARE * runs)))
            search, own = searched(plan, looked_up(book.results))
            best = medians(own.table(search.elites, seeds))[0].min(initial=np.inf)
            rows.append({
                "scenario": name, "sampler": sampler, "seed": seed, "cells": len(every),
                "grid_runs": runs, "runs": own.asked, "share": own.asked / runs,
                "candidates": len(search.candidates), "least": least, "found": float(best),
                "above": float(best) / least - 1.0,
                "good": float(np.mean(every <= (1.0 + TOLERANCE) * least)),
            })  # fmt: skip
    return rows


def more_seeds(plan: Planned, whole: Search, cells: Sequence[int]) -> Array:
    """What cells need on LONGEST further seeds (cells, seeds)."""
    seeds = tuple(range(1000, 1000 + LONGEST))
    with players(0, None, None) as carry:
        book = RunCache(plan.tune, plan.asked, carry, None, "", False, None)
        some = [whole.candidates[cell] for cell in cells]
        book.play([Wanted(one, seed) for one in some for seed in seeds], "")
        return book.table(some, seeds)[0]


def races(name: str, whole: Search, plan: Planned, number: int) -> list[dict[str, Any]]:
    """A row for each race of ten of the better cells: runs until all that are worse are out.

    Worse: by WORSE or more in the median over all seeds.
    """
    every = medians(whole.book.table(whole.candidates, whole.seeds))[0]
    order = np.argsort(every, kind="stable")
    last = max(int((every <= CLOSE * every.min()).sum()), RIVALS) - 1
    some = order[np.linspace(0, last, RIVALS).astype(int)]
    values = more_seeds(plan, whole, some.tolist())
    true = np.array([np.median(row) for row in values])
    must, best = true > (1.0 + WORSE) * true.min(), int(true.argmin())
    rng = np.random.default_rng(1)
    rows = []
    for repeat in range(number):
        common = values[:, rng.permutation(LONGEST)]
        own = np.stack([row[rng.permutation(LONGEST)] for row in values])
        rows.append({
            "scenario": name, "repeat": repeat, "candidates": len(some), "out": int(must.sum()),
            "common": raced(common, must, best, worse),
            "own": raced(own, must, best, unpaired_worse), "noise": noise(values, best),
        })  # fmt: skip
    return rows


def noise(values: Array, best: int) -> float:
    """Median over rivals of the variance of log(rival / best) on common seeds over that on own.

    Of seeds on which both met the target: so many times as few seeds a mean would need.
    """
    found = []
    for row in np.delete(values, best, axis=0):
        both = np.isfinite(row) & np.isfinite(values[best])
        one, other = np.log(row[both]), np.log(values[best][both])
        found.append(np.var(one - other) / (np.var(one) + np.var(other)))
    return float(np.median(found))


def raced(values: Array, must: Any, best: int, test: Any) -> float:
    """Runs until every candidate that must be out is out; inf where some stay in, or the best goes.

    Who is out plays no more.
    """
    left = np.arange(len(values))
    runs, seeds = 0, values.shape[1]
    for n in range(1, seeds + 1):
        runs += len(left)
        if n >= FIRST and len(left) > 1:
            error = part(1.0 - LEVEL, n, seeds)
            left = left[~test(values[left, :n], error).any(axis=1)]
        if best not in left:
            return np.inf
        if not must[left].any():
            return float(runs)
    return np.inf


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print and write."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--races", type=int, default=RACES)
    parser.add_argument("--out", type=Path, help="folder; default: results/")
    asked = parser.parse_args(arguments)
    rows: list[dict[str, Any]] = []
    seconds: list[dict[str, Any]] = []
    for name in SCENARIOS:
        began = time.perf_counter()
        plan, whole, book = exhaustive(name)
        print(f"{name}: grid {time.perf_counter() - began:.0f} s", flush=True)
        rows += tuned(name, whole, book, asked.repeats)
        print(f"{name}: tuned {time.perf_counter() - began:.0f} s", flush=True)
        seconds += races(name, whole, plan, asked.races)
        print(f"{name}: raced {time.perf_counter() - began:.0f} s", flush=True)
        page.write_csv(asked.out or RESULTS, "tuning", rows)
        page.write_csv(asked.out or RESULTS, "tuning_races", seconds)
        print(written(rows, seconds), flush=True)
    if asked.out is None and (asked.repeats, asked.races) == (REPEATS, RACES):
        tell(rows, seconds)


def tell(rows: Sequence[Mapping[str, Any]], raced: Sequence[Mapping[str, Any]]) -> None:
    """Put both tables into the page."""
    page.update("found", found_table(rows), PAGE)
    page.update("races", race_table(raced), PAGE)


def written(rows: Sequence[Mapping[str, Any]], raced: Sequence[Mapping[str, Any]]) -> str:
    """Both tables."""
    return f"{found_table(rows)}\n\n{race_table(raced)}"


def found_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per scenario and sampler."""
    lines = []
    for name, sampler in dict.fromkeys((row["scenario"], row["sampler"]) for row in rows):
        mine = page.chosen(rows, scenario=name, sampler=sampler)
        above = np.array([row["above"] for row in mine])
        share = max(row["share"] for row in mine)
        lines.append((
            name, sampler, str(mine[0]["cells"]), str(mine[0]["grid_runs"]),
            f"{100 * share:.1f} %", f"{100 * np.median(above):.1f} %", f"{100 * above.max():.1f} %",
            f"{int((above <= TOLERANCE).sum())} of {len(above)}", f"{100 * mine[0]['good']:.1f} %",
        ))  # fmt: skip
    head = ("scenario", "sampler", "cells", "runs of the grid", "of them, at most",
            "above the least, median", "worst", "within 5 %", "cells within 5 %")  # fmt: skip
    return page.table(head, lines)


def race_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """One line per scenario."""
    lines = []
    for name in dict.fromkeys(row["scenario"] for row in rows):
        mine = page.chosen(rows, scenario=name)
        common, own = (np.array([row[key] for row in mine]) for key in ("common", "own"))
        both = common / own if np.isfinite([common, own]).all() else np.full(1, np.nan)
        lines.append((
            name, f"{mine[0]['out']} of {mine[0]['candidates']}", _runs(common), _runs(own),
            f"{np.median(both):.2f}" if np.isfinite(both).all() else "",
            f"{int(np.isfinite(common).sum())} of {len(common)}",
            f"{int(np.isfinite(own).sum())} of {len(own)}", f"{mine[0]['noise']:.2f}",
        ))  # fmt: skip
    head = ("scenario", "worse by 10 %", "runs, common seeds", "runs, own seeds", "ratio, median",
            "decided, common", "decided, own", "noise, common / own")  # fmt: skip
    return page.table(head, lines)


def _runs(found: Array) -> str:
    middle = float(np.median(found))
    return f"{middle:g}" if np.isfinite(middle) else "not decided"


if __name__ == "__main__":
    main()
