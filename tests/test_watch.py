"""Watching a run: a server for this machine alone, and a page that follows what is stored."""

import http.client
import json
import math
import os
import shutil
import socket
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from report_runs import HOSTILE, SCENARIO, hostile, manipulated, played

import desim
from desim.errors import InputError, RunError
from desim.interface.cli import main
from desim.interface.player import local_server
from desim.interface.player.local_server import LocalServer, Pace, Watched
from desim.interface.player.scene import scene
from desim.interface.reports.page import embedded


@pytest.fixture
def served(monkeypatch):
    """served(path): the server of a run's page, which answers until the test is over."""
    open_ones = []
    monkeypatch.setattr(local_server, "PATIENCE", None)

    def served(path, **options):
        server = LocalServer(Watched(path, **options))
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        open_ones.append(server)
        return server

    yield served
    for server in open_ones:
        server.shutdown()
        server.server_close()


def asked(server, path, method="GET", **headers):
    """Status, headers and text of an answer."""
    line = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    line.putrequest(method, path, skip_host="Host" in headers)
    for name, value in headers.items():
        line.putheader(name, value)
    line.endheaders()
    answer = line.getresponse()
    found = answer.status, dict(answer.getheaders()), answer.read().decode()
    line.close()
    return found


def test_who_does_not_know_the_address_or_comes_by_another_name_gets_nothing(tmp_path, served):
    run = hostile(played(tmp_path / "r"))
    server = served(run.directory)
    home = f"/{server.secret}/"
    assert server.server_address[0] == "127.0.0.1"
    assert len(server.secret) > 20
    status, headers, text = asked(server, home)
    assert status == 200
    assert HOSTILE not in text
    assert "failed" in text
    assert headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["Cache-Control"] == "no-store"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Access-Control-Allow-Origin" not in headers
    assert asked(server, home, Host=f"localhost:{server.server_port}")[0] == 200
    for host in ("evil.example", f"evil.example:{server.server_port}", "127.0.0.1", "127.0.0.1:1"):
        status, _, text = asked(server, home, Host=host)
        assert status == 421
        assert "small" not in text
    wrong = ["/", "", "/scene", f"{home}../../etc/passwd", f"{home}manifest.json", home[:-1]]
    wrong += [f"{home}scene/x", "/wrong/", f"{home}%2e%2e/manifest.json", f"/x/{server.secret}/"]
    for path in wrong:
        status, _, text = asked(server, path or "/")
        assert (status, text) == (404, "404 Not Found\n"), path
    assert asked(server, "http://[x/", Host=f"localhost:{server.server_port}")[0] == 400
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert asked(server, home, method)[0] == 501


def scene_of(server, since=""):
    return json.loads(asked(server, f"/{server.secret}/scene?since={since}")[2])


def test_a_page_is_told_what_is_new_and_how_it_ended(tmp_path, served, monkeypatch):
    """A run that plays, fails, and whose directory is taken away."""
    run = played(tmp_path / "r")
    monkeypatch.setattr("desim.runs.run.busy", lambda path: True)
    running = manipulated(run, status="running", reason="")
    server = served(running.directory, clock=lambda: math.inf)
    first = scene_of(server)
    assert (first["status"], first["plays"], first["asks"]) == ("running", True, True)
    assert first["rows"] == len(run.events)
    assert scene_of(server, first["version_seen"]) is None
    manipulated(run, status="failed", reason="it broke")
    second = scene_of(server, first["version_seen"])
    assert (second["status"], second["reason"], second["plays"]) == ("failed", "it broke", False)
    assert scene_of(server, second["version_seen"]) is None
    shutil.rmtree(run.directory)
    assert scene_of(server, second["version_seen"]) is None  # perhaps it is being replaced
    third = scene_of(server, second["version_seen"])
    assert third["trouble"].endswith("not a run directory (there is nothing)")
    assert third["arrays"] == second["arrays"]  # what was seen stays
    assert asked(server, f"/{server.secret}/")[0] == 200


def test_who_asks_while_a_long_log_is_read_gets_a_page_at_once(tmp_path, served, monkeypatch):
    """One that asks again; the one before it, once there is one."""
    run = played(tmp_path / "r")
    server = served(run.directory, clock=lambda: math.inf)
    home, go, whole = f"/{server.secret}/", threading.Event(), Watched._read

    def slow(self, *given):
        go.wait(30.0)
        whole(self, *given)

    monkeypatch.setattr(Watched, "_read", slow)
    monkeypatch.setattr(local_server, "PATIENCE", 0.01)
    status, _, text = asked(server, home)
    assert (status, 'http-equiv="refresh"' in text, "<h1>r</h1>" in text) == (200, True, True)
    assert scene_of(server) is None
    go.set()
    server.watched.refresh()
    assert 'http-equiv="refresh"' not in asked(server, home)[2]
    first = scene_of(server)
    go.clear()
    manipulated(run, status="failed", reason="it broke")
    assert scene_of(server, first["version_seen"]) is None
    assert scene_of(server) == first
    go.set()
    server.watched.refresh()
    assert scene_of(server, first["version_seen"])["status"] == "failed"


