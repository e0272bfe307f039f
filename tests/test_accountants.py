"""What releases cost: known numbers, and dp-accounting where it is right."""

import subprocess
import sys
from pathlib import Path

import dp_accounting
import numpy as np
import pairs
import pandas as pd
import pytest
from cases import CASES
from dp_accounting import pld, rdp
from mutant import mutant
from releases import AGENTS, MECHANISMS, ROWS, joined, table

import desim
from desim.errors import InputError
from desim.privacy.accounting import accountants, prices
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import epsilon_of

ADD = dp_accounting.NeighboringRelation.ADD_OR_REMOVE_ONE
REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE


def worst(log, **options):
    return accountants.account(log, rows=ROWS, **options).worst


def check_numbers():
    """200 rounds of Gaussian noise, sigma = 20, and what resends, redraws and skips make of it."""
    assert worst(table(200)) == pytest.approx(2.943225, abs=1e-6)
    resent = table(200).tail(20).assign(time=200.0)
    assert worst(joined(table(200), resent)) == pytest.approx(2.943225, abs=1e-6)
    redrawn = resent.assign(release=resent.release + 1000)
    assert worst(joined(table(200), redrawn)) == pytest.approx(3.106848, abs=1e-6)
    skipped = table(200)[table(200)["round"] % 4 != 0]
    assert worst(skipped) == pytest.approx(2.501740, abs=1e-6)
    assert worst(table(206)) == pytest.approx(2.992983, abs=1e-6)
    assert worst(table(207)) == pytest.approx(3.001218, abs=1e-6)


def check_curve():
    """A curve is cumulative, by agent, and has a row for those of whom nothing is seen."""
    told = accountants.account(table(3, 2), rows=ROWS)
    expected = epsilon_of(np.sqrt([1.0, 1.0, 2.0, 2.0, 3.0, 3.0]) / 20.0, 1e-5)
    assert told.curve["agent"].tolist() == [2, 3, 0, 1, 0, 1, 0, 1]
    assert told.curve["time"].tolist() == [0.0, 0.0, 0.5, 0.5, 1.0, 1.0, 1.5, 1.5]
    np.testing.assert_allclose(told.curve["epsilon"], [0.0, 0.0, *expected], rtol=1e-12)
    np.testing.assert_allclose(told.final, [expected[-1], expected[-1], 0.0, 0.0], rtol=1e-12)


def check_schedule():
    """zCDP-NFL's schedule: phi = 1e-3 grows by 1 / .99 for 200 rounds."""
    phi = 1e-3 / 0.99 ** np.arange(200)
    log = table(200, sensitivity=0.005, scale=0.005 / np.sqrt(2.0 * phi))
    assert worst(log) == pytest.approx(5.052409756, rel=1e-8)
    assert worst(log.assign(mechanism="noisy-gradient")) == worst(log)
    discrete = worst(log.assign(mechanism="discrete-gaussian"))
    assert discrete == pytest.approx(5.451648, rel=1e-4)


def check_mixture():
    """Everything at once costs what dp-accounting says, on the same orders."""
    log = table(
        6,
        mechanism=[*MECHANISMS, "objective-perturbation"],
        sensitivity=[1.0, 1.0, 2.0, 3.0, 0.2, 1.0],
        scale=[5.0, 4.0, 10.0, 9.0, 1.0, 8.0],
    )
    library = rdp.RdpAccountant(prices.ORDERS.tolist(), ADD)
    library.compose(dp_accounting.GaussianDpEvent(5.0))
    library.compose(dp_accounting.GaussianDpEvent(4.0))
    library.compose(dp_accounting.LaplaceDpEvent(5.0))
    library.compose(dp_accounting.ZCDpEvent(1.0 / 18.0))
    library.compose(dp_accounting.ZCDpEvent(1.0 / 128.0, 1e-8))
    pure = np.minimum(0.2, prices.ORDERS * 0.2**2 / 2)
    expected = rdp.compute_epsilon(prices.ORDERS, np.add(library.rdp, pure), 1e-5)[0]
    told = accountants.account(log, rows=ROWS)
    assert told.method == "RDP"
    assert told.worst == pytest.approx(expected, rel=1e-12)
    assert told.curve["epsilon"][3] == pytest.approx(float(epsilon_of(0.2, 1e-5)), rel=1e-12)


