"""What every method declares about itself, and the settings that it is made from."""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from desim.engine.world import Settings
from desim.fields import Strict
from desim.privacy.mechanisms import Noise
from desim.problem import Problem

Array = NDArray[np.float64]
Program = Generator[Any, Any, None]  # yields requests, gets their answers


@dataclass(frozen=True)
class Ingredients:
    """What a method is made from: parameters, settings of the run, noise on what it perturbs."""

    parameters: Any
    settings: Settings
    noise: Noise | None


class Method:
    """A method: what it needs and admits; its program is `coordinator(hub)` or `agents(us)`.

    A subclass is registered by its `name`. Errors in the combination of problem and parameters are
    returned by `problems` as lines "key: found ...; allowed ...".
    """

    name: ClassVar[str]
    kind: ClassVar[Literal["coordinator", "graph", "central"]]
    summary: ClassVar[str]
    paper: ClassVar[str]
    Parameters: ClassVar[type[Strict]]
    smooth_only: ClassVar[bool] = True
    has_prox: ClassVar[bool] = False
    policies: ClassVar[tuple[str, ...]] = ("all",)
    cures: ClassVar[tuple[str, ...]] = ("the step",)  # keys to change when a model diverges

    def __init__(self, ingredients: Ingredients) -> None:
        self.parameters = ingredients.parameters
        self.settings = ingredients.settings
        self.noise = ingredients.noise
        self.problem: Problem = ingredients.settings.problem
        self.warnings: list[str] = []

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return []
