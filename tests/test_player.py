"""The scene of a player: the same as by hand, whole, sampled and while the run plays."""

import json
import math
import random
import struct
import zlib
from base64 import b64decode
from html import unescape

import numpy as np
import pandas as pd
import pytest
from cases import DROP, GOSSIP, LOSSY, graph, star
from naive import moving
from report_runs import HOSTILE, four, manipulated, played

import desim
from desim.columns import Pieces, columns_of, rows_of
from desim.errors import InputError, RunError
from desim.interface.cli import main
from desim.interface.player import moves as reading
from desim.interface.player.animated import page, player
from desim.interface.player.moves import Occupied, Reading
from desim.interface.player.scene import places, reading_of, scene

ROWS = ("sent", "source", "target", "lost")


def unpacked(array):
    """The numbers behind the letters, one after the other."""
    raw, size, n = zlib.decompress(b64decode(array["data"])), int(array["kind"][1:]), array["n"]
    if array["kind"] == "f8":
        return [struct.unpack("<d", bytes(raw[i::n]))[0] for i in range(n)]
    found, total = [], 0
    for i in range(n):
        value = int.from_bytes(bytes(raw[k * n + i] for k in range(size)), "little")
        total = (total + value) % 256**size if array["running"] else value
        signed = array["kind"][0] == "i" and total >= 256**size // 2
        found.append(total - 256**size if signed else total)
    return found


class Seen:
    """What a page knows at a moment, looked up without haste."""

    def __init__(self, scene):
        self.scene = json.loads(json.dumps(scene, allow_nan=False))
        self.rows = {name: unpacked(one) for name, one in self.scene["arrays"].items()}

    def _open(self, begin, lasting, tick):
        rows = zip(self.rows[begin], self.rows[lasting], strict=True)
        return [i for i, (since, long) in enumerate(rows) if since <= tick < since + long]

    def at(self, when):
        """Messages by link, agents that compute, rounds that are over, and who is waited for."""
        rows, tick = self.rows, round(when / self.scene["end"] * reading.END)
        dots = {}
        for i in self._open("sent", "taking", tick):
            key = rows["source"][i], rows["target"][i], bool(rows["lost"][i])
            dots.setdefault(key, []).append((tick - rows["sent"][i]) / rows["taking"][i])
        does = {}
        for i in self._open("begun", "lasting", tick):
            does.setdefault(rows["who"][i], set()).add(rows["state"][i])
        at_work = {who for who, states in does.items() if reading.AWAY not in states}
        over = sum(one <= tick for one in rows["over"])
        waits = {(rows["waiter"][i], rows["closer"][i]) for i in self._open("opened", "open", tick)}
        return {key: sorted(one) for key, one in dots.items()}, at_work, over, waits


def differences(seen, rows, moments, twin=moving):
    """How often a scene and the log's rows, read by hand, say different things of a moment."""
    wrong = dict.fromkeys(("messages", "computing", "rounds", "waits"), 0)
    for when in moments:
        dots, at_work, over, waits = seen.at(when)
        hand = twin.under_way(rows, when)
        same = dots.keys() == hand.keys() and all(
            np.allclose(dots[key], hand[key], rtol=0.0, atol=1e-4) for key in dots
        )
        wrong["messages"] += not same
        wrong["computing"] += at_work != twin.computing(rows, when)
        if seen.scene["hub"]:
            wrong["rounds"] += over != twin.rounds_over(rows, when)
            wrong["waits"] += {one for one in waits if one[0] < 0} != twin.awaited(rows, when)
    return {name for name, number in wrong.items() if number}


def some_run(number):
    """A random star or graph, with losses, absences and deadlines."""
    rng = random.Random(number)
    of, changes = [star, graph][number % 2], {"seed": number}
    network = {**rng.choice([LOSSY, DROP])}
    if of is star:
        changes["policy"] = {"deadline": "200 ms"}
        changes["churn"] = {"up": {"exponential": "0.8 s"}, "down": {"exponential": "0.1 s"}}
    compute = {"speed": {"uniform": [500, 2000]}}
    scenario = of(network=network, compute=compute, stop={"rounds": 4}, **changes)
    return desim.run(desim.load({**scenario, "name": "moving", "engine": "agents"}))


