"""What one agent learns of another: attacks reach it, and published accounts beside it."""

from dataclasses import replace

import numpy as np
import pytest
from dense_views import climbed, largest_mean, play, vectors, views_of
from mutant import mutant
from test_pairwise import ALIKE, account, scenario

import desim
from desim.runs import pairwise as runs
from desim.runs.pairwise import FIXED
from desim.scenario.build import build
from desim.scenario.load import load

# Attacks on messages, which know nothing of the account -------------------------------------------


def samples(simulation, who, given, seeds, width, known):
    """What agents `who` receive of others, a sample (n, rows width) for each group of coordinates.

    Played with the noise of each of `seeds`, gradients `given`; without that of agents `known`.
    """
    dim, found = simulation.problem.dim // width * width, []
    for seed in seeds:
        other = replace(simulation, settings=replace(simulation.settings, noise_seed=seed))
        received = play(other, given, drawn=known).received()
        rows = [
            row for i in who for sender, one in received[i] if sender not in who
            for row in vectors(one, simulation.problem.dim)[:, :dim]
        ]  # fmt: skip
        parts = np.array(rows).reshape(len(rows), -1, width)
        found.append(parts.transpose(1, 0, 2).reshape(dim // width, -1))
    return np.concatenate(found)


def attacked(given, who, u, known=None, plays=30):
    """Mu of an attack that learns the worst movement's trace from half of the plays; its error.

    Fisher's discriminant, which is the likelihood ratio once it has seen enough.
    """
    simulation, known = build(load(given)), who if known is None else known
    views = views_of(simulation)
    A, C, owner = views.seen(who)
    mine = np.flatnonzero((owner == u) & (np.abs(A) > 1e-13).any(0))
    mu2, V = largest_mean(A[:, mine], C, views.bound[mine])
    U, s, _ = np.linalg.svd(V, full_matrices=False)
    V = (U * s)[:, s > 1e-4 * s[0]]
    width, moved = V.shape[1], {}
    for k, row in zip(mine, V * views.bound[mine][:, None], strict=True):
        moved[views.inputs[k]] = np.resize(
            np.tile(row, simulation.problem.dim), simulation.problem.dim
        )
    parts = []
    for n, inputs in enumerate(({}, moved)):
        for half in range(2):
            first = 1000 * n + 100 * half
            parts.append(
                samples(simulation, who, inputs, range(first, first + plays), width, known)
            )
    learnt = parts[2].mean(0) - parts[0].mean(0)
    spread = np.cov(np.concatenate([parts[0], parts[2] - learnt]).T)
    direction = np.linalg.lstsq(spread, learnt, rcond=1e-10)[0]
    no, yes = parts[1] @ direction, parts[3] @ direction
    found = (yes.mean() - no.mean()) / np.sqrt(0.5 * (no.var() + yes.var()))
    error = np.sqrt(2.0 / len(no) + 0.25 * found**2 / len(no))
    return found, error, np.sqrt(mu2)


LOUD = {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}}, "dim": 300}
ATTACKED = {
    "dsgd": ({}, (0,), 1),
    "two links": ({}, (0,), 2),
    "together": ({"link": {"loss": "20 %"}, "policy": {"deadline": "30 ms"}}, (1, 4), 3),
    "push-sum": ({"algorithm": {"name": "push-sum", "alpha": 0.1}, "policy": "each"}, (0,), 5),
    "muffliato": ({"algorithm": {"name": "muffliato", "alpha": 0.1, "gossip": 3}}, (0,), 3),
}


@pytest.mark.parametrize("name", ATTACKED)
def test_an_attack_reaches_it_and_no_more(name):
    more, who, u = ATTACKED[name]
    given = scenario(5 if name == "two links" else 6, 5, **LOUD, **more)
    found, error, dense = attacked(given, who, u)
    mu = account(given).towards(who)[u]
    assert abs(mu / dense - 1.0) < ALIKE
    assert 0.95 * mu - 2.0 * error < found < mu + 3.0 * error


