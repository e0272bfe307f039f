"""decor: its naive twin, noise that cancels, and who knows which part of it."""

import naive.decor
import numpy as np
import pytest
from laws import check_log
from mutant import mutant
from test_against_naive import INSTANT, TOLERANCE, Rows, gap
from test_gossip_methods import (
    ALPHA,
    EDGES,
    ROUNDS,
    SEED,
    SIGMA,
    SLOW,
    averaging,
    batches,
    gradient,
    metropolis,
    noise_of,
    scenario,
)
from test_pairwise import account
from test_pairwise import scenario as linear

import desim
from desim.errors import InputError
from desim.numerics import keys
from desim.privacy.accounting.linear_views import whitened
from desim.privacy.papers.theorems import theorems
from desim.runs import symbols
from desim.runs.symbols import INPUT, NOISE, Unfit
from desim.scenario.build import build
from desim.scenario.load import load

SHARED, SECRET = 0.7, 254 << 24


def shared(dim=3):
    """What the lower end of each link adds in each round, at the addresses of its draws."""

    def drawn(i, j, k):
        place = {"agent": i, "peer": j, "round": k, "step": SECRET}
        return SHARED * keys.normals(SEED, keys.Stream.NOISE, size=dim, **place)

    ends = sorted(tuple(sorted(edge)) for edge in EDGES)
    return [{(i, j): drawn(i, j, k) for i, j in ends} for k in range(1, ROUNDS + 1)]


def twin_gap(folder, setting=INSTANT, twin=naive.decor, engine="auto"):
    given = {"weights": "metropolis", "shared": SHARED}
    run = desim.run(
        scenario(folder, "decor", setting, EDGES, SIGMA, algorithm=given, engine=engine)
    )
    check_log(run)
    start = Rows(1, "logistic", (5, 2, 4, 6, 3)).x0
    place = gradient(), start, metropolis(), batches(), noise_of(SIGMA), shared()
    return gap(run.iterates, twin.decor(*place, alpha=ALPHA))


def test_it_is_its_naive_twin(tmp_path):
    assert twin_gap(tmp_path) < TOLERANCE
    assert twin_gap(tmp_path, SLOW, engine="agents") < TOLERANCE


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("-v if i == b", "v if i == b"), ("+ noise[t][i]", ""), ("W @ np.array(half)", "W @ x[t]")],
)
def test_another_twin_is_noticed(tmp_path, right, wrong):
    assert twin_gap(tmp_path, twin=mutant(naive.decor, right, wrong)) > 1e-4


def test_shared_noise_moves_models_and_not_their_mean(tmp_path):
    given = {"weights": "metropolis", "shared": SHARED}
    run, x0 = averaging(tmp_path, "decor", INSTANT, EDGES, algorithm=given, stop={"rounds": 20})
    assert np.abs(run.iterates.mean(axis=1) - x0.mean(axis=0)).max() < 1e-13
    assert np.abs(run.iterates[-1] - x0.mean(axis=0)).max() > 1e-2


@pytest.mark.parametrize("name", ["ring", "path", "complete"])
def test_it_is_dsgd_in_another_order_where_nothing_is_shared(name):
    alike = {"algorithm": {"name": "muffliato", "alpha": 0.1, "gossip": 1}, "topology": name}
    one = desim.run(linear(**alike))
    other = desim.run(linear(**{**alike, "algorithm": {"name": "decor", "alpha": 0.1}}))
    np.testing.assert_allclose(one.state["x"], other.state["x"], rtol=1e-12)


# What is known of whom ---------------------------------------------------------------------------

