"""What every run took until targets, by method and problem: what profiles are made of."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd

from desim.arrays import Array, Mask
from desim.errors import InputError, refusal
from desim.experiments.studies.measures import SPENT

LEVEL = 0.95


@dataclass(frozen=True)
class Cell:
    """The runs of one method on one problem until one target, seed by seed: nan for no run.

    spent (seeds,): until the target was met, or the run ended; met (seeds,); unknown: how many
    failed with nothing known of what they had spent.
    """

    spent: Array
    met: Mask
    unknown: int

    @property
    def counted(self) -> Mask:
        """Which seeds have a run."""
        return ~np.isnan(self.spent)


@dataclass(frozen=True)
class Trials:
    """Runs with their method, problem, seed and measures, a row each.

    level: of intervals; about: the terms of epsilons, a line each; mixed: how they differ, if so.
    """

    rows: pd.DataFrame
    level: float = 0.95
    about: tuple[str, ...] = ()
    mixed: str = ""

    @cached_property
    def targets(self) -> list[str]:
        """The targets, as measures call them: accuracy 0.93."""
        return [str(name)[8:] for name in self.rows if str(name).startswith("time to ")]

    @cached_property
    def methods(self) -> list[str]:
        """The methods, in order."""
        return list(dict.fromkeys(self.rows["method"]))

    @cached_property
    def problems(self) -> list[str]:
        """The problems, in order."""
        return list(dict.fromkeys(self.rows["problem"]))

    @cached_property
    def seeds(self) -> list[int]:
        """All seeds, in order."""
        return sorted(set(self.rows["seed"]))

    def cells(self, kind: str) -> dict[tuple[str, str, str], Cell]:
        """The runs by method, problem and target; kind: what they spend.

        A run has met a target when its time says so: its epsilon may be infinite all the same.
        InputError where there is no target, or it is not known what was spent.
        """
        self.check(kind)
        places = {seed: place for place, seed in enumerate(self.seeds)}
        found = {}
        for (method, problem), rows in self.rows.groupby(["method", "problem"], sort=False):
            where = rows["seed"].map(places).to_numpy()
            for target in self.targets:
                when = (
                    rows[f"time to {target}"]
                    .fillna(rows["status"].map({"failed": np.inf}))
                    .to_numpy(float)
                )
                met, until = np.isfinite(when), rows[f"{kind} to {target}"].to_numpy(float)
                own = np.where(met, until, rows[kind].to_numpy(float))
                played = ~np.isnan(when)
                spent, reached = np.full((2, len(places)), np.nan)
                spent[where[played]], reached[where[played]] = own[played], met[played]
                unknown = int((played & np.isnan(own)).sum())
                found[str(method), str(problem), target] = Cell(spent, reached == 1.0, unknown)
        return found

    def check(self, kind: str) -> None:
        """Raise InputError where there is no target, or nothing is known of what is spent."""
        if kind not in SPENT:
            raise InputError(f"spent: {refusal(kind, ', '.join(SPENT), SPENT)}")
        if not self.targets:
            raise InputError("target: found none; allowed: METRIC=VALUE, or those of the study")
        known = [one for one in SPENT if self._recorded(one)]
        if kind not in known:
            why = {"bytes": ": logs leave messages out", "epsilon": ": no privacy is stated"}
            raise InputError(
                f"spent: found {kind}, which is not known{why.get(kind, '')}; "
                f"allowed: {', '.join(known)}"
            )
        if kind == "epsilon" and self.mixed:
            allowed = "one view, relation and delta for all"
            raise InputError(
                f"spent: found epsilons in different terms ({self.mixed}); allowed: {allowed}"
            )

    def _recorded(self, kind: str) -> bool:
        names = [kind, *(f"{kind} to {target}" for target in self.targets)]
        return all(name in self.rows and self.rows[name].notna().any() for name in names)