def moments(run, number):
    """Moments in the middle of two events, and the rows of the log."""
    times = np.unique(run.events["time"].to_numpy(float))
    gaps = np.flatnonzero(np.diff(times) > 1e-6)
    gaps = np.random.default_rng(number).permutation(gaps)[:25]
    return (times[gaps] + times[gaps + 1]) / 2.0, run.events.to_dict("records")


class Swapped:
    """A wrong twin: messages go the other way, work is over as it begins, waits are ended late."""

    @staticmethod
    def under_way(rows, when):
        hand = moving.under_way(rows, when)
        return {(target, source, lost): one for (source, target, lost), one in hand.items()}

    @staticmethod
    def computing(rows, when):
        done = (row for row in rows if row["kind"] == "compute")
        return {row["agent"] for row in done if row["time"] <= when < row["time"] + row["seconds"]}

    @staticmethod
    def rounds_over(rows, when):
        return moving.rounds_over(rows, when) + 1

    @staticmethod
    def awaited(rows, when):
        return {(waiter, closer + 1) for waiter, closer in moving.awaited(rows, when)}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_scene_says_of_each_moment_what_the_log_does(number):
    run = some_run(number)
    found, rows = moments(run, number)
    seen = Seen(scene(run))
    found = [when for when in found if not _under_way(seen, when)]
    assert len(found) > 8
    assert differences(seen, rows, found) == set()
    of_hub = {"waits", "rounds"} if seen.scene["hub"] else set()
    assert differences(seen, rows, found, Swapped) == {"messages", "computing"} | of_hub


def _ends(seen):
    return [a + b for a, b in zip(seen.rows["begun"], seen.rows["lasting"], strict=True)]


def _under_way(seen, when):
    """Whether something is in the scene that ends with the run, and so is in no row of the log."""
    tick = when / seen.scene["end"] * reading.END
    rows = zip(seen.rows["begun"], _ends(seen), strict=True)
    return any(begin <= tick and end >= reading.END for begin, end in rows)


def test_what_is_open_at_the_end_goes_on_to_it():
    """An agent that is away, or computes, when the run ends."""
    run = some_run(0)
    seen = Seen(scene(run))
    down = run.events.groupby("agent")["kind"].agg(
        lambda kinds: next((k for k in kinds[::-1] if k in ("down", "up")), "up")
    )
    away = {int(who) for who, kind in down.items() if kind == "down"}
    rows = zip(seen.rows["who"], seen.rows["state"], _ends(seen), strict=True)
    assert {who for who, state, end in rows if state == reading.AWAY and end >= reading.END} == away


# How many do what: sums over bins, which grow with the run.


@pytest.mark.parametrize("end", [0.9, 7.3])
def test_bins_hold_what_lasts_in_them_and_double(end):
    rng = np.random.default_rng(5)
    begin = rng.uniform(0.0, end, 40)
    until = np.minimum(begin + rng.exponential(0.2, 40), end)
    row = rng.integers(0, 2, 40)
    bins = Occupied(2, 1.0)
    for part in np.array_split(np.argsort(until), 4):
        bins.add(row[part], begin[part], until[part])
    found, wide = bins.mean(end), bins.width
    assert wide == pytest.approx(1.0 / 600 * 2 ** max(0, math.ceil(math.log2(end))))
    for (kind, place), value in np.ndenumerate(found):
        low, high = place * wide, (place + 1) * wide
        spans = zip(begin[row == kind], until[row == kind], strict=True)
        hand = sum(max(0.0, min(b, high) - max(a, low)) for a, b in spans) / wide
        assert value == pytest.approx(hand, abs=1e-9)
    assert found.sum() * wide == pytest.approx((until - begin).sum())
    assert found.sum() * wide != pytest.approx((until - begin)[1:].sum())


class Growing:
    """A run of whose log only the first pieces are stored."""

    def __init__(self, run, pieces):
        self.run, self.manifest, self.level, self.store = run, {}, run.level, self
        self.written = run.written
        self.sizes = pieces

    def pieces(self, name, columns):
        log = columns_of(self.run.store.table(name, columns))
        ends = np.cumsum([0, *self.sizes])
        return Pieces(self.sizes, lambda k: rows_of(log, slice(int(ends[k]), int(ends[k + 1]))))


