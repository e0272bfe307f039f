"""Which runs differ in their noise only: a line that joins them says what privacy costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desim.errors import DesimError
from desim.plots.course import Played
from desim.plots.measured import Measured
from desim.reading.labels import labels

LOCAL = ("solver", "tau")  # of algorithm.local: noise is in the steps themselves
SILENT = "gradient"  # what the noisy solver is without its noise


@dataclass
class Quiet:
    """A run as it would have been written without saying how much noise it has."""

    name: str
    directory: Path | None
    tree: Mapping[str, Any]

    @property
    def scenario(self) -> "Quiet":
        """What `labels` reads."""
        return self

    def written(self) -> dict[str, Any]:
        """The settings, those of noise left out."""
        return dict(self.tree)


def families(rows: Sequence[Measured]) -> dict[str, list[Measured]]:
    """Rows by a name for all that differ in nothing but noise: section privacy and local's tau.

    The name is the algorithm's where that tells them apart, else what they differ in. A row whose
    settings are not known stands alone.
    """
    found: dict[str, list[Measured]] = {}
    quiet: list[Quiet] = []
    for number, row in enumerate(rows):
        one = _quiet(row.group.runs[0])
        key = repr(_sorted(one.tree)) if one.tree else f"row {number}"
        if key not in found:
            quiet.append(one)
        found.setdefault(key, []).append(row)
    parts = list(found.values())
    return dict(zip(_names(parts, quiet), parts, strict=True))


def _names(parts: Sequence[Sequence[Measured]], quiet: Sequence[Quiet]) -> list[str]:
    algorithms = [part[0].group.runs[0].algorithm for part in parts]
    if all(algorithms) and len(set(algorithms)) == len(parts):
        return algorithms
    alone = [part[0].group.label if len(part) == 1 else "" for part in parts]
    if all(alone):
        return alone
    return labels([[one] for one in quiet])


def _quiet(run: Played) -> Quiet:
    try:
        tree: dict[str, Any] = dict(run.scenario.written())
    except (DesimError, UnicodeDecodeError, OSError):
        return Quiet(run.name, run.directory, {})
    tree = {key: value for key, value in tree.items() if key not in ("name", "seed", "privacy")}
    algorithm = dict(tree.get("algorithm") or {})
    local = algorithm.get("local")
    if isinstance(local, Mapping):
        kept = {key: value for key, value in local.items() if key not in LOCAL}
        solver = local.get("solver")
        algorithm["local"] = {"solver": SILENT if solver == "noisy" else solver, **kept}
    return Quiet(run.name, run.directory, {**tree, "algorithm": algorithm})


def _sorted(tree: Any) -> Any:
    """The same for the same settings, in whichever order they were written."""
    if isinstance(tree, Mapping):
        return sorted((key, _sorted(value)) for key, value in tree.items())
    return tree