def check_batches():
    """Q-DPSGD-1's table: m = 1000, K = .5, sigma for the paper's epsilon of 1 in T rounds."""
    for rounds, batch, sigma, happens in (
        (200, 4, 0.277277, 3.4105),
        (200, 20, 0.277277, 0.3791),
        (1000, 4, 0.620011, 0.4540),
        (1000, 20, 0.620011, 0.3567),
    ):
        log = table(rounds, sensitivity=1.0 / batch, scale=0.5 * sigma, sampling=batch / 1000)
        told = accountants.account(log, rows=[1000])
        pair = pairs.dominates, 2.0 / batch / sigma, batch / 1000, rounds
        assert told.worst == pytest.approx(pairs.epsilon(*pair), rel=1e-3), (rounds, batch)
        assert happens < told.worst < 1.25 * happens
        assert told.method == "PLD"
        assert told.curve["epsilon"].iloc[-1] == told.worst
        assert "stay secret" in told.assumptions[-1]
    known = accountants.account(
        table(200, sensitivity=1 / 20, scale=0.5 * 0.277277, sampling=0.02),
        rows=[1000],
        amplification=False,
    )
    assert known.method == "exact GDP"
    assert known.worst == pytest.approx(34.03, abs=5e-3)
    every = table(3, sampling=1.0)
    assert accountants.account(every, rows=ROWS).worst == worst(table(3))


def check_relations():
    """One record added counts half of one replaced; an agent counts for all of its records."""
    log = joined(table(2), table(2, mechanism="laplace", release=[8, 9]))
    half, whole = log.assign(sensitivity=0.5), log.assign(sensitivity=40.0)
    assert worst(log, relation="add-or-remove-one") == worst(half)
    assert worst(log, relation="agent") == worst(whole)
    for mechanism in ("sparse-vector", "discrete-gaussian"):  # a range and a rounding do not halve
        ranged = table(2, mechanism=mechanism)
        assert worst(ranged, relation="add-or-remove-one") == worst(ranged)
    batch = table(2, sampling=0.1, scale=3.0)  # of 40 rows
    assert worst(batch, relation="agent") == worst(table(2, sensitivity=4.0, scale=3.0))
    assert worst(batch, relation="add-or-remove-one") == worst(table(2, scale=6.0))
    objective = table(1, mechanism="objective-perturbation", scale=400.0)
    harmonic = np.sum(1.0 / np.arange(1, 41))
    library = rdp.RdpAccountant(prices.ORDERS.tolist(), ADD)
    library.compose(dp_accounting.ZCDpEvent(0.5 * (40 / 400) ** 2, 1e-8 * 40 * harmonic))
    expected = library.get_epsilon(1e-5)
    assert worst(objective, relation="agent") == pytest.approx(expected, rel=1e-12)


def check_ruin():
    """What is not private costs infinitely, from then on; a value that no record moves is free."""
    for odd in (
        {"mechanism": "none", "scale": 0.0},
        {"mechanism": "none"},
        {"mechanism": "gaussian", "scale": 0.0},
        {"mechanism": "laplace", "sensitivity": np.inf},
        {"mechanism": "gaussian", "sensitivity": np.inf, "scale": np.inf},
        {"mechanism": "reused"},
    ):
        log = joined(
            table(3), table(1, time=1.2, release=50, **odd), table(1, time=2.0, agent=1, release=51)
        )
        told = accountants.account(log, rows=ROWS)
        own = told.curve[told.curve["agent"] == 0]["epsilon"].to_numpy()
        assert np.isinf(own).tolist() == [False, False, True, True], odd
        assert np.isfinite(told.final).tolist() == [False, True, True, True]
        assert told.flags[0].startswith("infinite: ")
        assert told.flags[0].endswith("(agent 0)")
    for mechanism in ("none", "gaussian", "laplace", "sparse-vector"):
        free = table(1, release=50, sensitivity=0.0, mechanism=mechanism, scale=0.0)
        assert worst(joined(table(3), free)) == worst(table(3))
    reused = table(1, release=50, sensitivity=0.0, mechanism="reused")
    assert np.isinf(worst(reused))


