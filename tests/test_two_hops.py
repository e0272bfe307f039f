"""Between agents of a graph with uplinks and downlinks a message goes up, then down.

The two hops are those that the same agents have to a coordinator, drawn at the same addresses.
"""

from pathlib import Path

import numpy as np
import pytest
from cases import CASES, graph, merged, star
from laws import check_log
from mutant import mutant
from scipy import stats
from test_engines import differences
from test_times import left

import desim
import desim.network.conditions.links as links_of_networks
from desim.network.timeline.link_laws import in_burst
from desim.numerics.keys import seed_word
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.described import circumstances
from desim.scenario.tree import networks

PLUGINS = Path(__file__).parent / "plugins"
COMPLETE = {"topology": "complete"}


def bare(network, rounds=40):
    """A graph method on `network` and nothing else of it, unobserved."""
    made = graph(network=COMPLETE, stop={"rounds": rounds})
    return {**made, "network": {**COMPLETE, **network}, "observe": {"metrics": []}}


def settings(scenario):
    return build(desim.load(scenario)).settings


@pytest.mark.parametrize("name", ["wifi", "4g", "satellite", "stragglers"])
def test_the_hops_are_the_links_that_the_agents_have_to_a_coordinator(name, monkeypatch):
    made = merged(star(problem={"agents": 8}), {"seed": 5})
    hub = settings({**made, "network": name})
    peers = lambda: settings(bare({"include": name})).links  # noqa: E731
    up, down = hub.uplinks.wires, hub.downlinks.wires
    source, target = peers().ends

    def right(found):
        first = np.array_equal(found[0], up[0, source])
        slower = np.array_equal(found[1], np.minimum(up[1, source], down[1, target]))
        return first, slower, np.array_equal(found[3], down[0, target])

    assert right(peers().wires) == (True, True, True)
    for good, wrong in (
        ("np.minimum(first[1], second[1])", "second[1]"),
        ("_hop(link, source, hub, seed)", "_hop(link, target, hub, seed)"),
    ):
        if name == "satellite" and "target" in wrong:
            continue  # all of its agents are alike
        twin = mutant(links_of_networks, good, wrong)
        monkeypatch.setattr(links_of_networks, "make_links", twin.make_links)
        assert right(peers().wires) != (True, True, True)


def test_a_message_takes_both_latencies_and_the_slower_rate():
    """Four numbers of 64 bits: 256 bits at 1 kbit/s up, 4 kbit/s down."""
    hops = {
        "uplink": {"latency": "50 ms", "bandwidth": "1 kbit/s"},
        "downlink": {"latency": "20 ms", "bandwidth": "4 kbit/s"},
    }
    for network, wire in ((hops, 0.256), (merged(hops, {"downlink": {"bandwidth": 512}}), 0.5)):
        events = desim.run(bare(network, 3)).events
        sends, arrivals = (events[events.kind == kind] for kind in ("send", "deliver"))
        assert np.abs(sends.seconds - wire).max() < 1e-12
        assert np.abs(arrivals.seconds - wire - 0.07).max() < 1e-12
        assert (arrivals.bytes == 32).all()


def test_either_hop_may_lose_a_message():
    """30 % up and 20 % down lose 44 %: P(more than k attempts) = 0.44^k; bounds of 4.5 sigma."""
    hops = {"link": {"timeout": "1 ms", "limit": 99}, "uplink": {"loss": 0.3}}
    events = desim.run(bare({**hops, "downlink": {"loss": 0.2}}, 120)).events
    attempts = events[events.kind == "deliver"].value.to_numpy() + 1
    for k in (1, 2, 3):
        share = (attempts > k).mean()
        bounds = {p: 4.5 * np.sqrt(p**k * (1 - p**k) / len(attempts)) for p in (0.44, 0.5, 0.3)}
        assert [abs(share - p**k) < bound for p, bound in bounds.items()] == [True, False, False]


def test_each_hop_has_its_own_jitter():
    """1 s and 1 s, both times uniform(0, 2): a triangle, not twice a uniform one."""
    law = {"uniform": [0, 2]}
    hops = {"link": {"bandwidth": "inf", "jitter": law}}
    hops |= {way: {"latency": "1 s"} for way in ("uplink", "downlink")}
    events = desim.run(bare(hops, 50)).events
    found = events[events.kind == "deliver"].seconds.to_numpy()
    for right, cdf in ((True, stats.triang(0.5, 0, 4).cdf), (False, stats.uniform(0, 4).cdf)):
        assert bool(stats.ks_1samp(found, cdf).statistic < 2.3 / np.sqrt(len(found))) is right


