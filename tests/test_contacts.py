"""Contact traces, and links that come and go: what waits, until when, and who meets in a round."""

import numpy as np
import pytest
from cases import graph, merged
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.errors import InputError
from desim.network.conditions import topology as topology_module
from desim.scenario.build import build

TRACE = (
    "agent,peer,begin,end\n0,1,100.0,100.3\n2,1,100.2,100.6\n3,2,100.5,100.7\n1,0,100.25,100.5\n"
)
EDGES = [[0, 1], [1, 2], [2, 3]]
TURNS = [[[0, 1], [2, 3]], [[1, 2]]]


@pytest.fixture
def trace(tmp_path):
    """Four agents in a line over 0.7 s."""
    path = tmp_path / "contacts.csv"
    path.write_text(TRACE)
    return str(path)


def scenario(topology, **changes):
    """An ADMM of four agents, which waits for all its neighbours."""
    made = merged(graph(problem={"agents": 4}), changes)
    return {**made, "network": {**made["network"], "topology": topology}}


def leaving(windows, lap, begin, bits, rate):
    """When the last of `bits` leaves: a walk through the windows, lap after lap."""
    base = np.floor(begin / lap) * lap
    while True:
        for opens, closes in windows:
            start, end = max(base + opens, begin), base + closes
            if start < end:
                if bits <= rate * (end - start) * (1 + 1e-12):
                    return start + bits / rate
                bits -= rate * (end - start)
        base += lap


def gaps(run, windows, lap):
    """How far messages arrive from where they should, s."""
    links = build(run.scenario).settings.links
    at = {(i, j): e for e, (i, j) in enumerate(links.ends.T.tolist())}
    found, rates = [], {}
    for e in range(links.ends.shape[1]):
        first, last = links.plays[:, e]
        rates[e] = links.samples[1, first:last].max()
    for row in run.events[run.events.kind == "send"].itertuples():
        e = at[row.agent, row.peer]
        pair = min(row.agent, row.peer), max(row.agent, row.peer)
        end = leaving(windows[pair], lap, row.time, 8.0 * row.bytes, rates[e])
        found.append(abs(row.time + row.seconds - end))
    return np.array(found)


MET = {(0, 1): [(0.0, 0.5)], (1, 2): [(0.2, 0.6)], (2, 3): [(0.5, 0.7)]}
STEADY = {"network": {"link": {"latency": "5 ms", "bandwidth": {"uniform": [2e3, 9e3]}}}}


def test_messages_leave_while_their_link_is_there(trace):
    run = desim.run(scenario({"contacts": trace}, **STEADY))
    assert gaps(run, MET, 0.7).max() < 1e-9
    always = {pair: [(0.0, 0.7)] for pair in MET}
    assert gaps(run, always, 0.7).max() > 0.01
    check_log(run)


@pytest.mark.parametrize("every", ["70 ms", "2 s"])
def test_links_that_come_and_go_leave_the_iterates(every):
    still = desim.run(scenario({"edges": EDGES}))
    moving = {"switching": TURNS, "every": every}
    runs = [desim.run(scenario(moving), overrides={"engine": e}) for e in ("cohort", "agents")]
    assert differences(*runs) == []
    assert runs[0].iterates.tobytes() == still.iterates.tobytes()
    assert runs[0].manifest["time"] > still.manifest["time"]


def test_agents_with_a_deadline_do_not_wait_for_a_link(trace):
    late = {"deadline": "60 ms", "late": "carry"}
    runs = [
        desim.run(scenario({"contacts": trace}, policy=late), overrides={"engine": e})
        for e in ("cohort", "agents")
    ]
    assert differences(*runs) == []
    heard = runs[0].events[runs[0].events.kind == "aggregate"]
    assert (heard.value == 0).any()


def test_agents_that_never_wait_go_on_without_a_link(trace):
    made = scenario({"contacts": trace}, policy="each", stop={"rounds": 40})
    made["algorithm"] = {"name": "zcdp-nfl", "rho": 0.2, "eta": 1.0}
    run = desim.run(made)
    assert (run.status, run.manifest["engine"]) == ("done", "agents")
    check_log(run)


