"""The price of the best of a random number of runs: by two other ways, and the papers' numbers."""

import math
import warnings

import numpy as np
import pytest
from mutant import mutant
from scipy import integrate

import desim
from desim.errors import InputError
from desim.experiments.tuning import candidates
from desim.experiments.tuning.candidates import number_of_runs, planned, price
from desim.privacy.accounting import selection as module
from desim.privacy.accounting.gaussian import Kind, delta_of
from desim.privacy.accounting.loss_distribution import delta_at
from desim.privacy.accounting.prices import LOST, ORDERS, Tally, epsilon_of_divergences, pure
from desim.privacy.accounting.selection import (
    SMALL,
    best_of,
    delta_of_divergences,
    drawn,
    gamma_of,
    mean_of,
    pure_best_of,
)  # fmt: skip
from desim.runs.joint import joint
from desim.scenario import study_file

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
    p = None if law == "poisson" else probabilities(law, mean)[:4000]
    k = None if p is None else np.arange(1, len(p) + 1)

    def density(x, shift):
        f = math.exp(-0.5 * (x - shift) ** 2) / math.sqrt(2 * math.pi)
        cdf = 0.5 * math.erfc(-(x - shift) / math.sqrt(2))
        if p is None:
            return f * mean * math.exp(-mean * (1.0 - cdf))
        return f * float((p * k * cdf ** (k - 1)).sum())

    def integrand(x):
        return density(x, mu) ** order * density(x, 0.0) ** (1 - order)

    found = integrate.quad(integrand, -6, 9, limit=200)[0]
    found += math.exp(-mean) if p is None else 0.0  # of no run nothing is released
    return math.log(found) / (order - 1)


@pytest.mark.parametrize("law", ["geometric", "logarithmic", "poisson"])
def test_bounds_hold_of_a_pair_that_is_known_exactly(law):
    mu = 0.7
    bound = best_of(0.5 * mu * mu * ORDERS, law, 6.0, delta_of(SMALL, mu))
    wrong = mutant(module, "spent + mean * delta", "spent")
    if law == "poisson":
        short = wrong.best_of(0.5 * mu * mu * ORDERS, law, 1.0, delta_of(SMALL, mu))
        assert best_curve(mu, law, 6.0, 1.5) > short[np.argmin(abs(ORDERS - 1.5))]
    for order in (1.5, 2.0, 4.0):
        exact = best_curve(mu, law, 6.0, order)
        assert 0.5 * mu * mu * order < exact  # selection does cost
        assert exact <= bound[np.argmin(abs(ORDERS - order))]


def test_the_law_of_poisson_is_priced_by_the_exact_curve():
    divergences = 0.5 * 0.5**2 * ORDERS
    loose, exact = (
        float(epsilon_of_divergences(best_of(divergences, "poisson", 20.0, deltas), 1e-5))
        for deltas in (None, delta_of(SMALL, 0.5))
    )
    assert loose == pytest.approx(7.396, abs=1e-3)
    assert exact == pytest.approx(5.590, abs=1e-3)


def test_delta_of_releases_is_the_least_of_what_is_known_of_them():
    gauss = Tally(0.25, (), 0.25, np.inf, 0.5 * 0.25 * ORDERS)
    assert np.array_equal(delta_at(gauss, SMALL), delta_of(SMALL, 0.5))
    laplace = Tally(0.0, ((Kind("laplace", 0.4), 1),), np.inf, 0.4)
    found = delta_at(laplace, np.array([0.0, 0.2, 0.5]))
    exact = -np.expm1(0.5 * (np.array([0.0, 0.2]) - 0.4))  # 1 - e^((e - z) / 2), in closed form
    assert (found[:2] >= exact * (1.0 - 1e-9)).all()
    assert found[:2] == pytest.approx(exact, rel=1e-3)
    assert found[2] == 0.0
    assert (delta_at(LOST, SMALL) == 1.0).all()


def test_delta_is_the_inverse_of_epsilon():
    total = 0.02 * ORDERS
    epsilon = float(epsilon_of_divergences(total, 1e-6))
    assert delta_of_divergences(total, epsilon) == pytest.approx(1e-6, rel=1e-9)


def test_laws_that_are_none_are_refused():
    with pytest.raises(InputError, match="law: found 'fixed'"):
        best_of(ORDERS, "fixed", 3.0)


SEED = 2**61 + 1


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
        "seed": SEED,
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
    divergences = best_of(0.5 * mu2 * ORDERS, law, 4.0, delta_of(SMALL, np.sqrt(mu2)))
    expected = epsilon_of_divergences(divergences, price.delta)
    assert price.best == pytest.approx(float(expected), rel=1e-9)
    assert price.one < price.best
    text = made.text()
    assert "releasing the best of" in text
    assert "view coordinator, replace-one, delta 1e-05, Papernot and Steinke (2022)" in text
    assert "which no epsilon here pays for" not in text


