"""What a method tells beside its releases: the audit refutes it, the contract is broken by it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import graph
from mutant import mutant

import desim
from desim.engine.signals import Message
from desim.experiments.audit import pairs, transcript_check
from desim.experiments.audit.of_method import audit
from desim.experiments.audit.pairs import beyond
from desim.experiments.audit.verdict import judge
from desim.experiments.contract import algorithm_laws
from desim.experiments.contract.stage import BrokenError, Stage
from desim.masks import Mask, is_public, public
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import load

BESIDES = Path(__file__).parent / "plugins" / "besides.py"
LAWS = {
    "charges": algorithm_laws.charges,
    "sensitivity": algorithm_laws.sensitivity,
    "retimes": algorithm_laws.retimes,
}


def told(way, **changes):
    """Three rounds of noisy gradients, and of what `way` adds."""
    return graph(
        **{
            "problem": {"agents": 4, "regularizer": "none", "clip": 1.0},
            "network": {"topology": "ring"},
            "privacy": {"noise": {"kind": "gaussian", "sigma": 0.7}},
            "stop": {"rounds": 3},
            "observe": {"metrics": []},
            "plugins": [str(BESIDES)],
            "algorithm": {"name": "besides", "way": way},
            **changes,
        }
    )


@pytest.fixture(scope="module")
def honest():
    """An audit of the method that tells nothing else."""
    return audit(told("nothing"), runs=20, claims=["rigorous"], agent=0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "what"),
    [("bare", pairs.MESSAGES), ("halved", pairs.MESSAGES), ("denied", pairs.RELEASES)],
)
def test_what_is_told_beside_the_releases_is_refuted(honest, way, what):
    """Their rigorous epsilons are those of the honest method, or less."""
    found = audit(told(way), runs=30, claims=["rigorous"], agent=0)
    assert found.findings[0].claim.mu <= honest.findings[0].claim.mu
    assert found.findings[0].verdict == "refuted"
    assert any("infinite" in note and what in note for note in found.notes)
    sure = next(test for test in found.findings[0].tests if test.method == "infinite ratio")
    assert sure.low == np.inf


def test_a_silence_of_values_costs_without_bound():
    """Charged as an answer without noise, and refuted where a finite epsilon is claimed."""
    found = audit(told("silent"), runs=30, claims=["rigorous", 2.114], agent=1)
    assert [one.claim.epsilon for one in found.findings] == [np.inf, 2.114]
    assert [one.verdict for one in found.findings] == ["not refuted", "refuted"]
    for engine in ("cohort", "agents"):
        table = desim.run(told("silent", engine=engine)).releases
        bare = table[table.mechanism == "sparse-vector"]
        assert set(bare.agent) == {0, 1, 2, 3}
        assert len(bare) == 2 * 3 * 4  # us.release and us.send, in three rounds of four agents
        assert np.isinf(bare.sensitivity).all()


@pytest.mark.slow
@pytest.mark.parametrize(("way", "audits"), [("nothing", 10), ("ulp", 5), ("asked", 5)])
def test_the_right_method_is_never_refuted(way, audits):
    """Nor is one that differs in a last bit, or is silent by time alone."""
    found = audit(told(way), runs=10 * audits, claims=["rigorous"])
    claim, scores = found.findings[0].claim, found.scores
    assert np.isfinite(claim.mu)
    assert scores.apart == ()
    for part in np.split(np.arange(10 * audits), audits):
        one = judge(claim, scores.old[part], scores.new[part], exact=True, level=1e-3, ratio=True)
        assert one.verdict == "not refuted"


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("way", "law"),
    [("bare", "sensitivity"), ("halved", "sensitivity"), ("silent", "retimes"),
     ("silent", "charges"), ("denied", "retimes")],
)  # fmt: skip
def test_what_is_told_beside_the_releases_breaks_the_contract(way, law):
    registry.load_plugin(BESIDES)
    with pytest.raises(BrokenError):
        LAWS[law](Stage(registry.get("besides"), None, {"algorithm.way": way}))


@pytest.mark.slow
def test_the_right_method_keeps_the_contract():
    registry.load_plugin(BESIDES)
    for way in ("nothing", "asked"):
        for law in LAWS.values():  # which raises where it is not kept, or cannot be tried
            law(Stage(registry.get("besides"), None, {"algorithm.way": way}))


def test_agents_that_go_on_with_what_they_do_not_release_are_found(monkeypatch):
    """A record whose gradient turns adds to what models remember of it; constant ones take away."""

    def checked(way):
        problem = {"agents": 4, "regularizer": "none", "clip": 4.0}
        algorithm = {"name": "besides", "way": way, "step": 0.1}
        return transcript_check.transcript_check(
            build(load(told(way, problem=problem, algorithm=algorithm)))
        )

    found = checked("hidden")
    assert 1.0 + 1e-3 < found.largest < 1.0 + 0.1 * 2.0  # 1 + step times curvature, at most
    assert len(found.violations)
    assert not len(checked("nothing").violations)
    monkeypatch.setattr(transcript_check, "turned", lambda *pair: ())
    assert not len(checked("hidden").violations)  # which shows that such pairs are needed


def check_public(module):
    """What is made of public masks alone is public, and nothing else is."""
    one, other = module.public(np.array([True, False])), module.public([True, True])
    plain = np.array([False, True])
    for known in (one, one & other, one | ~other, np.logical_not(one), None):
        assert module.is_public(known)
    assert np.array_equal(one & ~other, [False, False])
    for unknown in (plain, one & plain, plain | one, one.copy(), one[::-1], one == other,
                    np.where(plain, one, other), one.view(module.Mask), True,
                    np.concatenate([one, other])):  # fmt: skip
        assert not module.is_public(unknown)
    with pytest.raises(ValueError, match="read-only"):
        one[0] = False
    into = plain.copy()
    into &= one
    assert not module.is_public(into)


def test_masks_know_where_they_come_from():
    from desim import masks

    check_public(masks)
    assert isinstance(public([True]), Mask)
    assert is_public(None)
    for right, wrong in [
        ("all(is_public(one) for one in inputs)", "any(is_public(one) for one in inputs)"),
        ("        self.public = False\n", "        self.public = getattr(of, 'public', False)\n"),
        ("made.flags.writeable = False", "pass"),
    ]:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check_public(mutant(masks, right, wrong))


def check_rounding(module):
    """A last bit is no leak, and more is one, in messages of any size."""
    mine = Message(np.arange(2), np.ones(2, int), np.zeros(2, int), np.full((2, 3), 7e8), None)
    for moved, leaks in ((1e-7, False), (1e-2, True)):
        theirs = replace(mine, payload=mine.payload + np.array([[moved], [0.0]]))
        assert module.beyond(mine, theirs).tolist() == [leaks, False]


def test_messages_are_compared_up_to_rounding():
    check_rounding(pairs)
    assert not beyond(*(2 * [Message(None, None, None, np.zeros((1, 2)), None)])).any()
    for right, wrong in (("ROUNDING *", "0.0 *"), ("ROUNDING = 1e-12", "ROUNDING = 1e-3")):
        with pytest.raises(AssertionError):
            check_rounding(mutant(pairs, right, wrong))