def test_an_attack_finds_what_another_account_leaves_out():
    """A message that is not in the view; and one that forgets its own noise reaches less."""
    given = scenario(5, 1, **LOUD)
    right = "[row for _, one in self.heard(who) for row"
    twin = mutant(runs, right, right.replace("(who)", "(who)[1:]"))
    wrong = account(given, source=twin).towards((0,))
    u = 1 if wrong[1] < wrong[4] else 4
    found, error, _ = attacked(given, (0,), u)
    assert wrong[u] < found - 5.0 * error
    given = scenario(5, 5, **LOUD)
    right = "(self.kind == NOISE) & unknown"
    twin = mutant(runs, right, right.replace(" & unknown", ""))
    assert account(given, source=twin).towards((0,))[2] < 0.95 * attacked(given, (0,), 2)[0]


# Published accounts -------------------------------------------------------------------------------


def added(W, u, v, rounds):
    """Muffliato's mu^2 of one noise of deviation = sensitivity, as its authors' program has it.

    Each message's own, added up: sum_t sum_{w ~ v} (W^t)_uw^2 / |(W^t)_w|^2.
    """
    total, power = 0.0, np.eye(len(W))
    for _ in range(rounds):
        for w in np.flatnonzero(W[v]):
            total += power[u, w] ** 2 / (power[w] @ power[w]) if w != v else 0.0
        power = power @ W
    return total


def muffliato(agents, rounds, topology="ring"):
    """One noisy step, then so many rounds of gossip."""
    method = {"name": "muffliato", "alpha": 1.0, "gossip": rounds, "weights": "metropolis"}
    given = scenario(agents, 1, method, topology, **LOUD)
    return given, build(load(given)).method.averages.W


@pytest.mark.parametrize(
    ("agents", "topology", "rounds", "u", "published"),
    [(12, "ring", 10, 6, 0.019), (12, "ring", 2, 2, 0.333), (5, "path", 5, 4, 0.021)],
)
def test_gossip_of_one_noise_hides_nobody(agents, topology, rounds, u, published):
    """A message adds what it tells to the others: v subtracts, as the linear system is observable.

    Muffliato's account adds marginals of messages that share their noise, which bounds nothing.
    """
    given, W = muffliato(agents, rounds, topology)
    pairs = account(given)
    local = pairs.local[u]
    assert abs(pairs.towards((0,))[u] ** 2 / local - 1.0) < 1e-6
    claimed = added(W, u, 0, rounds)
    assert abs(claimed - published) < 6e-4
    rows = pairs.rows((0,))
    noise, inputs = (rows[:, (pairs.kind == kind) & (pairs.owner != 0)] for kind in (2, 1))
    mine = pairs.owner[(pairs.kind == 1) & (pairs.owner != 0)] == u
    share = (inputs[:, mine] ** 2).sum(1) / (noise**2).sum(1)
    assert share.sum() >= claimed - 1e-12  # which has the noise of v in it, too


def test_an_attack_finds_who_is_six_hops_away():
    given, W = muffliato(12, 10)
    found, error, _ = attacked(given, (0,), 6, plays=20)
    one = np.sqrt(account(given).local[6])
    assert found > 0.95 * one - 2.0 * error > 5.0 * np.sqrt(added(W, 6, 0, 10)) * one


def synchronous(W, T, who, alpha):
    """A and B (rows, agents T) of gossip in step with fresh noise, by powers of W.

    What is sent is x of x = W x - alpha (g + w), or what is inside of x = W (x - alpha (g + w)):
    either way T messages -alpha sum_s W^(t - s) (g_s + w_s), a lower triangular workload, as
    Koskela and Kulkarni (2505.19969) and Bellet et al. (2510.17480) have it; rows of neighbours,
    without what agents `who` know themselves.
    """
    n, powers = len(W), [np.linalg.matrix_power(W, t) for t in range(T)]
    heard = [j for j in range(n) if j not in who and any(W[v, j] > 0.0 for v in who)]
    rows = [
        np.concatenate([-alpha * powers[t - s][j] if s <= t else np.zeros(n) for s in range(T)])
        for t in range(T) for j in heard
    ]  # fmt: skip
    return np.array(rows), np.array([i not in who for _ in range(T) for i in range(n)])


