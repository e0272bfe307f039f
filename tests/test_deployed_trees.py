"""Trees of real processes: the bits of the simulated tree, and words for whatever goes wrong."""

import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from test_deploy import PROBLEM, Stroke, deploy, killed, lines, plain, released  # noqa: F401

import desim
from analysis.fidelity import trees
from desim.deployments import cloud_server, edge_server, formats, hosts
from desim.deployments.deployed import refuse
from desim.deployments.peer import ROWS
from desim.engine.hub import Variables
from desim.engine.tree.edges import Order
from desim.errors import InputError, RunError
from desim.log.event_log import EventLog
from desim.network.conditions.hierarchy import CLOUD
from desim.network.timeline.record import RELEASED, Kind
from desim.privacy.ledger.ledger import Mechanism, Terms, View
from desim.runs.recording import prepare
from desim.scenario.load import load

COLUMNS = ["kind", "agent", "peer", "round", "bytes", "release"]
PRIVATE = {"relation": "replace-one", "noise_seed": "scenario"}


def tree(sizes, *rounds, method="fedavg", cloud=3, level=None, **more):
    """A tree of so many nodes, whose edges make so many rounds, from the cloud down."""
    own = {"fed-plt": {"rho": 1.0, "send": "increments"}}.get(method, {})
    levels = [{"link": {"latency": "2 ms"}, "rounds": k, **(level or {})} for k in rounds]
    return {
        "seed": 5, "name": "deployed",
        "problem": {**PROBLEM, "agents": int(np.prod(sizes)), **more.pop("problem", {})},
        "algorithm": {"name": method, **own, **more.pop("algorithm", {})},
        "network": {
            "topology": {"tree": sizes}, "levels": levels, "link": {"latency": "1 ms"},
            **more.pop("network", {}),
        },
        "compute": {"speed": {"lognormal": ["3000 /s", 0.3]}},
        "observe": {"iterates": True, "metrics": ["loss", "consensus"]},
        "stop": {"rounds": cloud}, **more,
    }  # fmt: skip


def rows_of(run):
    """What happened, without its times."""
    return run.events[COLUMNS].astype({"kind": str}).sort_values(COLUMNS).reset_index(drop=True)


def same(given):
    """Whether the tree of processes has the bits of the simulated one."""
    simulated, real = desim.run(given), deploy(given)
    assert real.status == "done"
    arrays = [(run.model, run.iterates, *run.state.values()) for run in (simulated, real)]
    return (
        all(np.array_equal(*pair) for pair in zip(*arrays, strict=True))
        and simulated.metrics["value"].equals(real.metrics["value"])
        and rows_of(simulated).equals(rows_of(real))
        and released(simulated).equals(released(real))
    )


