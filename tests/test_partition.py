"""Dealing rows to agents, and scaling features: laws, moments, and wrong twins."""

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant
from sections import TABLE, made, shares, written

from desim.errors import InputError
from desim.problem.data import partition, table


def check_standard(module):
    random = np.random.default_rng(0)
    A, test = random.normal(3.0, 2.0, (50, 3)), random.normal(3.0, 2.0, (9, 3))
    A[:, 2] = 5.0
    section = type("S", (), {"scale": "standard", "normalize": "none", "intercept": True})()
    found, tested, names = module.prepared(A, test, ("a", "b", "c"), section)
    mean, deviation = A[:, :2].mean(axis=0), A[:, :2].std(axis=0)
    np.testing.assert_allclose(found[:, 1:3], (A[:, :2] - mean) / deviation, rtol=1e-13)
    np.testing.assert_allclose(tested[:, 1:3], (test[:, :2] - mean) / deviation, rtol=1e-13)
    assert np.all(found[:, 0] == 1.0)
    assert np.all(found[:, 3] == 0.0)
    assert names == ("intercept", "a", "b", "c")


def test_standard_by_training_rows():
    check_standard(table)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(test_A - shift) / width", "(test_A - test_A.mean(axis=0)) / width"),
        ("A.mean(axis=0), A.std(axis=0)", "A.mean(axis=0), A.std(axis=0, ddof=1)"),
        ("width = np.where(np.ptp(A, axis=0) > 0.0, width, np.inf)", "width = width + 1e-9"),
    ],
)
def test_wrong_scaling_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_standard(mutant(table, right, wrong))


def dealt(kind, value=None, rows=60, agents=6, seed=0, classes=None, sizes=(), module=partition):
    how = module.Deal(kind, value, seed, sizes, classes)
    return module.deal(rows, agents, how)


KINDS = st.one_of(
    st.just(("iid", None)),
    st.just(("contiguous", None)),
    st.tuples(st.just("dirichlet"), st.floats(0.2, 50.0)),
    st.tuples(st.just("labels"), st.integers(2, 4)),
)


@settings(deadline=None, max_examples=examples(60))
@given(KINDS, st.integers(2, 9), st.integers(0, 2**40))
def test_every_row_has_one_agent(kind, agents, seed):
    classes = np.arange(200) % 4
    parts = dealt(*kind, rows=200, agents=agents, seed=seed, classes=classes)
    assert len(parts) == agents
    assert min(len(part) for part in parts) >= 1
    assert sorted(np.concatenate(parts).tolist()) == list(range(200))
    again = dealt(*kind, rows=200, agents=agents, seed=seed, classes=classes)
    assert all(np.array_equal(one, two) for one, two in zip(parts, again, strict=True))


def test_contiguous_keeps_order_and_iid_does_not():
    assert [part.tolist() for part in dealt("contiguous", rows=7, agents=3)] == [
        [0, 1], [2, 3, 4], [5, 6],
    ]  # fmt: skip
    parts = dealt("iid", rows=700, agents=7)
    assert {len(part) for part in parts} == {100}
    # the mean row of 100 of 0..699 has standard deviation about 202 / 10
    assert max(abs(part.mean() - 349.5) for part in parts) < 5 * 20.2
    assert max(abs(part.mean() - 349.5) for part in dealt("contiguous", rows=700)) > 5 * 20.2


def test_sizes_are_exact_or_relative():
    assert [len(part) for part in dealt("iid", sizes=(1, 9, 20), rows=30, agents=3)] == [1, 9, 20]
    assert [len(part) for part in dealt("iid", sizes=(1, 1, 2), rows=80, agents=3)] == [20, 20, 40]
    assert [len(part) for part in dealt("iid", sizes=(3, 1), rows=8, agents=None)] == [6, 2]
    with pytest.raises(InputError, match="agent 0 is left with none of the 30 rows"):
        dealt("iid", sizes=(1, 900), rows=30, agents=2)


def check_dirichlet(module):
    """Shares of class c at agent i have mean 1/n and variance (1/n)(1 - 1/n)/(n a + 1)."""
    classes, n, a = np.arange(4000) % 4, 5, 0.5
    shares = np.array(
        [
            [np.bincount(classes[part], minlength=4) / 1000 for part in parts]
            for parts in (
                dealt("dirichlet", a, 4000, n, seed=seed, classes=classes, module=module)
                for seed in range(240)
            )
        ]
    )  # (seeds, agents, classes): 960 independent draws of n shares
    variance = (1 / n) * (1 - 1 / n) / (n * a + 1)
    assert np.abs(shares.mean(axis=(0, 2)) - 1 / n).max() < 5 * np.sqrt(variance / 960)
    # mean_i (s_i - 1/n)^2 of one draw lies in [0, top], so its variance is below mean (top - mean)
    top = (1 - 1 / n) / n
    error = np.sqrt(variance * (top - variance) / 960)
    assert abs(np.mean((shares - 1 / n) ** 2) - variance) < 5 * error


