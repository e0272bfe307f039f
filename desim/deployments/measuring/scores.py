"""Speeds of other devices, by their scores in a benchmark in which this machine has one, too."""

import csv
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, refusal, spelling
from desim.readers import text_of

USUAL = "CPU_F_AI_Score"  # of AI Benchmark: floats on the CPU, as kernels are


@dataclass(frozen=True)
class Scores:
    """Devices by name with their scores (n,) in one column of a table."""

    path: Path
    column: str
    names: tuple[str, ...]
    values: Array

    def of(self, reference: str) -> float:
        """A score: a number, or that of a device by name; InputError for neither."""
        try:
            value = float(reference)
        except ValueError:
            if reference in self.names:
                return float(self.values[self.names.index(reference)])
            near = spelling(reference, self.names)
            allowed = f"a score, or one of the {len(self.names)} devices of {self.path}"
            raise InputError(f"--reference: {refusal(reference, allowed)}{near}") from None
        if not (np.isfinite(value) and value > 0.0):
            raise InputError(f"--reference: {refusal(reference, 'a score > 0')}")
        return value

    def speeds(self, here: float, reference: str) -> Array:
        """1/s (n,) of the devices where a machine of score `reference` has `here` 1/s."""
        return np.asarray(here * self.values / self.of(reference))


def scores(path: str | Path, column: str | None = None) -> Scores:
    """The scores in a csv whose first column names devices; InputError where there are none.

    column: which; default that of floats on the CPU.
    """
    file = Path(path)
    try:
        rows = [row for row in csv.reader(text_of(file).splitlines()) if row]
    except (OSError, ValueError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{file}: cannot be read as csv ({why})") from None
    head = [name.strip() for name in rows[0]] if rows else []
    name = USUAL if column is None else column
    if name not in head[1:]:
        allowed = ", ".join(head[1:]) or "a head, then a row for each device"
        raise InputError(f"{file}: {refusal(name, allowed, head[1:])}")
    place, found = head.index(name), []
    for line, row in enumerate(rows[1:], 2):
        text = row[place].strip() if place < len(row) else ""
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"{file}, line {line}: {refusal(text, 'a number')}") from None
        if np.isfinite(value) and value > 0.0:  # devices without a score have 0
            found.append((row[0].strip(), value))
    if not found:
        raise InputError(f"{file}: found no score above 0 in {name}")
    names, values = zip(*found, strict=True)
    return Scores(file, name, tuple(names), np.array(values))