def test_the_price_does_not_tell_which_candidates_were_drawn(tmp_path):
    """Tau 1 costs a quarter of tau 0.5 in mu^2: who draws it alone pays for 0.5 all the same."""
    seeds, prices = {}, []
    for seed in range(SEED, SEED + 30):
        plan = planned(charged("geometric", tmp_path, seed=seed))
        number = number_of_runs(plan.tune.charge, plan.tune)
        seeds[frozenset(one["algorithm.local.tau"] for one in plan.sampler.ask(number))] = seed
    for taus in ({1.0}, {0.5, 1.0}):
        made = desim.tune(charged("geometric", tmp_path, seed=seeds[frozenset(taus)]), workers=0)
        assert set(made.candidates["algorithm.local.tau"]) == taus
        prices.append(made.price)
    assert len({(one.best, one.one) for one in prices}) == 1
    assert "which ones were drawn does not show" in prices[0].notes[0]
    base = charged("geometric", tmp_path)["base"]
    runs = {tau: desim.run(base, overrides={"algorithm.local.tau": tau}) for tau in (0.5, 1.0)}
    assert prices[0].one == pytest.approx(runs[0.5].account().worst, rel=1e-12)

    def check(module):
        found = [module.price([run], plan.tune.charge, {}, plan.possible) for run in runs.values()]
        assert found[0].best == found[1].best

    check(candidates)
    right = "[*possible, *(one for one in played if one.worst > most)]"
    with pytest.raises(AssertionError):
        check(mutant(candidates, right, "played"))


def test_a_range_is_charged_where_its_dearest_value_is_known(tmp_path):
    key = "algorithm.local.tau"
    listed = planned(charged("geometric", tmp_path))
    drawn_from = planned(charged("geometric", tmp_path, vary={key: {"log_uniform": [0.5, 1.0]}}))
    assert drawn_from.possible[0].worst == max(one.worst for one in listed.possible)
    steps = {"algorithm.local.epochs": {"integer": [1, 3]}}
    assert len(planned(charged("geometric", tmp_path, vary=steps)).possible) == 3
    for vary, said in (
        ({"algorithm.rho": {"uniform": [0.5, 1.0]}}, "found a range of algorithm.rho, of which"),
        ({"algorithm.local.epochs": {"integer": [1, 5000]}}, "found '5000 candidates'; allowed"),
    ):
        with pytest.raises(InputError, match=said):
            planned(charged("geometric", tmp_path, vary=vary))
    endless = charged("geometric", tmp_path)
    endless["base"]["stop"] = {"time": "3 s"}
    with pytest.raises(InputError, match="nobody can say what it releases at most; allowed: stop"):
        planned(endless)


@pytest.mark.parametrize(
    ("key", "values", "said", "terms"),
    [
        ("delta", [1e-9, 1e-5], "delta 1e-05, .* and of 1e-09, ", {"delta": 1e-6}),
        (
            "relation",
            ["agent", "replace-one"],
            "agent, view coordinator and of .* replace-one, ",
            {"relation": "agent"},
        ),
        (
            "view",
            ["coordinator", "final-model"],
            "view coordinator and of .* final-model",
            {"view": "coordinator"},
        ),
    ],
)
def test_all_candidates_are_charged_in_the_same_terms(key, values, said, terms, tmp_path):
    """Else the price would be in those of the candidate that was drawn first."""
    given = charged("geometric", tmp_path, vary={f"privacy.{key}": values})
    with pytest.raises(InputError, match=f"found candidates of .*{said}"):
        planned(given)
    twin = mutant(candidates, "if len(stated) > 1", "if len(stated) > 2")
    assert twin.planned(given)
    plan = planned({**given, "compare": {"epsilon": terms}})
    assert len({one.worst for one in plan.possible}) == 1


def test_a_range_whose_least_value_fails_is_not_charged_by_others(tmp_path, monkeypatch):
    """The candidates that cost most would be left out, and those above them drawn."""
    vary = {
        "algorithm.local.tau": {"uniform": [0.5, 1.0]}, "algorithm.local.epochs": [1, 3],
        "algorithm.rho": [1.0, 2.0],
    }  # fmt: skip
    given = charged("geometric", tmp_path, vary=vary)

    def failing(study, folder, values):
        if list(values.values()) == [0.5, 3, 2.0]:
            raise InputError("problem: together")
        return scenario_of(study, folder, values)

    scenario_of = candidates.scenario_of
    monkeypatch.setattr(candidates, "scenario_of", failing)
    with pytest.raises(InputError, match="as the least one may fail"):
        planned(given)
    twin = mutant(candidates, "if ranges:  #", "if not ranges:  #")
    twin.scenario_of = failing
    assert len(twin.planned(given).possible) == 3


def test_a_budget_bounds_what_a_candidate_may_cost(tmp_path):
    given = on_graph("zcdp-nfl", tmp_path)
    given["base"]["privacy"] |= {"budget": 0.05, "noise": {"sigma": 100.0}}
    given["base"]["stop"] = {"rounds": 10_000}
    given["tune"]["vary"] = {"algorithm.rho": [1.0, 2.0]}
    assert [one.worst for one in planned(given).possible] == pytest.approx([0.05, 0.05], rel=1e-9)
    given["tune"]["vary"] = {"privacy.noise.sigma": [100.0, 1.0]}
    with pytest.raises(InputError, match=r"candidate sigma 1: privacy\.budget: found 0\.05, but"):
        planned(given)


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


