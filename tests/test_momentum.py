"""Momentum of accelerated steps: from the moduli, from the step, or given; on every engine."""

import numpy as np
import pytest
from cases import central, star
from mutant import mutant

import desim
from desim.methods.shared import local_training
from desim.scenario.build import build
from desim.scenario.load import load

LOCAL = {"solver": "accelerated", "epochs": 4}


def check_tied(module):
    """The momentum of a step is the best one of the smoothness of which it is the inverse."""
    lo, hi = np.array([0.1, 1.0, 2.0]), np.array([5.0, 30.0, 2.0])
    for more in (1.0, 1.5, 40.0):
        found = module.tied_momentum(lo, 1.0 / (more * hi))
        np.testing.assert_allclose(found, local_training.best_momentum(lo, more * hi), atol=1e-15)
    assert module.tied_momentum(0.5, 3.0) == 0.0
    assert module.tied_momentum(0.0, 0.1) == 1.0


def test_a_momentum_belongs_to_a_step():
    check_tied(local_training)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("np.multiply(lo, gamma)", "np.divide(lo, gamma)"), ("np.sqrt(np.minimum", "(np.minimum")],
)
def test_another_momentum_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_tied(mutant(local_training, right, wrong))


def test_nesterovs_bound_holds_for_smaller_steps():
    """After k steps the gap is at most (1 - sqrt(gamma mu))^k of what it may be at first."""
    random = np.random.default_rng(0)
    for share in (1.0, 0.3, 0.05):
        curvature = np.concatenate([[0.2, 9.0], random.uniform(0.2, 9.0, 6)])
        gamma, x = share / 9.0, random.normal(size=8)
        beta = local_training.tied_momentum(0.2, gamma)
        first = 0.5 * curvature @ x**2 + 0.1 * x @ x
        u, w = x.copy(), x.copy()
        for k in range(1, 60):
            ahead = w - gamma * curvature * w
            u, w = ahead, ahead + beta * (ahead - u)
            assert 0.5 * curvature @ u**2 <= first * (1.0 - np.sqrt(gamma * 0.2)) ** k * (1 + 1e-9)


def scenario(engine="cohort", **local):
    return star(
        algorithm={"name": "fed-plt", "rho": 0.5, "local": {**LOCAL, **local}}, engine=engine
    )


def made(**local):
    return build(load(scenario(**local))).method.local


@pytest.mark.parametrize(
    "momentum", ["auto", "from-step", 0.25, [0.0, 0.1, 0.2, 0.3, 0.4, 0.5]], ids=str
)
def test_agents_train_with_it(momentum):
    local = made(step=0.07, momentum=momentum)
    given, beta = local.plan.rates[1], local.plan.rates[1, :, None]
    lo, hi = local.problem.moduli[0].min() + 2.0, local.problem.moduli[1].max() + 2.0
    if momentum == "auto":
        assert given == pytest.approx((hi**0.5 - lo**0.5) / (hi**0.5 + lo**0.5))
    elif momentum == "from-step":
        assert given == pytest.approx((1 - (0.07 * lo) ** 0.5) / (1 + (0.07 * lo) ** 0.5))
    else:
        np.testing.assert_array_equal(given, np.broadcast_to(momentum, 6))
    run = desim.run(scenario(step=0.07, momentum=momentum))
    p, x = local.problem, np.zeros((6, 5))
    u = x.copy()
    for _ in range(4):  # a round from z = x = 0, so that v = 0
        margins = np.einsum("ihd,id->ih", p.A.reshape(6, 8, 5), x) * p.b.reshape(6, 8)
        weights = -p.b.reshape(6, 8) / (1 + np.exp(margins)) * p.scale[:, None]
        slope = (
            np.einsum("ihd,ih->id", p.A.reshape(6, 8, 5), weights) + (p.ridge[:, None] + 2.0) * x
        )
        ahead = x - 0.07 * slope
        u, x = ahead, ahead + beta * (ahead - u)
    np.testing.assert_allclose(run.iterates[1], x, atol=1e-12)


def test_engines_agree():
    runs = [
        desim.run(scenario(engine, step=0.07, momentum="from-step"))
        for engine in ("agents", "cohort", "compiled")
    ]
    for other in runs[1:]:
        np.testing.assert_array_equal(runs[0].iterates, other.iterates)


def test_at_the_automatic_step_the_rules_are_one():
    auto, tied = made(), made(momentum="from-step")
    np.testing.assert_allclose(auto.plan.rates, tied.plan.rates, rtol=1e-13)
    assert load(scenario()).algorithm.parameters.local.momentum == "auto"
    assert "'momentum': 'auto'" in str(load(scenario()).model_dump())


def test_all_data_at_one_agent():
    """Gradient descent has the same key; the momentum of a step that shrinks grows."""
    step = {"initial": 0.1, "decay": "sqrt"}
    algorithm = {"name": "gradient-descent", "solver": "accelerated", "step": step}
    methods = {
        given: build(load(central(algorithm={**algorithm, "momentum": given}))).method
        for given in ("auto", "from-step", 0.3)
    }
    lo = methods["auto"].problem.moduli[0][0]
    tied = methods["from-step"]
    assert [tied.beta(k) for k in (1, 9)] == [
        pytest.approx((1 - (g * lo) ** 0.5) / (1 + (g * lo) ** 0.5)) for g in (0.1, 0.1 / 3)
    ]
    assert methods[0.3].beta(7) == 0.3
    assert methods["auto"].beta(1) == methods["auto"].beta(9)


def test_a_network_needs_a_number():
    given = {
        "problem": {"loss": {"mlp": {"hidden": 3}}},
        "algorithm": {
            "name": "fed-plt", "rho": 0.5, "local": {**LOCAL, "step": 0.05, "momentum": 0.4},
        },
        "observe": {"metrics": ["loss"]},
    }  # fmt: skip
    assert desim.run(star(**given)).status == "done"
    given["algorithm"]["local"]["momentum"] = "from-step"
    with pytest.raises(desim.InputError, match="or a number for momentum"):
        load(star(**given))


def test_what_is_computed_from_private_data_is_told():
    from desim.runs.premises import tuned

    texts = list(tuned(load(scenario(step=0.07))))
    assert texts == ["algorithm.local.momentum: auto is computed from the data's moduli"]
    assert list(tuned(load(scenario(step=0.07, momentum=0.5)))) == []
