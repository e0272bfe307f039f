"""Reptile of the newcomer's page: its naive twin, whoever waits for whom, and wrong ones."""

from pathlib import Path

import pytest
from naive.reptile import reptile
from test_against_naive import NETWORK, SEED, TOLERANCE, Rows, gap, issued_in

import desim

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "analysis" / "plugin_example" / "src" / "desim_example" / "reptile.py"
STEPS = {"epsilon": 0.7, "step": 0.05, "epochs": 4}
SETTINGS = {
    "all": {},
    "half": {"participation": {"bernoulli": 0.5}},
    "some": {"participation": {"schedule": [[0, 3], [], [1], [2, 0, 1]]}},
    "deadline": {"policy": {"deadline": "100 ms"}},
    "quorum": {"policy": {"quorum": 2, "late": "carry"}},
    "buffer": {"policy": {"buffer": 2}},
    "each": {"policy": "each", "stop": {"rounds": 30}},
}


def gap_to_twin(folder, plugin, setting, engine="cohort"):
    """Largest difference of the models and of the agents' own from the twin's."""
    rows = Rows(6, "logistic")
    run = desim.run(
        {
            "seed": SEED, "plugins": [str(plugin)], "engine": engine,
            "problem": {**rows.problem(folder), "loss": "logistic", "regularizer": {"l2": 2.0}},
            "algorithm": {"name": "reptile", **STEPS, "init": rows.init(folder)},
            "network": NETWORK, "compute": {"speed": {"uniform": [100, 900]}},
            "observe": {"metrics": [], "iterates": True}, "stop": {"rounds": 10}, **setting,
        }
    )  # fmt: skip
    wanted = reptile(rows.A, rows.b, rows.x0, issued_in(run), l2=2.0, **STEPS)
    heard = (issued_in(run) >= 0).any(axis=0)  # others may have trained and not been heard
    return max(gap(run.model, wanted[0]), gap(run.state["x"][heard], wanted[1][heard]))


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", SETTINGS)
def test_reptile_is_its_naive_twin(name, engine, tmp_path):
    assert gap_to_twin(tmp_path, EXAMPLE, SETTINGS[name], engine) < TOLERANCE


WRONG = [
    ("epsilon * (mean - state.x)", "epsilon * mean", "all"),
    ("state.x + self.parameters.epsilon *", "state.x +", "all"),
    ("range(p.epochs)", "range(p.epochs - 1)", "all"),
    ("w -= p.step * gradient", "w += p.step * gradient", "all"),
    ("self.parameters, x.copy()", "self.parameters, us.x", "all"),
    ("x0.mean(axis=0)", "x0[0]", "all"),
    ("/ len(replies.who)", "/ self.problem.agents", "half"),
    ("replies.payload.sum", "replies.payload[:1].sum", "buffer"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("right", "wrong", "name"), WRONG)
def test_another_reptile_is_noticed(right, wrong, name, tmp_path):
    text = EXAMPLE.read_text("utf-8")
    assert text.count(right) == 1
    (tmp_path / "other.py").write_text(text.replace(right, wrong))
    assert gap_to_twin(tmp_path, tmp_path / "other.py", SETTINGS[name]) > 1e3 * TOLERANCE
