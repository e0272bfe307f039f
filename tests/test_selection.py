"""The price of the best of a random number of runs: by two other ways, and the papers' numbers."""

import math
import warnings

import numpy as np
import pytest
from mutant import mutant
from scipy import integrate

import desim
from desim.errors import InputError
from desim.privacy.accounting import selection as module
from desim.privacy.accounting.renyi import ORDERS, epsilon_of_divergences, pure
from desim.privacy.accounting.selection import (
    best_of,
    delta_of_divergences,
    drawn,
    gamma_of,
    mean_of,
    pure_best_of,
)  # fmt: skip

LAWS = {"geometric": 1.0, "logarithmic": 0.0, "poisson": math.inf}


def peer(divergences, law, mean):
    """The same by dp_accounting."""
    from dp_accounting.rdp import rdp_privacy_accountant

    compute = rdp_privacy_accountant._compute_rdp_repeat_and_select
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return np.asarray(compute(ORDERS, divergences, mean, LAWS[law]))


def held_to_the_peer(best_of):
    for rho in (0.02, 1.0):
        for law in LAWS:
            for mean in (1.5, 60.0):
                mine, other = best_of(rho * ORDERS, law, mean), peer(rho * ORDERS, law, mean)
                if law != "poisson":
                    np.testing.assert_allclose(mine, other, rtol=1e-6)
                    continue
                # the peer bounds delta by the total variation, too, and has no monotone envelope
                delta = 1e-5
                one, two = (float(epsilon_of_divergences(x, delta)) for x in (mine, other))
                assert one <= two * (1.0 + 1e-3) + 1e-9
                assert one >= 0.9 * two


def test_divergences_are_those_of_another_library():
    held_to_the_peer(best_of)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(1.0 + eta) * other.min()", "other.min()"),
        ("math.log(mean) / (ORDERS - 1.0)  # Theorem 2", "math.log(mean) / ORDERS"),
        ("(1.0 - 1.0 / ORDERS) * spent", "spent"),
        ("math.log(1.0 / gamma) / ORDERS", "0.0 * ORDERS"),
        ("spent + mean * delta", "spent + 0.1 * delta"),
    ],
)
def test_a_wrong_price_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        held_to_the_peer(mutant(module, right, wrong).best_of)


def probabilities(law, mean):
    """P(K = k), k = 1, 2, ..., by Definition 1 of Papernot and Steinke; far enough to sum to 1."""
    gamma, k = gamma_of(mean, law), np.arange(1, 200_001)
    if law == "geometric":
        return gamma * (1 - gamma) ** (k - 1)
    return (1 - gamma) ** k / (k * math.log(1 / gamma))


@pytest.mark.parametrize("law", ["geometric", "logarithmic"])
def test_laws_have_the_mean_that_is_asked_for(law):
    for mean in (1.2, 5.0, 60.0):
        p = probabilities(law, mean)
        assert p.sum() == pytest.approx(1.0, abs=1e-9)
        assert (p * np.arange(1, len(p) + 1)).sum() == pytest.approx(mean, rel=1e-6)
        assert mean_of(gamma_of(mean, law), law) == pytest.approx(mean)


def test_numbers_of_runs_follow_the_law():
    for law in LAWS:
        many = np.array([drawn(law, 5.0, np.random.default_rng([1, n])) for n in range(2000)])
        # deviations: sqrt(20), sqrt(5), and about 8 of the logarithmic law
        assert abs(many.mean() - 5.0) < 5 * 8.0 / math.sqrt(2000)
        assert many.min() == (0 if law == "poisson" else 1)


def test_pure_epsilons_cost_two_or_three_times():
    assert pure_best_of(0.5, "geometric") == 1.5  # Papernot and Steinke, Corollary 3
    assert pure_best_of(0.5, "logarithmic") == 1.0
    assert pure_best_of(0.5, "poisson") == math.inf
    # and the divergences come to the same at the largest orders, but for log(mean) / (order - 1)
    for law, times in (("geometric", 3.0), ("logarithmic", 2.0)):
        last = best_of(pure(np.array([0.5]))[0], law, 1e6)[-1]
        assert last == pytest.approx(0.5 * times, rel=0.01)


def best_curve(mu, law, mean, order):
    """The divergence of the best of K scores N(0, 1) from that of N(mu, 1), by integration.

    The released score's density is the mixture over K of k F^(k - 1) f: an exact pair, which no
    bound may undercut.
    """
    p = probabilities(law, mean)[:4000]
    k = np.arange(1, len(p) + 1)

    def density(x, shift):
        f = math.exp(-0.5 * (x - shift) ** 2) / math.sqrt(2 * math.pi)
        cdf = 0.5 * math.erfc(-(x - shift) / math.sqrt(2))
        return f * float((p * k * cdf ** (k - 1)).sum())

    def integrand(x):
        return density(x, mu) ** order * density(x, 0.0) ** (1 - order)

    found = integrate.quad(integrand, -6, 9, limit=200)[0]
    return math.log(found) / (order - 1)