def test_whoever_asks_nothing_makes_room_for_who_does(tmp_path, served, monkeypatch):
    """Of any number of open connections as many are heard as there are threads, the latest."""
    monkeypatch.setattr(local_server, "MAX_THREADS", 3)
    server = served(played(tmp_path / "r").directory)
    silent = [socket.create_connection(server.server_address, timeout=30) for _ in range(9)]
    for one in silent[::2]:
        one.sendall(b"GET /")
    assert asked(server, f"/{server.secret}/")[0] == 200
    for one in silent[:6]:
        assert one.recv(1) == b""  # closed
    assert server._answering <= 3
    monkeypatch.setattr(local_server, "SILENCE", -1.0)  # all of them are late
    assert asked(server, f"/{server.secret}/")[0] == 200
    for one in silent:
        assert one.recv(1) == b""
        one.close()


def test_of_a_study_the_run_that_plays_is_shown_and_then_the_next(tmp_path, monkeypatch):
    busy = set()
    for module in ("desim.runs.run", "desim.runs.directory", local_server.__name__):
        monkeypatch.setattr(f"{module}.busy", lambda path: path.name in busy)
    (tmp_path / "study.json").write_text("{}")
    with pytest.raises(InputError, match="its runs are in runs/"):
        Watched(tmp_path)
    for name in "abc":
        run = played(tmp_path / "runs" / name, seed=ord(name))
        if name != "a":
            manipulated(run, status="running", reason="")
            os.utime(run.directory / "manifest.json", (0, ord(name)))
    busy |= {"b", "c"}
    watched = Watched(tmp_path, clock=lambda: math.inf)
    shown = []
    for ended in (None, "c", "b"):
        busy -= {ended}
        watched.refresh()
        _, seen, _ = watched.said
        shown.append((watched.path.name, seen["plays"]))
        assert seen["notes"][0].startswith(f"This is run {watched.path.name} of {tmp_path.name}:")
    assert shown == [("c", True), ("b", True), ("a", False)]


def test_of_a_run_that_has_replaced_another_nothing_of_the_old_one_is_shown(tmp_path, served):
    """Of another seed, whose log has as many rows."""
    run = played(tmp_path / "r", network__link__latency={"uniform": ["5 ms", "50 ms"]})
    server = served(run.directory, clock=lambda: math.inf)
    first = scene_of(server)
    shutil.rmtree(run.directory)
    changes = {"network__link__latency": {"uniform": ["5 ms", "50 ms"]}, "seed": 4}
    run = played(tmp_path / "r", **changes)
    second = scene_of(server)
    assert second["rows"] == first["rows"]
    assert second["arrays"] == scene(run)["arrays"] != first["arrays"]


def test_a_run_is_not_read_more_than_a_fifth_of_the_time(tmp_path, monkeypatch):
    run = played(tmp_path / "r")
    now, read = [0.0], []
    for module in ("desim.runs.run", "desim.runs.directory"):
        monkeypatch.setattr(f"{module}.busy", lambda path: True)

    def clock():
        return now[0]

    watched = Watched(run.directory, clock)
    whole = Watched._read

    def slow(self, *given):
        read.append(now[0])
        began = now[0]
        now[0] += 2.0
        whole(self, *given)
        self._rested = now[0] + (now[0] - began) * 4.0

    monkeypatch.setattr(Watched, "_read", slow)
    for step in range(30):
        manipulated(run, reason=str(step))
        watched.refresh()
        now[0] += 1.0
    assert read == [0.0, 10.0, 20.0, 30.0]


class Stopping:
    """A run with these ends."""

    def __init__(self, **stop):
        self.written = {"stop": stop}


def test_the_time_left_says_what_it_comes_from():
    pace, unknown = Pace(), math.inf
    run = Stopping(rounds=100)
    assert pace.left(run, 0.0, 0, 50.0) == ("not known yet: nothing is done", unknown)
    assert pace.left(run, 2.0, 10, 100.0) == ("not known yet: round 10 of 100", unknown)
    text = "about {}: round 20 of 100, at the pace of the last 10 s"
    assert pace.left(run, 4.0, 20, 110.0) == (text, pytest.approx(190.0))
    assert pace.left(run, 4.0, 20, 115.0) == (text, pytest.approx(190.0))  # nothing is new
    assert pace.left(run, 9.0, 100, 120.0) == ("all is played, and is being stored", unknown)
    both = Stopping(rounds=100, time=10.0, metric={"accuracy": 0.9})
    pace = Pace()
    pace.left(both, 1.0, 1, 0.0)
    text = "about {}: 5 s of 10.0 s, at the pace of the last 40 s, sooner where a target of "
    assert pace.left(both, 5.0, 2, 40.0) == (f"{text}stop.metric is met", pytest.approx(90.0))
    no_limit = "not known: no limit is set"
    assert Pace().left(Stopping(metric={"error": 1.0}), 1.0, 1, 0.0) == (no_limit, unknown)


