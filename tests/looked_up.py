"""Numbers of pages that are written by hand, looked up in the tables that studies have stored."""

import csv
import re
from itertools import zip_longest

import numpy as np

PART = re.compile(r"<!-- numbers of (\w+) -->\n(.*?)\n<!-- /numbers of \1 -->", re.DOTALL)
NUMBER = re.compile(r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?(?![\w])")
UNITS = 1.0, 1e2, 1e-3, 1e-6  # as it is, %, kB or ms, MB
SHORT = 200  # a text, not a list of numbers


def stored(path):
    """Numbers (rows, most) of a CSV in all units, those of its texts too."""
    with path.open(newline="", encoding="utf-8") as file:
        texts = [list(row.values()) for row in csv.DictReader(file)]
    own = [[float(x) for one in row if len(one) < SHORT for x in NUMBER.findall(one)]
           for row in texts]  # fmt: skip
    numbers = np.array(list(zip_longest(*own, fillvalue=np.nan))).T
    return np.concatenate([unit * numbers for unit in UNITS], axis=1)


def known(text, rows):
    """Which rows have all numbers of a text to the digits shown."""
    found = np.ones(len(rows), bool)
    for written in NUMBER.findall(text):
        number = float(written)
        place = -len(written.partition(".")[2].partition("e")[0])
        if "e" in written or "." not in written:  # as many digits as there are
            digits = len(re.sub(r"e.*|\D", "", written).lstrip("0")) or 1
            place = np.floor(np.log10(abs(number) or 1.0)) - digits + 1
        found &= (abs(rows - number) <= 0.500001 * 10.0**place).any(axis=1)
    return found


def strange(line, rows):
    """Whether a line's cells are neither all of one row, nor each of some row."""
    whole = np.all([known(cell, rows) for cell in line.split("|")], axis=0)
    return not whole.any() and not all(known(one, rows).any() for one in re.split("[|;]", line))


def lines_of(part):
    """Lines of the part's tables, without their heads."""
    lines = part.splitlines()
    heads = {k for n, line in enumerate(lines) if line.startswith("| ---") for k in (n - 1, n)}
    return [line for n, line in enumerate(lines) if line.startswith("|") and n not in heads]
