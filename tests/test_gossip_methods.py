"""gossip, ad-psgd, gradient-tracking, push-sum: naive twins, what is kept, where they end."""

import naive.ad_psgd
import naive.clocks
import naive.gossip
import naive.gradient_tracking
import naive.push_sum
import naive.q_dpsgd_1
import numpy as np
import pytest
from cases import CASES, COMPUTE, NETWORK, merged
from laws import check_log
from mutant import mutant
from test_addressed import DROP
from test_against_naive import INSTANT, SEED, TOLERANCE, Rows, gap
from test_engines import differences

import desim
from desim.engine import releasing
from desim.errors import InputError
from desim.experiments.audit.neighbours import worst_pair
from desim.experiments.audit.transcript_check import transcript_check
from desim.methods.shared import averages
from desim.network.conditions.topology import MATCHING
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.scenario.build import build

SIZES, ALPHA, SIGMA, ROUNDS, BATCH, L2 = (5, 2, 4, 6, 3), 0.15, 0.2, 12, 2, 0.5
EDGES = [[0, 1], [1, 2], [2, 3], [3, 4], [0, 2]]
ARCS = [[0, 1], [1, 2], [2, 3], [3, 4], [4, 0], [0, 2], [0, 3]]
SLOW = {"network": NETWORK, "compute": {**COMPUTE, "redraw": "round"}}
LATE = {"network": {"link": DROP}, "compute": {"speed": {"uniform": [20, 200]}, "redraw": "round"}}
PATH = {"topology": "path"}
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
        ("ad-psgd", "(gradient(i, x[t][i], b", "(gradient(i, mean, b"),
        ("push-sum", "P /= P.sum(axis=0)", "P /= P.sum(axis=1)[:, None]"),
        ("push-sum", "z[t][i], batches", "x[i], batches"),
        ("gradient-tracking", "+ g - before", "+ g"),
        ("gradient-tracking", "W[t - 1] @ y[-1]", "y[-1]"),
    ],
)  # fmt: skip
def test_another_twin_is_noticed(tmp_path, name, right, wrong):
    assert twin_gap(tmp_path, name, sigma=SIGMA, twin=mutant(TWINS[name], right, wrong)) > 1e-4


# Nobody waits, or not for long: twins in the order of the log -----------------------------------

POLICIES = {"each": "each", "deadline": {"deadline": "60 ms"}}


def late_run(folder, name, policy, sigma=SIGMA, **changes):
    """A run on links that lose a fifth of all messages, and what a twin of it needs."""
    edges = ARCS if name == "push-sum" else EDGES
    made = scenario(folder, name, LATE, edges, sigma, policy=POLICIES[policy], **changes)
    run = desim.run(made)
    check_log(run)
    return run, (order_of(run.events), gradient(), Rows(1, "logistic", SIZES).x0)


def late_gap(run, place, name, sigma=SIGMA, twin=None):
    order, g, x0 = place
    zeta, twin = noise_of(sigma), twin or TWINS[name]
    if name == "gossip":
        x, rest = twin.gossip_learning(order, g, x0, batches(1), zeta, alpha=ALPHA), None
    elif name == "push-sum":
        links = [tuple(arc) for arc in ARCS]
        x, rest = twin.robust_push_sum(order, g, x0, links, batches(), zeta, alpha=ALPHA)
    else:
        at = {"alpha": ALPHA, "repeat": 2}
        x, *rest = twin.ad_psgd(order, g, x0, choice, batches(), zeta, **at)
    return max(np.abs(run.iterates[k, i] - one).max() for (i, k), one in x.items()), rest


LATER = [("gossip", "each"), ("push-sum", "each"), ("push-sum", "deadline"), ("ad-psgd", "each")]
REPEAT = {"algorithm": {"repeat": 2}}


def kept(agents):
    """How far the sum of all models and moves under way is from that of starts and steps."""
    total = sum(a.x - a.start for a in agents)
    for i, a in enumerate(agents):
        total -= sum(move - agents[j].undone.get(i, 0.0) for j, move in a.moved.items())
    return np.abs(total).max()


