"""Whom a coordinator invites that remembers: naive twins, equal engines, prices and refusals."""

import inspect
import sys
from types import ModuleType

import naive.choices
import numpy as np
import pytest
from cases import LOSSY, merged
from mutant import mutant
from test_engines import differences
from test_resume import killed, unlike

import desim
from desim.errors import InputError
from desim.network.conditions import choosing
from desim.network.conditions.choosing import ranks_of
from desim.network.timeline.record import is_beside
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import epsilon_of
from desim.problem.problem import mean_losses, row_losses
from desim.scenario.build import build
from desim.scenario.load import load
from desim.scenario.sections.algorithm import DEFAULTS

SEED, AGENTS, ROWS = 11, 9, [3, 9, 6, 10, 4, 7, 7, 6, 11]
SPEEDS = {"uniform": [100, 900]}


def scenario(participation, **changes):
    """FedAvg of nine agents with unlike rows and devices."""
    base = {
        "name": "case", "seed": SEED, "engine": "cohort",
        "problem": {
            "agents": AGENTS, "sizes": ROWS, "partition": "contiguous", "loss": "logistic",
            "data": {"source": "synthetic", "kind": "classification", "rows": 7, "dim": 3},
        },
        "algorithm": {"name": "fedavg", "local": {"solver": "gradient", "epochs": 2, "step": 0.5}},
        "participation": participation,
        "network": {"link": {"latency": "20 ms", "bandwidth": "1 Mbit/s"}},
        "compute": {"speed": SPEEDS},
        "observe": {"metrics": ["loss"], "iterates": True}, "stop": {"rounds": 14},
    }  # fmt: skip
    return merged(base, changes)


def log_of(run):
    """The run's log, as the twins read it."""
    events, found = run.events, []
    for k in range(1, len(run.model)):
        mine = events[events["round"] == k]
        sent = mine[mine.kind == "activate"].set_index("agent").time.to_dict()
        came = mine[(mine.kind == "deliver") & (mine.agent == -1)].set_index("peer").time.to_dict()
        closed = float(mine[mine.kind == "aggregate"].time.iloc[0])
        came = {i: time for i, time in came.items() if time <= closed}
        found.append({"sent": sent, "came": came, "closed": closed})
    return found


def said_in(run, power=1, clip=np.inf, sigma=0.0):
    """What replies to each round say: means of losses at the model that was sent, by agent."""
    problem, said = build(run.scenario).problem, [{}]
    for k in range(1, len(run.model)):
        u = problem.A @ run.model[k - 1] * problem.b
        losses = np.minimum(np.log1p(np.exp(-u)), clip) ** power
        noise = keys.normals(SEED, Stream.NOISE, agent=np.arange(AGENTS), round=k, step=1 << 23)[
            :, 0
        ]
        spans = [slice(i, j) for i, j in problem.spans()]
        said.append({i: losses[rows].mean() + sigma * noise[i] for i, rows in enumerate(spans)})
    return said


def lots(k, number):
    """Lots of all agents in round k."""
    place = {"agent": np.arange(AGENTS), "round": k, "step": (1 << 21) + number}
    return keys.exponentials(SEED, Stream.PARTICIPATION, **place)[:, 0]


def coin(k):
    """The number that draws a tier."""
    return float(keys.uniforms(SEED, Stream.PARTICIPATION, round=k, step=(1 << 21) + 2)[0])


def unexpected(run, naive, make, power=1, clip=np.inf, sigma=0.0):
    """Rounds whose invitations are not those of the twin that `make(naive)` gives."""
    choice, log, said = make(naive), log_of(run), said_in(run, power, clip, sigma)
    past, found = naive.Past(AGENTS), []
    for k, entry in enumerate(log, 1):
        if choice(past, k) != set(entry["sent"]):
            found.append(k)
        past.add(k, entry, said)
        if hasattr(choice, "heard"):
            choice.heard(past, entry["came"])
    return found


class With:
    """A twin with its arguments."""

    def __init__(self, choice, n, *given, **named):
        self.choice, self.n, self.given, self.named = choice, n, given, named

    def __call__(self, past, k):
        return self.choice(past, k, self.n, AGENTS, lots, *self.given, **self.named)

    def heard(self, past, came):
        if hasattr(self.choice, "heard"):
            self.choice.heard(past, came)


def speed():
    """What devices are known to compute, gradients per second."""
    u = keys.uniforms(SEED, Stream.SPEED, agent=np.arange(AGENTS))[:, 0]
    return 100.0 + 800.0 * u


