"""Rules of waiting that combine and adapt: traces by hand, naive clocks, engines, refusals."""

from functools import partial

import naive.clocks
import numpy as np
import pytest
from cases import graph, star
from mutant import mutant
from test_engines import differences
from test_times import DRAWN, LOSSY, SPEED, TOLERANCE, star_gap, tiny

import desim
from desim.engine import play
from desim.engine.cohort import star as star_cohort
from desim.errors import InputError, RunError
from desim.network.conditions import policy as policies
from desim.network.conditions.policy import Policy
from desim.network.timeline import waiting_rule

ENGINES = ("cohort", "agents", "compiled")


def spread(seconds, live=False, k=1.0, times=1.0):
    """times (median + k MAD) of seconds; live: not before these are known."""
    if sum(np.isfinite(seconds)) <= len(seconds) // 2:
        return np.inf
    middle, half = np.median(seconds), len(seconds) // 2
    away = np.abs(np.array(seconds) - middle)
    known = max(np.sort(seconds)[half], middle + np.sort(away)[half]) if live else 0.0
    return max(known, times * (middle + k * np.median(away)))


def share(seconds, live=False, q=0.6, times=1.0):
    """times the q-quantile of seconds, which is one of them; live: not before it is known."""
    found = np.quantile(seconds, q, method="inverted_cdf")
    return max(times, 1.0 if live else 0.0) * found


RULES = {
    "deadline-at-least": {
        "policy": {"deadline": "0.3 s", "at_least": 3}, "value": 0.3, "rule": {"at_least": 3},
    },
    "deadline-at-least-carry": {
        "policy": {"deadline": "0.2 s", "at_least": 2, "late": "carry"}, "value": 0.2,
        "rule": {"at_least": 2},
    },
    "quorum-at-most": {
        "policy": {"quorum": 4, "at_most": "0.2 s"}, "value": 4, "rule": {"at_most": 0.2},
    },
    "quorum-both": {
        "policy": {"quorum": 4, "at_most": "0.2 s", "at_least": 2}, "value": 4,
        "rule": {"at_most": 0.2, "at_least": 2},
    },
    "quorum-at-most-carry": {
        "policy": {"quorum": 3, "at_most": "0.2 s", "late": "carry"}, "value": 3,
        "rule": {"at_most": 0.2},
    },
    "buffer-at-most": {
        "policy": {"buffer": 3, "at_most": "0.06 s"}, "value": 3, "rule": {"at_most": 0.06},
    },
    "buffer-both": {
        "policy": {"buffer": 3, "at_most": "0.1 s", "at_least": 1}, "value": 3,
        "rule": {"at_most": 0.1, "at_least": 1},
    },
    "mad": {"policy": {"adaptive": {"mad": 1}}, "rule": {"law": spread}},
    "mad-carry": {
        "policy": {"adaptive": {"mad": 0.5, "times": 1.1}, "late": "carry"},
        "rule": {"law": partial(spread, k=0.5, times=1.1)},
    },
    "quantile": {"policy": {"adaptive": {"quantile": "60 %"}}, "rule": {"law": share}},
    "quantile-both": {
        "policy": {"adaptive": {"quantile": 0.4, "times": 1.2}, "at_least": 3, "at_most": "0.4 s"},
        "rule": {"law": partial(share, q=0.4, times=1.2), "at_least": 3, "at_most": 0.4},
    },
    "quantile-some": {
        "policy": {"adaptive": {"quantile": 0.5}, "late": "carry"},
        "rule": {"law": partial(share, q=0.5)},
        "participation": {"schedule": [[0, 3], [3], [], [1, 2, 4]]},
    },
}  # fmt: skip


@pytest.mark.thin(4)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", RULES)
def test_closing_times_are_those_of_the_naive_clocks(tmp_path, name, engine):
    found, issued = star_gap(tmp_path, RULES[name], DRAWN, engine)
    assert found < TOLERANCE
    assert (issued >= 0).any()
    assert (issued < 0).any()


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("deadline-at-least", "most = max(most, times", "most = min(most, times"),
        ("quorum-at-most", "else at_most)", "else at_most / 2)"),
        ("buffer-at-most", "else at_most)", "else at_most / 2)"),
        ("mad", "t * (2 if waits else 1)", "t"),
        ("mad", "close[k] - since[i] > took[i][0]", "True"),
        ("mad-carry", "took[i] = due[i] - since[i], False", "took[i] = due[i] - now, False"),
    ],
)
def test_other_rules_are_noticed(tmp_path, name, right, wrong):
    twin = mutant(naive.clocks, right, wrong)
    with pytest.raises(AssertionError):
        assert star_gap(tmp_path, RULES[name], DRAWN, "cohort", twin)[0] < 1e-3


