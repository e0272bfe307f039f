"""What was played: scenarios with their differences, and manifests side by side."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from desim.interface.reports.readable import Reading
from desim.interface.reports.wording import NOTHING
from desim.runs.directory import SCENARIO
from desim.runs.reading.series import with_unit
from desim.tabulated import Table

LONGEST = 20_000  # characters of a scenario that are shown
SHORT = 160  # of a value in a table


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


def flattened(tree: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, str]]:
    """Dotted keys with their values as text."""
    for key, value in tree.items():
        place = f"{above}{key}"
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{place}.")
        else:
            yield place, _text(with_unit(value, tuple(place.split("."))))


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
    flat = [{"directory": str(one.run.directory or "in memory"), **_facts(one)} for one in found]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    rows = [[key, *(one.get(key, NOTHING) for one in flat)] for key in keys]
    unlike = (place for place, row in enumerate(rows) if len(set(row[1:])) > 1)
    note = "Marked: where the runs differ." if len(found) > 1 else ""
    heads = ["", *(one.label for one in found)]
    return Table("Manifest", heads, rows, [note], marked=frozenset(unlike))


def _facts(one: Reading) -> dict[str, str]:
    manifest = dict(one.run.manifest)
    rows = one.stored("rows", list)
    if rows:
        manifest["rows"] = f"{min(rows)} to {max(rows)} at {len(rows)} agents, {sum(rows)} in all"
    manifest.pop("warnings", None)
    return dict(flattened(manifest))


def _text(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHORT else f"{text[: SHORT - 3]}..."
