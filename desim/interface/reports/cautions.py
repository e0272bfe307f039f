"""What a reader has to know before the numbers: first in the report."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version

from desim.deployments.fidelity.errors import deployed, provisos
from desim.interface.reports.charts import metrics, terms, terms_differ
from desim.interface.reports.readable import Reading
from desim.interface.reports.wording import by_text
from desim.runs.likeness import other_problem, sharing
from desim.runs.reading.series import other_problems
from desim.runs.run import Run


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
    unlike = other_problems([one.run for one in found])
    if unlike:
        yield (
            f"the runs differ in {', '.join(unlike)}: a metric of one is not comparable with that "
            "of another"
        )
    elif other_problem(one.run for one in found):
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