QUORUM = {"policy": {"quorum": 3}}
OORT = {"choose": "oort", "invite": 4, "window": 2, "pace": "40 ms", "exploration": 0.6}
NOISE = {"clip": 1.5, "sigma": 0.2}
CASES = {
    "fastest": (
        {"choose": "fastest", "invite": 4}, {}, lambda naive: With(naive.fastest, 4), {}
    ),
    "fastest of a quorum": (
        {"choose": "fastest", "invite": 4}, QUORUM, lambda naive: With(naive.fastest, 4), {}
    ),
    "oldest": (
        {"choose": "oldest", "invite": 4}, QUORUM, lambda naive: With(naive.oldest, 4), {}
    ),
    "round-robin": (
        {"choose": "round-robin", "invite": 4}, {}, lambda naive: With(naive.round_robin, 4), {}
    ),
    "power-of-choice": (
        {"choose": "power-of-choice", "invite": 3, "candidates": 6}, {},
        lambda naive: With(naive.power_of_choice, 3, ROWS, 6), {},
    ),
    "power-of-choice with noise": (
        {"choose": "power-of-choice", "invite": 3, "candidates": 6, "losses": NOISE}, {},
        lambda naive: With(naive.power_of_choice, 3, ROWS, 6), NOISE,
    ),
    "oort": (
        OORT, {}, lambda naive: With(naive.Oort(ROWS, speed(), first=0.6, W=2, pace=0.04), 4),
        {"power": 2},
    ),
    "oort of a quorum": (
        {"choose": "oort", "invite": 4, "window": 1, "explore": "random", "most": 3,
         "exploration_decay": 0.8}, QUORUM,
        lambda naive: With(naive.Oort(ROWS, np.ones(9), W=1, most=3, decay=0.8), 4), {"power": 2},
    ),
    "oort with noise": (
        {**OORT, "losses": NOISE}, {},
        lambda naive: With(naive.Oort(ROWS, speed(), first=0.6, W=2, pace=0.04), 4),
        {"power": 2, **NOISE},
    ),
    "tiers": (
        {"choose": "tiers", "invite": 2, "tiers": 3, "probabilities": [0.5, 0.2, 0.3],
         "credits": [5, 5, 5]}, {},
        lambda naive: With(naive.Tiers(3, [0.5, 0.2, 0.3], [5, 5, 5]), 2, coin), {},
    ),
    "adaptive tiers": (
        {"choose": "tiers", "invite": 2, "tiers": 3, "interval": 2}, {"algorithm": {"local":
         {"step": 6.0}}}, lambda naive: With(naive.Tiers(3, interval=2), 2, coin), {},
    ),
    "tiers that nobody has trained": (
        {"choose": "tiers", "invite": 1, "tiers": 4, "interval": 3}, {"algorithm": {"local":
         {"step": 10.0}}}, lambda naive: With(naive.Tiers(4, interval=3), 1, coin), {},
    ),
    "tiers that run out": (
        {"choose": "tiers", "invite": 2, "tiers": 3, "probabilities": [0.0, 1.0, 0.0],
         "credits": [3, 4, 6]}, {},
        lambda naive: With(naive.Tiers(3, [0.0, 1.0, 0.0], [3, 4, 6]), 2, coin), {},
    ),
    "oort that explores less": (
        {"choose": "oort", "invite": 4, "exploration_decay": 0.7, "exploration_least": 0.45,
         "quantile": 0.5, "cutoff": 0.8, "window": 3, "alpha": 1.0}, QUORUM,
        lambda naive: With(naive.Oort(ROWS, speed(), alpha=1.0, decay=0.7, least=0.45, c=0.8,
                                      clip=0.5, W=3), 4), {"power": 2},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def runs():
    """Each case, played once."""
    played = {}

    def play(name):
        if name not in played:
            participation, changes, *_ = CASES[name]
            played[name] = desim.run(scenario(participation, **changes))
        return played[name]

    return play


@pytest.mark.parametrize("name", CASES)
def test_invitations_are_those_of_the_naive_twin(name, runs):
    *_, make, said = CASES[name]
    run = runs(name)
    assert unexpected(run, naive.choices, make, **said) == []
    invited = [set(entry["sent"]) for entry in log_of(run)]
    assert len(set(map(frozenset, invited))) > 2  # the choice is one


WRONG = [
    ("fastest", "else -1.0", "else 1e9"),
    ("fastest of a quorum", "max(waited, self.took.get(i, waited))", "1e9"),
    ("oldest", "self.heard[i] = k\n", "self.heard[i] = -k\n"),
    ("round-robin", "(k - 1) * n", "(k - 1) * (n + 1)"),
    ("power-of-choice", "-past.said.get(i, math.inf)", "past.said.get(i, math.inf)"),
    ("power-of-choice", "draw[i] / share[i]", "draw[i]"),
    ("oort", "util[i] *= (T / past.took[i])", "util[i] *= (past.took[i] / T)"),
    ("oort", "self.steps += 1", "self.steps += 0"),
    ("oort", "lot[i] / self.speed[i]", "lot[i]"),
    ("oort", "lot[i] / util[i]", "lot[i]"),
    ("oort of a quorum", "past.picks[i] > self.most", "past.picks[i] > self.most + 1"),
    ("oort of a quorum", "self.steps * W * n", "W * n"),
    ("oort with noise", "(max(said[i], 0.0))", "(abs(said[i]) + 0.5)"),
    ("oort that explores less", "for i in known], self.clip)", "for i in known], 1.0)"),
    ("oort that explores less", "past.heard[i])\n", "past.picks[i])\n"),
    ("oort that explores less", "k > 1 and self.eps > self.least", "k > 1"),
    ("oort that explores less", "self.eps *= self.decay", "self.eps *= 0.98"),
    ("oort that explores less", "math.sqrt(0.1 * math.log(k)", "math.sqrt(0.0 * math.log(k)"),
    ("oort that explores less", "self.c * sorted", "0.95 * sorted"),
    ("tiers", "key=lambda i: past.took[i]", "key=lambda i: -past.took[i]"),
    ("tiers", "self.credits[self.current] -= 1", "pass"),
    ("tiers that run out", "1.0 if left > 0 else 0.0 for", "1.0 for"),
    ("adaptive tiers", "key=lambda t: -now[t]", "key=lambda t: now[t]"),
    ("adaptive tiers", "now[self.current] >= self.before[self.current]", "True"),
    ("tiers that nobody has trained", "now[one], now[t]", "one, t"),
    ("tiers that nobody has trained", "r % self.interval == 0", "r % self.interval == 1"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), WRONG)
def test_another_choice_is_noticed(name, right, wrong, runs):
    *_, make, said = CASES[name]
    other = mutant(naive.choices, right, wrong)
    try:
        assert unexpected(runs(name), other, make, **said)
    except KeyError:  # it looks for replies that never came
        assert name == "oldest"


def test_tiers_that_tie_share_their_ranks():
    start = np.log(2.0)
    assert ranks_of(np.array([0.4, start, start * (1.0 + 1e-15), 0.8])).tolist() == [1, 2.5, 2.5, 4]
    assert ranks_of(np.array([-np.inf, 0.3, -np.inf, -0.1])).tolist() == [1.5, 4, 1.5, 3]
    assert ranks_of(np.array([0.3, 0.3001])).tolist() == [1, 2]


LOSSY_LINKS = {"link": {**LOSSY["link"], "on_loss": "drop"}}
CHURN = {"up": {"exponential": "300 ms"}, "down": {"exponential": "200 ms"}}
POLICIES = (
    "all", {"deadline": "70 ms"}, {"deadline": "70 ms", "late": "carry"}, {"quorum": 2},
    {"buffer": 2}, {"adaptive": {"mad": 2}}, "each",
)  # fmt: skip
CHOICES = (
    {"choose": "fastest", "invite": 4},
    {"choose": "oldest", "invite": 3},
    {"choose": "round-robin", "invite": 4},
    {"choose": "power-of-choice", "invite": 3, "candidates": 5},
    {"choose": "power-of-choice", "invite": 3, "candidates": 5, "losses": NOISE},
    {"choose": "oort", "invite": 4, "window": 2},
    {"choose": "oort", "invite": 3, "losses": NOISE, "pace": "50 ms", "most": 4},
    {"choose": "tiers", "invite": 2, "tiers": 3},
    {"choose": "tiers", "invite": 3, "tiers": 2, "interval": 3},
)
METHODS = (
    {}, {}, {"algorithm": {"name": "fed-plt", "rho": 0.5}}, {"algorithm": {"name": "scaffold"}},
    {"algorithm": {"name": "fedlin"}},
)  # fmt: skip


def combination(number):
    """One of many scenarios, drawn by its number."""
    rng = np.random.default_rng(number)
    choice = dict(CHOICES[rng.integers(len(CHOICES))])
    policy = POLICIES[rng.integers(len(POLICIES))]
    changes = {} if "losses" in choice else METHODS[rng.integers(len(METHODS))]
    if changes.get("algorithm", {}).get("name") == "fedlin":
        policy, choice = "all", dict(CHOICES[rng.integers(1, 4)])
    found = scenario(choice, seed=int(number), policy=policy)
    found = merged(found, {"stop": {"time": "900 ms", "rounds": 25}})
    if changes:
        found["algorithm"] = {**changes["algorithm"], "local": {"epochs": 2}}
    found["network"] = {"link": LOSSY["link"]} if rng.random() < 0.5 else found["network"]
    interrupts = policy not in ("all", "each", *POLICIES[2:5:2])
    if rng.random() < 0.5 and not interrupts:  # only the agent engine plays both
        found["churn"] = CHURN
        found["participation"]["available"] = bool(rng.random() < 0.5)
    return found


@pytest.mark.thin(2)
@pytest.mark.parametrize("number", range(8))
def test_engines_invite_the_same(number):
    one = combination(number)
    first, second = (desim.run({**one, "engine": engine}) for engine in ("cohort", "agents"))
    assert differences(first, second, ("status", "reason", "time", "rounds")) == []
    assert len(first.model) > 2


@pytest.mark.parametrize(
    ("choice", "engine"), [(CHOICES[2], "auto"), (CHOICES[6], "agents"), (CHOICES[8], "auto")]
)
def test_a_killed_run_goes_on_inviting_the_same(choice, engine, tmp_path, monkeypatch):
    one = scenario(choice, engine=engine, stop={"rounds": 20})
    killed(one, tmp_path / "a", monkeypatch, 9, rows=20)
    monkeypatch.setattr("desim.engine.world.FLUSH_SECONDS", -1.0)
    assert unlike(desim.run(one), desim.resume(tmp_path / "a")) == []
    if engine == "auto":  # the compiled engine asks ahead
        assert desim.open(tmp_path / "a").manifest["engine"] == "cohort"


def test_every_reply_that_says_losses_has_a_row_and_its_bytes(runs):
    bare, noisy, silent = (
        runs(name) for name in ("power-of-choice", "power-of-choice with noise", "fastest")
    )
    for run in (bare, noisy):
        releases, events = run.releases, run.events
        beside = releases[is_beside(releases.release)]
        replies = releases[~is_beside(releases.release)]
        assert len(beside) == len(replies) == 3 * 14
        for name in ("time", "agent", "round", "delivered", "seen_by"):
            assert beside[name].tolist() == replies[name].tolist()
        assert (beside.release - (1 << 60)).tolist() == replies.release.tolist()
        made = events[events.kind == "release"]
        assert sorted(made.release) == sorted(releases.release)
        sent = events[(events.kind == "send") & (events.agent != -1)]
        assert set(sent.bytes) == {8 * (3 + 1)}
        assert (events[(events.kind == "send") & (events.agent == -1)].bytes == 8 * 3).all()
    rows = np.array(ROWS)[noisy.releases.agent[is_beside(noisy.releases.release)]]
    own = noisy.releases[is_beside(noisy.releases.release)]
    assert own.mechanism.eq("gaussian").all()
    assert own.scale.eq(0.2).all()
    assert np.allclose(own.sensitivity, 1.5 / rows, rtol=1e-15)
    assert bare.releases.mechanism.eq("none").all()
    assert (silent.events[silent.events.kind == "send"].bytes == 8 * 3).all()
    assert (silent.releases.release < 1 << 60).all()


PRIVATE = {
    "algorithm": {"local": {"solver": "noisy", "step": 0.5, "epochs": 1}},
    "problem": {"clip": 0.5}, "privacy": {"noise": {"kind": "gaussian", "sigma": 0.4}},
}  # fmt: skip


@pytest.mark.parametrize("relation", ["replace-one", "add-or-remove-one", "agent"])
def test_noise_on_losses_is_charged_beside_that_on_models(relation):
    choice = {"choose": "oort", "invite": 4, "losses": NOISE}
    with_losses = desim.run(scenario(choice, **PRIVATE))
    releases = with_losses.releases
    own = is_beside(releases.release)
    spent = with_losses.epsilon(view="coordinator", relation=relation).groupby("agent").epsilon
    found, so_far = spent.last(), spent.agg(lambda one: one.iloc[-2])
    for agent in range(AGENTS):
        mine = releases[(releases.agent == agent) & ~own]
        n, m = len(mine), ROWS[agent]
        factor = {"replace-one": 1.0, "add-or-remove-one": 0.5, "agent": m}[relation]
        model, loss = mine.sensitivity / mine.scale, 1.5**2 / m / 0.2
        assert n < 14
        assert model.nunique() == 1
        for times, epsilon in ((n, so_far[agent]), (14, found[agent])):  # it has, and might have
            square = times * factor**2 * (model.iloc[0] ** 2 + loss**2)
            assert epsilon == pytest.approx(float(epsilon_of(np.sqrt(square), 1e-5)), rel=1e-12)
    without = desim.run(scenario({"choose": "oldest", "invite": 4}, **PRIVATE))
    assert without.epsilon(relation=relation).epsilon.max() < found.max()


def test_losses_without_noise_cost_infinity_whatever_noise_models_have():
    run = desim.run(scenario({"choose": "oort", "invite": 4}, **PRIVATE))
    assert np.isinf(run.epsilon().groupby("agent").last().epsilon).all()
    told = [text for text in run.manifest["warnings"] if "reads losses" in text]
    assert len(told) == 1
    assert "every reply releases one number more" in told[0]
    assert "epsilon is infinite" in told[0]


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_a_budget_pays_for_losses_too(engine):
    choice = {"choose": "power-of-choice", "invite": 4, "candidates": 6, "losses": NOISE}
    changes = merged(PRIVATE, {"privacy": {"budget": 30.0}, "stop": {"rounds": 40}})
    run = desim.run(scenario(choice, engine=engine, **changes))
    spent = run.epsilon(view="eavesdropper").groupby("agent").epsilon
    retired = run.events[run.events.kind == "retire"].agent.tolist()
    assert 0 < len(retired) < AGENTS
    price = spent.agg(lambda one: one.iloc[-2])  # one more of each kind would not have fitted
    assert price.max() <= 30.0
    assert spent.last()[retired].tolist() == pytest.approx([30.0] * len(retired), rel=1e-9)
    releases = run.releases
    for agent in retired:
        mine = releases[releases.agent == agent]
        square = np.sum((mine.sensitivity / mine.scale) ** 2)
        more = mine.drop_duplicates(["mechanism", "sensitivity", "scale"])
        one = np.sum((more.sensitivity / more.scale) ** 2)
        assert epsilon_of(np.sqrt(square), 1e-5) == pytest.approx(price[agent])
        assert epsilon_of(np.sqrt(square + one), 1e-5) > 30.0


def test_who_is_invited_too_many_pays_whether_taken_or_not():
    """Thirteen are invited and ten replies taken: all thirteen have released something."""
    choice, policy = {"choose": "round-robin", "invite": 7}, {"quorum": 5}
    run = desim.run(scenario(choice, policy=policy, **PRIVATE, stop={"rounds": 1, "time": "9 s"}))
    taken = run.events[run.events.kind == "aggregate"].value.tolist()
    assert taken == [5.0]
    log = log_of(run)[0]
    assert len(log["sent"]) == 7
    assert len(log["came"]) == 5
    ended = run.events[run.events.kind == "compute"].agent.tolist()
    assert sorted(run.releases.agent) == sorted(ended)
    later = desim.run(scenario(choice, policy={**policy, "late": "carry"}, **PRIVATE,
                               stop={"rounds": 4}))  # fmt: skip
    first = later.releases[later.releases["round"] == 1]
    assert len(first) == 7
    assert later.events[later.events.kind == "aggregate"].value.iloc[0] == 5.0
    spent = later.epsilon(view="coordinator").groupby("agent").last().epsilon
    assert (spent[list(log["sent"])] > 0.0).all()


def chosen(name="oort", **more):
    """A choice of four agents."""
    return {"choose": name, "invite": 4, **more}


REFUSED = {
    "no number": ({"choose": "oort"}, {}, "participation: found choose without invite"),
    "a name": (chosen("oorrt"), {}, "found 'oorrt'; allowed: fastest, oldest, round-robin, "),
    "the nearest name": (chosen("oorrt"), {}, "did you mean 'oort'?"),
    "all": (chosen(invite=9), {}, "participation.invite: found 9 of 9 agents, which leaves noth"),
    "more than all": (chosen(invite=12), {}, "participation.invite: found 12 of 9 agents"),
    "no candidates": (chosen("power-of-choice"), {}, "found power-of-choice without candidates"),
    "few candidates": (
        chosen("power-of-choice", candidates=3), {},
        "participation.candidates: found 3 candidates for 4 invitations; allowed: at least 4",
    ),
    "many candidates": (
        chosen("power-of-choice", candidates=10), {},
        "participation.candidates: found 10 of 9 agents; allowed: 4 to 9",
    ),
    "a key of another": (
        chosen("fastest", candidates=5), {},
        "found candidates with choose: fastest; allowed with it: invite, available",
    ),
    "losses that nobody reads": (chosen("oldest", losses=NOISE), {}, "found losses with choose"),
    "losses of tiers that stay": (
        chosen("tiers", losses=NOISE), {}, "losses: found without interval, so that nobody reads",
    ),
    "an unknown key": (chosen(alhpa=3), {}, "alhpa: unknown key;"),
    "two ways": (chosen(uniform=3), {}, "found choose and uniform; allowed: only one of them"),
    "a number alone": ({"uniform": 4, "invite": 3}, {}, "found invite without choose"),
    "nobody leaves": (
        chosen("available"), {}, "participation.choose: found available without churn"
    ),
    "nobody leaves, either": (
        chosen("oldest", available=True), {}, "participation.available: found true without churn",
    ),
    "said twice": (
        chosen("available", available=True), {"churn": CHURN}, "found with choose: available",
    ),
    "many tiers": (chosen("tiers", tiers=10), {}, "participation.tiers: found 10 tiers of 9"),
    "unlike lists": (
        chosen("tiers", tiers=3, credits=[9, 9]), {}, "credits: found 2 entries for 3 tiers",
    ),
    "few credits": (
        chosen("tiers", tiers=3, credits=[4, 4, 4]), {},
        "participation.credits: found 12 credits for 13 rounds after profiling",
    ),
    "credits without end": (
        chosen("tiers", tiers=2, credits=[4, 4]), {"stop": {"time": "1 s"}},
        "participation.credits: found credits without stop.rounds",
    ),
    "nothing to draw": (
        chosen("tiers", tiers=2, probabilities=[0, 0]), {}, "probabilities: found only 0",
    ),
    "a rise": (chosen(exploration=0.1), {}, "exploration_least: found 0.2, above exploration"),
    "no deviation": (chosen(losses={"clip": 1.0}), {}, "participation.losses.sigma: missing"),
    "no clip": (chosen(losses={"clip": 0, "sigma": 1}), {}, "losses.clip: found 0; allowed: a num"),
    "trained models": (
        chosen(losses=NOISE), {"algorithm": {"name": "scaffold"}},
        "participation.losses: found noise with scaffold, whose agents train the model at which",
    ),
    "a budget and bare losses": (
        chosen(), {**PRIVATE, "privacy": {"budget": 4.0, "noise": {"sigma": 0.4}}},
        "participation.choose: found oort with privacy.budget, but losses without noise cost inf",
    ),
    "a budget that is spent at once": (
        chosen(losses={"clip": 9.0, "sigma": 0.01}),
        {**PRIVATE, "privacy": {"budget": 40.0, "noise": {"sigma": 0.4}}},
        "privacy.budget: found 40, but the first release of agent 0 costs epsilon",
    ),
    "a target": (
        chosen(losses=NOISE),
        {**PRIVATE, "privacy": {"target": {"epsilon": 9.0, "delta": 1e-5}}},
        "participation.choose: found oort with privacy.target, which does not plan",
    ),
    "too few for the policy": (
        chosen(), {"policy": {"quorum": 5}}, "policy.quorum: found 5 replies from 4 invited",
    ),
    "the compiled engine": (
        chosen("oldest"), {"engine": "compiled"},
        "engine: found compiled, but whom participation.choose invites is decided in Python",
    ),
    "all are needed": (
        chosen("oldest"), {"algorithm": {"name": "fed-pd", "eta": 1.0}},
        "participation: found choose, but fed-pd needs every agent in every round",
    ),
    "times of unlike calls": (
        chosen("fastest"), {"algorithm": {"name": "fedlin"}},
        "participation.choose: found fastest, which goes by how long the latest reply took, but",
    ),
    "a graph": (
        chosen("oldest"),
        {"algorithm": {"name": "dsgd", "alpha": 0.1}, "network": {"topology": "ring"}},
        "participation: found choose, but dsgd needs every agent in every round; allowed: all",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_makes_no_sense_is_refused_before_the_run(name, tmp_path):
    participation, changes, said = REFUSED[name]
    other = changes.get("algorithm", {})
    same = {key: one for key, one in changes.items() if not ("name" in other and one is other)}
    given = scenario(participation, **same)
    given["algorithm"] = other if "name" in other else given["algorithm"]
    with pytest.raises(InputError) as refused:
        desim.run(given, out=tmp_path / "a")
    assert said in str(refused.value)
    assert not (tmp_path / "a").exists()


def test_other_delays_would_invite_others(runs):
    with pytest.raises(InputError, match=r"participation\.choose: found fastest; who is invited"):
        desim.retime(runs("fastest"), network={"link": {"latency": "1 s"}})


def test_losses_leave_no_claim_of_a_paper_and_no_epsilon_fixed_beforehand():
    fed_plt = {"name": "fed-plt", "rho": 0.5, "local": {"solver": "noisy", "step": 0.1}}
    private = {"problem": {"clip": 0.5}, "privacy": {"noise": {"kind": "gaussian", "sigma": 0.4}}}
    given = scenario(chosen(), **private)
    given["algorithm"] = fed_plt
    told = desim.run(given)
    assert told.manifest["privacy"]["claim"] is None
    given["participation"] = chosen("oldest")
    untold = desim.run(given)
    assert untold.manifest["privacy"]["claim"] is not None
    said = "oort invites by losses that were released"
    fedavg = desim.run(scenario(chosen(losses=NOISE), **PRIVATE))
    assert any(said in text for text in fedavg.account().flags)
    assert not any(said in text for text in untold.account().flags)
    noisy = scenario(chosen(losses=NOISE), **merged(PRIVATE, {"privacy": {"budget": 50.0}}))
    assert any(said in text for text in desim.run(noisy).account().flags)


def test_agents_that_are_up_are_invited():
    daily = {"daily": {"up": "300 ms", "day": "1 s"}}
    play = scenario({"choose": "available", "invite": 3}, churn=daily, stop={"rounds": 20})
    run = desim.run(play)
    events = run.events[run.events.kind.isin(["up", "down"])]
    for entry in log_of(run):
        now = min(entry["sent"].values())
        up = set()
        for agent, mine in events[events.time <= now].groupby("agent"):
            if mine.sort_values("time", kind="stable").kind.iloc[-1] == "up":
                up.add(agent)
        silent = set(range(AGENTS)) - set(events.agent[events.time <= now])
        assert set(entry["sent"]) <= up | silent or not up
        if len(up) >= 3:
            assert len(entry["sent"]) == 3
    assert any(len(entry["sent"]) < 3 for entry in log_of(run))


@pytest.mark.parametrize("choice", DEFAULTS)
def test_a_stored_choice_is_played_again(tmp_path, choice):
    """What a run stores of its scenario has all defaults, and says the same."""
    more = {"power-of-choice": {"candidates": 4}, "tiers": {"tiers": 3}}.get(choice, {})
    churn = {"up": {"exponential": "0.3 s"}, "down": {"exponential": "0.1 s"}}
    play = scenario({"choose": choice, "invite": 3, **more}, churn=churn, stop={"rounds": 4})
    run = desim.run(play, out=tmp_path / "run")
    again = desim.run(desim.load(tmp_path / "run" / "scenario.yaml"))
    assert differences(run, again) == []


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_whose_reply_is_lost_for_good_is_not_the_fastest(engine):
    """It has taken as long as it was waited for: the limit, which no reply reaches."""
    play = scenario(
        {"choose": "fastest", "invite": 3}, policy={"deadline": "0.3 s"}, engine=engine,
        stop={"rounds": 4},
    )  # fmt: skip
    play["network"]["uplink"] = {"loss": "40 %", "on_loss": "drop"}
    log = log_of(desim.run(play))
    heard = [set(entry["came"]) for entry in log]
    silent = set().union(*(set(entry["sent"]) for entry in log[:3])) - set().union(*heard[:3])
    assert silent
    assert not silent & set(log[3]["sent"])


LOSSES = ({"loss": "logistic"}, {"loss": "softmax"}, {"loss": {"mlp": {"hidden": 3}}})


@pytest.mark.parametrize("loss", LOSSES, ids=["logistic", "softmax", "mlp"])
def test_what_replies_say_is_the_mean_of_their_losses(loss):
    """Without regulariser and cut it is the agent's own objective, and one row moves it so far."""
    given = scenario("all", problem=loss)
    if loss["loss"] != "logistic":
        given["problem"]["partition"] = "iid"
        given["problem"]["data"] = {"source": "sklearn", "name": "digits"}
        del given["problem"]["sizes"]
    problem = build(load(given)).problem
    rng = np.random.default_rng(5)
    who, x = np.array([4, 0, 7]), rng.normal(size=(3, problem.dim))
    said = mean_losses(problem, who, x)
    assert np.allclose(said, problem.agent_values(x, who), rtol=1e-12)
    alone = [mean_losses(problem, who[r : r + 1], x[r : r + 1])[0] for r in range(3)]
    assert said.tolist() == alone  # whoever else is asked
    each = [row_losses(problem, i, row) for i, row in zip(who.tolist(), x, strict=True)]
    for power in (1, 2):
        cut = mean_losses(problem, who, x, power, 0.7)
        assert cut.tolist() == [np.mean(np.clip(one, 0.0, 0.7) ** power) for one in each]
        for one in each:  # the worst that one row can do
            low, high = (np.clip(np.r_[end, one[1:]], 0.0, 0.7) ** power for end in (0.0, 9.0))
            assert abs(high.mean() - low.mean()) <= 0.7**power / len(one) * (1 + 1e-9)


def test_processes_send_no_losses(tmp_path):
    with pytest.raises(
        InputError, match=r"participation\.choose: found one by losses; real agents"
    ):
        desim.deploy(scenario(OORT), out=tmp_path / "a", loopback=True)
    assert not (tmp_path / "a").exists()


def test_a_whole_agents_price_and_a_rows_add_up():
    """FedBuff's noise is for whole agents, whatever their rows; that on losses is for each row."""
    choice = {"choose": "power-of-choice", "invite": 5, "candidates": 7, "losses": NOISE}
    private = {"noise": {"kind": "gaussian", "sigma": 2.0}, "relation": "agent", "budget": 90.0}
    given = scenario(choice, policy={"buffer": 2}, privacy=private, stop={"rounds": 20})
    given["algorithm"] = {"name": "fedbuff", "clip": 0.5, "local": {"step": 0.5, "epochs": 2}}
    run = desim.run(given)
    spent = run.epsilon(view="coordinator").groupby("agent").epsilon
    found = spent.agg(lambda one: one.iloc[-2])  # the last is what its budget allows
    for agent in range(AGENTS):
        mine = run.releases[run.releases.agent == agent]
        factor = np.where(is_beside(mine.release), ROWS[agent], 1.0)
        square = np.sum((factor * mine.sensitivity / mine.scale) ** 2)
        assert found[agent] == pytest.approx(float(epsilon_of(np.sqrt(square), 1e-5)), rel=1e-12)
    assert found.max() <= 90.0
    assert spent.last().max() == pytest.approx(90.0, rel=1e-9)


def unlike_sorted(module):
    """Whether the agents whose ranks are least are others than those of a whole sort."""
    for trial in range(60):
        draw = np.random.default_rng(trial)
        n, count = int(draw.integers(1, 12)), int(draw.integers(0, 14))
        free, numbers = np.sort(draw.choice(40, n, replace=False)), draw.integers(0, 4, n) / 3.0
        numbers[draw.random(n) < 0.2] = np.inf
        if set(np.argsort(numbers, kind="stable")[:count]) != set(module.least(numbers, count)):
            return True
        chooser = module.Fastest(40, count, trial)
        lots = chooser.lots(3, free, module.TIES)
        for ranks in ((), (numbers,)):
            expected = free[np.lexsort((lots, *ranks))[:count]]
            if set(expected) != set(chooser.first(3, free, *ranks)):
                return True
    return False


def test_to_choose_needs_no_order_of_all():
    assert not unlike_sorted(choosing)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("alike[: count - len(below)]", "alike[:count]"),
        ("numbers < bar), np", "numbers <= bar), np"),
        ("free[rank < bar], free[rank == bar]", "free[rank < bar], free[rank <= bar]"),
        ("np.partition(rank, self.count - 1)[self.count - 1]", "rank.min()"),
        ("alike[least(self.lots(round_, alike, TIES), lacking)]", "alike[:lacking]"),
    ],
)
def test_a_careless_choice_of_the_least_is_noticed(right, wrong):
    assert unlike_sorted(mutant(choosing, right, wrong))


def test_lots_are_drawn_for_those_alone_that_they_decide_on(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        choosing.Chooser, "lots", lambda self, r, who, step, weight=None: drawn.append(who) or who
    )
    everybody, rank = np.arange(8), np.array([5.0, 1.0, 2.0, 2.0, 7.0, 2.0, 0.0, 9.0])
    for count, alike in ((2, []), (3, [2, 3, 5]), (4, [2, 3, 5]), (5, []), (8, []), (9, [])):
        drawn.clear()
        assert len(choosing.Fastest(8, count, 1).first(1, everybody, rank)) == min(count, 8)
        assert [one for who in drawn for one in who] == alike


def quantiles_unlike(module):
    """How many quantiles differ from NumPy's, of rows with ties and infinite numbers."""
    rng, unlike = np.random.default_rng(6), 0
    for n in range(1, 300):
        x = np.round(rng.exponential(size=1 + n % 60), n % 4)
        x[rng.uniform(size=x.size) < 0.02] = np.inf
        share = float(rng.choice([0.0, 0.5, 0.95, 1.0, rng.uniform()]))
        with np.errstate(all="ignore"):
            found, wanted = module.quantile(x, share), np.quantile(x, share)
        unlike += not np.array_equal(found, wanted, equal_nan=True)
    return unlike


def test_quantiles_are_those_of_numpy():
    assert quantiles_unlike(choosing) == 0
    assert quantiles_unlike(mutant(choosing, "if part >= 0.5", "if part >= 0.0"))
    assert quantiles_unlike(mutant(choosing, "int(place) + 1", "int(place)"))


@pytest.mark.parametrize(
    ("kind", "what"),
    [(choosing.Oort, {}), (choosing.PowerOfChoice, {"candidates": 5})],
    ids=["oort", "power-of-choice"],
)
def test_where_few_are_free_all_are_chosen_as_by_the_whole_rule(kind, what, monkeypatch):
    losses = np.array([0.3, np.nan, 2.0, 0.1, np.nan, 1.0, 0.2])
    chooser = kind(7, 4, 3, losses=choosing.Losses(2), **what)
    ones = np.ones(7, np.int64)
    seen = choosing.Seen(ones / 3.0, ones, ones, losses, ones, chooser.start())
    here, text = "len(free) <= self.count", inspect.getsource(choosing)
    assert text.count(here) == 2
    whole = ModuleType("whole")
    monkeypatch.setitem(sys.modules, "whole", whole)
    exec(text.replace(here, "len(free) < 0"), vars(whole))
    other = getattr(whole, kind.__name__)(7, 4, 3, losses=choosing.Losses(2), **what)
    for free in ([1, 2], [0, 3, 5, 6], [4], [], [0, 1, 2, 4, 6]):
        rows = np.array(free, np.int64)
        found, wanted = (np.sort(one.chosen(5, rows, seen)) for one in (chooser, other))
        assert np.array_equal(found, wanted)
        assert len(found) == min(4, len(free))
