"""Factors of prefix sums: streams beside dense matrices, patterns beside all of them, optima."""

import numpy as np
import pytest
from mutant import mutant
from scipy import optimize
from scipy.linalg import toeplitz

from desim.privacy.correlated import factors

ROUNDS = 13
MADE = {  # name: a factor of so many rounds
    "independent": lambda own, n: own.independent(n),
    "root": lambda own, n: own.root(n),
    "banded root": lambda own, n: own.root(n, 4),
    "banded": lambda own, n: own.banded(n, 4),
    "banded, largest": lambda own, n: own.banded(n, 6, "max"),
    "buffered": lambda own, n: own.buffered(n, 2, 3, 4),
    "growing": lambda own, n: own.Toeplitz(n, np.array([1.0, 0.2, 0.9, 0.0, 0.5])),
    "tree": lambda own, n: own.tree(n),
    "trees": lambda own, n: own.tree(n, 5),
    "powers of 2": lambda own, n: own.tree(n, 4),
}
TREES = ("tree", "trees", "powers of 2")
PATTERNS = [(1, 1), (3, 1), (2, 3), (4, 3), (3, 4), (99, 2), (99, 4)]  # times, apart


@pytest.fixture(params=MADE)
def name(request):
    return request.param


def dense(factor, until=None):
    """C, from what the papers say of it: a row for each node that is over, or Toeplitz."""
    n = factor.rounds if until is None else until
    if not isinstance(factor, factors.Tree):
        c = np.pad(factor.c, (0, max(0, n - len(factor.c))))[:n]
        return np.tril(toeplitz(c))
    rows = []
    for start in range(0, n, factor.every):
        end = min(start + factor.every, n)
        for size in (1, 2, 4, 8, 16):
            for first in range(start, end - size + 1, size):
                rows.append([first <= t < first + size for t in range(n)])
    over = dense(factor).max() if until else 1.0 / np.sqrt(np.sum(rows, axis=0).max())
    return np.array(rows, float) * over


def streamed(factor):
    """W (rounds, draws): what each draw becomes in the noise of each round."""
    draws = [factor.draws(t) for t in range(1, factor.rounds + 1)]
    base, found, at = np.eye(sum(draws)), [], 0
    memory = np.zeros((factor.memory, sum(draws)))
    for t, number in enumerate(draws, 1):
        found.append(factor.noise(t, memory, base[at : at + number]))
        at += number
    return np.array(found)


def worst(c, times, apart):
    """The largest squared norm of so many columns that are so far apart, by trying them all."""
    best, stack = 0.0, [(np.zeros(len(c)), 0, times)]
    while stack:
        total, first, left = stack.pop()
        best = max(best, total @ total)
        if left:
            stack += [(total + c[:, t], t + apart, left - 1) for t in range(first, c.shape[1])]
    return best


def test_noise_is_c_inverse(name):
    """Streams of Toeplitz matrices are C^-1, and what the prefix sums have is B."""
    factor = MADE[name](factors, ROUNDS)
    w = streamed(factor)
    b = np.tril(np.ones((ROUNDS, ROUNDS))) @ w
    if name not in TREES:
        assert np.allclose(w @ dense(factor), np.eye(ROUNDS), atol=1e-12)
    assert np.allclose((b**2).sum(axis=1), factor.errors(), rtol=1e-12)
    assert np.isclose((dense(factor) ** 2).sum(axis=0).max(), 1.0)


def honaker(n):
    """Variances of prefix sums of n rounds, by least squares over all that nodes below tell."""
    sizes, found = [1 << h for h in range(n.bit_length()) if n >> h & 1], 0.0
    for size in sizes:
        height = range(size.bit_length())
        rows = [
            [first <= t < first + (1 << h) for t in range(size)]
            for h in height
            for first in range(0, size, 1 << h)
        ]
        rows = np.array(rows, float)
        ones = np.ones(size)
        found += ones @ np.linalg.solve(rows.T @ rows, ones)
    return found


def test_estimates_from_below_are_least_squares():
    """Of the whole subtree of each node: no linear estimate of it has less variance."""
    tree = factors.tree(ROUNDS, 16)
    expected = [tree.levels * honaker(n) for n in range(1, ROUNDS + 1)]
    assert np.allclose(tree.errors(), expected, rtol=1e-12)
    wrong = mutant(factors, "1.0 / (1.0 + 0.5 / found[-1])", "1.0 / (1.0 + 1.0 / found[-1])")
    assert not np.allclose(wrong.tree(ROUNDS, 16).errors(), expected, rtol=1e-3)


