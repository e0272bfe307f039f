"""Whether two runs come to the same models: to the bit, or how far apart."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.runs.run import Run

KINDS = {"model": "the coordinator's models", "iterates": "the agents' models"}
FINAL = "the final states"
LEAST = 5e-324  # of other bits, as of -0 and 0


@dataclass(frozen=True)
class Models:
    """What was compared, of how many rounds; the first that differs, None where all are equal.

    distance: the largest over rounds of ||simulated - real|| / ||real||; rounds: 0 of a final state
    alone.
    """

    what: str
    rounds: int
    first: int | None
    distance: float

    def __str__(self) -> str:
        of = f" of {self.rounds} rounds" if self.rounds else ""
        if not self.distance:
            return f"{self.what}{of} are equal to the bit"
        since = f" from round {self.first} on" if self.first is not None else ""
        return f"{self.what}{of} differ{since}, by {self.distance:.3g} of their norm at most"


def compared(real: Run, simulated: Run) -> Models | None:
    """The first of what both have: models, else iterates, else the final state."""
    for name, words in KINDS.items():
        pair = [getattr(run, name) for run in (real, simulated)]
        if all(one is not None and one.ndim > 1 for one in pair):
            if pair[0].shape[1:] == pair[1].shape[1:]:
                return _over_rounds(words, *pair)
    states = [run.state for run in (real, simulated)]
    shared = [
        name for name in states[0].keys() & states[1].keys()
        if states[0][name].shape == states[1][name].shape and states[0][name].dtype.kind in "fiu"
    ]  # fmt: skip
    if not shared:
        return None
    apart = max(_distance(states[0][name], states[1][name]) for name in shared)
    return Models(FINAL, 0, None, apart)


def _over_rounds(words: str, real: NDArray[np.float64], simulated: NDArray[np.float64]) -> Models:
    n = min(len(real), len(simulated))
    apart = [_distance(one, other) for one, other in zip(real[:n], simulated[:n], strict=True)]
    unlike = [k for k, one in enumerate(apart) if one > 0.0]
    return Models(words, n - 1, unlike[0] if unlike else None, max(apart, default=0.0))


def _distance(real: Array, simulated: Array) -> float:
    """||simulated - real|| / ||real||; 0 only for equal bits."""
    if real.tobytes() == simulated.tobytes():
        return 0.0
    with np.errstate(all="ignore"):
        norm = float(np.linalg.norm(real.astype(float)))
        apart = float(np.linalg.norm(simulated.astype(float) - real.astype(float)))
    return max(apart / norm if norm > 0.0 else apart, LEAST)