@pytest.mark.parametrize(("name", "policy"), LATER)
def test_they_are_their_twins_in_the_order_of_the_log(tmp_path, name, policy):
    changes = REPEAT if name == "ad-psgd" else {}
    run, place = late_run(tmp_path, name, policy, **changes)
    found, rest = late_gap(run, place, name)
    assert found < TOLERANCE
    if name == "push-sum":
        (x, w), start = rest
        assert abs(w - 5.0) < 1e-12
        assert np.abs(x - start).max() < 1e-12
    if name == "ad-psgd":
        assert kept(rest[1]) < 1e-12
        rows = run.events[run.events.kind == "send"]
        sent = set(zip(rows.agent, rows.peer, rows["round"], strict=True))
        assert sent == set(rest[0])
        assert len(sent) > 40


@pytest.mark.parametrize(
    ("name", "policy", "right", "wrong"),
    [
        ("gossip", "each", "[x[i], *(", "[x[i], x[i], *("),
        ("push-sum", "each", "sent[j, round_][0] - heard[j, i][0]", "sent[j, round_][0]"),
        ("push-sum", "deadline", "parts = 1 + len(near[i])", "parts = 2 + len(near[i])"),
        ("ad-psgd", "each", "began[i] = agents[i].x", "agents[i].x"),
        ("ad-psgd", "each", "self.x = self.x - new", "pass"),
        ("ad-psgd", "each", "(letter[\"x\"] - self.x) / 2", "(letter[\"x\"] - self.x) / 3"),
    ],
)  # fmt: skip
def test_another_twin_of_the_log_is_noticed(tmp_path, name, policy, right, wrong):
    changes = REPEAT if name == "ad-psgd" else {}
    run, place = late_run(tmp_path, name, policy, **changes)
    twin = mutant(TWINS[name], right, wrong)
    with np.errstate(all="ignore"):
        try:
            found = late_gap(run, place, name, twin=twin)[0]
        except KeyError:  # an agent is asked by whom it was not
            return
    assert not found < 1e-4


# One of three is three times slower: a clock of its own says who hears what -------------------

UNEVEN, WAITS = (6, 2, 2), {"deadline": {"limit": 0.03}, "quorum": {"quorum": 1}}
LINK = {"latency": {"uniform": ["5 ms", "9 ms"]}, "bandwidth": "inf"}


def slow_gap(folder, policy, seconds=4.0, clock=naive.clocks):
    """Push-sum on three agents: distance of all models from the twin's, the run, the sums."""
    rows = Rows(1, "squared", UNEVEN)
    waits = {"deadline": {"deadline": "30 ms"}, "quorum": {"quorum": 1}}[policy]
    made = desim.load({
        "seed": SEED,
        "problem": {**rows.problem(folder), "loss": "squared"},
        "algorithm": {"name": "push-sum", "alpha": 0.05, "init": rows.init(folder)},
        "policy": waits,
        "network": {"topology": "complete", "link": LINK},
        "compute": {"speed": "100 /s"},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"time": f"{seconds} s"},
    })  # fmt: skip
    run, links = desim.run(made), build(made).settings.links
    delay = dict(zip(map(tuple, links.ends.T.tolist()), links.latency.tolist(), strict=True))
    near = {i: [j for j in range(3) if j != i] for i in range(3)}
    order = clock.hearings([m / 100.0 for m in UNEVEN], delay, near, seconds, **WAITS[policy])
    steps = max(one[2] for one in order)
    g = naive.q_dpsgd_1.linear_model(rows.A, rows.b, loss="squared", clip=np.inf, l2=0.0)
    whole = [[range(m) for m in UNEVEN]] * steps
    links = [(j, i) for i in near for j in near[i]]
    nothing = np.zeros((steps, 3, 3))
    x, sums = naive.push_sum.robust_push_sum(order, g, rows.x0, links, whole, nothing, alpha=0.05)
    gaps = [
        np.abs(run.iterates[k, i] - one).max() for (i, k), one in x.items()
        if k < len(run.iterates)
    ]  # fmt: skip
    return max(gaps), run, sums


