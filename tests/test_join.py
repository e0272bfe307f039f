"""Hosts that join a deployment: who comes in, who does not, and what either is told."""

import json
import os
import socket
import ssl
import stat
import threading
from pathlib import Path

import numpy as np
import psutil
import pytest
from test_deploy import plain, scenario  # noqa: F401
from test_deployed_trees import tree

import desim
from desim.deployments import doors, formats, hosts
from desim.deployments.join import take_part
from desim.errors import InputError

pytest.importorskip("cryptography")


def file_of(folder, wait="60 s", data="same", **named):
    named = named or {"alpha": [0, 1], "beta": [2, 3]}
    path = folder / "hosts.yaml"
    said = {"address": "127.0.0.1", "wait": wait, "hosts": named, "data": data}
    path.write_text(json.dumps(said))
    return path


class Waiting:
    """A coordinator in a process of its own; its port, and what it said in the end."""

    def __init__(self, given, folder, **named):
        self.folder, self.said = folder, folder / "said.txt"
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            self._be(given, file_of(folder, **named), writing)
        os.close(writing)
        line = b""
        while not line.endswith(b"\n"):
            line += os.read(reading, 64)
        self.port = int(line)
        self.address = f"127.0.0.1:{self.port}"

    def _be(self, given, path, writing):
        from desim.deployments import deployed as module
        from desim.scenario.load import load

        begun = hosts.Remote.launch

        def launch(fleet, serve):
            os.write(writing, f"{fleet.door.port}\n".encode())
            begun(fleet, serve)

        hosts.Remote.launch = launch
        text = ""

        def tell(line):
            nonlocal text
            text += f"{line}\n"

        try:
            out = self.folder / "run"
            module.begin(load(given), out, None, False, False, path, tell)
            text += "done\n"
        except BaseException as error:
            text += f"{type(error).__name__}: {error}\n"
        self.said.write_text(text)
        os._exit(0)

    def invitation(self, host):
        return self.folder / f"{host}.invitation"

    def ended(self):
        os.waitpid(self.pid, 0)
        return self.said.read_text()


