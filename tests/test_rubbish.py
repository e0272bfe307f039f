"""Nonsense in the keys of waiting, inviting, coding and tuning: told in words, nothing played."""

import pytest
from cases import graph, star
from tuner_scenes import TUNER, tuner

import desim
from desim.engine.patience import cure
from desim.errors import InputError, RunError
from desim.experiments.tuning import search
from desim.network.conditions.policy import Policy

EPOCHS = "algorithm.local.epochs"
NULL = r"found nothing \(null\); allowed: a value"
AVERAGED = {"name": "fedavg", "local": {"epochs": 1}}
CHARGE = {"law": "poisson", "mean": 3}
RATED = {"rate": 0.1, "tau": 1e200}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        *(({"policy": {key: None}}, f"policy.{key}: {NULL}")
          for key in ("deadline", "quorum", "buffer", "adaptive")),
        ({"policy": {"quorum": None, "at_most": "1 s"}}, f"policy.quorum: {NULL}"),
        ({"algorithm": {**AVERAGED, "server": {"adam": RATED}}}, "adam.tau: found 1e.200"),
        (
            {
                "algorithm": AVERAGED,
                "participation": {
                    "choose": "oort", "invite": 2, "losses": {"clip": 1e200, "sigma": 1}
                },
            },
            "losses.clip: found 1e.200; allowed: a number > 0, at most 1e150",
        ),
    ],
)  # fmt: skip
def test_values_that_ended_in_a_traceback_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        desim.load({**star(), **changes})


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (tuner(vary={EPOCHS: {"uniform": [1, 3]}}), "found 1.764; allowed: a whole number"),
        (tuner(vary={"algorithm.rho": {"log_unifrom": [1, 2]}}), "did you mean 'log_uniform'?"),
        (tuner(vary={"algorithm.rho": {"log_uniform": [1e-320, 1e308]}}), "of a ratio within"),
        (tuner(vary={"algorithm.rho": {"uniform": [-1e308, 1e308]}}), "of a difference within"),
        (tuner(vary={EPOCHS: {"integer": [1, 10**12]}}, sampler="grid"), "at most 1000000 numbers"),
        (tuner(cap=True), "tune.cap: found true; allowed: false, or a number >= 1"),
        (tuner(sampler="tpe", seed=2**32), "seed: found 4294967296; allowed: at most 4294967295"),
        (tuner(seeds=[2**63 - 1], fresh=1), "allowed: smaller ones, or fresh: 0"),
        (tuner(charge={"law": "poisson", "mean": 1e308}, runs=None), "above 1, at most 1000000"),
        (
            tuner(charge=CHARGE, runs=None, seeds=1, fresh=0, cap=3, seed=None),
            "cap: found 3.0; allowed: with charge false",
        ),
        (
            tuner(charge=CHARGE, runs=None, seeds=1, fresh=0, race=True),
            "race: found true; allowed: with charge false",
        ),
        (
            {**TUNER, "tune": {**TUNER["tune"], "charge": None}},
            "tune.charge: found nothing (null); allowed: a value, or leave the key out",
        ),
        (
            {**tuner(vary={"policy": ["all", {"quorum": 2}]}), "set": {"policy.late": "carry"}},
            "found policy.late in set, though tune varies policy",
        ),
    ],
)
def test_tuners_that_cannot_be_meant_are_refused(wrong, told, tmp_path):
    with pytest.raises(InputError) as error:
        desim.tune(wrong, tmp_path / "t", workers=0)
    assert told in str(error.value)
    assert not (tmp_path / "t").exists()


def test_what_is_set_inside_a_key_that_varies_would_be_lost():
    small = {"base": TUNER["base"], "grid": {"policy": ["all", {"quorum": 2}]}}
    with pytest.raises(InputError, match=r"found policy\.late in set, though policy varies"):
        desim.study({**small, "set": {"policy.late": "carry"}}, workers=0)
    inner = {"policy.late": "carry"}
    with pytest.raises(InputError, match=r"policy\.late: the study varies policy"):
        desim.study(small, workers=0, overrides=inner)
    with pytest.raises(InputError, match=r"policy\.late: the tuner varies policy"):
        desim.tune(tuner(vary=small["grid"]), workers=0, overrides=inner)


