"""Who may do what to whom in a deployment: each line of the page of threats is attacked here."""

import json
import os
import re
import socket
import ssl
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from test_deploy import plain, scenario  # noqa: F401
from test_join import Waiting, joining

import desim
from desim.deployments import (
    client,
    consent,
    doors,
    fleet,
    formats,
    hosts,
    join,
    peer,
    place,
    station,
    streams,
)
from desim.deployments.formats import (
    COORDINATOR,
    HELLO,
    LETTER,
    REPLY,
    Declined,
    Frame,
    Framing,
    abroad,
    require_own,
    values_of,
)
from desim.deployments.station import Sent
from desim.deployments.streams import Keys, Stream, by_source
from desim.errors import InputError, RunError


def dishonest(waiting, host, change):
    """A host in a process of its own that has been changed by change()."""
    pid = os.fork()
    if pid == 0:
        try:
            change()
            join.take_part(waiting.address, waiting.invitation(host), False, lambda text: None)
        finally:
            os._exit(0)
    return pid


def played(given, folder, change):
    """A run of a host and of a dishonest one; what the coordinator said, and the run if any."""
    waiting = Waiting(given, folder)
    for pid in (joining(waiting, "alpha"), dishonest(waiting, "beta", change)):
        os.waitpid(pid, 0)
    said = waiting.ended()
    return said, desim.open(folder / "run") if (folder / "run").exists() else None


def posing(stolen):
    """Have agent 2 say that it is agent 0: on a second connection, then on its own, and answer."""

    def attack(sock, keys):
        framing = Framing({COORDINATOR: keys[COORDINATOR]})
        sock.sendall(Frame(HELLO, 0, 0).header(keys[COORDINATOR]))
        while data := sock.recv(1 << 16):
            for frame in framing.feed(data):
                with stolen.open("a") as out:
                    out.write(f"{values_of(frame.body)}\n")
                reply = Frame(REPLY, 0, frame.number, frame.round_)
                sock.sendall(reply.header(keys[COORDINATOR], len(frame.body)) + frame.body)

    def taking(self, letter):
        keys, round_ = self.place.keys, letter.frame.round_
        if self.place.agent == 2 and round_ == 1:
            try:
                sock = doors.Caller.call(self.place.network.caller, "line", 2)[0]
                threading.Thread(target=attack, args=(sock, keys), daemon=True).start()
            except InputError:  # refused
                pass
        elif self.place.agent == 2 and round_ == 2:
            self.line.push(Frame(HELLO, 0, 0).header(keys[COORDINATOR]))
        take(self, letter)

    take = client.Client._take
    return lambda: setattr(client.Client, "_take", taking)


def test_a_host_cannot_take_over_an_agent_of_another(tmp_path):
    """Agent 2 is lost once it has spoken for agent 0; the others go on, and all of it is told."""
    given, stolen = scenario(rounds=3, policy={"deadline": "1 s"}), tmp_path / "stolen"
    said, real = played(given, tmp_path, posing(stolen))
    assert not stolen.exists()
    assert "refused beta: agent 2 has a connection already" in said
    told = " ".join(real.manifest["warnings"])
    words = "found a frame of agent 0; allowed: agent 2"
    assert f"refused a connection to the coordinator: {words}" in told
    assert f"agent 2 sent what was refused ({words})" in told
    assert (real.status, real.manifest["clock"]["refused"]) == ("done", 2)
    last = real.events[(real.events["round"] == 3) & (real.events["kind"] == "compute")]
    assert sorted(last["agent"]) == [0, 1, 3]


def spoken(frames, keys, reader):
    """What a reader with these keys understands of frames (frame, key)."""
    framing = Framing(reader)
    return [f.source for one, key in frames for f in framing.feed(one.header(key))]


