"""Figures 1 to 3 of zCDP-NFL: privacy as planned, speeds matched, verdicts read off the ratios."""

import csv
import math
from dataclasses import replace

import numpy as np
import pytest
from mutant import mutant
from naive.bounds import corollary

from analysis.reproductions import (
    page,
    zcdp_nfl_errors,
    zcdp_nfl_methods,
    zcdp_nfl_panels,
    zcdp_nfl_study,
    zcdp_nfl_tuning,
    zcdp_nfl_words,
)
from analysis.reproductions.monte_carlo import MonteCarlo, simulations
from analysis.reproductions.zcdp_nfl_errors import KEPT
from analysis.reproductions.zcdp_nfl_methods import PLANS, RIVALS, ROUNDS
from desim.interface.plots import save
from desim.numerics.jit import set_threads

FILE = "zcdp-nfl-ridge"
FIGURES = zcdp_nfl_panels.FIGURES
POINTS = {
    "zcdp-nfl": {"rho": 6.0, "eta": 1.0, "window": 40.0},
    "dp-nfl": {"rho": 6.0, "eta": 1.0},
    "p-admm": {"rho": 6.0, "window": 40.0},
    "zcdp-subgradient": {"last step": 0.01, "power": 0.5, "window": 40.0},
}


@pytest.fixture
def alone():
    set_threads(1)
    with MonteCarlo(processes=1) as here:
        yield here
    set_threads(None)


def check_budget(module):
    """The Corollary gives back the epsilon that the first round's phi was computed from."""
    for epsilon in (0.3, 10.0, 100.0):
        for tau in (0.95, 0.995):
            phi = module.first_phi(epsilon, tau)
            back = float(corollary(phi, tau, ROUNDS, module.DELTA))
            assert back == pytest.approx(epsilon, rel=1e-12)


def test_the_first_phi_spends_epsilon():
    check_budget(zcdp_nfl_methods)


def test_a_wrong_first_phi_is_noticed():
    with pytest.raises(AssertionError):
        check_budget(mutant(zcdp_nfl_methods, "total(1.0, tau, ROUNDS)", "total(1.0, tau, 199)"))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", RIVALS)
def test_every_method_spends_what_it_says(name):
    claimed, exact = zcdp_nfl_study.epsilons(RIVALS[name].case(FILE, POINTS[name], 10.0))
    assert claimed == pytest.approx(10.0, rel=1e-9)
    assert exact == pytest.approx(0.952 if name == "dp-nfl" else 8.555, abs=1e-3)


def test_the_error_is_the_papers(alone):
    made = next(simulations(RIVALS["zcdp-nfl"].case(FILE, POINTS["zcdp-nfl"], math.inf), [3]))
    curve = zcdp_nfl_errors.curve(made)
    problem, best = made.problem, zcdp_nfl_errors.minimiser(made.problem)
    normal = 2.0 / 50.0 * problem.A.T @ problem.A + 2.0 * np.eye(8)
    np.testing.assert_allclose(best, np.linalg.solve(normal, problem.A.T @ problem.b / 25.0))
    assert curve[0] == pytest.approx(50.0)
    assert curve[-1] < 1e-2
    noisy = next(simulations(RIVALS["zcdp-nfl"].case(FILE, POINTS["zcdp-nfl"], 10.0), [3]))
    *kept, sent = zcdp_nfl_errors.errors(noisy)
    assert len(kept) == len(KEPT)
    assert sent > kept[-1]


def test_speed_is_interpolated(monkeypatch):
    monkeypatch.setattr(zcdp_nfl_errors, "curve", lambda made: 50.0 * 0.8 ** np.arange(30.0))
    assert zcdp_nfl_errors.speed(None) == pytest.approx(math.log(0.1) / math.log(0.8))
    monkeypatch.setattr(zcdp_nfl_errors, "curve", lambda made: np.full(30, 50.0))
    assert zcdp_nfl_errors.speed(None) == math.inf


@pytest.mark.slow
@pytest.mark.parametrize("name", ["p-admm", "zcdp-subgradient"])
def test_initial_speeds_are_matched(alone, monkeypatch, name):
    monkeypatch.setattr(zcdp_nfl_tuning, "SEEDS", range(1001, 1002))
    leader, speed = POINTS["zcdp-nfl"], zcdp_nfl_errors.speed
    point, score = zcdp_nfl_tuning.matched(alone, FILE, name, leader)
    both = [(RIVALS["zcdp-nfl"], leader), (RIVALS[name], point)]
    cases = {one.label: one.case(FILE, where, math.inf) for one, where in both}
    mine, other = alone.values(cases, [1001], speed).values()
    assert other[0] == pytest.approx(mine[0], rel=0.1)
    assert abs(np.log(other[0] / mine[0])) == pytest.approx(score)
    assert point["window"] == leader["window"]


