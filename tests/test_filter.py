"""The filter behind a budget: it pays for as much as the accountant would, and for no more."""

import numpy as np
import pairs
import pandas as pd
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.ledger import budget as module
from desim.privacy.ledger.budget import Budget, Filter
from desim.privacy.ledger.ledger import Mechanism, Terms, View


def terms(mechanism, sensitivity, scale, sampling=np.nan):
    whole = [np.atleast_1d(np.asarray(one, float)) for one in (sensitivity, scale, sampling)]
    return Terms(mechanism, View.NEIGHBOURS, *np.broadcast_arrays(*whole))


def afforded(filter_, release, most=2000):
    """How many times agent 0 may make a release."""
    one = np.array([0])
    for count in range(most):
        price = filter_.price(one, release, one)
        if not filter_.admit(one, price, np.zeros(1))[0]:
            return count
        filter_.spend(one, price)
    return most


def check_filter(source):
    """Epsilon 3 at 1e-5 pays for 206 releases of sensitivity 1 and deviation 20."""
    filter_ = source.Filter(source.Budget(3.0), np.array([10]))
    assert afforded(filter_, terms(Mechanism.GAUSSIAN, 1.0, 20.0)) == 206
    assert filter_.epsilon(0) == pytest.approx(2.992983, abs=1e-6)
    assert filter_.epsilon(0, (1.0 / 400.0, 0.0, 0.0)) == pytest.approx(3.001218, abs=1e-6)


def test_a_budget_pays_for_as_many_releases_as_it_says():
    check_filter(module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("square = self.square[who] + price[0], self", "square = self.square[who], self"),
        ("ratio * ratio", "ratio"),
    ],
)
def test_a_wrong_filter_is_noticed(right, wrong):
    right = right.replace("square = ", "square, divergence = ")
    wrong = wrong.replace("square = ", "square, divergence = ")
    with pytest.raises(AssertionError):
        check_filter(mutant(module, right, wrong))


@pytest.mark.parametrize(
    "release",
    [
        terms(Mechanism.LAPLACE, 1.0, 15.0),
        terms(Mechanism.DISCRETE_GAUSSIAN, 1.0, 20.0),
        terms(Mechanism.OBJECTIVE_PERTURBATION, 1.0, 20.0),
        terms(Mechanism.SPARSE_VECTOR, 1.0, 30.0),
        terms(Mechanism.GAUSSIAN, 1.0, 2.0, 0.05),
    ],
    ids=lambda release: release.mechanism.name.lower(),
)
@pytest.mark.slow
def test_the_account_of_what_was_afforded_fits_and_one_more_does_not(release):
    """Equal releases lose nothing: the one order is the account's best, and so is the other way."""
    rows = np.array([100])
    filter_ = Filter(Budget(2.0, fixed=True), rows)
    count = afforded(filter_, release)
    assert 3 < count < 2000
    told = [epsilon_after(release, rows, number) for number in (count, count + 1)]
    assert told[0] <= 2.0 < told[1]
    assert filter_.epsilon(0) == pytest.approx(told[0], rel=1e-9)
    assert afforded(Filter(Budget(2.0), rows), release) <= count


def check_batches(source):
    """A plan of equal batches is played until dp-accounting's epsilon of their pair is the budget.

    Releases that may follow from others are filtered by one order, or as known batches.
    """
    rows, release = np.array([200]), terms(Mechanism.GAUSSIAN, 1.4 / 10, 0.3, 0.05)
    counts = [afforded(source.Filter(source.Budget(1.0, fixed=f), rows), release) for f in (1, 0)]
    spent = [pairs.epsilon(pairs.dominates, 1.4 / 3.0, 0.05, counts[0] + n) for n in (0, 2)]
    assert spent[0] <= 1.0 + 1e-3
    assert spent[1] > 1.0
    assert 0.7 * counts[0] < counts[1] < counts[0]
    nearly_all = terms(Mechanism.GAUSSIAN, 1.0, 20.0, 0.99)
    assert afforded(source.Filter(source.Budget(3.0), rows), nearly_all) == 206


def test_batches_are_as_many_as_their_distribution_allows():
    check_batches(module)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("epsilon <= self.budget.epsilon:", "epsilon <= 1.1 * self.budget.epsilon:"),
        ("epsilon <= self.budget.epsilon:", "epsilon <= 0.9 * self.budget.epsilon:"),
        ("square <= most and (numbers <= largest).all()", "square <= most"),
        ("& self.budget.fixed", "& True"),
        ("secret and self.most", "False and self.most"),
    ],
)
def test_a_wrong_filter_of_batches_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_batches(mutant(module, right, wrong))


