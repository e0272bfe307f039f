"""Metrics wherever they are shown: which one comes first, which are shares, which fall."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

ORDER = (
    "accuracy", "error", "loss", "gradient", "consensus", "risk_difference", "positive_rate",
)  # fmt: skip
LOGARITHMIC = frozenset({"error", "consensus", "gradient"})  # fall towards zero
AXIS_END = 1e100  # values that an axis holds are less
WORDS = {  # metrics whose names are no words
    "accuracy": "test accuracy",
    "loss": "loss, summed over agents",
    "risk_difference": "risk difference",
    "positive_rate": "positive decisions",
    "positive_rate_protected": "positive decisions, protected group",
    "positive_rate_others": "positive decisions, others",
    "accuracy_protected": "test accuracy, protected group",
    "accuracy_others": "test accuracy, others",
}


def ranked(recorded: Sequence[Collection[str]]) -> list[str]:
    """Every metric of some runs, each given by what it recorded: the order in which to show them.

    Those that most runs have come first, of these accuracy, then ORDER, then the alphabet.
    """
    have = Counter(str(name) for names in recorded for name in set(names))
    place = {name: number for number, name in enumerate(ORDER)}
    return sorted(have, key=lambda name: (-have[name], place.get(name, len(place)), name))


def on_axis(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """The values (n,), nan for those that no axis holds: there the run has diverged."""
    return np.where(np.abs(value) < AXIS_END, value, np.nan)


def is_share(metric: str) -> bool:
    """Whether values of the metric are shares, to be read in percent."""
    return metric.startswith(("accuracy", "positive_rate", "risk"))


def worded(metric: str, value: float, digits: int = 4) -> str:
    """A value of a metric, shares in percent."""
    return f"{100 * value:.{digits}g} %" if is_share(metric) else f"{value:.{digits}g}"
