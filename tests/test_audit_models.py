"""The audit of a user's network: half the noise is refuted, the declared noise is not."""

from pathlib import Path

import numpy as np
import pytest

from desim.errors import InputError
from desim.experiments.audit.neighbours import altered, canary_records
from desim.experiments.audit.of_method import audit
from desim.experiments.audit.of_one_run import audit_one_run
from desim.numerics.jit import one_thread
from desim.problem.losses import model_loss
from desim.problem.models.user_model import Rows
from desim.scenario.build import build
from desim.scenario.load import load
from desim.scenario.problem_read import read_problem

pytest.importorskip("torch", reason="torch is not installed")

PLUGIN = Path(__file__).parent / "plugins" / "networks.py"
CLIP, MU, RUNS = 1.0, 1.5, 140  # half the noise is refuted in 97 of 100 audits


@pytest.fixture(autouse=True)
def alone():
    """One thread: in small networks two of them wait for each other."""
    with one_thread():
        yield


def private(train=30, mu=MU, hidden=8, scale="none"):
    """DSGD of a network of two agents, full clipped gradients with noise: one round is mu-GDP."""
    sigma = 2.0 * CLIP / (train // 2) / mu
    return {
        "name": "private", "seed": 2, "plugins": [str(PLUGIN)],
        "problem": {
            "agents": 2, "model": {"name": "layers", "hidden": hidden}, "clip": CLIP,
            "data": {"source": "sklearn", "name": "digits", "scale": scale, "train": train},
        },
        "algorithm": {"name": "dsgd", "alpha": 0.2, "weights": "metropolis"},
        "network": {"topology": "path", "link": {"latency": "10 ms"}},
        "privacy": {"noise": {"sigma": sigma}},
        "observe": {"metrics": []}, "stop": {"rounds": 1},
    }  # fmt: skip


def test_a_model_is_looked_at_once_and_all_rows_that_are_tried(monkeypatch):
    """Scales are of all rows: the problem of each record is read anew, and its model is not."""
    looks, looked = [], model_loss.first_look
    monkeypatch.setattr(model_loss, "first_look", lambda *of: looks.append(of) or looked(*of))
    scenario = load(private(scale="max"))
    simulation = build(scenario)
    problem, record = simulation.problem, 3.0 * np.array(simulation.problem.A[0])
    other = altered(simulation, 0, 0, (record, 1)).problem
    assert len(looks) == 1
    assert other.loss is problem.loss
    anew = read_problem(scenario, 2, lambda rows, order: 2.0 * rows)[0]  # not known to be the same
    assert len(looks) == 2
    assert anew.loss.model.first_sha256 == problem.loss.model.first_sha256
    read_problem(scenario, 2, lambda rows, order: 2.0 * rows, anew.loss)
    assert len(looks) == 2
    wide = build(load(private(hidden=9, scale="max"))).problem.loss
    read_problem(scenario, 2, None, wide)  # another model than the scenario's
    assert len(looks) == 4
    endless = Rows(np.full_like(problem.A[:8], np.nan), problem.b[:8], np.uint64(2))
    with pytest.raises(InputError, match="found numbers that are not finite at the start"):
        problem.loss.on_others(endless, CLIP, True)


def test_canaries_are_those_whose_gradients_go_together_or_one_by_one(monkeypatch):
    problem = build(load(private())).problem
    found = canary_records(problem, slice(0, 15), 4)
    alone = type(problem.loss.model).gradients

    def each(model, x, rows, clip):
        parts = [slice(r, r + 1) for r in range(len(x))]
        some = [Rows(rows.inputs[r], rows.labels[r], rows.key[r]) for r in parts]
        return np.concatenate(
            [alone(model, x[r], one, clip) for r, one in zip(parts, some, strict=True)]
        )

    monkeypatch.setattr(type(problem.loss.model), "gradients", each)
    for one, two in zip(found, canary_records(problem, slice(0, 15), 4), strict=True):
        assert np.array_equal(one, two)


@pytest.mark.slow
def test_the_declared_noise_is_not_refuted():
    found = audit(private(), runs=40, claims=["rigorous"])
    assert found.scores.exact
    assert found.scores.noise == pytest.approx(1.0, abs=0.02)  # 5 deviations
    assert found.findings[0].claim.mu == pytest.approx(MU)
    assert found.findings[0].verdict == "not refuted"


@pytest.mark.slow
def test_half_the_noise_is_refuted(drawn):
    drawn(0.5)
    found = audit(private(), runs=RUNS, claims=["rigorous"])
    assert found.findings[0].verdict == "refuted"


@pytest.mark.slow
def test_one_run_tells_them_apart(drawn):
    """Of 50 canaries of one agent most coins are guessed where there is hardly any noise.

    At mu 0.5 two of the less sure guesses may be wrong and the claim still falls: none was in ten
    plays of other seeds.
    """
    bare, some = private(100, 200.0, 16, "max"), private(100, 0.5, 16, "max")
    found = audit_one_run(bare, claims=[1.0], agent=0)
    assert ((found.scores.scores > 0.0) == found.scores.coins).mean() > 0.86  # 5 deviations of luck
    loud = audit_one_run(some, claims=["rigorous"], agent=0)
    assert loud.findings[0].verdict == "not refuted"
    drawn(0.05)
    quiet = audit_one_run(some, claims=["rigorous"], agent=0)
    assert quiet.findings[0].verdict == "refuted"
    assert np.isfinite(quiet.scores.scores).all()
