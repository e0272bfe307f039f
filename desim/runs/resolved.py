"""The resolved scenario of a run as text and plain data, which costs no look at its methods."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.errors import InputError
from desim.runs.digests import own_scenario
from desim.runs.directory import SCENARIO
from desim.scenario.tree import plain

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def written(
    scenario: "Scenario | None", directory: Path | None, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Its sections, unchecked; none where the run does not know them any more."""
    if scenario is not None:
        return scenario.written()
    try:
        if directory is not None:
            return plain(own_scenario(directory, manifest).read_text("utf-8"))
    except (InputError, OSError, ValueError):
        pass
    return {}


def alike(
    scenario: "Scenario | None", directory: Path | None, manifest: dict[str, Any]
) -> str | None:
    """Its text with seed 0; None where the run does not know it."""
    from desim.scenario.load import resolved_yaml, seeded

    if directory is not None and (directory / SCENARIO).is_file():
        return seeded(own_scenario(directory, manifest).read_text("utf-8"), 0)
    return None if scenario is None else seeded(resolved_yaml(scenario), 0)
