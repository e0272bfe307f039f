"""Metrics on a sample of test rows, and models kept at targets: the same bits on every engine."""

import numpy as np
import pytest
from cases import graph, star
from scenarios_of_models import modelled
from test_checkpoints import eager, left  # noqa: F401

import desim
from desim.engine.metrics import Marks
from desim.errors import InputError
from desim.problem import problem as problems
from desim.runs.store import checkpoints_of
from desim.scenario.build import build, check

DATA = {"source": "sklearn", "name": "breast_cancer", "scale": "standard", "test": "30 %"}
TARGETS = {"accuracy": [0.9, 0.95, 1.0], "loss": 2}


def watched(**changes):
    """FedAvg on rows with a test set, models kept on its way."""
    observe = {"metrics": ["loss", "accuracy"], "checkpoints": TARGETS}
    problem = {"agents": 4, "data": DATA, "loss": "logistic"}
    local = {"solver": "sgd", "batch": 8, "epochs": 3, "step": 0.05}
    return {
        "name": "watched",
        "seed": 2,
        "problem": problem,
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": {"uniform": ["5 ms", "40 ms"]}}},
        "compute": {"speed": {"uniform": [500, 2000]}},
        "stop": {"rounds": 12},
        **changes,
        "observe": observe | changes.get("observe", {}),
    }


def ring(**changes):
    """The same on a ring, where the network's model is the mean of the agents'."""
    algorithm = {"name": "dsgd", "alpha": 0.05, "batch": 8}
    network = {"topology": "ring", "link": {"latency": "10 ms"}}
    return watched(algorithm=algorithm, network=network, **changes)


def facts(run):
    return [(*one[:-1], one.model.tobytes()) for one in run.checkpoints]


def missed(run):
    """Targets whose checkpoint is not the first row that meets it, with the model of its round."""
    wrong = []
    for name, target in [("accuracy", 0.9), ("accuracy", 0.95), ("accuracy", 1.0), ("loss", 2.0)]:
        curve = run.curve(name)
        good = curve["value"] >= target if name == "accuracy" else curve["value"] <= target
        found = [one for one in run.checkpoints if (one.metric, one.target) == (name, target)]
        if not good.any():
            wrong += found
            continue
        first = curve[good].iloc[0]
        expected = (first["time"], first["round"], first["value"])
        centre = run.model[int(first["round"])]
        if [one[2:5] for one in found] != [expected]:
            wrong.append((name, target))
        elif not np.array_equal(found[0].model, centre):
            wrong.append((name, target, "model"))
    return wrong


@pytest.mark.parametrize("every", ["round", "30 ms"])
def test_models_are_those_of_the_first_row_that_meets_a_target(every):
    run = desim.run(watched(observe={"every": every}))
    assert len(run.checkpoints) >= 2
    assert missed(run) == []
    assert [one.time for one in run.checkpoints] == sorted(one.time for one in run.checkpoints)


def test_the_last_that_meets_a_target_is_another(monkeypatch):
    look = Marks.look

    def last(self, name, times, first, values, models):
        self._found = {k: v for k, v in self._found.items() if self.targets[k][0] != name}
        look(self, name, times, first, values, models)

    monkeypatch.setattr(Marks, "look", last)
    assert missed(desim.run(watched(engine="agents"))) != []


@pytest.mark.parametrize("scenario", [watched, ring])
@pytest.mark.parametrize("every", ["round", "30 ms"])
def test_engines_keep_the_same_models(scenario, every):
    engines = ["agents", "cohort"] + (["compiled"] if scenario is watched else [])
    found = [facts(desim.run(scenario(engine=one, observe={"every": every}))) for one in engines]
    assert found[0]
    assert all(one == found[0] for one in found)


def test_on_a_graph_it_is_the_mean():
    run = desim.run(ring(observe={"iterates": True}, compute={"speed": 1000}))
    first = run.checkpoints[0]
    assert np.allclose(first.model, run.iterates[first.round].mean(0), rtol=1e-12)


