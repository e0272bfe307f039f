"""The audit of whole scenarios: what the game scores, what it catches and what it never flags."""

import json
import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from cases import CASES, LOSSY, graph, merged, star
from forked import forked
from mutant import mutant
from scipy.stats import laplace, norm

import desim
from desim.errors import InputError
from desim.experiments.audit import neighbours, of_method, pairs
from desim.experiments.audit.neighbours import likelihood_ratio, worst_pair
from desim.experiments.audit.of_method import Stage, audit, noise_seed, play_game, trained
from desim.experiments.audit.pairs import PairReleases
from desim.experiments.audit.verdict import judge, zcdp_of
from desim.interface.cli import main
from desim.privacy.ledger.ledger import Ledger, Mechanism
from desim.scenario.build import build

SMALL = graph(
    problem={"agents": 4, "regularizer": "none"},
    network={"topology": "ring"},
    privacy={"noise": {"kind": "gaussian", "sigma": 0.1}},
    stop={"rounds": 1},
    observe={"metrics": []},
)
PLT = star(
    problem={
        "agents": 1,
        "data": {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 16},
        "loss": "squared",
        "regularizer": {"l2": 0.5},
        "clip": 1.0,
        "row_norm": {"clip": 2.5},
    },
    algorithm={
        "name": "fed-plt",
        "rho": 1.0,
        "local": {"solver": "noisy", "epochs": 10, "step": 0.1, "tau": 0.3},
        "init": {"normal": 0.6},
    },
    stop={"rounds": 50},
    observe={"metrics": []},
)


def releases(mechanism, output, mean, other, scale):
    """Releases (n, dim) of one mechanism and scale (n,), as a play of a pair gives them."""
    n = len(output)
    return PairReleases(
        np.arange(1, n + 1), np.arange(n), output, mean, other, np.ones(n), np.asarray(scale),
        np.full(n, int(mechanism)), np.asarray(scale), np.full(n, output.shape[1]),
    )  # fmt: skip


def check_ratio(module):
    """The score is the difference of log-densities under the two means."""
    rng = np.random.default_rng(1)
    output, mean, other = rng.normal(size=(3, 4, 5))
    scale = np.array([0.5, 1.0, 2.0, 3.0])
    for mechanism, law in ((Mechanism.GAUSSIAN, norm), (Mechanism.LAPLACE, laplace)):
        for theirs in (scale, np.array([2.0, 0.3, 5.0, 3.0])):
            told = law(mean, scale[:, None]).logpdf(output) - law(other, theirs[:, None]).logpdf(
                output
            )
            seen = replace(releases(mechanism, output, mean, other, scale), other_scale=theirs)
            ratio, exact = module.likelihood_ratio(seen)
            assert ratio == pytest.approx(told.sum())
            assert exact
    inside = releases(Mechanism.NOISY_GRADIENT, output, mean, other, scale)
    assert module.likelihood_ratio(inside)[1] is False


def test_the_score_is_the_likelihood_ratio():
    check_ratio(neighbours)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(mean + other) / 2", "mean"),
        ("/ s[:, None] ** 2", "/ s[:, None]"),
        ("np.abs(output - m).sum(axis=1)", "np.abs(mean - m).sum(axis=1)"),
        ("0.5 * one / s**2", "0.5 * one / t**2"),
        ("pair.size[rows] * np.log", "np.log"),
        ('"L2_LAPLACE"})', '"L2_LAPLACE", "NOISY_GRADIENT"})'),
    ],
)
def test_wrong_scores_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_ratio(mutant(neighbours, right, wrong))


def test_a_release_without_noise_tells_everything():
    output, other = np.zeros((1, 2)), np.ones((1, 2))
    bare = releases(Mechanism.NONE, output, output, other, [0.0])
    assert likelihood_ratio(bare)[0] == np.inf
    same = releases(Mechanism.NONE, output, output, output, [0.0])
    assert likelihood_ratio(same) == (0.0, True)