def test_a_search_of_which_nothing_can_be_played_ends(monkeypatch):
    def refuse(*given):
        raise InputError("none")

    monkeypatch.setattr(search, "scenario_of", refuse)
    made = desim.tune(tuner(vary={"algorithm.rho": {"uniform": [1, 2]}}, batch=100), workers=0)
    assert set(made.tables["candidates"]["status"]) == {"invalid"}
    assert len(made.tables["candidates"]) == search.BARREN


def test_the_directory_of_a_tuner_has_no_profile(tmp_path):
    desim.tune(tuner(seeds=[0], runs=2, fresh=0), tmp_path / "t", workers=0)
    with pytest.raises(InputError, match="small: found the directory of a tuner"):
        desim.compare([tmp_path / "t"], {"error": [0.1]}, profile=True)


LOSSY = {"link": {"latency": "5 ms", "bandwidth": "1 Mbit/s", "loss": "99 %", "on_loss": "drop"}}


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ({"deadline": "200 ms", "at_least": 2}, "or policy.at_least below 2, or none"),
        ({"deadline": "200 ms", "at_least": 1}, "or no policy.at_least"),
        ({"quorum": 2}, r"or policy: {quorum: 2, at_most: ...}"),
        ({"adaptive": {"mad": 1}}, "or policy.at_most"),
    ],
)
@pytest.mark.parametrize("engine", ["agents", "cohort"])
def test_who_waits_for_ever_is_told_what_helps(policy, told, engine):
    changes = {"algorithm": AVERAGED, "network": LOSSY, "policy": policy, "engine": engine}
    waiting = {**star(), **changes}
    with pytest.raises(RunError) as error:
        desim.run(waiting)
    assert str(error.value).endswith(told) or f"{told};" in str(error.value)


def test_a_policy_that_waits_for_all_is_told_of_deadlines():
    assert cure(Policy("all")) == "a policy with a deadline"


TIERS = {"choose": "tiers", "invite": 2, "tiers": 2}
CODED = {"top-k": 1, "downlink": {"top-k": 1}}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"codec": CODED, "policy": {"adaptive": {"mad": 1}}}, "with policy adaptive a call may"),
        ({"codec": CODED, "policy": {"buffer": 2, "late": "discard"}}, "with policy buffer a call"),
        (
            {"codec": CODED, "network": LOSSY, "policy": {"deadline": "1 s", "late": "carry"}},
            "an agent may miss a call for good",
        ),
        (
            {"participation": {"schedule": [[0, 1], [2]]}, "policy": {"quorum": 3}},
            "policy.quorum: found 3 replies from 2 invited agents",
        ),
        (
            {"participation": {**TIERS, "invite": 3, "tiers": 3}},
            "participation.invite: found 3 of a tier, which has 2 of 6 agents",
        ),
        ({"participation": {**TIERS, "profile": 13}}, "profile: found 13 rounds of a run of 12"),
        (
            {"participation": {**TIERS, "probabilities": [0.5, 0.6]}},
            "probabilities: found a sum of 1.1; allowed: 1",
        ),
    ],
)
def test_combinations_that_meant_nothing_are_refused(changes, told):
    with pytest.raises(InputError, match=told):
        desim.load({**star(), "algorithm": AVERAGED, **changes})


def test_a_quorum_of_neighbours_is_of_neighbours():
    scenario = {**graph(), "algorithm": {"name": "dsgd", "alpha": 0.1}}
    agents = scenario["problem"]["agents"]
    told = f"found {agents} messages from {agents - 1} neighbours at most"
    with pytest.raises(InputError, match=told):
        desim.load({**scenario, "policy": {"quorum": agents}})
