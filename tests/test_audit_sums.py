"""The audit of a trusted coordinator's sums: a whole agent is the canary."""

import json

import numpy as np
import pytest
from cases import merged
from mutant import mutant
from test_trust import ADAPTIVE, scenario

from desim.engine import trusted
from desim.engine.trusted import Trust, Trusted
from desim.errors import InputError
from desim.experiments.audit import of_sums
from desim.experiments.audit.of_sums import audit_sums
from desim.experiments.audit.pairs import BARE
from desim.interface.cli import main
from desim.scenario.load import load

FEW = {"stop": {"rounds": 4}}
REPLACED = {**FEW, "privacy": {"relation": "replace-one"}}
COUNTED = {**FEW, "privacy": {"clip": {**ADAPTIVE, "noise": 0.8}}}  # the count tells most
SECRET = {
    "stop": {"rounds": 4}, "participation": {"bernoulli": "30 %"},
    "privacy": {"noise": {"multiplier": 0.4}, "delta": 0.1},
}  # fmt: skip


def found(changes, runs=80, source=audit_sums, **more):
    """An audit of the small scenario."""
    return source(scenario(**changes), runs=runs, **more)


def check(one, mu):
    """The scores are likelihood ratios of two normal laws mu apart: to five standard errors."""
    both = np.concatenate([one.scores.new, -one.scores.old])
    assert one.scores.exact
    assert one.scores.as_declared
    assert both.mean() == pytest.approx(mu**2 / 2, abs=5.0 * mu / np.sqrt(len(both)))
    assert both.std() == pytest.approx(mu, abs=5.0 * mu / np.sqrt(2.0 * len(both)))


def low(one):
    """The largest lower bound of mu, and mu as it is claimed."""
    (finding,) = one.findings
    return max(t.low for t in finding.tests if t.parameter == "mu"), finding.claim.mu


@pytest.mark.parametrize(
    ("changes", "mu"),
    [(FEW, 2.0 / 1.5), (REPLACED, 4.0 / 1.5), (COUNTED, 2.0 / 1.5)],
    ids=["left out", "replaced", "counted"],
)
@pytest.mark.slow
def test_a_canary_finds_what_is_charged_and_no_more(changes, mu):
    """Four rounds at multiplier 1.5: a sum moves by S, or by 2 S where another agent steps in."""
    one = found(changes)
    check(one, mu)
    bound, claimed = low(one)
    assert claimed == pytest.approx(mu)
    assert 0.6 * mu < bound < mu
    assert one.findings[0].verdict == "not refuted"


@pytest.mark.parametrize(
    ("changes", "right", "wrong"),
    [
        (FEW, "else LONG\n", "else 0.1\n"),
        (REPLACED, "-WITHIN", "WITHIN"),
        (REPLACED, "0.5 * (mean + other)", "0.8 * (mean + other)"),
        (COUNTED, "replies = Replies(*(each[stay] for each in replies))", "pass"),
        (COUNTED, "np.array([share(short, round_)]), adaptive.noise / many",
         "np.array([share(short, round_)]), 2.0 * adaptive.noise / many"),
    ],
)  # fmt: skip
def test_another_canary_is_noticed(changes, right, wrong):
    twin = mutant(of_sums, right, wrong)
    with pytest.raises(AssertionError):
        check(found(changes, 40, twin.audit_sums), (4.0 if changes is REPLACED else 2.0) / 1.5)


def test_noise_that_is_forgotten_in_one_round_is_caught(monkeypatch):
    whole = Trusted.noised

    def forgotten(self, total, round_):
        return total if round_ == 2 else whole(self, total, round_)

    monkeypatch.setattr(Trusted, "noised", forgotten)
    one = found(FEW, runs=20)
    assert one.findings[0].verdict == "refuted"
    assert one.scores.apart == ((BARE, 40),)


def test_half_of_a_sensitivity_is_caught(monkeypatch):
    twin = mutant(trusted, "2.0 * clip", "clip")
    monkeypatch.setattr(Trust, "terms", twin.Trust.terms)
    one = found(REPLACED, runs=60)
    assert one.findings[0].claim.mu == pytest.approx(2.0 / 1.5)
    assert one.findings[0].verdict == "refuted"


@pytest.mark.slow
def test_half_of_the_noise_is_caught(monkeypatch):
    whole = Trusted.drawn
    half = lambda self, value, *rest: value + 0.5 * (whole(self, value, *rest) - value)  # noqa: E731
    monkeypatch.setattr(Trusted, "drawn", half)
    one = found(FEW, runs=120)
    assert one.scores.noise == pytest.approx(0.5, abs=0.02)
    assert not one.scores.as_declared
    assert one.findings[0].verdict == "refuted"


