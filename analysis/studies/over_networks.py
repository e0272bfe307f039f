"""Performance profiles of the medians over all networks, from the stored table: no run is played.

python -m analysis.studies.over_networks        # writes its part of README.md
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page
from analysis.studies.contests import METHODS, NETWORKS
from analysis.studies.numbers import RESULTS
from analysis.studies.standings import UNITS
from desim.experiments.studies.answers import ratios

TABLE = RESULTS / "federated_in_seconds.csv"
TEXTS = ("network", "method", "way", "parameter")
WITHIN = (1.0, 1.2, 1.5, 2.0)  # ratios to the best


def over_networks(rows: Sequence[Mapping[str, Any]]) -> str:
    """On how many networks each method that waits for all is within so many times the best."""
    lines = []
    for measure in UNITS:
        taken = np.array(
            [
                [float(page.chosen(rows, network=net, method=name, way="all")[0][measure])
                 for net in NETWORKS]
                for name in METHODS
            ]
        )  # fmt: skip
        for name, own in zip(METHODS, ratios(taken), strict=True):
            shares = [str(int((own <= tau).sum())) for tau in (*WITHIN, np.finfo(float).max)]
            worst = f"{own.max():.3g}" if np.isfinite(own).all() else "never"
            lines.append((measure, METHODS[name].label, *shares, worst))
    lines.sort(key=lambda one: (one[0] != "seconds", [-int(n) for n in one[2:6]]))
    names = ("first", *(f"within {tau:g}x" for tau in WITHIN[1:]), "ever")
    return page.table(("least", "method", *names, "at worst"), lines)


def main() -> None:
    """Print the table and put it into the page."""
    found = over_networks(page.read(TABLE, TEXTS))
    print(found)
    page.update("over networks", found, RESULTS.parent / "README.md")


if __name__ == "__main__":
    main()
