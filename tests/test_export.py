"""`desim export`: a trace that Perfetto's own schema reads and that says what the log says; csv."""

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

import desim
from desim.errors import InputError
from desim.interface.cli import main
from desim.runs import exports
from desim.runs.exports import perfetto

BEGIN, END, POINT, COUNTER = (
    TrackEvent.Type.Value(f"TYPE_{name}")
    for name in ("SLICE_BEGIN", "SLICE_END", "INSTANT", "COUNTER")
)
STAR = {
    "name": "star",
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
        "clip": 1.0,
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2}},
    "network": {"link": {"latency": "10 ms", "bandwidth": "100 kbit/s", "loss": "20 %"}},
    "compute": {"speed": {"uniform": [10, 90]}},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}, "delta": 1e-5},
    "stop": {"rounds": 6},
}
RING = {
    **{key: part for key, part in STAR.items() if key != "privacy"},
    "name": "ring",
    "algorithm": {"name": "dsgd", "alpha": 0.1},
    "network": {"topology": "ring", "link": {"latency": "10 ms", "bandwidth": "10 kbit/s"}},
    "problem": {**STAR["problem"], "agents": 4},
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    return {one["name"]: desim.run(one, place / one["name"]) for one in (STAR, RING)}


def packets(path):
    trace = Trace()
    trace.ParseFromString(path.read_bytes())
    tracks = {
        p.track_descriptor.uuid: p.track_descriptor
        for p in trace.packet
        if p.HasField("track_descriptor")
    }
    events = [(p.timestamp, p.track_event) for p in trace.packet if p.HasField("track_event")]
    return tracks, events


def by_track(events):
    found = {}
    for time, event in events:
        found.setdefault(event.track_uuid, []).append((time, event))
    return found


def check_trace(module, run, path):
    """Tracks are well formed; slices, flows and counters are those of the log."""
    module.write_trace(run, path)
    tracks, events = packets(path)
    assert all(one.parent_uuid in tracks for one in tracks.values() if one.parent_uuid)
    for track in by_track(events).values():
        times = [time for time, _ in track]
        assert times == sorted(times)
        kinds = [event.type for _, event in track if event.type in (BEGIN, END)]
        assert kinds == [BEGIN, END] * (len(kinds) // 2)  # none inside another
    log = run.events
    began = [(time, event) for time, event in events if event.type in (BEGIN, POINT)]
    work = log[log["kind"] == "compute"]
    told = sorted(time for time, event in began if event.name == "compute")
    assert told == sorted(round((row.time - row.seconds) * 1e9) for row in work.itertuples())
    counts = log["kind"].value_counts()
    assert sum(event.name.endswith(", lost") for _, event in began) == counts.get("lost", 0)
    check_flows(tracks, began, log)
    counted = {
        tracks[e.track_uuid].name: e.double_counter_value for _, e in events if e.type == COUNTER
    }
    assert counted["error"] == run.curve("error")["value"].iloc[-1]


def check_flows(tracks, began, log):
    """Every message that arrived is a flow from its sender to its receiver, at its times."""
    leave = {flow: (time, event) for time, event in began for flow in event.flow_ids}
    land = {flow: (time, event) for time, event in began for flow in event.terminating_flow_ids}
    assert leave.keys() == land.keys()

    def owner(event):
        return tracks[tracks[event.track_uuid].parent_uuid].name

    found = sorted(
        (land[flow][0], leave[flow][0], owner(leave[flow][1]), owner(land[flow][1]))
        for flow in leave
    )
    rows = log[log["kind"] == "deliver"].itertuples()
    key = ["agent", "peer", "round", "value"]
    left = log[log["kind"] == "send"].groupby(key)["time"].min()  # of each attempt
    wanted = [
        (
            round(row.time * 1e9),
            round(left[row.peer, row.agent, row.round, row.value] * 1e9),
            perfetto.called(row.peer),
            perfetto.called(row.agent),
        )
        for row in rows
    ]
    for one, other in zip(found, sorted(wanted), strict=True):
        assert one[2:] == other[2:]
        assert one[:2] == pytest.approx(other[:2], abs=2)


@pytest.mark.parametrize("name", ["star", "ring"])
def test_a_trace_says_what_the_log_says(runs, tmp_path, name):
    check_trace(perfetto, runs[name], tmp_path / "t")


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("NANO = 1e9", "NANO = 1e6"),
        ("<= nanoseconds(one.begin)", ">= 0"),
        ("event.flow_ids.append(one.sends)", "event.flow_ids.append(1)"),
        ("one.begin, track, 1 if", "one.end, track, 1 if"),
        (
            "packet.track_descriptor.parent_uuid = process.uuid",
            "packet.track_descriptor.parent_uuid = 99999",
        ),
    ],
)
def test_a_wrong_trace_is_noticed(runs, tmp_path, right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check_trace(mutant(perfetto, right, wrong), runs["ring"], tmp_path / "t")


def test_epsilon_is_a_counter_with_its_terms(runs, tmp_path):
    tracks, events = packets(desim.export(runs["star"], "perfetto", tmp_path / "t"))
    name = next(one.name for one in tracks.values() if one.name.startswith("epsilon"))
    assert "eavesdropper, replace-one, exact GDP, delta 1e-05" in name
    last = [e.double_counter_value for _, e in events if tracks[e.track_uuid].name == name][-1]
    assert last == runs["star"].epsilon()["epsilon"].max()
    tracks, _ = packets(desim.export(runs["ring"], "perfetto", tmp_path / "u"))
    assert not any(one.name.startswith("epsilon") for one in tracks.values())


def test_large_runs_are_cut_and_say_so(runs, tmp_path, monkeypatch):
    told = []
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 150)
    desim.export(runs["ring"], "perfetto", tmp_path / "t.trace", tell=told.append)
    assert told[0].startswith("shown: rounds 1 to ")
    assert len(packets(tmp_path / "t.trace")[1]) < 2 * 150 + 100
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 20)
    desim.export(runs["ring"], "perfetto", tmp_path / "t.trace", tell=told.append)
    assert told[1].startswith("shown: round 1 of 6, agents 0 to ")