RATIO = {"privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}}}  # of sensitivity .1


def decor(topology, scale, rounds=4, agents=6):
    method = {"name": "decor", "alpha": 0.3, "weights": "metropolis", "shared": scale}
    given = linear(agents, rounds, method, topology, dim=6, **RATIO)
    return account(given), build(load(given)).settings.graph.laplacian()


def eavesdropper(pairs, u):
    """Mu^2 of u towards who receives all messages, and holds no secret."""
    rows = [row for sent in pairs.own.sent for one in sent for row in one.vectors]
    table = np.zeros((len(rows), pairs.own.count))
    for r, row in enumerate(rows):
        table[r, : len(row)] = row
    noise = pairs.kind == NOISE
    mine = (pairs.kind == INPUT) & (pairs.owner == u)
    scale = pairs.own.scale[: pairs.own.count][noise]
    view = whitened(table[:, mine], table[:, noise] * scale)
    moved = view.Z * pairs.bound[mine]
    return float(np.abs(moved.T @ moved).sum())


@pytest.mark.parametrize("scale", [0.0, 0.1, 1.0])
@pytest.mark.parametrize("topology", ["ring", "complete"])
def test_who_holds_no_secret_knows_what_the_paper_says(topology, scale):
    """mu^2 = T D^2 [(s^2 I + c^2 L)^-1]_uu: of all messages, what is sent in rounds before them."""
    pairs, L = decor(topology, scale)
    covariance = 0.1**2 * np.eye(6) + scale**2 * L
    for u in range(2):
        right = 4 * 0.1**2 * np.linalg.inv(covariance)[u, u]
        assert abs(eavesdropper(pairs, u) / right - 1.0) < 1e-8
        assert right <= pairs.local[u] * (1.0 + 1e-12)


@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_an_end_of_a_link_takes_away_what_it_knows(scale):
    """On a complete graph an agent hears all: what is left are links between others."""
    pairs, L = decor("complete", scale)
    for who in ((0,), (0, 3)):
        others = [i for i in range(6) if i not in who]
        left = L[np.ix_(others, others)].copy()
        np.fill_diagonal(left, len(others) - 1.0)
        covariance = 0.1**2 * np.eye(len(others)) + scale**2 * left
        right = 4 * 0.1**2 * np.linalg.inv(covariance)[0, 0]
        found = pairs.towards(who)[others[0]] ** 2
        assert abs(found / right - 1.0) < 1e-8
        assert found > 1.01 * eavesdropper(pairs, others[0])


def test_all_neighbours_together_undo_it():
    pairs, _ = decor("ring", 1.0)
    assert abs(pairs.towards((1, 5))[0] ** 2 / pairs.local[0] - 1.0) < 1e-9
    assert pairs.towards((1,))[0] ** 2 < 0.3 * pairs.local[0]
    assert pairs.towards((1, 3))[0] ** 2 < 0.6 * pairs.local[0]


def test_other_secrets_are_noticed(monkeypatch):
    twin = mutant(symbols, "own.other[own.columns[key]] = ends[1]", "pass")
    monkeypatch.setattr("test_pairwise.symbols_of", twin.symbols_of)
    pairs, _ = decor("ring", 1.0)
    assert pairs.towards((1, 5))[0] ** 2 < 0.9 * pairs.local[0]
    twin = mutant(symbols, "1.0 if us.who[r] == ends[0] else -1.0", "1.0")
    monkeypatch.setattr("test_pairwise.symbols_of", twin.symbols_of)
    with pytest.raises(twin.Unfit, match="its messages are not linear"):
        decor("ring", 1.0)
    assert issubclass(Unfit, InputError)


def test_what_is_charged_is_the_own_noise_alone(tmp_path):
    runs = [
        desim.run(linear(algorithm={"name": "decor", "alpha": 0.1, "shared": scale}))
        for scale in (0.0, 3.0)
    ]
    first, second = (run.account().final for run in runs)
    assert (first == second).all()
    least = [run.pairwise()["epsilon"].max() for run in runs]
    assert least[1] < 0.5 * least[0]


def test_its_published_account_has_a_verdict():
    (bound,) = theorems("decor")
    assert bound.verdict == "loose"
    assert "Run.pairwise" in bound.rigorous


PAGE = [  # analysis/docs/reference/algorithms/decor.md
    ("ring", (1,), (0.969, 0.763, 0.138)),
    ("ring", (1, 5), (1.0, 1.0, 1.0)),
    ("complete", (1,), (1.0, 0.577, 0.449)),
    ("complete", (1, 2), (1.0, 0.632, 0.502)),
]


@pytest.mark.parametrize(("topology", "who", "shares"), PAGE)
def test_the_numbers_of_its_page(topology, who, shares):
    for scale, share in zip((0.0, 0.1, 1.0), shares, strict=True):
        pairs, _ = decor(topology, scale, 5)
        found = pairs.towards(who)[0] / np.sqrt(pairs.local[0])
        assert abs(found - share) < 6e-4
