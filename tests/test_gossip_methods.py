"""gossip, ad-psgd, gradient-tracking, push-sum: naive twins, what is kept, where they end."""

import naive.ad_psgd
import naive.gossip
import naive.gradient_tracking
import naive.push_sum
import naive.q_dpsgd_1
import numpy as np
import pytest
from cases import COMPUTE, NETWORK, merged
from laws import check_log
from mutant import mutant
from test_addressed import DROP
from test_against_naive import INSTANT, SEED, TOLERANCE, Rows, gap
from test_engines import differences

import desim
from desim.conditions.matching import MATCHING
from desim.draws import keys
from desim.draws.keys import Stream
from desim.errors import InputError
from desim.methods.shared import pairwise_averages
from desim.scenario.build import build

SIZES, ALPHA, SIGMA, ROUNDS, BATCH, L2 = (5, 2, 4, 6, 3), 0.15, 0.2, 12, 2, 0.5
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2]]
ARCS = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [0, 2], [0, 3]]
SLOW = {"network": NETWORK, "compute": {**COMPUTE, "redraw": "round"}}
LATE = {"network": {"link": DROP}, "compute": {"speed": {"uniform": [20, 200]}, "redraw": "round"}}
ENGINES = ("cohort", "agents")


def scenario(folder, name, setting=INSTANT, edges=EDGES, noise=0.0, **changes):
    """Logistic loss on five agents whose rows are in a file, which begin far apart."""
    rows, algorithm = Rows(1, "logistic", SIZES), changes.pop("algorithm", {})
    made = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder), "loss": "logistic", "regularizer": {"l2": L2}, "clip": 0.8,
        },
        "algorithm": {
            "name": name, "alpha": ALPHA, "batch": BATCH, "init": rows.init(folder), **algorithm,
        },
        "privacy": {"noise": {"sigma": noise}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": ROUNDS},
    }  # fmt: skip
    made = merged(merged(made, setting), changes)
    made["network"]["topology"] = {"edges": edges, "directed": edges is not EDGES}
    return made


def gradient():
    """gradient(i, x, rows) of these agents."""
    rows = Rows(1, "logistic", SIZES)
    return naive.q_dpsgd_1.linear_model(rows.A, rows.b, clip=0.8, l2=L2)


def batches(steps=None):
    """Rows of round t, agent i, and of its steps where there are several."""

    def drawn(i, t, h=0):
        place = {"agent": i, "round": t, "step": h}
        return keys.subset(SEED, Stream.BATCH, SIZES[i], min(BATCH, SIZES[i]), **place)

    def of(i, t):
        return drawn(i, t) if steps is None else [drawn(i, t, h) for h in range(steps)]

    return [[of(i, t) for i in range(len(SIZES))] for t in range(1, ROUNDS + 1)]


def noise_of(sigma):
    """Noise (T, n, p) at the ledger's addresses."""
    at = {"agent": np.arange(len(SIZES)), "round": np.arange(1, ROUNDS + 1)[:, None]}
    return sigma * keys.normals(SEED, Stream.NOISE, size=3, **at)


def partners():
    """The matching of each round by its definition."""
    table = []
    for k in range(1, ROUNDS + 1):
        place, one = {"round": k, "step": MATCHING}, [-1] * len(SIZES)
        ends = {
            keys.uniforms(SEED, Stream.PARTICIPATION, agent=i, peer=j, **place).item(): (i, j)
            for i, j in EDGES
        }
        for _, (i, j) in sorted(ends.items()):
            if one[i] < 0 and one[j] < 0:
                one[i], one[j] = j, i
        table.append(one)
    return table


def choice(i, k):
    """Whom agent i would ask, or push to, in its round k."""
    near = sorted({a + b - i for a, b in EDGES if i in (a, b)})
    place = {"agent": i, "round": k, "step": MATCHING + 1}
    return near[int(keys.uniforms(SEED, Stream.PARTICIPATION, **place).item() * len(near))]


