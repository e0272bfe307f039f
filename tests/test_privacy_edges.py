"""Where a mask, an export, a bound or an audit might tell too little, or too much."""

import json

import numpy as np
import pytest
from cases import CASES, graph, merged

import desim
from desim.errors import InputError
from desim.experiments.audit.of_one_run import Game, canaries_of, play_once
from desim.masks import of_agents, public
from desim.privacy.accounting.plugged import Accountant, answered
from desim.runs.exports import public as exported
from desim.runs.premises import tuned
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import load

SENT = graph(problem={"clip": 1.0}, privacy={"noise": {"sigma": 0.5}}, stop={"rounds": 2})


@pytest.mark.parametrize("bad", [True, [True], np.ones(1, bool), np.ones(3, int), "yes"])
def test_a_mask_says_of_each_agent_whether(bad):
    with pytest.raises(ValueError, match=r"where: found .*; allowed: None, or an array of bool"):
        of_agents(bad, 3, "where")
    assert of_agents(None, 3, "where") is None
    assert of_agents(np.ones(3, bool), 3, "where").all()


def test_nothing_is_written_into_a_public_mask():
    mask = public([True, False])
    with pytest.raises(ValueError, match="read-only: write m = m & other"):
        mask &= np.array([False, True])
    assert mask.tolist() == [True, False]


@pytest.mark.parametrize("relation", ["replace-one", "agent", "add-or-remove-one"])
def test_rough_solutions_say_nothing_of_a_record_less(relation):
    run = desim.run(merged(CASES["pp-admm"], {"stop": {"rounds": 2}}))
    if relation != "add-or-remove-one":
        assert np.isfinite(run.account(relation=relation).worst)
        return
    with pytest.raises(InputError, match=r"relation: found 'add-or-remove-one'.*with pp-admm"):
        run.account(relation=relation)
    scenario = merged(CASES["pp-admm"], {"privacy": {"relation": relation}})
    with pytest.raises(InputError, match=r"privacy\.relation: found add-or-remove-one"):
        load(scenario)


def test_half_of_a_sensitivity_holds_for_a_record_less():
    """Two minimisers are 2 tolerance / modulus apart beside what the record moves."""
    method = build(load(merged(CASES["p-admm"], {"algorithm": {"tolerance": 0.5}}))).method
    problem, degree = method.problem, method.settings.graph.degree
    modulus = 2.0 * method.rho * degree + problem.ridge
    removed = (problem.clip * problem.scale + 2.0 * 0.5) / modulus
    half = 0.5 * method.planned(1).sensitivity
    np.testing.assert_allclose(half, removed, rtol=1e-12)
    assert (0.5 * (half - 0.5 / modulus) < removed).all()


def test_a_column_that_chooses_the_training_rows_is_flagged():
    data = {"source": "csv", "file": __file__, "label": "y"}
    problem = {"agents": 2, "data": data, "loss": "logistic"}
    for test, flagged in (({"column": "fold", "value": 1}, 1), ("20 %", 0), ({"rows": 3}, 0)):
        data["test"] = test
        found = tuned(load({"problem": problem, "algorithm": "fedavg", "stop": {"rounds": 1}}))
        assert sum("problem.data.test: which rows" in text for text in found) == flagged


def test_a_bound_whose_square_is_no_number_bounds_nothing():
    problem = merged(CASES["plt-noisy"], {"problem": {"row_norm": 1e160}})
    assert np.isinf(build(load(problem)).problem.public_moduli[1]).all()


def test_an_export_that_is_interrupted_leaves_the_older_one(tmp_path, monkeypatch):
    run = desim.run(SENT, out=tmp_path / "run")
    folder = tmp_path / "public"
    exported.write_public(run, folder)
    before = {one.name: one.read_bytes() for one in folder.iterdir()}
    assert json.loads(before["manifest.json"])["export"] == "public"

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(exported, "_readme", stop)
    with pytest.raises(KeyboardInterrupt):
        exported.write_public(run, folder)
    assert {one.name: one.read_bytes() for one in folder.iterdir()} == before
    assert {one.name for one in tmp_path.iterdir()} == {"run", "public"}


class Large(Accountant):
    """An accountant whose answer is no double, and that prints."""

    name, summary = "large", "too large"

    def epsilon(self, prices, delta):
        """Return a number beyond all doubles."""
        print("hello")
        return 10**400


def test_answers_beyond_all_numbers_are_refused_and_what_is_printed_is_apart(capsys):
    with pytest.raises(InputError, match="accountant large: found 1000"):
        answered(Large, None, 1e-5)
    assert capsys.readouterr().out == ""


def test_two_files_with_one_accountant_are_refused(tmp_path):
    text = (
        "from desim.privacy.accounting.plugged import Accountant\n\n\nclass Own(Accountant):\n"
        "    name, summary = 'own', ''\n\n"
        "    def epsilon(self, prices, delta):\n        return 1.0\n"
    )
    files = [tmp_path / "one.py", tmp_path / "two.py"]
    for file in files:
        file.write_text(text)
    registry.load_plugin(files[0])
    registry.load_plugin(files[0])
    with pytest.raises(InputError, match=r"accountant 'own' is defined in .*one\.py, too"):
        registry.load_plugin(files[1])


def test_one_run_reads_the_last_messages_where_nobody_releases_a_value():
    simulation = build(load(merged(CASES["dvp"], {"stop": {"rounds": 2}})))
    of = canaries_of(simulation.problem, 0, 3, seed=0, most=1.0)
    found = play_once(Game(simulation, of, "model"))
    assert np.abs(found.scores).max() > 0.0
