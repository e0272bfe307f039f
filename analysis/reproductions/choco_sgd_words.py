"""What Koloskova, Stich and Jaggi say of CHOCO's figures, and what of it is found."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import verdicts as told_by

Row = Mapping[str, Any]
NEAR = 0.5  # of a logarithm: within a factor of 1.65
STALLED = 1e-10  # of the start: an average that ends above it has not been found
SAID = {"top 1 %": 100.0, "random 1 %": 100.0, "qsgd 5 bits": 13.0}  # see the page


def of(rows: Sequence[Row], part: str, scheme: str) -> Row:
    """The row of a scheme."""
    (row,) = (one for one in rows if (one["part"], one["scheme"]) == (part, scheme))
    return row


def fewer(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """How many times fewer bits CHOCO-SGD sends, beside what the paper says."""
    for digits in ("shuffled", "sorted"):
        for scheme, paper in SAID.items():
            row = of(rows, digits, scheme)
            ours, error, sets = row["log_fewer"], row["standard_error"], row["sets"]
            said = f"{digits}, {scheme}: about {paper:.0f} times fewer bits"
            if not np.isfinite(ours):
                yield said, "not reached", "differs: the target is not reached"
                continue
            words = told_by.beside(ours, error, float(np.log(paper)), NEAR, sets)
            yield said, f"{np.exp(ours):.1f} times", f"{words} (logarithms)"


def averages(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """Whether schemes find the mean at a steady rate, or stall."""
    for row in rows:
        scheme, rate, end = str(row["scheme"]), row["rate"], row["end"]
        if row["part"] != "gossip" or scheme == "exact":
            continue
        numbers = f"{end:.1e}, rate {rate:.5f}"
        if scheme.startswith("choco"):
            words = told_by.below(rate - 1.0, row["standard_error"], row["sets"])
            yield f"{scheme}: linear convergence", numbers, words
            continue
        found = "agrees" if not end <= STALLED and not rate < 0.999 else "differs: it converges"
        yield f"{scheme}: does not converge", numbers, found


def verdicts(rows: Sequence[Row]) -> Iterator[tuple[str, str, str]]:
    """The paper's sentence, our numbers, and the verdict."""
    yield from fewer(rows)
    yield from averages(rows)
