"""Losses, resends and jitter of links against closed forms, beside laws that are not theirs."""

import numpy as np
import pytest
from cases import CASES, graph, merged, star
from laws import check_log
from scipy import stats
from test_engines import differences

import desim
from desim.network.timeline.link_laws import in_burst
from desim.numerics.keys import seed_word
from desim.scenario.build import build

GOOD, BAD = 3.0, 0.75
BURSTS = {"gilbert_elliott": {"good": "3 s", "bad": "750 ms", "loss_good": "2 %", "loss_bad": 0.9}}


def states(channels=4000, times=(0.0, 0.4, 2.0), seed=3):
    """Whether each channel is bad at each time, (channels, times)."""
    law = 1.0 / GOOD + 1.0 / BAD, BAD / (GOOD + BAD)
    word = seed_word(seed)
    return np.array([[in_burst(word, i, -1, law, t) for t in times] for i in range(channels)])


def staying(lag, decay):
    """P(bad at t + lag | bad at t) for a chain that forgets at the rate decay 1/s."""
    share = BAD / (GOOD + BAD)
    return share + (1.0 - share) * np.exp(-decay * lag)


def test_bursts_have_the_law_of_the_two_state_chain():
    """Share b / (g + b) at every time; what is bad now is bad later as the chain forgets.

    4000 channels: a share of 0.2 is off by 4.5 deviations of 0.0063, what about 800 bad ones do
    later by 4.5 of 0.018 at most, once in 1e5. A chain that forgets at 1 / (g + b) is out of reach.
    """
    bad = states()
    assert np.abs(bad.mean(axis=0) - 0.2).max() < 0.029
    for lag, column in ((0.4, 1), (2.0, 2)):
        stays = bad[bad[:, 0], column].mean()
        assert abs(stays - staying(lag, 1.0 / GOOD + 1.0 / BAD)) < 0.08
        assert abs(stays - staying(lag, 1.0 / (GOOD + BAD))) > 0.08


def test_bursts_last_exponential_times():
    """Mean lengths on a grid of 10 ms, over 3000 s: some 800 of each, so within 4.5 * 3.6 %."""
    law = 1.0 / GOOD + 1.0 / BAD, BAD / (GOOD + BAD)
    times = np.arange(0.0, 3000.0, 0.01)
    bad = np.array([in_burst(seed_word(1), 4, 2, law, t) for t in times])
    ends = np.flatnonzero(np.diff(bad.astype(int)))
    lengths = np.diff(ends) * 0.01
    in_bursts = lengths[0 if bad[ends[0] + 1] else 1 :: 2]
    between = lengths[1 if bad[ends[0] + 1] else 0 :: 2]
    assert abs(in_bursts.mean() / BAD - 1.0) < 0.17 < abs(in_bursts.mean() / GOOD - 1.0)
    assert abs(between.mean() / GOOD - 1.0) < 0.17 < abs(between.mean() / BAD - 1.0)
    # of exponential times a share exp(-1) is longer than the mean; of equal ones none
    assert abs((in_bursts > BAD).mean() - np.exp(-1)) < 4.5 * 0.48 / np.sqrt(len(in_bursts))


def test_both_directions_of_a_link_are_bad_at_once_whenever_they_are_asked():
    word, law = seed_word(9), (1.0 / GOOD + 1.0 / BAD, BAD / (GOOD + BAD))
    times = np.linspace(0.0, 40.0, 400)
    there = [in_burst(word, 3, 7, law, t) for t in times]
    assert there[::-1] == [in_burst(word, 7, 3, law, t) for t in times[::-1]]
    assert there != [in_burst(word, 7, 4, law, t) for t in times]
    assert 20 < sum(there) < 180


def attempts(loss, backoff=1, rounds=120):
    """The number of attempts (messages,) until one arrives, and all sends."""
    link = {"loss": loss, "timeout": "100 ms", "backoff": backoff, "limit": 255, "latency": "1 ms"}
    made = graph(network={"topology": "complete"}, stop={"rounds": rounds})
    made["network"]["link"] = {**link, "bandwidth": "inf"}
    made["observe"] = {"metrics": []}
    events = desim.run(made).events
    arrived = events[events.kind == "deliver"].value.to_numpy() + 1
    return arrived, events[events.kind == "send"]


def test_the_number_of_attempts_is_geometric():
    """P(more than k) = p^k; 6720 messages, bounds of 4.5 deviations; p^(k+1) is not the law."""
    p, (found, _) = 0.3, attempts("30 %")
    assert len(found) == 56 * 120
    for k in (1, 2, 3):
        bound = 4.5 * np.sqrt(p**k * (1 - p**k) / len(found))
        assert abs((found > k).mean() - p**k) < bound < abs((found > k).mean() - p ** (k + 1))
    assert abs(found.mean() - 1 / (1 - p)) < 4.5 * np.sqrt(p) / (1 - p) / np.sqrt(len(found))


