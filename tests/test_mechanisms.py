"""Mechanisms: the laws of their noise, the terms of their releases, and no draw without a row."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, graph, merged
from mutant import mutant
from scipy import stats

import desim
from desim.numerics import discrete_gaussian
from desim.numerics.discrete_gaussian import draws, exact
from desim.numerics.keys import Stream, laplaces, normals, words
from desim.privacy.accounting import accountants
from desim.privacy.ledger import ledger, mechanisms
from desim.privacy.ledger import ledger as noise_draws
from desim.privacy.ledger.ledger import Ledger, Mechanism, Terms, View
from desim.privacy.ledger.mechanisms import DiscreteGaussian, DynamicZcdp, Gaussian, Laplace, terms

PRIMITIVES = str(Path(__file__).parent / "plugins" / "primitives.py")
ENGINES = pytest.mark.parametrize("engine", ["cohort", "agents"])
ABSENT = np.full(3, np.nan)


def places(agents, round_=5):
    """Addresses (k0, k1, c0) of agents' noise in a round."""
    k0, k1, c0, _ = words(3, Stream.NOISE, agent=np.arange(agents), round=round_)
    return k0, k1, c0


def probabilities(sigma):
    """Integers around 0 and their probabilities under N_Z(0, sigma^2)."""
    k = np.arange(-int(12 * sigma) - 9, int(12 * sigma) + 10)
    weights = np.exp(-(k**2) / (2.0 * sigma**2))
    return k, weights / weights.sum()


def chi_square(sample, sigma):
    """P-value of Pearson's test over the integers expected 10 times or more, and the rest."""
    k, p = probabilities(sigma)
    often = len(sample) * p >= 10.0
    counts = np.array([(sample == one).sum() for one in k[often]])
    observed = np.append(counts, len(sample) - counts.sum())
    expected = np.append(p[often], 1.0 - p[often].sum()) * len(sample)
    if expected[-1] < 1e-9 * len(sample):
        observed, expected = observed[:-1], expected[:-1]
    return stats.chi2.sf(((observed - expected) ** 2 / expected).sum(), len(expected) - 1)


# Seven values of sigma: the least of seven p-values is below 1e-4 with probability 7e-4, once and
# for all as the seed is fixed. A wrong law at 200 000 draws has p = 0 to the last bit.
@pytest.mark.parametrize("sigma", [0.3, 0.5, 1.0, 2.0**0.5, 2.0, 7.3, 40.0])
def test_discrete_gaussian_draws_have_their_law(sigma):
    drawn = draws(*places(200), np.full(200, sigma), 1000).ravel()
    assert chi_square(drawn, sigma) > 1e-4


def test_a_rounded_normal_is_not_a_discrete_gaussian():
    rounded = np.rint(0.5 * normals(3, Stream.USER, agent=np.arange(200), size=1000)).ravel()
    assert chi_square(rounded, 0.5) < 1e-99
    k, p = probabilities(0.5)
    assert p[k == 0][0] == pytest.approx(0.786571, abs=5e-7)
    assert stats.norm.cdf(1.0) - stats.norm.cdf(-1.0) == pytest.approx(0.682689, abs=5e-7)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("beyond = abs(k) - sigma * sigma / t", "beyond = abs(k) - sigma"),
        ("if negative and k == 0:\n            continue\n        return TRUE", "return TRUE"),
        ("return k % 2, n", "return (k + 1) % 2, n"),
    ],
)
def test_a_wrong_sampler_is_noticed(right, wrong):
    source = Path(discrete_gaussian.__file__).read_text()
    assert source.count(right) == 1
    assert chance_of_draws(source) >= 1e-4
    assert chance_of_draws(source.replace(right, wrong)) < 1e-4


@cache
def chance_of_draws(source):
    """How likely by chi-square 4000 draws of a kernel of this source are, as plain Python."""
    space = {"__name__": "twin"}
    exec(compile(source.replace("@kernel\n", "").replace("@inline\n", ""), "<twin>", "exec"), space)
    k0, k1, c0 = places(1)
    draw = space["discrete_gaussian"]
    return chi_square(np.array([draw(k0, k1[0], c0[0], j, 2.0, 1e-13) for j in range(4000)]), 2.0)