def test_no_two_runs_share_their_noise():
    seeds = {noise_seed(seed, side, n) for seed in (0, 1) for side in (0, 1) for n in range(500)}
    assert len(seeds) == 2000
    pair = worst_pair(build(desim.load(SMALL)))
    scores = play_game(Stage(pair.first, pair.second, pair.agent), 40)
    assert len({*scores.old, *scores.new}) == 80


def test_a_score_is_trained_where_no_ratio_is_known():
    """Two columns, one of which says something: mu = 1.5 less what 300 training runs miss."""
    rng = np.random.default_rng(2)
    old, new = rng.normal(size=(2, 2000, 2))
    new[:, 1] += 1.5
    left, right = trained(old, new)
    assert len(left) == len(right) == 1700
    assert (right.mean() - left.mean()) / right.std() == pytest.approx(1.5, abs=0.1)


@pytest.fixture(scope="module")
def seen():
    """What the plays of `correct` have shown, in their order."""
    return []


@pytest.fixture(scope="module")
def correct(seen):
    """An audit of a correct Gaussian release with 800 runs on each side."""

    def noted(*pair):
        seen.append(pairs.play_pair(*pair))
        return seen[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_method, "play_pair", noted)
        return audit(SMALL, runs=800, claims=["rigorous"])


def check_scores(scores, mu):
    """Mean mu^2 / 2 and deviation mu: of 1600, 5 standard errors are mu / 8 and mu / 11."""
    toward = np.concatenate([scores.new, -scores.old])
    assert toward.mean() == pytest.approx(mu**2 / 2, abs=mu / 8)
    assert toward.std() == pytest.approx(mu, abs=mu / 11)
    assert scores.old.mean() < 0.0 < scores.new.mean()


@pytest.mark.slow
def test_the_scores_of_a_gaussian_release_have_its_mu(correct):
    claim = correct.findings[0].claim
    assert 1.0 < claim.mu < 3.0
    assert correct.scores.exact
    assert correct.scores.as_declared
    check_scores(correct.scores, claim.mu)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(mean + other) / 2", "(0.6 * mean + 0.4 * other)"),
        ("/ s[:, None] ** 2", "/ (1.15 * s[:, None]) ** 2"),
    ],
)
def test_scores_that_are_a_little_wrong_are_noticed(monkeypatch, correct, seen, right, wrong):
    """The same plays, scored otherwise: the right score of them is that of the audit itself."""
    plays, twin = iter(seen + seen), mutant(neighbours, right, wrong)
    monkeypatch.setattr(of_method, "play_pair", lambda *pair: next(plays))
    scores = audit(SMALL, runs=800, claims=["rigorous"]).scores
    assert np.array_equal(scores.old, correct.scores.old)
    assert np.array_equal(scores.new, correct.scores.new)
    monkeypatch.setattr(of_method, "likelihood_ratio", twin.likelihood_ratio)
    scores = audit(SMALL, runs=800, claims=["rigorous"]).scores
    with pytest.raises(AssertionError):
        check_scores(scores, correct.findings[0].claim.mu)


@pytest.mark.slow
def test_a_correct_gaussian_is_never_flagged_in_20_audits(correct):
    claim, scores = correct.findings[0].claim, correct.scores
    for part in np.split(np.arange(800), 20):
        finding = judge(claim, scores.old[part], scores.new[part], exact=True, level=1e-3)
        assert finding.verdict == "not refuted"
    assert correct.findings[0].verdict == "not refuted"
    assert 0.8 * claim.mu < max(t.low for t in correct.findings[0].tests if t.parameter == "mu")


@pytest.mark.slow
def test_laplace_noise_is_audited_with_its_own_ratio():
    flat = merged(SMALL, {"privacy": {"noise": {"kind": "laplace", "sigma": 0.3}}})
    found = audit(flat, runs=200, claims=["rigorous", 0.01])
    assert found.scores.exact
    assert found.scores.as_declared
    assert found.scores.noise == pytest.approx(1.0, abs=0.05)
    assert [finding.verdict for finding in found.findings] == ["not refuted", "refuted"]


