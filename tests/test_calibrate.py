"""Calibration: the planned releases cost what the target says, no more, and hardly less."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import CASES, deadline, graph, local, one_each, star
from mutant import mutant

import desim
from desim.errors import InputError
from desim.privacy.accounting import noise_scale
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.noise_scale import Target, factor, planned
from desim.privacy.accounting.prices import SUMS
from desim.privacy.ledger.ledger import Mechanism, Terms, View
from desim.scenario.build import build
from desim.scenario.load import load, resolved_yaml

GOSSIP = str(Path(__file__).parent / "plugins" / "gossip.py")
TARGET = Target(1.0, 1e-5)


def plan(rounds=200, mechanism=Mechanism.GAUSSIAN, sampling=np.nan, sensitivity=1.0, decay=1.0):
    """Table of planned releases of two agents, the second half as sensitive, of scale 1."""

    def terms(k):
        reach = sensitivity * np.array([1.0, 0.5])
        share = np.full(2, sampling)
        return Terms(mechanism, View.NEIGHBOURS, reach, np.full(2, decay ** (k / 2.0)), share)

    return planned(terms, rounds)


def spent(releases, scale, rows, target=TARGET):
    """Epsilon of the worst agent when all scales are `scale` times as large."""
    n = len(releases)
    rest = {"time": releases["round"], "release": np.arange(n), "delivered": 1}
    table = releases.assign(scale=releases.scale * scale, seen_by="neighbours", **rest)
    return account(table, rows=rows, delta=target.delta, relation=target.relation).worst


ROWS = np.array([1000, 1000])


def test_two_hundred_gaussian_releases_for_epsilon_one():
    """52.759098542 by dp_accounting's analytic Gaussian mechanism."""
    assert factor(plan(), ROWS, TARGET) == pytest.approx(52.759098542, rel=1e-10)
    classical = np.sqrt(200 * 2 * np.log(1.25 / 1e-5))
    assert factor(plan(), ROWS, TARGET) < 0.8 * classical


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one", "agent"])
def test_a_schedule_is_scaled_exactly(relation):
    target, rows = Target(0.7, 1e-6, relation), np.array([3, 9])
    releases = plan(40, decay=0.9)
    scale = factor(releases, rows, target)
    assert spent(releases, scale, rows, target) == pytest.approx(0.7, rel=1e-9)


@pytest.mark.parametrize(
    ("mechanism", "sampling"),
    [
        (Mechanism.LAPLACE, np.nan),
        (Mechanism.DISCRETE_GAUSSIAN, np.nan),
        (Mechanism.SPARSE_VECTOR, np.nan),
        (Mechanism.L2_LAPLACE, np.nan),
        (Mechanism.GAUSSIAN, 0.02),
    ],
)
def test_what_has_no_closed_form_stays_just_below_its_target(mechanism, sampling):
    releases = plan(30, mechanism, sampling)
    scale = factor(releases, ROWS, TARGET)
    assert 1.0 - 1e-4 < spent(releases, scale, ROWS) <= 1.0
    assert spent(releases, scale * (1.0 - 1e-4), ROWS) > 1.0


@pytest.mark.parametrize("mechanism", sorted({*Mechanism} - {Mechanism.NONE, Mechanism.REUSED}))
def test_half_a_sensitivity_is_not_half_a_rounding_or_a_range(mechanism):
    """A record removed moves a value half as far as one replaced; volumes and roundings, as far."""
    releases = plan(30, mechanism)
    half = factor(releases, ROWS, Target(1.0, 1e-5, "add-or-remove-one"))
    share = half / factor(releases, ROWS, TARGET)
    whole = mechanism in (
        Mechanism.DISCRETE_GAUSSIAN, Mechanism.SPARSE_VECTOR, Mechanism.OBJECTIVE_LAPLACE,
        Mechanism.OBJECTIVE_PERTURBATION, Mechanism.CLIPPED_GAUSSIAN, *SUMS,
    )  # fmt: skip
    assert share == pytest.approx(1.0 if whole else 0.5, rel=1e-4)


def test_a_secret_batch_needs_less_noise_than_all_rows():
    whole, part = plan(30), plan(30, sampling=0.02)
    assert factor(part, ROWS, TARGET) < 0.3 * factor(whole, ROWS, TARGET)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("range(1, rounds + 1)", "range(1, rounds)"),
        ("np.sqrt(spent.max())", "np.sqrt(spent.min())"),
        ("mu_of(target.epsilon, target.delta)", "(target.epsilon + 1e-2)"),
    ],
)
def test_a_wrong_calibration_is_noticed(right, wrong):
    twin = mutant(noise_scale, right, wrong)

    def terms(k):
        return Terms(
            Mechanism.GAUSSIAN,
            View.NEIGHBOURS,
            np.array([1.0, 0.5]),
            np.ones(2),
            np.full(2, np.nan),
        )

    scale = twin.factor(twin.planned(terms, 50), ROWS, TARGET)
    assert spent(planned(terms, 50), scale, ROWS) != pytest.approx(1.0, rel=1e-3)