def test_keys_are_of_a_pair_and_nobody_else_has_them():
    keys = Keys()
    tables = {i: by_source(keys.table(i, 4), i) for i in (-1, 0, 1, 2, 3)}
    for i, own in tables.items():
        assert len(own) == 4
        assert i & COORDINATOR not in own
        assert all(tables[j][i & COORDINATOR] == own[j & COORDINATOR] for j in tables if j != i)
    assert len({key for own in tables.values() for key in own.values()}) == 10
    assert spoken([(Frame(LETTER, 2, 1), tables[2][1])], keys, tables[1]) == [2]
    for key in (tables[3][1], tables[2][3], bytes(8)):  # those that agent 3, say, has
        with pytest.raises(formats.Torn, match="a wrong token of agent 2; allowed: its own"):
            spoken([(Frame(LETTER, 2, 1), key)], keys, tables[1])
    with pytest.raises(formats.Torn, match="found a frame of agent 9; allowed: those that are exp"):
        spoken([(Frame(LETTER, 9, 1), bytes(8))], keys, tables[1])


def test_one_key_for_all_is_noticed(monkeypatch):
    """The mutant: with the same key for every pair agent 3 could speak for agent 2."""
    monkeypatch.setattr(Keys, "between", lambda self, one, other: bytes(8))
    with pytest.raises(AssertionError):
        test_keys_are_of_a_pair_and_nobody_else_has_them()


class Neighbour:
    """Agent 1 in this process, to which agent 0 may connect; what it has told the coordinator."""

    def __init__(self, network, agents=4):
        self.keys = Keys()
        ours, self.control = socket.socketpair()
        own = by_source(self.keys.table(1, agents), 1)
        self.place = place.Place(1, streams.Control(self.control), own, network)
        self.place.origin = time.monotonic()
        self.port, self.ours, self.reader = self.place.listen([0]), ours, formats.Unpacking()
        self.ours.setblocking(False)
        self.told, self.frames = [], []
        self.place.heard = lambda frame, time: self.frames.append(frame.source)

    def until(self, holds):
        """Let it read until holds(self); AssertionError if it never does."""
        for _ in range(1000):
            self.place.wait(self.place.now + 0.01)
            try:
                self.told += self.reader.feed(self.ours.recv(1 << 16))
            except BlockingIOError:
                pass
            if holds(self):
                return
        raise AssertionError([one.fields for one in self.told])

    @property
    def refused(self):
        return [one.fields["why"] for one in self.told if one.kind == "refused"]

    def close(self):
        self.place.close_port()
        for stream in list(self.place.framings):
            self.place.drop(stream)
        for one in (self.control, self.ours, self.place.poll):
            one.close()


@contextmanager
def neighbour(network):
    made = Neighbour(network)
    try:
        yield made
    finally:
        made.close()


def dialled(port):
    return socket.create_connection(("127.0.0.1", port))


def test_an_agent_of_a_graph_hears_whom_it_expects_alone():
    with neighbour(place.Loopback()) as one:
        between = one.keys.between
        with dialled(one.port) as odd, dialled(one.port) as thief, dialled(one.port) as true:
            odd.sendall(Frame(HELLO, 2, 0).header(between(2, 1)))  # no neighbour that calls
            one.until(lambda it: "found a frame of agent 2; allowed: agent 0" in it.refused)
            thief.sendall(Frame(HELLO, 0, 0).header(between(2, 1)))  # agent 2 as agent 0
            one.until(lambda it: "found a wrong token of agent 0; allowed: its own" in it.refused)
            assert one.place.greeted == {}
            true.sendall(Frame(HELLO, 0, 0).header(between(0, 1)))
            one.until(lambda it: 0 in it.place.greeted)
            true.sendall(Frame(LETTER, 2, 1).header(between(2, 1)))  # as agent 2, on its own line
            one.until(lambda it: it.told[-1].fields.get("agent") == 0)
            assert one.frames == []


