"""One run on canaries of whole scenarios: what the scores see, what is refuted and what refused."""

import gc
import json
import re
from functools import partial
from weakref import ref

import numpy as np
import pytest
from cases import LOSSY, graph, merged, star
from mutant import mutant

from desim.engine.world import Discard
from desim.errors import InputError
from desim.experiments.audit import of_one_run, one_run
from desim.experiments.audit.of_one_run import (
    Game,
    audit_one_run,
    canaries_of,
    fair_coins,
    likeness,
    planted,
    play_once,
)
from desim.experiments.audit.one_run import (
    RESOLUTION,
    chance_of_score,
    chosen_tiers,
    judge_one_run,
    right_guesses,
)
from desim.experiments.audit.pairs import Transcript, unobserved
from desim.interface.cli import main
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import mu_of
from desim.scenario.build import build
from desim.scenario.load import load, resolved_yaml


def one_round(rows, sigma, **data):
    """A scenario of one Gaussian release, with room for as many orthogonal canaries as rows."""
    return graph(
        problem={
            "agents": 2,
            "regularizer": "none",
            "data": {"source": "synthetic", "kind": "regression", "rows": rows, "dim": rows},
        },
        network={"topology": "ring"},
        privacy={"noise": {"kind": "gaussian", "sigma": sigma}},
        stop={"rounds": 1},
        observe={"metrics": []},
    )


SMALL = one_round(40, 0.05)
LAYERED = {
    "agents": 2,
    "data": {"source": "synthetic", "kind": "classification", "rows": 30, "dim": 4},
    "regularizer": "none",
    "clip": 1.0,
}


def test_canaries_are_opposite_and_planted_where_the_coins_say():
    problem = build(load(SMALL)).problem
    of = canaries_of(problem, 1, 30, seed=4)
    np.testing.assert_allclose(
        of.first @ of.first.T, np.eye(30) * (of.first[0] @ of.first[0]), atol=1e-8
    )
    assert np.linalg.norm(of.first[0]) >= problem.clip
    coins = fair_coins(30, seed=4)
    assert 5 < coins.sum() < 25
    own = planted(build(load(SMALL)), of, coins).problem
    place = int(problem.start[1])
    np.testing.assert_array_equal(own.b[place : place + 30] > 0.0, coins)
    np.testing.assert_array_equal(own.A[:place], problem.A[:place])
    np.testing.assert_array_equal(own.A[place + 30 :], problem.A[place + 30 :])


def test_coins_are_fair_and_independent_of_each_other():
    coins = np.array([fair_coins(100, seed) for seed in range(200)])
    assert abs(coins.mean() - 0.5) < 5.0 * 0.5 / np.sqrt(coins.size)
    pairs = (coins[:, ::2] == coins[:, 1::2]).mean()
    assert abs(pairs - 0.5) < 5.0 * 0.5 / np.sqrt(coins.size / 2)


def check_likeness(module):
    """The best linear guess, from the joint covariance of coins and what is shown."""
    effects, residual = keys.normals(1, Stream.USER, size=40).reshape(4, 10), np.arange(10.0)
    spread = np.linspace(0.5, 2.0, 10)
    covariance = 0.25 * effects.T @ effects + np.diag(spread**2)
    best = 0.25 * effects @ np.linalg.solve(covariance, residual)
    np.testing.assert_allclose(module.likeness(residual, effects, spread), best, rtol=1e-9)


def test_scores_are_the_best_linear_guess():
    check_likeness(of_one_run)
    assert likeness(np.ones(2), np.ones((1, 2)), np.array([1.0, np.inf])) == pytest.approx([0.2])


@pytest.mark.parametrize(
    ("right", "wrong"), [("4.0 * np.eye", "np.eye"), ("effects / spread", "effects")]
)
def test_wrong_scores_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_likeness(mutant(of_one_run, right, wrong))


def drowned(module):
    """Right guesses of 40 canaries in 5 plays, with noise that hides everything."""
    simulation = build(load(one_round(40, 1e6)))
    of = canaries_of(simulation.problem, 0, 40, seed=0)
    found = [module.play_once(module.Game(simulation, of), seed=seed) for seed in range(5)]
    return sum(int(((one.scores > 0.0) == one.coins).sum()) for one in found)


