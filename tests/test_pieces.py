"""Tables that are read piece by piece give what they give as a whole, in little memory."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from cases import CASES, graph, star
from mutant import mutant

import desim
from desim.columns import Pieces, columns_of, gathered, pieces_of, rows_of
from desim.errors import InputError
from desim.log.parquet import Tables
from desim.privacy.accounting import accountants
from desim.runs.reading import critical, facts, traffic, waits

CHURN = {"up": {"exponential": "200 ms"}, "down": {"exponential": "60 ms"}}
RUNS = {
    **{name: CASES[name] for name in ("plt-deadline", "plt-lossy", "fedlin-half", "nfl-lossy")},
    "churn-star": star(churn=CHURN),
    "churn-graph": graph(churn=CHURN),
    "instant": graph(network={"link": {"latency": 0}}),
}


@pytest.fixture(scope="module")
def logs():
    return {name: desim.run(scenario) for name, scenario in RUNS.items()}


def cut(events, most):
    """The table in pieces of 0 to `most` rows, each with words of its own."""
    columns, ends, rng = columns_of(events), [0], np.random.default_rng(1)
    while ends[-1] < len(events):
        ends.append(min(len(events), ends[-1] + int(rng.integers(0, most))))

    def read(k):
        part = rows_of(columns, slice(ends[k], ends[k + 1]))
        words = part["kind"].words
        turned = type(part["kind"])(len(words) - 1 - part["kind"].codes, words[::-1])
        return part | ({"kind": turned} if k % 2 else {})

    return Pieces(np.diff(ends), read)


def of_links(events):
    """What links() means, by a loop over the rows."""
    found = {}
    for row in events.itertuples():
        if row.kind not in ("send", "deliver", "lost"):
            continue
        link = (row.agent, row.peer) if row.kind == "send" else (row.peer, row.agent)
        one = found.setdefault(link, dict.fromkeys(LINK, 0) | {"s": 0.0, "d": 0.0})
        name = {"send": "sent", "deliver": "delivered", "lost": "lost"}[row.kind]
        one[name] += 1
        one["resent"] += row.kind == "send" and row.value > 0.0
        if row.kind != "lost":
            one["bytes" if row.kind == "send" else "delivered_bytes"] += row.bytes
            one["s" if row.kind == "send" else "d"] += row.seconds
    return {
        link: [one[name] for name in LINK]
        + [one["s"], one["d"] / one["delivered"] if one["delivered"] else np.nan]
        for link, one in sorted(found.items())
        if one["sent"]
    }


LINK = ["sent", "resent", "delivered", "lost", "bytes", "delivered_bytes"]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("most", [7, 50])
def test_where_a_table_is_cut_makes_no_difference(logs, name, most):
    events = logs[name].events
    pieces, end = cut(events, most), float(events["time"].max())
    for act in (
        waits.waits,
        traffic.links,
        lambda log: traffic.utilisation(log, end),
        critical.critical_path,
        lambda log: critical.critical_path(log, 3),
        lambda log: critical.critical_path(log, 10**6),
    ):
        pd.testing.assert_frame_equal(act(events), act(pieces), check_exact=True)
    one, other = facts.Glance(pieces_of(events)), facts.Glance(pieces)
    assert vars(one).keys() == vars(other).keys()
    for told in ("last", "bytes", "counts", "closers", "hub", "waited"):
        assert getattr(one, told) == getattr(other, told)
    ours, theirs = one.occupied, other.occupied
    for kind, seconds in ours.seconds.items():
        np.testing.assert_array_equal(seconds.at(ours.agents), theirs.seconds[kind].at(ours.agents))
        rows = events[(events["kind"] == kind) & (events["agent"] >= 0)]
        plain = np.bincount(rows["agent"], rows["seconds"], len(ours.agents))
        np.testing.assert_array_equal(seconds.at(ours.agents), plain)
    np.testing.assert_array_equal(ours.begun, theirs.begun)
    whole = waits.closers(columns_of(events))
    assert one.closers == dict(zip(*np.unique(whole, return_counts=True), strict=True))


def check_links(module, logs):
    for name in ("plt-lossy", "nfl-lossy"):
        table = module.links(cut(logs[name].events, 40)).set_index(["source", "target"])
        wanted = of_links(logs[name].events)
        assert table.index.tolist() == list(wanted)
        columns = [*LINK, "sending", "on_the_way"]
        np.testing.assert_array_equal(table[columns].to_numpy(), list(wanted.values()))


def test_links_are_sums_over_rows(logs):
    check_links(traffic, logs)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('(time if word == "send" else way)', "time"),
        ('("peer", "agent")\n', '("agent", "peer")\n'),
    ],
)
def test_wrong_links_are_noticed(right, wrong, logs):
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check_links(mutant(traffic, right, wrong), logs)


def check_sums(module):
    rng = np.random.default_rng(2)
    for groups in (1, 7, 200):
        keys = rng.integers(-(2**40), 2**40, groups)
        who = rng.integers(0, groups, 4000)
        values = rng.lognormal(0.0, 3.0, 4000)
        found, added = module.Keys(), module.Sums()
        for first in range(0, 4000, 321):
            part = slice(first, first + 321)
            added.add(found.of(keys[who[part]]), values[part])
        ordered, places = found.sorted
        assert ordered.tolist() == sorted(set(keys.tolist()))
        own = [values[keys[who] == key] for key in ordered]
        np.testing.assert_array_equal(added.at(places), [np.cumsum(one)[-1] for one in own])


def test_sums_are_those_of_a_loop():
    check_sums(traffic)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.add.at(self.values, places, values)", "self.values[places] += values"),
        ("np.insert(self._places, at, places)", "np.append(self._places, places)"),
    ],
)
def test_wrong_sums_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_sums(mutant(traffic, right, wrong))


def check_instants(module, logs):
    for name, most in (("plt-deadline", 2), ("churn-graph", 7), ("instant", 5)):
        events = logs[name].events
        told = [module.closers(log) for log in module.instants(cut(events, most))]
        np.testing.assert_array_equal(np.concatenate(told), module.closers(columns_of(events)))


def test_no_instant_is_cut(logs):
    check_instants(waits, logs)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("searchsorted(time, time[-1])", 'searchsorted(time, time[-1], side="right")'),
        ("since < time[-1] or", "False or"),
    ],
)
def test_an_instant_that_is_cut_is_noticed(right, wrong, logs):
    if right.startswith("since"):
        held = mutant(waits, right, wrong)
        before = [len(log["time"]) for log in waits.instants(cut(logs["plt-deadline"].events, 2))]
        after = [len(log["time"]) for log in held.instants(cut(logs["plt-deadline"].events, 2))]
        assert max(after) > max(before)  # what is over is let go
        return
    with pytest.raises((AssertionError, IndexError)):
        check_instants(mutant(waits, right, wrong), logs)


def check_growth(module, run, view):
    """The largest epsilon by each time is that of the curve, its times those at which it grows."""
    told = module.account(run.releases, rows=run.manifest["rows"], view=view)
    times, totals = told.growth
    assert (np.diff(totals) > 0.0).all() or len(totals) < 2 or np.isinf(totals[-1])
    for time in (0.0, *told.curve["time"], np.inf):
        most = told.curve["epsilon"][told.curve["time"] <= time].to_numpy().max(initial=0.0)
        assert totals[times <= time].max(initial=0.0) == most
    worst = told.curve.groupby("agent")["epsilon"].max().reindex(range(told.agents))
    np.testing.assert_array_equal(told.final, worst)


@pytest.mark.parametrize("most", [5, 1 << 20])
@pytest.mark.parametrize("name", ["plt-noisy", "nfl-lossy", "plt-deadline"])
def test_the_largest_epsilon_grows_as_the_curve_does(name, most, monkeypatch):
    monkeypatch.setattr(accountants, "ROWS_IN_MEMORY", most)
    run = desim.run(CASES[name])
    for view in ("eavesdropper", "final-model"):
        check_growth(accountants, run, view)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('np.argsort(time, kind="stable")', "np.arange(len(time))"),
        ("np.concatenate([[0.0], most[:-1]])", "np.concatenate([[np.inf], most[:-1]])"),
        ("np.minimum(one.epsilon, final[one.agent])", "0.5 * one.epsilon"),
    ],
)
def test_a_wrong_growth_is_noticed(right, wrong):
    twin = mutant(accountants, right, wrong)
    twin.ROWS_IN_MEMORY = 5
    with pytest.raises(AssertionError):
        check_growth(twin, desim.run(CASES["plt-noisy"]), "eavesdropper")


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ["plt-noisy", "nfl-lossy", "pp-admm", "qsgd"])
@pytest.mark.parametrize("view", ["eavesdropper", "final-model", "neighbour:1"])
def test_an_account_of_few_agents_at_a_time_is_the_same(name, view, monkeypatch):
    run = desim.run(CASES.get(name) or graph(privacy={"noise": {"sigma": 0.1}}))
    whole = run.account(view=view)
    monkeypatch.setattr(accountants, "ROWS_IN_MEMORY", 5)
    parts = run.account(view=view)
    pd.testing.assert_frame_equal(whole.curve, parts.curve, check_exact=True)
    for told in ("view", "relation", "delta", "method", "assumptions", "flags", "agents"):
        assert getattr(whole, told) == getattr(parts, told)
    for one, other in zip(whole.growth, parts.growth, strict=True):
        np.testing.assert_array_equal(one, other)
    assert whole.pld(0) == parts.pld(0) or np.isnan(whole.pld(0))


def test_pieces_are_the_table(tmp_path, logs, monkeypatch):
    monkeypatch.setattr("desim.log.parquet.PIECE", 64)
    monkeypatch.setattr("desim.log.parquet.GROUP", 32)
    run = desim.run(RUNS["plt-lossy"], out=tmp_path / "a")
    pieces = run.store.pieces("events", ["kind", "time", "seq"])
    assert len(pieces) > 5
    assert pieces.first[-1] == len(run.events)
    found = gathered(pieces)
    np.testing.assert_array_equal(found["seq"], run.events["seq"])
    assert [found["kind"].words[c] for c in found["kind"].codes] == run.events["kind"].tolist()
    assert len(pieces[-1]["time"]) == len(run.events) - pieces.first[-2]
    with pytest.raises(IndexError):
        pieces[len(pieces)]
    for name in ("waits", "links", "utilisation", "critical_path"):
        pd.testing.assert_frame_equal(getattr(run, name)(), getattr(logs["plt-lossy"], name)())
    file = tmp_path / "a" / "events.parquet"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"events\.parquet: is not the file"):
        run.links()


def test_a_part_that_is_missing_is_no_shorter_log(tmp_path):
    """Of a killed run a part in the middle is lost: not even an epsilon of the rest is told."""
    tables = Tables(tmp_path)
    rows = {"time": [1.0], "round": [1], "metric": ["error"], "agent": [-1], "value": [0.5]}
    for _ in range(3):
        tables.append("metrics", rows)
        tables.settle()
    parts = sorted((tmp_path / "parts").glob("metrics-*"))
    assert len(parts) == 3
    parts[1].unlink()
    (tmp_path / "manifest.json").write_text('{"name": "a", "status": "running"}')
    with pytest.raises(InputError, match="part 1 of metrics is missing; desim resume makes it"):
        desim.open(tmp_path).store.table("metrics")


@pytest.mark.parametrize("stored", [True, False])
def test_a_dataset_of_arrow_is_handed_out(stored, tmp_path):
    run = desim.run(RUNS["plt-lossy"], out=tmp_path / "a" if stored else None)
    for name in ("events", "metrics", "releases"):
        table, frame = run.scan(name).to_table().to_pandas(), getattr(run, name)
        assert len(table) == len(frame)
        for column in frame:
            assert table[column].tolist() == frame[column].tolist() or column == "sampling"
    with pytest.raises(InputError, match="scan: found 'event'; allowed: events, metrics or rel"):
        run.scan("event")


ROWS = 2_400_000
MOST = 200  # MiB; the whole table takes more than half as much again
PROGRAM = """
import os, pathlib, sys, pandas
from desim.runs.reading.facts import facts
from desim.runs.run import Run
from desim.runs.store import Directory
import desim.runs.reading.critical, desim.runs.reading.traffic, desim.runs.reading.facts
import desim.log.parquet

