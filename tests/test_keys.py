"""Addressed randomness: published answers, an independent twin, disjoint addresses, laws."""

from itertools import permutations

import numpy as np
import pytest
from scipy import stats

from desim.numerics import keys
from desim.numerics.keys import Stream

MASK = (1 << 64) - 1
ROTATIONS = (16, 42, 12, 31, 16, 32, 24, 21)
PI_COUNTER = (0x243F6A8885A308D3, 0x13198A2E03707344)
PI_KEY = (0xA4093822299F31D0, 0x082EFA98EC4E6C89)
KNOWN = [  # Random123 1.14, tests/kat_vectors: rounds, counter, key, answer
    (13, (0, 0), (0, 0), (0xF167B032C3B480BD, 0xE91F9FEE4B7A6FB5)),
    (13, (MASK, MASK), (MASK, MASK), (0xCCDEC5C917A874B1, 0x4DF53ABCA26CEB01)),
    (13, PI_COUNTER, PI_KEY, (0xC3AAC71561042993, 0x3FE7AE8801AFF316)),
    (20, (0, 0), (0, 0), (0xC2B6E3A8C2C69865, 0x6F81ED42F350084D)),
    (20, (MASK, MASK), (MASK, MASK), (0xE02CB7C4D95D277A, 0xD06633D0893B8B68)),
    (20, PI_COUNTER, PI_KEY, (0x263C7D30BB0F0AF1, 0x56BE8361D3311526)),
]


def naive_threefry(rounds, counter, key, rotations=ROTATIONS):
    schedule = (*key, 0x1BD11BDAA9FC1A22 ^ key[0] ^ key[1])
    a, b = (counter[0] + key[0]) & MASK, (counter[1] + key[1]) & MASK
    for r in range(rounds):
        a = (a + b) & MASK
        turn = rotations[r % 8]
        b = (((b << turn) | (b >> (64 - turn))) & MASK) ^ a
        if r % 4 == 3:
            s = r // 4 + 1
            a = (a + schedule[s % 3]) & MASK
            b = (b + schedule[(s + 1) % 3] + s) & MASK
    return a, b


def compiled(rounds, counter, key):
    words = [np.uint64(word) for word in (*key, *counter)]
    out = keys.threefry(*words) if rounds == 13 else keys.threefry_rounds(*words, rounds)
    return tuple(int(word) for word in out)


@pytest.mark.parametrize(("rounds", "counter", "key", "answer"), KNOWN)
def test_published_known_answers(rounds, counter, key, answer):
    assert compiled(rounds, counter, key) == answer
    assert naive_threefry(rounds, counter, key) == answer
    wrong = ROTATIONS[::-1]
    assert naive_threefry(rounds, counter, key, wrong) != answer


def test_unrolled_equals_the_twin_at_many_addresses():
    sample = np.random.default_rng(0).integers(0, MASK, size=(200, 4), dtype=np.uint64)
    for k0, k1, c0, c1 in sample.tolist():
        assert compiled(13, (c0, c1), (k0, k1)) == naive_threefry(13, (c0, c1), (k0, k1))


def addresses(agent_shift):
    numbers = (-1, 0, 1, 2, 2**26, 2**27 - 1)
    return {
        (int(stream) << 56) | (agent + 1) << agent_shift | (peer + 1)
        for stream in Stream
        for agent in numbers
        for peer in numbers
    }


def test_no_two_places_share_an_address():
    numbers = (-1, 0, 1, 2, 2**26, 2**27 - 1)
    made = {
        int(keys.address(int(stream), agent, peer))
        for stream in Stream
        for agent in numbers
        for peer in numbers
    }
    assert made == addresses(28)
    assert len(made) == len(Stream) * 36
    assert len(addresses(27)) < len(made)  # the wrong twin: peers run into agents
    times = [(r, s) for r in (0, 1, 2**32 - 1) for s in (0, 1, 2**32 - 1)]
    assert len({int(keys.counter(r, s)) for r, s in times}) == 9


def test_streams_and_places_give_different_draws():
    one = keys.uniforms(7, Stream.NOISE, size=8)
    for other in (
        keys.uniforms(8, Stream.NOISE, size=8),
        keys.uniforms(7, Stream.BATCH, size=8),
        keys.uniforms(7, Stream.NOISE, agent=0, size=8),
        keys.uniforms(7, Stream.NOISE, peer=0, size=8),
        keys.uniforms(7, Stream.NOISE, round=1, size=8),
        keys.uniforms(7, Stream.NOISE, step=1, size=8),
    ):
        assert not np.isin(other, one).any()


def test_python_equals_kernels_bit_for_bit():
    agents = np.arange(3)[:, None]
    rounds = np.array([0, 5])
    word = keys.seed_word(-3)
    kinds = {
        keys.uniforms: keys.uniform,
        keys.normals: keys.normal,
        keys.exponentials: keys.exponential,
        keys.laplaces: keys.laplace,
    }
    for many, one in kinds.items():
        drawn = many(-3, Stream.LINK, agent=agents, peer=4, round=rounds, step=2, size=7)
        assert drawn.shape == (3, 2, 7)
        for a in range(3):
            for r, number in enumerate(rounds):
                place = keys.address(int(Stream.LINK), a, 4), keys.counter(number, 2)
                assert [one(word, *place, i) for i in range(7)] == drawn[a, r].tolist()