@pytest.mark.slow
def test_scores_know_nothing_but_what_the_run_shows():
    """200 guesses of fair coins: 5 standard deviations are 35."""
    assert abs(drowned(of_one_run) - 100) < 36
    spy = mutant(of_one_run, "likeness(residual, effects, spread)", "coins - 0.5")
    assert drowned(spy) == 200


@pytest.fixture
def in_short(monkeypatch):
    """Of a bound of mu only whether it is above the claim: tests/test_one_run.py holds bounds."""

    def above(tiers, score, parameter, level, claimed):
        value = (1.0 + RESOLUTION) * claimed
        return value if chance_of_score(tiers, score, parameter, value) <= level else 0.0

    monkeypatch.setattr(one_run, "parameter_low", above)


@pytest.mark.parametrize("scenario", [SMALL, star(engine="cohort"), star(engine="compiled")])
def test_plays_leave_nothing_to_the_collector(scenario):
    """An audit makes hundreds of them, each with its copy of the data and all that was shown."""
    gc.disable()
    try:
        for report, held in ((None, False), (print, True)):  # a world that tells somebody of itself
            simulation = unobserved(build(load(scenario)))
            shown = Transcript()
            simulation.play(Discard(), report, listeners=[shown])
            left = ref(shown)
            del shown
            assert (left() is not None) == held
    finally:
        gc.enable()


WIDE = partial(audit_one_run, one_round(300, 0.0046), claims=["rigorous"], level=0.05, agent=0)


@pytest.mark.slow
@pytest.mark.usefixtures("in_short")
def test_half_the_declared_noise_is_refuted_in_one_run(drawn):
    drawn(0.5)
    found = WIDE()
    assert found.played["canaries"] == 300
    assert found.findings[0].claim.mu == pytest.approx(1.0, abs=0.05)
    assert found.findings[0].verdict == "refuted"


@pytest.mark.slow
@pytest.mark.usefixtures("in_short")
def test_the_declared_noise_is_not_refuted():
    found = WIDE()
    assert found.findings[0].verdict == "not refuted"
    share = ((found.scores.scores > 0.0) == found.scores.coins).mean()
    assert share == pytest.approx(0.691, abs=5.0 * 0.5 / np.sqrt(300))


@pytest.mark.slow
@pytest.mark.usefixtures("in_short")
def test_a_right_mechanism_is_refuted_in_no_more_audits_than_the_level():
    """20 audits, of which the one with most right guesses says most: it does not refute either.

    Levels of 5 % would allow one of them; the worst mechanism is far from this one.
    """
    simulation = build(load(SMALL))
    of = canaries_of(simulation.problem, 0, 40, seed=0)
    found = [play_once(Game(simulation, of), seed=seed) for seed in range(20)]
    assert len({one.coins.tobytes() for one in found}) == 20
    claim = audit_one_run(SMALL, claims=["rigorous"], agent=0).findings[0].claim
    tiers = chosen_tiers(40, "mu", claim.mu)
    best = max(found, key=lambda one: tiers.score(right_guesses(one.scores, one.coins)))
    assert judge_one_run(claim, best.scores, best.coins, 0.05).verdict == "not refuted"


@pytest.mark.parametrize(
    "bare",
    [
        merged(SMALL, {"privacy": {"noise": {"sigma": 0.0}}}),
        star(
            problem={
                "data": {"source": "synthetic", "kind": "classification", "rows": 40, "dim": 40}
            },
            stop={"rounds": 3},
        ),
    ],
)
def test_without_noise_every_claim_but_infinity_falls(bare):
    found = audit_one_run(bare, claims=["rigorous", 1.0], agent=0)
    assert [one.verdict for one in found.findings] == ["not refuted", "refuted"]
    assert found.plain()["findings"][0]["claim"]["epsilon"] == "infinite"
    json.dumps(found.plain(), allow_nan=False)


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["softmax", {"mlp": {"classes": 2, "hidden": 4}}])
def test_layered_models_are_audited(loss):
    layered = star(
        problem={**LAYERED, "loss": loss},
        algorithm={
            "name": "fedavg",
            "local": {"epochs": 2, "step": 0.1, "solver": "noisy", "tau": 0.5},
        },
        stop={"rounds": 2},
        observe={"metrics": []},
    )
    found = audit_one_run(layered, claims=["rigorous", 0.001], view="coordinator")
    assert found.findings[0].verdict == "not refuted"
    assert np.ptp(found.scores.scores) > 0.0


