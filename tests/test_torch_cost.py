"""What a step of a torch module takes: operations and bytes, counted by hand beside torch."""

from pathlib import Path

import numpy as np
import pytest

import desim
from desim.errors import InputError
from desim.problem.step_costs import memory, operations
from desim.scenario.build import build

pytest.importorskip("torch", reason="needs torch")

PLUGIN = Path(__file__).parent / "plugins" / "torch_models.py"
FEATURES, HIDDEN, CLASSES = 30, 13, 2
PARAMETERS = FEATURES * HIDDEN + HIDDEN + HIDDEN * CLASSES + CLASSES


def scenario(**problem):
    data = {"source": "sklearn", "name": "breast_cancer", "scale": "standard", "test": "30 %"}
    local = {"solver": "sgd", "batch": 8, "epochs": 2, "step": 0.05}
    own = {"plugins": [str(PLUGIN)]} if "model" in problem else {}
    init = {} if own else {"init": {"normal": 0.1}}
    return {
        "seed": 1,
        **own,
        "problem": {"agents": 3, "data": data, "partition": "iid", **problem},
        "algorithm": {"name": "fedavg", "local": local, **init},
        "observe": {"metrics": ["loss", "accuracy"], "checkpoints": {"accuracy": 0.5}},
        "stop": {"rounds": 3},
    }


def of(**problem):
    return build(desim.load(scenario(**problem))).problem


@pytest.mark.slow
def test_operations_are_those_by_hand_and_of_desims_own_network():
    torch = of(model="timed-perceptron")
    assert operations(torch) == 4 * FEATURES * HIDDEN + 6 * HIDDEN * CLASSES
    own = of(loss={"mlp": {"hidden": HIDDEN}})
    intercept = own.A.shape[1] - FEATURES
    assert operations(own) == operations(torch) + 4 * HIDDEN * intercept


def test_recurrent_layers_count_as_their_products():
    """Four gates, inputs of one number: forward and of weights at each step, of states but one."""
    gates, states = 4 * 4, 4
    each = 2 * gates * (1 + states)
    found = operations(of(model="timed-reader"))
    assert 2 * each * FEATURES <= found <= 3 * each * FEATURES + 6 * states * CLASSES


def test_a_layer_that_torch_does_not_count_is_refused():
    compute = {"speed": "1 GFLOP/s", "work": "flops"}
    base = scenario(model="timed-pairs") | {"compute": compute}
    with pytest.raises(InputError, match=r"torch counts no operations of layer \(Bilinear\)"):
        build(desim.load(base))
    build(desim.load(base | {"compute": {**compute, "work": {"flops": 1e4}}}))


def test_bytes_are_parameters_gradients_and_what_a_row_keeps():
    problem = of(model="timed-perceptron")
    one, two, nine = (memory(problem, m)[0] for m in (1, 2, 9))
    assert nine == one + 8 * (two - one)
    inputs, hidden, scores = 4 * FEATURES, 4 * HIDDEN, 4 * CLASSES
    assert two - one >= inputs + hidden + scores
    assert two - one <= inputs + 2 * hidden + 2 * scores + 16
    assert 2 * 4 * PARAMETERS <= one - (two - one) <= 2 * 4 * PARAMETERS + 64
    clipped = of(model="timed-perceptron", clip=1.0)
    assert memory(clipped, 9)[0] == nine + 9 * 4 * PARAMETERS


def test_counting_draws_nothing_that_others_draw():
    import torch

    problem = of(model="timed-perceptron")
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    operations(problem)
    memory(problem, 8)
    assert torch.equal(torch.rand(1), expected)


def test_a_module_takes_the_model_of_a_checkpoint():
    from torch import nn

    from desim.torch import load

    run = desim.run(scenario(model="timed-perceptron"))
    module = nn.Sequential(nn.Linear(FEATURES, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CLASSES))
    load(run, module, checkpoint=("accuracy", 0.5))
    found = np.concatenate([one.detach().numpy().ravel() for one in module.parameters()])
    assert np.allclose(found, run.checkpoints[0].model, rtol=1e-6)
    with pytest.raises(InputError, match=r"checkpoint: found .*allowed: \('accuracy', 0.5\)"):
        load(run, module, checkpoint=("accuracy", 0.9))
    with pytest.raises(InputError, match="round: found 99; allowed: 0 to "):
        load(run, module, round=99)
    with pytest.raises(InputError, match=r"run: found 'runs/x'; allowed: what desim.open"):
        load("runs/x", module)


@pytest.mark.parametrize("clip", [np.inf, 0.1])
def test_what_is_timed_is_the_gradient_of_the_module(clip):
    from desim.problem.models.user_model import Rows

    problem = of(model="timed-perceptron")
    model, rows = problem.loss.model, Rows(problem.A[:8], problem.b[:8])
    x = model.initial(1)
    expected = model.gradient(x, rows) if np.isinf(clip) else model.clipped(x, rows, clip)
    assert np.allclose(model.alone(x, rows, clip), expected, rtol=1e-5, atol=1e-6)


def test_a_measured_module_runs():
    base = scenario(model="timed-perceptron")
    run = desim.run({**base, "compute": {"speed": "measured"}})
    timing = run.scenario.compute.speed.measured
    assert timing.batch == 8
    assert "torch" in timing.machine
    assert desim.replay(run).same