def order_of(events):
    """("step", i, k) and ("hear", i, k, {j: round}) as they happened, from the log alone."""
    done, heard, arrivals = [], {}, events[events.kind == "deliver"]
    for row in events[events.kind.isin(["compute", "aggregate"])].itertuples():
        if row.kind == "compute":
            done.append(("step", row.agent, row.round))
            continue
        mine = arrivals[(arrivals.agent == row.agent) & (arrivals.time <= row.time)]
        newest = mine.groupby("peer")["round"].max().to_dict()
        news = {j: k for j, k in newest.items() if k > heard.get((row.agent, j), 0)}
        heard |= {(row.agent, j): k for j, k in news.items()}
        done.append(("hear", row.agent, row.round, news))
    assert len({len(one[3]) for one in done if one[0] == "hear"}) > 1
    return done


def metropolis():
    W = np.zeros((5, 5))
    degree = np.bincount(np.ravel(EDGES))
    for i, j in EDGES:
        W[i, j] = W[j, i] = 1 / (1 + max(degree[i], degree[j]))
    return W + np.diag(1 - W.sum(axis=0))


# In step: twins of all agents at once -----------------------------------------------------------

TWINS = {
    "gossip": naive.gossip, "ad-psgd": naive.ad_psgd, "push-sum": naive.push_sum,
    "gradient-tracking": naive.gradient_tracking,
}  # fmt: skip
EXTRA = {"gradient-tracking": {"weights": "metropolis"}}
OTHER = {  # a second form of each
    "gossip": {"steps": 3}, "ad-psgd": {"alpha": 0.3}, "push-sum": {"alpha": 0.05},
    "gradient-tracking": {"weights": "metropolis", "form": "next"},
}  # fmt: skip


def wanted(name, keys_, sigma, twin):
    """The twin's x (T + 1, n, p)."""
    alpha, zeta, start = keys_.get("alpha", ALPHA), noise_of(sigma), Rows(1, "logistic", SIZES).x0
    if name == "gossip":
        own = batches(keys_.get("steps", 1))
        return twin.gossip(gradient(), start, partners(), own, zeta, alpha=alpha)
    if name == "ad-psgd":
        return twin.in_step(gradient(), start, partners(), batches(), zeta, alpha=alpha)
    if name == "push-sum":
        links = [ARCS] * ROUNDS
        return twin.push_sum(gradient(), start, links, batches(), zeta, alpha=alpha)
    mixes, W = keys_.get("form") == "next", [metropolis()] * ROUNDS
    place = gradient(), start, W, batches(), zeta
    return twin.gradient_tracking(*place, alpha=alpha, mixes=mixes)[0]


def twin_gap(folder, name, other=False, sigma=0.0, setting=INSTANT, twin=None, engine="cohort"):
    changed = OTHER[name] if other else EXTRA.get(name, {})
    edges = ARCS if name == "push-sum" else EDGES
    made = scenario(folder, name, setting, edges, sigma, algorithm=changed, engine=engine)
    run = desim.run(made)
    check_log(run)
    return gap(run.iterates, wanted(name, changed, sigma, twin or TWINS[name]))


@pytest.mark.parametrize("name", TWINS)
def test_they_are_their_naive_twins(tmp_path, name):
    assert twin_gap(tmp_path, name, sigma=SIGMA) < TOLERANCE
    assert twin_gap(tmp_path, name, other=True, setting=SLOW, engine="agents") < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("gossip", "0.5 * half[i] + 0.5", "0.6 * half[i] + 0.4"),
        ("gossip", "(gradient(i, x, rows) + noise)", "gradient(i, x, rows)"),
        ("ad-psgd", "gradient(i, x[t][i], batches[t][i]) + noise[t][i])\n        x", "gradient(i, mean, batches[t][i]) + noise[t][i])\n        x"),
        ("push-sum", "P /= P.sum(axis=0)", "P /= P.sum(axis=1)[:, None]"),
        ("push-sum", "z[t][i], batches", "x[i], batches"),
        ("gradient-tracking", "+ g - before", "+ g"),
        ("gradient-tracking", "W[t - 1] @ y[-1]", "y[-1]"),
    ],
)  # fmt: skip
def test_another_twin_is_noticed(tmp_path, name, right, wrong):
    assert twin_gap(tmp_path, name, sigma=SIGMA, twin=mutant(TWINS[name], right, wrong)) > 1e-4
