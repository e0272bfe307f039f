"""What was played, side by side: scenarios and manifests, and what a reader has to know first."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from desim.deployments.fidelity.clock_errors import deployed, provisos
from desim.interface.reports.page import metrics, terms, terms_differ
from desim.interface.reports.readable import NOTHING, Reading, by_text
from desim.runs.directory import SCENARIO
from desim.runs.likeness import problems_apart, sharing
from desim.runs.reading.series import flattened
from desim.runs.run import Run
from desim.tabulated import Table

LONGEST = 20_000  # characters of a scenario that are shown


def differences(found: Sequence[Reading]) -> Table | None:
    """Every key in which the scenarios differ, a column for each run; None for fewer than two."""
    flat = [dict(flattened(one.written)) for one in found]
    if len(found) < 2 or not all(flat):
        return None
    keys = dict.fromkeys(key for one in flat for key in one if key != "name")
    unlike = [key for key in keys if len({one.get(key) for one in flat}) > 1]
    rows = [[key, *(one.get(key, NOTHING) for one in flat)] for key in unlike]
    note = "" if rows else "The scenarios are the same."
    heads = ["key", *(one.label for one in found)]
    return Table("In what the scenarios differ", heads, rows, [note])


def scenario_text(one: Reading) -> str:
    """The resolved scenario as stored, the middle of a very long one left out."""
    if one.run.directory is not None:
        try:
            text = (one.run.directory / SCENARIO).read_text("utf-8", errors="replace")
        except OSError as error:
            one.troubles.setdefault(f"{SCENARIO} ({error.strerror})", []).append(
                "text of the scenario"
            )
            return ""
    else:
        from desim.scenario.load import resolved_yaml

        text = one.tried("scenario", lambda: resolved_yaml(one.run.scenario)) or ""
    if len(text) <= LONGEST:
        return text
    half = LONGEST // 2
    return f"{text[:half]}\n... {len(text) - LONGEST} characters left out ...\n{text[-half:]}"


def manifests(found: Sequence[Reading]) -> Table:
    """The manifests, a column for each run; rows in which they differ stand out."""
    flat = []
    for one in found:
        manifest = {key: value for key, value in one.run.manifest.items() if key != "warnings"}
        if rows := one.stored("rows", list):
            few, many = min(rows), max(rows)
            manifest["rows"] = f"{few} to {many} at {len(rows)} agents, {sum(rows)} in all"
        place = str(one.run.directory or "in memory")
        flat.append({"directory": place, **dict(flattened(manifest))})
    keys = list(dict.fromkeys(key for one in flat for key in one))
    cells = [[key, *(one.get(key, NOTHING) for one in flat)] for key in keys]
    unlike = (place for place, row in enumerate(cells) if len(set(row[1:])) > 1)
    note = "Marked: where the runs differ." if len(found) > 1 else ""
    heads = ["", *(one.label for one in found)]
    return Table("Manifest", heads, cells, [note], marked=frozenset(unlike))


# Warnings that a reader has to know before the numbers.


def cautions(found: Sequence[Reading]) -> list[tuple[str, list[str]]]:
    """Each warning once, with the names of the runs it is about (none: all of them together)."""
    texts = by_text((one.label, text) for one in found for text in _of_one(one))
    named = [(text, _named(labels, found)) for text, labels in texts.items()]
    return [*((text, []) for text in _of_all(found)), *named]


def _named(labels: Sequence[str], found: Sequence[Reading]) -> list[str]:
    """The runs of these labels; a series that is there with all its seeds by its own name."""
    series: dict[str, list[str]] = {}
    for one in found:
        series.setdefault(one.series, []).append(one.label)
    names: list[str] = []
    for name, members in series.items():
        whole = len(members) > 1 and set(members) <= set(labels)
        seeds = f"{name} ({len(members)} seeds)"
        names += [seeds] if whole else [label for label in members if label in labels]
    return names


def _of_one(one: Reading) -> Iterator[str]:
    own = version("desim")
    if one.run.status != "done":
        yield f"{one.run.status}: {one.stored('reason', str) or 'no reason is stored'}"
    played = (one.stored("versions", dict) or {}).get("desim")
    if played != own:
        yield f"simulated by desim {played or 'of an unknown version'}; this report is by {own}"
    yield from map(str, one.stored("warnings", list) or [])
    if text := one.unheard:
        yield text
    if not one.curves:
        yield "no metric was recorded: the run ended before, or observe.metrics is []"
    if one.account is not None:
        yield from (f"privacy: {text}" for text in one.account.flags)
    yield from (
        f"not shown: {', '.join(dict.fromkeys(what))}: {why}" for why, what in one.troubles.items()
    )


def _of_all(found: Sequence[Reading]) -> Iterator[str]:
    if len(found) < 2:
        return
    runs = [one.run for one in found]
    unlike, apart = problems_apart(runs, runs)
    if unlike:
        yield (
            f"the runs differ in {', '.join(unlike)}: a metric of one is not comparable with that "
            "of another"
        )
    elif apart:
        yield (
            "the same problem and seed gave different data or another model (problem_sha256 or "
            "first_sha256 differs): files or library versions have changed between the runs"
        )
    real = [one.run for one in found if deployed(one.run)]
    if len(real) == 1:
        yield from provisos(real[0], [one.run for one in found if one.run is not real[0]])
    groups: dict[str, list[Run]] = {}
    for one in found:
        groups.setdefault(one.series, []).append(one.run)
    if text := found[0].tried("noise that runs share", lambda: sharing([*groups.values()])):
        yield text
    missing = [name for name in metrics(found) if any(name not in one.curves for one in found)]
    if missing:
        yield f"not every run has recorded: {', '.join(missing)}"
    if terms_differ(found):
        stated = {terms(one) for one in found if one.spent is not None}
        yield (
            f"the runs state epsilon about different things ({' / '.join(sorted(stated))}): one "
            "is not comparable with another, and no metric is drawn against them"
        )