@pytest.mark.parametrize("policy", WAITS)
def test_a_slow_neighbour_is_pushed_no_more_than_it_takes_in(tmp_path, policy):
    """It did not when it took in messages of its own rounds alone: w fell like 1 / t."""
    gap, run, ((x, w), start) = slow_gap(tmp_path, policy)
    assert run.manifest["engine"] == "agents"
    assert gap < TOLERANCE
    assert abs(w - 3.0) < 1e-12
    assert np.abs(x - start).max() < 1e-10
    assert 0.3 < run.state["w"].min() < run.state["w"].max() < 1.6
    staleness = run.staleness()
    assert (staleness["staleness"] < 0).any()  # it hears what was sent in later rounds than its own


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("news = {j: round_ for", "news = {j: min(round_, k[i]) for"),
        ("round_ >= k[i]", "round_ == k[i]"),
        ("now + limit", "now + 1.1 * limit"),
    ],
)
def test_another_clock_is_noticed(tmp_path, right, wrong):
    clock = mutant(naive.clocks, right, wrong)
    with np.errstate(all="ignore"):
        assert not slow_gap(tmp_path, "deadline", 2.0, clock)[0] < 1e-4


# What is kept: means of all, sums of gradients --------------------------------------------------


def averaging(folder, name, setting, edges, **changes):
    """No gradient anywhere: all rows are zeros. Returns the run and x0."""
    x0 = np.random.default_rng(4).normal(size=(5, 3))
    np.savez(folder / "zeros.npz", A=np.zeros((5, 2, 3)), b=np.zeros((5, 2)))
    np.savez(folder / "start.npz", x0=x0)
    problem = {"data": {"source": "npz", "file": str(folder / "zeros.npz")}, "loss": "squared"}
    made = merged({"seed": 2, "observe": {"metrics": [], "iterates": True}}, setting)
    made = merged({**made, "problem": problem, "stop": {"rounds": 120}}, changes)
    made["network"]["topology"] = {"edges": edges, "directed": edges is ARCS}
    given = {"name": name, "alpha": 0.1, "init": {"npz": str(folder / "start.npz")}}
    made["algorithm"] = {**given, **changes.get("algorithm", {})}
    return desim.run(made), x0


SOME = {
    "network": {"link": {"latency": {"uniform": ["2 ms", "30 ms"]}, "loss": "10 %",
                         "on_loss": "drop"}},
    "compute": {"speed": {"uniform": [100, 200]}, "redraw": "round"},
}  # fmt: skip
MEANS = [
    ("gossip", {}, EDGES, {"algorithm": {"steps": 0}}),
    ("ad-psgd", {}, EDGES, {}),
    ("ad-psgd", SOME, EDGES, {"policy": "each", "algorithm": {"repeat": 3}}),
    ("push-sum", {}, ARCS, {}),
    ("push-sum", SOME, ARCS, {"policy": {"deadline": "20 ms"}}),
    ("push-sum", SOME, ARCS, {"policy": "each"}),
]


def distance_to_mean(folder, name, setting, edges, changes):
    """Largest distance of a last model from the mean of all starts."""
    run, x0 = averaging(folder, name, setting or INSTANT, edges, **changes)
    return np.abs(run.iterates[-1] - x0.mean(axis=0)).max()


@pytest.mark.parametrize(("name", "setting", "edges", "changes"), MEANS)
def test_all_end_at_the_mean_of_their_starts(tmp_path, name, setting, edges, changes):
    """Whatever is lost, late or overtaken on the way, and whoever hears more than others."""
    assert distance_to_mean(tmp_path, name, setting, edges, changes) < 1e-5


def test_pushing_without_an_answer_does_not(tmp_path):
    assert distance_to_mean(tmp_path, "gossip", SOME, EDGES, {"policy": "each"}) > 1e-2


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("x[i] -= moved[e] - self.undone[e]", "x[i] -= moved[e]"),
        ("self.undone[e] = moved[e]", "pass"),
        ("self.moved[e] += move", "self.moved[e] = move"),
    ],
)
def test_moves_that_are_not_opposite_are_noticed(tmp_path, monkeypatch, right, wrong):
    broken = mutant(averages, right, wrong)
    monkeypatch.setattr("desim.methods.ad_psgd.PairwiseAverages", broken.PairwiseAverages)
    changes = {"policy": "each", "algorithm": {"repeat": 1}, "stop": {"rounds": 60}}
    with np.errstate(all="ignore"):
        try:
            off = distance_to_mean(tmp_path, "ad-psgd", SOME, EDGES, changes)
        except desim.RunError:
            return
    assert not off < 1e-4


