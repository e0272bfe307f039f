"""What noisy coefficients cost: sensitivities of pairs of records, claims, wrong budgets."""

import numpy as np
import pytest
from cases import allotted, fair
from naive import bounds

import desim
from desim.errors import InputError
from desim.methods.functional_mechanism import FunctionalMechanism
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.papers import functional
from desim.runs.privacy import statement
from desim.scenario.build import build
from desim.scenario.load import load

# Sensitivities -----------------------------------------------------------------------------------


def record(rng, domain, d, reach):
    """Coefficients of a random record, often an extreme one: linear, pairs (unordered)."""
    x = rng.choice([-1.0, 0.0, 1.0], d) if rng.random() < 0.5 else rng.uniform(-1, 1, d)
    if domain == "ball":
        x = x / max(1.0, np.linalg.norm(x))
    r = rng.choice([-reach, reach, rng.uniform(-reach, reach)])
    rows, columns = np.triu_indices(d)
    return r * x, np.where(rows == columns, 1, 2) * x[rows] * x[columns] / 8


@pytest.mark.thin(3)
@pytest.mark.parametrize("domain", ["ball", "box"])
@pytest.mark.parametrize(("d", "k"), [(1, 0), (1, 1), (2, 1), (4, 0), (4, 1), (4, 3), (6, 2)])
def test_no_pair_of_records_moves_more(domain, d, k):
    rng = np.random.default_rng(1000 * d + k)
    worst = {"l1": 0.0, "l2": 0.0}
    rows, columns = np.triu_indices(d)
    for _ in range(300):
        reach, weights = rng.uniform(0.3, 2.0), rng.uniform(0.1, 3.0, 2)
        special = np.arange(d) < k
        by = np.where(np.concatenate([special, special[rows] | special[columns]]), *weights)
        one, two = (np.concatenate(record(rng, domain, d, reach)) for _ in range(2))
        change = by * (one - two)
        for name, norm in (("l1", 1), ("l2", 2)):
            bound = getattr(functional, name)(domain, d, reach, k, tuple(weights))
            linear = getattr(functional, f"{name}_linear")(domain, d, reach, k, tuple(weights))
            assert np.linalg.norm(change[:d], norm) <= linear * (1 + 1e-12)
            worst[name] = max(worst[name], np.linalg.norm(change, norm) / bound)
    assert max(worst.values()) <= 1.0 + 1e-12
    assert min(worst.values()) > (0.5 if d < 6 else 0.4)  # half of a bound would be refuted


def test_the_split_by_features_is_refuted_and_the_charge_is_not():
    """Ding's rule for two records x = e_s, labels apart: (102) moves their coefficient by 2."""
    d, epsilon_s, epsilon_n = 13, 10.0, 1.0
    delta_1 = bounds.public_mean_sensitivity(d)
    loss = bounds.pair_loss(epsilon_s, epsilon_n, 2.0, 0.0, delta_1)
    assert loss > functional.shared_out(epsilon_s, epsilon_n, d)
    weights = (epsilon_s / epsilon_n, 1.0)
    assert loss <= epsilon_n * functional.l1("ball", d, 1.5, 1, weights) / delta_1
    ball = functional.l1("ball", d, 1.5)
    assert functional.l1("ball", d, 1.5, 1, weights) <= max(weights) * ball


# Privacy of a run --------------------------------------------------------------------------------


def account(scenario, delta=1e-3):
    run = desim.run(scenario)
    return run, run.account(delta=delta), statement(run, delta).claim


def test_own_sensitivities_cost_what_is_allotted():
    for kind in ("laplace", "gaussian"):
        run, told, claim = account(fair("functional-mechanism", allotted(kind, 2.0)))
        assert claim.worst == 2.0
        assert 1.98 < told.worst <= 2.0 + 1e-9
        assert len(run.releases) == 6
        ratio = run.releases.sensitivity / run.releases.scale
        assert np.allclose(ratio, 2.0 if kind == "laplace" else mu_of(2.0, 1e-3))


@pytest.mark.parametrize(("name", "kind"), [("pdfc", "laplace"), ("adfc", "gaussian")])
def test_groups_cost_at_most_the_larger_epsilon(name, kind):
    for budgets in ((0.5, 2.0), (2.0, 0.5)):
        keys_ = {"x_s": "x2", "zbar": 0.4, "penalty": "printed"}
        scenario = fair(name, allotted(kind, *budgets), keys=keys_)
        _, told, claim = account(scenario)
        assert told.worst <= 2.0 + 1e-9
        assert claim.worst == pytest.approx(budgets[0] / 4 + 0.75 * budgets[1])
        assert claim.unmet == (() if kind == "laplace" else ("it is stated at delta 0.001999",))


def test_the_paper_shares_out_less_than_is_spent():
    keys_ = {"x_s": "x2", "zbar": 0.4, "penalty": "printed"}
    _, told, claim = account(fair("pdfc", allotted("laplace", 10.0, 0.1), keys=keys_), delta=1e-9)
    assert claim.worst == pytest.approx(2.575)
    assert claim.bound.verdict == "unproved"
    assert told.worst > 1.9 * claim.worst