def test_dirichlet_shares_have_their_moments():
    check_dirichlet(partition)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("Distribution(GAMMA, how.value, how.value)", "Distribution(GAMMA, 1.0, 3 * how.value)"),
        ("Distribution(GAMMA, how.value, how.value)", "Distribution(4, 1.0, 0.0)"),
    ],
)
def test_other_shares_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_dirichlet(mutant(partition, right, wrong))


def check_labels(module):
    classes = np.arange(120) % 10
    for agents, each in ((5, 2), (6, 3), (10, 1), (4, 10)):
        parts = dealt("labels", each, 120, agents, classes=classes, module=module)
        assert [len(set(classes[part])) for part in parts] == [each] * agents
        assert len(set(classes[np.concatenate(parts)])) == 10


def test_so_many_labels_each():
    check_labels(partition)
    with pytest.raises((AssertionError, ValueError)):
        check_labels(mutant(partition, "seat[:, None] * each +", "seat[:, None] +"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"kind": "labels", "value": 11, "classes": np.arange(60) % 10}, "more than the data have"),
        (
            {"kind": "labels", "value": 1, "classes": np.arange(60) % 10},
            "belong to nobody.*2 to 10",
        ),
        ({"kind": "labels", "value": 2}, "the labels are no classes"),
        ({"kind": "dirichlet", "value": 1e-3, "classes": np.zeros(60, int)}, "leaves an agent"),
        ({"kind": "iid", "agents": None}, r"problem\.agents: missing"),
        ({"kind": "iid", "agents": 61}, "61 agents for 60 training rows"),
    ],
)
def test_impossible_partitions_are_refused(keys, message):
    with pytest.raises(InputError, match=message):
        dealt(**keys)


@pytest.mark.parametrize("scale", ["none", "minmax", "max", "unit-ball"])
@pytest.mark.parametrize("normalize", ["none", "l2", "clip"])
def test_scaling_and_norms(scale, normalize):
    keys = {"source": "sklearn", "name": "wine", "agents": 3, "partition": "contiguous"}
    raw = made("squared", **keys).A
    A = made("squared", **keys, scale=scale, normalize=normalize, test=0).A
    if scale == "minmax":
        raw = (raw - raw.min(axis=0)) / (raw.max(axis=0) - raw.min(axis=0))
    elif scale == "max":
        raw = raw / np.abs(raw).max(axis=0)
    elif scale == "unit-ball":
        raw = raw / np.linalg.norm(raw, axis=1).max()
    norms = np.linalg.norm(raw, axis=1)[:, None]
    divide = {"none": 1.0, "l2": norms, "clip": np.maximum(norms, 1.0)}[normalize]
    np.testing.assert_allclose(A, raw / divide, rtol=1e-13, atol=1e-15)


def test_test_rows_are_a_fixed_share_and_are_not_trained_on():
    keys = {"source": "sklearn", "name": "iris", "positive": 0, "agents": 2}
    shards, other = made(**keys, test=0.2), made(**keys, test=0.2, seed=1)
    assert len(shards.test_b) == 30
    whole = made(**keys, partition="contiguous").A
    together = np.concatenate([shards.A, shards.test_A])
    assert np.array_equal(np.sort(together, axis=0), np.sort(whole, axis=0))
    assert not np.array_equal(shards.test_A, other.test_A)


def test_by_column(tmp_path):
    keys = written(tmp_path, TABLE)
    del keys["agents"]
    shards = made(**keys, partition={"by": "group"})
    assert shards.start.tolist() == [0, 1, 3]
    assert shards.names == ("age", "height")  # whose a row is is no feature, unless named
    assert shards.A[:, 0].tolist() == [40.0, 30.0, 50.0]
    named = made(**keys, features=["group"], partition={"by": "group"})
    assert named.A[:, 0].tolist() == [1.0, 2.0, 2.0]
    missing = written(tmp_path, TABLE.replace("Thun", ""), "missing.csv")
    with pytest.raises(InputError, match="row 2, column 'city': the value is missing"):
        made(**{**missing, "partition": {"by": "city"}})


def test_partition_goes_by_raw_labels():
    """Ten digits dealt two by two although the loss sees two classes."""
    keys = {"source": "sklearn", "name": "digits", "positive": [5, 6, 7, 8, 9], "agents": 5}
    shards = made(**keys, partition={"labels": 2})
    plain = made("squared", **{**keys, "positive": []}, partition={"labels": 2})
    assert np.array_equal(shards.A, plain.A)
    assert [len(set(plain.b[part])) for part in shares(plain)] == [2] * 5