def peak():
    # Not ru_maxrss, which a new process has from the one that started it.
    status = pathlib.Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 2**10

def extra(act):
    manifest = dict(name="large", status="done", time=1e6, rounds=3, wall_seconds=1.0, counts={})
    run = Run(manifest, Directory(pathlib.Path(sys.argv[1])))
    run.store.columns("metrics", ["value"])
    before = peak()
    acts = dict(summary=lambda: facts(run), links=run.links, path=run.critical_path,
                waits=run.waits, utilisation=run.utilisation, whole=lambda: run.events)
    acts[act]()
    return peak() - before

for act in sys.argv[2:]:
    if not os.fork():  # its peak begins with what it has
        print(act, extra(act), flush=True)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A log of many rows: 50 agents compute and send, and each piece ends with a collection."""
    folder = tmp_path_factory.mktemp("large")
    tables, size = Tables(folder), 1 << 16
    agent = np.arange(size) % 50
    words = np.array(["compute", "send", "deliver", "aggregate"], object)
    for first in range(0, ROWS, size):
        kind = (np.arange(size) // 50) % 3
        kind[-1] = 3
        hub = kind >= 2
        tables.append(
            "events",
            {
                "time": (first + np.arange(size)) * 1e-3,
                "seq": first + np.arange(size),
                "kind": pd.Categorical.from_codes(kind, words),
                "agent": np.where(hub, -1, agent),
                "peer": np.where(kind == 1, -1, np.where(kind == 2, agent, -1)),
                "round": np.full(size, 1 + first // size),
                "bytes": np.where((kind == 1) | (kind == 2), 64, 0),
                "seconds": np.full(size, 1e-3),
                "value": np.zeros(size),
                "release": np.full(size, -1),
            },
        )
    tables.finish()
    return folder


ACTS = ["summary", "links", "path", "waits", "utilisation"]


@pytest.fixture(scope="module")
def extra(large):
    """MiB of memory that a process needs for each way of reading, above what it has before."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(large), *ACTS, "whole"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return {act: float(peak) for act, peak in map(str.split, done.stdout.splitlines())}


ON_LINUX = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="this system tells no peak of memory"
)


@pytest.mark.slow
@ON_LINUX
@pytest.mark.parametrize("act", ACTS)
def test_a_large_log_is_read_in_little_memory(act, extra):
    assert extra[act] < MOST


@pytest.mark.slow
@ON_LINUX
def test_a_log_that_is_read_as_a_whole_is_noticed(extra):
    assert extra["whole"] > 1.5 * MOST