def check_pure():
    """Pure releases cost at most the sum of their epsilons, whatever delta is."""
    log = table(2, mechanism="laplace", sensitivity=1.0, scale=10.0)
    told = accountants.account(log, rows=ROWS, delta=1e-12)
    assert told.curve[told.curve["agent"] == 0]["epsilon"].tolist() == pytest.approx([0.1, 0.2])
    many = table(400, mechanism="laplace", sensitivity=1.0, scale=100.0)
    assert worst(many) < 2.0


CHECKS = [
    check_numbers, check_curve, check_schedule, check_mixture, check_batches, check_relations,
    check_ruin, check_pure,
]  # fmt: skip


@pytest.mark.parametrize("check", CHECKS)
def test_costs(check):
    check()


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("check", "module", "right", "wrong"),
    [
        (check_numbers, accountants, "order[np.sort(first)]", "order"),
        (check_numbers, prices, "** 2\n        rho", "** 2 / 2\n        rho"),
        (check_curve, accountants, "running_sum(known, agent)", "np.cumsum(known)"),
        (
            check_curve,
            accountants,
            "np.zeros(len(unseen)), epsilon",
            "np.ones(len(unseen)), epsilon",
        ),
        (check_schedule, prices, "0.5 * (objective", "(objective"),
        (check_mixture, prices, "(2.0 * ORDERS - 1.0) * np.expm1", "(2.0 * ORDERS) * np.expm1"),
        (check_mixture, prices, "np.minimum(e, 0.5", "np.minimum(e, 1.0"),
        (check_mixture, prices, "np.log1p(-1.0 / ORDERS)", "0.0"),
        (check_mixture, accountants, "priced.rho + 0.5 * priced.mu2", "priced.rho + priced.mu2"),
        (check_mixture, accountants, "np.where(mixed, divergent,", "np.where(True, divergent,"),
        (check_batches, accountants, "method = _sharpened(final, mine, delta) or method", "pass"),
        (check_batches, accountants, "np.minimum(epsilon, final[agent])", "epsilon"),
        (check_relations, prices, "& (batch < owned) & amplified", "& (batch < owned)"),
        (check_relations, prices, "0.5 if relation", "1.0 if relation"),
        (check_relations, prices, "np.isin(code, WHOLE)", "code < 0"),
        (check_relations, prices, "return batch.astype(float), batch", "return owned * 1.0, batch"),
        (check_relations, prices, "CURVATURE * _group_factor(group)", "CURVATURE"),
        (check_ruin, prices, "np.where(sensitivity == 0.0, 0.0, ratio)", "ratio"),
        (check_ruin, prices, "| np.isinf(sensitivity)", ""),
        (check_ruin, prices, "(code == Mechanism.NONE) | ", ""),
        (check_ruin, accountants, "running_max(ruined, agent)", "np.maximum.accumulate(ruined)"),
        (check_pure, accountants, "np.where(impure, np.inf, pure)", "np.inf"),
        (check_mixture, accountants, "np.where(impure, np.inf, pure)", "pure"),
    ],
)
def test_a_wrong_accountant_is_noticed(monkeypatch, check, module, right, wrong):
    twin = mutant(module, right, wrong)
    if module is prices:
        for name in ("prices", "epsilon_of_divergences"):
            monkeypatch.setattr(accountants, name, getattr(twin, name))
    else:
        monkeypatch.setattr(accountants, "account", twin.account)
    with pytest.raises((AssertionError, RuntimeWarning)):
        check()


def test_the_relation_trap_of_dp_accounting():
    """PLD doubles the sensitivity under REPLACE_ONE, RDP does not: versions may change that."""
    event, found = dp_accounting.GaussianDpEvent(2.0), {}
    for relation in (ADD, REPLACE):
        for kind in (rdp.RdpAccountant, pld.PLDAccountant):
            library = kind(neighboring_relation=relation)
            library.compose(event)
            found[kind, relation] = library.get_epsilon(1e-5)
    assert found[rdp.RdpAccountant, ADD] == pytest.approx(2.165716, abs=1e-6)
    assert found[rdp.RdpAccountant, REPLACE] == pytest.approx(2.165716, abs=1e-6)
    assert found[pld.PLDAccountant, ADD] == pytest.approx(1.993091, abs=1e-6)
    assert found[pld.PLDAccountant, REPLACE] == pytest.approx(4.377178, abs=1e-6)
    assert worst(table(1, scale=2.0)) == pytest.approx(1.993091, abs=1e-6)