def test_messages_dropped_for_good_leave_a_limit(tmp_path):
    link = {**LOSSY["link"], "on_loss": "drop"}
    setting = {"network": {"link": link}, "compute": {"speed": SPEED}}
    for engine in ENGINES:
        for name in ("quorum-at-most", "quorum-at-most-carry", "buffer-at-most", "mad-carry"):
            found, issued = star_gap(tmp_path, RULES[name], setting, engine)
            assert found < TOLERANCE
            assert (issued < 0).any()


CLOSINGS = [  # four agents with round trips of 3, 4, 6 and 10 s; each round s, who, what is missing
    ({"deadline": "5 s", "at_least": 3}, [(6, 3, 1), (6, 3, 1), (6, 3, 1)]),
    ({"deadline": "5 s", "at_least": 1}, [(5, 2, 2), (5, 2, 2), (5, 2, 2)]),
    ({"quorum": 3, "at_most": "5 s"}, [(5, 2, 1), (5, 2, 1), (5, 2, 1)]),
    ({"quorum": 2, "at_most": "5 s"}, [(4, 2, 0), (4, 2, 0), (4, 2, 0)]),
    ({"quorum": 4, "at_most": "2 s", "at_least": 1}, [(3, 1, 3), (3, 1, 3), (3, 1, 3)]),
    ({"buffer": 3, "at_most": "5 s"}, [(5, 2, 1), (4, 3, 0), (4, 3, 0)]),
    ({"adaptive": {"mad": 1}}, [(7, 3, 1), (6.5, 3, 1), (6.5, 3, 1)]),
    ({"adaptive": {"mad": 0}, "at_most": "8 s"}, [(6, 3, 1), (5, 2, 2), (5, 2, 2)]),
    ({"adaptive": {"quantile": 0.75}}, [(6, 3, 1), (6, 3, 1), (6, 3, 1)]),
    ({"adaptive": {"quantile": 1}, "at_most": "4 s"}, [(4, 2, 2), (4, 2, 2), (4, 2, 2)]),
    ({"adaptive": {"quantile": 0.25}, "at_least": 2}, [(4, 2, 2), (4, 2, 2), (4, 2, 2)]),
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("policy", "expected"), CLOSINGS)
def test_traces_by_hand(tmp_path, policy, expected, engine):
    """Links of 1 s, a second a row: round trips of 3, 4, 6 and 10 s from call to reply."""
    algorithm = {"name": "fedavg", "local": {"epochs": 1, "step": 0.01}}
    scenario = tiny(tmp_path, (1, 2, 4, 8), algorithm, policy=policy, stop={"rounds": 3})
    run = desim.run(scenario, overrides={"engine": engine})
    closed = run.events[run.events.kind == "aggregate"]
    missed = run.events[run.events.kind == "deadline"].set_index("round")["value"]
    missing = [missed.get(round_, 0) for round_ in closed["round"]]
    assert list(zip(closed.seconds.round(9), closed.value, missing, strict=True)) == expected


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [  # of agent 0, whose neighbours' messages come 1, 3 and 7 s after its own
        ({"quorum": 1}, [(1.0, 1.0)]),
        ({"quorum": 2}, [(3.0, 2.0)]),
        ({"quorum": 3, "at_most": "5 s"}, [(5.0, 2.0)]),
        ({"deadline": "2 s", "at_least": 2}, [(3.0, 2.0)]),
        ({"adaptive": {"quantile": 1}, "at_most": "4 s"}, [(4.0, 2.0)]),
    ],
)
def test_a_trace_of_neighbours_by_hand(tmp_path, policy, expected, engine):
    """A star of agents around agent 0, links of 1 s: rows 1, 1, 3 and 7 of a second each."""
    zcdp = {"name": "zcdp-subgradient", "step": 0.01}
    scenario = tiny(tmp_path, (1, 1, 3, 7), zcdp, policy=policy, stop={"rounds": 1})
    scenario["network"]["topology"] = {"edges": [[0, 1], [0, 2], [0, 3]]}
    events = desim.run(scenario, overrides={"engine": engine}).events
    closed = events[(events.kind == "aggregate") & (events.agent == 0)]
    assert list(zip(closed.seconds, closed.value, strict=True)) == expected


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize(("share", "expected"), [(0.5, [1.0, 1.0]), (1.0, [3.0, 2.0])])
def test_an_adaptive_wait_on_a_graph_by_hand(tmp_path, share, expected, engine):
    """Agent 0 could hear its neighbours 1 and 3 s after its first message, 1 or 2 s after the next.

    With half of them it closes as the first is in, and the second counts twice that wait.
    """
    zcdp = {"name": "zcdp-subgradient", "step": 0.01}
    policy = {"adaptive": {"quantile": share}}
    scenario = tiny(tmp_path, (1, 1, 3), zcdp, policy=policy, stop={"rounds": 2})
    scenario["network"]["topology"] = {"edges": [[0, 1], [0, 2]]}
    events = desim.run(scenario, overrides={"engine": engine}).events
    closed = events[(events.kind == "aggregate") & (events.agent == 0)]
    assert closed.seconds.round(9).tolist() == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_that_takes_as_long_as_before_is_in_time(engine):
    """Constant times, whose sums round: the limit is what the slowest, or the third, always takes.

    Rounding moves the end of a limit to either side of the reply that it was learnt from.
    """
    link = {"latency": {"uniform": ["5 ms", "40 ms"]}, "bandwidth": "1 Mbit/s"}
    neat = {"latency": "50 ms", "bandwidth": "inf"}
    for level, seed, used in ((1.0, 1, link), (0.5, 0, link), (1.0, 0, neat)):
        policy = {"adaptive": {"quantile": level}}
        steady = star(seed=seed, policy=policy, compute={"redraw": "run"}, stop={"rounds": 25})
        steady["network"] = {"link": used}
        if used is neat:  # an instant that is written short need not be the sum: 0.6 + 0.15
            steady["compute"] = {"speed": 640}
        events = desim.run(steady, overrides={"engine": engine}).events
        closed = events[events.kind == "aggregate"]
        assert (closed.value == level * 6).all()