def test_a_plan_of_many_kinds_is_filtered_by_one_order():
    """Two kinds are counted; more than 8 are left to divergences, and stay below the budget."""
    rows, one = np.array([200]), np.array([0])
    counts = {}
    for kinds, fixed in ((2, True), (2, False), (12, True), (12, False)):
        filter_ = Filter(Budget(1.0, fixed=fixed), rows)
        for count in range(400):
            release = terms(Mechanism.GAUSSIAN, 1.4 / 10, 0.3, 0.05 + 0.005 * (count % kinds))
            price = filter_.price(one, release, one)
            if not filter_.fits(one, price)[0]:
                break
            filter_.spend(one, price)
        assert 0.8 < filter_.epsilon(0) <= 1.0
        counts[kinds, fixed] = count
    assert counts[2, True] > 1.1 * counts[2, False]
    assert counts[12, True] == counts[12, False]


def test_what_is_given_back_is_as_if_it_had_not_been():
    filter_, one = Filter(Budget(1.0, fixed=True), np.array([200])), np.array([0])
    release = terms(Mechanism.GAUSSIAN, 1.4 / 10, 0.3, 0.05)
    for _ in range(30):
        filter_.spend(one, filter_.price(one, release, one))
    before = filter_.epsilon(0)
    for odd in (terms(Mechanism.LAPLACE, 1.0, 9.0), terms(Mechanism.DISCRETE_GAUSSIAN, 1.0, 9.0)):
        price = filter_.price(one, odd, one)
        filter_.spend(one, price)
        assert filter_.epsilon(0) > 1.01 * before
        filter_.refund(one, price)
        assert filter_.epsilon(0) == pytest.approx(before, rel=1e-9)


def epsilon_after(release, rows, number):
    """What the accountant says after `number` releases of agent 0."""
    table = {
        "time": np.arange(number, dtype=float),
        "agent": np.zeros(number, np.int64),
        "round": np.arange(number),
        "release": np.arange(number),
        "mechanism": [release.mechanism.name.lower().replace("_", "-")] * number,
        "sensitivity": np.full(number, release.sensitivity[0]),
        "scale": np.full(number, release.scale[0]),
        "sampling": np.full(number, release.sampling[0]),
        "seen_by": ["neighbours"] * number,
        "delivered": np.ones(number, np.int64),
    }
    return account(pd.DataFrame(table), rows=rows).worst


@given(
    st.lists(
        st.tuples(
            st.sampled_from([Mechanism.GAUSSIAN, Mechanism.LAPLACE, Mechanism.SPARSE_VECTOR]),
            st.floats(0.5, 60.0),
        ),
        max_size=30,
    ),
    st.floats(0.2, 8.0),
)
@settings(max_examples=examples(40), deadline=None)
def test_no_mixture_of_releases_goes_beyond_the_budget(releases, epsilon):
    filter_, one = Filter(Budget(epsilon), np.array([50])), np.array([0])
    for mechanism, scale in releases:
        price = filter_.price(one, terms(mechanism, 1.0, scale), one)
        if filter_.fits(one, price)[0]:
            filter_.spend(one, price)
        assert filter_.epsilon(0) <= epsilon * (1.0 + 1e-8)


def test_a_larger_unit_of_privacy_costs_more():
    release = terms(Mechanism.GAUSSIAN, 1.0, 20.0)
    counts = [
        afforded(Filter(Budget(3.0, relation=relation), np.array([4])), release)
        for relation in ("agent", "replace-one", "add-or-remove-one")
    ]
    assert counts == [12, 206, 827]


def test_what_has_no_noise_is_never_afforded_unless_it_says_nothing():
    for release in (
        terms(Mechanism.NONE, 1.0, 0.0),
        terms(Mechanism.GAUSSIAN, 1.0, 0.0),
        terms(Mechanism.GAUSSIAN, np.inf, 1.0),
        terms(Mechanism.REUSED, 1.0, 1.0),
    ):
        assert afforded(Filter(Budget(1e6), np.array([4])), release) == 0
    assert afforded(Filter(Budget(0.1), np.array([4])), terms(Mechanism.NONE, 0.0, 0.0), 20) == 20


def test_a_filter_agrees_with_the_exact_price():
    filter_ = Filter(Budget(5.0), np.array([10]))
    filter_.spend(np.array([0]), np.array([[0.49], [0.0], [0.0]]))
    assert filter_.epsilon(0) == epsilon_of(0.7, 1e-5)
