"""The figure of DP-FTRL: what is measured of a run, paired differences, verdicts on them."""

import numpy as np
import pytest
from mutant import mutant

import desim
from analysis.reproductions import dp_ftrl_epsilon as figure
from analysis.reproductions import page
from analysis.reproductions.monte_carlo import SCENARIOS, simulations


@pytest.mark.parametrize("method", figure.METHODS)
def test_what_is_learnt_is_what_a_run_says(method):
    """All spend the same epsilon; noise that is not amplified is larger."""
    case = figure.case(40, method, 8.0, 1.0)
    end, late, multiplier = figure.learnt(next(simulations(case, [1])))
    run = desim.run(SCENARIOS / "dp-ftrl.yaml", overrides=case.overrides)
    values = run.metrics["value"][run.metrics["agent"] < 0].to_numpy()
    assert (end, late) == (values[-1], np.mean(values[-16:]))
    account = run.account()
    assert 7.7 < account.worst <= 8.0 * (1.0 + 1e-6)
    assert account.unit == "agent"
    assert (multiplier < 1.0) == (method == figure.AMPLIFIED)


def check_row(module):
    """Differences are those of the same data set: a common part of both has no error."""
    common, rival = np.random.default_rng(0).normal(size=(2, 8))
    ours, theirs = (np.column_stack([x, 2.0 * x, 0.0 * x + 3.0]) for x in (common + 0.5, common))
    theirs[:, 1] += rival
    found = {(8, figure.TREES, 2.0): ours, (8, figure.PLAIN, 2.0): theirs}
    row = module.row_of(found, (8, figure.PLAIN, 2.0), 0.3)
    assert row["end_above"] == pytest.approx(0.5)
    assert row["end_above_se"] == pytest.approx(0.0, abs=1e-12)
    assert row["late_above"] == pytest.approx(1.0 - rival.mean())
    assert row["late_above_se"] == pytest.approx(rival.std(ddof=1) / np.sqrt(8.0))
    assert (row["multiplier"], row["sets"], row["step"]) == (3.0, 8, 0.3)
    assert row["end_se"] == pytest.approx(common.std(ddof=1) / np.sqrt(8.0))
    assert row["end"] == pytest.approx(common.mean())
    assert row["late"] == pytest.approx(2.0 * common.mean() + rival.mean())


def test_differences_are_paired():
    check_row(figure)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("base[:, column] - own[:, column]", "own[:, column] - base[:, column]"),
        ("base[:, column] - own[:, column]", "base[::-1, column] - own[:, column]"),
        ('"multiplier": float(own[0, 2])', '"multiplier": float(own[0, 1])'),
        ("mean_and_error(own[:, column])", "mean_and_error(base[:, 0])"),
    ],
)
def test_a_wrong_row_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_row(mutant(figure, right, wrong))


def test_sentences_are_judged_by_their_numbers():
    rows = page.read(page.RESULTS / f"{figure.NAME}.csv")
    words = [(said, *place, end) for said, *place, _, end, _, _ in figure.claims(rows)]
    plain = [end for said, _, epsilon, end in words if "without" in said and float(epsilon) < 8.0]
    assert len(plain) == 4
    assert all(end.startswith("agrees") for end in plain)
    crossed = [end for said, invited, _, end in words if "amplified" in said and invited == "8"]
    assert all(end.startswith("agrees") for end in crossed)
    turned = [{**row, "end_above": -row["end_above"]} for row in rows]
    other = [end for said, _, epsilon, _, end, *_ in figure.claims(turned) if epsilon == "1"]
    assert sum(end.startswith("differs: the reverse") for end in other) == 5
