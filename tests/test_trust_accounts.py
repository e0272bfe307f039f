"""Epsilons of a trusted coordinator's sums: those of dp-accounting and of quadrature.

Wrong twins: a replaced agent that moves a sum as far as one that is left out, a pair of laws the
wrong way round, a draw that amplifies what it is no theorem about.
"""

import math
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest
from dp_accounting import dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.privacy_accountant import NeighboringRelation
from mutant import mutant
from scipy import integrate, optimize, stats

from desim.engine.trusted import Quantile, Trust
from desim.privacy.accounting import gaussian, prices, trusted_sums
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import Kind, epsilon_of
from desim.privacy.accounting.loss_distribution import epsilon_pld
from desim.privacy.accounting.prices import ORDERS, Tally, poisson_gaussian
from desim.privacy.accounting.views import read_view
from desim.privacy.ledger.mechanisms import Gaussian, Mechanism
from desim.scenario.trusting import planned

AGENTS = 50
MODELS = ("participants", "final-model", "neighbour:3", "collusion:[1, 2]")


def settings(rounds, agents=AGENTS):
    """As much of a run's settings as its plan needs."""
    problem = SimpleNamespace(agents=agents, rows=np.full(agents, 7))
    return SimpleNamespace(rounds=rounds, problem=problem)


def trust(z, law=Mechanism.SUM, share=np.nan, adaptive=None, clip=0.3):
    """A trusted coordinator with noise of this multiplier."""
    return Trust(clip, Gaussian(z), 10.0, True, adaptive, law, share)


def spent(one, rounds, view="participants", relation="add-or-remove-agent", delta=1e-5):
    """The account of all rounds."""
    return planned(settings(rounds), one, delta, view, relation)


def cases(number, seed=0):
    """Random multipliers, shares, rounds and deltas."""
    rng = np.random.default_rng(seed)
    for _ in range(number):
        z, share = 10 ** rng.uniform(-0.2, 0.9), 10 ** rng.uniform(-2.5, -0.1)
        yield (
            float(z),
            float(share),
            int(10 ** rng.uniform(0, 2.3)),
            float(10 ** -rng.uniform(4, 8)),
        )


def theirs(z, share, rounds, delta):
    """Epsilon of as many Poisson sampled Gaussians, by dp-accounting's loss distributions."""
    one = pld.from_gaussian_mechanism(
        z, sampling_prob=share, value_discretization_interval=min(5e-4, share / z / 10),
        neighboring_relation=pld.NeighborRel.ADD_OR_REMOVE_ONE,
    )  # fmt: skip
    return one.self_compose(rounds).get_epsilon_for_delta(delta)


@pytest.mark.parametrize(("z", "share", "rounds", "delta"), list(cases(14)))
def test_poisson_sums_cost_what_dp_accounting_says(z, share, rounds, delta):
    found = spent(trust(z, Mechanism.POISSON_SUM, share), rounds, delta=delta)
    expected = theirs(z, share, rounds, delta)
    assert found.method == "PLD"
    assert found.worst == pytest.approx(expected, rel=2e-3, abs=2e-4)
    assert np.ptp(found.final) == 0.0
    noise = Quantile(0.5, 0.2, z)  # half of it is below the multiplier
    adaptive = spent(trust(z, Mechanism.POISSON_SUM, share, noise), rounds, delta=delta)
    assert adaptive.worst == pytest.approx(found.worst, rel=1e-9)


def test_poisson_divergences_are_those_of_dp_accounting():
    orders = [2.0, 3.0, 8.0, 32.0, 256.0]
    for z, share, _, _ in cases(40, 1):
        own = rdp.RdpAccountant(orders)
        own.compose(dp_event.PoissonSampledDpEvent(share, dp_event.GaussianDpEvent(z)))
        found = poisson_gaussian(1.0 / z, share)[[int(np.argmin(abs(ORDERS - o))) for o in orders]]
        expected = np.array(own._rdp)
        exact = (np.array(orders) / z <= prices.REACH) & (expected > 1e-9)  # their series cancel
        assert np.allclose(found[exact], expected[exact], rtol=1e-4)
        assert (found >= expected * (1 - 1e-4))[expected > 1e-9].all()