def test_a_window_of_rounds_and_agents(runs, tmp_path):
    desim.export(runs["ring"], "perfetto", tmp_path / "t", rounds=(2, 3), agents=2)
    tracks, events = packets(tmp_path / "t")
    rounds = {a.int_value for _, e in events for a in e.debug_annotations if a.name == "round"}
    assert rounds == {2, 3}
    assert {one.name for one in tracks.values() if one.HasField("process")} == {
        "agent 0",
        "agent 1",
    }
    with pytest.raises(InputError, match="no event is of these rounds"):
        desim.export(runs["ring"], "perfetto", tmp_path / "t", rounds=(70, 80))


def test_what_takes_no_time_needs_no_lane():
    def work(begin, end):
        return perfetto.Slice(0, "work", begin, end, "work")

    busy, point, next_ = work(1.0 - 1e-13, 2.0), work(1.0, 1.0), work(2.0, 3.0)
    assert perfetto.lanes([point, busy, next_]) == [[busy, next_, point]]
    assert perfetto.lanes([point]) == [[point]]
    assert len(perfetto.lanes([busy, work(1.5, 2.5), point])) == 2


def test_values_that_are_not_finite_are_said(runs, tmp_path):
    star = runs["star"]
    spoilt = desim.Run(star.manifest, star.store, star.directory)
    spoilt.metrics = star.metrics.copy()
    row = spoilt.metrics.index[spoilt.metrics["metric"] == "error"][-1]
    spoilt.metrics.loc[row, "value"] = float("nan")
    told = []
    desim.export(spoilt, "perfetto", tmp_path / "t.trace", tell=told.append)
    assert told == ["not shown: error: 1 of 7 values are not finite"]
    unclipped = {key: part for key, part in STAR["problem"].items() if key != "clip"}
    bare = desim.run({**STAR, "problem": unclipped}, tmp_path / "r")
    told.clear()
    desim.export(bare, "perfetto", tell=told.append)
    assert told[0].startswith("not shown: epsilon, largest (")
    assert told[0].endswith("all its values are infinite")


@pytest.mark.parametrize("level", ["messages", "rounds"])
def test_what_the_log_leaves_out_is_said(tmp_path, level):
    run = desim.run({**STAR, "log": level}, tmp_path / "r")
    told = []
    assert desim.export(run, "perfetto", tell=told.append) == tmp_path / "r" / "trace.pftrace"
    assert told[0].startswith("not shown: computations")


def test_csv_reads_back_to_the_bit(runs, tmp_path, monkeypatch):
    monkeypatch.setattr(exports, "AT_ONCE", 7)
    told = []
    folder = desim.export(
        runs["star"], "csv", tmp_path / "tables", progress=lambda *now: told.append(now)
    )
    assert [done for done, _ in told] == sorted({done for done, _ in told})
    assert told[-1][0] == told[-1][1] > len(runs["star"].events)
    for name in ("events", "metrics", "releases"):
        table = getattr(runs["star"], name)
        again = pd.read_csv(folder / f"{name}.csv", dtype=str, keep_default_na=False)
        assert list(again) == list(table)
        assert len(again) == len(table) > 0
        for column in table:
            kind = table[column].dtype
            texts = again[column].tolist()
            read = texts if kind == "category" else [float(one or "nan") for one in texts]
            np.testing.assert_array_equal(read, table[column].to_numpy())
    columns = pd.read_csv(folder / "columns.csv")
    assert len(columns) == 10 + 5 + 10
    assert columns["meaning"].notna().all()


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--to", "perfeto"], 2, "perfeto"),
        (["--to", "csv", "--rounds", "1-2"], 2, "allowed with --to perfetto"),
        (["--to", "perfetto", "--rounds", "2-1"], 2, "allowed: FIRST-LAST"),
        (["--to", "perfetto", "-o", f"{__file__}/t"], 2, "t: cannot be written"),
        (["--to", "perfetto"], 0, "ui.perfetto.dev"),
        (["--to", "csv"], 0, ""),
    ],
)
def test_the_command(runs, capsys, arguments, code, message):
    with pytest.raises(SystemExit) as end:
        main(["export", str(runs["star"].directory), *arguments])
    captured = capsys.readouterr()
    assert (end.value.code, message in captured.err) == (code, True)
    assert "Traceback" not in captured.err


def test_a_run_in_memory_needs_a_place(runs):
    with pytest.raises(InputError, match="in memory"):
        desim.export(desim.run(RING), "csv")