@pytest.mark.parametrize("until", [ROUNDS, 6])
def test_patterns_that_happened(name, until):
    """Equal contributions move C g most, whatever is released so far; others no further."""
    factor, rng = MADE[name](factors, ROUNDS), np.random.default_rng(1)
    c = dense(factor, until if until < ROUNDS else None)
    for taken in ([1], [3], [1, 2, 3], [2, 6], [1, 4, 5, 6]):
        found = factor.growth([t for t in taken if t <= until])[until - 1]
        columns = c[:, np.array(taken) - 1]
        assert np.isclose(found, (columns.sum(axis=1) ** 2).sum(), rtol=1e-12)
        for _ in range(20):
            u = rng.normal(size=(len(taken), 2))
            u /= np.linalg.norm(u, axis=1)[:, None]
            assert ((columns @ u) ** 2).sum() <= found + 1e-12
        if until == ROUNDS:  # who sees prefix sums alone learns no more
            b = np.tril(np.ones((ROUNDS, ROUNDS))) @ streamed(factor)
            moved = (np.tril(np.ones((ROUNDS, ROUNDS)))[:, np.array(taken) - 1]).sum(axis=1)
            seen = moved @ np.linalg.solve(b @ b.T, moved)
            assert seen <= found * (1 + 1e-9)
            assert name in TREES or np.isclose(seen, found, rtol=1e-9)


def bounds(own, name, rounds):
    """Bounds and true maxima of all patterns."""
    factor = MADE[name](own, rounds)
    c = dense(MADE[name](factors, rounds))
    pairs = [(factor.bound(*one), worst(c, *one)) for one in PATTERNS]
    return np.array(pairs).T


@pytest.mark.parametrize("rounds", [9, 12, ROUNDS])
def test_no_pattern_is_above_its_bound(name, rounds):
    """It is the maximum where bands do not overlap, or coefficients never grow."""
    found, true = bounds(factors, name, rounds)
    assert (found >= true * (1 - 1e-12)).all()
    assert (found <= true * (1.3 if name in (*TREES, "growing") else 1 + 1e-12)).all()


def test_trees_of_powers_of_2_have_the_bound():
    """16 rounds, 2 or 4 apart, as often as they can be: no bound is smaller."""
    factor = factors.tree(16)
    for apart in (2, 4):
        assert np.isclose(factor.bound(99, apart), worst(dense(factor), 99, apart))


