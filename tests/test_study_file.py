"""Study files: what they may say, what is told of mistakes, and which runs they stand for."""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant
from study_scenes import BASE, STUDY, changed

import desim
from desim.errors import InputError
from desim.experiments.studies import cases as module
from desim.experiments.studies.cases import drawn, key_of, seeded
from desim.experiments.studies.study import plan
from desim.interface.cli.options import target as parsed
from desim.scenario.load import resolved_yaml
from desim.scenario.study_file import Search, read_study
from desim.scenario.varied import expanded


def labels(study):
    return [case.label for case in plan(study).cases]


def test_ranges_stand_for_whole_numbers_with_both_ends():
    assert expanded("0..3") == expanded(["0..3"]) == (0, 1, 2, 3)
    assert expanded(["-1..1", 7, "8 .. 9"]) == (-1, 0, 1, 7, 8, 9)
    assert expanded(["all", {"deadline": "2 s"}]) == ("all", {"deadline": "2 s"})


@pytest.mark.parametrize("wrong", ["3..1", "0..99999999999", [], [1, 1], ["0..3", 2], 5, "0-3"])
def test_a_range_that_means_nothing_is_refused(wrong):
    with pytest.raises(ValueError, match="found"):
        expanded(wrong)


def test_a_grid_is_every_combination_and_seeds_are_repeats():
    grid = {"policy": ["all", "each"], "algorithm.rho": [0.5, 1.0, 2.0], "seed": "0..4"}
    made = plan(changed(grid=grid))
    assert len(made.cases) == 6
    assert {case.seeds for case in made.cases} == {(0, 1, 2, 3, 4)}
    assert len(made.jobs) == len(set(made.keys.values())) == 30
    assert made.cases[0].label == "policy all, rho 0.5"
    assert made.cases[-1].scenario.algorithm.parameters.rho == 2.0


def test_a_list_names_its_cases_and_crosses_the_grid():
    entries = [
        {"label": "slow", "compute.speed": "10 /s", "policy": "each"},
        {"label": "fast", "compute.speed": "90 /s"},
    ]
    study = changed(list=entries, grid={"algorithm.rho": [1.0, 2.0], "seed": [3]})
    assert labels(study) == ["slow, rho 1", "slow, rho 2", "fast, rho 1", "fast, rho 2"]
    against = {**study, "compare": {"against": {"label": "fast"}}}
    pairs = [(case.label, other.label) for case, other in plan(against).pairs]
    assert pairs == [("slow, rho 1", "fast, rho 1"), ("slow, rho 2", "fast, rho 2")]


def test_trials_depend_on_nothing_but_their_number():
    laws = {"algorithm.rho": {"log_uniform": [0.01, 1.0]}, "seed": {"integer": [0, 9]}}
    few, many = (Search(trials=n, draw=laws, seed=4) for n in (2, 200))
    alone = Search(trials=2, draw={"algorithm.rho": laws["algorithm.rho"]}, seed=4)
    assert drawn(few, 1) == drawn(many, 1)
    assert drawn(alone, 1)["algorithm.rho"] == drawn(few, 1)["algorithm.rho"]
    found = [drawn(many, trial) for trial in range(200)]
    rho = np.array([one["algorithm.rho"] for one in found])
    # log10 rho is uniform on [-2, 0]: of 200, 100 +- 5 sqrt(50) are below 0.1
    assert abs((rho < 0.1).sum() - 100) < 36
    assert rho.min() >= 0.01
    assert rho.max() <= 1.0
    assert set(Counter(one["seed"] for one in found)) == set(range(10))


def test_trials_that_share_draws_between_keys_are_noticed():
    wrong = mutant(module, "[search.seed, trial, zlib.crc32(key.encode())]", "[search.seed, trial]")
    law = {"uniform": [0.0, 1.0]}
    search = Search(trials=1, draw={"algorithm.rho": law, "problem.clip": law})
    assert len(set(drawn(search, 0).values())) == 2
    assert len(set(wrong.drawn(search, 0).values())) == 1


def test_the_hash_of_a_run_is_that_of_the_scenario_it_stores():
    made = plan(changed(grid={"seed": [0, 12], "policy": ["all", "each"]}))
    for case in made.cases:
        for seed in case.seeds:
            run = desim.run(case.scenario.model_copy(update={"seed": seed}))
            assert run.manifest["scenario_sha256"].startswith(made.keys[case.number, seed])


def test_a_seed_is_put_into_the_resolved_text_as_resolving_does():
    scenario = desim.load(BASE)
    text = resolved_yaml(scenario.model_copy(update={"seed": 123}))
    assert seeded(resolved_yaml(scenario), 123) == text
    assert seeded(resolved_yaml(scenario), 124) != text
    assert key_of(text) == key_of(seeded(text, 123))


def test_equal_scenarios_are_one_run():
    made = plan(changed(grid={"seed": [1]}, list=[{"label": "a"}, {"label": "b", "policy": "all"}]))
    assert len(made.cases) == 2
    assert len(made.jobs) == 1