def test_a_device_in_a_burst_neither_sends_nor_hears():
    bursts = {"good": "2 s", "bad": "1 s", "loss_good": 0, "loss_bad": 1}
    hops = {"link": {"latency": "20 ms", "loss": {"gilbert_elliott": bursts}, "timeout": "150 ms"}}
    hops["link"]["limit"] = 200
    events = desim.run(bare({**hops, "downlink": {"bandwidth": "1 Mbit/s"}}, 60)).events
    word, law = seed_word(5), (1.0 / 2 + 1.0 / 1, 1 / 3)
    ends = events[events.kind.isin(["deliver", "lost"])]
    begin = left(events, ends, ends.value)
    bad = {
        way: [in_burst(word, i, -1, law, t) for i, t in zip(who, begin, strict=True)]
        for way, who in (("down", ends.agent), ("up", ends.peer))
    }
    lost = (ends.kind == "lost").to_numpy()
    assert 50 < lost.sum() < len(lost) - 50
    assert np.array_equal(lost, np.array(bad["up"]) | np.array(bad["down"]))
    assert not np.array_equal(lost, bad["up"])
    assert not np.array_equal(lost, bad["down"])


HOPS = {
    "uplink": {"loss": "10 %", "jitter": {"lognormal": 0.4}, "timeout": "70 ms", "backoff": 1.5},
    "downlink": {
        "latency": {"uniform": ["1 ms", "90 ms"]},
        "loss": {"gilbert_elliott": {"good": "1 s", "bad": "200 ms", "loss_bad": 0.7}},
        "bandwidth": {"uniform": ["0.2 Mbit/s", "2 Mbit/s"]},
    },
    "links": [{"sender": 1, "bandwidth": "30 kbit/s"}, {"receiver": [0, 2], "latency": "90 ms"}],
}


@pytest.mark.parametrize("name", ["nfl", "qsgd", "p-admm"])
def test_the_engines_agree_on_two_hops(name):
    made = merged(CASES[name], {"network": HOPS})
    cohort, agents = (desim.run(made, overrides={"engine": e}) for e in ("cohort", "agents"))
    assert differences(cohort, agents) == []
    check_log(cohort)
    assert (cohort.events.kind == "lost").sum() > 3


@pytest.mark.parametrize("way", ["fifo", "fair"])
def test_messages_of_an_agent_share_the_way_up(way):
    hops = {"latency": 0, "bandwidth": "1 kbit/s"}
    network = {"link": hops, "uplink": {"contention": way}, "downlink": {"bandwidth": "9 kbit/s"}}
    events = desim.run(bare({**network, "topology": "ring"}, 1)).events
    seconds = sorted(events[events.kind == "deliver"].seconds)
    first = 0.256 if way == "fifo" else 0.512  # the two neighbours of each of eight agents
    assert np.allclose(seconds, [first] * 8 + [0.512] * 8)


@pytest.fixture
def unknown(monkeypatch):
    """No plug-in file has been loaded in this process yet."""
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", sorted(networks()))
def test_a_graph_method_of_a_plug_in_runs_on_every_shipped_network(name, unknown):
    made = bare({"include": name}, 3)
    made.pop("privacy")
    made |= {"plugins": [str(PLUGINS / "gossip.py")], "algorithm": {"name": "hearsay"}}
    runs = [desim.run(made, overrides={"engine": engine}) for engine in ("cohort", "agents")]
    assert [run.status for run in runs] == ["done", "done"]
    assert differences(*runs) == []
    assert desim.load(made).network.two_hops is (name not in ("lan", "lossy"))
    retimed = desim.retime(runs[0], network={"include": name, "link": {"loss": 0}})
    assert not (retimed.events.kind == "lost").any()


@pytest.mark.parametrize("name", sorted(networks()))
def test_a_method_of_one_agent_takes_every_shipped_network(name):
    made = {**star(problem={"regularizer": {"l2": 3.0}}), "network": name}
    made["problem"].pop("agents")
    made["algorithm"] = {"name": "gradient-descent"}
    assert desim.run(made).status == "done"


def test_what_a_graph_writes_plays_again():
    made = desim.load(bare({"include": "wifi"}, 3))
    again = desim.load(made.written())
    assert again == made
    assert desim.run(again).events.equals(desim.run(made).events)


def test_the_words_before_a_run_are_about_both_hops():
    hops = {"uplink": {"latency": "50 ms", "loss": 0.3}, "downlink": {"latency": "20 ms"}}
    hops["downlink"] |= {"loss": 0.2, "bandwidth": "1 Mbit/s"}
    (said,) = [
        one for one in circumstances(build(desim.load(bare(hops)))) if one.startswith("links")
    ]
    assert said == "links: 70 ms, 1 Mbit/s, 44 % of messages lost"
