"""Scenarios whose rows have any shape, for models in NumPy."""

from pathlib import Path

import numpy as np
import pytest

from desim.errors import InputError
from desim.scenario.build import build
from desim.scenario.load import load

PLUGIN = str(Path(__file__).parent / "plugins" / "shaped.py")


def scene(data, model="linear-scores", **problem):
    return {
        "name": "rows",
        "seed": 3,
        "plugins": [PLUGIN],
        "problem": {"data": data, "model": model, **problem},
        "algorithm": {
            "name": "fedavg",
            "local": {"solver": "sgd", "batch": 1, "epochs": 2, "step": 0.1},
        },
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 3},
    }


def problem_of(data, model="linear-scores", **problem):
    return build(load(scene(data, model, **problem))).problem


def refused(match, data, model="linear-scores", **problem):
    with pytest.raises(InputError, match=match):
        problem_of(data, model, **problem)


def kept(folder, **arrays):
    folder.mkdir(exist_ok=True)
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return {"source": "arrays", "folder": str(folder)}


def pictures(rows=24, seed=0):
    random = np.random.default_rng(seed)
    A = random.integers(0, 256, (rows, 2, 3, 4)).astype(np.uint8)
    return A, np.arange(rows) % 3