WRONG = [
    ({"grid": {"algorithm.rhoo": [1]}}, "algorithm.rhoo: unknown key"),
    ({"grid": {"algorithm.rho": 1}}, "grid: algorithm.rho: found 1; allowed: a list of values"),
    ({"grid": {"algorthm.rho": [1]}}, "did you mean 'algorithm'"),
    ({"grid": {"seed": [-1]}}, "seed: found -1"),
    ({"grid": {"seed": [0.5]}}, "seed: found 0.5"),
    ({"grid": {"algorithm.rho": [1.0, -1.0]}}, "case rho -1: override algorithm.rho"),
    ({"gird": {}}, "did you mean 'grid'"),
    ({"base": 7}, "base: found 7; allowed: a scenario file"),
    ({"base": "nowhere.yaml"}, "nowhere.yaml"),
    ({"set": {"policy": "each"}}, "found policy in set, though it varies"),
    ({"list": [{"policy": "each"}]}, "found policy in two of grid, list and random"),
    ({"list": [7]}, "list: found 7"),
    ({"random": {"trials": 3, "draw": {"stop.rounds": {"normal": [1, 2]}}}}, "log_uniform"),
    ({"random": {"trials": 0, "draw": {}}}, "random.trials: found 0"),
    (
        {"random": {"trials": 1, "draw": {"algorithm.rho": {"log_uniform": [0, 1]}}}},
        "algorithm.rho.log_uniform: found",
    ),
    ({"compare": {"targets": {"acuracy": 0.9}}}, "did you mean 'accuracy'"),
    ({"compare": {"targets": {"consensus": 1.0}}}, "compare.targets: found 'consensus'"),
    ({"compare": {"against": {"policy": "each"}}}, "compare.against: found"),
    ({"compare": {"against": {"label": "x"}}}, "compare.against: found"),
    ({"compare": {"against": "x"}}, "{label: ...} of a list"),
    ({"compare": {"targets": {"accuracy": "900 %"}}}, "a percentage such as 1 %"),
    ({"compare": {"level": 95}}, "compare.level: found 95"),
    ({"compare": {"epsilon": {"delta": 2.0}}}, "compare.epsilon.delta: found 2.0"),
    ({"compare": {"epsilon": 3}}, "compare.epsilon: found 3"),
    ({"name": "a/b"}, "name: found 'a/b'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=lambda one: str(one)[:40])
def test_a_mistake_is_told(changes, message):
    with pytest.raises(InputError) as refused:
        plan(changed(**changes))
    assert message in str(refused.value)


def test_a_mistake_of_the_base_is_told_once():
    with pytest.raises(InputError) as refused:
        plan(changed(base={**BASE, "engine": "warp"}))
    assert len(refused.value.problems) == 1
    assert "case" not in str(refused.value)


def test_a_file_says_the_line_and_counts_names_from_its_folder(tmp_path):
    (tmp_path / "base.yaml").write_text(json.dumps(BASE))
    (tmp_path / "s.yaml").write_text("base: base.yaml\ngrid:\n  seed: [0..2]\ncompaer: 3\n")
    with pytest.raises(InputError, match=r"s\.yaml:4: compaer: unknown key.*'compare'"):
        read_study(tmp_path / "s.yaml")
    (tmp_path / "s.yaml").write_text("base: base.yaml\ngrid:\n  seed: [0..2]\n")
    study, _ = read_study(tmp_path / "s.yaml")
    assert (study.name, study.base) == ("s", tmp_path / "base.yaml")
    assert len(plan(tmp_path / "s.yaml").jobs) == 3
    with pytest.raises(InputError, match="is a scenario; allowed: a study"):
        read_study(tmp_path / "base.yaml")


def test_overrides_are_for_all_cases_and_for_no_key_that_varies():
    made = plan(STUDY, overrides={"stop.rounds": 3})
    assert {case.scenario.stop.rounds for case in made.cases} == {3}
    with pytest.raises(InputError, match="override seed: the study varies it"):
        plan(STUDY, overrides={"seed": 3})


@pytest.mark.slow
def test_importing_desim_does_not_import_the_cluster():
    code = "import desim, sys; desim.study; print('distributed' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_shipped_studies_are_right(shared, monkeypatch):
    monkeypatch.setenv("DESIM_DATA", str(shared / "data"))
    folder = Path(__file__).resolve().parents[1] / "scenarios" / "studies"
    studies = [file for file in folder.glob("*.yaml") if "\nbase:" in file.read_text()]
    assert studies
    for file in studies:
        assert len(plan(file).cases) > 1


def test_a_target_may_be_a_percentage():
    study = {**STUDY, "compare": {"targets": {"accuracy": ["90 %", 0.95]}}}
    made, _ = read_study(study)
    assert made.compare.targets == {"accuracy": (0.9, 0.95)}
    ends = desim.load(BASE, {"stop": {"metric": {"error": "2.5 %", "loss": 1e-3}}}).stop
    assert ends.targets == {"error": 0.025, "loss": 1e-3}
    assert parsed("accuracy=90%") == ("accuracy", 0.9)


def test_keys_of_the_file_are_no_overrides():
    with pytest.raises(InputError, match=r"compare\.level: is a key of the study's file"):
        plan(STUDY, overrides={"compare.level": 0.9})


def test_a_study_of_too_many_runs_is_refused_before_any_is_drawn(monkeypatch):
    def none(*_):
        raise AssertionError("drawn")

    law = {"trials": 10**7, "draw": {"algorithm.rho": {"uniform": [0.1, 1]}}}
    study = {"name": "wide", "base": BASE, "random": law}
    monkeypatch.setattr("desim.experiments.studies.cases.drawn", none)
    with pytest.raises(InputError, match=r"found 10000000 runs; allowed: at most \d+"):
        plan(study)
    law["trials"] = 2
    with pytest.raises(AssertionError, match="drawn"):
        plan(study)