@pytest.mark.parametrize("backoff", [1, 2, 1.5])
def test_resends_wait_longer_each_time(backoff):
    _, sends = attempts("40 %", backoff, rounds=20)
    first = sends[sends.value == 0].set_index(["agent", "peer", "round"]).time
    later = sends.set_index(["agent", "peer", "round"])
    since = (later.time - first.reindex(later.index)).to_numpy()
    a = later.value.to_numpy()
    pauses = a if backoff == 1 else (backoff**a - 1) / (backoff - 1)
    assert a.max() > 4
    assert np.abs(since - 0.1 * pauses).max() < 1e-9
    assert np.abs(since - 0.1 * a).max() > 0.1 or backoff == 1


def round_times(jitter, rounds=400):
    """How long rounds (rounds,) of 8 agents take where only the replies do, s."""
    made = star(problem={"agents": 8}, stop={"rounds": rounds}, compute={"speed": "inf"})
    link = {"latency": "1 s", "bandwidth": "inf", "jitter": jitter}
    made["network"] = {"link": link, "downlink": {"latency": 0, "jitter": "none"}}
    made["observe"] = {"metrics": []}
    events = desim.run(made).events
    return np.diff(events[events.kind == "aggregate"].time, prepend=0.0)


def test_a_round_takes_the_longest_of_exponential_times():
    """E max of n = H_n = 2.718, variance sum 1/k^2 = 1.53; 400 rounds: sd 0.062."""
    harmonic = sum(1 / k for k in range(1, 9))
    for jitter, same in (({"exponential": 1}, True), ({"gamma": 2}, False)):
        close = abs(round_times(jitter).mean() - harmonic) < 4.5 * 0.062
        assert bool(close) is same


def above_zero(law):
    """The distribution function of what is not cut."""
    return lambda x: (law.cdf(x) - law.cdf(0.0)) / law.sf(0.0)


def test_jitter_multiplies_the_latency_by_its_law():
    """2800 factors each: lognormal of median 1, normal cut at 0, gamma of mean 1.

    The largest gap to their law is above 2.3 / sqrt(n) once in 2e4 (Massart 1990).
    """
    gamma = stats.gamma(4, scale=1 / 4)
    laws = {"lognormal": stats.lognorm(0.5), "normal": stats.norm(1, 0.5), "gamma": gamma}
    shapes = {"lognormal": 0.5, "normal": 0.5, "gamma": 4}
    found = {}
    for name, shape in shapes.items():
        made = graph(network={"topology": "complete"}, stop={"rounds": 50})
        made["network"]["link"] = {"latency": "2 s", "bandwidth": "inf", "jitter": {name: shape}}
        made["observe"] = {"metrics": []}
        events = desim.run(made).events
        found[name] = events[events.kind == "deliver"].seconds.to_numpy() / 2.0
    for name, factors in found.items():
        assert (factors >= 0).all()
        for other, law in laws.items():
            gap = stats.ks_1samp(factors[factors > 0], above_zero(law)).statistic
            assert bool(gap < 2.3 / np.sqrt(2800)) is (other == name), (name, other, gap)
    assert 0 < (found["normal"] == 0).mean() < 0.04  # P(N(1, 1/2) < 0) = 0.023


OWN = {
    "directions": "own",
    "loss": BURSTS,
    "timeout": "50 ms",
    "backoff": 1.5,
    "limit": 30,
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["nfl", "plt-deadline", "plt-each", "qsgd", "p-admm"])
def test_the_engines_agree_on_bursts_and_links_that_differ(name):
    other = [{"sender": 1, "bandwidth": {"uniform": ["20 kbit/s", "50 kbit/s"]}}]
    other += [{"receiver": [0, 2], "latency": "90 ms"}]
    made = merged(CASES[name], {"network": {"link": OWN, "links": other}})
    cohort, agents = (desim.run(made, overrides={"engine": e}) for e in ("cohort", "agents"))
    assert differences(cohort, agents) == []
    check_log(cohort)
    assert (cohort.events.kind == "lost").sum() > 3


def wires(**network):
    return build(desim.load(graph(network=network))).settings.links


def test_directions_of_their_own_and_links_that_differ():
    same, own = wires(), wires(link={"directions": "own"})
    source, target = same.ends
    back = [int(np.flatnonzero((source == j) & (target == i))[0]) for i, j in same.ends.T]
    assert np.array_equal(same.wires[:2], same.wires[:2, back])
    assert (own.wires[:2] != own.wires[:2, back]).all()
    forth = source > target  # the direction whose draws were both's
    assert np.array_equal(own.wires[:, forth], same.wires[:, forth])
    slow = [{"sender": 3, "bandwidth": "5 kbit/s"}, {"sender": 3, "receiver": 4, "latency": "1 s"}]
    slow += [{"receiver": 5, "bandwidth": "inf"}]
    found, chosen = wires(links=slow).wires, source == 3
    assert (found[1, chosen & (target != 5)] == 5000.0).all()
    assert np.isinf(found[1, target == 5]).all()
    rest = ~chosen & (target != 5)
    assert np.array_equal(found[:, rest], same.wires[:, rest])
    assert (found[0, chosen & (target == 4)] == 1.0).all()


def test_the_coordinators_links_differ_by_name():
    made = star(network={"links": [{"sender": "coordinator", "latency": "3 s"}]})
    settings = build(desim.load(made)).settings
    assert (settings.downlinks.wires[0] == 3.0).all()
    assert (settings.uplinks.wires[0] < 1.0).all()
