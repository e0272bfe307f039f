"""Laws that any accounting of releases obeys, on random logs of every mechanism."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as some
from mutant import mutant
from releases import LAW, ROWS, joined, logs, table

from desim.privacy.accounting import accountants, prices
from desim.privacy.accounting.accountants import account


def unlike(one, other):
    """What differs between two accounts, to the last bit."""
    words = "method", "assumptions", "flags"
    found = [name for name in words if getattr(one, name) != getattr(other, name)]
    return found + ["curve"] * (not one.curve.equals(other.curve))


@LAW
@given(logs(), some.integers(0, 2**32 - 1))
def test_the_order_of_rows_does_not_matter(log, seed):
    shuffled = log.sample(frac=1.0, random_state=seed)
    assert unlike(account(shuffled, rows=ROWS), account(log, rows=ROWS)) == []


@LAW
@given(logs(), some.integers(0, 30), some.integers(0, 30))
def test_a_log_that_is_split_and_merged_is_the_same(log, first, second):
    """Parts may overlap: what both hold is one release."""
    low, high = sorted((first, second))
    merged = joined(log.iloc[:high], log.iloc[low:])
    assert unlike(account(merged, rows=ROWS), account(log, rows=ROWS)) == []


@LAW
@given(logs(), some.integers(1, 29))
def test_more_rounds_cost_more_and_leave_an_exact_past_alone(log, rounds):
    """No part costs more than the whole, by which the past of other accounts is bounded, too."""
    whole, part = account(log, rows=ROWS), account(log.iloc[:rounds], rows=ROWS)
    assert (whole.final >= part.final).all()
    for _, own in whole.curve.groupby("agent"):
        assert (np.diff(own["epsilon"]) >= 0.0).all()
    until = log["time"].iloc[:rounds].max()
    before = log[log["time"] <= until]
    past = account(before, rows=ROWS).curve
    known = whole.curve[whole.curve["time"] <= until]
    seen = known[known["time"] > 0.0]["epsilon"].to_numpy()
    then = past[past["time"] > 0.0]["epsilon"].to_numpy()
    assert (then <= seen * (1.0 + 1e-12) + 1e-14).all()
    if whole.method == "exact GDP":
        np.testing.assert_allclose(then, seen, rtol=1e-12, atol=1e-14)


@LAW
@given(logs(), some.sampled_from([2.0**-20, 0.25, 8.0, 2.0**30]))
def test_sensitivity_and_noise_scaled_together_change_nothing(log, factor):
    scaled = log.assign(sensitivity=factor * log.sensitivity, scale=factor * log.scale)
    assert unlike(account(scaled, rows=ROWS), account(log, rows=ROWS)) == []


@LAW
@given(logs(), some.floats(1e-9, 1e-3), some.floats(1.01, 100.0))
def test_more_delta_and_more_noise_cost_less(log, delta, factor):
    here = account(log, rows=ROWS, delta=delta).final
    assert (account(log, rows=ROWS, delta=delta * factor).final <= here).all()
    assert (
        account(log.assign(scale=log.scale * factor), rows=ROWS, delta=delta).final <= here
    ).all()


@LAW
@given(logs())
def test_relations_are_in_order(log):
    final = [account(log, rows=ROWS, relation=one).final for one in prices.RELATIONS]
    replaced, added, agent = final
    assert (added <= replaced).all()
    assert (replaced <= agent).all()


@LAW
@given(logs(("gaussian", "noisy-gradient")))
def test_exact_accounts_undercut_divergences(log):
    exact = account(log, rows=ROWS)
    divergent = account(log.assign(mechanism="discrete-gaussian"), rows=ROWS)
    assert exact.method == "exact GDP"
    assert (exact.final <= divergent.final).all()


def test_laws_notice_an_accountant_that_depends_on_order(monkeypatch):
    wrong = mutant(accountants, "np.lexsort(keys[::-1])", "np.arange(keys.shape[1])")
    log = table(2, time=0.5, scale=[3.0, 8.0])
    again = joined(log.iloc[::-1], log.iloc[:1])
    monkeypatch.setattr(accountants, "Block", wrong.Block)
    assert unlike(account(again, rows=ROWS), account(log, rows=ROWS)) == ["curve"]
