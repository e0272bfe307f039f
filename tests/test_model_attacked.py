"""Models that look right at first and are not, and some that look wrong."""

import os
import warnings
from pathlib import Path

import numpy as np
import pytest

import desim
from desim.errors import InputError
from desim.problem.models.user_model import Facts, Rows

torch = pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")

MODEL = """
import torch
from torch import nn

from desim.torch import TorchModel


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = {first}, nn.Linear(4, 2)

    def forward(self, x):
        return self.last({forward})


class Net(TorchModel):
    name = "net"
    summary = "a small network"

    def module(self):
        return Inner()
"""
LINEAR = "nn.Linear(4, 4)"


def scenario(folder: Path, first=LINEAR, forward="self.first(x)", **more):
    """Three agents with 9 rows of 4 numbers each, and a model of this layer."""
    (folder / "net.py").write_text(MODEL.format(first=first, forward=forward))
    data = {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4}
    local = {"solver": "sgd", "batch": 3, "epochs": 2, "step": 0.1}
    return {
        "seed": 1,
        "plugins": [str(folder / "net.py")],
        "problem": {"agents": 3, "data": data, "model": "net", **more},
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": "10 ms"}},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 3},
    }


SELDOM = "nn.functional.dropout(self.first(x), 1e-6, self.training)"
BESIDE = "nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.1))"
ALWAYS = "nn.functional.dropout(self.first(x), 1e-6)"


@pytest.mark.parametrize(("first", "forward"), [(LINEAR, SELDOM), (BESIDE, ALWAYS)])
def test_draws_without_a_seed_are_refused_even_where_they_seldom_change_a_bit(
    first, forward, tmp_path
):
    with pytest.raises(InputError, match="net: it draws random numbers that no seed of"):
        desim.run(scenario(tmp_path, first, forward))


RECURRENT = "nn.LSTM(1, 4, 2, dropout=0.4, batch_first=True)", "self.first(x[..., None])[0][:, -1]"
FEATURES = "nn.Sequential(nn.Linear(4, 4), nn.FeatureAlphaDropout(0.4))", "self.first(x)"
ATTENTION = (
    "nn.MultiheadAttention(4, 2, dropout=0.4, batch_first=True)",
    "self.first(x[:, None], x[:, None], x[:, None])[0][:, 0]",
)


@pytest.mark.parametrize("clip", [{}, {"clip": 1.0}])
@pytest.mark.parametrize(("first", "forward"), [RECURRENT, ATTENTION, FEATURES])
def test_layers_that_draw_by_their_own_argument_are_seeded(first, forward, clip, tmp_path):
    tree = scenario(tmp_path, first, forward, **clip)
    one, two = (desim.run({**tree, "engine": engine}) for engine in ("cohort", "agents"))
    assert one.metrics.equals(two.metrics)
    assert np.array_equal(one.model, two.model)
    still = desim.run(scenario(tmp_path, first.replace("0.4", "0.0"), forward, **clip))
    assert not np.array_equal(one.model, still.model)  # the wrong twin: nothing is dropped


def test_a_lazy_layer_is_named(tmp_path):
    with pytest.raises(InputError, match=r"net: first.weight has no shape yet, in a lazy layer"):
        desim.run(scenario(tmp_path, "nn.LazyLinear(4)"))


def test_a_model_that_was_rewritten_within_a_second_is_the_new_one(tmp_path):
    """Python keeps code by a file's size and the second of its last change: too little."""
    ends = []
    for layer in ("nn.Tanh()", "nn.ReLU()"):
        tree = scenario(tmp_path, f"nn.Sequential(nn.Linear(4, 4), {layer})")
        os.utime(tmp_path / "net.py", (1e9, 1e9))
        ends.append(desim.run(tree).model[-1])
    assert not np.array_equal(*ends)


@pytest.mark.parametrize("clip", [None, 1.0])
def test_filters_of_warnings_change_no_bit(clip):
    """Torch warns where `vmap` goes row by row, as for an LSTM; a filter may raise that, or not."""
    from desim.problem.models.torch_module import TorchModel

    class Recurrent(TorchModel):
        name, summary = "recurrent", "an LSTM"

        def module(self):
            class Net(torch.nn.Module):
                def __init__(self):
                    super().__init__()
                    self.inner = torch.nn.LSTM(3, 4, batch_first=True)
                    self.outer = torch.nn.Linear(4, 2)

                def forward(self, x):
                    return self.outer(self.inner(x)[0][:, -1])

            return Net()

    random, found = np.random.default_rng(0), []
    inputs = random.normal(size=(8, 5, 3)).astype(np.float32)
    labels = random.integers(0, 2, 8)
    for filter_ in ("error", "ignore"):
        with warnings.catch_warnings():
            warnings.simplefilter(filter_)
            model = Recurrent(None, Facts((5, 3), 2))
            model.sample = Rows(inputs, labels, np.uint64(0))
            x = model.initial(0)[None].repeat(3, 0)
            rows = Rows(*(np.stack([one] * 3) for one in (inputs, labels)), np.zeros(3, np.uint64))
            found.append(model.gradients(x, rows, np.inf if clip is None else clip))
    assert np.array_equal(*found)