def same(one, other):
    """Whether two readings have come to the same."""
    for name, value in vars(one).items():
        theirs = getattr(other, name)
        if hasattr(value, "__dict__") and not hasattr(value, "iloc"):
            for inner, column in vars(value).items():
                np.testing.assert_array_equal(column, getattr(theirs, inner), name)
        elif name == "links":
            assert sorted(value.tolist()) == sorted(theirs.tolist())
        elif name in ("crowd", "bin"):
            continue  # on other bins: those of a log that has grown
        else:
            np.testing.assert_array_equal(value, theirs, name)


def test_a_log_that_grows_is_read_on_and_its_latest_rows_are_taken(monkeypatch):
    run = some_run(1)
    rows = len(run.events)
    sizes = [rows // 3, rows // 3, rows - 2 * (rows // 3)]
    on = Reading(len(run.manifest["rows"]), plays=True)
    for some in (1, 2, 3):
        found = on.moves(Growing(run, sizes[:some]))
        fresh = Reading(len(run.manifest["rows"]), plays=True)
        same(found, fresh.moves(Growing(run, sizes[:some])))
    read = []
    monkeypatch.setattr(Reading, "_add", lambda self, log, first: read.append(first))
    on.moves(Growing(run, [*sizes, 0]))
    on.moves(Growing(run, [*sizes, 0, 0]))
    assert read == [rows, rows]
    on.moves(Growing(run, [rows]))  # its parts became one file: all over again
    assert read == [rows, rows, 0]
    monkeypatch.undo()
    monkeypatch.setattr(reading, "LATEST", 50)
    late = Reading(len(run.manifest["rows"]), plays=True).moves(Growing(run, sizes))
    taken = run.events.iloc[rows - 50 :]
    assert late.since == taken["time"].iloc[0]
    assert len(late.messages.begin) == taken["kind"].isin(["deliver", "lost"]).sum()


def test_what_was_measured_at_the_end_of_a_round_is_so_at_its_end():
    run = some_run(0)
    seen = scene(run)
    over = unpacked(seen["arrays"]["over"])
    (curve,) = (one for one in seen["curves"] if one["name"] == "error")
    measured = unpacked(curve["ticks"])
    assert measured[1:] == over  # of each round one row, after that of the start
    assert unpacked(curve["value"]) == run.curve("error")["value"].tolist()
    times = run.curve("error")["time"]
    six = reading.ticks(np.array([float(f"{one:.6g}") for one in times]), seen["end"])
    assert six.tolist() != measured  # which six digits are not enough for


def test_of_an_end_that_cannot_be_the_end_is_that_of_the_log(tmp_path):
    run = played(tmp_path / "r")
    for wrong in (math.inf, -1.0):
        seen = scene(manipulated(run, time=wrong))
        assert seen["end"] == run.events["time"].max()


@pytest.mark.parametrize("every", ["round", "20 ms"])
@pytest.mark.parametrize("name", ["zcdp-nfl", "gossip"])
def test_a_round_of_a_graph_is_over_when_all_have_done_it(name, every):
    """As the rows of metrics of each round say, or the waits that all have closed.

    Of the first method a round's wait follows its model.
    """
    changes = {} if name == "zcdp-nfl" else {"algorithm": GOSSIP}
    observe = {"metrics": ["error"], "every": every}
    case = {**graph(**changes, stop={"time": "0.7 s"}), "engine": "cohort", "observe": observe}
    run = desim.run(desim.load(case))
    closed = run.events[run.events["kind"] == "aggregate"].groupby("agent")["round"].max()
    assert closed.min() < closed.max()
    over = unpacked(scene(run)["arrays"]["over"])
    assert len(over) == run.manifest["rounds"] < closed.max() + (name == "zcdp-nfl")
    if every == "round":
        rows = run.curve("error")
        end = run.manifest["time"]
        assert over == reading.ticks(rows["time"].to_numpy(float)[1:], end).tolist()
    live = reading_of(run, plays=True)
    assert live.moves(run).done == closed.min()


@pytest.mark.parametrize("late", ["discard", "carry"])
def test_whoever_was_called_and_can_still_be_used_is_waited_for_at_the_end(late):
    policy = {"deadline": "60 ms", "late": late}
    compute = {"speed": {"uniform": [50, 900]}}
    changes = {"participation": {"uniform": 3}, "policy": policy, "compute": compute}
    run = desim.run(desim.load({**star(**changes, stop={"rounds": 4}), "engine": "agents"}))
    rows = run.events.to_dict("records")
    ended = 0
    for some in range(1, len(rows), 3):
        found = Reading(6, plays=True).moves(Growing(run, [some])).awaited.tolist()
        hand = set()
        for row in rows[:some]:
            if row["kind"] == "activate":
                hand.add(row["agent"])
            elif row["kind"] == "deliver" and row["agent"] < 0:
                hand.discard(row["peer"])
            elif row["kind"] == "aggregate" and late == "discard":
                ended += len(hand)
                hand.clear()
        assert found == [[-1, who] for who in sorted(hand)]
    assert (ended > 0) == (late == "discard")


@pytest.mark.parametrize("number", [0, 1])
def test_what_ends_with_a_log_that_grows_is_over_and_what_goes_on_is_not(number):
    """At each of its ends: messages that have just come, and who computes, as later rows say."""
    run = some_run(number)
    rows = run.events.to_dict("records")
    came = on = 0
    for some in range(20, len(rows) - 40, 9):
        end = rows[some - 1]["time"]
        if rows[some]["time"] == end:
            continue
        log = reading_of(run, plays=True)
        moved = log.moves(Growing(run, [some]))
        log.moves = lambda _, moved=moved: moved
        dots, at_work, _, _ = Seen(scene(run, log)).at(end)
        assert dots == {}
        came += rows[some - 1]["kind"] in ("deliver", "lost")
        assert at_work == moving.computing(rows, end)
        on += len(at_work)
    assert came > 2
    assert on > 2


def test_at_the_edge_of_a_tree_edges_wait_for_agents_and_the_cloud_for_edges():
    words = "activate deliver deliver deliver deliver deliver".split()
    ends = [(0, -1), (2, -1), (3, -1), (0, 2), (2, 0), (-1, 3)]
    on = Reading(2, plays=True)
    steps = []
    for row, (kind, (agent, peer)) in enumerate(zip(words, ends, strict=True)):
        log = pd.DataFrame({"kind": [kind], "agent": [agent], "peer": [peer]})
        on._calls(columns_of(log), row)
        steps.append(on._awaited(Stopped()).tolist())
    assert steps == [
        [[-1, 0]], [[-1, 0], [-1, 2]], [[-1, 0], [-1, 2], [-1, 3]], [[2, 0], [-1, 2], [-1, 3]],
        [[-1, 2], [-1, 3]], [[-1, 2]],
    ]  # fmt: skip


class Stopped:
    """A run of a tree, as far as who is waited for depends on it."""

    written, manifest = {}, {"edges": 2}


def test_of_a_curve_of_many_rows_epsilon_is_never_too_little_and_that_is_said(
    tmp_path, monkeypatch
):
    run = played(tmp_path / "r", stop__rounds=20)
    whole = scene(run)
    assert not [one for one in whole["notes"] if one.startswith("Of a curve")]
    monkeypatch.setattr("desim.interface.player.scene.ROUNDS", 12)
    some = scene(run)
    assert [one for one in some["notes"] if one.startswith("Of a curve of more than 12 rows")]
    names = ("ticks", "value")
    shown = [np.array(unpacked(one["privacy"][name])) for one in (whole, some) for name in names]
    times, values, fewer, theirs = shown
    assert len(fewer) <= 12 < len(times)
    assert fewer[-6:].tolist() == times[-6:].tolist()  # of the latest rows none is left out
    (curve,) = (one for one in some["curves"] if one["name"] == "error")
    assert unpacked(curve["value"])[-6:] == run.curve("error")["value"].tolist()[-6:]
    known = theirs[np.searchsorted(fewer, times, side="right") - 1]
    assert (known >= values).all()
    assert known[-1] == values[-1]


def test_of_a_long_log_every_kth_message_is_drawn_and_that_is_said(monkeypatch):
    run = some_run(0)
    monkeypatch.setattr(reading, "MAX_ROWS", len(run.events) // 3)
    seen = scene(run)
    every = seen["every"]
    assert every in (3, 4)
    text = f"Sampled: of {len(run.events):,} events one message in {every} is drawn. "
    assert seen["notes"][0].startswith(text)
    came = run.events["kind"].isin(["deliver", "lost"]).sum()
    rows = {name: unpacked(seen["arrays"][name]) for name in (*ROWS, "busy", "who")}
    assert len(rows["sent"]) == math.ceil(came / every)
    assert rows["who"] == []
    busy = np.array(rows["busy"]).reshape(-1, seen["bins"]).sum(axis=1) / 255.0
    done = run.events[run.events["kind"].isin(["compute", "abort"]) & (run.events["agent"] >= 0)]
    worked = done.groupby("agent")["seconds"].sum().reindex(range(len(busy)), fill_value=0.0)
    shares = worked.to_numpy() / seen["end"] * seen["bins"]
    np.testing.assert_allclose(busy, shares, atol=0.5 * seen["bins"] / 255.0)
    assert not np.allclose(busy, shares[::-1], atol=0.5 * seen["bins"] / 255.0)


def test_values_of_a_run_that_diverges_are_those_of_the_log_and_few_warnings_are_shown(tmp_path):
    """Axes hold less than 1e100, which is no reason to say that a larger value is none."""
    changes = {"problem": {**star()["problem"], "loss": "squared"}, "policy": {"deadline": "1 s"}}
    changes["algorithm"] = {"name": "fedavg", "local": {"epochs": 3, "step": 9000.0}}
    scenario = {**star(**changes), "stop": {"rounds": 90}, "observe": {"metrics": ["loss"]}}
    with pytest.raises(RunError, match="diverged") as failed:
        desim.run(desim.load(scenario), out=tmp_path / "r")
    run = desim.open(failed.value.run.directory)
    (curve,) = scene(run)["curves"]
    hand = run.curve("loss")["value"].to_numpy()
    assert np.isfinite(hand).sum() > np.sum(np.abs(hand) < 1e100)
    np.testing.assert_array_equal(unpacked(curve["value"]), hand)
    many = manipulated(run, warnings=[f"warning {k}" for k in range(9)])
    notes = scene(many)["notes"][-7:]
    assert notes == [
        *(f"warning {k}" for k in range(6)),
        "3 more warnings: desim show has them all",
    ]


def test_places_are_apart_and_trees_have_their_cloud_in_the_middle():
    tree = np.array([[-1, 4], [-1, 5], [4, 0], [0, 4], [4, 1], [5, 2], [5, 3]])
    place, how = places(6, True, tree)
    assert "cloud" in how
    far = np.hypot(*place.T)
    assert far[-1] == 0.0
    assert far[:4] == pytest.approx([1.0] * 4)
    assert far[4:6] == pytest.approx([0.5, 0.5])
    for edge, leaves in ((4, (0, 1)), (5, (2, 3))):
        near = place[list(leaves)].mean(axis=0)
        assert np.dot(place[edge], near) > 0.0
    for count, links in ((5, tree[:0]), (5, np.array([[0, 1], [1, 2], [3, 4]])), (400, tree[:0])):
        for hub in (True, False):
            spots = places(count, hub, links)[0]
            assert len(np.unique(spots.round(6), axis=0)) == count + hub
            assert np.abs(spots).max() <= 1.0 + 1e-9


# The file.


def test_a_player_is_one_file_that_loads_nothing(tmp_path):
    runs = four(tmp_path)
    path = desim.player(runs[0], tmp_path / "p.html")
    text = path.read_text("utf-8")
    for word in ("<link", "src=", "@import", "url(", "<img"):
        assert word not in text
    assert "connect-src" not in text
    assert "default-src 'none'" in unescape(text)
    assert "epsilon" in text
    bad = player(runs[3].directory, tmp_path / "h.html").read_text("utf-8")
    assert HOSTILE not in bad
    assert "<script>document" not in bad
    assert bad.count("</script>") == text.count("</script>")
    plain = page({**scene(runs[0]), "asks": True})
    assert "connect-src 'self'" in unescape(plain)


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"log": "rounds"}, "The log leaves out messages and what agents do (log: rounds)."),
        ({"log": "messages"}, "The log leaves out what agents do (log: messages)."),
        ({"observe__metrics": []}, "No metric is recorded so far."),
    ],
)
def test_what_a_page_cannot_show_is_said(tmp_path, changes, note):
    run = played(tmp_path / "r", **changes)
    assert note in scene(run)["notes"]
    assert note not in scene(some_run(1))["notes"]