@pytest.mark.parametrize("name", ["dsgd", "muffliato"])
@pytest.mark.parametrize("who", [(0,), (2, 5)])
def test_synchronous_gossip_is_as_published(name, who):
    n, T = 8, 6
    method = {"name": name, "alpha": 0.3, "weights": "metropolis"}
    method |= {"gossip": 1} if name == "muffliato" else {}
    given = scenario(n, T, method, {"regular": 3}, **LOUD)
    W = build(load(given)).method.averages.W
    M, others = synchronous(W, T, who, 0.3)
    pairs = account(given)
    one = np.sqrt(pairs.local / T)  # of a release
    for u in set(range(n)) - set(who):
        A = M[:, u::n]
        G = A.T @ np.linalg.pinv(M[:, others] @ M[:, others].T, rcond=1e-12, hermitian=True) @ A
        found = pairs.towards(who)[u]
        if G.min() >= -1e-12:
            assert abs(found / (one[u] * np.sqrt(G.sum())) - 1.0) < 1e-9
        assert one[u] * np.sqrt(G.sum()) < found * (1.0 + 1e-9)
        assert abs(found / (one[u] * np.sqrt(climbed(G)[0])) - 1.0) < ALIKE


# Inputs that follow from noise that nobody has shown ----------------------------------------------


def closed(W, T, u, v, curvature):
    """Mu of u towards v where g_i = curvature x_i + d_i, but for u; and of all, for d = 1 each.

    Sensitivity, noise and step 1: what is sent is x = W x - (g + w), what v knows is left out.
    """
    n, slope = len(W), np.full((len(W), 1), curvature)
    slope[u] = 0.0
    X, rows = np.zeros((n, 2 * n * T)), []
    for k in range(T):
        fresh = np.zeros((n, 2, n, T))
        fresh[np.arange(n), :, np.arange(n), k] = 1.0
        X = W @ X - fresh.reshape(n, -1) - slope * X
        rows += [X[j] for j in range(n) if j != v and W[v, j] > 0.0]
    table = np.reshape(rows, (-1, 2, n, T))
    A, B = table[:, 0, u], np.delete(table[:, 1], v, axis=1).reshape(len(rows), -1)
    G = A.T @ np.linalg.pinv(B @ B.T, rcond=1e-12, hermitian=True) @ A
    return np.sqrt(np.ones(T) @ G @ np.ones(T))


def test_feedback_through_unseen_noise_is_no_fixed_input():
    """A path of five: what its end learns of the other end is more than with fixed gradients.

    So the account says what it assumes, and stands beside all that was released, which holds.
    """
    T = 15
    given = scenario(5, T, {"name": "dsgd", "alpha": 1.0, "weights": "metropolis"}, "path", **LOUD)
    W = build(load(given)).method.averages.W
    pairs = account(given)
    one = np.sqrt(pairs.local[0] / T)
    found = pairs.towards((4,))[0] / one
    fixed, fed_back = closed(W, T, 0, 4, 0.0), closed(W, T, 0, 4, -0.5)
    assert abs(fixed - 0.906) < 5e-4
    assert fixed <= found * (1.0 + 1e-9) < 1.0
    assert abs(fed_back - 1.376) < 5e-4
    assert found < fed_back < np.sqrt(T)
    assert pairs.own.feedback
    assert desim.run(given).pairwise(observers=[4]).attrs["assumptions"] == (FIXED,)
