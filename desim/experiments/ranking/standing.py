"""In which share of the worlds an order of methods holds, a pair's, and the first place.

Intervals are Wilson's (1927) at 95 %, as if worlds were independent. Points of Sobol' lie more
evenly than that, so the intervals are rather too wide.
"""

from collections import Counter
from collections.abc import Sequence
from math import sqrt

import numpy as np
import pandas as pd

from desim.arrays import Array, Mask

LEVEL = 1.959963984540054  # standard deviations of 95 %


def wilson(met: int, worlds: int) -> tuple[float, float]:
    """The ends of the interval of a share: met of so many worlds."""
    share, part = met / worlds, LEVEL**2 / worlds
    middle = share + part / 2
    spread = LEVEL * sqrt(share * (1.0 - share) / worlds + part / (4 * worlds))
    return max(0.0, (middle - spread) / (1 + part)), min(1.0, (middle + spread) / (1 + part))


def _share(met: Mask) -> dict[str, float]:
    """A share of the worlds (n,), its standard error and interval."""
    n, k = len(met), int(np.count_nonzero(met))
    low, high = wilson(k, n)
    return {"share": k / n, "error": sqrt(k / n * (1 - k / n) / n), "low": low, "high": high}


def order(labels: Sequence[str], seconds: Sequence[float]) -> str:
    """Methods by time, as in `led < fedlin = fedavg < (never: tamuna)`."""
    ranked = sorted(zip(seconds, range(len(labels)), strict=True))
    text, before = "", -1.0
    for time, place in ranked:
        if time < np.inf:
            sign = "" if not text else " = " if time == before else " < "
            text, before = f"{text}{sign}{labels[place]}", time
    never = [labels[place] for time, place in ranked if time == np.inf]
    last = f"(never: {', '.join(never)})" if never else ""
    return f"{text} < {last}" if text and last else text or last


def orders(labels: Sequence[str], seconds: Array) -> pd.DataFrame:
    """Each order that occurs in seconds (worlds, methods), the commonest first, with its share."""
    found = np.array([order(labels, row) for row in seconds.tolist()], object)
    counted = sorted(Counter(found.tolist()).items(), key=lambda one: (-one[1], one[0]))
    return pd.DataFrame([{"order": text, **_share(found == text)} for text, _ in counted])


def pairs(labels: Sequence[str], seconds: Array, base: Array) -> pd.DataFrame:
    """For each two methods, the faster in the scenario as it is first: where it is before.

    level: the share of worlds in which both are equal to the last bit, or neither gets there.
    """
    rows = []
    places = np.argsort(base, kind="stable").tolist()
    for k, i in enumerate(places):
        for j in places[k + 1 :]:
            level = np.mean(seconds[:, i] == seconds[:, j])
            holds = _share(seconds[:, i] < seconds[:, j])
            rows.append({"before": labels[i], "after": labels[j], **holds, "level": float(level)})
    return pd.DataFrame(rows)


def first(labels: Sequence[str], seconds: Array, base: Array) -> pd.DataFrame:
    """For each method, by time in the scenario as it is (base (methods,) s): where it is first.

    first alone, that is; never: the share of worlds in which it does not meet the target; median:
    of its seconds, infinite ones among them.
    """
    best = seconds.min(1)
    alone = (seconds == best[:, None]).sum(1) == 1
    rows = []
    for i in np.argsort(base, kind="stable").tolist():
        own = seconds[:, i]
        middle = float(np.quantile(own, 0.5, method="inverted_cdf"))
        won = _share(alone & (own == best) & (own < np.inf))
        never = float(np.mean(own == np.inf))
        rows.append(
            {"method": labels[i], "seconds": base[i], "median": middle, **won, "never": never}
        )
    return pd.DataFrame(rows)
