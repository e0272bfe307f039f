"""What stands in one row of a comparison, and what must be known of the rows side by side."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from desim.errors import DesimError, InputError
from desim.runs.run import Run
from desim.studies.cases import short, told

LONGEST = 60  # letters of a label
SHOWN = 8  # keys that runs differ in, named before the rest is counted


@dataclass(frozen=True)
class Row:
    """Runs that differ in their seeds only, or are so labelled; done ones where any is done."""

    label: str
    runs: tuple[Run, ...]
    left_out: tuple[tuple[str, int], ...] = ()


def rows_of(runs: Sequence[Run] | Mapping[str, Sequence[Run]]) -> list[Row]:
    """Rows in order; InputError where there is no run."""
    if isinstance(runs, Mapping):
        named = {label: list(some) for label, some in runs.items() if len(some)}
    else:
        found: dict[object, list[Run]] = {}
        for number, run in enumerate(runs):
            found.setdefault(run.alike or number, []).append(run)
        labels = _labels([some[0] for some in found.values()])
        named = dict(zip(labels, found.values(), strict=True))
    if not named:
        raise InputError("no run to compare")
    return [_row(label, some) for label, some in named.items()]


def _row(label: str, runs: Sequence[Run]) -> Row:
    """One row; a run that was given twice counts once."""
    once = list({(run.manifest.get("seed"), run.alike or id(run)): run for run in runs}.values())
    done = [run for run in once if run.status == "done"]
    ended = Counter(run.status for run in once if run.status != "done")
    if done:
        return Row(label, tuple(done), tuple(ended.items()))
    return Row(f"{label} ({', '.join(ended)})", tuple(once))


def _labels(runs: Sequence[Run]) -> list[str]:
    """Names of the runs; where two share one, what they differ in, or else their folders."""
    names = Counter(run.name for run in runs)
    if len(names) == len(runs):
        return list(names)
    keys = _differing(runs)
    for chosen in itertools.chain(itertools.combinations(keys, 1), itertools.combinations(keys, 2)):
        labels = [_named(run, chosen if names[run.name] > 1 else ()) for run in runs]
        if len(set(labels)) == len(labels) and max(map(len, labels)) <= LONGEST:
            return labels
    places = [str(run.directory or f"{run.name} {n}") for n, run in enumerate(runs, 1)]
    both = zip(runs, places, strict=True)
    return [run.name if names[run.name] == 1 else place for run, place in both]


def _named(run: Run, keys: Sequence[str]) -> str:
    """The run's name, and what it has under some keys."""
    own = _flat(run)
    values = [f"{short(key)} {told(own[key]) if key in own else 'none'}" for key in keys]
    return ": ".join([run.name, ", ".join(values)]) if values else run.name


def _flat(run: Run) -> dict[str, Any]:
    """Leaves of the resolved scenario by dotted key; none where it cannot be read."""
    try:
        written = run.scenario.written()
    except DesimError:
        return {}
    return dict(_leaves(written, ()))


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, (*path, str(key)))
    elif path not in (("name",), ("seed",)):
        yield ".".join(path), value


def _differing(runs: Sequence[Run]) -> list[str]:
    """Keys that not all scenarios have with the same value."""
    flats = [flat for flat in map(_flat, runs) if flat]
    keys = dict.fromkeys(key for flat in flats for key in flat)
    return [key for key in keys if any(flat.get(key) != flats[0].get(key) for flat in flats)]


def notes(rows: Sequence[Row]) -> Iterator[str]:
    """What is to be known before one row is held against another."""
    firsts = [row.runs[0] for row in rows]
    if len({run.manifest.get("problem_sha256") for run in firsts}) > 1:
        yield "warning: not the same data or loss in all runs; their metrics do not compare"
    keys = list(dict.fromkeys(".".join(key.split(".")[:2]) for key in _differing(firsts)))
    more = f" and {len(keys) - SHOWN} more" if len(keys) > SHOWN else ""
    if keys:
        yield f"differ in: {', '.join(keys[:SHOWN])}{more}"
    for row in rows:
        for status, n in row.left_out:
            yield f"left out of {row.label}: {n} {status}"
        for run in row.runs:
            if run.status != "done":
                yield f"{row.label}: {run.manifest.get('reason', run.status)}"


def terms(rows: Sequence[Row], given: Mapping[str, Any]) -> list[str]:
    """In which terms the epsilons are told: once where all share them, else row by row."""
    found = {row.label: _terms(row.runs[0], given) for row in rows}
    known = {label: text for label, text in found.items() if text}
    head = "epsilon: of the agent that spends most"
    if len(set(known.values())) == 1:
        return [f"{head}; {next(iter(known.values()))}"]
    return [f"{head} of {label}; {text}" for label, text in known.items()]


def _terms(run: Run, given: Mapping[str, Any]) -> str:
    try:
        if run.scenario.privacy is None and not given:
            return ""
    except DesimError:
        return ""
    spent = run.account(**given)
    return f"view {spent.view}, {spent.relation}, delta {spent.delta:g}, {spent.method}"
