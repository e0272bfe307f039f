"""Never, infinite and diverged are three things, in `desim compare` and in a study's tables."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from test_compare import BASE

import desim
from desim.experiments.studies import study as study_module
from desim.experiments.studies import words
from desim.experiments.studies.trials import Asked
from desim.problem.targets import first_met
from desim.runs.directory import UNLISTED
from desim.runs.run import Run

INF = np.inf
ASKED = Asked((("error", 0.1),))


@pytest.fixture(scope="module")
def unbounded():
    """Three seeds with noise, but without `clip`: nothing bounds what a row changes."""
    problem = {key: value for key, value in BASE["problem"].items() if key != "clip"}
    return [desim.run({**BASE, "problem": problem, "seed": seed}) for seed in (1, 2, 3)]


def reached(runs):
    """A loss that all runs come to, after their start."""
    curves = [run.curve("loss")["value"] for run in runs]
    value = max(curve.min() for curve in curves)
    assert all(value < curve.iloc[0] for curve in curves)
    return value


def test_a_target_met_with_an_infinite_epsilon_is_met(unbounded):
    made = desim.compare(unbounded, {"loss": [reached(unbounded), -1.0]})
    epsilon = made.frame[made.frame["measure"].str.startswith("epsilon to")].set_index("measure")
    assert epsilon["value"].tolist() == [INF, INF]
    assert epsilon["never"].tolist() == [0, 3]
    assert made.frame.set_index("measure").loc["epsilon", "never"] == 0
    met, missed, end = str(made).split("\n\n")
    assert "infinite" in met
    assert "never" not in met
    assert missed.splitlines()[2].count("never") == 4
    assert "infinite" in end
    for form in ("markdown", "latex"):
        assert "never" not in made.written(form).split("\n\n")[0]


def test_what_was_released_without_noise_says_so():
    bare = {key: part for key, part in BASE.items() if key != "privacy"}
    bare |= {"algorithm": {"name": "fed-plt", "rho": 1}}
    run = desim.run(bare)
    made = desim.compare([run], {"loss": reached([run])}, delta=1e-6)
    assert str(made).count("infinite (no noise)") == 2  # at the target and at the end
    assert "never" not in str(made)


def table(**columns):
    """Runs of two cases, three seeds each, and the cases."""
    rows = pd.DataFrame({"case": [0] * 3 + [1] * 3, "seed": [1, 2, 3] * 2, "status": "done"})
    made = [SimpleNamespace(number=number, label=label) for number, label in enumerate("ab")]
    return made, rows.assign(**columns)


def summed(module, known, asked=ASKED):
    made, rows = table(**known)
    summary = module.summary_table(made, rows, asked, 0.95)
    pairs = module.comparisons_table([(made[1], made[0])], rows, asked, 0.95)
    return summary, pairs


def told(module, known, asked=ASKED, reasons=("60 rounds",) * 6):
    """Text of each table, by its title."""
    summary, pairs = summed(module, known, asked)
    runs = pd.DataFrame({"reason": reasons})
    study = SimpleNamespace(
        runs=runs, summary=summary, comparisons=pairs, directory=None, written={}
    )
    return {one.title: one.text() for one in words.shown(study)}


MET = {
    "time to error 0.1": [1.0, 2.0, 3.0, INF, INF, 4.0],
    "time": [9.0] * 6,
    "epsilon to error 0.1": [INF] * 6,
    "epsilon": [INF] * 6,
}


def check_infinite(module):
    summary, pairs = summed(module, MET)
    summary = summary.set_index(["case", "measure"])
    assert summary.loc[(0, "epsilon to error 0.1"), "never"] == 0
    assert summary.loc[(1, "epsilon to error 0.1"), "never"] == 2
    assert summary.loc[(1, "time to error 0.1"), "never"] == 2
    assert (summary.xs("epsilon", level="measure")["never"] == 0).all()
    pairs = pairs.set_index("measure")
    assert pairs.loc["time to error 0.1", ["pairs", "counted", "neither"]].tolist() == [3, 3, 0]
    assert pairs.loc["epsilon to error 0.1", ["pairs", "counted", "neither"]].tolist() == [3, 0, 0]
    lines = told(module, MET)["epsilon to error 0.1"].splitlines()
    assert lines[2].split() == ["a", "infinite", "3", "0", "0"]
    assert lines[3].split()[:5] == ["b", "never", "3", "0", "2"]
    assert "both infinite" in lines[3]


def test_a_study_tells_an_infinite_epsilon_from_never():
    check_infinite(study_module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("int(np.isinf(when).sum())", "int(np.isinf(values).sum())"),
        ('"counted": found.estimate.n', '"counted": len(pairs)'),
        ("np.isinf(_columns(known, until_when))", "np.isinf(_columns(known, until_when)) | True"),
    ],
)
def test_a_wrong_count_is_noticed(right, wrong):
    with pytest.raises((AssertionError, AttributeError)):
        check_infinite(mutant(study_module, right, wrong))


def test_a_ratio_says_how_many_pairs_it_stands_on():
    few = {"time to error 0.1": [1.0, INF, INF, 2.0, INF, INF], "time": [9.0] * 6}
    line = told(study_module, few)["time to error 0.1"].splitlines()[3]
    assert "2 (1 of 3 pairs)" in line
    none = {"time to error 0.1": [INF] * 6, "time": [9.0] * 6}
    assert "neither met it" in told(study_module, none)["time to error 0.1"]


def test_means_name_the_runs_that_diverged():
    ends = {"final error": [1.0, 2.0, INF, INF, INF, INF]}
    text = told(study_module, ends, Asked())["final error"]
    assert text.splitlines()[1].split()[-1] != "never"
    assert "diverged" in text.splitlines()[1]
    assert "1.5 (1 of 3 diverged)" in text
    assert text.splitlines()[3].split()[1] == "diverged"
    summary, _ = summed(study_module, ends, Asked())
    assert summary["diverged"].tolist() == [1, 3]
    assert summary["never"].tolist() == [0, 0]


def test_a_study_names_the_runs_that_cannot_be_checked():
    reasons = [f"60 rounds; {UNLISTED}"] + ["60 rounds"] * 5
    texts = told(study_module, MET, reasons=reasons)
    assert f"epsilon of 1 of 6 runs: {UNLISTED}" in texts["epsilon to error 0.1"]
    assert UNLISTED not in texts["time to error 0.1"]
    assert UNLISTED not in told(study_module, MET)["epsilon to error 0.1"]
    assert "in the terms of each scenario's section privacy" in texts["epsilon to error 0.1"]


def test_runs_that_died_stand_behind_a_median():
    """Of six runs of a case three died: the median is of six, and has an interval."""
    when = [INF, INF, INF, 1.0, 2.0, 3.0]
    rows = pd.DataFrame({"case": 0, "seed": range(6), "status": ["failed"] * 3 + ["done"] * 3,
                         "time to error 0.1": when, "time": 9.0})  # fmt: skip
    case = SimpleNamespace(number=0, label="a")
    summary = study_module.summary_table([case], rows, ASKED, 0.95)
    study = SimpleNamespace(runs=rows, summary=summary, comparisons=pd.DataFrame())
    [text] = [one.text() for one in words.shown(study)]
    assert text.splitlines()[2].split() == "a never 1 s to never 3 3 3".split()
    assert "needs 6 seeds" not in text


def test_few_seeds_have_no_interval_and_the_table_says_why():
    text = told(study_module, MET)["time to error 0.1"]
    assert " to " not in text.splitlines()[2]
    assert "the 95 % interval of a median needs 6 seeds; 3 give at most 75 %" in text
    assert "sign test" in text


@pytest.mark.parametrize(
    ("measure", "value", "never", "seeds", "bare", "told"),
    [
        ("time to error 0.1", INF, 3, 3, False, "never"),
        ("epsilon to error 0.1", INF, 2, 3, True, "never"),
        ("epsilon to error 0.1", INF, 1, 3, True, "infinite (no noise)"),
        ("epsilon to error 0.1", INF, 0, 3, False, "infinite"),
        ("epsilon", INF, 0, 1, True, "infinite (no noise)"),
        ("epsilon to error 0.1", 2.5, 0, 1, False, "2.5"),
    ],
)
def test_an_estimate_in_words(measure, value, never, seeds, bare, told):
    row = SimpleNamespace(measure=measure, unit="", value=value, never=never, diverged=0)
    assert words.estimate(row, seeds, bare) == told


VALUES = np.array([5.0, 1.0, 3.0, 0.5, 0.4])


def test_a_target_may_have_to_be_met_for_good():
    assert first_met("error", VALUES, 1.0) == 1
    assert first_met("error", VALUES, 1.0, stays=True) == 3
    assert first_met("error", VALUES, 5.0, stays=True) == 0
    assert first_met("error", VALUES, 0.1, stays=True) == -1
    assert first_met("error", np.append(VALUES, np.nan), 1.0, stays=True) == -1
    assert first_met("accuracy", -VALUES, -1.0, stays=True) == 3


def test_staying_is_asked_for_in_runs_comparisons_and_studies(unbounded, tmp_path):
    run = unbounded[0]
    curve = run.curve("error")
    worst = float(curve["value"].iloc[1:-1].max())
    row = curve[curve["value"] > np.nextafter(worst, 0.0)].index[-1]
    assert isinstance(run, Run)
    target = float(np.nextafter(worst, 0.0))
    later = curve["time"].iloc[row + 1] if row + 1 < len(curve) else INF
    assert run.time_to("error", target, stays=True) == later
    made = desim.compare([run], {"error": target}, stays=True)
    name = f"time to error {target:g} for good"
    assert made.frame.set_index("measure").loc[name, "value"] == later
    assert str(made).startswith(f"until error {target:g} for good")
    asked = {"targets": {"error": target}, "stays": True}
    study = desim.study({"base": {**BASE, "seed": 1}, "compare": asked}, workers=0)
    assert name in study.summary["measure"].tolist()
