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


TORCH = """
from torch import nn

from desim.torch import TorchModel


class Pixels(TorchModel):
    name = "torch-pixels"
    summary = "a convolution, dropout and a linear layer"

    def module(self):
        return nn.Sequential(
            nn.Conv2d(2, 3, 2), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(),
            nn.Linear(18, self.facts.classes),
        )


class Tokens(TorchModel):
    name = "torch-tokens"
    summary = "scores of the next token"
    labels = "arrays"

    def module(self):
        return nn.Sequential(nn.Embedding(self.facts.classes, self.facts.classes), Turned())


class Turned(nn.Module):
    def forward(self, scores):
        return scores.transpose(1, 2)
"""


def with_torch(folder, section):
    """The scenario, with models in torch; skipped where there is none."""
    pytest.importorskip("torch", reason="needs torch, the extra desim[torch]")
    (folder / "torch_models.py").write_text(TORCH)
    return section | {"plugins": [PLUGIN, str(folder / "torch_models.py")]}


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