PACES = {  # when, s, so much was done of what takes a run of 200 s
    "even": lambda t: t / 200.0,
    "slow for 20 s, as something is compiled": lambda t: max(t - 18.0, t / 10.0) / 182.0,
    "twice as slow from the middle on": lambda t: min(t, 50.0 + t / 2.0) / 150.0,
    "by fits and starts of 4 s": lambda t: (t + math.sin(t * math.pi / 2.0) * 0.6) / 200.0,
}


@pytest.mark.parametrize("name", PACES)
def test_the_time_left_is_that_of_a_known_pace(name):
    """Once a pace has lasted for as long as it is taken over; over all the run it would not be."""
    done, pace, run = PACES[name], Pace(), Stopping(rounds=1000)
    off, whole = [], []
    for step in range(1, 75):
        when = 2.5 * step
        rounds = int(1000 * done(when))
        _, over = pace.left(run, 0.0, rounds, when)
        steady = 50.0 < when if "middle" not in name else when > 150.0
        if steady:
            off.append(over / 200.0 - 1.0)
            whole.append(when / done(when) / 200.0 - 1.0)
    assert np.abs(off).max() < 0.04
    assert ("slow" in name) == (np.abs(whole).max() > 0.04)


def test_desim_watch_serves_until_ctrl_c(tmp_path, monkeypatch, capsys):
    path = str(played(tmp_path / "r").directory)
    server = {}

    def pressed(self):
        server["url"] = self.url
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalServer, "handle_request", pressed)
    left(["watch", path], 0)
    assert capsys.readouterr().out == f"watching {path} at {server['url']} (Ctrl-C ends it)\n"
    assert server["url"].startswith("http://127.0.0.1:")


def left(arguments, code):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert (ended.value.code or 0) == code


def test_desim_watch_refuses_what_is_no_run_and_ports_that_are_taken(tmp_path, capsys):
    run = played(tmp_path / "r").directory
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("x")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "manifest.json").write_text("{")
    for name, word in {
        "no": "not a run directory (there is nothing)",
        "empty": "not a run directory (it has no manifest.json)",
        "file": "not a run directory",
        "bad": "not a manifest of desim, or damaged",
    }.items():
        left(["watch", str(tmp_path / name)], 2)
        assert word in capsys.readouterr().err
    with LocalServer(Watched(run)) as server:
        left(["watch", str(run), "--port", str(server.server_port)], 2)
        assert f"--port: found {server.server_port}, which is not" in capsys.readouterr().err
    for port in ("70000", "-1"):
        left(["watch", str(run), "--port", port], 2)
        assert "allowed: a free one, 1 to 65535, or none" in capsys.readouterr().err


def test_desim_watch_waits_only_where_a_run_can_begin(tmp_path, monkeypatch, capsys):
    """What is wrong with the place or the port is said at once, and not when the run begins."""
    run = played(tmp_path / "r").directory
    (tmp_path / "file").write_text("x")
    left(["watch", str(tmp_path / "file"), "--wait"], 2)
    assert "file: is a file; allowed: a directory" in capsys.readouterr().err
    with LocalServer(Watched(run)) as server:
        for port, why in ((server.server_port, "Address already in use"), (70000, "0-65535")):
            left(["watch", str(tmp_path / "new"), "--wait", "--port", str(port)], 2)
            said = capsys.readouterr().err
            assert f"--port: found {port}, which is not to be had" in said
            assert why in said
            assert "waiting" not in said
    monkeypatch.setattr(local_server, "_wanted", lambda: False)
    left(["watch", str(tmp_path / "new"), "--wait"], 2)
    assert f"waiting until a run begins at {tmp_path / 'new'}" in capsys.readouterr().err


def test_epsilon_of_a_run_that_plays_is_by_its_latest_release(tmp_path, monkeypatch):
    """Releases are read after events: by the end of these less was spent than is said."""
    run = played(tmp_path / "r")
    for module in ("desim.runs.run", "desim.runs.directory"):
        monkeypatch.setattr(f"{module}.busy", lambda path: True)
    manipulated(run, status="running", reason="")
    monkeypatch.setattr("desim.interface.player.moves.last_time", lambda log: 0.0)
    watched = Watched(run.directory, clock=lambda: math.inf)
    watched.refresh()
    assert watched.said[1]["privacy"]["until"] == run.epsilon()["time"].max() > 0.0