@pytest.mark.parametrize("room", [2, 4, 6])
def test_of_many_rounds_a_page_says_how_far_it_may_be_off(monkeypatch, room):
    run = desim.run(desim.load(star(stop={"rounds": 11}, observe={"metrics": ["loss"]})))
    monkeypatch.setattr("desim.interface.player.scene.ROUNDS", room)
    seen = scene(run)
    (note,) = (one for one in seen["notes"] if one.startswith("Of 11 rounds"))
    turns = unpacked(seen["arrays"]["round"])
    assert turns[-room // 2 :] == [*range(12 - room // 2, 12)]
    off = max(np.diff([0, *turns])) - 1
    assert note == (
        f"Of 11 rounds the ends of the latest {room // 2} are in this page: before these the "
        f"number of rounds that are over may be {off} too small."
    )


def test_a_run_without_events_or_times_is_shown_as_that(tmp_path, monkeypatch):
    run = played(tmp_path / "r")
    log = columns_of(run.store.table("events", reading.COLUMNS))

    class Other(Growing):
        def pieces(self, name, columns):
            still = {**log, "time": log["time"] * 0.0, "seconds": log["seconds"] * 0.0}
            return Pieces(self.sizes, lambda _: rows_of(still, slice(self.sizes[0])))

    for rows, word in ((0, "The log is empty"), (len(log["time"]), "took no virtual time")):
        found = Reading(3).moves(Other(run, [rows]))
        assert found.end == 0.0
        monkeypatch.setattr(Reading, "moves", lambda *_, found=found: found)
        seen = scene(run)
        monkeypatch.undo()
        assert word in seen["notes"][0]
        json.dumps(seen, allow_nan=False)


def test_the_epsilon_has_its_terms_or_why_it_is_infinite(tmp_path):
    run = played(tmp_path / "r")
    spent = scene(run)["privacy"]
    assert spent["said"] == f"{run.account().worst:.4g}"
    assert spent["terms"].startswith("view eavesdropper, replace-one, delta 1e-05")
    assert "unit: one record" in spent["terms"]
    assert unpacked(spent["value"])[-1] == run.account().worst
    bare = scene(played(tmp_path / "s", privacy=None))["privacy"]
    assert bare["said"] == "infinite (no noise)"
    assert bare["why"].startswith("infinite: released without noise")
    assert "value" not in bare


def test_report_player_writes_it_and_refuses_what_it_cannot(tmp_path, capsys):
    one, other = (str(played(tmp_path / name).directory) for name in "ab")
    main_exit(["report", one, "--player"], 0)
    assert capsys.readouterr().out == f"{one}/player.html\n"
    for arguments, word in (
        ([one, other, "--player"], "--player: found 2 runs; allowed: one"),
        ([one, "--player", "--target", "error=1"], "--player: found with --target"),
        ([str(tmp_path), "--player"], "not a run directory"),
        ([str(tmp_path / "no"), "--player"], "not a run directory (there is nothing)"),
        ([one, "--player", "-o", f"{one}/events.parquet"], "is a file of the run"),
    ):
        main_exit(["report", *arguments], 2)
        assert word in capsys.readouterr().err
    with pytest.raises(InputError, match="run"):
        player(7, tmp_path / "x.html")


def main_exit(arguments, code):
    """The command line, which is to leave with this code."""
    with pytest.raises(SystemExit) as left:
        main(arguments)
    assert (left.value.code or 0) == code