def test_changes_that_nobody_clips_are_caught(monkeypatch):
    monkeypatch.setattr(Trusted, "shortened", lambda self, replies, rows: replies.weighed)
    assert found(REPLACED, runs=20).findings[0].verdict == "refuted"


@pytest.fixture(scope="module")
def drawn():
    """An audit in which it is secret who takes part."""
    return found(SECRET, runs=80)


def check_mixture(one):
    """A likelihood ratio of D' to D has mean 1 over D, to four standard errors."""
    ratio = np.exp(one.scores.old)
    assert ratio.mean() == pytest.approx(1.0, abs=4.0 * ratio.std() / np.sqrt(len(ratio)))


def test_amplification_holds_where_it_is_secret_who_takes_part(drawn):
    (finding,) = drawn.findings
    assert finding.claim.about.startswith("PLD")
    assert finding.verdict == "not refuted"
    assert 0.0 < finding.epsilon_low < finding.claim.epsilon
    check_mixture(drawn)


def test_amplification_is_refuted_where_it_is_known_who_takes_part(drawn):
    claim = drawn.findings[0].claim.epsilon
    one = found(SECRET, runs=60, known=True, claims=["rigorous", claim])
    assert [finding.verdict for finding in one.findings] == ["not refuted", "refuted"]
    assert one.findings[0].claim.epsilon > 1.3 * claim


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.log1p(-self.q)", "0.0"),
        ("effect if effect.any() else s.effect", "effect"),
        ("participation=replace(drawn, seed=seed)", "participation=drawn"),
    ],
)
@pytest.mark.slow
def test_another_mixture_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_mixture(found(SECRET, 80, mutant(of_sums, right, wrong).audit_sums))


def test_the_final_model_says_less():
    one = found(REPLACED, runs=60, view="final-model")
    assert not one.scores.exact
    assert one.findings[0].verdict == "not refuted"
    assert np.median(one.scores.new) > np.median(one.scores.old)


REFUSED = [
    ({}, {"view": "coordinator"}, "participants or final-model: all others see changes"),
    ({"privacy": {"unit": "record"}}, {}, "agent: the canary of an audit of sums is an agent"),
    ({"privacy": {"noise": {"multiplier": 0}}}, {}, "allowed in an audit: noise on sums"),
    ({}, {"agent": 6}, "agent: found 6; allowed: 0 to 5"),
    ({}, {"agent": 1, "view": "neighbour:1"}, "whose data the adversary"),
    ({}, {"claims": ["clever"]}, "paper, rigorous, or an epsilon"),
]


@pytest.mark.parametrize(("changes", "options", "words"), REFUSED, ids=[one[2] for one in REFUSED])
def test_what_cannot_be_audited_is_refused(changes, options, words):
    with pytest.raises(InputError) as refused:
        found(merged(FEW, changes), **options)
    assert words in str(refused.value)


def test_a_run_without_trust_has_no_sums():
    local = scenario()
    local["privacy"] = {"noise": {"kind": "gaussian", "sigma": 0.1}}
    local["problem"]["clip"] = 1.0
    with pytest.raises(InputError, match="found local; allowed in an audit of sums: coordinator"):
        audit_sums(local)


def test_the_command_says_whose_epsilon_it_is(tmp_path, capsys):
    file, out = tmp_path / "trusting.yaml", tmp_path / "audit"
    file.write_text(json.dumps(scenario(**REPLACED)))
    with pytest.raises(SystemExit) as end:
        main(["audit", str(file), "--runs", "20", "--workers", "1", "-o", str(out)])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert "trusting: agent 0, replaced, seen by participants; 20 + 20 runs" in text
    assert "at delta 1e-05, agent: not refuted" in text
    assert "the paper's claim is about agents that add noise" in text
    stored = json.loads((out / "audit.json").read_text())
    assert stored["relation"] == "agent"


def test_another_process_plays_the_same():
    given = load(scenario(**REPLACED))
    how = "participants", 1e-5, None, False, 3
    _, stage = of_sums._again(given.written(), str(given.folder), how)
    assert np.array_equal(stage.numbers(1, 5), of_sums._staged(given, *how)[0].numbers(1, 5))


@pytest.mark.parametrize(
    ("options", "words"),
    [(["--row", "1"], "where no single record is replaced"), (["--one-run"], "allowed: many runs")],
)
def test_options_of_other_audits_are_refused(tmp_path, capsys, options, words):
    file = tmp_path / "trusting.yaml"
    file.write_text(json.dumps(scenario(**FEW)))
    with pytest.raises(SystemExit) as end:
        main(["audit", str(file), *options])
    assert end.value.code == 2
    assert words in capsys.readouterr().err