def test_a_shifted_mean_is_paid():
    keys_ = {"zbar": 0.4, "penalty": "shifted"}
    run, _, claim = account(fair("pflr", allotted("laplace", 2.0), keys=keys_))
    d = 4
    ratio = (run.releases.sensitivity / run.releases.scale).to_numpy()
    assert np.allclose(ratio, 2.0 * (d / 4 + 2.2 * d**0.5) / (d / 4 + d**0.5))
    assert (claim.worst, claim.bound.verdict) == (2.0, "wrong")


def test_a_mean_of_the_data_is_paid():
    plain, paid = (
        build(load(fair("pflr", {"sigma": 1.0, "kind": "laplace"}, keys={"zbar": zbar}))).method
        for zbar in (0.5, "data")
    )
    one, two = plain.planned(1), paid.planned(1)
    assert (two.sensitivity > one.sensitivity).all()
    assert (paid.planned(2).sensitivity == 0.0).all()


def test_a_target_calibrates_the_noise():
    scenario = fair("functional-mechanism", {"kind": "laplace"})
    scenario["privacy"]["target"] = {"epsilon": 3.0, "delta": 1e-5}
    assert account(scenario, 1e-5)[1].worst == pytest.approx(3.0, rel=1e-4)


def test_one_round_sends_every_coefficient_once():
    run = desim.run(fair("pdfc", allotted("laplace", 1.0, 1.0), keys={"x_s": "x2"}))
    assert run.manifest["reason"] == "the one round of the protocol is done"
    sent = run.events[run.events.kind == "send"]
    assert (sent[sent.agent >= 0].bytes == 8 * (4 + 10 + 4)).all()
    assert sorted(sent[sent.agent == -1].bytes) == [1] * 6 + [32] * 6
    assert run.model.shape == (2, 4)
    assert FunctionalMechanism.once


# Bad input ---------------------------------------------------------------------------------------

GROUPS = allotted("laplace", 1.0, 1.0)
NO_GROUP = {"source": "synthetic", "kind": "classification", "rows": 12, "dim": 5}
REGRESSION = {"source": "synthetic", "kind": "regression", "rows": 12, "dim": 5}
BAD = {
    "problem.data.protected: missing; pflr needs": ("pflr", None, {"problem": {"data": NO_GROUP}}),
    "algorithm.x_s: missing": ("pdfc", GROUPS, {}),
    "algorithm.x_s: found 'x9'; allowed: intercept": ("pdfc", GROUPS, {"keys": {"x_s": "x9"}}),
    "found 8, which leaves nothing of epsilon 2 for the other features; allowed: below 8": (
        "pdfc", {"epsilon": 2.0, "epsilon_s": 8.0}, {"keys": {"x_s": "x2"}},
    ),
    "which leaves nothing of delta 0.001 for the other features; allowed: below 0.001": (
        "adfc", {"epsilon": 2.0, "epsilon_s": 1.0, "delta": 1e-3, "delta_s": 1e-3},
        {"keys": {"x_s": "x2"}},
    ),
    "algorithm.share: found 1; allowed: above 0 and below 1: both parts need something": (
        "pflr", None, {"keys": {"share": 1}},
    ),
    "algorithm.zbar: found 1.5; allowed: data, or a public share": (
        "pflr", None, {"keys": {"zbar": 1.5}},
    ),
    "privacy.noise.kind: found gaussian; allowed with pdfc: laplace": (
        "pdfc", allotted("gaussian", 1.0, 1.0), {"keys": {"x_s": "x2"}},
    ),
    "privacy.noise.epsilon_s: functional-mechanism has no special attribute": (
        "functional-mechanism", GROUPS, {},
    ),
    "found epsilon, delta with kind: laplace; allowed: {epsilon} or": (
        "functional-mechanism", {"kind": "laplace", "epsilon": 1.0, "delta": 1e-3}, {},
    ),
    "found epsilon_s with kind: gaussian": ("adfc", {"kind": "gaussian", "epsilon_s": 1.0}, {}),
    "kind: found 'l2-laplace'; allowed: laplace or gaussian, with epsilon": (
        "functional-mechanism", {"kind": "l2-laplace", "epsilon": 1.0}, {},
    ),
    "stop.rounds: found 3, but adfc is over after one round; allowed: 1": (
        "adfc", None, {"stop": {"rounds": 3}},
    ),
    "problem.clip: found 1, but pflr uses no gradients": ("pflr", None, {"problem": {"clip": 1.0}}),
    "problem.loss: found squared, but functional-mechanism expands the logistic": (
        "functional-mechanism", None, {"problem": {"data": REGRESSION, "loss": "squared"}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("message", BAD)
def test_bad_input_is_explained(message):
    name, noise, changes = BAD[message]
    with pytest.raises(InputError) as raised:
        build(load(fair(name, noise, **changes)))
    assert message in str(raised.value)
