"""What whoever writes a method by the documentation does wrong first, and what desim says."""

from pathlib import Path

import numpy as np
import pages
import pandas as pd
import pytest

import desim
from desim.errors import DesimError, RunError
from desim.experiments.contract import algorithm_laws
from desim.experiments.contract.stage import BrokenError, Stage
from desim.runs.directory import write_arrays
from desim.scenario import own, registry
from desim.scenario.load import resolved_yaml
from desim.scenario.registry import odd

PAGE = Path(__file__).resolve().parents[1] / "analysis/docs/howto/algorithm.md"
FILES = {one.name: one.text for one in pages.blocks(PAGE.read_text("utf-8")) if one.name}
SCENARIOS = {"reptile": "reptile.yaml", "diging": "ring.yaml", "extra": "ring.yaml"}
ALGORITHMS = {
    "reptile": {"epsilon": 0.5, "step": 0.05},
    "diging": {"alpha": 0.1},
    "extra": {"alpha": 0.1},
}
PRIVACY = {"noise": {"kind": "gaussian", "sigma": 0.5}}


def written(folder, name, *changes):
    """Put method `name` of the page with changes (right, wrong) beside its scenario."""
    text = FILES[f"{name}.py"]
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    (folder / "mine.py").write_text(text)
    path = folder / "mine.yaml"
    path.write_text(FILES[SCENARIOS[name]])
    return path, {
        "plugins": ["mine.py"],
        "algorithm": {"name": name, **ALGORITHMS[name]},
        "problem.clip": 1,
        "privacy": PRIVACY,
        "stop.rounds": 3,
    }


def written_well(folder, name):
    """The file of method `name` as the page has it."""
    (folder / "well.py").write_text(FILES[f"{name}.py"])
    return str(folder / "well.py")


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_has_no_mistake(name, engine, tmp_path):
    path, keys = written(tmp_path, name)
    done = desim.run(path, overrides={**keys, "engine": engine})
    assert (done.status, set(done.releases["mechanism"])) == ("done", {"gaussian"})


MISTAKES = {
    "agents_twice": (
        "reptile", ("hub.call(hub.invite(),", "hub.call(hub.invite().repeat(2),"),
        r"line .*hub.call: found agents .*; allowed: numbers from 0 to \d+, each once"),
    "no_such_agent": (
        "reptile", ("hub.call(hub.invite(),", "hub.call(hub.invite() - 1,"),
        r"line .*hub.call: found agents .*-1.*; allowed: numbers from 0 to"),
    "negative_work": (
        "reptile", ("work=work,", "work=-1.0 * work,"),
        "line .*hub.call: found work .*; allowed: finite, >= 0"),
    "work_that_is_none": (
        "reptile", ("work=work,", 'work=work * float("nan"),'),
        "line .*hub.call: found work .*; allowed: finite, >= 0"),
    "noise is charged and not drawn": (
        "reptile", ("us.noised(w)", "w"), "job does not draw; return us.noised"),
    "a verb of graphs in a job": (
        "reptile", ("us.noised(w)", "us.release(w, None)"), "line .*returns us.noised"),
    "terms of the invited alone": (
        "reptile", ("self.planned(hub.round)", "self.planned(1).of(hub.invite()[:2])"),
        "line .*found terms of 2 agents; allowed: those of all 6"),
    "rounds that never end": (
        "reptile", ("            hub.publish(state.x) ", "            state.x "),
        "line .*256 calls in round 1; publish ends it"),
    "a request that is not yielded": (
        "extra", ("yield us.gather()", "us.gather()"), "line .*write heard = yield us.gather"),
    "two vectors as two arguments": (
        "diging", ("us.send(np.hstack([us.x, us.y]))", "us.send(us.x, us.y)"),
        "line .*takes 2 positional arguments"),
    "one number of a model": (
        "reptile", ("            hub.publish(state.x) ", "            hub.publish(state.x[:1]) "),
        r"line .*hub.publish: found an array of float64, shape \(1,\); allowed: a float array of "),
    "a model that changes its shape": (
        "reptile", ("            hub.publish(state.x) ",
                    "            hub.publish(state.x[: 2 if hub.round > 2 else None]) "),
        r"line .*hub.publish: found an array of float64, shape \(2,\)"),
    "a model of objects": (
        "reptile", ("            hub.publish(state.x) ",
                    "            hub.publish(state.x.astype('O')) "),
        "line .*hub.publish: found an array of object"),
    "a model of whole numbers": (
        "reptile", ("            hub.publish(state.x) ",
                    "            hub.publish(state.x.astype(int)) "),
        "line .*hub.publish: found an array of int64"),
    "no model": (
        "reptile", ("            hub.publish(state.x) ", "            hub.publish(None) "),
        "line .*hub.publish: found null"),
    "models of one agent": (
        "reptile", ("hub.start(x=x0)", "hub.start(x=x0[:1])"),
        r"line .*hub.start: x: found an array of float64, shape \(1, .*a row for each agent"),
    "models of one number": (
        "reptile", ("hub.start(x=x0)", "hub.start(x=x0[:, :1])"), "line .*hub.start: x: found"),
    "state of objects": (
        "reptile", ("hub.start(x=x0)", "hub.start(x=x0, y=x0.astype('O'))"),
        "line .*hub.start: y: found an array of object.* allowed: an array of numbers of 6 rows"),
    "a job that cuts the models": (
        "reptile", ("us.x = w\n", "us.x = w[:, :1]\n"),
        r"line .*us.x: found an array of float64, shape \(\d, 1\); allowed: numbers of shape "
        r"\(\d, 4\), a row for each agent"),
    "state of objects, from a job": (
        "reptile", ("us.x = w\n", "us.x = w; us.tag = w.astype('O')\n"),
        "line .*us.tag: found an array of object.*; allowed: numbers of shape"),
    "a number for all agents": (
        "reptile", ("us.x = w\n", "us.x = w; us.count = 0.0\n"),
        r"line .*us.count: found 0.0; allowed: numbers of shape \(\d,\), a row for each agent"),
    "an agent of a graph that cuts its model": (
        "diging", ("us.x = mixed[:, :dim] - alpha * us.y", "us.y = us.y[:, :2]"),
        r"line .*us.y: found an array of float64, shape \(\d, 2\); allowed: .*\(\d, 4\)"),
    "no models": (
        "reptile", ("hub.start(x=x0)", "hub.start()"), r"allowed: hub.start\(x=...\) first"),
    "a file of its own that is not there": (
        "reptile", ("            hub.publish(state.x) ", "            open('weights.npz') "),
        "mine.py, line .*raised FileNotFoundError: .*'weights.npz'"),
}  # fmt: skip