@pytest.mark.parametrize("form", ["diging", "next"])
def test_the_sum_of_y_is_that_of_the_gradients(tmp_path, form):
    made = scenario(tmp_path, "gradient-tracking", noise=SIGMA, algorithm={"form": form})
    state = desim.run(made).state
    assert np.abs((state["y"] - state["g"]).sum(axis=0)).max() < 1e-12
    assert np.abs(state["y"] - state["g"]).max() > 1e-2


# Where they end ----------------------------------------------------------------------------------


def last_error(folder, name, edges=EDGES, rounds=120, topology=None, **changes):
    """Squared distance to the optimum of the sum of all f_i, of full gradients."""
    made = scenario(folder, name, INSTANT, edges, observe={"metrics": ["error"]}, **changes)
    del made["problem"]["clip"], made["algorithm"]["batch"], made["privacy"]
    made["problem"]["regularizer"] = {"l2": 5.0}
    made["stop"], made["observe"]["iterates"] = {"rounds": rounds}, False
    made["network"]["topology"] = topology or made["network"]["topology"]
    metrics = desim.run(made).metrics
    return metrics[metrics.agent < 0].value.iloc[-1]


@pytest.mark.parametrize("form", ["diging", "next"])
def test_gradient_tracking_ends_at_the_optimum_with_a_constant_step(tmp_path, form):
    """Unlike dsgd, whose agents pull to optima of their own for ever."""
    all_, step = {"topology": "complete"}, {"alpha": 0.2}
    tracked = last_error(tmp_path, "gradient-tracking", **all_, algorithm={**step, "form": form})
    assert tracked < 1e-20
    assert last_error(tmp_path, "dsgd", **all_, algorithm=step) > 1e-2


@pytest.mark.parametrize(
    ("name", "edges"), [("gossip", EDGES), ("ad-psgd", EDGES), ("push-sum", ARCS)]
)
def test_the_others_go_there_with_falling_steps(tmp_path, name, edges):
    falling = {"algorithm": {"alpha": {"initial": 0.5, "decay": "linear"}}}
    far, near = (last_error(tmp_path, name, edges, n, **falling) for n in (20, 200))
    assert near < 1e-2
    assert near < far / 3.0


# Graphs that change, and what is refused ---------------------------------------------------------

TURNS = [[[0, 1], [2, 3]], [[1, 2], [3, 4]], [[0, 2], [1, 4]], [[0, 3]]]


@pytest.mark.parametrize("name", ["push-sum", "gradient-tracking"])
def test_iteration_k_has_the_weights_of_the_graph_of_round_k(tmp_path, name):
    runs = []
    for engine, setting in zip(ENGINES, (INSTANT, SLOW), strict=True):
        made = scenario(tmp_path, name, setting, noise=SIGMA, engine=engine)
        made["network"]["topology"] = {"switching": TURNS}
        runs.append(desim.run(made))
    assert runs[0].iterates.tobytes() == runs[1].iterates.tobytes()
    turns, start = [TURNS[k % 4] for k in range(ROUNDS)], Rows(1, "logistic", SIZES).x0
    place, zeta = (gradient(), start), noise_of(SIGMA)
    if name == "push-sum":
        links = [[*edges, *(edge[::-1] for edge in edges)] for edges in turns]
        found = naive.push_sum.push_sum(*place, links, batches(), zeta, alpha=ALPHA)
    else:
        W = [naive.q_dpsgd_1.mixing_matrix(edges, 5, None) for edges in turns]
        found = naive.gradient_tracking.gradient_tracking(*place, W, batches(), zeta, alpha=ALPHA)[
            0
        ]
    assert gap(runs[0].iterates, found) < TOLERANCE