@pytest.mark.parametrize("relation", prices.RELATIONS)
def test_loss_distributions_walk_round_the_trap(relation):
    """Laplace beside a Gaussian: PLD needs ADD whatever the relation, and undercuts RDP."""
    log = joined(
        table(2, scale=200.0),
        table(3, mechanism="laplace", scale=400.0, release=[21, 22, 23]),
        table(1, mechanism="sparse-vector", scale=1e9, release=31),
    )
    told = account(log, rows=ROWS, relation=relation)
    size = {"replace-one": 1.0, "add-or-remove-one": 0.5, "agent": 40.0}[relation]
    library = pld.PLDAccountant(ADD)
    library.compose(dp_accounting.GaussianDpEvent(200.0 / size / np.sqrt(2.0)))
    library.compose(dp_accounting.LaplaceDpEvent(400.0 / size), 3)
    assert told.pld() == pytest.approx(library.get_epsilon(1e-5), rel=2e-3, abs=2e-4)
    assert told.pld() <= told.worst
    doubled = pld.PLDAccountant(REPLACE)
    doubled.compose(dp_accounting.GaussianDpEvent(200.0 / size / np.sqrt(2.0)))
    assert doubled.get_epsilon(1e-5) > told.pld()


def test_the_method_is_that_of_the_least_bound():
    """Losses beyond any grid, so that no loss distribution is known; each cost by its formula."""
    batches = table(3, scale=0.02, sampling=0.5)
    answers = table(3, mechanism="laplace", scale=0.01)
    mixed = joined(answers, table(1, scale=0.1, release=99))
    costs = {
        "GDP, batches known": (batches, float(epsilon_of(np.sqrt(7500.0), 1e-5))),
        "pure DP added up": (answers, 300.0),
    }

    def check(module):
        for method, (log, expected) in costs.items():
            told = module.account(log, rows=ROWS)
            assert (told.method, told.worst) == (method, pytest.approx(expected, rel=1e-9))
        told = module.account(mixed, rows=ROWS)
        assert (told.method, told.worst > 300.0) == ("RDP", True)
        others = joined(mixed, table(9, agent=1, release=[*range(101, 110)], scale=0.1))
        assert module.account(others, rows=ROWS).method == "GDP"  # the worst agent's
        assert module.account(table(5), rows=ROWS).method == "exact GDP"

    check(accountants)
    with pytest.raises(AssertionError):
        check(mutant(accountants, "counted[worst].bound(delta)[1]", "'RDP'"))


def test_loss_distributions_say_where_they_do_not_apply():
    assert np.isnan(account(table(1, mechanism="discrete-gaussian"), rows=ROWS).pld())
    assert np.isfinite(account(table(1, sampling=0.5), rows=ROWS).pld())
    exact = account(table(5), rows=ROWS)
    assert exact.pld() == pytest.approx(exact.worst, rel=1e-12)
    assert np.isinf(account(table(1, mechanism="none"), rows=ROWS).pld())
    assert exact.pld(agent=3) == 0.0


def test_rows_of_one_id_that_differ_are_two_releases():
    """A log that names two values alike is charged for both, and one reused draw is never free."""
    log = table(1)
    other = joined(log, log.assign(scale=10.0))
    assert worst(other) == worst(joined(log, log.assign(scale=10.0, release=99)))
    assert np.isinf(worst(joined(log, log.assign(mechanism="reused"))))


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({}, {"relation": "replace"}, "did you mean 'replace-one'"),
        ({}, {"delta": 0.0}, "0 < delta < 1"),
        ({}, {"view": "everyone"}, "allowed: eavesdropper"),
        ({}, {"relation": "agent", "rows": None}, "how many records"),
        ({"sampling": 0.5}, {"rows": None}, "how many records"),
        ({"mechanism": "gauss"}, {}, "did you mean 'gaussian'"),
        ({"sensitivity": -1.0}, {}, "sensitivity: found -1.0"),
        ({"scale": np.nan}, {}, "scale: found nan"),
        ({"agent": 9}, {}, "agent 9"),
    ],
)
def test_what_cannot_be_accounted_is_bad_input(changes, options, message):
    with pytest.raises(InputError, match=message):
        account(table(1, **changes), **{"rows": ROWS, **options})


