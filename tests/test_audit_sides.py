"""Both sides of a pair are what runs of their own data would be: noise, stopping, scaling."""

import dataclasses

import numpy as np
import pytest
from cases import NETWORK, star
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, StandardScaler

from desim.errors import InputError
from desim.experiments.audit.neighbours import altered, candidates_for, neighbours, replaced
from desim.experiments.audit.of_method import Stage, play_game
from desim.experiments.audit.pairs import unobserved
from desim.experiments.audit.verdict import AuditedPlay, judge, rigorous
from desim.log.parquet import Tables
from desim.problem.problem import Problem
from desim.scenario.build import build
from desim.scenario.load import load
from desim.scenario.noise_target import completed

LONG = np.array([10.0, 0.0, 0.0]), 1.0
TARGET = {"target": {"epsilon": 1.0, "delta": 1e-5}}


@pytest.fixture
def private_chi(monkeypatch):
    """Noisy training contracts by the data's own eigenvalues, whatever else is known of them."""
    monkeypatch.setattr(
        Problem, "public_moduli", property(lambda problem: problem.moduli), raising=False
    )


def short_rows(folder, privacy, **changes):
    """Two agents with 20 rows of norm 0.1."""
    rng = np.random.default_rng(3)
    A = rng.normal(size=(2, 20, 3))
    A *= 0.1 / np.linalg.norm(A, axis=2, keepdims=True)
    np.savez(folder / "rows.npz", A=A, b=np.where(rng.random((2, 20)) < 0.5, -1.0, 1.0))
    local = {
        "solver": "noisy",
        "epochs": 50,
        "step": 1.5,
        "tau": 0.0 if "target" in privacy else 0.6,
    }
    scenario = {
        "seed": 1,
        "engine": "cohort",
        "problem": {
            "data": {"source": "npz", "file": str(folder / "rows.npz")},
            "loss": "logistic",
            "regularizer": {"l2": 0.2},
            "clip": 0.5,
        },
        "algorithm": {"name": "fed-plt", "rho": 2.0, "local": local},
        "network": NETWORK,
        "privacy": privacy,
        "observe": {"metrics": []},
        "stop": {"rounds": 10},
    }
    return load({**scenario, **changes})


def releases(simulation):
    """The ledger of one play of a simulation."""
    tables = Tables()
    unobserved(simulation).play(tables)
    return tables.read("releases"), tables.read("events")


def verdict(pair, runs=60):
    """What so many runs a side say about the rigorous claim of a run on the first data."""
    scores = play_game(Stage(pair.first, pair.second, pair.agent), runs)
    claim = rigorous(
        AuditedPlay(pair.first, *releases(pair.first), pair.agent, "eavesdropper", 1e-5)
    )
    exact = scores.exact and scores.as_declared
    return judge(claim, scores.old, scores.new, exact=exact, ratio=scores.ratio)


@pytest.mark.parametrize("rows", [40, 2])
def test_what_is_known_of_the_rows_that_stay_is_that_of_all_anew(rows):
    data = {"source": "synthetic", "kind": "classification", "rows": rows, "dim": 5}
    problem = build(load(star(problem={"agents": 3, "data": data}))).problem
    before, record = problem.spectra, (np.full(5, 9.0), 1.0)
    known = replaced(problem, 1, 1, record)
    fresh = dataclasses.replace(problem, A=known.A, b=known.b)
    assert "spectra" in known.__dict__
    assert "spectra" not in fresh.__dict__
    for one, two in zip(known.moduli, fresh.moduli, strict=True):
        assert np.array_equal(one, two)
    assert (before != known.spectra)[:, 1].tolist() == [False, True, False]


@pytest.mark.slow
def test_noise_that_a_target_takes_from_private_rows_is_refuted(tmp_path, private_chi):
    """One row of norm 10 calls for six times the noise: a look at the models tells."""
    simulation = build(short_rows(tmp_path, TARGET))
    pair = neighbours(simulation, 0, 0, LONG)
    scales = [one.method.local.terms.scale[0] for one in (pair.first, pair.second)]
    assert scales == pytest.approx([0.978, 6.256], abs=1e-3)
    found = verdict(pair)
    assert found.claim.epsilon == pytest.approx(1.0, abs=1e-9)
    assert found.verdict == "refuted"
    moduli = simulation.problem.moduli
    same = altered(simulation, 0, 0, LONG, moduli)
    assert same.method.local.terms.scale[0] == scales[0]
    pinned = type(pair)(pair.first, same, 0, 0)
    assert verdict(pinned).verdict == "not refuted"


