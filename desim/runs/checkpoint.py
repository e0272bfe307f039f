"""Checkpoints: what a run that goes on after a kill need not compute again, in one file.

An npz file without pickle, which appears whole or not at all. It goes with the rows that had been
stored when it was written, and is of use to the same code, data and libraries only; where anything
is amiss the run is played again from its start, which gives the same.
"""

import contextlib
import hashlib
import inspect
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from desim.log.parquet import Tables
from desim.memory import Tree, flat, nested
from desim.npz import read_npz
from desim.runs import directory as place
from desim.scenario.schema import Scenario

FORMAT = 1
PACKAGE = Path(__file__).resolve().parents[1]
OF = ("scenario_sha256", "problem_sha256", "engine", "versions", "model")  # of the manifest's head


def identity(head: Mapping[str, Any], scenario: Scenario) -> dict[str, Any]:
    """What a checkpoint and the run that it serves must have in common."""
    code = _package().copy()
    method = inspect.getsourcefile(scenario.algorithm.method)  # perhaps of an installed plug-in
    plugged = [*map(Path, scenario.plugins), *([Path(method)] if method else [])]
    for path in plugged:
        code.update(path.read_bytes())
    return {"format": FORMAT, "code_sha256": code.hexdigest()} | {key: head.get(key) for key in OF}


@cache
def _package() -> Any:
    """The hash of desim's own files, as they were when this process first stored a run."""
    code = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        code.update(path.read_bytes())
    return code


class Checkpoints:
    """The checkpoint of the run in `directory`, whose rows are in `tables`."""

    def __init__(self, directory: Path, of: Mapping[str, Any], tables: Tables) -> None:
        self.directory, self.of, self.tables = directory, of, tables
        self.found = tables.found

    def keep(self, tree: Tree) -> None:
        """Replace the checkpoint by one of now; without room for it the former one stays."""
        self.tables.settle()
        head = json.dumps({"of": self.of, "rows": self.tables.rows}).encode()
        arrays = {"head": np.frombuffer(head, np.uint8), **flat(tree)}
        with contextlib.suppress(OSError):
            place.write_arrays(self.directory / place.CHECKPOINT, arrays)


def stored_checkpoint(directory: Path, of: Mapping[str, Any]) -> tuple[dict[str, int], Tree] | None:
    """The checkpoint in `directory`: rows of each table that came before it, and its tree.

    None where there is none, or one of another run, or a damaged one.
    """
    try:
        arrays = read_npz(directory / place.CHECKPOINT)
        head = json.loads(arrays.pop("head").tobytes())
        rows = {str(name): int(number) for name, number in head["rows"].items()}
        known = head["of"] == json.loads(json.dumps(of))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    return (rows, nested(arrays)) if known else None
