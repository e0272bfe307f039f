"""Where the iterates start: zeros, drawn at addresses, or read from a file."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np

from desim.arrays import Array
from desim.draws import keys
from desim.draws.keys import Stream
from desim.errors import InputError
from desim.problem.data.prepare import bounded
from desim.readers import NUMBERS, npz_arrays, reading
from desim.scenario.schema import Scenario

INITIAL = ("x0", "z0")


def initial(scenario: Scenario, agents: int, dim: int) -> Callable[[str], Array]:
    """Return what gives initial arrays by name: x0, and z0 = x0 unless a file has it.

    langevin: standard normals, which the method scales by its noise.
    """
    init = getattr(scenario.algorithm.parameters, "init", None)
    shape = (agents, dim)

    @cache
    def arrays() -> dict[str, Array]:
        if init is None or init.kind == "zeros":
            return {"x0": np.zeros(shape)}
        if init.kind in ("normal", "langevin", "common"):
            who = np.full(agents, -1) if init.kind == "common" else np.arange(agents)
            drawn = keys.normals(scenario.seed, Stream.INIT, agent=who, size=dim)
            return {"x0": (1.0 if init.word else init.value) * drawn}
        return _initial_file(init.value, shape)

    arrays()
    return lambda name: arrays().get(name, arrays()["x0"])


def _initial_file(path: Path, shape: tuple[int, int]) -> dict[str, Array]:
    where = "algorithm.init.npz"
    with reading(path, where, "npz", NUMBERS):
        read = npz_arrays(path, where)
        for name, rows in read.items():
            if rows.dtype.kind not in "fiub":
                raise ValueError(f"{name} holds {rows.dtype}")
        found = {name: rows.astype(float) for name, rows in read.items()}
    if "x0" not in found:
        raise InputError(f"{where}: {path} holds no array x0; found {', '.join(found) or 'none'}")
    for name, array in found.items():
        if name in INITIAL and array.shape != shape:
            raise InputError(f"{where}: {name} has shape {array.shape}; allowed: {shape}")
        if name in INITIAL and not np.isfinite(array).all():
            raise InputError(f"{where}: {name} is not finite")
        if name in INITIAL:
            bounded(array, f"{where}: {name}")
    return found
