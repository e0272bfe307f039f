"""Expected times, success rates and distribution functions equal to cocopp's, from the same runs.

What cocopp made of them is stored; where it is installed, it is asked again.
"""

import json
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

from analysis.studies import coco
from desim.experiments.studies import answers
from desim.experiments.studies.trials import Trials
from desim.problem.targets import first_met

STORED = json.loads(coco.GOLDEN.read_text("utf-8"))
TARGETS = STORED["targets"]
UNMET = np.inf


def rows():
    """Every run as desim's measures say it, in microseconds."""
    for run in STORED["runs"]:
        spent, values = map(np.array, zip(*run["curve"], strict=True))
        place = [first_met("error", values, target) for target in TARGETS]
        until = [float(spent[one]) if one >= 0 else UNMET for one in place]
        named = {f"time to error {t:g}": one for t, one in zip(TARGETS, until, strict=True)}
        head = {name: run[name] for name in ("method", "problem", "seed")}
        yield {**head, "status": "done", "time": float(run["end"]), **named}


@pytest.fixture(scope="module")
def trials():
    return Trials(pd.DataFrame(rows()))


def cells(trials):
    """(cell, cocopp's numbers, place of the target) of each method, problem and target."""
    found = trials.cells("time")
    for told in STORED["cocopp"]:
        for k, target in enumerate(TARGETS):
            yield found[told["method"], told["problem"], f"error {target:g}"], told, k


def check_ert(module, trials):
    for cell, told, k in cells(trials):
        ert = module.expected(cell.spent, cell.met)
        assert ert == pytest.approx(told["ert"][k] or UNMET, rel=1e-12)
        assert ert == pytest.approx(told["sp"][k][0] or UNMET, rel=1e-12)


def test_runs_meet_targets_when_cocopp_says_so(trials):
    for cell, told, k in cells(trials):
        until = [int(n) if met else None for n, met in zip(cell.spent, cell.met, strict=True)]
        assert told["evals"][k] == until


def test_expected_times_and_rates_are_cocopp_s(trials):
    check_ert(answers, trials)
    frame = answers.ert(trials).set_index(["method", "problem", "target"])
    for told in STORED["cocopp"]:
        for k, target in enumerate(TARGETS):
            row = frame.loc[told["method"], told["problem"], f"error {target:g}"]
            assert row["value"] == pytest.approx(told["ert"][k], rel=1e-12)
            assert row["rate"] == told["rates"][k] == told["sp"][k][1]
            assert row["met"] == told["sp"][k][2]


@pytest.mark.parametrize(
    "wrong", ["float(spent[met].sum()) / successes", "float(spent[met].mean() / met.mean())"]
)
def test_a_time_without_the_runs_that_failed_is_not_cocopp_s(trials, wrong):
    twin = mutant(answers, "float(spent.sum()) / successes", wrong)
    with pytest.raises(AssertionError):
        check_ert(twin, trials)


def check_simulated(module, trials):
    for cell, told, k in cells(trials):
        found = module.restarted(cell.spent, cell.met, answers.draws(len(cell.spent)))
        assert coco.sparse(found) == told["simulated"][k]


def test_simulated_restarts_are_cocopp_s(trials):
    check_simulated(answers, trials)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("~met[..., first]", "np.zeros(len(first), bool)"),
        ("total + spent[..., again]", "total + spent[..., first]"),
    ],
)
def test_other_restarts_are_not(trials, right, wrong):
    with pytest.raises(AssertionError):
        check_simulated(mutant(answers, right, wrong), trials)


def test_distribution_functions_are_those_of_all_simulated_runs(trials):
    found = trials.cells("time")
    shares = answers.ecdf(trials)
    for method in trials.methods:
        own = [cell for (name, *_), cell in found.items() if name == method]
        runs = [answers.restarted(one.spent, one.met, answers.draws(10)) for one in own]
        every = np.sort(np.concatenate(runs))  # as cocopp's combined data
        rows = shares[shares["method"] == method]
        at, share = rows["value"].to_numpy(), rows["share"].to_numpy()
        whole = [(every <= one).mean() for one in at]
        np.testing.assert_allclose(share, whole, rtol=1e-12)


@pytest.mark.skipif(
    find_spec("cocopp") is None or find_spec("six") is None,
    reason="cocopp is not installed: pip install cocopp six",
)
def test_cocopp_still_says_what_is_stored():
    assert json.loads(json.dumps(coco.by_cocopp(STORED["runs"]))) == STORED["cocopp"]