SLOW = {"compute": {"speed": ["3000 /s"] * 2 + ["1 /s"] * 2}}  # the second edge never replies
TREES = {
    "passed on": tree([2, 2], 1, algorithm={"server": {"momentum": 0.5}}),
    "increments in turn": tree([2, 2], 2, method="fed-plt"),
    "three levels": tree([2, 1, 2], 1, 2, method="scaffold", cloud=2),
    "rules and codecs": tree(
        [2, 3], 2, algorithm={"aggregate": "median"}, level={"aggregate": "median"},
        codec={"top-k": 0.2},
    ),
    "some": tree([2, 2], 2, level={"participation": {"uniform": 1}}),
    "noise": tree(
        [2, 2], 2, method="fed-plt", problem={"clip": 1.0}, privacy=PRIVATE,
        algorithm={"local": {"solver": "noisy", "epochs": 2, "tau": 0.1}},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TREES)
def test_a_tree_has_the_bits_of_the_simulation(name):
    assert same(TREES[name])


@pytest.mark.parametrize(
    "changes",
    [{"level": {"policy": {"quorum": 1}}}, {"policy": {"deadline": "80 ms"}}],
    ids=["above", "below"],
)
def test_policies_of_levels_close_collections_of_a_tree(changes):
    given = tree([2, 2], 2, **SLOW, **changes)
    if "policy" in changes:
        given["compute"] = {"speed": ["3000 /s", "1 /s"] * 2}
    simulated, real = desim.run(given), deploy(given)
    assert np.array_equal(simulated.model, real.model)
    closed = [run.events[run.events["kind"] == "aggregate"] for run in (simulated, real)]
    counted = [one.groupby(["agent", "round"])["value"].first().to_dict() for one in closed]
    assert counted[1].items() <= counted[0].items() | counted[1].items()
    hub = [{k: v for k, v in one.items() if k[0] in (-1, 4)} for one in counted]
    assert hub[0] == hub[1]
    if "policy" in changes:
        assert (real.events["kind"] == "deadline").sum() == 12


def latest_states(self, node, number):
    """Wrong: clients are shown as they are, not as they were when their edge replied."""
    if node < self.clients:
        return [(node, max(self.states[node]))] if self.states[node] else []
    reach = np.flatnonzero(self.above == node)
    return [one for i in reach.tolist() for one in latest_states(self, i, 0)]


@pytest.mark.parametrize("wrong", ["counts", "rounds"])
def test_a_wrong_tree_is_noticed(monkeypatch, wrong):
    if wrong == "counts":  # every edge weighs the same, however many replies it sums up
        right = formats.counted
        monkeypatch.setattr(edge_server, "counted", lambda frame, _: right(frame, 1.0))
    else:  # an edge goes on from the first round's addresses
        right = edge_server.order_of
        monkeypatch.setattr(edge_server, "order_of", lambda *a: right(*a)._replace(round=1))
    given = tree([2, 2], 2, algorithm={"local": {"solver": "sgd", "batch": 2}})
    simulated, real = desim.run(given), deploy(given)
    assert not np.array_equal(simulated.model, real.model)


def test_what_an_edge_has_summed_up_is_shown_and_no_more():
    """Of two calls of a client the first is in its edge's reply, the other is still to be used."""
    given = prepare(load(tree([2, 2], 2))).simulation.settings
    shown = []
    world = SimpleNamespace(
        settings=given, reserved=False, state={"x": np.zeros((4, 1))},
        observer=SimpleNamespace(arrived=lambda number, who, x: shown.append((number, x.tolist()))),
    )  # fmt: skip
    fleet = SimpleNamespace(send=lambda *_: None, name=str, dead={})
    station = SimpleNamespace(fleet=SimpleNamespace(receive=None), first=4, _report=lambda *_: None)
    for whole, found in ((None, [[1.0]]), (latest_states, [[2.0]])):
        one = cloud_server.Courier(world, fleet, station)
        if whole is not None:
            one._whole = lambda *call, one=one: latest_states(one, *call)
        for number in (1, 2):
            state = {"state x": np.array([float(number)])}
            one._report(0, formats.Message("done", {"number": number}, state))
        one.waiting.append((7, 4))
        one._report(4, formats.Message("done", {"number": 7, "taken": [[0, 1]]}, {}))
        assert shown.pop() == (7, found)
    with pytest.raises(formats.Torn, match="replies of others"):
        one._report(4, formats.Message("done", {"number": 8, "taken": [[2, 1]]}, {}))


def test_a_killed_edge_ends_the_run_in_words(tmp_path):
    text = r"edge 1 was killed by signal 9 \(SIGKILL\) in round \d+, and clients 2 and 3 have no"
    with pytest.raises(RunError, match=text):
        deploy(tree([2, 2], 1, cloud=500), out=tmp_path / "run", progress=killed(5))
    run = desim.open(tmp_path / "run")
    assert run.status == "failed"
    assert len(run.events) > 50


def test_a_killed_client_is_its_edges_to_miss():
    given = tree([2, 2], 1, cloud=500)
    with pytest.raises(RunError, match=r"edge 0: nobody can go on: agent 1 was killed.*policy all"):
        deploy(given, progress=killed(1))


def test_ctrl_c_leaves_a_readable_tree(tmp_path):
    stop = Stroke(lambda: os.kill(os.getpid(), signal.SIGINT))
    real = deploy(tree([2, 2], 2, cloud=500), out=tmp_path / "run", progress=stop)
    assert (real.status, real.manifest["reason"]) == ("stopped", "interrupted by Ctrl-C")
    events = desim.open(tmp_path / "run").events
    assert {-1, 0, 1, 2, 3, 4, 5} == set(events["agent"])


@pytest.mark.usefixtures("lines")
def test_each_level_has_lines_of_its_own():
    given = tree([2, 2], 1, level={"link": {"latency": "40 ms"}}, cloud=2)
    real = desim.deploy({**given, "network": {**given["network"], "link": {"latency": "15 ms"}}})
    came = real.events[real.events["kind"] == "deliver"]
    above = (came["agent"] < 0) | (came["peer"] < 0)
    for rows, latency in ((came[above], 0.04), (came[~above], 0.015)):
        assert rows["seconds"].min() >= latency - 1e-4
        assert rows["seconds"].median() < 2.5 * latency
    assert real.manifest["clock"]["links"]["lines"] == 12


def test_an_order_comes_as_it_was_sent():
    method = prepare(load(tree([2, 2], 2))).simulation.method
    amounts = np.arange(4.0), np.array([np.inf, 1.0, np.nan, 0.0]), np.ones(4)
    charge = Terms(Mechanism.GAUSSIAN, View.COORDINATOR, *amounts, 0.5)
    terms = {"work": np.arange(4), "charge": charge, "bits": np.int64(64), "reply_bits": None}
    own = Variables({"x": np.arange(3.0), "k": 2})
    order = Order(method.train, np.ones(3), own, 5, terms)
    fields, arrays = edge_server.sent_down(order, method)
    packed = edge_server.from_bytes(edge_server.as_bytes({"job": fields}))
    letter = SimpleNamespace(
        payload=np.ones(3), order=SimpleNamespace(fields=packed, arrays=arrays)
    )
    found = edge_server.order_of(letter, method)
    assert (found.job, found.round, found.own.k) == (method.train, 5, 2)
    assert np.array_equal(found.own.x, own.x)
    assert [found.terms[name] for name in ("bits", "reply_bits")] == [64, None]
    again = found.terms["charge"]
    for name in ("sensitivity", "scale", "sampling"):
        np.testing.assert_array_equal(getattr(again, name), getattr(charge, name))
    assert (again.mechanism, again.view, again.resolution) == (charge.mechanism, charge.view, 0.5)


def test_edges_speak_to_their_own_alone():
    given = prepare(load(tree([2, 1, 2], 1, 1))).simulation.settings
    assert given.tree.above.tolist() == [4, 4, 5, 5, 6, 7, CLOUD, CLOUD]
    assert edge_server.reach_of(given.tree, 7).tolist() == [2, 3]
    world = SimpleNamespace(settings=given, reserved=False)
    sent = []
    fleet = SimpleNamespace(send=lambda *what: sent.append(what), name=str)
    station = SimpleNamespace(fleet=SimpleNamespace(receive=None))
    one = cloud_server.Courier(world, fleet, station)
    arrays = {edge_server.FIELDS: edge_server.as_bytes({"number": 1})}
    one._report(4, formats.Message("to", {"node": 1, "kind": "order"}, arrays))
    assert sent == [(1, "order", {"number": 1}, {})]
    for node, kind in ((2, "order"), (5, "order"), (99, "order"), (0, "end"), (0, "state")):
        with pytest.raises(formats.Torn, match="allowed: orders"):
            one._report(4, formats.Message("to", {"node": node, "kind": kind}, arrays))
    for who in (2, 5, 6):
        log = EventLog()
        log.add(Kind.RELEASE, 1, who, 1, 0.5)
        rows = (
            *formats.raw_rows(log, 1.0),
            np.zeros((0, RELEASED[0]), int),
            np.zeros((0, RELEASED[1])),
        )
        told = dict(zip(ROWS, rows, strict=True))
        with pytest.raises(formats.Torn, match="rows of others"):
            one._report(4, formats.Message("rows", {"before": 1.0}, told))


@pytest.mark.parametrize("depth", [300, 600, 100_000])
def test_fields_within_fields_are_no_end_of_the_coordinator(depth):
    text = b'{"number":' + b"[" * depth + b"]" * depth + b"}"
    header = b'["done",' + text + b",[]]"
    whole = formats.LENGTHS.pack(formats.MARK, len(header), 0) + header
    reader = formats.Unpacking(foreign=True)
    if depth == 300:
        assert edge_server.from_bytes(np.frombuffer(text, np.uint8)).keys() == {"number"}
        assert [one.kind for one in reader.feed(whole)] == ["done"]
        return
    with pytest.raises(formats.Torn, match=r"deeper than|recursion"):
        list(reader.feed(whole))
    if depth > 1000:
        with pytest.raises(ValueError, match="deeper than they are read"):
            edge_server.from_bytes(np.frombuffer(text, np.uint8))


def test_a_client_whose_reports_make_no_sense_is_lost_to_its_edge():
    buried, dropped = [], []
    members = SimpleNamespace(first=0, bury=lambda *what: buried.append(what))
    place = SimpleNamespace(greeted={1: "line"}, drop=dropped.append, read=lambda some: None)
    one = edge_server.Server.__new__(edge_server.Server)
    one.place, one.edge = place, SimpleNamespace(station=SimpleNamespace(fleet=members))
    report = formats.Message("of", {"node": 1, "kind": "done", "fields": {}}, {})
    for error in (formats.Torn("gave up"), KeyError("number")):

        def reported(i, message, error=error):
            raise error

        members.reported = reported
        one._told(report)
        assert buried.pop()[0] == 1
    assert (dropped, place.greeted) == (["line"], {})


FILES = {
    "hosts: {a: [0, 1, 2, 3, edge 0]}": "nobody who plays edge 1; allowed: all agents 0 to 3, edge",
    "hosts: {a: [0, 1, 2, 3, edge 0, edge 2]}": "found 'edge 2'; allowed: agents 0 to 3, edge 0 to",
    "hosts: {a: [0, 1, 2, 3, edge 0, 5]}": "found 5; allowed: agents 0 to 3, edge 0 to edge 1",
    "hosts: {a: [0, 1, 2, 3, edge 0, edge \u0661]}": "found 'edge \u0661'; allowed: agents",
    "hosts: {a: [0, 1, 2, 3, edge 0, edge 1], b: [edge 1]}": "found edge 1, which a plays",
}


@pytest.mark.parametrize("text", FILES)
def test_hosts_play_edges_by_name(tmp_path, text):
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=FILES[text]):
        hosts.read_hosts(path, 4, 2)
    path.write_text("hosts: {a: [0, 1, edge 0], b: [edge 1, 2, 3]}")
    assert hosts.read_hosts(path, 4, 2).agents == {"a": (0, 1, 4), "b": (5, 2, 3)}


