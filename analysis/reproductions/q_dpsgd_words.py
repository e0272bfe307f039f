"""What Section 4.5 of Ding's dissertation says of its figures, and what of it is found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import verdicts as told_by

Row = Mapping[str, Any]


def of(rows: Sequence[Row], figure: str, method: str, noise: str, epsilon: float = 1.0) -> Row:
    """The row of a curve; without noise epsilon is inf."""
    wanted = figure, method, noise, np.inf if noise in ("none", "clipped") else epsilon
    keys = ("figure", "method", "noise", "epsilon")
    (row,) = (one for one in rows if (str(one[keys[0]]), *(one[key] for key in keys[1:])) == wanted)
    return row


def lower(one: Row, other: Row) -> tuple[str, str]:
    """The two final losses, and whether `one` has the lower one, as the paper says.

    What was played once has no standard error; that of the other is then taken twice.
    """
    pair = (one, other)
    gap = float(one["loss_20"] - other["loss_20"])
    known = [float(row["standard_error"]) for row in pair if row["standard_error"] >= 0.0]
    error = float(np.hypot(known[0], known[-1])) if known else float("nan")
    sets = min((row["sets"] for row in pair if row["standard_error"] >= 0.0), default=1)
    words = told_by.below(gap, error, sets)
    once = ", one of them played once" if len(known) == 1 else ""
    return f"{one['loss_20']:.3f} against {other['loss_20']:.3f}", f"{words}{once}"


def verdicts(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """The paper's sentence, our numbers, and the verdict."""
    for method, name in (("q-dpsgd-1", "Q-DPSGD-1"), ("sdm-dsgd", "SDM")):
        pair = (of(rows, "Fig. 14", method, "paper", epsilon) for epsilon in (1.5, 1.0))
        yield f"{name}: the loss rises when epsilon falls from 1.5 to 1", *lower(*pair)
    first, second = (of(rows, "Fig. 14", method, "paper") for method in ("q-dpsgd-1", "q-dpsgd-2"))
    yield "Q-DPSGD-2 converges more slowly than Q-DPSGD-1", *lower(first, second)
    places = {
        "Fig. 14": "MNIST",
        "Fig. 15": "other images",
        "Fig. 16 left": "20 agents",
        "Fig. 16 right": "B = 50",
    }
    for figure, words in places.items():
        ours = of(rows, figure, "q-dpsgd-1", "paper")
        for method, noise, other in (
            ("sdm-dsgd", "paper", "SDM"), ("dsgd", "none", "DSGD without noise or clipping"),
        ):  # fmt: skip
            said = f"{words}: Q-DPSGD-1 is ahead of {other} at the same time"
            yield said, *lower(ours, of(rows, figure, method, noise))
    clipped = of(rows, "Fig. 14", "dsgd", "clipped")
    said = "(not said) MNIST: Q-DPSGD-1 is ahead of DSGD with clipping and no noise"
    yield said, *lower(first, clipped)
    large = of(rows, "Fig. 16 right", "q-dpsgd-1", "paper")
    yield "a larger batch has a lower loss and takes more time", *lower(large, first)
    for method, other in (("sdm-dsgd", "SDM"), ("dsgd", "DSGD")):
        pair = (of(rows, "Fig. 14", one, "rigorous") for one in ("q-dpsgd-1", method))
        yield f"(not said) at epsilon 1 that holds Q-DPSGD-1 is ahead of {other}", *lower(*pair)