def test_the_best_is_the_run_that_was_chosen_with_its_seed(tmp_path):
    given = charged("geometric", tmp_path, limits={"time": "3 s"})
    made = desim.tune(given, tmp_path / "tuned", workers=0)
    (row,) = made.runs[made.runs["case"] == made.best[0].number].to_dict("records")
    best = desim.load(tmp_path / "tuned" / "best.yaml")
    assert best.seed == row["seed"] != desim.load(given["base"]).seed
    chosen = desim.open(tmp_path / "tuned" / "runs" / row["run"])
    again = desim.run(best)
    assert again.releases.equals(chosen.releases)
    (one, *_) = joint([chosen, again])
    assert one.epsilon == chosen.account().worst


def test_the_number_of_runs_is_secret(tmp_path, monkeypatch):
    given = charged("geometric", tmp_path)
    for seed in (0, 5, 2**48 - 1):
        given["tune"]["seed"] = seed
        with pytest.raises(InputError, match=f"seed: found {seed}; allowed: with charge none"):
            planned(given)
    del given["tune"]["seed"]
    drawn_seeds = {planned(given).tune.seed for _ in range(3)}
    assert len(drawn_seeds) == 3
    assert min(drawn_seeds) >= 2**48
    monkeypatch.setattr(study_file.secrets, "randbelow", lambda n: SEED - 2**48)
    first = desim.tune(given, tmp_path / "tuned", workers=0)
    monkeypatch.undo()
    second = desim.tune(given, tmp_path / "tuned", workers=0)  # goes on with the seed that was
    assert second.candidates.equals(first.candidates)
    assert second.counts == {"stored": len(second.runs)}
    del given["tune"]["charge"]
    given["tune"]["seeds"] = [1, 2, 3]
    assert planned(given).tune.seed == 0


def on_graph(name, tmp_path, **changes):
    """A charged tuner of a method on a graph."""
    given = charged("geometric", tmp_path, **changes)
    given["base"] |= {
        "algorithm": {"name": name, **METHODS[name]}, "network": {"topology": "ring"},
        "privacy": {"noise": {"sigma": 1000.0}, "view": "eavesdropper"},
        "observe": {"metrics": ["accuracy"]}, "stop": {"rounds": 2},
    }  # fmt: skip
    given["base"]["problem"] |= {"regularizer": "none"}
    given["tune"]["vary"] = {"privacy.noise.sigma": [1000.0, 1001.0]}
    return given


METHODS = {
    "zcdp-nfl": {"rho": 1.0, "eta": 0.5},
    "dsgd": {"alpha": 0.5},
    "q-dpsgd-1": {"alpha": 0.5, "mixing": 0.5, "bits": 16, "resolution": 0.01, "deadline": "1 s"},
}


def test_graph_methods_are_scored_on_what_they_release(tmp_path, monkeypatch):
    """Two records turned decide the model before noise of sigma 1000, and nothing after it."""

    def met(turned):
        given = on_graph("zcdp-nfl", tmp_path, until={"accuracy": 0.99})
        given["base"]["stop"] = {"rounds": 1}
        A, b = np.zeros((4, 2, 1)), np.zeros((4, 2))
        A[:], b[:] = 1.0, -1.0 if turned else 1.0
        test = np.ones((8, 1))
        np.savez(tmp_path / "d.npz", A=A, b=b, test_A=test, test_b=-np.ones(8))
        made = desim.tune(given, workers=0)
        return made.candidates["status"].tolist()

    assert met(turned=False) == met(turned=True)
    monkeypatch.setattr("desim.experiments.tuning.candidates._noised_next", lambda scenario: False)
    monkeypatch.setattr("desim.scenario.checks.chargeable.unreleased", lambda scenario, metric: "")
    assert met(turned=False) != met(turned=True)


def test_methods_whose_models_nobody_releases_are_not_charged(tmp_path):
    with pytest.raises(InputError, match=r"found q-dpsgd-1, whose accuracy is of models before"):
        planned(on_graph("q-dpsgd-1", tmp_path))
    assert planned(on_graph("dsgd", tmp_path)).base.scenario.observe.models == "own"
    assert planned(on_graph("zcdp-nfl", tmp_path)).base.scenario.observe.models == "released"


def test_a_run_that_failed_has_no_price(tmp_path, monkeypatch):
    made = desim.tune(charged("geometric", tmp_path), workers=0)
    runs = [desim.run(made.released[0])]
    plan = planned(charged("geometric", tmp_path))
    charge, possible = plan.tune.charge, plan.possible
    assert np.isfinite(price(runs, charge, {}, possible).best)
    runs[0].manifest["status"] = "failed"
    found = price(runs, charge, {}, possible)
    assert np.isinf(found.best)
    assert found.notes[0].startswith("infinite: the run of seed")
