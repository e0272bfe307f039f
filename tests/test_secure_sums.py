"""Sums that nobody sees the parts of: whole numbers, noise in shares, accounts and messages."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from mutant import mutant
from scipy import linalg, stats

from desim.numerics import discrete_gaussian, skellam
from desim.numerics.keys import Stream, words
from desim.privacy.sums import lattice, protocol, shares

ROOT = math.exp(-0.5)
ORDERS = (2, 5, 16, 64)
# Computed by google-research/federated, distributed_dp/accounting_utils.py of commit a5af8c44
# (February 2024), one step: shares, clip, gamma, sigma of a share, dim, beta; divergences of
# DDGauss and of Skellam at ORDERS; the bound on a rounded norm.
REFERENCE = [
    (2, 1.0, 0.1, 0.05, 16, ROOT, [245.568795595, 593.568795595, 1869.5687956, 7437.5687956],
     [361.243955371, 709.243955371, 1985.24395537, 7553.24395537], 10.770329614269007),
    (10, 1.0, 0.01, 0.1, 1024, ROOT, [10.372, 25.93, 82.976, 331.904],
     [10.3846674648, 25.9582254648, 83.0612714648, 332.238199465], 101.84301645179212),
    (50, 0.5, 0.05, 0.05, 64, 0.1, [2.93582072132, 7.33712219395, 23.4019098744, 93.5028015711],
     [3.02269080975, 7.49162265541, 23.8777060895, 95.3806156201], 12.084846890550615),
    (100, 1.0, 0.001, 0.02, 4096, ROOT, [25.0514, 62.6285, 200.4112, 801.6448],
     [25.0519297754, 62.6299692029, 200.41611377, 801.66474461], 1001.02747215049),
    (3, 1.0, 1.0, 0.6, 8, 0.0, [16.5630216147, 36.9197636279, 111.56115101, 437.26902322],
     [28.6106434598, 48.967385473, 123.608772855, 449.316645066], 3.8284271247461903),
    (20, 2.0, 0.5, 0.5, 128, 0.01, [3.88422218887, 9.71055547218, 30.992561783, 123.761136078],
     [4.30020995428, 10.3881476424, 32.710585832, 129.489468286], 8.792448194069497),
    (1000, 1.0, 0.02, 0.03, 256, ROOT, [1.16533341176, 2.91333352939, 9.32266724784, 37.2906672478],
     [1.16596452963, 2.91474141852, 9.32692334444, 37.3073535667], 51.20546845796843),
    (5, 0.1, 0.2, 0.13, 4, 0.5, [2.32734979391, 4.46896993624, 12.3215771248, 46.5874994019],
     [2.94842378568, 5.7109870462, 13.5635942347, 47.8295165119], 1.7366965865611679),
    (7, 10.0, 0.3, 1.0, 512, 1e-3, [18.0650660344, 45.162665086, 144.520528275, 578.082113101],
     [18.4495762399, 45.8955729936, 146.530894424, 585.666842483], 37.48413919998912),
    (30, 1.0, 0.25, 0.2, 32, ROOT, [1.95584797277, 4.76993006003, 13.6009899135, 52.1365238194],
     [1.79380903273, 4.32772109295, 13.6187319804, 53.7891827437], 5.552335285692516),
]  # fmt: skip


# Noise, exactly.


def addresses(agents, round_=1):
    return words(11, Stream.NOISE, agent=np.arange(agents), round=round_)[:3]


def test_the_law_of_skellam_is_that_of_differences_of_poisson_numbers():
    def check(module):
        for variance in (0.3, 7.5, 90.0):
            first, steps, _ = module.law(variance, 128)
            k = np.arange(first, first + len(steps))
            wanted = stats.skellam.cdf(k, variance / 2, variance / 2)
            assert np.allclose([step / 2**128 for step in steps], wanted, rtol=0, atol=1e-12)

    check(skellam)
    with pytest.raises(AssertionError):
        check(mutant(skellam, "+ 2 * k * part", "+ k * part"))


def test_the_law_is_as_exact_as_it_says():
    for variance in (0.7, 33.25):
        first, coarse, off = skellam.law(variance, 128)
        there, fine, finer_off = skellam.law(variance, 256)
        for place, step in enumerate(coarse):
            exact = Fraction(fine[place + first - there], 2**256)
            assert abs(Fraction(step, 2**128) - exact) < Fraction(off, 2**128) / 2
        assert finer_off < 2**40  # of 2^256


def test_draws_of_skellam_are_those_of_their_words():
    key, k1, c0 = addresses(3)
    found = skellam.draws(key, k1, c0, 7.5, 40)
    exact = [[skellam.exact(key, k1[r], c0[r], j, 7.5) for j in range(40)] for r in range(3)]
    assert np.array_equal(found, exact)
    assert not skellam.draws(key, k1, c0, 0.0, 4).any()


@pytest.mark.parametrize("variance", [0.4, 12.0, 2500.0])
def test_draws_of_skellam_follow_its_law(variance):
    drawn = skellam.draws(*addresses(40), variance, 500).ravel()
    inner = np.arange(-3, 4) * max(1, round(math.sqrt(variance) / 2))
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    below = stats.skellam.cdf(edges[1:-1], variance / 2, variance / 2)
    wanted = np.diff([0.0, *below, 1.0]) * drawn.size
    counted = np.array([((drawn > a) & (drawn <= b)).sum() for a, b in pairwise(edges)])
    assert stats.chisquare(counted, wanted).pvalue > 1e-4


def test_a_draw_that_a_word_does_not_decide_is_made_of_more(monkeypatch):
    key, k1, c0 = addresses(2)
    wanted = skellam.draws(key, k1, c0, 3.0, 30)
    first, low, high = skellam._table(3.0)
    wide = first, low - np.minimum(low, np.uint64(1 << 62)), high + np.uint64(0)
    monkeypatch.setattr(skellam, "_table", lambda _: wide)
    assert np.array_equal(skellam.draws(key, k1, c0, 3.0, 30), wanted)


# Whole numbers.

WHO, ROUNDS = np.arange(6), np.array([1, 1, 1, 1, 2, 2])
GRID = lattice.Lattice(dim=5, clip=2.0, gamma=0.01, sigma=0.3, bits=20)
VECTORS = np.random.default_rng(5).normal(size=(6, 5))


def test_a_rotation_is_the_hadamard_matrix_after_signs():
    signs = GRID._signs(7, 1)
    wide = np.pad(VECTORS, ((0, 0), (0, 3))) * signs @ linalg.hadamard(8) / math.sqrt(8)
    found = GRID.rotated(7, 1, VECTORS)
    assert np.allclose(found, wide, rtol=1e-14)
    assert np.allclose(GRID.restored(7, 1, found), VECTORS, rtol=1e-14)
    assert set(signs) == {-1.0, 1.0}
    assert not np.array_equal(signs, GRID._signs(7, 2))


def test_levels_are_unbiased_and_no_longer_than_their_bound():
    coarse = lattice.Lattice(dim=6, clip=1.0, gamma=0.5, sigma=0.0, bits=20, beta=0.9)
    x = np.array([[0.9, 0.1, -0.3, 0.2, 0.0, 0.1]])
    who, rounds = np.arange(4000), np.full(4000, 3)

    def check(module, least):
        grid = module.Lattice(**vars(coarse))
        levels = grid.levels(1, who, rounds, np.repeat(x, 4000, axis=0))
        norms = np.sqrt((levels**2).sum(axis=1))
        assert np.array_equal(levels, np.rint(levels))
        assert (norms <= coarse.norm).all()
        mean = coarse.gamma * coarse.restored(1, 3, levels.mean(axis=0, keepdims=True))
        assert np.allclose(mean, x, atol=least)  # conditional: of a bias below beta

    check(lattice, 0.05)
    with pytest.raises(AssertionError):
        check(mutant(lattice, "while square > longest * longest", "while square == np.inf"), 1.0)
    with pytest.raises(AssertionError):
        check(mutant(lattice, "np.floor(rows[r, j] + u)", "np.floor(rows[r, j] + 0.6 * u)"), 0.05)


def test_sums_come_back_as_they_were():
    seed = 9
    part, rounds = WHO[:4], np.full(4, 2)
    x = VECTORS[:4]
    length = np.sqrt((x**2).sum(axis=1, keepdims=True))
    clipped = x * np.minimum(1.0, GRID.clip / length)
    levels = GRID.levels(seed, part, rounds, x)
    noise = GRID.noise(seed, part, rounds)

    def check(module):
        grid = module.Lattice(**vars(GRID))
        total = grid.wrapped(levels + noise).sum(axis=0)
        found = grid.decoded(seed, 2, total)
        wanted = clipped.sum(axis=0) + GRID.gamma * GRID.restored(seed, 2, noise.sum(0)[None])[0]
        assert np.allclose(found, wanted, atol=4 * 2.83 * GRID.gamma)
        assert np.allclose(found - wanted, grid.decoded(seed, 2, levels.sum(0)) - clipped.sum(0))

    check(lattice)
    with pytest.raises(AssertionError):
        check(mutant(lattice, "2.0 * half) - half", "2.0 * half)"))


def test_shares_of_noise_are_the_draws_of_their_addresses():
    key, k1, c0, _ = words(3, Stream.NOISE, agent=WHO, round=ROUNDS, step=lattice.SHARE)
    for law, exact in (("ddgauss", discrete_gaussian.draws), ("skellam", skellam.draws)):
        grid = lattice.Lattice(dim=5, clip=2.0, gamma=0.01, sigma=0.3, bits=20, law=law)
        scale = np.full(6, 30.0) if law == "ddgauss" else 900.0
        assert np.allclose(grid.noise(3, WHO, ROUNDS), exact(key, k1, c0, scale, 8), atol=1e-9)


@pytest.mark.parametrize("law", ["ddgauss", "skellam"])
def test_a_sum_wraps_around_no_oftener_than_said(law):
    grid = lattice.Lattice(dim=8, clip=1.0, gamma=1.0, sigma=0.5, bits=7, law=law)
    for risk in (1e-2, 1e-6):
        fine = lattice.finest(grid, 10, risk)
        near = lattice.Lattice(**(vars(grid) | {"gamma": fine}))
        assert lattice.overflow(near, 10) == pytest.approx(risk, rel=1e-6)
    rough = lattice.finest(grid, 10, 0.5)
    near = lattice.Lattice(**(vars(grid) | {"gamma": rough}))
    rounds = np.arange(1, 401)
    x = np.zeros((10, 8))
    x[:, 0] = 1.0
    over = 0
    for k in rounds.tolist():
        whole = near.levels(1, np.arange(10), np.full(10, k), x)
        whole += near.noise(1, np.arange(10), np.full(10, k))
        over += (np.abs(whole.sum(axis=0)) > 2.0 ** (near.bits - 1)).any()
    assert over / len(rounds) <= 0.5
    assert lattice.finest(lattice.Lattice(**(vars(grid) | {"bits": 3})), 10, 1e-6) is None


# Accounts.


def computed(module, setting):
    n, clip, gamma, sigma, dim, beta, *_ = setting
    grid = lattice.Lattice(dim, clip, gamma, sigma, 20, beta=beta)
    moved = module.moves(grid, False)
    laws = {
        "ddgauss": [module.ddgauss(order, moved, grid.deviation, n) for order in ORDERS],
        "skellam": [module.skellam(order, moved, n * grid.deviation**2) for order in ORDERS],
    }
    return laws, grid.norm


def agree(module):
    for setting in REFERENCE:
        laws, _ = computed(module, setting)
        assert laws["ddgauss"] == pytest.approx(setting[6], rel=1e-10)
        assert laws["skellam"] == pytest.approx(setting[7], rel=1e-10)


def test_divergences_are_those_of_the_authors_program():
    agree(shares)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("10.0 * np.exp(-exponent).sum()", "0.0 * np.exp(-exponent).sum()"),
        ("np.arange(1, shares)", "np.arange(1, shares + 1)"),
        ("* square + 6.0 * moved.l1) / (4.0", "* square) / (4.0"),
        ("k / (k + 1.0)", "1.0"),
        ("+ 2.0 * first * tau + tau**2 * d)", "+ tau**2 * d)"),
        ("times * norm * min(math.sqrt(lattice.width), norm)", "times * norm"),
    ],
)
def test_other_divergences_are_not(right, wrong):
    with pytest.raises(AssertionError):
        agree(mutant(shares, right, wrong))


def test_rounded_norms_are_those_of_the_authors_program():
    def check(module):
        for _, clip, gamma, _, dim, beta, *_, norm in REFERENCE:
            assert module.rounded_norm(clip / gamma, dim, beta) == pytest.approx(norm, rel=1e-12)

    check(lattice)
    with pytest.raises(AssertionError):
        check(
            mutant(lattice, "math.sqrt(2.0 * math.log(1.0 / beta))", "2.0 * math.log(1.0 / beta)")
        )
    with pytest.raises(AssertionError):
        check(mutant(lattice, "0.25 * dim", "0.5 * dim"))


def renyi(law, shift, order):
    """Divergence of a law on whole numbers from itself moved by `shift`."""
    one, two = (np.log(np.maximum(law[a], 1e-250)) for a in (slice(shift, None), slice(-shift)))
    both = (one > -500.0) & (two > -500.0)
    return np.log(np.exp(order * one[both] + (1.0 - order) * two[both]).sum()) / (order - 1.0)


def dominates(module):
    """Whether no sum of discrete Gaussians, convolved, is told apart better than the bound says."""
    k = np.arange(-40, 41)
    for sigma in (0.1, 0.4, 0.5, 0.8, 1.2):
        one = np.exp(-0.5 * (k / sigma) ** 2)
        total = one = one / one.sum()
        for n in range(2, 6):
            total = np.convolve(total, one)
            moved = shares.Moves(1.0, 1.0, 1)
            for order in (1.25, 1.5, 2.0, 4.0):
                bound = module.ddgauss(order, moved, sigma, n)
                assert renyi(total, 1, order) <= bound * (1.0 + 1e-12)


def test_the_divergence_of_convolved_shares_is_within_the_bound_and_not_without_tau():
    dominates(shares)
    with pytest.raises(AssertionError):
        dominates(mutant(shares, "10.0 * np.exp", "0.0 * np.exp"))
    with pytest.raises(AssertionError):  # narrow ones, of which the theorem says nothing
        dominates(mutant(shares, "NARROW = 0.5", "NARROW = 0.0"))


def test_a_row_of_narrow_shares_is_worth_one_of_them():
    grid = lattice.Lattice(4, 1.0, 0.1, 0.049, 20)
    wanted = shares.moves(grid, False).l2 * grid.gamma / 0.049

    def check(module):
        assert module.reach(grid, 7, False) / (0.049 * math.sqrt(7)) == pytest.approx(wanted)

    check(shares)
    with pytest.raises(AssertionError):
        check(mutant(shares, "NARROW = 0.5", "NARROW = 0.0"))


def test_sums_of_very_many_are_exact():
    grid = lattice.Lattice(1, 1.0, 1e-9, 0.0, 40)
    parts = np.full((20001, 1), 2.0**40 - 1.0)

    def check(module):
        assert module.Lattice(**vars(grid)).added(parts) == 2**40 - 20001

    check(lattice)
    with pytest.raises(AssertionError):  # doubles are exact to 2^53
        check(mutant(lattice, "parts.astype(np.int64)", "parts"))


def test_the_divergence_of_skellam_noise_is_within_its_bound():
    def check(module):
        for variance in (1.0, 4.0, 25.0):
            k = np.arange(-300, 301)
            law = stats.skellam.pmf(k, variance / 2, variance / 2)
            for shift in (1, 2):
                moved = shares.Moves(float(shift), float(shift), 1)
                for order in (2, 3, 8):
                    bound = module.skellam(order, moved, variance)
                    assert renyi(law, shift, order) <= bound * (1.0 + 1e-9)

    check(shares)  # which in one dimension needs no more than its first term, and all of that
    right = "0.5 * order * square / variance"
    with pytest.raises(AssertionError):
        check(mutant(shares, f"{right} + min(small, 1.5 * moved.l1 / variance)", f"0.99 * {right}"))


@pytest.mark.parametrize("law", ["ddgauss", "skellam"])
@pytest.mark.parametrize("replaced", [False, True])
def test_a_row_is_worth_no_less_than_the_theorem(law, replaced):
    def check(module):
        for n, clip, gamma, sigma, dim, beta, *_ in REFERENCE:
            grid = lattice.Lattice(dim, clip, gamma, sigma, 20, law, beta)
            moved = shares.moves(grid, replaced)
            ratio = module.reach(grid, n, replaced) / (sigma * math.sqrt(n))
            for order in (2, 3, 5, 16, 64, 1000):
                if law == "ddgauss":
                    bound = shares.ddgauss(order, moved, grid.deviation, n)
                else:
                    bound = shares.skellam(order, moved, n * grid.deviation**2)
                assert 0.5 * order * ratio**2 >= bound * (1.0 - 1e-12)
        return ratio

    check(shares)
    right = "2.0 * first * tau + tau**2 * moved.dim" if law == "ddgauss" else "3.0 * square + "
    with pytest.raises(AssertionError):
        check(mutant(shares, right, "0.0" if law == "ddgauss" else "0.0 * "))
    fine = lattice.Lattice(64, 1.0, 1e-3, 0.1, 20, law)
    wanted = (2.0 if replaced else 1.0) * fine.norm * fine.gamma  # next to nothing else
    assert shares.reach(fine, 20, replaced) == pytest.approx(wanted, rel=1e-3)
    assert shares.reach(fine, 0, replaced) == math.inf


# Messages. Contents of those of Flower 1.42.0, its own workflow and mod played on one machine, each
# with 1000 numbers: bytes of keys, ciphertexts and shares, and whole numbers beside them that name
# agents, down and up. Keys are of P-384 as text, shares encrypted by Fernet, numbers 64 bits, of
# which the first is a weight; its arrays have headers of 128 bytes, left out here.

FLOWER = protocol.Sizes(key=215, cipher=612, seed_share=52, key_share=324, agent=0)
PLAYED = [
    ("secagg", 10, None, (), [(0, 430), (4300, 5508), (5508, 8008), (0, 520)], (9, 9, 10, 10)),
    ("secagg", 50, None, (), [(0, 430), (21500, 29988), (29988, 8008), (0, 2600)],
     (49, 49, 50, 50)),
    ("secagg+", 10, 4, (), [(0, 430), (2150, 2448), (2448, 8008), (0, 260)], (4, 4, 5, 5)),
    ("secagg+", 50, 12, (), [(0, 430), (5590, 7344), (7344, 8008), (0, 676)], (12, 12, 13, 13)),
    ("secagg", 10, None, (3, 7), [(0, 430), (4300, 5508), (5508, 8008), (0, 1064)],
     (9, 9, 10, 10)),
]  # fmt: skip


def sent(module, kind, n, neighbours, lost, sizes):
    """Bytes down and up of the four exchanges, of which the third loses agents."""
    whole = module.Protocol(kind, neighbours, sizes=sizes)
    circle, left = module.Circle(whole, 5, 1, np.arange(n)), np.ones(n, bool)
    came = ~np.isin(np.arange(n), lost)
    return [
        circle.exchange(number, came if number == 3 else left, left, 1001, 64)[:2]
        for number in range(4)
    ]


@pytest.mark.parametrize(("kind", "n", "neighbours", "lost", "bytes_", "names"), PLAYED)
def test_messages_are_as_long_as_those_of_flower(kind, n, neighbours, lost, bytes_, names):
    def check(module):
        assert sent(module, kind, n, neighbours, lost, FLOWER) == bytes_
        named = protocol.Sizes(**(vars(FLOWER) | {"agent": 1}))
        more = np.array(sent(module, kind, n, neighbours, lost, named)) - bytes_
        ups, downs = more[1, 1], more[2, 0]
        assert (ups, downs, *more[3]) == (names[0], names[1], names[2], names[3])

    check(protocol)
    for right, wrong in (
        ("down = many * (2.0", "down = (many - 1) * (2.0"),
        ("up = max(many - 1, 0) * (sizes", "up = many * (sizes"),
        ("Exchange(named, named + opened", "Exchange(0.0, opened"),
    ):
        with pytest.raises(AssertionError):
            check(mutant(protocol, right, wrong))


def test_neighbours_are_counted_as_one_by_one():
    for n, k in ((9, 4), (12, 6), (7, 6)):
        circle = protocol.Circle(protocol.Protocol("secagg+", k), 3, 2, np.arange(n))
        left = np.random.default_rng(n).random(n) < 0.6
        at = {int(agent): place for place, agent in enumerate(circle.order)}
        for i in range(n):
            mine = {int(circle.order[(at[i] + o) % n]) for o in range(-k // 2, k // 2 + 1)}
            assert circle.near(left)[i] == sum(left[j] for j in mine)


def test_a_round_is_void_below_the_threshold():
    whole = protocol.Protocol("secagg", threshold=0.7)
    circle, all_ = protocol.Circle(whole, 1, 1, np.arange(10)), np.ones(10, bool)
    assert circle.least == 7
    for left in (7, 6):
        assert circle.void(all_, np.arange(10) < left) == (left < 7)
    assert circle.void(np.zeros(10, bool), all_)


def test_parts_without_masks_between_them_are_those_of_the_graph():
    """Walked from neighbour to neighbour; wrong twins see others."""

    def walked(circle, came):
        left, parts = set(np.flatnonzero(came).tolist()), 0
        while left:
            parts, edge = parts + 1, [left.pop()]
            while edge:
                near = left.intersection(circle.around()[edge.pop()].tolist())
                left -= near
                edge += near
        return parts

    def differ(module):
        rng, kind = np.random.default_rng(4), protocol.Protocol
        for n, k in ((9, 2), (12, 4), (15, 2), (6, 6)) * 12:
            circle = module.Circle(kind("secagg+", k), 3, 2, np.arange(n))
            came = rng.random(n) < 0.6
            if came.any() and circle.parts(came) != walked(circle, came):
                return True
        return False

    assert not differ(protocol)
    for right, wrong in (
        ("gaps > self.degree // 2", "gaps > self.degree"),
        ("came[self.order]", "came"),
        ("append=places[0] + len(came)", "append=places[-1]"),
    ):
        assert differ(mutant(protocol, right, wrong))


def test_work_is_that_of_the_protocol():
    works = protocol.Works(keys=1.0, expand=8.0, share=0.01)
    circle = protocol.Circle(protocol.Protocol(works=works), 1, 1, np.arange(5))
    all_, came = np.ones(5, bool), np.arange(5) != 2
    seconds = [circle.exchange(e, all_, all_, 16, 8).seconds for e in range(4)]
    assert [one.tolist() for one in seconds] == [[2.0] * 5, [4.1] * 5, [4 + 5 * 2.0] * 5, [0.0] * 5]
    # Four seeds grow; the one that sent nothing has a mask in common with each of the four.
    assert circle.unmasked(all_, came, 16, 8) == pytest.approx(5 * 4 * 0.01 + 4 * 2 + 4 * (1 + 2))
    assert circle.unmasked(all_, all_, 16, 8) == pytest.approx(5 * 4 * 0.01 + 5 * 2)