def test_a_wait_that_its_first_message_ends_has_it_on_every_engine():
    """The limit is learnt from the messages of this very wait, whose last one it is not to miss."""
    link = {"latency": "10 ms", "bandwidth": "1 Mbit/s", "loss": "10 %", "timeout": "60 ms"}
    for seed in range(3):
        case = graph(
            seed=seed, policy={"adaptive": {"mad": 0}}, stop={"rounds": 3},
            network={"topology": {"regular": 3}, "link": link},
        )  # fmt: skip
        runs = [desim.run(case, overrides={"engine": engine}) for engine in ("agents", "cohort")]
        assert differences(*runs) == []


GRAPHS = [
    {"quorum": 2},
    {"quorum": 2, "at_most": "20 ms", "at_least": 1},
    {"adaptive": {"mad": 1}},
    {"adaptive": {"quantile": 0.5, "times": 1.2}, "at_least": 1, "at_most": "50 ms"},
]


@pytest.mark.parametrize("policy", GRAPHS)
def test_engines_agree_on_graphs_to_the_last_bit(policy):
    runs = [
        desim.run(graph(policy=policy, engine=engine, compute={"redraw": "round"}))
        for engine in ("agents", "cohort")
    ]
    assert differences(*runs) == []


def test_the_message_that_decides_a_limit_is_heard_whatever_is_rounded():
    """Its arrival less the opening, and that added again, may be one bit below its arrival."""
    missed = 0
    for seed in range(400):
        opened, arrival = np.sort(np.random.default_rng(seed).uniform(0.0, 3.0, 2))
        rule = Policy("adaptive", law=(waiting_rule.QUANTILE, 1.0, 1.0)).rule
        for live in (True, False):
            found = waiting_rule.over_now(tuple(rule), opened, np.array([arrival - opened]), live)
            assert arrival <= found < arrival + 1e-11
        missed += opened + (arrival - opened) < arrival
    assert missed > 2


def test_a_wrong_rule_is_noticed_on_the_other_engine(monkeypatch):
    broken = mutant(
        star_cohort, "policy.until(opened, hub.calls)", "policy.until(opened, hub.calls) + 1e-3"
    )
    scenario = star(policy={"adaptive": {"mad": 1}})
    agents = desim.run(scenario, overrides={"engine": "agents"})
    monkeypatch.setitem(play.ENGINES, ("coordinator", "cohort"), broken.play)
    assert differences(desim.run(scenario, overrides={"engine": "cohort"}), agents)


