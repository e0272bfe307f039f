"""Codecs: bytes of an encoder that packs them, exact expectations, contractions, wrong twins."""

import itertools
import math

import naive.codecs
import numpy as np
import pytest
from mutant import mutant

from desim.network.conditions.codec import Codec
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.problem.kernels import codecs

SEED = 5
WHO = np.array([0, 3, 7])
PLACE = {"agent": WHO, "round": np.array([1, 4, 9]), "step": 1}
DIMS = (1, 2, 5, 16, 33)
KINDS = [
    ("top-k", 1, "float32"), ("top-k", 3, "float16"), ("top-k", 12, "float64"),
    ("random-k", 1, "float32"), ("random-k", 4, "float16"),
    ("quantise", 2, None), ("quantise", 4, None), ("quantise", 9, None),
]  # fmt: skip


def rows(dim):
    """Rows with ties, zeros and sizes that differ."""
    values = np.random.default_rng(dim).normal(size=(3, dim)) * np.array([[1.0], [1e3], [1e-3]])
    values[1, : dim // 2] = 1.5 * np.max(np.abs(values[1]))
    values[2, dim // 2 :] = 0.0
    return values


def made(how):
    kind, amount, form = how
    return Codec(kind, amount, form or "float32")


def drawn(how, dim):
    """Dithers (3, dim) and subsets of three rows, from the addresses."""
    place = [dict(zip(PLACE, (*one, 1), strict=True)) for one in zip(WHO, PLACE["round"])]  # noqa: B905
    u = [keys.uniforms(SEED, Stream.CODEC, size=dim, **one) for one in place]
    k = min(how[1], dim)
    kept = [keys.subset(SEED, Stream.CODEC, dim, k, **one) for one in place]
    return u, kept


def twin_gap(twin, how, dim, unbiased):
    """Largest relative difference from what the twin reads, and whether the bits are as many."""
    kind, amount, form = how
    how, x = (kind, min(amount, dim) if kind != "quantise" else amount, form), rows(dim)
    found, codec = made(how).coded(SEED, x, unbiased, **PLACE), made(how)
    u, kept = drawn(how, dim)
    worst, same = 0.0, True
    for r in range(3):
        read, bits = twin.through(x[r], how, contract=not unbiased, u=u[r], kept=kept[r].tolist())
        worst = max(worst, float(np.max(np.abs(read - found[r]))) / (np.max(np.abs(x[r])) or 1.0))
        same &= bits == codec.bits(dim)
    return worst, same


@pytest.mark.parametrize("how", KINDS)
@pytest.mark.parametrize("unbiased", [True, False])
def test_what_is_read_and_its_bits_are_those_of_an_encoder(how, unbiased):
    for dim in DIMS:
        gap, same = twin_gap(naive.codecs, how, dim, unbiased)
        assert same
        assert gap < 1e-15, dim


@pytest.mark.parametrize(
    ("how", "right", "wrong"),
    [
        (KINDS[2], "each * len(kept) <= n:", "True:"),
        (KINDS[0], "-abs(row[j]), j", "-row[j], j"),
        (KINDS[1], "-abs(row[j]), j", "-abs(row[j]), -j"),
        (KINDS[6], "2 ** (bits - 1) - 1\n    norm = up", "2 ** (bits - 1)\n    norm = up"),
        (KINDS[6], "x / (norm / s) + d", "abs(x) / (norm / s) + d"),
        (KINDS[4], "read * (n / amount)", "read"),
    ],
)
def test_another_encoder_is_noticed(how, right, wrong):
    twin = mutant(naive.codecs, right, wrong)
    found = []
    for dim in DIMS:
        try:
            gap, same = twin_gap(twin, how, dim, True)
        except (AssertionError, ValueError, IndexError):  # it cannot read what it wrote
            gap, same = math.inf, False
        found.append(gap > 1e-3 or not same)
    assert any(found)


def test_a_seeded_message_says_nothing_of_places():
    x, codec = rows(33), Codec("random-k", 4, "float32", seeded=True)
    _, kept = drawn(("random-k", 4, "float32"), 33)
    heard = codec.coded(SEED, x, False, **PLACE)
    for r in range(3):
        text = naive.codecs.sparse(x[r], kept[r].tolist(), "float32", seeded=True)
        assert len(text) == codec.bits(33) == 4 * 32
        read = naive.codecs.read_sparse(text, 33, 4, "float32", kept[r].tolist())
        assert np.array_equal(read, heard[r])


def test_lengths_of_messages():
    assert Codec().bits(10) == 640
    assert (Codec("float32").bits(10), Codec("float16").bits(10)) == (320, 160)
    assert Codec("top-k", 0.1).bits(1000) == 100 * (32 + 10)
    assert Codec("top-k", 0.25).bits(1000) == 250 * 32 + 1000  # a bitmap is shorter
    assert Codec("top-k", 0.001).bits(10) == 32 + 4  # one at least
    assert Codec("random-k", 1.0).bits(10) == 320 + 10
    assert Codec("quantise", 4).bits(1000) == 4032


@pytest.mark.parametrize("bits", [2, 3, 5])
def test_quantise_is_unbiased_and_its_contraction_one(bits):
    """Exact expectations: with a uniform dither a level is the lower one with probability 1 - f."""
    codec = Codec("quantise", bits)
    for dim in DIMS:
        for row in filter(np.any, rows(dim)):
            norm, s = naive.codecs.up(math.sqrt(float(row @ row))), codec.most
            place = row / (norm / s)
            lower = np.floor(place)
            f = place - lower
            low = naive.codecs.levels(row, bits, np.zeros(dim))[1]
            below = naive.codecs.levels(row, bits, np.maximum(1.0 - f - 1e-9, 0.0))[1]
            above = naive.codecs.levels(row, bits, np.minimum(1.0 - f + 1e-9, 1.0 - 1e-12))[1]
            assert low == below == lower.astype(int).tolist()
            assert above == (lower.astype(int) + (f > 1e-9)).tolist()
            mean = norm / s * (lower * (1.0 - f) + (lower + 1.0) * f)
            assert np.allclose(mean, row, rtol=1e-12, atol=1e-12 * norm)
            spread = float(np.sum((norm / s) ** 2 * f * (1.0 - f)))  # of Q, E|Q(x) - x|^2
            size, tau = float(row @ row), codec.tau(dim)
            assert spread <= (tau - 1.0) * size * (1.0 + 1e-6)
            error = spread / tau**2 + (1.0 - 1.0 / tau) ** 2 * size
            assert error <= (1.0 - codec.delta(dim)) * size * (1.0 + 1e-6)


def test_without_tau_quantise_is_no_contraction():
    row = np.ones(64)
    norm = naive.codecs.up(8.0)
    f = row / norm  # s = 1
    assert float(np.sum(norm**2 * f * (1.0 - f))) > float(row @ row)


def test_random_k_is_unbiased_over_all_subsets_and_its_contraction_is_exact():
    for dim, k in ((5, 2), (6, 1), (4, 4)):
        row = np.array([1.5, -2.0, 0.25, 8.0, 0.0, -0.5])[:dim]  # float32 has them exactly
        reads, lost = [], []
        for kept in itertools.combinations(range(dim), k):
            how = ("random-k", k, "float32")
            reads.append(naive.codecs.through(row, how, contract=False, kept=list(kept))[0])
            whole = naive.codecs.through(row, how, contract=True, kept=list(kept))[0]
            lost.append(float(np.sum((row - whole) ** 2)))
        assert np.allclose(np.mean(reads, axis=0), row, rtol=1e-14, atol=1e-14)
        delta = Codec("random-k", k).delta(dim)
        assert np.isclose(np.mean(lost), (1.0 - delta) * float(row @ row), rtol=1e-13, atol=1e-13)


def test_subsets_of_random_k_are_all_as_likely():
    """Of 3000 messages each pair of 4 coordinates has 500 in the mean, deviation below 21."""
    x, codec = np.ones((3000, 4)), Codec("random-k", 2)
    place = {"agent": np.arange(3000), "round": 1, "step": 1}
    kept = codec.coded(SEED, x, False, **place)
    _, counts = np.unique(kept, axis=0, return_counts=True)
    assert len(counts) == 6
    assert np.all(np.abs(counts - 500) < 5 * 21)


def test_top_k_loses_no_more_than_its_share():
    for dim in DIMS:
        for k in range(1, dim + 1):
            x, codec = rows(dim), Codec("top-k", k, "float64")
            lost = np.sum((x - codec.coded(SEED, x, False, **PLACE)) ** 2, axis=1)
            assert np.all(lost <= (1.0 - codec.delta(dim)) * np.sum(x**2, axis=1) * (1 + 1e-12))


def sizable(x, k):
    """The k largest of each row of x in size, the first of equal ones, by sorting."""
    out = np.zeros_like(x)
    for row, taken in zip(x, out, strict=True):
        places = np.argsort(-np.nan_to_num(np.abs(row), nan=np.inf), kind="stable")[:k]
        taken[places] = row[places]
    return out


def test_top_k_takes_the_first_of_equal_numbers():
    draws = np.random.default_rng(4).normal(size=(60, 7))
    ties = np.round(2.0 * draws)
    ties[draws > 1.5] = np.nan
    broken = mutant(codecs, "equal and room <= 0", "equal and room < 0")._top
    for k in range(1, 7):
        for x in (draws, ties, ties[:1]):
            found = Codec("top-k", k, "float64").coded(SEED, x, False, **PLACE)
            assert found.tobytes() == sizable(x, k).tobytes()
        wrong = ties.copy()
        for row in wrong:
            broken(k, row, np.empty(7))
        assert wrong.tobytes() != sizable(ties, k).tobytes()


def test_numbers_that_are_none_stay_visible():
    x = np.array([[1.0, np.nan, 2.0, 0.5]])
    assert np.isnan(Codec("top-k", 1).coded(SEED, x, False)).any()
    place = {"agent": np.array([0]), "round": 1, "step": 1}
    assert np.isnan(Codec("quantise", 4).coded(SEED, x, True, **place)).any()


def test_draws_have_addresses_that_no_method_uses():
    """Those of quantize and sparsify have step 0, those of shares no agent; and rows are alone."""
    x, codec = rows(16), Codec("quantise", 3)
    whole = codec.coded(SEED, x, True, **PLACE)
    for r in range(3):
        alone = {
            name: np.array(one)[..., r : r + 1] for name, one in PLACE.items() if name != "step"
        }
        assert np.array_equal(codec.coded(SEED, x[r : r + 1], True, step=1, **alone)[0], whole[r])
    assert not np.array_equal(codec.coded(SEED, x, True, **{**PLACE, "step": 0}), whole)