@pytest.mark.slow
def test_a_budget_that_private_rows_use_up_is_refuted(tmp_path, private_chi):
    """43 messages with short rows and one with a long one: who counts them knows."""
    pair = neighbours(build(short_rows(tmp_path, {"budget": 2.1}, stop={"rounds": 60})), 0, 0, LONG)
    counts = [int((releases(one)[0].agent == 0).sum()) for one in (pair.first, pair.second)]
    assert counts == [43, 1]
    found = verdict(pair, 30)
    assert found.claim.epsilon < 2.1
    assert found.verdict == "refuted"
    assert {test.method for test in found.tests if test.low == np.inf} >= {"infinite ratio"}


def test_stored_noise_is_calibrated_anew(tmp_path, private_chi):
    """A resolved scenario holds its own noise, which for other rows would be refused."""
    scenario = short_rows(tmp_path, TARGET)
    simulation = build(scenario)
    stored = build(completed(scenario, simulation.method.noise))
    assert stored.method.noise == simulation.method.noise
    fresh, again = (neighbours(one, 0, 0, LONG).second for one in (simulation, stored))
    assert again.method.noise.given == pytest.approx(fresh.method.noise.given, rel=1e-12)
    assert again.method.noise.given != stored.method.noise.given


def unit_ball(rows):
    """All rows divided by the longest."""
    return rows / np.linalg.norm(rows, axis=1).max()


SCALINGS = {
    "standard": lambda rows: StandardScaler().fit_transform(rows),
    "minmax": lambda rows: MinMaxScaler().fit_transform(rows),
    "max": lambda rows: MaxAbsScaler().fit_transform(rows),
    "unit-ball": unit_ball,
}


def table(scale, **data):
    """Agents' rows of a small table, scaled."""
    source = {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 5, **data}
    return build(load(star(problem={"data": {**source, "scale": scale}}, observe={"metrics": []})))


def check_scaling(scale, made):
    """Features of the second problem against scikit-learn's on rows of which one is replaced."""
    first, row = table(scale), 19
    raw = table("none").problem.A[:, 1:].copy()  # behind the intercept
    np.testing.assert_allclose(first.problem.A[:, 1:], SCALINGS[scale](raw), atol=1e-12)
    record = -3.0 * first.problem.A[row], -first.problem.b[row]
    shift = {"standard": raw.mean(axis=0), "minmax": raw.min(axis=0)}.get(scale, 0.0)
    width = {
        "standard": raw.std(axis=0),
        "minmax": np.ptp(raw, axis=0),
        "max": np.abs(raw).max(axis=0),
        "unit-ball": np.linalg.norm(raw, axis=1).max(),
    }[scale]
    raw[row] = shift + record[0][1:] * width
    second = made(first, 2, 3, record).problem
    np.testing.assert_allclose(second.A[:, 1:], SCALINGS[scale](raw), atol=1e-12)
    assert np.array_equal(second.A[:, 0], first.problem.A[:, 0])
    assert np.flatnonzero(second.b != first.problem.b).tolist() == [row]


@pytest.mark.parametrize("scale", SCALINGS)
def test_all_rows_are_scaled_anew_with_the_replaced_one(scale):
    check_scaling(scale, altered)

    class Plain:
        def __init__(self, *change):
            problem = dataclasses.replace(change[0].problem, row_norm=np.inf)
            self.problem = replaced(problem, *change[1:])

    with pytest.raises(AssertionError):
        check_scaling(scale, Plain)


def test_a_row_that_was_replaced_stays_so_when_another_one_is():
    once = altered(table("standard"), 0, 1, (np.full(5, 3.0), 1.0))
    both = altered(once, 4, 2, (np.full(5, -2.0), -1.0))
    other = altered(altered(table("standard"), 4, 2, (np.zeros(5), 1.0)), 0, 1, (np.ones(5), 1.0))
    assert len(both.origin.raw) == len(other.origin.raw) == 2
    assert np.array_equal(both.origin.raw[1], once.origin.raw[1])


def test_records_keep_to_the_bound_of_the_rows():
    problem = table("none").problem
    problem.__dict__["row_norm"] = 50.0
    with pytest.raises(InputError, match=r"record: norm: found 60.0; allowed: at most 50"):
        replaced(problem, 0, 0, (np.array([60.0, 0, 0, 0, 0]), 1.0))
    replaced(problem, 0, 0, (np.array([50.0, 0, 0, 0, 0]), 1.0))
    models = np.random.default_rng(0).normal(size=(4, 5))
    for most in (0.5, 2.0, np.inf):
        pairs = candidates_for(problem, models, most)
        norms = np.array([[np.linalg.norm(record[0]) for record in pair] for pair in pairs])
        assert (norms <= most * (1 + 1e-12)).all()
        assert np.min(norms[:, 0] / norms[:, 1]) == pytest.approx(0.01)
        assert len(candidates_for(problem, models, most, curved=False)) == len(pairs) - 2