def test_what_no_noise_can_hide_is_refused():
    with pytest.raises(InputError, match=r"agent 0 has no bound in round 1; set problem\.clip"):
        factor(plan(3, sensitivity=np.inf), ROWS, TARGET)
    with pytest.raises(InputError, match="released by agent 0 has no noise in round 1"):
        factor(plan(3, mechanism=Mechanism.NONE), ROWS, TARGET)
    assert planned(lambda k: None, 3) is None


def target(epsilon=2.0, **more):
    return {"target": {"epsilon": epsilon, "delta": 1e-5}, **more}


CALIBRATED = {
    "zcdp-nfl": graph(privacy=target()),
    "zcdp-nfl-decay": {**graph(), "privacy": target(noise={"kind": "gaussian", "decay": 0.9})},
    "zcdp-nfl-paper": {**graph(), "privacy": target(noise={"growth": 0.9})},
    "zcdp-nfl-laplace": {**graph(), "privacy": target(noise={"kind": "laplace"})},
    "zcdp-nfl-discrete": {
        **graph(),
        "privacy": target(
            noise={"kind": "discrete-gaussian", "resolution": 0.001}, relation="agent"
        ),
    },
    "q-dpsgd-1": {**deadline(), "privacy": target()},
    "fed-plt": star(
        **local(solver="noisy", epochs=3, step="per-agent"), problem={"clip": 1.0}, privacy=target()
    ),
}
for scenario in CALIBRATED.values():
    if "target" in scenario["privacy"] and "sigma" in scenario["privacy"].get("noise", {}):
        del scenario["privacy"]["noise"]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_run_spends_what_its_target_allows(name):
    """All rounds are played by everybody, so that the plan is what happens."""
    done = desim.run(CALIBRATED[name])
    privacy = done.scenario.privacy
    rows = build(done.scenario).problem.rows
    spent = account(done.releases, rows=rows, delta=1e-5, relation=privacy.relation).worst
    exact = name.startswith("zcdp-nfl") and privacy.noise.kind in (None, "gaussian")
    assert spent == pytest.approx(2.0, rel=1e-9 if exact else 1e-4)
    assert spent <= 2.0 * (1.0 + 1e-9)


def test_absent_agents_are_counted_as_present():
    scenario = {**CALIBRATED["fed-plt"], "participation": {"uniform": 3}}
    whole, half = desim.run(CALIBRATED["fed-plt"]), desim.run(scenario)
    assert whole.manifest["calibrated"] == half.manifest["calibrated"]
    assert account(half.releases, rows=np.full(6, 8)).worst < 1.9


def test_the_stored_scenario_says_what_was_calibrated_and_plays_the_same():
    done = desim.run(CALIBRATED["zcdp-nfl-paper"])
    privacy = done.scenario.privacy
    assert done.manifest["calibrated"] == {"phi": privacy.noise.phi}
    assert privacy.target.calibrated
    text = resolved_yaml(done.scenario)
    assert f"phi: {privacy.noise.phi!r}" in text
    again = desim.run(done.scenario)
    pd.testing.assert_frame_equal(again.releases, done.releases)
    assert again.state["x"].tobytes() == done.state["x"].tobytes()
    assert resolved_yaml(again.scenario) == text


def test_a_stored_scenario_that_was_changed_is_refused():
    done = desim.run(CALIBRATED["zcdp-nfl-paper"])
    with pytest.raises(InputError, match=r"privacy\.noise\.phi: found .*which privacy\.target"):
        build(load(done.scenario.written(), {"privacy.target.epsilon": 1.0}))


def test_a_method_without_a_plan_is_refused():
    scenario = graph(plugins=[GOSSIP], algorithm={"name": "hearsay"})
    scenario["privacy"] = target()
    with pytest.raises(InputError, match=r"privacy\.target: hearsay does not say"):
        build(load(scenario))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", one_each(name for name in CASES if not name.startswith("plt")))
def test_a_plan_is_what_is_released(name):
    """Every row of a run is the planned one of its agent and round."""
    simulation = build(load(CASES[name]))
    releases = desim.run(CASES[name]).releases
    table = planned(simulation.method.planned, int(releases["round"].max()))
    if table is None:  # several values in a round
        assert releases.groupby(["round", "agent"], observed=True).size().max() > 1
        return
    table = table.set_index(["round", "agent"])
    later = (
        releases.release.to_numpy() >> 48 > 0
    )  # a second exchange of a round: no budget can be planned
    assert not later.any() or np.isinf(table.sensitivity).all()
    releases = releases[~later]
    due = table.loc[list(zip(releases["round"], releases.agent, strict=True))]
    for column in ("sensitivity", "scale", "sampling"):
        np.testing.assert_array_equal(due[column], releases[column])
    assert (due.mechanism.astype(str).to_numpy() == releases.mechanism.astype(str)).all()


@pytest.mark.parametrize(("delta", "warned"), [(0.2, True), (1 / 6, True), (0.16, False)])
def test_a_delta_that_promises_nothing_is_named(delta, warned):
    done = desim.run(graph(privacy={"delta": delta}))
    told = [text for text in done.manifest["warnings"] if text.startswith("privacy.delta")]
    assert bool(told) == warned
    assert all("is not below 1/rows = 0.166667" in text for text in told)
