"""A study that was played: its tables, and which of its methods is first."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from desim.experiments.studies.folder import (
    STUDY,
    StudyTables,
    from_file,
    given,
    opened,
    stored_table,
)
from desim.runs.run import Run, is_run

if TYPE_CHECKING:
    import pandas as pd

    from desim.experiments.studies.trials import Trials


class StoredStudy(StudyTables):
    """Its tables `runs`, `summary` and `comparisons`, and what is computed from them.

    spent: time, rounds, bytes or epsilon; methods: keys, sections or label that are the method's,
    default as the study file says; level: of intervals, default the study's. InputError where it
    has no target, or it is not known what was spent until one.
    """

    def ert(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> "pd.DataFrame":
        """Expected running times by method, problem and target; see `studies.answers`."""
        from desim.experiments.studies import answers

        return answers.ert(self.trials(methods, level), spent)

    def ecdf(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> "pd.DataFrame":
        """The share of problems and targets met for so much, with simulated restarts."""
        from desim.experiments.studies import answers

        return answers.ecdf(self.trials(methods, level), spent)

    def profile(
        self, spent: str = "time", methods: Sequence[str] = (), level: float | None = None
    ) -> "pd.DataFrame":
        """The share of problems on which each method is within a factor of the best.

        InputError for fewer than two methods.
        """
        from desim.experiments.studies import answers

        return answers.profile(self.trials(methods, level), spent)

    def trials(self, methods: Sequence[str] = (), level: float | None = None) -> "Trials":
        """The runs, each with its method and its problem."""
        from desim.experiments.studies.tried import trials

        return trials(self, methods=methods, level=level)


def open_study(path: str | Path) -> StoredStudy:
    """The study in a directory; InputError where there is none, or it cannot be read."""
    folder = Path(path)
    name, targets, written = from_file(folder, lambda file: _named_and_asked(file["study"]))
    runs, summary, pairs = (
        stored_table(folder / f"{one}.parquet") for one in ("runs", "summary", "comparisons")
    )
    return StoredStudy(name, folder, targets, runs, summary, pairs, written)


def _named_and_asked(study: Any) -> tuple[str, tuple[tuple[str, float], ...], dict[str, Any]]:
    asked = (
        (study.get("compare") or {}).get("targets") or (study.get("tune") or {}).get("until") or {}
    )
    several = {name: one if isinstance(one, list) else [one] for name, one in asked.items()}
    pairs = ((str(name), float(one)) for name, values in several.items() for one in values)
    return str(study["name"]), tuple(pairs), dict(study)


def source(runs: Any) -> StoredStudy | Sequence[Run] | Mapping[str, Sequence[Run]]:
    """The study where its folder is all there is, as its file says what is a method; else runs."""
    if isinstance(runs, str | Path):
        runs = [runs]
    if isinstance(runs, Mapping) or is_run(runs):
        found: Sequence[Run] | Mapping[str, Sequence[Run]] = given(runs)
        return found
    if len(runs) == 1 and not isinstance(runs[0], Run) and (Path(runs[0]) / STUDY).is_file():
        return open_study(runs[0])
    return opened(runs)