@pytest.mark.parametrize("engine", ["compiled", "cohort", "agents"])
def test_a_killed_run_keeps_them(engine, tmp_path, eager):  # noqa: F811
    scenario = watched(engine=engine)
    whole = desim.run(scenario)
    left(scenario, tmp_path / "a", 6)
    resumed = desim.resume(tmp_path / "a")
    assert facts(resumed) == facts(whole) == facts(desim.open(tmp_path / "a"))
    assert (tmp_path / "a" / "checkpoints.npz").exists()
    assert desim.replay(resumed).same


def test_they_are_told_under_another_network():
    slow = {"link": {"latency": "1 s"}}
    for scenario in (watched(), ring(observe={"iterates": True})):
        again = desim.retime(desim.run(scenario), network=slow)
        assert facts(again) == facts(desim.run(again.scenario)) != []
    assert desim.retime(desim.run(watched()), network=slow).checkpoints[0].time > 2.0


def test_a_run_without_has_none(tmp_path):
    run = desim.run(star(), out=tmp_path / "a")
    assert run.checkpoints == ()
    assert not (tmp_path / "a" / "checkpoints.npz").exists()
    assert checkpoints_of({}) == ()
    never = desim.run(graph(observe={"metrics": ["error"], "checkpoints": {"error": 0}}))
    assert never.checkpoints == ()


def test_a_sample_is_the_same_rows_for_all(monkeypatch):
    simulation = build(desim.load(watched(observe={"sample": 20})))
    rows = simulation.observation.sample
    assert len(set(rows)) == 20
    assert (np.diff(rows) > 0).all()
    assert np.array_equal(rows, build(desim.load(ring(observe={"sample": 20}))).observation.sample)
    other = build(desim.load(watched(observe={"sample": 20}, seed=3))).observation.sample
    assert not np.array_equal(rows, other)
    run = desim.run(watched(observe={"sample": 20}))
    problem = simulation.problem
    said = problem.loss.predictions(problem.test_A[rows], run.model[5]) == problem.test_b[rows]
    assert run.curve("accuracy")["value"][5] == said.mean()
    whole = desim.run(watched())
    assert run.curve("loss").equals(whole.curve("loss"))
    assert not run.curve("accuracy").equals(whole.curve("accuracy"))
    assert np.array_equal(run.model, whole.model)


def test_a_sample_leaves_the_problem_as_it_is():
    problem = build(desim.load(watched())).problem
    few = problem.tested_on(np.array([0, 2]))
    assert (len(few.test_A), len(few.test_b)) == (2, 2)
    assert few.A is problem.A
    assert isinstance(few, problems.Problem)
    assert len(problem.test_A) > 2


def test_a_sample_of_all_is_all():
    assert build(desim.load(watched(observe={"sample": 10**6}))).observation.sample is None


@pytest.mark.parametrize(
    ("observe", "text"),
    [
        (
            {"checkpoints": {"error": 1}},
            "found error; allowed: what metrics has: loss",
        ),
        ({"checkpoints": {"los": 1}}, "did you mean 'loss'"),
        ({"checkpoints": {}}, "observe.checkpoints: found {}"),
        ({"checkpoints": {"loss": [1, 1]}}, "one or more targets, each once"),
        ({"checkpoints": {"loss": []}}, "one or more targets, each once"),
        ({"sample": 0}, "observe.sample: found 0"),
        (
            {"sample": 5, "metrics": ["loss"], "checkpoints": {"loss": 1}},
            "without a metric of",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(observe, text):
    with pytest.raises(InputError) as caught:
        check(desim.load(watched(observe=observe)))
    assert text in str(caught.value)


def test_orders_of_methods_ask_for_no_checkpoints():
    base = watched(stop={"rounds": 6}, observe={"sample": 30})
    other = {**base, "algorithm": {**base["algorithm"], "name": "scaffold"}}
    found = desim.robust([base, other], target={"loss": 3.0}, worlds=4)
    assert found is not None


def test_a_model_of_a_user_is_kept(tmp_path):
    observe = {"metrics": ["loss"], "checkpoints": {"loss": 1e9}}
    run = desim.run(modelled(observe=observe), out=tmp_path / "a")
    assert run.checkpoints[0].round == run.curve("loss")["round"][0]
    assert run.checkpoints[0].model.shape == (5,)
