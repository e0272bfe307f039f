"""What one agent learns of another, beside a dense projection that is written apart."""

import numpy as np
import pytest
from dense_views import largest_mean, play, views_of
from mutant import mutant

from desim.privacy.accounting import linear_views as accounting
from desim.privacy.accounting.linear_views import largest
from desim.runs import pairwise as runs
from desim.runs.symbols import symbols_of
from desim.scenario.build import build
from desim.scenario.load import load

ALIKE = 1e-8  # of a mu, which both know to a billionth


def scenario(agents=6, rounds=6, algorithm=None, topology="ring", link=None, dim=40, **more):
    """A run of clipped gradients with noise; bounds of inputs differ by agent where rows do."""
    return {
        "name": "pairs", "seed": 3,
        "problem": {
            "agents": agents, "loss": "logistic", "clip": 1.0,
            "data": {"source": "synthetic", "kind": "classification", "rows": 20, "dim": dim},
        },
        "algorithm": algorithm or {"name": "dsgd", "alpha": 0.1, "weights": "metropolis"},
        "network": {
            "topology": topology,
            "link": {"latency": {"uniform": ["5 ms", "30 ms"]}, "bandwidth": "10 Mbit/s"}
            | (link or {}),
        },
        "compute": {"speed": {"lognormal": ["2000 /s", 0.4]}},
        "privacy": {"noise": {"kind": "gaussian", "sigma": 0.5, "decay": 0.95}},
        "stop": {"rounds": rounds}, "observe": {"metrics": []}, **more,
    }  # fmt: skip


LOST = {"loss": "20 %"}
CASES = {
    "dsgd": {},
    "deadline": {"link": LOST, "policy": {"deadline": "30 ms"}},
    "absent": {"churn": {"up": "0.2 s", "down": "50 ms"}},
    "gossip each": {"algorithm": {"name": "gossip", "alpha": 0.1}, "link": LOST, "policy": "each"},
    "ad-psgd each": {"algorithm": {"name": "ad-psgd", "alpha": 0.1}, "policy": "each"},
    "tracking": {"algorithm": {"name": "gradient-tracking", "alpha": 0.1, "weights": "metropolis"}},
    "push-sum": {"algorithm": {"name": "push-sum", "alpha": 0.1}, "link": LOST, "policy": "each"},
    "zcdp-nfl": {"algorithm": {"name": "zcdp-nfl", "rho": 0.5, "eta": 0.5}, "topology": "path"},
    "muffliato": {
        "algorithm": {"name": "muffliato", "alpha": 0.1, "gossip": 2, "chebyshev": True},
        "topology": "path",
    },
}  # fmt: skip
VIEWS = ((0,), (1, 4))


def account(given, relation="replace-one", source=runs):
    """Pairs of a scenario."""
    simulation = build(load(given))
    own, log = symbols_of(simulation)
    return source.Pairs(own, log, relation, simulation.problem.rows)


def gap(pairs, views, half=1.0):
    """The largest relative difference of a mu from the dense one, and the least mu over local."""
    most, least = 0.0, 1.0
    for who in VIEWS:
        found = pairs.towards(who)
        for u in set(range(views.agents)) - set(who):
            mu = half * np.sqrt(views.mu2(who, u))
            most = max(most, abs(found[u] - mu) / max(mu, 1e-3))
            least = min(least, found[u] / np.sqrt(pairs.local[u]))
            assert found[u] <= np.sqrt(pairs.local[u])
    return most, least


@pytest.mark.parametrize("name", CASES)
def test_it_is_the_dense_projection(name):
    given = scenario(**CASES[name])
    found, least = gap(account(given), views_of(build(load(given))))
    assert found < ALIKE
    assert least < 0.9  # and some know less than all that was released


def test_one_number_moved_at_a_time_tells_the_same():
    """In a model of three coordinates, on a play that has noise and gradients in all of them."""
    given = scenario(4, 3, dim=3, **{**CASES["deadline"], "topology": "path"})
    simulation = build(load(given))
    pairs, rng = account(given), np.random.default_rng(0)
    empty = play(simulation)
    noise = {key: rng.normal(size=3) for key, *_ in empty.releases}
    inputs = {key: rng.normal(size=3) for key in empty.inputs}
    base, own, rows = play(simulation, inputs, noise).received(), pairs.own, pairs.rows((1,))
    columns = {kind: dict.fromkeys(range(4), 0) for kind in (1, 2)}
    for c in range(own.count):
        if own.kind[c] == 0:
            continue
        key = int(own.owner[c]), columns[own.kind[c]][int(own.owner[c])]
        columns[own.kind[c]][key[0]] += 1
        more = inputs if own.kind[c] == 1 else noise
        moved = dict(more) | {key: more[key] + np.array([0.0, 1.0, 0.0])}
        both = (moved, noise) if own.kind[c] == 1 else (inputs, moved)
        now = play(simulation, *both).received()
        found = [(p - q)[1] for (_, p), (_, q) in zip(now[1], base[1], strict=True)]
        np.testing.assert_allclose(rows[:, c], found, atol=1e-12)


