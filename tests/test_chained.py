"""Noise of agents that is correlated over rounds: its law, its price, what neighbours learn."""

import numpy as np
import pytest
from dense_views import views_of
from mutant import mutant
from test_engines import differences
from test_factors import dense, streamed
from test_pairwise import scenario

import desim
from desim.engine.signals import Listener
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.correlated import factors, workload
from desim.privacy.ledger import chains, mechanisms
from desim.runs import pairwise as runs
from desim.runs.privacy import foreseen
from desim.runs.symbols import symbols_of
from desim.scenario.build import build
from desim.scenario.load import load

ROUNDS, SIGMA, BATCH, ROWS = 7, 0.5, 5, 20
APART, MOVED = ROWS // BATCH, 2.0 / BATCH  # of a record with gradients of norm 1 at most
KINDS = {
    "independent": {"banded": 1}, "root": "root", "bands": {"root": 3}, "buffered": {"buffered": 2},
    "tree": "tree", "workload": "workload",
}  # fmt: skip
CYCLIC = {"batch": BATCH, "order": "cyclic"}
DSGD = {"name": "dsgd", "alpha": 0.1, "weights": "metropolis"}
METHODS = {
    "dsgd": DSGD | CYCLIC,
    "muffliato": DSGD | CYCLIC | {"name": "muffliato", "gossip": 2, "chebyshev": True},
    "decor": DSGD | CYCLIC | {"name": "decor", "shared": 0.3},
    "gossip": {"name": "gossip", "alpha": 0.1},
}


def chained(said="root", algorithm="dsgd", agents=4, dim=8, **more):
    """A run on a ring whose agents have noise of that kind."""
    noise = {"sigma": SIGMA} | ({} if said is None else {"correlated": said})
    given = scenario(agents, ROUNDS, METHODS[algorithm], dim=dim)
    return given | {"privacy": {"noise": noise}, "observe": {"iterates": True}} | more


def matrix(factor):
    """C, and how its draws become noise (rounds, draws), from what papers say of it."""
    if isinstance(factor, workload.LowerTriangular):
        return factor.C, np.linalg.inv(factor.C)
    C = dense(factor)
    return C, streamed(factor) if isinstance(factor, factors.Tree) else np.linalg.inv(C)


@pytest.fixture(scope="module")
def played():
    """Each kind with dsgd: simulation, run, noise of each agent and round."""
    found = {}

    class Noise(Listener):
        def releasing(self, release):
            for r, agent in enumerate(release.who.tolist()):
                self.noise[agent, int(release.round[r])] = (release.output - release.value)[r]
            return release.output

    def play(kind):
        if kind not in found:
            simulation = build(load(chained(KINDS[kind])))
            hears = Noise()
            hears.noise = {}
            simulation.play(desim.engine.world.Discard(), listeners=[hears])
            found[kind] = simulation, desim.run(chained(KINDS[kind])), hears.noise
        return found[kind]

    return play


@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_a_row_of_the_matrix_times_draws(played, kind):
    simulation, _, noise = played(kind)
    factor, dim = simulation.method.noise.factor, simulation.problem.dim
    _, W = matrix(factor)
    place = [(t, h) for t in range(1, ROUNDS + 1) for h in range(factor.draws(t))]
    for agent in range(4):
        own = {"agent": np.array([agent]), "size": dim}
        z = [keys.normals(3, Stream.NOISE, round=t, step=h, **own)[0] for t, h in place]
        found = np.array([noise[agent, t] for t in range(1, ROUNDS + 1)])
        np.testing.assert_allclose(found, SIGMA * W @ np.array(z), rtol=0, atol=1e-12)
        if kind != "independent":  # a wrong twin: each round by itself
            assert np.abs(found[1:] - SIGMA * np.array(z)[-ROUNDS + 1 :]).max() > 1e-3


