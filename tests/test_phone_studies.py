"""The studies of phones that `desim study` plays: their files, what is chosen, and their pages."""

import copy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import desim
from analysis.studies import asynchronous_phones, deadlines, numbers, oort_on_phones
from analysis.studies.standings import Interval
from desim.experiments.studies.study import plan
from desim.scenario.study_file import read_study

BRIEF = {"stop.time": "3 s"}


@pytest.fixture
def data(shared, monkeypatch):
    """The folder of measurements, where the scenarios look for it."""
    monkeypatch.setenv("DESIM_DATA", str(shared / "data"))


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_the_study_files_are_what_their_pages_say():
    ways = plan(asynchronous_phones.FILE)
    assert len(ways.cases) == 2 * 5 * 5
    assert len(ways.jobs) == 3 * len(ways.cases)
    waits = [deadlines.wait(case) for case in plan(deadlines.FILE).cases]
    assert len(set(waits)) == 3 * 2 * 11
    assert {one.phones for one in waits} == {"always slow", "slow at times", "away at times"}
    assert {one.late for one in waits} == {"", *deadlines.LATE}


class Found:
    """A search whose summary is given: seconds to the target and final accuracies by case."""

    def __init__(self, cases, seconds, finals):
        self.plan = type("Plan", (), {"cases": cases})
        table = [
            {"case": case.number, "measure": measure, "unit": unit, "value": value,
             "low": value, "high": value}
            for case, *values in zip(cases, seconds, finals, strict=True)
            for measure, unit, value in zip(
                ("time to accuracy 0.85", "final accuracy"), ("s", ""), values, strict=True)
        ]  # fmt: skip
        self.summary = pd.DataFrame(table)


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_the_best_parameter_is_the_fastest_and_the_most_accurate_where_none_arrives():
    cases = plan(asynchronous_phones.FILE).cases
    mine = [case for case in cases if case.values["policy"] == "each"][:5]
    assert {case.values["algorithm"]["name"] for case in mine} == {"fedavg"}
    steps = [case.values["algorithm"]["global_step"] for case in mine]

    def chosen(seconds, finals):
        [best] = asynchronous_phones.best(Found(mine, seconds, finals)).values()
        return best["algorithm"]["global_step"]

    never = [np.inf] * 5
    assert chosen([9.0, 3.0, 5.0, *never[:2]], [0.1, 0.2, 0.9, 0.9, 0.9]) == steps[1]
    assert chosen([9.0, 9.0, 5.0, *never[:2]], [0.1, 0.2, 0.9, 0.9, 0.9]) != steps[1]
    assert chosen(never, [0.1, 0.2, 0.3, 0.8, 0.4]) == steps[3]


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_a_contest_is_played_told_and_drawn(tmp_path):
    chosen = {}
    for case in plan(asynchronous_phones.FILE).cases:
        way = asynchronous_phones.WAYS[str(asynchronous_phones.setting_text(case.values["policy"]))]
        chosen[case.values["algorithm"]["name"], way] = case.values
    made = {}
    for method in asynchronous_phones.METHODS:
        study = asynchronous_phones.contest(chosen, method)
        study["grid"] = {"seed": "1..2"}
        study["compare"]["targets"] = {"accuracy": [0.85, 0.9]}
        made[method] = desim.study(study, tmp_path / method, overrides=BRIEF, workers=0)
        assert (made[method].runs["status"] == "done").all()
        assert set(made[method].comparisons["against"]) == {"waits for all"}
    assert chosen["fed-plt", "each reply"]["algorithm"]["rho"] == 1000
    asynchronous_phones.draw(made, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 5000
    rows = [row for name, one in made.items() for row in numbers.rows(one, method=name)]
    numbers_of = {row["measure"] for row in rows}
    assert {"time to accuracy 0.85", "bytes to accuracy 0.9", "final accuracy"} <= numbers_of


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_deadlines_are_played_told_and_drawn(tmp_path):
    study, _ = read_study(deadlines.FILE)
    late = [{"deadline": "1 s", "late": late} for late in deadlines.LATE]
    some = {"algorithm": study.grid["algorithm"], "policy": ["all", *late], "seed": "1..2"}
    compare = {"targets": {"accuracy": 0.85}, "against": {"policy": "all"}, "epsilon": False}
    small = {"name": "x", "base": str(study.base), "grid": some, "compare": compare}
    made = desim.study({**small, "list": list(study.list)}, overrides=BRIEF, workers=0)
    assert (made.runs["status"] == "done").all()
    assert len(made.plan.cases) == 3 * 2 * 3
    deadlines.draw(made, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 5000


@pytest.mark.slow
@pytest.mark.usefixtures("data")
def test_invitations_are_tuned_played_priced_and_drawn(tmp_path, monkeypatch):
    shared, cases = oort_on_phones.written()
    assert [case["label"] for case in cases][1] == oort_on_phones.BASELINE
    few = [case for case in cases if case["label"] not in ("TiFL by losses", "fastest")]
    shared["set"] = {**shared["set"], **BRIEF, "problem.agents": 20}
    monkeypatch.setattr(oort_on_phones, "written", lambda: (shared, copy.deepcopy(few)))
    monkeypatch.setattr(oort_on_phones, "SEARCHED", "1001..1002")
    monkeypatch.setattr(oort_on_phones, "SEEDS", {"seed": "1..2"})
    monkeypatch.setattr(oort_on_phones, "SIGMAS", (2.0,))
    tried = {"TiFL": ("tiers", (2,)), "Oort": ("pace", ("250 ms", "1 s"))}
    monkeypatch.setattr(
        oort_on_phones, "TRIED", {**tried, "power of choice": ("candidates", (12,))}
    )
    made = oort_on_phones.contest(tmp_path, 0)
    assert (made.runs["status"] == "done").all()
    found = {case.name: oort_on_phones.prices(made, case.number) for case in made.plan.cases}
    assert found["TiFL"].tolist() == [0.0, 0.0]
    assert np.isinf(found["Oort"]).all()
    spent, most = found["Oort, sigma 2"]
    assert 0.0 < spent < most < np.inf
    assert oort_on_phones.markdown(made).count("\n") == 1 + len(few) + 1
    oort_on_phones.draw(made, tmp_path / "x.svg")
    assert (tmp_path / "x.svg").stat().st_size > 5000


def test_results_go_where_they_are_asked_for(tmp_path, monkeypatch):
    usual = numbers.options("x", [], 5)
    assert (usual.sets, usual.out, usual.official) == (5, numbers.RESULTS, True)
    few = numbers.options("x", ["--sets", "2"], 5)
    assert (few.sets, few.out, few.official) == (2, None, False)
    asked = numbers.options("x", ["--runs", "a", "--out", str(tmp_path), "--workers", "3"])
    assert asked == (0, 3, Path("a"), tmp_path, False)
    numbers.publish(asked, "y", [{"a": 1}], {"part": "words"}, lambda path: path.touch())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["y.csv", "y.svg"]
    monkeypatch.delenv("DESIM_DATA", raising=False)
    with pytest.raises(SystemExit):
        numbers.options("needs DESIM_DATA", [])


def test_numbers_as_pages_write_them():
    assert numbers.text(Interval(5.0, 4.0, 6.0)) == "5 (4 to 6)"
    assert numbers.text(Interval(5.0, 4.0, np.inf)) == "5 (4 to never)"
    assert numbers.text(Interval(np.inf, np.inf, np.inf)) == "never"
    table = pd.DataFrame({"case": [0, 0], "measure": ["a", "b"], "unit": ["B", "s"],
                          "value": [2e6, 3.0], "low": [1e6, 2.0], "high": [3e6, 4.0]})  # fmt: skip
    assert numbers.estimate(table, 0, "a") == Interval(2.0, 1.0, 3.0)
    assert numbers.estimate(table, 0, "b") == Interval(3.0, 2.0, 4.0)
