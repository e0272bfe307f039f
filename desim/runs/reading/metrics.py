"""How metrics are read, wherever they are shown: which one first, which are shares, which fall."""

from collections import Counter
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

ORDER = (
    "accuracy", "error", "loss", "gradient", "consensus", "risk_difference", "positive_rate",
)  # fmt: skip
LOGARITHMIC = frozenset({"error", "consensus", "gradient"})  # fall towards zero
LARGEST = 1e100  # values that an axis holds are less
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
    return np.where(np.abs(value) < LARGEST, value, np.nan)


def is_share(metric: str) -> bool:
    """Whether values of the metric are shares, to be read in percent."""
    return metric.startswith(("accuracy", "positive_rate", "risk"))


def improved(value: NDArray[np.float64], rising: bool) -> float | None:
    """What a metric's values (n,) came to, if the run ended better than it began, else None.

    rising: whether larger is better. It is no better moment on the way, which noise may have made
    and the run did not hold; nor is one without a finite end a ground for a target.
    """
    sign = -1.0 if rising else 1.0
    if len(value) < 2 or not sign * value[-1] < sign * value[0]:
        return None
    return float(value[-1])


def best(value: NDArray[np.float64], rising: bool) -> float:
    """The best of a metric's values (n,): how near a run came to a target that it never met."""
    finite = value[np.isfinite(value)]
    if not len(finite):
        return np.nan
    return float(finite.max() if rising else finite.min())