@pytest.mark.parametrize("algorithm", METHODS)
def test_engines_agree_to_the_bit(algorithm):
    for said in ("root", {"tree": 4}):
        given = chained(said, algorithm)
        cohort = desim.run(given)
        assert cohort.manifest["engine"] == "cohort"
        assert not differences(cohort, desim.run(given | {"engine": "agents"}))
    plain, one = desim.run(chained(None, algorithm)), desim.run(chained({"banded": 1}, algorithm))
    np.testing.assert_array_equal(plain.iterates, one.iterates)


def mu2(C, D, until, apart):
    """The largest |C d|^2 over the records of a cycle, of the releases up to a round."""
    every = []
    for first in range(apart):
        d = D * (np.arange(C.shape[1]) % apart == first)
        every.append(np.sum((C[:until] @ d) ** 2))
    return max(every)


RELATIONS = {"replace-one": 1.0, "add-or-remove-one": 0.5, "agent": float(ROWS)}


@pytest.mark.parametrize("kind", KINDS)
def test_the_account_is_that_of_one_gaussian(played, kind):
    simulation, run, _ = played(kind)
    C, _ = matrix(simulation.method.noise.factor)
    for relation, times in RELATIONS.items():
        found = run.epsilon(delta=1e-5, relation=relation).groupby("agent")["epsilon"]
        mu = times * np.sqrt(mu2(C, MOVED, len(C), APART)) / SIGMA
        tolerance = 1e-5 if kind == "workload" else 1e-9  # its columns are rounded
        assert found.last().to_numpy() == pytest.approx(float(epsilon_of(mu, 1e-5)), rel=tolerance)
        wrong = times * np.sqrt(mu2(C, MOVED, len(C), 1)) / SIGMA  # records that are in all rounds
        assert found.last()[0] < 0.9 * float(epsilon_of(wrong, 1e-5))
    if C.shape == (ROUNDS, ROUNDS) and kind != "workload":
        curve = [float(epsilon_of(np.sqrt(mu2(C, MOVED, k, APART)) / SIGMA, 1e-5))
                 for k in range(1, ROUNDS + 1)]  # fmt: skip
        np.testing.assert_allclose(run.epsilon(delta=1e-5).query("agent == 0").epsilon, curve)
    most = run.epsilon(delta=1e-5).epsilon.max()
    assert foreseen(run.scenario, 1e-5).worst == pytest.approx(most)


def test_batches_that_stay_secret_are_counted_in_all_rounds():
    given = chained("root")
    given["algorithm"] = DSGD | {"batch": BATCH}
    run, C = desim.run(given), dense(factors.root(ROUNDS))
    mu = np.sqrt(mu2(C, MOVED, ROUNDS, 1)) / SIGMA
    assert run.epsilon(delta=1e-5).epsilon.max() == pytest.approx(float(epsilon_of(mu, 1e-5)))
    assert any(
        "a record may be in every round" in text for text in build(run.scenario).method.warnings
    )


def gap(given, views, source=runs):
    """The largest relative difference of a mu from views that are written apart."""
    simulation = build(load(given))
    own, log = symbols_of(simulation)
    pairs = source.Pairs(own, log, "replace-one", simulation.problem.rows)
    number, most = np.array([n for _, n in views.inputs]), 0.0
    for who in ((0,), (1, 3)):
        found = pairs.towards(who)
        for u in set(range(views.agents)) - set(who):
            parts = []
            for k in range(APART):
                views.bound = np.where(number % APART == k, MOVED, 0.0)
                parts.append(views.mu2(who, u))
            most = max(most, abs(found[u] / np.sqrt(max(parts)) - 1.0))
            assert source is not runs or found[u] <= np.sqrt(pairs.local[u]) * (1.0 + 1e-12)
    return most


LOST = {"network": {"topology": "ring", "link": {"latency": "5 ms", "loss": "20 %"}},
        "policy": {"deadline": "30 ms"}}  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "algorithm", "more"),
    [("workload", "muffliato", {}), ("root", "dsgd", LOST)],
)
def test_what_neighbours_learn_is_the_dense_projection(kind, algorithm, more):
    given = chained(KINDS[kind], algorithm, **more)
    simulation = build(load(given))
    views, (_, W) = views_of(simulation), matrix(simulation.method.noise.factor)
    assert gap(given, views) > 1e-3  # a wrong twin: noise that is taken to be independent
    mix = np.array([[W[m, n] * (i == j) for j, n in views.noises] for i, m in views.noises])
    views.B = {i: B @ mix for i, B in views.B.items()}
    assert gap(given, views) < 1e-7
    part = mutant(runs, "(part == k) | (part < 0)", "part >= -1")  # records in all rounds
    assert gap(given, views, part) > 1e-3


