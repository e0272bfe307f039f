"""What random layers and changes of rows draw from: each round anew, from the scenario's seed."""

import numpy as np
import pytest
from test_torch_models import DIGITS, LOCAL, NOISE, RING, scenario

import desim
from desim.errors import InputError

pytest.importorskip("torch", reason="torch is not installed")
from desim.problem.models.torch_module import TorchModel
from desim.scenario.build import build
from desim.scenario.load import load

ROUNDS, AGENTS = 3, 6
WIDE = DIGITS | {"train": 300}  # every agent has more rows than a batch
WHOLE = [  # methods that take the gradient of all rows
    ({"name": "fedlin", "local": LOCAL | {"batch": 4}}, {}),
    ({"name": "dp-admm", "rho": 1.0, "eta": 1.0}, {"privacy": NOISE}),
    ({"name": "zcdp-subgradient", "step": 0.1}, {"network": RING, "privacy": NOISE}),
    ({"name": "zcdp-nfl", "rho": 1.0, "eta": 0.1}, {"network": RING, "privacy": NOISE}),
    ({"name": "gradient-descent", "step": 0.1}, {}),
]


def tree_of(algorithm, seed, **more):
    problem = {"data": WIDE} | ({"clip": 1.0} if "privacy" in more else {})
    more |= {"algorithm": algorithm, "seed": seed, "engine": "cohort"}
    tree = scenario("dropping", problem=problem, **more)
    if algorithm["name"] == "gradient-descent":
        del tree["network"], tree["problem"]["partition"], tree["problem"]["agents"]
    return tree


@pytest.fixture
def keys(monkeypatch):
    """The keys of all calls on all rows of an agent, which has more than 8."""
    found, gradients = set(), TorchModel.gradients

    def recorded(self, x, rows, clip):
        if rows.labels.shape[1] > 8 and rows.key is not None:  # neither a batch nor the first look
            found.update(map(int, rows.key))
        return gradients(self, x, rows, clip)

    monkeypatch.setattr(TorchModel, "gradients", recorded)
    return found


@pytest.mark.parametrize(("algorithm", "more"), WHOLE)
def test_gradients_of_all_rows_draw_anew_in_each_round_from_the_seed(algorithm, more, keys):
    desim.run(tree_of(algorithm, 5, **more))
    first = set(keys)
    keys.clear()
    desim.run(tree_of(algorithm, 6, **more))
    agents = 1 if algorithm["name"] == "gradient-descent" else AGENTS
    assert len(first) == len(keys) == ROUNDS * agents
    assert not first & keys


def test_the_metric_gradient_has_no_random_layers(keys):
    tree = tree_of({"name": "fedavg", "local": LOCAL | {"batch": 4}}, 5)
    run = desim.run({**tree, "observe": {"metrics": ["gradient"]}})
    assert not keys
    problem = build(load(scenario("dropping", problem={"data": WIDE}))).settings.problem
    x, step = problem.loss.start, 1e-2
    slope = problem.total_gradient(x)
    first = run.metrics[run.metrics.agent == -1]["value"].to_numpy()[0]
    assert first == pytest.approx(float(np.linalg.norm(slope)), rel=1e-5)
    unit = slope / np.linalg.norm(slope)
    rise = problem.objective(x + step * unit) - problem.objective(x - step * unit)
    assert rise / (2.0 * step) == pytest.approx(float(np.linalg.norm(slope)), rel=1e-2)


def test_methods_of_values_alone_do_not_change_rows():
    algorithm = {"name": "d-zoa", "rho": 1.0, "inner": 2, "samples": 2, "u1": 0.1, "step": 0.1}
    tree = scenario(algorithm=algorithm, network=RING)
    tree["problem"] |= {"precision": "float64", "augment": [{"noise": 0.1}]}
    with pytest.raises(InputError, match="augment: found noise, but d-zoa trains on values of row"):
        desim.run(tree)
