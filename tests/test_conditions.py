"""What is said of the network and the devices before a run: a wrong unit is seen there."""

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant

import desim
from desim import amounts
from desim.errors import InputError
from desim.scenario import build, described

PLAIN = {"link": {"latency": "20 ms", "bandwidth": "10 Mbit/s"}}


def words(made, module=described, **keys):
    """Lines about a scenario by their first word."""
    lines = module.circumstances(build.check(desim.load({**made, **keys})))
    return {name: text for name, _, text in (line.partition(": ") for line in lines)}


def check_words(module):
    speed = {"speed": "100 /s"}
    told = words(star(), module, network=PLAIN, compute=speed)
    assert told["links"] == "20 ms, 10 Mbit/s"
    assert told["devices"] == "a gradient of one row takes 10 ms"
    bare = {"link": {"latency": 20, "bandwidth": 10}}
    told = words(star(), module, network=bare, compute={"speed": 0.01})
    assert told["links"] == "20 s (a bare number is in s), 10 bit/s (a bare number is in bit/s)"
    assert told["devices"] == "a gradient of one row takes 100 s (a bare speed is in 1/s)"
    free = {"link": {"latency": 0, "bandwidth": "inf", "loss": "2 %"}}
    told = words(star(), module, network=free, compute={"speed": "inf"})
    assert told["links"] == "no latency, sending takes no time, 2 % of messages lost"
    assert told["devices"] == "computing takes no time"


def test_units_that_were_forgotten_are_seen():
    check_words(described)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("latency.max() >= LONG", "False"),
        ("((finite > 0.0) & (finite < NARROW)).any()", "False"),
        ("((pace > 0.0) & (pace < SLOW)).any()", "False"),
        ("_span(1.0 / pace)", "_span(pace)"),
        ("len({*words.values()}) == 1", "False"),
    ],
)
def test_other_words_are_noticed(right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check_words(mutant(described, right, wrong))


def test_the_first_exchange_is_that_of_the_run():
    made = {**star(), "network": PLAIN, "policy": "all"}
    simulation = build.check(desim.load(made))
    [line] = [
        one for one in described.circumstances(simulation) if one.startswith("first exchange")
    ]
    run = desim.run(made)
    first = run.events[run.events["round"] == 1]
    seconds = first[first.kind == "compute"].seconds
    calls = first[(first.kind == "send") & (first.agent == -1)]
    back = first[(first.kind == "deliver") & (first.agent == -1)].time
    for text in (
        f"{calls.bytes.iloc[0]} B down",
        "32 gradients",  # four epochs of eight rows
        f"in {amounts.between(seconds, 's')}",
        f"in all {amounts.between(back, 's')}",
    ):
        assert text in line


def test_graphs_tell_their_first_computation():
    told = words(graph(), network={"topology": "ring", **PLAIN}, compute={"speed": "100 /s"})
    run = desim.run({**graph(), "network": {"topology": "ring", **PLAIN}})
    rows = run.events[run.events.kind == "compute"].value
    sent = run.events[run.events.kind == "send"].bytes.iloc[0]
    assert f"{rows.min():g}" in told["first computation"]
    assert f"; {sent} B to a neighbour in 20" in told["first computation"]


def test_a_trace_is_told_by_its_mean(tmp_path):
    (tmp_path / "a.csv").write_text("time,a\n0,1\n1,3\n")
    trace = {"trace": str(tmp_path / "a.csv"), "unit": "kbit/s"}
    told = words(star(), network={"link": {"latency": "5 ms", "bandwidth": trace}})
    assert told["links"] == "5 ms, 2 kbit/s on average"


@pytest.mark.parametrize("name", ["rtt.csv", "rtt.npz"])
def test_a_measured_latency_says_its_unit(name, tmp_path):
    matrix = np.full((9, 9), 80.0)
    if name.endswith("csv"):
        np.savetxt(tmp_path / name, matrix, delimiter=",")
    else:
        np.savez(tmp_path / name, rtt=matrix)
    file = {"file": str(tmp_path / name)}
    message = f"latency_matrix.unit: missing, and {name} does not say what its numbers are"
    with pytest.raises(InputError, match=rf"{message} \(median 80\); allowed: ms"):
        words(star(), network={"latency_matrix": file})
    told = words(star(), network={"latency_matrix": {**file, "unit": "ms"}})
    assert told["links"].startswith("40 ms")


def test_who_is_not_heard_is_said_with_what_holds_a_deadline_open():
    slow = {**star(), "network": PLAIN, "compute": {"speed": [1, *[100] * 5]}}
    least = {"deadline": "2 s", "at_least": 3}
    for policy, words in (
        ({"deadline": "2 s"}, "2 s at most:"),
        (least, "2 s, longer until 3 repl"),
    ):
        lines = [*described.circumstances(build.check(desim.load({**slow, "policy": policy})))]
        assert f"the coordinator waits for {words}" in lines[-1]