def test_of_a_tree_neighbours_learn_less_than_its_nodes_tell(played):
    found = played("tree")[1].pairwise()
    assert found.attrs["method"] == "pairwise"
    assert (found.epsilon < 0.9 * found.local).all()


def weights(n=6):
    """Metropolis weights of a ring."""
    return (np.eye(n) + np.roll(np.eye(n), 1, 0) + np.roll(np.eye(n), -1, 0)) / 3.0


def test_the_workload_is_what_the_models_hold():
    W, alpha, n, rounds = weights(), 1.0 / np.sqrt(np.arange(1, 9)), 6, 8
    A = np.zeros((rounds * n, rounds * n))
    for k in range(rounds):
        for t in range(k + 1):
            part = alpha[t] * np.linalg.matrix_power(W, 1 + k - t)
            A[k * n : k * n + n, t * n : t * n + n] = part
    whole = sum(A[:, i::n].T @ A[:, i::n] for i in range(n))
    np.testing.assert_allclose(workload.gram(W, 1, alpha), whole, atol=1e-12)
    assert np.abs(workload.gram(W, 0, alpha) - whole).max() > 0.1


@pytest.mark.parametrize("apart", [1, 4, 12])
def test_no_matrix_has_a_lower_error(apart):
    """The slope of tr(G / X) is the same along a class of the diagonal, and 0 where X is free."""
    G = workload.gram(weights(), 0, np.ones(12))
    X, group = workload.optimum(G, apart), np.arange(12) % apart

    def slope(X):
        Y = np.linalg.inv(X)
        M = Y @ G @ Y
        parts = [np.ptp(np.diag(M)[group == r]) for r in range(apart)]
        return max([*parts, np.abs(M[group[:, None] != group]).max(initial=0.0)]) / np.diag(M).max()

    assert np.linalg.eigvalsh(X).min() > 0.0
    assert not X[(group[:, None] == group) & ~np.eye(12, dtype=bool)].any()
    np.testing.assert_allclose(np.bincount(group, np.diag(X)), 1.0)
    assert slope(X) < 1e-8
    if apart < 12:
        assert slope(X + 1e-3 * np.diag(np.repeat([1, -1], 6)) * X) > 1e-5
    if apart == 1:  # nothing is gained by any correlation
        size = np.sqrt(np.diag(G))
        np.testing.assert_allclose(X, np.diag(size / size.sum()), rtol=1e-9)
    factor = workload.least_error(weights(), 0, np.ones(12), apart)
    C = factor.C / np.sqrt(np.sum(factor.steps(apart) ** 2))
    np.testing.assert_allclose(C.T @ C, X, atol=3e-6)


def test_a_target_is_met_and_stored(tmp_path):
    target = {"epsilon": 2.0, "delta": 1e-5}
    noise = {"correlated": {"banded": 4}}
    given = chained(None) | {"privacy": {"noise": noise, "target": target}}
    run = desim.run(given, tmp_path / "run")
    assert run.epsilon().epsilon.max() == pytest.approx(2.0, rel=1e-6)
    again = desim.open(tmp_path / "run")
    assert again.scenario == run.scenario
    assert again.pairwise(observers=[0]).epsilon.max() < 2.0


def released(held, round_, noise, moved=1.0, of=None):
    """Noise of a round with the terms of round `of`, of values that a record moves so far."""
    terms = mechanisms.terms(
        noise, mechanisms.View.PUBLIC, of or round_, np.array([1.0, moved]), 3, np.full(2, 0.5)
    )
    who, k = np.arange(2), np.ones(2, np.int64)
    place = who, round_ * k, 0, terms.scale, k > 0, np.zeros((2, 3))
    return held.added(*place, terms.chain, lambda *_: np.ones((1, 2, 3)))