@pytest.mark.slow
def test_views_that_miss_something_have_scores_of_their_own():
    drop = {"link": {"on_loss": "drop", "loss": "40 %"}}
    lossy = star(
        problem={
            "agents": 2,
            "data": {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 16},
            "loss": "squared",
            "clip": 1.0,
        },
        algorithm={
            "name": "fed-plt",
            "rho": 1.0,
            "local": {"solver": "noisy", "epochs": 3, "step": 0.1, "tau": 0.01},
        },
        network=merged(LOSSY, drop),
        policy={"deadline": "10 s"},
        stop={"rounds": 6},
        observe={"metrics": []},
    )
    for view in ("coordinator", "final-model"):
        found = audit_one_run(lossy, claims=["rigorous"], view=view)
        assert found.view == view
        assert np.ptp(found.scores.scores) > 0.0
        assert found.findings[0].verdict == "not refuted"


WRONG = [
    ({"canaries": 5}, "canaries: found 5; allowed: 10 to the rows"),
    ({"canaries": 41, "agent": 0}, "canaries: found 41; allowed: 10 to 40, the rows of agent 0"),
    (
        {"overrides": {"problem.data.rows": 6}},
        "agent 0 has 6 rows; allowed: an agent with 10 rows or more",
    ),
    ({"level": 0.7}, "level: found 0.7"),
    ({"seed": -1}, "seed: found -1"),
    ({"claims": ["papers"]}, "did you mean 'paper'?"),
    ({"view": "coordinator"}, "there is no coordinator"),
    ({"view": "neighbour:1", "agent": 1}, "whose data the adversary neighbour:1 knows"),
    ({"agent": 2}, "agent: found 2; allowed: 0 to 1"),
    ({"delta": 2.0}, "delta: found 2.0"),
    ({"overrides": {"stop.metric": {"error": 0.1}}}, "stop.metric"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_audited_is_refused(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        audit_one_run(SMALL, **{"claims": ["rigorous"], **options})


def test_more_numbers_than_memory_are_refused(monkeypatch):
    monkeypatch.setattr(of_one_run, "NUMBERS", 1000)
    simulation = build(load(SMALL))
    of = canaries_of(simulation.problem, 0, 40, seed=0)
    with pytest.raises(InputError, match="canaries: found 40, and a run that shows"):
        play_once(Game(simulation, of))


def test_the_command_prints_a_verdict_and_stores_the_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s.yaml").write_text(resolved_yaml(load(SMALL)))
    command = ["audit", "s.yaml", "--one-run", "--canaries", "20", "--claim", "rigorous"]
    with pytest.raises(SystemExit) as end:
        main(command)
    out = capsys.readouterr().out
    assert end.value.code == 0
    assert "20 canaries, seen by eavesdropper; one run" in out
    assert "replace-one: not refuted (level 0.01)" in out
    assert "Gaussian mu >= " in out
    folder = tmp_path / "audits" / "scenario"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["audit.json", "scores.npz", "trade-off.png"]
    stored = json.loads((folder / "audit.json").read_text())
    assert (stored["runs"], stored["canaries"], stored["relation"]) == (1, 20, "replace-one")
    with np.load(folder / "scores.npz") as arrays:
        assert arrays["scores"].shape == arrays["coins"].shape == (20,)
    for wrong in (["--workers", "2"], ["--runs", "100"], ["--row", "3"], ["--claim", "much"]):
        with pytest.raises(SystemExit) as end:
            main([*command, *wrong])
        assert end.value.code == 2
    with pytest.raises(SystemExit) as end:
        main(["audit", "s.yaml", "--canaries", "20"])
    assert end.value.code == 2
    assert mu_of(stored["findings"][0]["claim"]["epsilon"], 1e-5) == pytest.approx(
        stored["findings"][0]["claim"]["mu"]
    )