@pytest.mark.slow
def test_all_cases_on_one_build_are_those_built_apart(alone):
    cases = {
        (name, epsilon): rival.case(FILE, POINTS[name], epsilon)
        for name, rival in RIVALS.items()
        for epsilon in (10.0, 30.0)
    }
    joint = zcdp_nfl_errors.together(alone, cases, [3], zcdp_nfl_errors.errors)
    apart = alone.values(cases, [3], zcdp_nfl_errors.errors)
    for key in cases:
        np.testing.assert_array_equal(joint[key], apart[key])


@pytest.mark.slow
def test_what_is_found_is_kept(alone, monkeypatch, tmp_path):
    monkeypatch.setattr(zcdp_nfl_tuning, "SEEDS", range(1001, 1002))
    for name in ("FIRST", "AGAIN", "LINE"):
        monkeypatch.setattr(zcdp_nfl_tuning, name, (2, 1))
    plan = replace(PLANS["zcdp_nfl_fig3"], epsilons=(10.0, 30.0))
    found = zcdp_nfl_tuning.find(alone, plan)
    zcdp_nfl_tuning.write(tmp_path, {plan.file: found})
    known = zcdp_nfl_tuning.read(plan, tmp_path)
    assert len(known) == 2 * 4 * 2
    assert all(known[key] == point for key, (point, _) in found.items())
    assert known["paper", "p-admm", 30.0] == known["paper", "p-admm", 10.0]
    monkeypatch.setattr(zcdp_nfl_tuning, "SEEDS", range(1001, 1003))
    with pytest.raises(ValueError, match=r"data sets: found .1001.; allowed: .1001, 1002.; tune"):
        zcdp_nfl_tuning.read(plan, tmp_path)


@pytest.mark.parametrize("name", PLANS)
def test_the_results_are_those_of_the_kept_parameters(name):
    chosen = zcdp_nfl_tuning.read(PLANS[name])
    with (page.RESULTS / f"{name}.csv").open(encoding="utf-8") as file:
        played = {
            (row["way"], row["method"], float(row["epsilon"])): row["parameters"]
            for row in csv.DictReader(file)
        }
    told = {key: zcdp_nfl_study.named(point) for key, point in chosen.items()}
    assert played == told


@pytest.mark.slow
def test_a_small_study(alone, tmp_path):
    plan = replace(PLANS["zcdp_nfl_fig3"], epsilons=(10.0, 30.0))
    rows = zcdp_nfl_study.study(alone, 2, plan)
    assert len(rows) == 2 * 4 * (len(KEPT) + 1)
    text = FIGURES[2].markdown(rows)
    assert text.count("| zCDP-NFL slightly outperforms P-ADMM |") == 2
    assert "| 10 | 8.56 | 0.952 |" in text
    save(FIGURES[2].draw(rows), tmp_path / "a.png")
    shown = [row for row in rows if row["epsilon"] == 10.0 and row["method"] != "p-admm"]
    assert FIGURES[1].markdown(shown).count("| zCDP-NFL significantly") == 2
    save(FIGURES[0].draw(shown), tmp_path / "b.png")


@pytest.mark.parametrize(
    ("ratios", "least", "words"),
    [
        ([(2.5, 3.0), (2.1, 4.0)], 2.0, "holds at every ε (2.3 standard errors or more)"),
        (
            [(0.3, 0.4), (2.1, 4.0)],
            2.0,
            "holds at ε = 3 (2.3 standard errors); is reversed at ε = 1 (14.7 standard errors)",
        ),
        (
            [(1.3, 1.9), (0.9, 1.1)],
            2.0,
            "is weak at ε = 1 (4.8 standard errors); does not show at ε = 3 (0.1 standard errors)",
        ),
        ([(1.3, 1.9), (1.1, 1.2)], 1.0, "holds at every ε (4.8 standard errors or more)"),
        ([(1.3, 1.9)], 2.0, "is weak (4.8 standard errors)"),
    ],
)
def test_verdicts(ratios, least, words):
    rows = [
        {"epsilon": epsilon, "ratio_low": low, "ratio_high": high}
        for epsilon, (low, high) in zip((1.0, 3.0), ratios, strict=False)
    ]
    assert zcdp_nfl_words.where(rows, least) == words