def test_a_second_release_in_a_round_is_refused():
    held, noise = chains.Chains(2), chains.Chained(1.0, factor=factors.root(5))
    released(held, 1, noise)
    for wrong in (1, 3):
        with pytest.raises(RuntimeError, match="one release of each agent in every round"):
            released(held, wrong, noise)
    released(held, 2, noise)


def test_rows_that_would_not_add_up_are_refused():
    noise = chains.Chained(1.0, factor=factors.root(5))
    wrong = [
        ({"moved": 0.1}, noise, "another sensitivity, scale or batch of agent 1 in round 2"),
        ({}, chains.Chained(2.0, factor=noise.factor), "scale or batch of agent 0 in round 2"),
        ({}, chains.Chained(1.0, factor=noise.factor, cyclic=True), "batch of agent 0 in round 2"),
        ({"of": 1}, noise, "found terms of round 1 in round 2"),
    ]
    for changes, other, text in wrong:
        released(held := chains.Chains(2), 1, noise)
        with pytest.raises(RuntimeError, match=text):
            released(held, 2, other, **changes)
    C = factors.root(5).steps(1)  # a wrong twin: smaller values in round 2 would cost too little
    assert C[0] ** 2 + (0.1 * C[1:]) @ (0.1 * C[1:]) < 0.9 * factors.root(5).squared([1])


REFUSED = {
    "no end": ({"stop": {"time": "3 s"}}, "found without stop.rounds"),
    "budget": ({"privacy": {"noise": {"sigma": 1.0, "correlated": "root"}, "budget": 3.0}},
               "found with privacy.budget"),
    "multiplier": ({"privacy": {"noise": {"multiplier": 1.0, "correlated": "root"}}},
                   "allowed: sigma"),
    "decay": ({"privacy": {"noise": {"sigma": 1.0, "decay": 0.9, "correlated": "root"}}},
              "found correlated and decay"),
    "laplace": ({"privacy": {"noise": {"kind": "laplace", "sigma": 1.0}}},
                "found cyclic with noise"),
    "lost": ({"churn": {"up": "1 s", "down": "1 s", "memory": "lost"}}, "found with churn.memory"),
    "a method": ({"algorithm": {"name": "gradient-tracking", "alpha": 0.1}},
                 "not one release in each round, all alike; allowed: with dsgd, gossip, muffliato"),
    "no batch": ({"algorithm": DSGD | {"order": "cyclic"}}, "found cyclic without batch"),
    "odd": ({"algorithm": DSGD | {"batch": 3, "order": "cyclic"}}, "a divisor of the rows"),
    "meetings": ({"algorithm": METHODS["gossip"],
                  "privacy": {"noise": {"sigma": 1.0, "correlated": "workload"}}},
                 "where agents meet in other ways"),
    "compiled": ({"engine": "compiled"}, "noise that is correlated over rounds"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_no_account_knows_is_refused(what):
    changes, text = REFUSED[what]
    with pytest.raises(InputError) as caught:
        build(load(chained("root") | changes))
    assert text in str(caught.value)


def test_batches_take_turns():
    simulation = build(load(chained()))
    method, problem = simulation.method, simulation.problem
    x = np.random.default_rng(0).normal(size=(4, problem.dim))
    for k in (1, 2, 6):
        us = type("Us", (), {"who": np.arange(4), "round": np.full(4, k)})
        found = method.batch_gradient(us, x, np.full(4, BATCH))
        for i in range(4):
            first = problem.start[i] + BATCH * ((k - 1) % APART)
            A, b = (part[first : first + BATCH] for part in (problem.A, problem.b))
            slope = -b / (1.0 + np.exp(b * (A @ x[i])))
            size = np.linalg.norm(slope[:, None] * A, axis=1)
            each = slope[:, None] * A * np.minimum(1.0, 1.0 / size)[:, None]
            np.testing.assert_allclose(found[i], each.mean(0), atol=1e-12)
