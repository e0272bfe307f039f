"""Whose word an epsilon takes: plug-ins' sensitivities, and settings that come from the data."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import graph, merged, star

import desim
from desim.interface.cli import main
from desim.runs import premises
from desim.runs.premises import tuned
from desim.runs.privacy import statement
from desim.scenario.load import load

PLUGINS = Path(__file__).parent / "plugins"
DECLARED = "sensitivities are declared by plug-in hasty, untested by this run"
TESTS = "desim check --contract hasty tests them"


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One of a plug-in, and one of desim's own."""
    place = tmp_path_factory.mktemp("runs")
    rest = {"stop": {"rounds": 2}, "observe": {"metrics": []}, "engine": "cohort"}
    plugin = place / "hasty.py"
    plugin.write_text((PLUGINS / "hasty.py").read_text())
    own = merged(graph(), {"plugins": [str(plugin)], "algorithm": {"name": "hasty"}, **rest})
    return {
        "hasty": desim.run(own, out=place / "hasty"),
        "own": desim.run(merged(graph(), rest), out=place / "own"),
        "plugin": plugin,
    }


def test_every_statement_about_a_plug_in_says_whose_sensitivities_they_are(runs, capsys, tmp_path):
    run, own = runs["hasty"], runs["own"]
    for flags in (
        run.account().flags,
        run.epsilon().attrs["flags"],
        *statement(run).table["flags"],
    ):
        assert any(DECLARED in flag and TESTS in flag for flag in flags)
    assert not any("declared" in flag for flag in own.account().flags)

    def call(*words):
        with pytest.raises(SystemExit) as end:
            main(["privacy", *map(str, words)])
        assert end.value.code == 0
        return capsys.readouterr().out

    first, *rest = call(run.directory).splitlines()
    assert "; sensitivities as plug-in hasty declares them, untested)" in first
    assert sum(DECLARED in line for line in rest) == 1
    assert "declare" not in call(own.directory)
    told = json.loads(call(run.directory, "--json"))["views"][0]
    assert "hasty" in told["sensitivities"]
    assert any(DECLARED in flag for flag in told["flags"])
    assert DECLARED in call(run.directory, own.directory)
    page = desim.report([run], out=tmp_path / "page.html").read_text("utf-8")
    assert DECLARED in page
    with pytest.raises(SystemExit):
        main(["show", str(run.directory)])
    assert "as plug-in hasty declares them" in capsys.readouterr().out
    assert "as plug-in hasty declares them" in desim.compare([run, own]).written()


def test_a_plug_in_that_is_gone_is_still_named(runs):
    folder, text = runs["hasty"].directory, runs["plugin"].read_text()
    runs["plugin"].unlink()
    try:
        assert premises.plugged(desim.open(folder)) == ("hasty", "")
        terms = {"delta": 1e-5, "view": "eavesdropper", "relation": "replace-one"}
        assert any(DECLARED in flag for flag in desim.open(folder).account(**terms).flags)
    finally:
        runs["plugin"].write_text(text)


def test_the_words_of_a_loss_are_a_plug_ins_too():
    scenario = star(
        plugins=[str(PLUGINS / "losses.py")], problem={"loss": "twin"}, observe={"metrics": []}
    )
    run = desim.run(merged(scenario, {"stop": {"rounds": 1}}))
    assert any("declared by plug-in twin" in flag for flag in run.account().flags)


def of_model(**changes):
    """Six agents on a ring whose model is a plug-in's."""
    problem = {
        "agents": 6, "model": "numpy-scores", "clip": 1.0,
        "data": {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4},
    }  # fmt: skip
    tree = {
        "plugins": [str(PLUGINS / "numpy_models.py")], "problem": problem, "engine": "cohort",
        "algorithm": {"name": "dsgd", "alpha": 0.1}, "network": {"topology": "ring"},
        "privacy": {"noise": {"sigma": 0.1}}, "stop": {"rounds": 2}, "observe": {"metrics": []},
    }  # fmt: skip
    return tree | changes