def by_tcp(**how):
    return {"latency": "1 ms", "transport": {"tcp": how}}


REFUSED = {
    "new": (tree([2, 2], 1, network={"link": by_tcp(connection="new")}), "edges keep theirs"),
    "unlike": (
        tree([2, 2], 1, network={"link": by_tcp(congestion="reno")}, level={"link": by_tcp()}),
        r"network\.levels\[0\]\.uplink\.transport: found another than at other levels",
    ),
    "churn": (tree([2, 2], 1, churn={"up": "1 s", "down": "1 s"}), "churn: found a section"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_tree_of_processes_does_is_refused(name, tmp_path):
    given, words = REFUSED[name]
    with pytest.raises(InputError, match=words):
        desim.deploy(given, out=tmp_path / "run", loopback=name != "unlike")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("has", "text"),
    [({"calendar": object()}, "churn"), ({"codecs": SimpleNamespace(plain=False)}, "a codec")],
)
def test_edges_that_come_and_go_or_code_sums_are_refused(has, text):
    simulation = prepare(load(tree([2, 2], 1))).simulation
    sent = SimpleNamespace(plain=True)
    tiers = [SimpleNamespace(**{"calendar": None, "codecs": sent, **has})]
    settings = SimpleNamespace(
        **{**vars(simulation.settings), "tree": SimpleNamespace(tiers=tiers)}
    )
    with pytest.raises(InputError, match=rf"network\.levels: found {text}"):
        refuse(SimpleNamespace(**{**vars(simulation), "settings": settings}))


def test_clocks_of_trees_are_compared_level_by_level():
    one, other = (desim.run(tree([2, 2], k)) for k in (2, 3))
    with pytest.raises(InputError, match=r"they differ in network\.levels"):
        desim.clock_errors(one, other)
    slow = tree([2, 2], 2, level={"link": {"latency": "20 ms"}})
    errors = desim.clock_errors(one, desim.run(slow))
    worst = errors.worst[errors.worst["what"] == "message"]
    assert set(worst["who"]) <= {f"coordinator to edge {k}" for k in (0, 1)} | {
        f"edge {k} to coordinator" for k in (0, 1)
    }
    assert errors.rounds["error"].to_numpy() == pytest.approx(0.036)
    assert errors.worst.iloc[-1]["reason"].startswith("closed by edge ")


def test_the_page_says_what_was_measured():
    plays = pd.read_csv(trees.FILE)
    assert plays["equal"].all()
    assert set(plays["case"]) == {*trees.CASES}
    text = (Path(trees.__file__).parents[1] / "docs" / "howto" / "hierarchy.md").read_text("utf-8")
    assert [line for line in trees.table(plays) if line not in text] == []
    quiet = plays[plays["load"] < 7.0]
    assert (abs(quiet["simulated"] / quiet["real"] - 1.0) < 0.01).all()
    plays.loc[plays["case"] == plays["case"][0], "real"] *= 1.01
    assert [line for line in trees.table(plays) if line not in text] != []