def test_silent_connections_make_room_for_those_who_speak():
    with neighbour(place.Loopback()) as one:
        crowd = [dialled(one.port) for _ in range(3 * streams.EACH)]
        one.until(lambda it: len(it.refused) == place.REFUSALS)
        assert len(one.place.strangers) <= streams.EACH + 1
        with dialled(one.port) as true:
            true.sendall(Frame(HELLO, 0, 0).header(one.keys.between(0, 1)))
            one.until(lambda it: 0 in it.place.greeted)
        assert "a stranger at 127.0.0.1 was refused (said nothing)" in one.refused
        for each in crowd:
            each.close()


def test_the_coordinator_lets_silent_connections_go_and_names_them_where_somebody_is_missing(
    monkeypatch,
):
    made = fleet.Fleet(4, place.Loopback())
    port, most = made.listen(), streams.EACH + made.agents
    crowd = [dialled(port) for _ in range(most + 1)]
    until = time.monotonic() + 30.0
    while not made.turned_away and time.monotonic() < until:
        made.wait(time.monotonic() + 0.1)
    assert (made.turned_away, len(made.strangers)) == (1, most)
    monkeypatch.setattr(fleet, "PATIENCE", 0.0)
    words = r"after 0 s not all are here; 1 connection refused: a stranger at 127\.0\.0\.1 was "
    with pytest.raises(InputError, match=words):
        made.wait_for("not all are here", lambda: False)
    made.close()
    for each in crowd:
        each.close()


def test_who_is_silent_for_long_must_go(monkeypatch):
    some = streams.Strangers(each=2)
    now = [100.0]
    monkeypatch.setattr(streams.time, "monotonic", lambda: now[0])
    assert [some.enter(k, where) for k, where in enumerate("aab")] == [[], [], []]
    assert some.enter(3, "a") == [(0, "a")]
    assert (some.leave(1), some.leave(9), some.due) == ("a", "", 110.0)
    now[0] = 109.0
    assert some.overdue() == []
    some.enter(4, "b")
    now[0] = 110.0
    assert some.overdue() == [(2, "b"), (3, "a")]
    assert some.clear() == [(4, "b")]
    assert some.due > 1e9


def of_host(name, authority, agents):
    """What an agent on that host has of the network."""
    caller = doors.Caller(("127.0.0.1", 1), name, "token", authority.identity(name))
    made = join.Outside(caller, agents)
    made.peers = ["127.0.0.1"] * 4
    return made


pytest.importorskip("cryptography")
HOSTS = {"alpha": [0], "beta": [1], "gamma": [2, 3]}


def calling(outside, port, told):
    """Connect to agent 1 in a thread, and say that agent 0 does; told has the connection."""

    def call():
        try:
            told.append(outside.connect(0, 1, port))
        except OSError as error:
            told.append(error)

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    return thread


def test_between_hosts_a_key_is_worth_nothing_without_the_certificate():
    """Even who has stolen the key of agents 0 and 1 is not agent 0 with gamma's certificate."""
    authority = doors.Authority()
    with neighbour(of_host("beta", authority, HOSTS)) as one:
        silent = [dialled(one.port) for _ in range(streams.EACH)]
        hello = Frame(HELLO, 0, 0).header(one.keys.between(0, 1))
        for host in ("gamma", "alpha"):
            told = []
            thread = calling(of_host(host, authority, HOSTS), one.port, told)
            one.until(lambda it, told=told: told)
            thread.join()
            told[0].sendall(hello)
            if host == "gamma":
                words = "the certificate is not that of the host that plays agent 0"
                one.until(lambda it, words=words: words in it.refused)
                assert one.place.greeted == {}
            else:
                one.until(lambda it: 0 in it.place.greeted)
            told[0].close()
        for each in silent:
            each.close()


def test_who_answers_for_an_agent_shows_the_certificate_of_its_host():
    authority, told = doors.Authority(), []
    with neighbour(of_host("gamma", authority, HOSTS)) as one:
        thread = calling(of_host("alpha", authority, HOSTS), one.port, told)
        one.until(lambda it: told)
        thread.join()
        assert "who answers for agent 1 has a certificate of 'gamma'" in str(told[0])


