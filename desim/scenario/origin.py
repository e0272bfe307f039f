"""Where a simulation comes from: what of it follows from the data, made anew for other data.

Steps, noise that a target asks for, and features whose scaling is estimated are functions of the
rows. A simulation on neighbouring data has those of its own rows, as a run of them would have.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.engine.settings import Settings
from desim.problem.data import Change
from desim.problem.data.prepare import scaling
from desim.problem.problem import Problem
from desim.scenario.schema import Scenario

ESTIMATED = ("standard", "minmax", "max", "unit-ball")  # scales that come from the training rows


@dataclass(frozen=True)
class Origin:
    """A scenario, and features before preparation, by row, that take the place of its own.

    fitted, read: what makes the method, and the problem with changed features (scenario.build).
    """

    scenario: Scenario
    fitted: Callable[[Scenario, Any, Settings], Any] = field(repr=False)
    read: Callable[[Scenario, int | None, Change], tuple[Problem, list[str]]] = field(repr=False)
    raw: Mapping[int, Array] = field(default_factory=dict)

    @property
    def estimated(self) -> bool:
        """Whether every row takes part in how the others are scaled."""
        return getattr(self.scenario.problem.data, "scale", "none") in ESTIMATED

    def method(self, kind: Any, settings: Settings) -> Any:
        """The method of class `kind` on the problem of `settings`, with the noise due to it.

        InputError where a run of this problem would be refused.
        """
        return self.fitted(self._uncalibrated(), kind, settings)

    def prepared(self, problem: Problem, place: int, features: Array) -> tuple["Origin", Problem]:
        """Itself and the problem, with other features (features,) of the row `place` from 0.

        features: as the data at hand would be prepared; what they were before that replaces the row
        in the data, and all rows are prepared anew.
        """
        made = dict(self.raw)
        section: Any = self.scenario.problem.data

        def change(rows: NDArray[Any], order: NDArray[np.int64]) -> Array:
            raw = np.array(rows, float)
            for one, known in made.items():
                raw[order[one]] = known
            shift, width = scaling(raw, section.scale)
            own = features[1:] if section.intercept else features
            made[place] = shift + own * np.where(np.isfinite(width), width, 0.0)
            raw[order[place]] = made[place]
            return raw

        nodes = problem.agents if self.scenario.kind == "graph" else None
        anew = self.read(self.scenario, nodes, change)[0]
        return replace(self, raw=made), replace(problem, A=anew.A, test_A=anew.test_A)

    def _uncalibrated(self) -> Scenario:
        """The scenario whose target sets the noise, though the noise of its own data is stored."""
        privacy = self.scenario.privacy
        if privacy is None or privacy.target is None or not privacy.target.calibrated:
            return self.scenario
        target = privacy.target.model_copy(update={"calibrated": False})
        uncalibrated = privacy.model_copy(update={"target": target})
        return self.scenario.model_copy(update={"privacy": uncalibrated})
