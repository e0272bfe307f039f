"""`desim.tune`: which values of some keys reach a target with the least time, bytes or epsilon."""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from desim.errors import RunError
from desim.experiments.pool import check, players
from desim.experiments.studies.folder import (
    RUNS,
    about,
    claimed,
    finished,
    write_about,
    write_tables,
)
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
from desim.experiments.tuning.search import RunCache, Search, Tell, Wanted
from desim.experiments.tuning.tuned import Tuned, as_played, tuned
from desim.runs.directory import named, output
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
    path = named(out)
    plan = planned(source, overrides, path)
    check(workers, dask, memory)
    complete, cost = True, None
    error: RunError | None = None
    with contextlib.ExitStack() as stack:
        before = about(plan.study, plan.folder, {})
        token = stack.enter_context(claimed(path, before)) if path else ""
        play = stack.enter_context(players(workers, dask, memory))
        cache = RunCache(plan.tune, plan.asked, play, path, token, share, progress)
        search = Search(plan.study, plan.folder, plan.sampler, cache)
        try:
            if plan.tune.charge is not None:
                cost = _charged(plan, search)
            else:
                search.run()
                search.play_fresh(plan.base)
        except KeyboardInterrupt:
            complete = False
        except RunError as gone:
            complete, error = False, gone
        found = tuned(plan, cache, search.candidates, complete, cost)
        if path is not None:
            write_about(path, about(plan.study, plan.folder, cache.keys))
            write_tables(path, found.tables)
            if found.best and complete:
                with output(path / BEST_FILE) as partial:
                    partial.write_text(found.yaml(), "utf-8")
            elif complete:  # what an earlier search had found is not what this one found
                (path / BEST_FILE).unlink(missing_ok=True)
    if error is not None:
        raise error
    return found


def _charged(plan: Planned, search: Search) -> Price | None:
    """Play as many runs as the law says, each with its own candidate and seed; what that costs."""
    charge, cache = plan.tune.charge, search.cache
    assert charge is not None
    number = number_of_runs(charge, plan.tune)
    batch = [search.candidate(values) for values in search.sampler.ask(number)] if number else []
    able = [one for one in batch if one.status != INVALID]
    first = plan.tune.seeds[0]
    cache.play([Wanted(one, first + one.number) for one in able], "runs whose best is released")
    for one in able:
        one.at = 1
        one.status = LEVEL
        if broken := cache.broken(one, first + one.number):
            one.status, one.reason = MISSED, ", ".join(broken)
    met = [one for one in able if one.status == LEVEL]
    if met:
        min(met, key=lambda one: float(cache.needed(one, first + one.number)[0])).status = BEST
    return price_of(plan, cache, able)


def price_of(plan: Planned, cache: RunCache, able: list[Candidate]) -> Price | None:
    """The price, from the stored runs or, of a tuner that stores none, from runs played anew.

    None without a run, or where one failed of which nothing is stored.
    """
    from desim.runs.recording import played

    charge, first = plan.tune.charge, plan.tune.seeds[0]
    assert charge is not None
    runs = []
    for one in able:
        seed = first + one.number
        key = cache.keys[one.number, seed]
        stored = None if cache.path is None else finished(cache.path.resolve() / RUNS / key)
        try:
            runs.append(stored or played(as_played(plan, one)))
        except RunError as failed:
            if not isinstance(failed.run, Run):
                return None
            runs.append(failed.run)
    if not runs:
        return None
    return replace(price(runs, charge, plan.study.compare.epsilon.stated), runs=len(able))