@pytest.mark.parametrize("sigma", [0.4, 1.0, 2.0**0.5, 3.0, 777.7])
def test_the_kernel_draws_what_exact_arithmetic_draws(sigma):
    k0, k1, c0 = places(1)
    fast = draws(k0, k1, c0, np.array([sigma]), 150)[0]
    slow = [exact(k0, k1[0], c0[0], j, sigma) for j in range(150)]
    np.testing.assert_array_equal(fast, slow)


def test_a_doubtful_coin_is_tossed_again_with_fractions():
    """A guard so wide that every draw is doubtful changes no bit; in the kernel alone it shows."""
    k0, k1, c0 = places(2)
    sigma = np.array([1.3, 0.0])
    wide = draws(k0, k1, c0, sigma, 100, guard=0.6)
    np.testing.assert_array_equal(wide, draws(k0, k1, c0, sigma, 100))
    assert (wide[1] == 0).all()
    out = np.empty((2, 100), np.int64)
    discrete_gaussian.fill(k0, k1, c0, sigma, 0.6, out)
    assert (out[0] == discrete_gaussian.UNSURE).mean() > 0.9


def named(book):
    """The mechanisms of all rows of a ledger, in words."""
    column = book.take(1.0)["mechanism"]
    return [column.words[code] for code in column.codes]


def test_each_mechanism_draws_its_own_noise():
    """Rows `where` only; discrete noise moves values from level to level."""
    who, rounds, where = np.arange(3), np.full(3, 4), np.array([True, False, True])
    value = np.full((3, 6), 0.26)
    out = {}
    for kind in (Mechanism.GAUSSIAN, Mechanism.LAPLACE, Mechanism.DISCRETE_GAUSSIAN):
        book = Ledger(9, 3)
        cost = Terms(kind, View.NEIGHBOURS, np.ones(3), np.full(3, 0.5), ABSENT, 0.1)
        out[kind], ids = book.release(np.zeros(3), who, rounds, 1, value, cost, where)
        assert list(ids >= 0) == [True, False, True]
        assert named(book) == [kind.name.lower().replace("_", "-")] * 2
    place = {"agent": who, "round": 4, "step": 1 << 24, "size": 6}
    gauss = value + 0.5 * normals(9, Stream.NOISE, **place) * where[:, None]
    np.testing.assert_array_equal(out[Mechanism.GAUSSIAN], gauss)
    double = value + 0.5 * laplaces(9, Stream.NOISE, **place) * where[:, None]
    np.testing.assert_array_equal(out[Mechanism.LAPLACE], double)
    levels = out[Mechanism.DISCRETE_GAUSSIAN] / 0.1
    np.testing.assert_allclose(levels, np.rint(levels), atol=1e-9)
    np.testing.assert_array_equal(levels[1].round(), 3.0)
    assert np.abs(levels[0] - 3.0).max() > 1.0


def test_discrete_noise_on_values_off_the_lattice_would_tell_them(monkeypatch):
    wrong = mutant(
        noise_draws, "levels = np.rint(value / resolution)", "levels = value / resolution"
    )
    value, ones = np.array([[0.26]]), np.ones(1)
    place = (9, np.zeros(1, np.int64), np.ones(1, np.int64), 0, ones, ones > 0, value, 0.1)
    for module, tells in ((noise_draws, False), (wrong, True)):
        offset = np.mod(module.add_discrete(*place)[0, 0] + 1e-9, 0.1)
        assert (offset > 1e-6) == tells