@pytest.mark.slow
def test_half_the_declared_noise_is_caught_with_200_runs(monkeypatch):
    whole = Ledger.release

    def half(self, time, who, round_, exchange, value, *rest, **more):
        noisy, ids = whole(self, time, who, round_, exchange, value, *rest, **more)
        return value + 0.5 * (noisy - value), ids

    monkeypatch.setattr(Ledger, "release", half)
    found = audit(SMALL, runs=200, claims=["rigorous"])
    assert found.findings[0].verdict == "refuted"
    assert found.scores.noise == pytest.approx(0.5, abs=0.02)
    assert any("noise that was drawn is 0." in note for note in found.notes)
    assert [test.method for test in found.findings[0].tests] == ["event", "event"]


@pytest.mark.slow
def test_fed_plt_over_50_rounds_refutes_the_paper_and_not_the_rigorous_epsilon():
    """Proposition 4 is for the last local model alone; who sees z sees every round."""
    found = audit(PLT, runs=80, claims=["paper", "rigorous"])
    paper, rigorous = found.findings
    assert paper.claim.epsilon < 0.6 * rigorous.claim.epsilon
    assert (paper.verdict, rigorous.verdict) == ("refuted", "not refuted")
    assert paper.claim.epsilon == pytest.approx(3.421, abs=2e-3)
    assert rigorous.claim.epsilon == pytest.approx(7.143, abs=2e-3)


@pytest.mark.slow
def test_a_given_epsilon_is_tested_too():
    scores, name = audit(SMALL, runs=20, claims=["rigorous"]).scores, 0.1
    found = audit(SMALL, runs=100, claims=[name, "rigorous"], seed=3)
    assert [finding.claim.name for finding in found.findings] == ["given", "rigorous"]
    assert [finding.verdict for finding in found.findings] == ["refuted", "not refuted"]
    assert not np.array_equal(found.scores.old[:20], scores.old)


def test_a_record_of_the_data_can_be_named():
    """Against its opposite: the negated features with the same label tell the two apart."""
    named = audit(SMALL, runs=40, claims=["rigorous"], agent=2, row=3)
    assert (named.agent, named.played["row"]) == (2, 3)
    assert np.median(named.scores.new) > 0.0 > np.median(named.scores.old)


@pytest.fixture(scope="module")
def quick_processes():
    with forked():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("quick_processes")
def test_the_verdict_does_not_depend_on_workers(tmp_path):
    alone = audit(SMALL, runs=30, claims=["rigorous"])
    told = []
    shared = audit(
        SMALL, runs=30, claims=["rigorous"], workers=2, tell=lambda *now: told.append(now)
    )
    np.testing.assert_array_equal(alone.scores.old, shared.scores.old)
    np.testing.assert_array_equal(alone.scores.new, shared.scores.new)
    assert told == sorted(told)
    assert told[-1] == (60, 60)


@pytest.mark.parametrize(
    "bare", [merged(SMALL, {"privacy": {"noise": {"sigma": 0.0}}}), star(stop={"rounds": 3})]
)
def test_without_noise_every_claim_but_infinity_falls(bare):
    found = audit(bare, runs=60, claims=["rigorous", 1.0])
    assert found.findings[0].claim.epsilon == np.inf
    assert [finding.verdict for finding in found.findings] == ["not refuted", "refuted"]
    assert found.plain()["findings"][0]["claim"]["epsilon"] == "infinite"
    json.dumps(found.plain(), allow_nan=False)


@pytest.mark.slow
def test_an_adversary_who_misses_releases_has_a_trained_score():
    drop = {"link": {"on_loss": "drop", "loss": "40 %"}}
    lossy = merged(PLT, {"network": merged(LOSSY, drop), "policy": {"deadline": "10 s"}})
    lossy = merged(lossy, {"stop": {"rounds": 6}})
    seen = audit(lossy, runs=60, claims=["rigorous"], view="coordinator")
    assert len(seen.scores.old) == 51  # 9 of 60 trained it
    assert not seen.scores.exact
    assert seen.findings[0].verdict == "not refuted"
    last = audit(lossy, runs=60, claims=["rigorous"], view="final-model")
    assert (last.view, len(last.scores.new)) == ("final-model", 51)