def mixed_delta(epsilon, a, share, back):
    """Delta of (1 - q) N(0) + q N(a) from N(0), or back, at epsilon, by quadrature."""

    def part(x):
        plain, moved = stats.norm.pdf(x), stats.norm.pdf(x - a)
        both = (1 - share) * plain + share * moved
        one, other = (plain, both) if back else (both, plain)
        return max(one - math.exp(epsilon) * other, 0.0)

    kinks = []
    grid = np.linspace(-12, 12 + a, 4001)
    signs = np.sign([_excess(x, epsilon, a, share, back) for x in grid])
    for k in np.flatnonzero(signs[1:] != signs[:-1]):
        kinks.append(optimize.brentq(_excess, grid[k], grid[k + 1], (epsilon, a, share, back)))
    ends = [-12.0, *kinks, 12.0 + a]
    return sum(integrate.quad(part, *pair, epsabs=1e-14)[0] for pair in pairwise(ends))


def _excess(x, epsilon, a, share, back):
    ratio = np.log1p(share * np.expm1(a * x - 0.5 * a * a))
    return (-ratio if back else ratio) - epsilon


@pytest.mark.parametrize("back", [False, True])
def test_profiles_are_those_of_quadrature(back):
    for a, share in ((0.3, 0.5), (1.2, 0.1), (2.0, 0.02), (0.8, 0.9)):
        kind = Kind("poisson-back" if back else "poisson", a, share)
        for epsilon in (0.0, 0.01, 0.05, 0.4, 1.5):
            own = gaussian.profile(kind, np.array([epsilon]))[0]
            assert own == pytest.approx(mixed_delta(epsilon, a, share, back), abs=1e-11)
    wrong = mutant(gaussian, "weight = kind.share * np.exp(loss[inside]) * left", "weight = left")
    kind = wrong.Kind("poisson-back", 1.2, 0.1)
    assert wrong.profile(kind, np.array([0.01]))[0] > 2 * mixed_delta(0.01, 1.2, 0.1, True)


def test_the_dearer_way_round_counts():
    tally = Tally(0.0, ((Kind("poisson", 0.9, 0.2), 20),))
    back = Tally(0.0, ((Kind("poisson-back", 0.9, 0.2), 20),))
    assert epsilon_pld(tally, 1e-5) == epsilon_pld(back, 1e-5)


@pytest.mark.parametrize(("z", "share", "rounds", "delta"), list(cases(14, 2)))
def test_fixed_numbers_lie_between_one_way_and_dp_accounting(z, share, rounds, delta):
    number = max(1, round(share * AGENTS))
    share = number / AGENTS
    if number == AGENTS:
        return
    one = trust(z, Mechanism.SUBSET_SUM, share)
    found = spent(one, rounds, "final-model", "agent", delta).worst
    known = float(epsilon_of(2 * math.sqrt(rounds) / z, delta))
    orders = [1.25, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 128, 256]
    bound = rdp.RdpAccountant(orders, NeighboringRelation.REPLACE_ONE)
    event = dp_event.SampledWithoutReplacementDpEvent(
        AGENTS, number, dp_event.GaussianDpEvent(0.5 * z)
    )
    bound.compose(event, rounds)
    least = epsilon_pld(Tally(0.0, ((Kind("poisson", 2 / z, share), rounds),)), delta)
    assert found <= min(known * (1 + 1e-6), bound.get_epsilon(delta))
    if not math.isnan(least):
        assert found >= min(least, known) * (1 - 1e-4)
    record = spent(one, rounds, "final-model", "replace-one", delta).worst
    assert record == found
    agent = spent(one, rounds, "participants", "agent", delta).worst
    fewer = trust(z, Mechanism.SUBSET_SUM, number / (AGENTS - 1))
    assert agent == pytest.approx(spent(fewer, rounds, "final-model", "agent", delta).worst)
    assert agent >= found
    two = spent(one, rounds, "collusion:[1, 2]", "agent", delta).final
    assert (two[[1, 2]] == 0.0).all()
    assert two[0] >= agent