def test_a_stranger_without_certificate_is_told_of_at_an_agents_port():
    with neighbour(of_host("beta", doors.Authority(), HOSTS)) as one:
        with dialled(one.port) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
            one.until(lambda it: any("a stranger at 127.0.0.1 was ref" in w for w in it.refused))


@contextmanager
def door(authority=None, tokens=None):
    authority = authority or doors.Authority()
    identity = authority.identity(doors.COORDINATOR)
    made = doors.Door("127.0.0.1", 0, identity, tokens or {"alpha": "x"})
    try:
        yield made, authority
    finally:
        made.close()


def test_seventy_silent_connections_at_the_door_keep_no_host_out():
    with door() as (made, authority):
        crowd = [dialled(made.port) for _ in range(70)]
        own = doors.Caller(("127.0.0.1", made.port), "alpha", "x", authority.identity("alpha"))
        joined = []
        thread = threading.Thread(target=lambda: joined.append(own.call("host")), daemon=True)
        thread.start()
        guest = made.guests.get(timeout=8.0)  # sooner than any of the silent ones would have to go
        guest.sock.setblocking(True)
        guest.sock.sendall(formats.packed("welcome", {}, {}))
        thread.join(8.0)
        assert joined[0][1].kind == "welcome"
        assert made.refused.qsize() >= 70 - streams.EACH
        assert made.refused.get() == "a stranger at 127.0.0.1 was refused (said nothing)"
        for one in (*crowd, guest.sock, joined[0][0]):
            one.close()


CSV = "age,income,label\n44,50000,1\nMrs. Dupont-Meier,1,0\n"


def hearing(made, said):
    """What a host says to a coordinator that sends it said, as bytes."""
    guest, data = made.guests.get(timeout=60.0), b""
    guest.sock.settimeout(60.0)
    guest.sock.sendall(formats.packed("welcome", said, {}))
    while part := guest.sock.recv(1 << 16):
        data += part
    guest.sock.close()
    return data


def test_a_dishonest_coordinator_hears_no_words_of_a_hosts_files(tmp_path):
    """It asks for a table that a host has, which cannot be read: an error would quote it."""
    (tmp_path / "people.csv").write_text(CSV)
    data = {"source": "csv", "file": str(tmp_path / "people.csv"), "label": "label"}
    text = json.dumps(scenario(problem={"data": data}))
    said = {"scenario": text, "plugins": {}, "problem": "", "fixed": None, "agents": {}}
    with door() as (made, authority):
        identity = authority.identity("alpha")._asdict()
        file, until = tmp_path / "alpha.invitation", authority.until.timestamp()
        about = {"desim": formats.PROTOCOL, "host": "alpha", "token": "x", "until": until}
        file.write_text(json.dumps({**about, **identity}))
        told = []
        thread = threading.Thread(target=lambda: told.append(hearing(made, said)), daemon=True)
        thread.start()
        with pytest.raises(InputError, match="Dupont"):  # on its own screen
            join.take_part(f"127.0.0.1:{made.port}", file, False, lambda text: None)
        thread.join(60.0)
    (message,) = formats.Unpacking().feed(told[0])
    assert message.fields == {
        "why": "InputError at problem.data; its words are on the screen of its host"
    }


def test_errors_of_agents_cross_as_their_kind_and_place_alone():
    known = {"problem": {"data": {"file": "a.csv"}}, "algorithm": {}}
    words = "; its words are on the screen of its host"
    error = InputError(["problem.data.Dupont: found 'Dupont'", "Dupont: found 3"])
    assert abroad(error, known) == f"InputError at problem.data{words}"
    assert abroad(ValueError("Dupont"), known) == f"ValueError{words}"
    assert abroad(InputError("algorithm: found 1"), {}) == f"InputError{words}"
    assert abroad(Declined("own words"), known) == "own words"