@pytest.mark.parametrize("law", ["geometric", "logarithmic"])
def test_bounds_hold_of_a_pair_that_is_known_exactly(law):
    mu = 0.7
    bound = best_of(0.5 * mu * mu * ORDERS, law, 6.0)
    for order in (1.5, 2.0, 4.0):
        exact = best_curve(mu, law, 6.0, order)
        assert 0.5 * mu * mu * order < exact  # selection does cost
        assert exact <= bound[np.argmin(abs(ORDERS - order))]


def test_delta_is_the_inverse_of_epsilon():
    total = 0.02 * ORDERS
    epsilon = float(epsilon_of_divergences(total, 1e-6))
    assert delta_of_divergences(total, epsilon) == pytest.approx(1e-6, rel=1e-9)


def test_laws_that_are_none_are_refused():
    with pytest.raises(InputError, match="law: found 'fixed'"):
        best_of(ORDERS, "fixed", 3.0)


def charged(law, tmp_path, **changes):
    """A tuner of real noise whose data and test rows are the same in all runs."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(4, 10, 3))
    A /= np.linalg.norm(A, axis=2, keepdims=True)
    test = rng.normal(size=(20, 3))
    w = np.array([1.0, -1.0, 0.5])
    np.savez(tmp_path / "d.npz", A=A, b=np.sign(A @ w), test_A=test, test_b=np.sign(test @ w))
    base = {
        "seed": 1,
        "problem": {
            "data": {"source": "npz", "file": str(tmp_path / "d.npz")}, "loss": "logistic",
            "regularizer": {"l2": 1.0}, "clip": 1.0,
        },
        "algorithm": {
            "name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2, "tau": 0.5},
        },
        "privacy": {"relation": "replace-one", "view": "coordinator"},
        "observe": {"metrics": ["accuracy", "loss"]}, "stop": {"rounds": 3},
    }  # fmt: skip
    tune = {
        "vary": {"algorithm.local.tau": [0.5, 1.0]}, "until": {"accuracy": 0.6}, "seeds": 3,
        "charge": {"law": law, "mean": 4}, **changes,
    }  # fmt: skip
    return {"name": "charged", "base": base, "tune": tune}


@pytest.mark.parametrize("law", ["geometric", "poisson"])
def test_the_best_run_s_release_is_priced(law, tmp_path):
    made = desim.tune(charged(law, tmp_path), workers=0)
    price, runs = made.price, made.runs
    assert len(set(runs["seed"])) == len(runs) == price.runs == len(made.candidates)
    assert set(runs["seed"]) == set(range(3, 3 + len(runs)))
    again = [
        desim.run(desim.load(charged(law, tmp_path)["base"],
                             {"algorithm.local.tau": row["algorithm.local.tau"],
                              "seed": row["seed"]}))
        for row in runs.to_dict("records")
    ]  # fmt: skip
    mu2 = max(
        run.releases.groupby("agent")
        .apply(lambda rows: ((rows["sensitivity"] / rows["scale"]) ** 2).sum()).max()
        for run in again
    )  # fmt: skip
    expected = epsilon_of_divergences(best_of(0.5 * mu2 * ORDERS, law, 4.0), price.delta)
    assert price.best == pytest.approx(float(expected), rel=1e-9)
    assert price.one < price.best
    text = made.text()
    assert "releasing the best of" in text
    assert "view coordinator, replace-one, delta 1e-05, Papernot and Steinke (2022)" in text
    assert "which no epsilon here pays for" not in text


def test_what_cannot_be_priced_is_refused(tmp_path):
    wrong = charged("geometric", tmp_path, until={"loss": 1.0})
    with pytest.raises(InputError, match="would be one more release"):
        desim.tune(wrong)
    wrong = charged("geometric", tmp_path)
    del wrong["base"]["privacy"]
    wrong["base"]["algorithm"]["local"] = {"solver": "gradient", "epochs": 2}
    wrong["tune"]["vary"] = {"algorithm.rho": [1.0, 2.0]}
    with pytest.raises(InputError, match=r"tune.charge: found no privacy"):
        desim.tune(wrong)
    wrong = charged("geometric", tmp_path)
    wrong["base"]["problem"] |= {
        "data": {"source": "sklearn", "name": "breast_cancer", "test": "20 %", "normalize": "clip"},
        "agents": 4,
    }
    with pytest.raises(InputError, match="one run tests what another one trains on"):
        desim.tune(wrong)