def joining(waiting, host, told=None):
    """Join in a thread's stead: a process."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            take_part(waiting.address, waiting.invitation(host), False, lambda text: None)
            status = 0
        finally:
            os._exit(status)
    return pid


@pytest.mark.parametrize("method", ["fedavg", "dsgd", "tree"])
@pytest.mark.slow
def test_two_hosts_play_the_bits_of_the_simulation(tmp_path, method):
    named = {}
    if method == "tree":  # each edge on another host than its clients
        given, named = tree([2, 2], 2), {"alpha": [0, 1, "edge 1"], "beta": ["edge 0", 2, 3]}
    else:
        given = scenario(method, network={"topology": "ring"} if method == "dsgd" else {})
    waiting = Waiting(given, tmp_path, **named)
    file = waiting.invitation("alpha")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    first = joining(waiting, "alpha")
    # a second of the same name, a wrong token and a stranger change nothing
    stranger = socket.create_connection(("127.0.0.1", waiting.port))
    stranger.sendall(b"GET / HTTP/1.0\r\n\r\n")
    wrong = tmp_path / "wrong.invitation"
    wrong.write_text(json.dumps(json.loads(file.read_text()) | {"token": "0" * 32}))
    with pytest.raises(InputError, match="refused: its token is not that of this run"):
        take_part(waiting.address, wrong, False, print)
    second = joining(waiting, "beta")
    assert [os.waitpid(pid, 0)[1] for pid in (first, second)] == [0, 0]
    said = waiting.ended()
    stranger.close()
    assert said.endswith("done\n"), said
    assert "a stranger at 127.0.0.1 was refused" in said
    real, simulated = desim.open(tmp_path / "run"), desim.run(given)
    assert np.array_equal(real.iterates, simulated.iterates)
    clock = real.manifest["clock"]
    assert (clock["hosts"], clock["kind"]) == (3, "real")
    assert 0.0 < clock["error"] < 1.0
    assert not file.exists()


OWN = {
    "privacy": {"noise": {"kind": "gaussian", "sigma": 1e-12}},
    "observe": {"metrics": [], "iterates": False},
}


def test_hosts_need_the_rows_of_their_own_agents_alone(tmp_path, monkeypatch):
    """The coordinator has zeros; what is learnt is what the rows of all would have given."""
    from desim.deployments import join
    from desim.scenario.load import load

    random = np.random.default_rng(7)
    A, b = random.normal(size=(4, 5, 3)), random.choice([-1.0, 1.0], size=(4, 5))
    held = {"all": range(4), "nothing": (), "alpha": (0, 1), "beta": (2, 3)}
    for name, agents in held.items():
        own = np.isin(np.arange(4), agents)
        labels = np.where(own[:, None], b, 1.0)
        np.savez(tmp_path / f"{name}.npz", A=own[:, None, None] * A, b=labels)

    def written(name):
        found = scenario("dp-admm", algorithm={"rho": 1.0, "eta": 0.5}, **OWN)
        data = {"source": "npz", "file": str(tmp_path / f"{name}.npz")}
        return found | {"problem": {"data": data, "loss": "logistic", "clip": 1.0}}

    waiting = Waiting(written("nothing"), tmp_path, data="own")
    pids = []
    for host in ("alpha", "beta"):
        file = {"problem.data.file": str(tmp_path / f"{host}.npz")}
        monkeypatch.setattr(join, "load", lambda path, more, file=file: load(path, more | file))
        pids.append(joining(waiting, host))
    assert [os.waitpid(pid, 0)[1] for pid in pids] == [0, 0]
    assert waiting.ended().endswith("done\n")
    real, simulated = desim.open(tmp_path / "run"), desim.run(written("all"))
    np.testing.assert_allclose(real.model, simulated.model, rtol=0, atol=1e-9)
    assert np.abs(real.model - desim.run(written("nothing")).model).max() > 1e-2  # the mutant


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"privacy": None}, "found no section privacy, with which agents' states go"),
        ({"privacy": {"noise_seed": "scenario"}}, "found privacy.noise_seed: scenario"),
        ({"observe": {"metrics": ["loss"]}}, "observe.metrics: found loss, of rows that"),
        (
            {"stop": {"metric": {"loss": 0.1}}, "observe": {"metrics": ["loss"]}},
            "observe.metrics: found loss, of rows that",
        ),
    ],
)
def test_what_needs_all_rows_is_refused_where_hosts_have_their_own(changes, why):
    from desim.deployments.hosts import refuse_common
    from desim.runs.recording import prepare
    from desim.scenario.load import load

    given = scenario("dp-admm", **OWN, problem={"clip": 1.0}) | {
        "algorithm": {"name": "dp-admm", "rho": 1.0, "eta": 0.5}
    }
    refuse_common(prepare(load(given)))
    given = {key: one for key, one in (given | changes).items() if one is not None}
    with pytest.raises(InputError, match=why):
        refuse_common(prepare(load(given)))


def test_a_host_that_never_joins_is_named(tmp_path):
    waiting = Waiting(scenario(), tmp_path, wait="1 s")
    assert "alpha has not joined within 1 s" in waiting.ended()
    assert not (tmp_path / "run").exists()
    assert not waiting.invitation("alpha").exists()


def test_a_host_joins_once(tmp_path):
    waiting = Waiting(scenario(), tmp_path, wait="20 s")
    known = hosts.read_invitation(waiting.invitation("alpha"))
    caller = doors.Caller(("127.0.0.1", waiting.port), known.host, known.token, known.identity)
    held, welcome = caller.call("host")
    assert welcome.kind == "welcome"
    with pytest.raises(InputError, match="host alpha has joined already"):
        take_part(waiting.address, waiting.invitation("alpha"), False, print)
    with pytest.raises(InputError, match="host alpha does not play agent 3"):
        caller.call("agent", 3)
    held.close()
    assert "is lost: host alpha has left" in waiting.ended()


WRONG = {  # what somebody with a certificate of the run may say
    "agent": [float("inf"), float("nan"), [1], "0", None],
    "token": [3, "\u00e9", None],
    "protocol": ["1", 1.0, True],
    "host": [None, {}],
    "role": [0],
}


@pytest.mark.parametrize("key", WRONG)
def test_what_cannot_be_understood_at_the_door_is_refused_in_words(key):
    authority = doors.Authority()
    door = doors.Door("127.0.0.1", 0, authority.identity(doors.COORDINATOR), {"a": "x"})
    dialling = doors.context(authority.identity("a"), server=False)
    about = {"host": "a", "token": "x", "role": "host", "agent": -1, "protocol": formats.PROTOCOL}
    try:
        for value in WRONG[key]:
            plain = socket.create_connection(("127.0.0.1", door.port))
            with dialling.wrap_socket(plain, server_hostname=doors.COORDINATOR) as sock:
                said = {**about, "desim": doors.version("desim"), key: value}
                sock.sendall(formats.packed("hello", said, {}))
                text = door.refused.get(timeout=20)
            assert "a stranger at 127.0.0.1 was refused" in text
            assert f"for {key}" in text or "its token is not" in text
        assert door.guests.empty()
    finally:
        door.close()


def test_connections_whose_other_end_has_gone_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as one:
            doors.lasting(one)
            assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
            silence = one.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert silence == 1e3 * doors.GONE


def test_what_the_manifest_has_of_strangers_is_little(tmp_path):
    waiting = Waiting(scenario(), tmp_path)
    for number in range(hosts.REFUSALS + 3):
        with socket.create_connection(("127.0.0.1", waiting.port)) as stranger:
            stranger.sendall(bytes([number]) * 500)
    both = [joining(waiting, name) for name in ("alpha", "beta")]
    for pid in both:
        os.waitpid(pid, 0)
    assert waiting.ended().count("a stranger") == hosts.REFUSALS
    manifest = desim.open(tmp_path / "run").manifest
    assert f"{hosts.REFUSALS + 3} connections were refused in all" in manifest["warnings"]
    assert manifest["clock"]["refused"] == hosts.REFUSALS + 3


def test_a_host_is_told_why_the_run_did_not_begin(tmp_path):
    waiting = Waiting(scenario(), tmp_path, wait="4 s")
    with pytest.raises(InputError, match=r"ended before it began \(beta has not joined within 4 s"):
        take_part(waiting.address, waiting.invitation("alpha"), False, print)
    waiting.ended()


def test_invitations_of_a_later_deployment_stay(tmp_path):
    file, authority = tmp_path / "hosts.yaml", doors.Authority()
    known = hosts.Hosts("127.0.0.1", 0, 1.0, {"alpha": (0,), "beta": (1,)})
    first = hosts.invite(file, known, authority)
    later = hosts.invite(file, hosts.Hosts("127.0.0.1", 0, 1.0, {"alpha": (0,)}), authority)
    hosts.withdraw(first)
    assert [one.name for one in tmp_path.iterdir()] == ["alpha.invitation"]
    hosts.withdraw(later)
    (tmp_path / "beta.invitation").mkdir()
    with pytest.raises(InputError, match="invitation: cannot be written"):
        hosts.invite(file, known, authority)
    assert [one.name for one in tmp_path.iterdir()] == ["beta.invitation"]


def test_another_version_is_refused(tmp_path, monkeypatch):
    waiting = Waiting(scenario(), tmp_path, wait="3 s")
    monkeypatch.setattr(doors, "version", lambda name: "9.9")
    with pytest.raises(InputError, match=r"found desim 9\.9, protocol 2; allowed"):
        take_part(waiting.address, waiting.invitation("alpha"), False, print)
    waiting.ended()


def test_a_killed_host_ends_the_run_in_words(tmp_path):
    waiting = Waiting(scenario(rounds=2000), tmp_path)
    first, second = joining(waiting, "alpha"), joining(waiting, "beta")
    log = tmp_path / "run" / "manifest.json"
    until = threading.Event()
    for _ in range(300):
        if log.exists():
            break
        until.wait(0.1)
    until.wait(0.5)
    for child in psutil.Process(first).children():
        child.kill()
    os.waitpid(first, 0)
    os.waitpid(second, 0)
    said = waiting.ended()
    assert "on alpha was killed by signal 9 (SIGKILL)" in said
    assert desim.open(tmp_path / "run").status == "failed"


def test_plug_ins_run_on_hosts_that_trust_alone(tmp_path):
    from desim.deployments import join

    said = {"plugins": {"own.py": "raise SystemExit"}, "scenario": "", "problem": ""}
    with pytest.raises(InputError, match=r"plug-ins \(own.py\).*--trust"):
        join._built(said, tmp_path, trust=False)


def test_other_data_are_refused(tmp_path):
    from desim.deployments import join
    from desim.runs.recording import prepare
    from desim.scenario.load import load

    text = prepare(load(scenario())).text
    with pytest.raises(InputError, match="the data here are not those of the coordinator"):
        join._built({"plugins": {}, "scenario": text, "problem": "0" * 64}, tmp_path, False)


FILES = {
    "hosts: {alpha: [0, 1, 2]}": "nobody who plays agent 3",
    "hosts: {alpha: [0, 1, 2, 3], beta: [3]}": "found agent 3, which alpha plays",
    "hosts: {alpha: [0, 1, 2, 7]}": "found 7; allowed: agents 0 to 3",
    "hosts: {../alpha: [0, 1, 2, 3]}": "allowed: letters",
    "port: 70000\nhosts: {a: [0, 1, 2, 3]}": "port: found 70000",
    "wait: 3 apples\nhosts: {a: [0, 1, 2, 3]}": "wait: ",
    "port: true\nhosts: {a: [0, 1, 2, 3]}": "port: found true",
    "hosts: {a: [0, 1, 2, true]}": "found true; allowed: agents 0 to 3",
    "hosts: {Coordinator.Desim: [0, 1, 2, 3]}": "certificates of the run itself",
    "data: mine\nhosts: {a: [0, 1, 2, 3]}": "data: found 'mine'; allowed: same, own",
    "hots: {a: [0, 1, 2, 3]}": "hots: unknown key",
    "[]": "allowed: the keys",
}


@pytest.mark.parametrize("text", FILES)
def test_wrong_files_of_hosts_are_told(tmp_path, text):
    path = tmp_path / "hosts.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match=FILES[text].replace("[", r"\[")):
        hosts.read_hosts(path, 4)


def test_a_port_in_use_is_told(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        path = file_of(tmp_path)
        port = taken.getsockname()[1]
        path.write_text(json.dumps(json.loads(path.read_text()) | {"port": port}))
        with pytest.raises(InputError, match=f"127.0.0.1:{port}: cannot wait there"):
            desim.deploy(scenario(), hosts=path)
    assert not list(tmp_path.glob("*.invitation"))


def test_an_invitation_of_another_run_is_told(tmp_path):
    from desim.deployments.doors import Authority

    waiting = Waiting(scenario(), tmp_path, wait="3 s")
    file = waiting.invitation("alpha")
    other = Authority().identity("alpha")._asdict()
    file.write_text(json.dumps(json.loads(file.read_text()) | other))
    with pytest.raises(InputError, match="is not a coordinator of this invitation, or refuses it"):
        take_part(waiting.address, file, False, print)
    waiting.ended()


def test_wrong_addresses_and_invitations_are_told(tmp_path):
    file = tmp_path / "a.invitation"
    with pytest.raises(InputError, match="HOST:PORT: found nowhere"):
        take_part("nowhere", file, False, print)
    with pytest.raises(InputError, match="cannot be read"):
        take_part("127.0.0.1:1", file, False, print)
    file.write_text("{}")
    with pytest.raises(InputError, match="not an invitation"):
        take_part("127.0.0.1:1", file, False, print)
    for device in ("/dev/zero", "/dev/null"):
        with pytest.raises(InputError, match="not an invitation"):
            take_part("127.0.0.1:1", Path(device), False, print)


def test_connections_are_tls_1_3_and_both_sides_show_certificates():
    from desim.deployments.doors import COORDINATOR, Authority, context

    authority = Authority()
    made = context(authority.identity(COORDINATOR), server=True)
    assert made.minimum_version is ssl.TLSVersion.TLSv1_3
    assert made.verify_mode is ssl.CERT_REQUIRED


TORN = {
    b"HTTP/1.1 200 OK\r\n\r\n": "where a message begins",
    formats.LENGTHS.pack(formats.MARK, 1 << 30, 0): "found a message of",
    formats.LENGTHS.pack(formats.MARK, 8, 1 << 60): "found a message of",
    formats.LENGTHS.pack(formats.MARK, 4, 0) + b"nope": "cannot be read",
    formats.LENGTHS.pack(formats.MARK, 33, 8)
    + b'["a",{},[["x","|O",[1]]]]        '
    + bytes(8): "array of",
    formats.LENGTHS.pack(formats.MARK, 33, 8)
    + b'["a",{},[["x","<f8",[9]]]]       '
    + bytes(8): "less",
    formats.LENGTHS.pack(formats.MARK, 33, 8)
    + b'["a",{},[["x","<f8",[-1]]]]      '
    + bytes(8): "array of",
}


@pytest.mark.parametrize("data", TORN)
def test_torn_messages_are_told(data):
    with pytest.raises(formats.Torn, match=TORN[data]):
        list(formats.Unpacking().feed(data))


def test_messages_come_back_whole_in_any_pieces():
    arrays = {"x": np.arange(6.0).reshape(2, 3), "none": np.empty((0, 4)), "flag": np.array([True])}
    data = formats.packed("kind", {"a": [1, None, 2.5], "b": {"c": "d"}}, arrays) * 2
    reader, found = formats.Unpacking(), []
    for k in range(0, len(data), 7):
        found += reader.feed(data[k : k + 7])
    assert len(found) == 2
    for message in found:
        assert (message.kind, message.fields) == ("kind", {"a": [1, None, 2.5], "b": {"c": "d"}})
        for name, array in arrays.items():
            np.testing.assert_array_equal(message.arrays[name], array)
            assert message.arrays[name].dtype == array.dtype


def test_the_fastest_exchange_aligns_clocks():
    """A clock 5 s ahead, read over ways of which one is slow in one direction."""
    found = [hosts.exchanged(t, t + 5.0 + there, t + there + back) for t, there, back in
             [(0.0, 0.03, 0.01), (1.0, 0.001, 0.001), (2.0, 0.2, 0.001)]]  # fmt: skip
    offset = hosts.best(found)
    assert offset.ahead == pytest.approx(5.0)
    assert all(abs(one.ahead - 5.0) <= one.error + 1e-12 for one in found)
    later = hosts.Offset(5.0105, 0.001, 100.0)
    assert hosts.drift(offset, later) == pytest.approx(0.0105)
    assert hosts.drift(offset, hosts.Offset(5.0015, 0.001, 100.0)) == 0.0