def test_invitations_end(tmp_path, monkeypatch):
    authority = doors.Authority(600.0)
    known = hosts.Hosts("127.0.0.1", 0, 1.0, {"alpha": (0,)})
    made = hosts.invite(tmp_path / "hosts.yaml", known, authority)
    file = made["alpha"][1]
    assert hosts.read_invitation(file).host == "alpha"
    now = time.time()
    monkeypatch.setattr(hosts.time, "time", lambda: now + 700.0)
    with pytest.raises(InputError, match=r"an invitation that ended at 2.* UTC; allowed: one of a"):
        hosts.read_invitation(file)
    data = json.loads(file.read_text())
    shown = ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(data["certificate"]))
    from cryptography import x509

    for text in (shown, data["authority"]):
        ends = x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc
        assert ends == authority.until


def rows(agent=1, agents=4, release=1, kind=6, time=0.5):
    log = np.array([[1 << 8, (agent + 1) << 32, -1, kind]]), np.array([[time, 0.0, 0.0]])
    return (*log, np.array([[agent, 1, release, 0, 0, 0]]), np.array([[time, 1.0, 1.0, 1.0]]))


@pytest.mark.parametrize(
    "wrong", [{"agent": 2}, {"agent": -1}, {"release": 2}, {"kind": 77}, {"time": np.nan}]
)
def test_an_agent_writes_rows_of_its_own_alone(wrong):
    require_own(1, 4, *rows())
    with pytest.raises(formats.Torn, match="found"):
        require_own(1, 4, *rows(**wrong))
    one, *others = rows()
    with pytest.raises(formats.Torn, match="found rows of shapes"):
        require_own(1, 4, one[:, :3], *others)


def posted(**sent):
    """A station that has posted call 7 to agent 1, which asks for 16 bytes."""
    one = Sent(1, 3, 0, 16, 16, 0.1)
    for name, value in sent.items():
        setattr(one, name, value)
    calls = SimpleNamespace(pending=np.ones(4), due=np.full(4, np.inf))
    made = SimpleNamespace(
        sent={7: one}, latest=[0, 7, 0, 0], arrived=set(), settle=lambda number: None,
        hub=SimpleNamespace(calls=calls), _came=0.0, _fits=station.Station._fits,
    )  # fmt: skip
    return made


REPLIES = {
    "of another": Frame(REPLY, 2, 7, body=bytes(16)),
    "to no call": Frame(REPLY, 1, 8, body=bytes(16)),
    "of another size": Frame(REPLY, 1, 7, body=bytes(24)),
    "of another kind": Frame(LETTER, 1, 7, body=bytes(16)),
}


@pytest.mark.parametrize("name", REPLIES)
def test_a_reply_is_one_to_a_call_of_its_own(name):
    good, made = Frame(REPLY, 1, 7, body=bytes(16)), posted()
    station.Station._receive(made, good, 0.2)
    assert made.arrived == {1}
    with pytest.raises(formats.Torn, match="to no call of its own"):
        station.Station._receive(made, good, 0.3)  # once
    with pytest.raises(formats.Torn):
        station.Station._receive(posted(), REPLIES[name], 0.2)
    with pytest.raises(formats.Torn, match="which are no reply"):
        station.Station._receive(posted(up=15), good._replace(body=bytes(15)), 0.2)
    given_up = formats.Message("aborted", {}, {})
    with pytest.raises(formats.Torn, match="both a reply to a call"):
        station.Station._receive(posted(report=given_up), good, 0.2)


def test_numbers_of_others_are_finite_and_words_do_not_steer_a_terminal():
    reader = formats.Unpacking(foreign=True)
    (one,) = reader.feed(formats.packed("a", {"why": "x\x1b[2J" + "y" * 9000, "n": [1.5]}, {}))
    assert one.fields["why"].startswith("x?[2Jyy")
    assert len(one.fields["why"]) <= 2000
    for odd in (float("nan"), float("inf")):
        with pytest.raises(formats.Torn, match="allowed: finite numbers"):
            list(formats.Unpacking(foreign=True).feed(formats.packed("a", {"n": [odd]}, {})))
    assert list(formats.Unpacking().feed(formats.packed("a", {"n": float("inf")}, {})))