@pytest.mark.parametrize("seed", range(5))
def test_ranked_is_what_sorting_gives(seed):
    values = np.random.default_rng(seed).integers(0, 6, 1 + 3 * seed).astype(float)
    for place in range(len(values)):
        assert waiting_rule.ranked(values.copy(), place) == np.sort(values)[place]
    assert waiting_rule.median(values.copy()) == np.median(values)


REFUSED = [
    ({"quorum": 2, "at_least": 1}, "policy: at_least: found with quorum, where no limit"),
    ({"deadline": "1 s", "at_most": "2 s"}, "policy: at_most: found with deadline; allowed"),
    ({"quorum": 2, "at_most": "1 s", "at_least": 3}, "at_least: found 3, but 2 replies end"),
    ({"deadline": "1 s", "at_least": 7}, "policy.at_least: found 7 replies from 6 invited"),
    ({"adaptive": {}}, "policy.adaptive: found {}; allowed: {mad: ...}, {quantile: ...}"),
    ({"adaptive": {"mad": -1}}, "policy.adaptive.mad: found -1"),
    ({"adaptive": {"quantile": 1.5}}, "policy.adaptive.quantile: found 1.5"),
    ({"adaptive": {"mad": 1, "quantile": 0.5}}, "found mad and quantile; allowed: only one"),
    ({"adaptive": {"mad": 1, "time": 2}}, "policy.adaptive.time: unknown key"),
    ({"deadline": "1 s", "adaptive": {"mad": 1}}, "found deadline and adaptive; allowed"),
    ({"at_most": "1 s"}, "policy: found {'at_most': '1 s'}; allowed: all, each"),
    ({"adaptive": {"mad": 1}, "at_least": 0}, "policy.at_least: found 0"),
]  # fmt: skip


@pytest.mark.parametrize(("policy", "words"), REFUSED)
def test_what_cannot_be_is_refused_in_words(policy, words):
    with pytest.raises(InputError) as caught:
        desim.load(star(policy=policy))
    assert words in str(caught.value)


def test_methods_that_do_not_bear_a_rule_refuse_it():
    for name, policy, words in (
        ("fedlin", {"adaptive": {"mad": 1}}, "calls agents for more than one thing"),
        ("led", {"adaptive": {"mad": 1}}, "found adaptive; allowed with led: all"),
    ):
        scenario = star(policy=policy)
        scenario["algorithm"] = {"name": name, "local": {"epochs": 2}}
        with pytest.raises(InputError, match=words):
            desim.load(scenario)
    with pytest.raises(InputError, match="found buffer; buffer is a coordinator's"):
        desim.load(graph(policy={"buffer": 2}))


def test_a_least_number_that_never_comes_is_told(tmp_path):
    """Some replies of six are lost for good."""
    link = {"latency": "10 ms", "bandwidth": "1 Mbit/s"}
    lost = {**link, "loss": "60 %", "on_loss": "drop"}
    scenario = star(policy={"deadline": "1 s", "at_least": 6})
    scenario["network"] = {"link": link, "uplink": lost}
    for engine in ("cohort", "agents", "compiled"):
        with pytest.raises(RunError, match="nobody can go on"):
            desim.run(scenario, overrides={"engine": engine})


def least_gaps(module, agents=5):
    """Policies whose least number of replies is not the first that ever closes a collection."""
    everybody = np.ones(agents, bool)
    made = [module.Policy("all"), module.Policy("deadline", 3.0)]
    for number in range(1, agents + 1):
        made += [module.Policy(kind, number) for kind in ("quorum", "buffer")]
        made += [module.Policy("deadline", 3.0, at_least=number)]
        made += [module.Policy("buffer", agents, at_least=number, at_most=2.0)]
    closes = [
        [one.closed(everybody, {*range(n)}, everybody, one.limited) for n in range(agents + 1)]
        for one in made
    ]
    firsts = [found.index(True) for found in closes]
    return [one for one, first in zip(made, firsts, strict=True) if one.least(agents) != first]


def test_the_least_number_of_replies_is_the_first_that_closes_a_collection():
    assert least_gaps(policies) == []


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("min(self.at_least, awaited) if self.limited else", "self.at_least or"),
        ("else self.number(awaited)", "else awaited"),
        (
            "rule, awaited, sum(counted[i] for i in here), over",
            "rule, awaited, len(here) + 1, over",
        ),
    ],
)
def test_another_least_number_is_noticed(right, wrong):
    assert least_gaps(mutant(policies, right, wrong)) != []