def test_beside_a_model_of_a_plug_in_its_method_is_named_too(tmp_path):
    """Problems with a model have no key loss: whatever asked for it knew neither name."""
    text = (PLUGINS / "hasty.py").read_text()
    (tmp_path / "hasty.py").write_text(
        text.replace('name = "hasty"', 'name = "hasty"\n    models = "any"')
    )
    plugins = [str(PLUGINS / "numpy_models.py"), str(tmp_path / "hasty.py")]
    tree = of_model(plugins=plugins, algorithm={"name": "hasty"})
    del tree["privacy"]
    flags = desim.run(tree).account().flags
    assert any(DECLARED in flag for flag in flags)
    assert any("computed by plug-in numpy-scores, untested" in flag for flag in flags)
    run = desim.run(of_model(), out=tmp_path / "run")
    for one in (run, desim.open(tmp_path / "run")):
        assert premises.names(one) == ("dsgd", "")
        assert premises.plugged(one) == ("", "")
        assert premises.model_of(one) == "numpy-scores"
        assert "on record for dsgd" in statement(one).silence


def test_runs_of_versions_that_stepped_in_singles_with_noise_have_no_epsilon():
    local = {"solver": "noisy", "epochs": 1, "step": 0.1}
    tree = of_model(algorithm={"name": "fedavg", "local": local}, network="lan")
    for precision, said in (({}, True), ({"precision": "float64"}, False)):
        run = desim.run({**tree, "problem": tree["problem"] | precision})
        assert run.manifest["privacy"].pop("arithmetic") == "float64"
        account = run.account()
        assert (premises.COARSE in account.flags) == said
        assert (account.worst == np.inf) == said
    assert premises.COARSE not in desim.run(of_model()).account().flags


TABLE = {"source": "csv", "file": "t.csv", "label": "sick"}


@pytest.mark.parametrize(
    ("problem", "algorithm", "said"),
    [
        ({"data": {**TABLE, "missing": "most-frequent"}}, {}, "missing: most-frequent"),
        ({"data": {**TABLE, "encode": "one-hot"}}, {}, "encode: one-hot"),
        ({"data": {**TABLE, "encode": "ordinal", "scale": "standard"}}, {}, "encode: ordinal, "),
        ({"partition": {"labels": 1}}, {}, "problem.partition: labels deals rows by all"),
        ({"partition": {"dirichlet": 0.5}}, {}, "problem.partition: dirichlet deals rows by"),
        ({"partition": {"by": "city"}}, {}, ""),
        ({}, {"init": {"npz": "start.npz"}}, "algorithm.init: models of a file may have"),
        ({"loss": "softmax"}, {}, "problem.loss: classes, and with them the"),
        ({"loss": {"softmax": {"classes": 2}}}, {}, ""),
        ({"data": {**TABLE, "scale": "pixel", "normalize": "clip"}}, {"init": {"normal": 1.0}}, ""),
        ({"data": {**TABLE, "protected": {"column": "age", "above": 60}}}, {}, ""),
    ],
)
def test_what_is_computed_from_the_data_is_said(problem, algorithm, said, tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"age": rng.integers(20, 90, 24), "weight": rng.normal(70, 9, 24)})
    table["city"], table["sick"] = [*"abcd"] * 6, [0, 1] * 12
    table.to_csv(tmp_path / "t.csv", index=False)
    np.savez(tmp_path / "start.npz", x0=np.zeros((4, 3)))
    frame = {
        "problem": {"agents": 4, "data": TABLE, "loss": "logistic", "regularizer": {"l2": 1.0}},
        "algorithm": {"name": "fedavg", "local": {"epochs": 1, "step": 0.1}, **algorithm},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 1},
    }
    frame["problem"] |= problem
    found = list(tuned(load(frame, folder=tmp_path)))
    assert [said in text for text in found] == ([True] if said else [])


def test_a_run_that_failed_has_no_epsilon_where_it_has_noise():
    """That it failed, and when, may follow from one record."""
    run = desim.run("quickstart", overrides={"stop.rounds": 2, "engine": "cohort"})
    assert np.isfinite(run.account().worst)
    run.manifest["status"] = "failed"
    assert np.isinf(run.account().worst)
    assert premises.FAILED in run.account().flags
    run.manifest["status"] = "stopped"
    assert np.isfinite(run.account().worst)
