"""One transmission that reaches all neighbours: its bytes count once, and nothing else differs."""

import numpy as np
import pytest
from cases import CASES, LOSSY, graph, merged
from laws import check_log
from test_engines import differences

import desim

RADIO = {"network": {"medium": "shared"}}
SIZE = 32  # bytes of four numbers
EQUAL = graph(network={"link": {"bandwidth": "40 kbit/s", "jitter": "none"}})


def sent(done):
    """All sends, and (transmissions, columns) those with bytes."""
    sends = done.events[done.events.kind == "send"]
    return sends, sends[sends.bytes > 0]


def test_a_transmission_counts_once_and_reaches_everybody_as_before():
    apart, radio = desim.run(EQUAL), desim.run(merged(EQUAL, RADIO))
    assert apart.iterates.tobytes() == radio.iterates.tobytes()
    assert apart.events.drop(columns="bytes").equals(radio.events.drop(columns="bytes"))
    every, paid = sent(radio)
    assert len(every) == 12 * 8 * 3
    assert len(paid) == 12 * 8
    assert paid.groupby(["agent", "round"]).size().eq(1).all()
    assert apart.manifest["counts"]["send_bytes"] == 3 * radio.manifest["counts"]["send_bytes"]
    assert (paid.bytes == SIZE).all()


def test_it_goes_at_the_rate_of_the_slowest_neighbour():
    sends, _ = sent(desim.run(merged(graph(), RADIO)))
    spread = sends.groupby(["agent", "round"]).seconds
    assert (spread.max() == spread.min()).all()
    slowest = sent(desim.run(graph()))[0].groupby(["agent", "round"]).seconds.max()
    assert slowest.equals(spread.max())


@pytest.mark.parametrize("contention", ["none", "fifo", "fair"])
def test_resends_reach_those_who_lack_it_and_count_once(contention):
    made = merged(graph(network=LOSSY), RADIO)
    done = desim.run(made, overrides={"network.contention": contention})
    check_log(done)
    every, paid = sent(done)
    transmissions = every.groupby(["agent", "round"]).value.nunique().sum()
    assert transmissions == len(paid) < len(every)
    assert paid.groupby(["agent", "round", "value"]).size().eq(1).all()
    assert (every.value > 0).sum() > 10


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["nfl", "nfl-lossy", "nfl-late", "admm", "qsgd-lossy"])
def test_the_engines_agree_on_a_shared_medium(name):
    made = merged(CASES[name], RADIO)
    cohort, agents = (desim.run(made, overrides={"engine": e}) for e in ("cohort", "agents"))
    assert differences(cohort, agents) == []
    check_log(cohort)
    assert differences(cohort, desim.run(CASES[name], overrides={"engine": "cohort"}))


def test_a_queue_holds_a_transmission_once():
    """One of 32 bytes at 8 kbit/s takes 32 ms for all seven, one for each seven times that."""
    made = merged(EQUAL, {"network": {"link": {"latency": "30 ms", "bandwidth": "8 kbit/s"}}})
    network = {"topology": "complete", "contention": "fifo"}
    made = merged(made, {"network": network, "stop": {"rounds": 1}})
    radio, apart = desim.run(merged(made, RADIO)).events, desim.run(made).events
    for events, longest in ((radio, 0.062), (apart, 0.254)):
        assert np.isclose(events[events.kind == "deliver"].seconds.max(), longest, rtol=1e-9)