WRONG = [
    ({"runs": 5}, "runs: found 5; allowed: at least 20"),
    ({"level": 0.7}, "level: found 0.7"),
    ({"claims": ["papers"]}, "did you mean 'paper'?"),
    ({"claims": [-1.0]}, "claim: found -1.0"),
    ({"claims": []}, "claims: found none"),
    ({"view": "nobody"}, "view: found 'nobody'"),
    ({"view": "neighbour:9"}, "allowed: agents 0 to 3"),
    ({"view": "coordinator"}, "there is no coordinator"),
    ({"view": "neighbour:1", "agent": 1}, "whose data the adversary neighbour:1 knows"),
    ({"agent": 4}, "agent: found 4; allowed: 0 to 3"),
    ({"agent": 0, "row": 99}, "row: found 99"),
    ({"delta": 2.0}, "delta: found 2.0"),
    ({"delta": 0.0, "claims": [1.0]}, "delta: found 0.0"),
    ({"view": "direct:2", "agent": 0}, "direct:2 sees no release of agent 0"),
    ({"overrides": {"stop.metric": {"error": 0.1}}}, "stop.metric"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_what_cannot_be_audited_is_refused(options, message):
    with pytest.raises(InputError, match=re.escape(message)):
        audit(SMALL, **{"runs": 20, "claims": ["rigorous"], **options})


def test_a_loaded_scenario_takes_no_overrides():
    with pytest.raises(InputError, match="is loaded already; give them to desim"):
        audit(desim.load(SMALL), overrides={"stop.rounds": 2}, runs=20)


def test_the_command_prints_a_verdict_and_stores_the_audit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scenario = desim.load(SMALL)
    from desim.scenario.load import resolved_yaml

    (tmp_path / "s.yaml").write_text(resolved_yaml(scenario))
    command = ["audit", "s.yaml", "--runs", "100", "--workers", "1", "--claim", "rigorous"]
    run = partial(pytest.raises, SystemExit)
    with run() as end:
        main([*command, "--claim", "0.01"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert "  rigorous  epsilon " in out
    assert " at delta 1e-05, replace-one: not refuted (level 0.01)\n" in out
    assert " at delta 1e-05, replace-one: refuted (level 0.01)\n" in out
    assert "stored in audits/scenario: " in out
    assert "verified" not in out
    folder = tmp_path / "audits" / "scenario"
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["audit.json", "scores.npz", "trade-off.png"]
    stored = json.loads((folder / "audit.json").read_text())
    assert [one["claim"]["name"] for one in stored["findings"]] == ["rigorous", "given"]
    for wrong in (["--claim", "much"], ["-o", "audits/scenario"], ["--view", "x"]):
        with run() as end:
            main([*command, *wrong])
        assert end.value.code == 2


TRIPPING = """
import os
from desim.methods.gradient_descent import GradientDescent

class Tripping(GradientDescent):
    name = "tripping"

    def agents(self, us):
        if os.environ.get("DESIM_THREADS") == "1":
            raise ZeroDivisionError("one thread is too few")
        yield from super().agents(us)
"""


@pytest.mark.slow
@pytest.mark.usefixtures("quick_processes")
def test_what_a_plug_in_raises_in_another_process_is_told_in_words(tmp_path, monkeypatch):
    monkeypatch.delenv("DESIM_THREADS", raising=False)
    file = tmp_path / "tripping.py"
    file.write_text(TRIPPING)
    keys = {"plugins": [str(file)], "algorithm": {**CASES["gd"]["algorithm"], "name": "tripping"}}
    scenario = desim.load(merged(CASES["gd"], keys))
    with pytest.raises(InputError, match=r"tripping\.py, line 10, raised ZeroDivisionError: one"):
        audit(scenario, runs=20, claims=["rigorous"], workers=2)


def test_the_zcdp_of_an_epsilon():
    rho, delta = 0.2225, 1e-5
    assert zcdp_of(rho + 2 * np.sqrt(rho * np.log(1 / delta)), delta) == pytest.approx(rho)