def test_terms_turn_an_l2_sensitivity_into_the_mechanism_s():
    reach = np.array([2.0, 0.0, np.inf])
    of = {
        noise: terms(noise, View.NEIGHBOURS, 3, reach, 4)
        for noise in (Gaussian(0.5, 0.81), Laplace(0.5, 0.81), DiscreteGaussian(0.5, 0.81, 0.1))
    }
    gauss, double, discrete = of.values()
    np.testing.assert_array_equal(gauss.sensitivity, reach)
    np.testing.assert_allclose(gauss.scale, 0.5 * 0.81)
    np.testing.assert_array_equal(double.sensitivity, [4.0, 0.0, np.inf])  # sqrt(4) L2
    np.testing.assert_allclose(double.scale, 0.5 * 0.81 / np.sqrt(2.0))
    np.testing.assert_allclose(discrete.sensitivity, [2.2, 0.0, np.inf])  # + 0.1 sqrt(4)
    assert (discrete.resolution, discrete.mechanism.name) == (0.1, "DISCRETE_GAUSSIAN")
    paper = terms(DynamicZcdp(0.02, 0.9), View.NEIGHBOURS, 3, np.array([2.0]), 4)
    np.testing.assert_allclose(2.0 / (2.0 * paper.scale**2) * 2.0, 0.02 / 0.9**2)
    bare = terms(None, View.NEIGHBOURS, 3, reach, 4)
    assert (bare.mechanism, *bare.scale) == (Mechanism.NONE, 0.0, 0.0, 0.0)


def test_rounding_to_levels_moves_values_apart_by_what_the_terms_say():
    """Over pairs at distance 1: at most 1 + resolution sqrt(dim), and more than 1 for some."""
    first = normals(1, Stream.USER, agent=np.arange(20000), size=3)
    towards = normals(2, Stream.USER, agent=np.arange(20000), size=3)
    second = first + towards / np.linalg.norm(towards, axis=1, keepdims=True)
    apart = np.linalg.norm(0.4 * (np.rint(first / 0.4) - np.rint(second / 0.4)), axis=1)
    cost = terms(DiscreteGaussian(1.0, 1.0, 0.4), View.NEIGHBOURS, 1, np.ones(1), 3)
    assert 1.2 < apart.max() <= cost.sensitivity[0]
    wrong = mutant(mechanisms, "sensitivity + step, 0.0", "sensitivity, 0.0")
    cost = wrong.terms(wrong.DiscreteGaussian(1.0, 1.0, 0.4), View.NEIGHBOURS, 1, np.ones(1), 3)
    assert apart.max() > cost.sensitivity[0]


@pytest.mark.parametrize("name", ["nfl-laplace", "nfl-discrete"])
def test_what_is_announced_is_on_the_wire(name):
    """The neighbours' copy w differs from the model x by the noise that the rows declare."""
    done = desim.run(CASES[name])
    row = done.releases.iloc[-1]
    noise = (done.state["w"] - done.state["x"])[int(row.agent)]
    if name == "nfl-laplace":
        unit = laplaces(5, Stream.NOISE, agent=int(row.agent), round=12, size=4)
        np.testing.assert_allclose(noise, row.scale * unit, atol=1e-12)
        assert row.scale == pytest.approx(0.1 / np.sqrt(2.0))
    else:
        levels = done.state["w"] / 0.01
        np.testing.assert_allclose(levels, np.rint(levels), atol=1e-6)
        assert row.sensitivity == pytest.approx(0.18018018 + 0.01 * 2.0)


def primitives(way, engine="cohort", rounds=3):
    scenario = graph(stop={"rounds": rounds}, algorithm={"name": "primitives", "way": way})
    del scenario["privacy"]
    return desim.run({**scenario, "plugins": [PRIMITIVES], "engine": engine})


@ENGINES
def test_what_is_computed_and_sent_without_a_release_is_charged_as_bare(engine):
    done = primitives("nothing", engine)
    assert (done.releases.mechanism == "none").all()
    assert np.isinf(done.releases.sensitivity).all()
    assert len(done.releases) == 8 * 3
    sent = done.events[done.events.kind == "send"]
    assert set(sent.release) == set(done.releases.release)
    assert len(primitives("idle", engine).releases) == 0  # a constant reveals nothing


@ENGINES
def test_noise_before_a_computation_is_charged_when_its_outcome_is_sent(engine):
    done = primitives("perturbation", engine)
    assert (done.releases.mechanism == "objective-perturbation").all()
    assert len(done.releases) == 8 * 3
    assert (done.releases.delivered == 3).all()
    sent = done.events[done.events.kind == "send"].groupby("release").time.first()
    np.testing.assert_array_equal(sent[done.releases.release], done.releases.time)
    drawn = normals(5, Stream.NOISE, agent=np.arange(8), round=3, size=4)
    np.testing.assert_array_equal(done.state["noise"], 2.0 * drawn)
    both = primitives("both", engine).releases
    assert both.mechanism.value_counts().to_dict()["gaussian"] == 24
    assert both.release.is_unique
    assert (both.delivered == 3).all()