@pytest.mark.thin(3)
@pytest.mark.parametrize(("name", "change", "message"), MISTAKES.values(), ids=MISTAKES.keys())
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_mistake_is_told_with_its_cure(name, change, message, engine, tmp_path):
    path, keys = written(tmp_path, name, change)
    with pytest.raises(DesimError, match=message):
        desim.run(path, overrides={**keys, "engine": engine})


LATE = {
    "reptile": ("us.x = w\n", "us.x = w if us.round[0] < 3 else w[:, :1]\n"),
    "extra": ("us.report(us.x)\n", "[0][int(us.round[0] > 2)]; us.report(us.x)\n"),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("target", [{}, {"stop.metric": {"error": 0}}], ids=["rounds", "target"])
@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("name", LATE)
def test_a_mistake_of_a_late_round_keeps_what_was_before(name, engine, target, tmp_path):
    path, keys = written(tmp_path, name, LATE[name])
    with pytest.raises(RunError, match=r"us\.x: found an array|list index") as told:
        desim.run(path, tmp_path / "out", overrides={**keys, "engine": engine, **target})
    kept = desim.open(tmp_path / "out")
    assert (kept.status, kept.manifest["rounds"]) == ("failed", kept.metrics["round"].max())
    assert not kept.state
    whole = desim.run(path, overrides={**keys, "plugins": [written_well(tmp_path, name)]})
    before = whole.events[: len(kept.events)]
    assert 0 < len(kept.events) < len(whole.events)
    assert kept.events["time"].max() <= kept.manifest["time"] == told.value.run.manifest["time"]
    pd.testing.assert_frame_equal(kept.events, before, check_exact=True)


@pytest.mark.thin(3)
@pytest.mark.parametrize("policy", ["all", {"quorum": 4}, {"deadline": "300 ms"}])
@pytest.mark.parametrize(
    "change",
    [
        ("us.x = w\n", "us.x = w if us.round[0] < 5 else w[:, :1]\n"),
        (
            "            hub.publish(state.x) ",
            "            [0][hub.round > 4]; hub.publish(state.x) ",
        ),
    ],
    ids=["job", "coordinator"],
)
def test_engines_keep_the_same_of_a_run_that_a_mistake_ends(change, policy, tmp_path):
    path, keys = written(tmp_path, "reptile", change)
    kept = []
    for engine in ("cohort", "agents"):
        with pytest.raises(RunError, match=r"us\.x: found an array|list index"):
            desim.run(path, tmp_path / engine, overrides={
                **keys, "engine": engine, "policy": policy, "stop.rounds": 8,
            })  # fmt: skip
        kept.append(desim.open(tmp_path / engine))
    one, other = kept
    for name in ("events", "metrics", "releases"):
        pd.testing.assert_frame_equal(getattr(one, name), getattr(other, name), check_exact=True)
    told = [{key: run.manifest[key] for key in ("time", "rounds", "reason")} for run in kept]
    counts = [{**run.manifest["counts"], "play_seconds": 0} for run in kept]
    assert (told[0], counts[0]) == (told[1], counts[1])
    assert one.manifest["rounds"] == one.metrics["round"].max() == 4


def test_no_file_holds_python_objects(tmp_path):
    with pytest.raises(ValueError, match=r"state\.npz: array tag holds Python objects"):
        write_arrays(tmp_path / "state.npz", {"tag": np.array([None])})
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_not_the_plug_in_s(tmp_path, monkeypatch):
    def full(self, *rows):
        raise OSError(28, "No space left on device")

    path, keys = written(tmp_path, "reptile")
    monkeypatch.setattr("desim.log.parquet.Tables.append", full)
    with pytest.raises(RunError, match=r"out: cannot be written \(No space left on device\)"):
        desim.run(path, tmp_path / "out", overrides=keys)


def test_models_that_a_job_of_all_agents_has_cut_are_told(tmp_path):
    path, keys = written(tmp_path, "reptile", ("us.x = w\n", "us.x = w[:, :1]\n"))
    text = r"line .* us.x: found an array of float64, shape \(6, 1\); allowed: .* \(6, 4\)"
    with pytest.raises(RunError, match=text):
        desim.run(path, overrides={**keys, "policy": "all"})


def test_data_that_no_release_accounts_for_are_found(tmp_path):
    change = ("g = yield us.compute(self.gradient, us.x, work=self.problem.rows[us.who])",
              "g = self.gradient(us, us.x)")  # fmt: skip
    path, keys = written(tmp_path, "extra", change, ("us.release(g, self.terms(us.who, k))", "g"))
    scenario = desim.load(path, keys)
    with pytest.raises(BrokenError, match="but no release says so: was a job run without"):
        algorithm_laws.sensitivity(Stage(registry.get("extra"), scenario))


FEDAVG = """from desim.methods.fedavg import FedAvg


class Mine(FedAvg):
    name = "mine"
    summary = "fedavg"
"""
SMALL = {
    "problem": {"agents": 3, "loss": "squared", "data": {
        "source": "synthetic", "kind": "regression", "rows": 4, "dim": 3}},
    "algorithm": {"name": "mine"},
    "observe": {"metrics": ["loss"]},
    "stop": {"rounds": 1},
}  # fmt: skip


KEYS = """from pydantic import Field
from desim.methods.fedavg import FedAvg, Parameters


class Parameters(Parameters):
    lambda_: float = Field(alias="lambda")
    \"\"\"the weight\"\"\"
    top_k: int = Field(3, alias="top-k")
    \"\"\"how many\"\"\"


class Mine(FedAvg):
    name = "mine"
    summary = "fedavg"
    Parameters = Parameters
"""


def test_keys_that_are_no_names_in_python_are_read_and_written(tmp_path):
    """What is resolved has keys, so that it loads again."""
    (tmp_path / "mine.py").write_text(KEYS)
    small = SMALL | {"plugins": [str(tmp_path / "mine.py")]}
    with pytest.raises(DesimError, match=r"algorithm\.lambda: missing; .*: the weight"):
        desim.load(small)
    whole = desim.load(small, {"algorithm.lambda": 0.5})
    assert (whole.algorithm.parameters.lambda_, whole.algorithm.parameters.top_k) == (0.5, 3)
    (tmp_path / "resolved.yaml").write_text(resolved_yaml(whole))
    assert desim.load(tmp_path / "resolved.yaml").written() == whole.written()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("policies = None", r"Mine\.policies: found null; allowed: a tuple, each text"),
        ("policies = 'x'", r"Mine\.policies: found 'x'; allowed: a tuple, each text"),
        ("policies = []", r"Mine\.policies: found \[\]; allowed: a tuple"),
        ("policies = ('al',)", r"Mine\.policies: found \('al',\); allowed: a tuple of all, deadl"),
        ("calls = 'x'", r"Mine\.calls: found 'x'; allowed: a whole number"),
        ("once = 5", r"Mine\.once: found 5; allowed: True or False"),
        ("models = 'linea'", r"Mine\.models: found 'linea'; allowed: 'linear', 'convex', 'any'"),
        ("summary = None", r"Mine\.summary: found null; allowed: text"),
        ("planned = 5", r"Mine\.planned: found 5; allowed: a function"),
        ("coordinator = lambda self: None", r"Mine\.coordinator: found a function of \(self\)"),
        ("waiting = 'al'", r"Mine\.waiting: found 'al'; allowed: what a scenario's policy may be"),
        (
            "__init__ = lambda *_: 5",
            r"what Mine gives it: TypeError: __init__\(\) should",
        ),
        ("problems = lambda *_: 5", r"cannot use what Mine gives it: TypeError"),
    ],
)
def test_what_a_method_declares_is_held_to_its_type(line, message, tmp_path):
    (tmp_path / "mine.py").write_text(f"{FEDAVG}    {line}\n")
    with pytest.raises(DesimError, match=message):
        desim.run({**SMALL, "plugins": [str(tmp_path / "mine.py")]})


def test_what_desim_declares_itself_has_its_types(tmp_path):
    for name in own.METHODS:
        assert list(odd(registry.get(name))) == []
    (tmp_path / "mine.py").write_text(FEDAVG)
    assert desim.run({**SMALL, "plugins": [str(tmp_path / "mine.py")]}).status == "done"