def test_no_frame_is_larger_than_what_was_asked_for():
    made = fleet.Fleet(4, place.Loopback())
    ours, theirs = socket.socketpair()
    made.take_up(Stream(theirs, 1))
    made.allow(16)
    (framing,) = made.framings.values()
    key = made.root.between(-1, 1)
    (one,) = framing.feed(Frame(REPLY, 1, 7, body=bytes(16)).header(key) + bytes(16))
    assert len(one.body) == 16
    with pytest.raises(formats.Torn, match="found a frame of 17 bytes; allowed: 16 at most"):
        list(framing.feed(Frame(REPLY, 1, 8).header(key, 17)))
    made.close()
    ours.close()


@pytest.mark.parametrize(
    "message",
    [
        formats.packed("done", {}, {}),
        formats.packed("done", {"number": "x"}, {}),
        formats.packed("synced", {"time": float("nan")}, {}),
    ],
)
def test_an_agent_that_sends_nonsense_is_lost_and_the_run_ends_in_words(message, monkeypatch):
    report = place.Place.report

    def odd(self, kind, fields, arrays=None):
        if kind == "done" and self.agent == 1:
            self.control.push(message)
        report(self, kind, fields, arrays)

    monkeypatch.setattr(place.Place, "report", odd)
    with pytest.raises(RunError, match=r"nobody can go on: agent 1 sent what cannot be read"):
        desim.deploy(scenario(rounds=3), loopback=True)


@pytest.mark.parametrize("name", ["__init__", "__class__", "name", "no such", "warnings"])
def test_no_message_calls_anything_but_a_function_of_the_method(name):
    method = SimpleMethod()
    assert consent.found({"name": "train", "given": 0, "bound": {}}, {}, method)() == 3
    with pytest.raises(InputError, match="found no job"):
        consent.found({"name": name, "given": 0, "bound": {}}, {}, method)


class SimpleMethod:
    name, warnings = "simple", ()

    def train(self):
        return 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"release": 5}, "somebody else's release"),
        ({"body": bytes(15)}, "which are no numbers"),
        ({"kind": REPLY}, "which sends none"),
        ({"body": bytes(8)}, "sent 1 numbers to agent [13]; allowed: 4"),
    ],
    ids=["release", "size", "kind", "width"],
)
def test_a_neighbours_odd_letter_ends_a_graphs_run_in_words(wrong, words, monkeypatch):
    """Agent 0 says in its first letter what no letter has."""
    stamp = peer.stamped

    def odd(letter, time):
        frame = stamp(letter, time)
        return frame._replace(**wrong) if letter.source == 0 else frame

    def post(self, j, frame, body):
        body = wrong.get("body", body) if self.i == 0 else body
        sending(self, j, frame, body)

    sending = peer.PeerPost._post
    monkeypatch.setattr(peer, "stamped", odd)
    monkeypatch.setattr(peer.PeerPost, "_post", post)
    with pytest.raises(RunError, match=words):
        desim.deploy(scenario("dsgd", network={"topology": "ring"}), loopback=True)


def test_the_page_of_threats_names_tests_that_there_are():
    """And each test of the two files, but those of what they are made of, stands on the page."""
    here = Path(__file__).parent
    page = (here.parent / "analysis" / "docs" / "reference" / "threats.md").read_text("utf-8")
    named = re.findall(r"`(test_\w+\.py)::(test_\w+)`", page)
    assert len(named) > 25
    for file, test in named:
        assert f"def {test}(" in (here / file).read_text("utf-8"), test
    for one in (Path(__file__), here / "test_consent.py"):
        own = set(re.findall(r"^def (test_\w+)", one.read_text("utf-8"), re.M))
        beside = {test for test in own if "_is_noticed" in test or "_page_" in test}
        assert own - beside == {test for file, test in named if file == one.name}
