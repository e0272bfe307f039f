"""What sections owe each other is told once, in the terms that were written, and before a run."""

from pathlib import Path

import numpy as np
import pytest
from cases import NOISY, graph, local, merged, star
from mutant import mutant

import desim
from desim.errors import InputError, RunError
from desim.experiments.audit import of_method as audits
from desim.privacy.accounting import views
from desim.privacy.ledger import mechanisms
from desim.scenario import build, check
from desim.scenario.checks import consistency, link_consistency
from desim.scenario.load import load

INVALID = Path(__file__).parent / "scenarios" / "invalid"


@pytest.mark.parametrize("name", ["self-loop", "target-without-a-kind", "growth-negative"])
def test_one_mistake_is_told_once(name):
    with pytest.raises(InputError) as caught:
        load(INVALID / f"{name}.yaml")
    assert len(caught.value.problems) == 1, caught.value.problems


@pytest.mark.parametrize(
    ("module", "right", "wrong", "file"),
    [
        (link_consistency, '(sent).on_loss == "drop"', '(sent).on_loss == ""', "drop-with-barrier"),
        (link_consistency, "(network.along(which).losses)", "(0, 0)", "drop-with-coordinator"),
        (link_consistency, '"uplink" if kind', "which if kind", "drop-after-two-hops"),
        (
            link_consistency,
            'kind != "graph" or not network.two_hops',
            "True",
            "trace-in-two-hops",
        ),
        (
            link_consistency,
            "network.downlink.contention is not",
            "None is not",
            "contention-downlink-on-graph",
        ),
        (link_consistency, '("auto", "agents")', '("cohort",)', "contention-in-cohort"),
        (
            consistency,
            '"tau" not in local.model_fields_set',
            "False",
            "noisy-without-noise",
        ),
        (consistency, "rounds - 1 > most", "False", "growth-beyond-numbers"),
    ],
)
def test_checks_left_out_are_noticed(module, right, wrong, file, monkeypatch):
    twin = mutant(module, right, wrong)
    if module is consistency:
        checks = twin.CHECKS
    else:
        checks = [getattr(twin, one.__name__, one) for one in consistency.CHECKS]
    load_with = lambda: load(INVALID / f"{file}.yaml")  # noqa: E731
    with pytest.raises(InputError):
        load_with()
    monkeypatch.setattr(check, "CHECKS", checks)
    load_with()


def test_what_is_meant_is_allowed():
    quiet = {"solver": "noisy", "epochs": 2, "tau": 0.0}
    assert load(star(**local(**quiet))).algorithm.parameters.local.tau == 0.0
    target = {"privacy": {"target": {"epsilon": 2, "delta": 1e-5}}}
    load(merged(star(**local(solver="noisy"), problem={"clip": 1.0}), target))
    load(star(network={"link": {"on_loss": "drop"}}))  # no message is ever lost
    drop = {"link": {"on_loss": "drop", "loss": "2 %"}}
    load(star(network=drop, policy={"deadline": "1 s"}))


def test_a_schedule_without_end_stops_at_the_last_number():
    noise = {"noise": {"phi": 1e-3, "growth": 0.001}}
    with pytest.raises(
        RunError, match=r"growth\^\(n - 1\) is beyond every number in round 10[3-5]"
    ):
        desim.run({**graph(stop={"time": "60 s"}), "privacy": noise})
    schedule = mechanisms.DynamicZcdp(1e-3, 0.5)
    assert schedule.scale(900, np.ones(2)).min() > 0.0
    with pytest.raises(RunError):
        schedule.scale(1100, np.ones(2))


COUNTED = [
    ({"participation": {"uniform": 5}}, "participation.uniform: found 5 active of 3 agents"),
    ({"participation": {"schedule": [[0], [7]]}}, r"schedule\[1\]: found agent 7; allowed: 0 to 2"),
    ({"policy": {"quorum": 4}}, "policy.quorum: found 4 replies from 3 invited agents"),
    ({"network": {"links": [{"sender": 3, "latency": 1}]}}, "found agent 3; allowed: 0 to 2"),
    ({"privacy": {"view": "neighbour:9"}}, "privacy.view: found agent 9; allowed: 0 to 2"),
]


@pytest.mark.parametrize(("change", "told"), COUNTED)
def test_agents_that_only_the_data_count_are_counted_there(change, told, tmp_path):
    np.savez(
        tmp_path / "rows.npz", A=np.ones((3, 4, 2)), b=np.sign(np.arange(12) - 5.5).reshape(3, 4)
    )
    data = {"source": "npz", "file": str(tmp_path / "rows.npz")}
    written = {**star(), "problem": {"data": data, "loss": "logistic"}, **change}
    with pytest.raises(InputError, match=told):
        build.check(load(written))


@pytest.fixture(scope="module")
def private():
    return desim.run(star(**local(**NOISY), problem={"clip": 1.0}))


@pytest.mark.parametrize("delta", ["x", [1e-5], True, 0, 1, -1, float("nan"), {}])
def test_a_delta_is_a_number_between_0_and_1(private, delta):
    with pytest.raises(InputError, match=r"delta: found .*; allowed: 0 < delta < 1"):
        private.epsilon(delta=delta)


def test_views_are_read_in_one_place(private):
    for view in ("neighbour: 1", {"neighbour": 1}, {"collusion": [2, 0, 2]}, "collusion:[0,2]"):
        seen = load(star(privacy={"view": view})).privacy.view
        assert seen == str(views.adversary(view, 6))
        assert private.epsilon(view=view).attrs["view"] == seen
    for view in (3, "direct", {"a": 1, "b": 2}, "direct:x", "neighbour:1234567890"):
        with pytest.raises(InputError, match="view: found") as run:
            private.epsilon(view=view)
        with pytest.raises(InputError) as scenario:
            load(star(privacy={"view": view}))
        assert str(run.value) in str(scenario.value)


def test_a_record_has_an_owner(monkeypatch):
    small = star(**local(**NOISY), problem={"clip": 1.0}, stop={"rounds": 2})
    with pytest.raises(InputError, match="row: found 3 without agent; allowed: both"):
        audits.audit(small, runs=20, claims=["rigorous"], row=3)
    asked = []

    def game(*given, workers, **options):
        asked.append(workers)
        raise InputError("enough")

    monkeypatch.setattr(audits, "play_game", game)
    monkeypatch.setattr(audits.os, "cpu_count", lambda: 2)
    for workers in (1, 2, 500):
        with pytest.raises(InputError, match="enough"):
            audits.audit(small, runs=20, claims=["rigorous"], workers=workers)
    assert asked == [1, 2, 2]