def test_a_page_hears_of_the_end_before_the_log_is_read_once_more(tmp_path, served, monkeypatch):
    """Whoever serves it owes it that, and the whole log, while the page is open."""
    run, writes = played(tmp_path / "r"), [True]
    monkeypatch.setattr(local_server, "ASKING", math.inf)
    for module in ("desim.runs.run", "desim.runs.directory", local_server.__name__):
        monkeypatch.setattr(f"{module}.busy", lambda path: writes[0])
    manipulated(run, status="running", reason="")
    server = served(run.directory, clock=lambda: math.inf)
    assert not server.owes()  # nobody has asked
    first = scene_of(server)
    assert first["status"] == "running"
    assert server.owes()
    go, whole = threading.Event(), Watched._read

    def slow(self, *given):
        go.wait(30.0)
        whole(self, *given)

    monkeypatch.setattr(Watched, "_read", slow)
    monkeypatch.setattr(local_server, "PATIENCE", 0.01)
    manipulated(run, status="stopped", reason="interrupted by Ctrl-C")
    writes[0] = False
    second = scene_of(server, first["version_seen"])
    assert (second["status"], second["reason"]) == ("stopped", "interrupted by Ctrl-C")
    assert (second["left"], second["plays"]) == ("", True)
    assert server.owes()
    go.set()
    server.watched.refresh()
    third = scene_of(server, second["version_seen"])
    assert (third["status"], third["plays"]) == ("stopped", False)
    for _ in range(3000):  # until its thread knows that it is sent
        if not server.owes():
            break
        time.sleep(0.01)
    assert not server.owes()
    assert scene_of(server, third["version_seen"]) is None
    assert not server.owes()


class Child:
    """A process that serves, as far as tests go."""

    made = []

    def __init__(self, target, args, daemon):
        self.given, self.did = (target, args, daemon), []
        Child.made.append(self)

    def start(self):
        self.did.append("started")

    def join(self, timeout=None):
        self.did.append("joined" if timeout is None else "waited")

    def terminate(self):
        self.did.append("asked to end")

    def kill(self):
        self.did.append("killed")


@pytest.fixture
def children(monkeypatch):
    monkeypatch.setattr(Child, "made", [])
    monkeypatch.setattr(
        local_server, "get_context", lambda kind: type("It", (), {"Process": Child})
    )
    return Child.made


def test_run_watch_plays_beside_a_process_that_serves(tmp_path, children, monkeypatch):
    """Watched or not, a run is the same; however it ends, the page has time to hear of it."""
    monkeypatch.chdir(tmp_path)
    Path("s.json").write_text(embedded(SCENARIO))
    left(["run", "s.json", "-o", "plain"], 0)
    assert children == []
    left(["run", "s.json", "-o", "seen", "--watch"], 0)
    (child,) = children
    assert child.given[1][0] == Path("seen")
    ends = ["asked to end", "waited", "killed", "joined"]
    assert child.did == ["started", "joined", *ends]
    digests = [desim.open(name).manifest["files"] for name in ("plain", "seen")]
    assert digests[0] == digests[1]
    left(["run", "s.json", "-o", "seen", "--watch"], 2)
    assert len(children) == 1  # refused before anything was served

    ways = [(RunError("it broke"), 1), (KeyboardInterrupt(), 130)]
    for number, (error, code) in enumerate(ways, 1):

        def fails(*_, error=error, **__):
            raise error

        monkeypatch.setattr("desim.runs.recording.record", fails)
        left(["run", "s.json", "-o", "broken", "--watch"], code)
        assert children[number].did == ["started", *ends]


def test_who_serves_waits_for_a_run_and_ends_with_who_began_it(tmp_path, monkeypatch):
    told, alive = [], iter([True, True, False])
    monkeypatch.setattr(local_server, "PAUSE", 0.001)
    monkeypatch.setattr(local_server, "_wanted", lambda: next(alive))
    with pytest.raises(InputError, match="not a run directory"):
        local_server.serve(tmp_path / "r", 0, True, told.append)
    assert told == []
    run = played(tmp_path / "r")
    monkeypatch.setattr(local_server, "_wanted", iter([True, False]).__next__)
    local_server.serve(run.directory, 0, True, told.append)
    assert len(told) == 1
    monkeypatch.setattr(local_server, "_wanted", lambda: True)
    local_server.serve(run.directory, 0, True, told.append, lambda: True)  # nobody has asked
    local_server.serve(tmp_path / "r", 0, True, told.append, lambda: True)