def test_flags_say_what_to_doubt():
    assert "not below 1 / rows" in account(table(1), rows=ROWS, delta=0.025).flags[0]
    assert account(table(1), rows=ROWS, delta=0.024).flags == ()
    unclipped = account(table(1, sensitivity=np.inf), rows=ROWS).flags
    assert unclipped == (
        "infinite: the sensitivity has no bound, as the loss is unclipped (agent 0)",
    )
    everybody = account(table(1, 4, mechanism="none", sensitivity=np.inf), rows=ROWS).flags
    assert everybody == ("infinite: released without noise (agents 0, 1, 2, 3)",)


def test_an_empty_log_costs_nothing():
    told = account(table(1).iloc[:0], rows=ROWS)
    assert told.worst == 0.0
    assert told.curve["agent"].tolist() == list(range(AGENTS))
    assert account(table(1).iloc[:0], rows=None).worst == 0.0


def test_accounts_are_made_without_what_takes_long_to_import():
    """dp-accounting takes most of a second."""
    code = (
        "import sys; from releases import *; "
        "from desim.privacy.accounting.accountants import account;"
        "account(joined(table(3), table(1, mechanism='laplace', release=9)), rows=ROWS);"
        "account(table(3, sampling=0.5), rows=ROWS);"
        "assert not {'dp_accounting', 'numba'} & sys.modules.keys()"
    )
    folder = Path(__file__).parent
    subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)


def test_a_run_states_its_epsilon(tmp_path):
    done = desim.run(CASES["nfl"], out=tmp_path / "run")
    curve = done.epsilon()
    first = done.releases.iloc[0]
    expected = float(epsilon_of(first.sensitivity / first.scale, 1e-5))
    assert curve["epsilon"].iloc[0] == pytest.approx(expected, rel=1e-12)
    assert curve.attrs["view"] == "eavesdropper"
    assert curve.attrs["relation"] == "replace-one"
    assert curve.attrs["delta"] == 1e-5
    assert curve.attrs["method"] == "exact GDP"
    assert len(curve) == len(done.releases)
    reopened = desim.open(tmp_path / "run")
    pd.testing.assert_frame_equal(reopened.epsilon(), curve)
    other = reopened.epsilon(delta=1e-3, view="neighbour:0", relation="agent")
    assert other.attrs["view"] == "neighbour:0"
    assert other.attrs["relation"] == "agent"
    del reopened.manifest["rows"]
    assert reopened.account().worst == done.account().worst
    with pytest.raises(InputError, match="how many records"):
        reopened.epsilon(relation="agent")


def test_the_scenario_states_the_terms():
    terms = {"view": "neighbour:2", "relation": "add-or-remove-one", "delta": 1e-4}
    scenario = {**CASES["nfl"], "privacy": {**CASES["nfl"]["privacy"], **terms}}
    attrs = desim.run(scenario).epsilon().attrs
    assert {name: attrs[name] for name in terms} == terms


@pytest.mark.slow
def test_batches_of_a_deadline_are_amplified():
    """With next to no noise, divergences are worse than the exact price of known batches."""
    done = desim.run(CASES["qsgd"])
    assert (done.account().final <= done.account(amplification=False).final).all()
    assert done.account().method == "GDP, batches known"
    noise = {**CASES["qsgd"]["privacy"]["noise"], "sigma": 5.0}
    done = desim.run({**CASES["qsgd"], "privacy": {"noise": noise}})
    assert done.account().worst < 0.9 * done.account(amplification=False).worst


def test_an_unclipped_or_silent_method_is_infinite():
    assert np.isinf(desim.run(CASES["plt-all"]).account().worst)
