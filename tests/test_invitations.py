"""Whom a coordinator invites that remembers: naive twins, equal engines, prices and refusals."""

import naive.choices
import numpy as np
import pytest
from cases import LOSSY, merged
from mutant import mutant
from test_resume import killed, unlike

import desim
from desim.draws import keys
from desim.draws.keys import Stream
from desim.errors import InputError
from desim.privacy.accounting.gaussian import epsilon_of
from desim.scenario.build import build
from desim.scenario.load import load

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


WRONG = {
    "fastest": ("else -1.0", "else 1e9"),
    "fastest of a quorum": ("max(waited, self.took.get(i, waited))", "1e9"),
    "oldest": ("self.heard[i] = k\n", "self.heard[i] = -k\n"),
    "round-robin": ("(k - 1) * n", "(k - 1) * (n + 1)"),
    "power-of-choice": ("-past.said.get(i, math.inf)", "past.said.get(i, math.inf)"),
    "oort": ("util[i] *= (T / past.took[i])", "util[i] *= (past.took[i] / T)"),
    "oort of a quorum": ("past.picks[i] > self.most", "past.picks[i] > self.most + 1"),
    "oort with noise": ("(max(said[i], 0.0))", "(abs(said[i]) + 0.5)"),
    "tiers": ("key=lambda i: past.took[i]", "key=lambda i: -past.took[i]"),
    "adaptive tiers": ("key=lambda t: -now[t]", "key=lambda t: now[t]"),
}


@pytest.mark.parametrize("name", WRONG)
def test_another_choice_is_noticed(name, runs):
    *_, make, said = CASES[name]
    other = mutant(naive.choices, *WRONG[name])
    try:
        assert unexpected(runs(name), other, make, **said)
    except KeyError:  # it looks for replies that never came
        assert name == "oldest"