TWINS = [  # of the rows, the noise, the bounds, the deviations and who was meant
    ("dsgd", "one in self.heard(who) for row", "one in self.heard(who)[1:] for row"),
    ("dsgd", "(self.kind == NOISE) & unknown", "(self.kind == NOISE)"),
    ("dsgd", "own.bounds(relation, rows, end)", "own.bounds('add-or-remove-one', rows, end)"),
    ("dsgd", "rows[:, noise] * self.own.scale[noise]", "rows[:, noise] * 0.5"),
    ("ad-psgd each", "one.to[peer] == agent", "True"),
    ("deadline", "each[log[\"time\"] <= end]", "each[log[\"round\"] <= 3]"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "right", "wrong"), TWINS)
def test_another_view_is_noticed(name, right, wrong):
    given = scenario(**CASES[name])
    views, twin = views_of(build(load(given))), mutant(runs, right, wrong)
    assert not gap(account(given, source=twin), views)[0] < 1e-3


def test_half_a_sensitivity_is_half_the_mu():
    given = scenario(**CASES["gossip each"])
    views = views_of(build(load(given)))
    assert gap(account(given, "add-or-remove-one"), views, half=0.5)[0] < ALIKE


# The algebra, on random views ---------------------------------------------------------------------


def view(rng, rows=9, inputs=4, noises=7, rank=7):
    """A (rows, inputs), C (rows, noises) of this rank; A within the range of C."""
    C = rng.normal(size=(rows, rank)) @ rng.normal(size=(rank, noises))
    return C @ rng.normal(size=(noises, inputs)), C


def mu2(A, C, bound, source=accounting):
    return source.squared(source.whitened(A, C), bound)


@pytest.mark.parametrize("rank", [1, 4, 7])
def test_singular_views_are_whitened(rank):
    rng = np.random.default_rng(rank)
    for _ in range(20):
        A, C = view(rng, rank=rank)
        bound = rng.uniform(0.1, 2.0, size=4)
        right = largest_mean(A, C, bound)[0]
        assert abs(mu2(A, C, bound) / right - 1.0) < ALIKE
        apart = rng.normal(size=9)
        apart -= C @ np.linalg.lstsq(C, apart, rcond=1e-10)[0]
        for size in (1.0, 1e-6):  # of what no noise covers
            leaks = A + size * np.outer(apart, [0, 1, 0, 0])
            assert mu2(leaks, C, bound) == largest_mean(leaks, C, bound)[0] == np.inf
            assert np.isfinite(mu2(leaks, C, bound * [1, 0, 1, 1]))  # of one that cannot move
        assert np.isfinite(largest_mean(leaks, C, bound, regular=1e-8)[0])  # which is wrong


def test_what_no_noise_covers_is_not_regularised_away():
    A, C = np.array([[1.0], [2.0]]), np.array([[1.0], [1.0]])
    assert mu2(A, C, np.ones(1)) == np.inf
    right = "(view.bare[:, moved] != 0.0).any() or "
    assert mu2(A, C, np.ones(1), mutant(accounting, right, "")) == 1.0
    assert mu2(0.0 * A, C, np.ones(1)) == 0.0
    assert mu2(A[:0], C[:0], np.ones(1)) == 0.0
    assert mu2(A, C[:, :0], np.ones(1)) == np.inf


def test_the_worst_movement_is_the_largest_and_no_more():
    """Beside vertices, which are not the worst, a triangle, which is too much, and a climb."""
    rng = np.random.default_rng(0)
    G = np.array([[1.0, -0.5, -0.5], [-0.5, 1.0, -0.5], [-0.5, -0.5, 1.0]])
    assert abs(largest(G) - 4.5) < 1e-7  # three directions in a plane; 4 along a line
    assert abs(largest(np.abs(G)) - np.abs(G).sum()) < 1e-12
    for K in (2, 5, 12):
        factor = rng.normal(size=(K, K))
        H = factor @ np.diag(rng.uniform(0.01, 1.0, size=K)) @ factor.T
        signs = np.array([[1 - 2 * (n >> k & 1) for k in range(K)] for n in range(2**K)])
        vertex = ((signs @ H) * signs).sum(1).max()
        found, climb = largest(H), largest_mean(factor.T, np.eye(K), np.ones(K))[0]
        assert vertex <= found * (1.0 + 1e-9) <= np.abs(H).sum() * (1.0 + 2e-9)
        H = factor @ factor.T
        assert -1e-9 < largest(H) / climb - 1.0 < ALIKE
    for right, wrong in [("STEPS = 100", "STEPS = 5"), ("far[1] * dy", "3.0 * dy")]:
        assert not abs(mutant(accounting, right, wrong).largest(H) / largest(H) - 1.0) < 1e-4
