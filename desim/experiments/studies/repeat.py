"""Many seeds of one scenario, one run after another in this process, read and checked once."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from desim.errors import InputError, refusal
from desim.runs.play import played
from desim.runs.run import Run
from desim.scenario.load import loaded, resolved_yaml, seeded
from desim.scenario.pace import require_measured
from desim.scenario.schema import Scenario


def repeat(
    scenario: Scenario | str | Path | Mapping[str, Any],
    seeds: Iterable[int],
    overrides: Mapping[str, Any] | None = None,
) -> Iterator[Run]:
    """Runs in memory of a scenario with each of the seeds, bit for bit those of `desim.run`.

    They are played as they are asked for, so that thousands need the memory of one. InputError for
    a wrong scenario or seed, RunError for a run that fails, as in `desim.run`.
    """
    found = loaded(scenario, overrides)
    require_measured(found, "repeat")
    return _played(found, seeds)


def _played(scenario: Scenario, seeds: Iterable[int]) -> Iterator[Run]:
    text = resolved_yaml(scenario)
    for seed in seeds:
        if isinstance(seed, bool) or seed != int(seed) or seed < 0:
            raise InputError(f"seeds: {refusal(seed, 'whole numbers, at least 0')}")
        again = scenario.model_copy(update={"seed": int(seed)})
        yield played(again, text=seeded(text, int(seed)))