TWINS = [  # what a wrong bound or pattern takes for true, and where that shows
    ("banded", "(np.diff(self.c) <= 0.0).all()", "True", "growing"),
    ("root of k whatever overlaps", "return self.squared(range(1, times * apart + 1, apart))",
     "return float(times)", "root"),
    ("pairs once", "2.0 * pairs.sum()", "pairs.sum()", "growing"),
    ("only the first column", "for round_ in taken:", "for round_ in list(taken)[:1]:", "root"),
    ("nodes of one contribution", "most = min(times, most_times(1 << height, apart))", "most = 1",
     "tree"),
    ("fewer nodes", "(rest >> height)", "0", "trees"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[one[0] for one in TWINS])
def test_wrong_bounds_are_found(twin):
    """Each is below what some pattern reaches."""
    _, right, wrong, where = twin
    found, true = bounds(mutant(factors, right, wrong), where, ROUNDS)
    assert (found < true * (1 - 1e-9)).any()


@pytest.mark.parametrize(
    "twin",
    [
        ("self.c[lag] * memory[(round_ - lag) % size]", "self.c[lag] * memory[lag - 1]"),
        ("w /= self.c[0]\n", "pass\n"),
        ("estimate - below", "estimate"),
        ("memory += w", "memory += fresh[0]"),
    ],
)
def test_wrong_streams_are_found(twin):
    """Late columns forgotten, a scale forgotten, children added to, buffers of other things."""
    own = mutant(factors, *twin)
    made = [MADE[name](own, ROUNDS) for name in ("banded", "buffered", "tree")]
    b = [np.tril(np.ones((ROUNDS, ROUNDS))) @ streamed(one) for one in made]
    right = [np.allclose((x**2).sum(axis=1), one.errors()) for x, one in zip(b, made, strict=True)]
    assert not all(right)


def test_root_has_landau_s_constants():
    """The error of the root is a sum of squared binomials, ln(n + 3/4) / pi + 1.0662758532."""
    worst_error = np.sqrt(factors.root(3000).errors()[-1])
    assert np.isclose(worst_error, np.log(2999.75) / np.pi + 1.0662758532089143, rtol=1e-8)


@pytest.mark.parametrize("measure", ["mean", "max"])
def test_banded_is_the_optimum(measure):
    """Of other starts and another optimiser, by dense matrices; no gradient is asked."""
    rounds, bands, rng = 40, 4, np.random.default_rng(3)
    of = {"mean": np.mean, "max": np.max}[measure]

    def error(x):
        c = np.tril(toeplitz(np.concatenate([[1.0], np.abs(x), np.zeros(rounds - bands)])))
        b = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(c)
        return of((b**2).sum(axis=1)) * (c**2).sum(axis=0).max()

    found = factors.banded(rounds, bands, measure)
    assert np.isclose(of(found.errors()), error(found.given[1:]), rtol=1e-10)
    options = {"xatol": 1e-8, "fatol": 1e-12, "maxiter": 3000, "maxfev": 3000}
    for _ in range(2):
        x = rng.uniform(0.1, 0.9, bands - 1)
        other = optimize.minimize(error, x, method="Nelder-Mead", options=options)
        assert np.isclose(of(found.errors()), other.fun, rtol=1e-8)
        assert np.allclose(found.given[1:], np.abs(other.x), atol=2e-4)
    assert of(found.errors()) < 0.999 * of(factors.root(rounds, bands).errors())


def test_gradient_is_that_of_differences():
    """Of the error by each coefficient."""
    c = np.array([1.0, 0.5, 0.3, 0.25])
    for measure in ("mean", "max"):
        slope = factors.error_of(c, 30, measure)[1]
        near = optimize.approx_fprime(c, lambda x, m=measure: factors.error_of(x, 30, m)[0], 1e-7)
        assert np.allclose(slope, near, rtol=1e-4)


def test_buffers_are_the_optimum():
    """Of one and two buffers, by another optimiser; more buffers are no worse."""
    rounds, times, apart, rng = 60, 2, 30, np.random.default_rng(5)
    own = [factors.buffered(rounds, n, times, apart) for n in (1, 2, 3)]
    found = [one.errors().mean() * one.bound(times, apart) for one in own]

    def error(x):
        decays = 1.0 / (1.0 + np.exp(-x[2:]))
        given = np.concatenate([[1.0], np.exp(x[:2]) @ decays[:, None] ** np.arange(rounds - 1.0)])
        c = np.tril(toeplitz(given))
        b = np.tril(np.ones((rounds, rounds))) @ np.linalg.inv(c)
        sum_ = c[:, ::apart].sum(axis=1)
        return (b**2).sum(axis=1).mean() * (sum_ @ sum_)

    options = {"xatol": 1e-7, "fatol": 1e-10, "maxiter": 2000, "maxfev": 2000}
    starts = [np.concatenate([np.log(rng.uniform(0.1, 0.5, 2)), [-2.0, 3.0]]) for _ in range(2)]
    others = [optimize.minimize(error, x, method="Nelder-Mead", options=options) for x in starts]
    assert np.isclose(found[1], min(one.fun for one in others), rtol=1e-6)
    assert found[0] > found[1] >= found[2] * (1 - 1e-6)


def test_more_correlation_costs_less_error():
    """One contribution of 128 rounds: by the published order, at one noise multiplier."""
    made = [factors.independent(128), factors.tree(128), factors.root(128),
            factors.banded(128, 128)]  # fmt: skip
    errors = [one.errors().mean() for one in made]
    assert errors == sorted(errors, reverse=True)


def test_coefficients_below_zero_are_refused():
    """Patterns would not be bounded by equal contributions."""
    for given in ([1.0, -0.1], [0.0, 1.0], [0.0]):
        with pytest.raises(ValueError, match=r"coefficients below 0, or 0 first; allowed: >= 0"):
            factors.Toeplitz(5, np.array(given)).c  # noqa: B018