NOISE = {"privacy": {"noise": {"sigma": 0.1}}}
ONE_WAY = {"network": {"topology": {"edges": ARCS, "directed": True}}}
SWITCHED = {"network": {"topology": {"switching": TURNS}}}
LOST = {"churn": {"up": {"exponential": "1 s"}, "down": {"exponential": "1 s"}, "memory": "lost"}}
DEADLINE = {"policy": {"deadline": "20 ms"}}
REFUSED = [
    ("gossip", DEADLINE, "policy: found deadline; allowed with gossip: all, each"),
    ("gossip", {"algorithm": {"steps": 0}, "policy": "each"}, "steps: found 0 with policy each"),
    ("gossip", {"algorithm": {"steps": 2}, **NOISE}, "steps: found 2 with privacy.noise"),
    ("gossip", {"algorithm": {"steps": -1}}, "steps: found -1"),
    ("gossip", ONE_WAY, "need answers from those they tell"),
    ("gossip", SWITCHED, "keep pairs that are drawn on a graph that stays"),
    ("gossip", {"algorithm": {"batch": 7}}, "batch: found 7; allowed: 1 to 6"),
    ("gossip", {"network": {"link": DROP}}, "on_loss: found drop"),
    ("gossip", LOST, "memory: found lost with gossip: whom it met last"),
    ("ad-psgd", DEADLINE, "policy: found deadline; allowed with ad-psgd: all, each"),
    ("ad-psgd", {"algorithm": {"repeat": 0}}, "repeat: found 0"),
    ("ad-psgd", {"policy": "each", "privacy": {"budget": 9}}, "privacy.budget: found with policy"),
    ("ad-psgd", ONE_WAY, "need answers from those they tell"),
    ("ad-psgd", SWITCHED, "keep pairs that are drawn on a graph that stays"),
    ("gradient-tracking", DEADLINE, "policy: found deadline; allowed with gradient-tracking: all"),
    ("gradient-tracking", {"network": {"link": DROP}}, "on_loss: found drop"),
    ("gradient-tracking", LOST, "the sum of all y"),
    ("gradient-tracking", ONE_WAY, "agent 0 hears 1 and is heard by 3, so that averages drift"),
    ("push-sum", {"network": {"link": DROP}}, "found drop, but with policy all .*or policy: {dead"),
    ("push-sum", LOST, "the shares of x and w"),
    ("push-sum", {**SWITCHED, "policy": "each"}, "found each on a graph that changes"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "change", "told"), REFUSED)
def test_what_does_not_fit_is_refused_in_words(tmp_path, name, change, told):
    topology = change.get("network", {}).get("topology")
    made = scenario(tmp_path, name, **change)
    if "budget" not in made["privacy"]:
        del made["problem"]["clip"]
    if topology:
        made["network"]["topology"] = topology
    with pytest.raises(InputError, match=told):
        build(desim.load(made))


# What is released --------------------------------------------------------------------------------


def privately(name, policy="all", **changes):
    made = merged(CASES[name], {"policy": policy, "stop": {"rounds": 12}, **changes})
    return desim.run(made)


def check_told_with_the_next_message(run):
    """Each gradient's row has the time of its agent's next message, to one neighbour or more."""
    sent, rows = run.events[run.events.kind == "send"], run.releases
    sent = sent[sent.value == 0]
    behind = 0
    for agent, mine in rows.groupby("agent"):
        times = sorted(set(sent[sent.agent == agent].time))
        steps = run.events[(run.events.kind == "compute") & (run.events.agent == agent)]
        began = dict(zip(steps["round"], steps.time, strict=True))
        for row in mine.itertuples():
            assert row.time == min(t for t in [*times, np.inf] if t >= began[row.round])
            assert row.delivered == 1
        told = [k for k, t in began.items() if times and t <= times[-1]]
        assert set(mine["round"]) <= set(told)
        behind += mine.time.duplicated().sum()
    assert behind > 0


@pytest.mark.parametrize("name", ["gossip", "ad-psgd"])
def test_who_is_left_over_pays_when_it_speaks_again(name):
    runs = [privately(name, engine=one, network=PATH) for one in ENGINES]
    assert differences(*runs) == []
    check_told_with_the_next_message(runs[0])


def test_a_release_that_is_told_at_once_is_noticed(monkeypatch):
    broken = mutant(releasing, "np.where(speaks, ids, -1), np", "ids, np")
    monkeypatch.setattr("desim.engine.releasing.parted", broken.parted)
    with pytest.raises((AssertionError, RuntimeError, desim.RunError)):
        check_told_with_the_next_message(privately("gossip", network=PATH))


def test_who_waits_for_nothing_pays_with_its_next_message():
    check_told_with_the_next_message(privately("ad-psgd", "each"))


@pytest.mark.parametrize("name", ["ad-psgd", "push-sum"])
@pytest.mark.slow
def test_nothing_but_the_releases_moves_what_is_sent_where_nobody_waits(name):
    made = merged(CASES[name], {"policy": "each", "stop": {"rounds": 6}})
    checked = transcript_check(worst_pair(build(desim.load(made)), row=0, pinned=True), 6)
    checked.demand()
    assert checked.largest > 0.9