def test_prefix_of_a_longer_draw():
    for many in (keys.uniforms, keys.normals, keys.exponentials, keys.laplaces):
        long = many(1, Stream.INIT, size=33)
        for size in (0, 1, 2, 7, 16):
            assert np.array_equal(many(1, Stream.INIT, size=size), long[:size])


def test_draws_follow_from_the_words():
    a, b = naive_threefry(13, (6 << 32, 0), (9, int(Stream.NOISE) << 56 | 4 << 28))
    u, v = ((a >> 12) + 0.5) / 2**52, ((b >> 12) + 0.5) / 2**52
    place = {"agent": 3, "round": 6, "size": 2}
    assert keys.uniforms(9, Stream.NOISE, **place)[0] == u
    radius, angle = np.sqrt(-2 * np.log(u)), 2 * np.pi * v
    wanted = radius * np.array([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(keys.normals(9, Stream.NOISE, **place), wanted, rtol=1e-14)
    np.testing.assert_allclose(keys.exponentials(9, Stream.NOISE, **place)[0], -np.log(u))
    assert keys.integers(9, Stream.NOISE, 1000, **place)[0] == a * 1000 >> 64


def test_uniforms_never_reach_their_ends():
    ends = [keys.open_unit(np.uint64(word)) for word in (0, MASK)]
    assert ends == [2.0**-53, 1 - 2.0**-53]


def distance(sample, law):
    """Kolmogorov's distance; its bound from P(D > e) <= 2 exp(-2 n e^2) = 1e-6 (Massart 1990)."""
    return stats.kstest(sample, law).statistic, np.sqrt(np.log(2e6) / (2 * sample.size))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("many", "law"),
    [
        (keys.uniforms, stats.uniform.cdf),
        (keys.normals, stats.norm.cdf),
        (keys.exponentials, stats.expon.cdf),
        (keys.laplaces, stats.laplace.cdf),
    ],
)
def test_distributions_along_and_across_addresses(many, law):
    along = many(11, Stream.NOISE, size=200_000)
    across = many(11, Stream.NOISE, agent=np.arange(400)[:, None], round=np.arange(500))
    for sample in (along, across.ravel()):
        found, bound = distance(sample, law)
        assert found < bound
        found, bound = distance(1.05 * sample, law)
        assert found > bound


def correlation(x, y):
    return abs(np.mean((x - 0.5) * (y - 0.5)) * 12)


def test_neighbouring_addresses_are_uncorrelated():
    n = 100_000  # the product of two centred uniforms, times 12, has mean 0 and variance 1
    x = keys.uniforms(5, Stream.NOISE, round=np.arange(n + 1)).ravel()
    other = keys.uniforms(5, Stream.NOISE, agent=0, round=np.arange(n)).ravel()
    bound = 5 / np.sqrt(n)
    assert correlation(x[1:], x[:-1]) < bound
    assert correlation(x[:-1], other) < bound
    assert correlation(x[:-1], x[:-1] + 0.05 * other) > bound


def excess(counts):
    """Pearson's statistic minus its 1e-6 quantile under equal chances."""
    expected = counts.sum() / counts.size
    return ((counts - expected) ** 2).sum() / expected - stats.chi2.isf(1e-6, counts.size - 1)


def test_integers_are_uniform():
    drawn = keys.integers(3, Stream.DATA, 7, size=70_000)
    assert drawn.dtype == np.int64
    counts = np.bincount(drawn, minlength=7)
    assert counts.size == 7
    assert excess(counts) < 0
    assert excess(np.bincount(keys.integers(3, Stream.DATA, 8, size=70_000) % 7)) > 0


def test_subsets_are_ascending_and_uniform():
    chosen = np.array([keys.subset(3, Stream.BATCH, 5, 2, round=k) for k in range(20_000)])
    assert np.array_equal(chosen, keys.subset(3, Stream.BATCH, 5, 2, round=np.arange(20_000)))
    assert (chosen[:, 0] < chosen[:, 1]).all()
    assert chosen.min() == 0
    assert chosen.max() == 4
    pairs = np.bincount(chosen[:, 0] * 5 + chosen[:, 1], minlength=25)
    pairs = pairs[pairs > 0]
    assert pairs.size == 10
    assert excess(pairs) < 0
    assert excess(pairs + np.arange(10) * 60) > 0
    assert np.array_equal(keys.subset(3, Stream.BATCH, 6, 6), np.arange(6))
    assert keys.subset(3, Stream.BATCH, 6, 0).shape == (0,)


@pytest.mark.slow
def test_permutations_are_uniform():
    index = {order: k for k, order in enumerate(permutations(range(4)))}
    orders = [keys.permutation(3, Stream.DATA, 4, round=k) for k in range(24_000)]
    drawn = [index[tuple(order.tolist())] for order in orders]
    assert excess(np.bincount(drawn, minlength=24)) < 0
    swaps = keys.integers(3, Stream.DATA, 4, round=np.arange(24_000), size=4)
    biased = [naive_swaps(row) for row in swaps.tolist()]  # every place swaps with any place
    assert excess(np.bincount([index[order] for order in biased], minlength=24)) > 0


def naive_swaps(others):
    order = list(range(4))
    for place, other in enumerate(others):
        order[place], order[other] = order[other], order[place]
    return tuple(order)


def test_a_subset_is_not_larger_than_the_whole():
    with pytest.raises(ValueError, match=r"found 4 of 3; allowed: 0 to 3"):
        keys.subset(1, Stream.DATA, 3, 4)
