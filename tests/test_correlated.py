"""Noise of sums that is correlated over rounds: its law, its memory, what it costs, refusals."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from mutant import mutant
from scipy.linalg import solve_triangular
from test_checkpoints import goes_on, left
from test_engines import differences
from test_factors import dense
from test_invitations import AGENTS, SEED, scenario
from test_resume import unlike
from test_separation import CARRIED, gaps, often

import desim
from desim.engine import correlating
from desim.errors import InputError, RunError
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.correlated import charged, factors
from desim.runs.privacy import foreseen

ROUNDS, CLIP, Z = 13, 0.5, 2.0
MADE = {
    "tree": lambda: ("tree", factors.tree(ROUNDS)),
    "trees": lambda: ({"tree": 5}, factors.tree(ROUNDS, 5)),
    "root": lambda: ("root", factors.root(ROUNDS)),
    "banded root": lambda: ({"root": 3}, factors.root(ROUNDS, 3)),
    "banded": lambda: ({"banded": 4}, factors.banded(ROUNDS, 4)),
    "largest": lambda: ({"banded": 6, "measure": "max"}, factors.banded(ROUNDS, 6, "max")),
    "buffered": lambda: ({"buffered": 2}, factors.buffered(ROUNDS, 2, 4, 4)),
}


def private(said, clip=CLIP, multiplier=Z, **changes):
    """FedAvg whose coordinator is trusted, of agents that rest three rounds."""
    noise = {"multiplier": multiplier, **({} if said is None else {"correlated": said})}
    privacy = {"trust": "coordinator", "clip": clip, "noise": noise, "unit": "agent"}
    start = {"privacy": privacy, "stop": {"rounds": ROUNDS}}
    return {**scenario({"uniform": 2, "separation": 4}, **start), **changes}


@pytest.fixture(scope="module")
def runs():
    """Each noise, played once."""
    played = {}

    def play(name):
        if name not in played:
            played[name] = desim.run(private(MADE[name]()[0]))
        return played[name]

    return play


def draws(dim, round_, step):
    """What is drawn at an address."""
    who = np.array([-1])
    return keys.normals(SEED, Stream.NOISE, agent=who, round=round_, step=step, size=dim)[0]


def node_estimates(first, size, dim, every):
    """The estimate of a node's noise by least squares over its subtree, which has draws of size 1.

    Nodes are drawn in the round that ends them, at steps of their heights.
    """
    rows, z = [], []
    for h in range(size.bit_length()):
        for begin in range(0, size, 1 << h):
            rows.append([begin <= t < begin + (1 << h) for t in range(size)])
            z.append(draws(dim, first + begin + (1 << h), h))
    rows, ones = np.array(rows, float), np.ones(size)
    return np.linalg.solve(rows.T @ rows, ones) @ rows.T @ np.array(z)


def prefix_noise(factor, dim):
    """Noise (rounds, dim) of the prefix sums, from the draws alone."""
    if not isinstance(factor, factors.Tree):
        z = np.array([draws(dim, t, 0) for t in range(1, ROUNDS + 1)])
        return np.cumsum(solve_triangular(dense(factor), z, lower=True), axis=0)
    found, over = [], np.zeros(dim)
    for t in range(1, ROUNDS + 1):
        begin = (t - 1) // factor.every * factor.every
        total, first, rest = over.copy(), begin, t - begin
        for h in reversed(range(rest.bit_length())):
            if rest >> h & 1:
                total += node_estimates(first, 1 << h, dim, factor.every)
                first += 1 << h
        found.append(total * 1.0)
        over = total if rest == factor.every else over
    return np.sqrt(factor.levels) * np.array(found)


@pytest.mark.parametrize("name", MADE)
def test_noise_has_the_law_of_its_factor(name):
    """Of changes that are clipped to next to nothing the model has the noise of prefix sums."""
    said, factor = MADE[name]()
    run = desim.run(private(said, clip=1e-9, multiplier=1e9))
    noise = 2.0 * (run.model[1:] - run.model[0])  # two replies are expected
    assert np.allclose(noise, prefix_noise(factor, noise.shape[1]), atol=1e-7)


def test_independent_noise_has_another_law():
    """And so has that of another factor."""
    said, factor = MADE["banded"]()
    for other in (None, {"root": 4}):
        run = desim.run(private(other, clip=1e-9, multiplier=1e9))
        noise = 2.0 * (run.model[1:] - run.model[0])
        assert not np.allclose(noise, prefix_noise(factor, noise.shape[1]), atol=1e-3), said


def expected(run, factor, relation="agent"):
    """Epsilons (agents,) from contributions that are read in the log, and a dense matrix."""
    c, found = dense(factor)[: run.manifest["rounds"]], []  # where it may end before
    if isinstance(factor, factors.Tree):
        c = dense(factor)
    for rounds in taken(run).values():
        columns = c[:, np.array(rounds, int) - 1].sum(axis=1)
        found.append(np.sqrt(columns @ columns))
    moved = 1.0 if relation == "add-or-remove-agent" else 2.0
    return epsilon_of(moved * np.array(found) / Z, 1e-5)


def taken(run):
    """Rounds of contributions of each agent."""
    found = {}
    waiting = {}
    for event in run.events.itertuples():
        if event.kind == "deliver" and event.agent == -1:
            waiting[event.peer] = event.round
        elif event.kind == "aggregate" and event.agent == -1:
            for agent, called in waiting.items():
                if called == event.round or run.scenario.policy.late == "carry":
                    found.setdefault(agent, []).append(event.round)
            waiting = {}
    return {agent: found.get(agent, []) for agent in range(AGENTS)}


@pytest.mark.parametrize("name", MADE)
def test_an_agent_pays_for_the_rounds_that_it_was_in(name, runs):
    run, factor = runs(name), MADE[name]()[1]
    for relation in ("agent", "add-or-remove-agent"):
        account = run.account(relation=relation)
        assert account.method == "exact GDP"
        assert np.allclose(account.final, expected(run, factor, relation), rtol=1e-9)
    assert any("are one Gaussian release" in one for one in account.assumptions)
    bound = epsilon_of(2.0 * np.sqrt(factor.bound(4, 4)) / Z, 1e-5)
    flag = f"epsilon is that of the rounds each agent was in; {bound:.4g} holds before the run, of "
    flag += "4 contributions at most, 4 rounds apart at least"
    assert flag in run.account().flags
    assert run.account().worst <= bound * (1 + 1e-9)
    assert np.isinf(run.account(view="eavesdropper").final).all()


@pytest.mark.parametrize("name", ["trees", "banded"])
def test_the_curve_has_what_was_released_so_far(name, runs):
    """Also in rounds that an agent is not in: noise to come tells of its contributions, too."""
    run, factor = runs(name), MADE[name]()[1]
    curve = run.epsilon()
    ends = run.events.query("kind == 'aggregate' and agent == -1")["time"].tolist()
    for until in (3, 6, 9):
        now = curve[curve["time"] <= ends[until - 1]].groupby("agent")["epsilon"].max()
        mine = {agent: [t for t in rounds if t <= until] for agent, rounds in taken(run).items()}
        c = dense(factor, until) if name == "trees" else dense(factor)[:until]
        for agent, rounds in mine.items():
            columns = c[:, np.array(rounds, int) - 1].sum(axis=1)
            right = epsilon_of(2.0 * np.sqrt(columns @ columns) / Z, 1e-5)
            assert np.isclose(now.get(agent, 0.0), right, rtol=1e-9)


def test_late_replies_count_in_the_sum_that_has_them():
    run = desim.run(private({"banded": 4}, **CARRIED))
    assert any(run.staleness()["staleness"] > 0)
    assert min(min(one[1:], default=9) for one in gaps(run).values()) == 4
    found, right = run.account().final, expected(run, factors.banded(30, 4))
    replies = run.events.query("kind == 'deliver' and agent == -1")
    closed = run.events.query("kind == 'aggregate'")["time"].max()
    under_way = replies.loc[replies["time"] > closed, "peer"].tolist()  # charged as if it were in
    others = np.setdiff1d(np.arange(AGENTS), under_way)
    assert len(others) > 5
    assert np.allclose(found[others], right[others], rtol=1e-9)
    assert (found >= right).all()


TWINS = [
    ("independent sums", "growth = of_columns(share, rounds, taken)",
     "growth = np.cumsum(np.isin(np.arange(1, rounds + 1), taken))", "root"),
    ("only rounds that it is in", "np.flatnonzero(step > 0.0)", "np.array(taken) - 1", "banded"),
    ("trees over all rounds", "round(1.0 / share[0])", "rounds", "trees"),
    ("one of each agent", "taken = np.unique(held[\"round\"][own]).tolist()",
     "taken = np.unique(held[\"round\"][own]).tolist()[:1]", "tree"),
]  # fmt: skip


@pytest.mark.parametrize("twin", TWINS, ids=[one[0] for one in TWINS])
def test_wrong_accounts_are_found(twin, runs, monkeypatch):
    _, right, wrong, name = twin
    monkeypatch.setattr(charged, "_steps", mutant(charged, right, wrong)._steps)
    run = runs(name)
    assert not np.allclose(run.account().final, expected(run, MADE[name]()[1]), rtol=1e-3)


def test_rounds_that_are_left_out_are_refused(runs):
    """Noise of a sum depends on all before it: rows that are lost leave no account."""
    sums = {"round": np.array([1, 3]), "agent": np.array([-1, -1])}
    with pytest.raises(InputError, match="leave out rounds"):
        charged.chained(sums, sums)


@pytest.mark.parametrize("name", ["trees", "banded", "buffered"])
def test_engines_agree(name, runs):
    other = desim.run(private(MADE[name]()[0], engine="agents"))
    assert differences(runs(name), other, ("status", "reason", "time", "rounds")) == []
    assert desim.run(private(MADE[name]()[0], engine="auto")).manifest["engine"] == "cohort"


@pytest.mark.parametrize("name", ["tree", "banded"])
def test_a_killed_run_remembers_its_noise(name, tmp_path, monkeypatch):
    one = private(MADE[name]()[0])
    often(monkeypatch)
    shown, whole, computed = goes_on(one, tmp_path / "a", after=7)
    assert computed <= whole - shown + 1
    left(one, tmp_path / "b", after=7)
    twin = mutant(
        correlating, 'recall(self, tree, "memory latest")', 'recall(self, tree, "latest")'
    )
    monkeypatch.setitem(sys.modules, "desim.engine.correlating", twin)
    with pytest.raises((AssertionError, RunError)):
        assert unlike(desim.run(one), desim.resume(tmp_path / "b")) == []


def test_rounds_without_a_sum_have_noise_that_nobody_sees(runs):
    """What comes after them is the same, and their rows are written."""
    factor = factors.banded(ROUNDS, 4)
    rows, made = [], []
    for skipped in (False, True):
        trust = SimpleNamespace(
            factor=factor, clip=1.0, deviation=lambda *_: 1.0, terms=lambda *_: (), adaptive=None
        )
        ledger = SimpleNamespace(
            seed=3, charge_one=lambda *row: rows.append(row[2]), keep=lambda: None
        )
        world = SimpleNamespace(settings=SimpleNamespace(trust=trust), ledger=ledger)
        one = correlating.Correlating(world)
        for t in (1, 4) if skipped else (1, 2, 3, 4):
            noise = one.noised(np.zeros(2), t)
            hub = SimpleNamespace(round=t, agents=3, now=0.0)
            none = np.empty(0, np.int64)
            replies = SimpleNamespace(round=none, who=none)
            hub.assignments = None
            one.charge(hub, replies, (1, 2, 3.0, 4.0, 5.0))
        made.append(noise)
    assert np.array_equal(*made)
    assert rows == [1, 2, 3, 4, 1, 2, 3, 4]
    with pytest.raises(RuntimeError, match="two sums in a round"):
        one.refuse_more(4, none)


def test_a_target_and_a_plan_are_of_what_may_happen():
    """As many contributions as the separation lets be: known before the run."""
    factor = factors.banded(ROUNDS, 4)
    one = private({"banded": 4})
    one["privacy"]["noise"] = {"correlated": {"banded": 4}}
    one["privacy"]["target"] = {"epsilon": 6.0, "delta": 1e-5}
    run = desim.run(one)
    z = run.scenario.privacy.noise.multiplier
    assert np.isclose(epsilon_of(2.0 * np.sqrt(factor.bound(4, 4)) / z, 1e-5), 6.0, rtol=1e-6)
    assert run.account().worst <= 6.0 * (1 + 1e-6)
    assert np.isclose(foreseen(run.scenario).worst, 6.0, rtol=1e-6)
    apart = private(None)  # independent noise of 13 rounds, of which an agent is in 4 at most
    assert np.isclose(foreseen(desim.load(apart)).worst, epsilon_of(2.0 * 2.0 / Z, 1e-5))
    bare = {**apart, "participation": {"uniform": 2}}
    every = foreseen(desim.load(bare))
    assert every.worst != foreseen(desim.load(apart)).worst


def test_an_end_that_data_decide_costs_what_holds_before():
    """Which rounds there were tells of data, and so does which of them an agent was in."""
    written = private({"banded": 4})
    data = {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 3, "test": 0.25}
    written["problem"] = {"agents": AGENTS, "loss": "logistic", "data": data}
    written["observe"] = {"metrics": ["accuracy"]}
    stop = {"rounds": ROUNDS, "metric": {"accuracy": 0.1}}
    whole, ended = desim.run(written), desim.run({**written, "stop": stop})
    assert ended.manifest["rounds"] < ROUNDS
    bound = float(epsilon_of(2.0 * np.sqrt(factors.banded(ROUNDS, 4).bound(4, 4)) / Z, 1e-5))
    assert ended.account().final == pytest.approx(np.full(AGENTS, bound), rel=1e-9)
    assert whole.account().final.min() < 0.99 * bound
    assert not any("rounds each agent was in" in flag for flag in ended.account().flags)


REFUSED = {
    "no separation": (
        {"participation": {"uniform": 2}},
        "found with uniform and no separation, so that nothing bounds how close contributions of "
        "an agent are; allowed: participation: {uniform: n, separation: rounds}, or with choose",
    ),
    "everybody": ({"participation": "all"}, "found with all and no separation"),
    "each": (
        {"participation": {"bernoulli": 0.5}, "policy": "each"}, "found with bernoulli and no sep",
    ),
    "no last round": (
        {"stop": {"time": "3 s"}},
        "found without stop.rounds, so that nothing bounds how often an agent takes part",
    ),
    "a clip that moves": (
        {"privacy": {"clip": {"start": 1.0, "quantile": 0.5, "rate": 0.2, "noise": 9.0}}},
        "found with a clip that follows a quantile",
    ),
    "no amount": (
        {"privacy": {"noise": {"correlated": "tree"}}}, "privacy.noise",
    ),
    "nobody trusted": ({"privacy": {"trust": "local"}}, "found without trust: coordinator"),
    "sigma": ({"privacy": {"noise": {"sigma": 1.0, "correlated": "tree"}}}, "correlated and sigma"),
    "laplace": (
        {"privacy": {"noise": {"kind": "laplace", "multiplier": 1.0, "correlated": "tree"}}},
        "found correlated with laplace",
    ),
    "decay": (
        {"privacy": {"noise": {"multiplier": 1.0, "decay": 0.9, "correlated": "tree"}}},
        "found correlated and decay",
    ),
    "a measure of a tree": (
        {"privacy": {"noise": {"multiplier": 1.0, "correlated": {"tree": 4, "measure": "max"}}}},
        "found measure; allowed: with banded or buffered",
    ),
    "no bands": (
        {"privacy": {"noise": {"multiplier": 1.0, "correlated": {"banded": 0}}}}, "banded: found 0",
    ),
    "two": (
        {"privacy": {"noise": {"multiplier": 1.0, "correlated": {"banded": 2, "tree": 4}}}},
        "found banded and tree; allowed: only one of them",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    changes, text = REFUSED[name]
    one = private("tree")
    one["privacy"] = {**one["privacy"], **changes.get("privacy", {})}
    one |= {key: value for key, value in changes.items() if key != "privacy"}
    with pytest.raises(InputError) as error:
        desim.load(one)
    assert text in str(error.value)