def test_noise_that_leads_to_no_message_costs_nothing():
    """The run ends between the draw and the message of some agents."""
    whole = primitives("perturbation")
    end = float(whole.releases.time.sort_values().iloc[12])
    scenario = graph(stop={"time": end}, algorithm={"name": "primitives", "way": "perturbation"})
    del scenario["privacy"]
    for engine in ("cohort", "agents"):
        cut = desim.run({**scenario, "plugins": [PRIMITIVES], "engine": engine})
        assert len(cut.releases) == 13
        assert np.isfinite(cut.releases.time).all()


@ENGINES
def test_every_answer_of_a_sparse_vector_is_charged(engine):
    done = primitives("answer", engine, rounds=12)
    answers = done.releases[done.releases.mechanism == "sparse-vector"]
    assert len(answers) == 8 * 12
    assert (answers.scale == 3.0).all()  # the larger of query 2 and threshold 3
    spoken = done.releases[done.releases.mechanism == "gaussian"]
    assert 0 < len(spoken) < 8 * 12
    noise = laplaces(5, Stream.NOISE, agent=np.arange(8)[:, None], round=np.arange(1, 13), size=2)
    margin = noise @ [2.0, -3.0]
    told = np.zeros((8, 12), bool)
    told[spoken.agent, spoken["round"] - 1] = True
    assert (margin[told].min() - margin[~told].max()) > -20.0
    assert margin[told].mean() > margin[~told].mean()


@ENGINES
def test_the_same_bits_again_are_one_release_and_other_bits_ruin_it(engine):
    same = primitives("same", engine).releases
    assert same.release.nunique() == 8
    assert (same.mechanism == "gaussian").all()
    epsilon = accountants.account(same, rows=np.full(8, 6)).final
    once = accountants.account(same[same["round"] == 1], rows=np.full(8, 6)).final
    np.testing.assert_array_equal(epsilon, once)
    other = primitives("other", engine).releases
    assert (other.mechanism == "reused").sum() == 8 * 2
    assert np.isinf(accountants.account(other, rows=np.full(8, 6)).final).all()


def test_a_ledger_that_forgets_its_draws_is_noticed():
    wrong = mutant(ledger, "if before == asked:", "if True:")
    cost = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, np.ones(1), np.ones(1), np.full(1, np.nan))
    for module, words_ in ((ledger, ["gaussian", "reused"]), (wrong, ["gaussian", "gaussian"])):
        book, who = module.Ledger(1, 1), np.zeros(1, np.int64)
        for k in (1, 2):
            rounds, value = np.full(1, k), np.full((1, 2), float(k))
            book.release(np.zeros(1), who, rounds, 0, value, cost, np.ones(1, bool), draw=4)
        assert named(book) == words_


def test_numbered_noise_is_no_round_s_own():
    book, who = Ledger(1, 1), np.zeros(1, np.int64)
    cost = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, np.ones(1), np.ones(1), np.full(1, np.nan))
    place = (np.zeros(1), who, np.ones(1, np.int64), 0, np.zeros((1, 2)), cost, np.ones(1, bool))
    own, numbered = book.release(*place)[0], book.release(*place, draw=1)[0]
    again = book.release(*place, draw=1)[0]
    assert (own != numbered).all()
    np.testing.assert_array_equal(numbered, again)


def test_a_call_has_its_noise_once():
    scenario = merged(CASES["plt-noisy"], {"engine": "cohort"})
    simulation = desim.scenario.build.build(desim.load(scenario))
    train = simulation.method.train

    def twice(us, y):
        train(us, y)
        return train(us, y)

    simulation.method.train = twice
    with pytest.raises(RuntimeError, match="asks twice for its noise"):
        simulation.play(desim.log.parquet.Tables())