def met(module=topology_module, lasting=0.25):
    """Who meets in each quarter of a second, by the module and by a plain loop."""
    spans = np.array([[0.0, 0.3], [0.2, 0.6], [0.5, 0.75], [0.25, 0.5]])
    pairs = np.array([[0, 1], [1, 2], [2, 3], [0, 1]])
    found = module.Contacts(pairs, spans, 0.75).slots(lasting)
    slots = []
    for n in range(3):
        low, high = n * lasting, (n + 1) * lasting
        slots.append(sorted({(*p,) for p, (b, e) in zip(pairs.tolist(), spans, strict=True)
                             if b < high and e > low}))  # fmt: skip
    return found, slots


def test_a_round_has_all_who_meet_in_its_part_of_the_trace():
    found, slots = met()
    assert found == slots
    broken = mutant(topology_module, "np.ceil(bounds[:, 1])", "np.ceil(bounds[:, 0] + 1)")
    found, slots = met(broken)
    assert found != slots


def decimal(module=topology_module):
    """How many rounds of 0.1 s a trace has whose clock begins at 100 s, and when who meets."""
    span = np.array([[100.0, 100.1], [100.3, 100.7]]) - 100.0
    slots = module.Contacts(np.array([[0, 1], [1, 2]]), span, float(span.max())).slots(0.1)
    when = ([n for n, met in enumerate(slots) if pair in met] for pair in ((0, 1), (1, 2)))
    return len(slots), *when


def test_a_contact_is_in_no_round_that_it_only_touches():
    told = 7, [0], [3, 4, 5, 6]
    assert decimal() == told
    assert decimal(mutant(topology_module, "NEAR = 1e-6", "NEAR = 0.0")) != told


def test_rounds_of_a_trace_are_its_slots(trace):
    made = scenario({"contacts": trace, "round": "250 ms"}, stop={"rounds": 7})
    made["algorithm"] = {"name": "q-dpsgd-1", "alpha": 0.2, "mixing": 0.5, "bits": 20,
                         "resolution": 1e-3, "deadline": "20 ms"}  # fmt: skip
    runs = [desim.run(made, overrides={"engine": e}) for e in ("cohort", "agents")]
    assert differences(*runs) == []
    sent = runs[0].events[runs[0].events.kind == "send"]
    pairs = {k: {(min(i, j), max(i, j)) for i, j in zip(one.agent, one.peer, strict=True)}
             for k, one in sent.groupby("round")}  # fmt: skip
    slots = [{(0, 1), (1, 2)}, {(0, 1), (1, 2)}, {(1, 2), (2, 3)}]
    assert pairs == {k: slots[(k - 1) % 3] for k in range(1, 8)}
    made["network"]["topology"] = {"contacts": trace, "round": "250 ms", "end": "error"}
    with pytest.raises(InputError, match="the shortest trace lasts 3 rounds"):
        build(desim.load(made))


def test_a_trace_that_ends_before_the_run_is_refused_where_that_is_said(trace):
    said = {"contacts": trace, "end": "error"}
    with pytest.raises(InputError, match=r"the shortest trace lasts 0\.7 s"):
        build(desim.load(scenario(said, stop={"time": "1 s"})))
    build(desim.load(scenario(said, stop={"time": "0.7 s"})))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("agent,peer,begin\n0,1,0\n", "found agent, peer, begin; allowed: agent, peer, begin, end"),
        ("agent,peer,begin,end\n", "found (no contact|nothing)"),
        ("agent,peer,begin,end\n0,0,0,1\n", "found agent 0 with itself in row 0"),
        ("agent,peer,begin,end\n0,1.5,0,1\n", "found peer 1.5 in row 0"),
        ("agent,peer,begin,end\n0,1,0,1\n1,2,3,3\n", "found begin 3 and end 3 in row 1"),
        ("agent,peer,begin,end\n0,1,0,1\n2,3,0,1\n", "disconnected"),
        ("agent,peer,begin,end\n0,1,0,1\n1,9,0,1\n", "found 4; allowed: 10"),
    ],
)
def test_damaged_traces_are_refused(tmp_path, text, told):
    path = tmp_path / "contacts.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=told):
        build(desim.load(scenario({"contacts": str(path)})))


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"link": {"bandwidth": "inf"}}, "found inf with links that come and go"),
        ({"medium": "shared"}, "found shared on a graph that changes in time"),
        ({"contention": "fair"}, "found fair on a graph that changes in time"),
        ({"topology": {"switching": TURNS, "round": "1 s"}}, "allowed: with contacts"),
    ],
)
def test_what_cannot_wait_is_refused(change, told):
    made = scenario({"switching": TURNS, "every": "1 s"})
    made["network"] = {**made["network"], **change}
    with pytest.raises(InputError, match=told):
        build(desim.load(made))
