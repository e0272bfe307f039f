"""The audit of what one peer has received: runs against the exact account of `Run.pairwise`."""

import json

import numpy as np
import pytest
from cases import merged
from mutant import mutant
from test_pairwise import CASES, scenario

import desim
from desim.errors import InputError
from desim.experiments.audit import of_peer
from desim.experiments.audit.of_peer import audit_pair, signs_of, stage_of
from desim.interface.cli import main
from desim.privacy.ledger.ledger import Ledger
from desim.runs import pairwise
from desim.runs.pairwise import Pairs
from desim.runs.symbols import symbols_of
from desim.scenario.build import build
from desim.scenario.load import load

RUNS = 100
LOUD = {
    "dim": 3,
    "agents": 5,
    "rounds": 4,
    "privacy": {"noise": {"kind": "gaussian", "sigma": 0.15}},
}


def small(**more):
    """A ring on which a neighbour learns much."""
    return scenario(**{**LOUD, **more})


def check(one, mu):
    """Scores of two normal laws mu apart, to four standard errors, and 95 % of mu in the pair."""
    both = np.concatenate([one.scores.new, -one.scores.old])
    assert one.scores.as_declared
    assert 0.95 * mu < one.played["mu"] < 1.0000001 * mu
    assert both.mean() == pytest.approx(mu**2 / 2, abs=4.0 * mu / np.sqrt(len(both)))
    assert both.std() == pytest.approx(mu, abs=4.0 * mu / np.sqrt(2.0 * len(both)))


@pytest.fixture(scope="module")
def told():
    """What pairwise says of the small run."""
    return desim.run(small()).pairwise(observers=[0, (1, 3)])


@pytest.mark.parametrize(
    ("view", "observer"), [("neighbour:0", "0"), ("collusion:[1, 3]", "[1, 3]")]
)
@pytest.mark.slow
def test_runs_find_what_the_account_says_and_no_more(told, view, observer):
    one = audit_pair(small(), runs=RUNS, view=view)
    row = told[(told.observer.astype(str) == observer) & (told.agent == one.agent)].iloc[0]
    (finding,) = one.findings
    assert 1.0 < row.mu == pytest.approx(finding.claim.mu, rel=1e-12)
    assert row.epsilon == pytest.approx(finding.claim.epsilon, rel=1e-9)
    check(one, row.mu)
    assert finding.verdict == "not refuted"
    bound = max(test.low for test in finding.tests if test.parameter == "mu")
    assert 0.7 * row.mu < bound < row.mu


@pytest.mark.parametrize(
    ("module", "right", "wrong"),
    [
        ("peer", "if side and kind != NOISE", "if kind != NOISE"),
        ("peer", "found[place] -= self.moved.get((agent, number), 0.0)", "pass"),
        ("peer", "amount = bound *", "amount = 0.7 * bound *"),
        ("pairs", "* self.own.scale[noise]", "* 1.5 * self.own.scale[noise]"),
    ],
)
def test_another_test_is_noticed(told, monkeypatch, module, right, wrong):
    mu = told[(told.observer == 0) & (told.agent == 1)].iloc[0].mu
    source = of_peer
    if module == "pairs":
        monkeypatch.setattr(of_peer, "Pairs", mutant(pairwise, right, wrong).Pairs)
    else:
        source = mutant(of_peer, right, wrong)
    with pytest.raises(AssertionError):
        check(source.audit_pair(small(), runs=30, view="neighbour:0", agent=1), mu)


def test_half_of_the_noise_is_caught(monkeypatch):
    whole = Ledger.release

    def half(self, time, who, round_, exchange, value, *rest, **more):
        noisy, ids = whole(self, time, who, round_, exchange, value, *rest, **more)
        return value + 0.5 * (noisy - value), ids

    monkeypatch.setattr(Ledger, "release", half)
    one = audit_pair(small(), runs=RUNS, view="neighbour:0")
    assert one.scores.noise == pytest.approx(0.5, abs=0.02)
    assert one.findings[0].verdict == "refuted"


def test_an_account_that_forgets_a_neighbour_is_refuted(monkeypatch):
    """Half of the mu, as if the observer had heard less."""
    whole = Pairs.towards
    monkeypatch.setattr(Pairs, "towards", lambda self, who: 0.5 * whole(self, who))
    assert audit_pair(small(), runs=40, view="neighbour:0").findings[0].verdict == "refuted"


@pytest.mark.parametrize("name", CASES)
def test_the_pair_that_is_played_is_almost_the_worst(name):
    """Inputs may move in many directions at once, where effects cancel; one is 95 % of that."""
    simulation = build(load(scenario(agents=5, rounds=4, dim=3, **CASES[name])))
    own, log = symbols_of(simulation)
    pairs = Pairs(own, log, "replace-one", simulation.problem.rows)
    mu = pairs.towards((0,))
    for agent in (1, 2):
        stage = stage_of(pairs, simulation, agent, (0,))
        assert 0.95 * mu[agent] <= stage.mu <= 1.0000001 * mu[agent]


def test_signs_are_as_good_as_any():
    rng = np.random.default_rng(1)
    for _ in range(20):
        effect = rng.normal(size=(4, 8))
        every = np.array(np.meshgrid(*[[-1.0, 1.0]] * 8)).reshape(8, -1)
        best = np.linalg.norm(effect @ every, axis=0).max()
        assert np.linalg.norm(effect @ signs_of(effect)) > 0.9 * best
    assert np.array_equal(signs_of(np.abs(effect)), np.ones(8))


REFUSED = [
    ({}, {}, "neighbour:3 or collusion:[3, 7], whose messages are tested"),
    ({}, {"view": "neighbour:9"}, "allowed: agents 0 to 4"),
    ({}, {"view": "neighbour:1", "agent": 1}, "whose data the adversary"),
    ({"rounds": 1, "agents": 6}, {"view": "neighbour:0", "agent": 3}, "learns nothing"),
    (
        {"algorithm": {"name": "dp-admm", "rho": 1.0, "eta": 1.0}},
        {"view": "neighbour:0"},
        "dp-admm",
    ),
]


@pytest.mark.parametrize(("changes", "options", "words"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_cannot_be_audited_is_refused(changes, options, words):
    with pytest.raises(InputError) as refused:
        audit_pair(small(**changes), runs=20, **options)
    assert words in str(refused.value)


def test_the_command_tests_a_pair(tmp_path, capsys):
    file, out = tmp_path / "pairs.yaml", tmp_path / "audit"
    file.write_text(json.dumps(merged(small(), {})))
    words = ["audit", str(file), "--pairs", "--view", "neighbour:0", "--agent", "1"]
    with pytest.raises(SystemExit) as end:
        main([*words, "--runs", "20", "--workers", "1", "-o", str(out)])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "agent 1, its gradients moved, seen by neighbour:0; 20 + 20 runs" in text
    assert "pairwise  epsilon" in text
    assert json.loads((out / "audit.json").read_text())["findings"][0]["claim"]["mu"] > 1.0
    for more, wrong in (
        (["--row", "1"], "nothing beside --pairs"),
        (["--claim", "paper"], "pairwise"),
    ):
        with pytest.raises(SystemExit) as end:
            main([*words, *more])
        assert end.value.code == 2
        assert wrong in capsys.readouterr().err