@pytest.mark.parametrize("view", MODELS)
@pytest.mark.parametrize(
    ("relation", "moves"),
    [("agent", 2), ("add-or-remove-agent", 1), ("replace-one", 2), ("add-or-remove-one", 2)],
)
def test_known_sums_are_exact(view, relation, moves):
    for z, share, rounds, delta in cases(12, 3):
        for law in (Mechanism.SUM, Mechanism.POISSON_SUM, Mechanism.SUBSET_SUM):
            poisson = law == Mechanism.POISSON_SUM and relation == "add-or-remove-agent"
            subset = law == Mechanism.SUBSET_SUM and relation in ("agent", "replace-one")
            if poisson or subset:
                continue
            drawn = np.nan if law == Mechanism.SUM else share
            found = spent(trust(z, law, drawn), rounds, view, relation, delta)
            expected = epsilon_of(moves * math.sqrt(rounds) / z, delta)
            assert found.final[0] == pytest.approx(expected, rel=1e-9)
            assert found.method == "exact GDP"
            none = any(flag.startswith("no amplification") for flag in found.flags)
            assert none == (law != Mechanism.SUM)
            assert found.unit == ("agent" if "agent" in relation else "record")


@pytest.mark.parametrize("view", ["eavesdropper", "coordinator"])
def test_who_sees_replies_has_no_amplification_and_no_noise(view):
    found = spent(trust(5.0, Mechanism.POISSON_SUM, 0.01), 3, view)
    assert math.isinf(found.worst)
    assert trusted_sums.TRUSTED in found.flags


def test_wrong_twins_are_found():
    wrong = mutant(prices, "0.5 if left_out else 1.0", "0.5")
    table = {
        "agent": np.zeros(1, np.int64), "mechanism": _words("sum"), "sampling": np.array([np.nan]),
        "sensitivity": np.array([2.0]), "scale": np.array([1.0]),
    }  # fmt: skip
    right, twin = (one.prices(table, None, "agent").mu2[0] for one in (prices, wrong))
    assert (right, twin) == (4.0, 1.0)
    sums = {**table, "sampling": np.array([0.1]), "mechanism": _words("subset-sum")}
    assert trusted_sums.law_of(sums, "agent") == "subset-sum"
    assert trusted_sums.law_of(sums, "add-or-remove-agent") == ""
    poisson = {**sums, "mechanism": _words("poisson-sum")}
    assert trusted_sums.law_of(poisson, "add-or-remove-agent") == "poisson-sum"
    for relation in ("agent", "replace-one", "add-or-remove-one"):
        assert trusted_sums.law_of(poisson, relation) == ""
        assert prices.prices(poisson, None, relation).mu2[0] == 4.0
    local = {**table, "mechanism": _words("clipped-gaussian")}
    assert np.isinf(prices.prices(local, np.array([3]), "add-or-remove-agent").mu2[0])


def _words(name):
    from desim.columns import Words

    return Words(np.zeros(1, np.int8), [name])


def test_a_stored_table_and_its_plan_agree():
    one, rounds = trust(1.3), 5
    found = spent(one, rounds)
    assert found.final[0] == pytest.approx(epsilon_of(math.sqrt(rounds) / 1.3, 1e-5))
    assert (found.final[1:] == 0.0).all()
    curve = found.curve[found.curve["agent"] == 0]
    steps = epsilon_of(np.sqrt(np.arange(1, rounds + 1)) / 1.3, 1e-5)
    assert curve["epsilon"].to_numpy() == pytest.approx(steps)
    assert str(read_view("participants")) == "participants"
    assert account is not None
