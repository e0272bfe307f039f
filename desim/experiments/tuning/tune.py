"""`desim.tune`: which values of some keys reach a target with the least time, bytes or epsilon."""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from desim.errors import RunError
from desim.experiments.studies.folder import RUNS, claimed, finished, write_tables
from desim.experiments.studies.hands import check, hands
from desim.experiments.tuning.book import Book, Tell, Wanted
from desim.experiments.tuning.candidates import (
    BEST,
    INVALID,
    LEVEL,
    MISSED,
    Candidate,
    Planned,
    planned,
)
from desim.experiments.tuning.charged import Price, number_of_runs, price
from desim.experiments.tuning.search import Search
from desim.experiments.tuning.tuned import Tuned, as_played, tuned
from desim.runs.directory import STUDY, output, versions, write_text
from desim.runs.run import Run

BEST_FILE = "best.yaml"


def tune(
    source: str | Path | Mapping[str, Any],
    out: str | Path | None = None,
    *,
    overrides: Mapping[str, Any] | None = None,
    workers: int | None = None,
    dask: str | None = None,
    memory: float | None = None,
    progress: Tell | None = None,
    share: bool = True,
) -> Tuned:
    """Look for the values of keys that meet a target with least, and play the best once more.

    source: a study file with the section `tune`, or the same as a dict; out: directory, where runs
    are stored under the hash of their resolved scenario, so that the same call goes on where it
    was and ends alike (default: nothing is stored); overrides: keys of the base scenario; workers,
    dask, memory, share: as in `desim.study`; progress is told how many runs of how many of a batch
    are done, and what they are for.

    The same file gives the same candidates, races and tables with any workers. Tuning is not
    charged to anybody's privacy unless `tune.charge` says how. Ctrl-C ends it early with what is
    there. InputError with nothing played for what is wrong with the file, a value or the
    directory; RunError where tables cannot be stored or the scheduler is gone.
    """
    path = None if out is None else Path(out)
    plan = planned(source, overrides, path)
    check(workers, dask, memory)
    complete, cost = True, None
    error: RunError | None = None
    with contextlib.ExitStack() as stack:
        token = stack.enter_context(claimed(path, about(plan, {}))) if path else ""
        carry = stack.enter_context(hands(workers, dask, memory))
        book = Book(plan.tune, plan.asked, carry, path, token, share, progress)
        search = Search(plan.study, plan.folder, plan.sampler, book)
        try:
            if plan.tune.charge is not None:
                cost = _charged(plan, search)
            else:
                search.run()
                _again(plan, book, search)
        except KeyboardInterrupt:
            complete = False
        except RunError as gone:
            complete, error = False, gone
        made = tuned(plan, book, search.candidates, complete, cost)
        if path is not None:
            write_text(path / STUDY, _text(about(plan, book.keys)))
            write_tables(path, made.tables)
            if made.best and complete:
                with output(path / BEST_FILE) as partial:
                    partial.write_text(made.yaml(), "utf-8")
            elif complete:  # what an earlier search had found is not what this one found
                (path / BEST_FILE).unlink(missing_ok=True)
    if error is not None:
        raise error
    return made


def _again(plan: Planned, book: Book, search: Search) -> None:
    """The best, or the front, and the base on seeds that nothing was chosen by."""
    best = [one for one in search.elites if one.status != LEVEL]
    seeds = plan.tune.fresh_seeds
    if best:
        book.play([Wanted(one, seed) for one in [*best, plan.base] for seed in seeds],
                  "the best on fresh seeds")  # fmt: skip


def _charged(plan: Planned, search: Search) -> Price | None:
    """Play as many runs as the law says, each with its own candidate and seed; what that costs."""
    charge, book = plan.tune.charge, search.book
    assert charge is not None
    number = number_of_runs(charge, plan.tune)
    batch = [search.made(values) for values in search.sampler.ask(number)] if number else []
    able = [one for one in batch if one.status != INVALID]
    first = plan.tune.seeds[0]
    book.play([Wanted(one, first + one.number) for one in able], "runs whose best is released")
    for one in able:
        one.at = 1
        one.status = LEVEL
        if broken := book.broken(one, first + one.number):
            one.status, one.reason = MISSED, ", ".join(broken)
    met = [one for one in able if one.status == LEVEL]
    if met:
        min(met, key=lambda one: float(book.needed(one, first + one.number)[0])).status = BEST
    return price_of(plan, book, able)


def price_of(plan: Planned, book: Book, able: list[Candidate]) -> Price | None:
    """The price, from the stored runs or, of a tuner that stores none, from runs played anew.

    None without a run, or where one failed of which nothing is stored.
    """
    from desim.runs.recording import played

    charge, first = plan.tune.charge, plan.tune.seeds[0]
    assert charge is not None
    runs = []
    for one in able:
        seed = first + one.number
        key = book.keys[one.number, seed]
        stored = None if book.path is None else finished(book.path.resolve() / RUNS / key)
        try:
            runs.append(stored or played(as_played(plan, one)))
        except RunError as failed:
            if not isinstance(failed.run, Run):
                return None
            runs.append(failed.run)
    if not runs:
        return None
    return replace(price(runs, charge, plan.study.compare.epsilon.given), runs=len(able))


def about(plan: Planned, keys: Mapping[tuple[int, int], str]) -> dict[str, Any]:
    """What the directory says of the tuner: its file, and the runs with their candidates."""
    runs = [{"case": case, "seed": seed, "run": key} for (case, seed), key in keys.items()]
    written = plan.study.written()
    return {"study": written, "folder": str(plan.folder), "versions": versions(), "runs": runs}


def _text(found: Mapping[str, Any]) -> str:
    return json.dumps(found, indent=2, ensure_ascii=False) + "\n"
