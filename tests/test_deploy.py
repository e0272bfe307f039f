"""Deployments on loopback: the bits of the simulation, and words for whatever goes wrong."""

import errno
import os
import signal
import socket
import time
from types import SimpleNamespace

import numpy as np
import psutil
import pytest
from mutant import mutant

import desim
from desim.deployments import client, deployed, fleet, formats, linked, station
from desim.deployments import place as place_module
from desim.deployments.fleet import ended, ended_by_others
from desim.deployments.linked import refusal
from desim.errors import InputError, RunError
from desim.runs.joint import joint
from desim.runs.premises import TEST, exposed
from desim.runs.privacy import SEEDED, UNSEEDED, statement
from desim.runs.reading.facts import facts
from desim.runs.recording import prepare
from desim.scenario.load import load

PROBLEM = {
    "agents": 4,
    "data": {"source": "synthetic", "kind": "classification", "rows": 12, "dim": 4},
    "loss": "logistic",
    "regularizer": {"l2": 0.1},
}
NOISY = {"solver": "noisy", "epochs": 2, "tau": 0.1}
PRIVATE = {"relation": "replace-one", "noise_seed": "scenario"}


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Nothing is compiled, and no process is left when a test is over."""
    monkeypatch.setenv("DESIM_COMPILE", "never")
    before = set(psutil.Process().children(recursive=True))
    yield
    assert set(psutil.Process().children(recursive=True)) <= before


def scenario(method="fedavg", rounds=4, **more):
    known = {
        "fed-plt": {"rho": 1.0},
        "dsgd": {"alpha": 0.1},
        "choco-sgd": {"alpha": 0.1, "gamma": 0.4},
        "zcdp-nfl": {"rho": 1.0, "eta": 0.5},
        "q-dpsgd-1": {
            "alpha": 0.1, "bits": 8, "mixing": 0.3, "resolution": 0.01, "deadline": "10 ms"
        },
    }  # fmt: skip
    made = {
        "seed": 5,
        "name": "deployed",
        "problem": PROBLEM,
        "algorithm": {"name": method, **known.get(method, {})},
        "network": {"link": {"latency": "1 ms"}},
        "compute": {"speed": {"lognormal": ["3000 /s", 0.3]}},
        "observe": {"iterates": True, "metrics": ["loss"]},
        "stop": {"rounds": rounds},
    }
    for key, value in more.items():
        both = isinstance(value, dict) and isinstance(made.get(key), dict)
        made[key] = {**made[key], **value} if both else value
    return made


def deploy(given, **more):
    return desim.deploy(given, loopback=True, **more)


def released(run):
    rows = run.releases.sort_values(["round", "agent", "release"]).drop(columns="time")
    return rows.reset_index(drop=True)


def same(given):
    """The same scenario simulated and deployed; the tables hold as much, the arrays the same."""
    simulated, real = desim.run(given), deploy(given)
    assert real.status == "done"
    for name in ("model", "iterates"):
        one, other = getattr(simulated, name), getattr(real, name)
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one, other)
    for name, rows in simulated.state.items():
        np.testing.assert_array_equal(real.state[name], rows)
    counts = simulated.events["kind"].value_counts().to_dict()
    assert real.events["kind"].value_counts().to_dict() == counts
    assert released(simulated).equals(released(real))
    return simulated, real


STARS = {
    "fedavg": scenario(),
    "kept by the coordinator": scenario("tamuna"),
    "told": scenario("led", algorithm={"beta": 0.1}),
    "some": scenario("fed-plt", participation={"uniform": 2}),
    "until a target": scenario(
        observe={"metrics": ["loss", "consensus"]}, stop={"metric": {"loss": 1e-9}}
    ),
    "two exchanges": scenario("fedlin"),
    "coded both ways": scenario(
        participation={"uniform": 3},
        codec={"top-k": 2, "downlink": {"quantise": {"bits": 4}}},
    ),
    "noise inside": scenario(
        "fed-plt", algorithm={"local": NOISY}, privacy=PRIVATE, problem={"clip": 1.0}
    ),
}


@pytest.mark.parametrize("name", STARS)
def test_a_star_has_the_bits_of_the_simulation(name):
    simulated, real = same(STARS[name])
    assert simulated.metrics["value"].equals(real.metrics["value"])
    if "privacy" in STARS[name]:
        voided(simulated, real)


def voided(simulated, real):
    """Of a deployment whose agents' states travelled no epsilon is finite, wherever one stands."""
    assert simulated.account().worst < np.inf
    assert (real.account().final == np.inf).all()
    assert (real.epsilon()["epsilon"] == np.inf).all()
    assert real.epsilon().attrs["risk"].advantage == 1.0
    said = statement(real)
    assert set(said.table["view"]) == {"eavesdropper", "coordinator", "final-model"}
    assert (said.table["rigorous epsilon"] == np.inf).all()
    assert all(TEST in flags for flags in said.table["flags"])
    assert (said.claim, said.silence) == (
        None,
        "nothing is claimed for a deployment that is a test",
    )
    assert TEST in dict(facts(real))["privacy"]
    for one in joint([simulated, real]):
        assert (one.epsilon, one.risk.advantage) == (np.inf, 1.0)
        assert any(TEST in flag for flag in one.flags)
    old = {**real.manifest, "privacy": {"noise": "os"}}
    assert exposed(old).startswith("infinite: in this deployment, of an older version")
    assert exposed(simulated.manifest) == ""


GRAPHS = {
    "dsgd": scenario("dsgd", network={"topology": "ring"}),
    "noise": scenario(
        "zcdp-nfl",
        network={"topology": "ring"},
        problem={"clip": 1.0},
        privacy={"noise": {"phi": 1e-2, "growth": 0.99}, **PRIVATE},
    ),
    "coded": scenario("choco-sgd", network={"topology": "ring"}, codec={"random-k": 2}),
    "fewer bits than values": scenario("q-dpsgd-1", network={"topology": "complete"}),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_has_the_bits_of_the_simulation(name):
    simulated, real = same(GRAPHS[name])
    columns = ["round", "metric", "agent", "value"]
    rows = [r.metrics[r.metrics["agent"] >= 0] for r in (simulated, real)]
    tables = [one[columns].sort_values(columns[:3]).reset_index(drop=True) for one in rows]
    assert tables[0].equals(tables[1])


def test_times_are_those_of_messages():
    """From the call of send to the last byte; a reply follows its computation."""
    real = deploy(scenario())
    events = real.events
    sent = events[events["kind"] == "send"].set_index(["agent", "peer", "round"])["time"]
    arrived = events[events["kind"] == "deliver"]
    for row in arrived.itertuples():
        assert row.time - row.seconds == pytest.approx(sent[row.peer, row.agent, row.round])
        assert 0.0 < row.seconds < 5.0
    closed = events[(events["kind"] == "aggregate")]
    assert set(closed["time"]) <= set(arrived["time"])
    assert real.manifest["clock"]["kind"] == "real"
    assert real.manifest["engine"] == "deployed"


@pytest.mark.parametrize(
    "policy", [{"quorum": 2}, {"buffer": 2, "late": "carry"}, "each", {"deadline": "20 ms"}]
)
def test_policies_close_collections(policy):
    data = {**PROBLEM["data"], "rows": 60}  # jobs of about 20 ms: some are late, some are not
    real = deploy(scenario(policy=policy, rounds=6, problem={"data": data}))
    assert (real.status, real.manifest["rounds"]) == ("done", 6)
    closed = real.events[real.events["kind"] == "aggregate"]
    if policy != {"deadline": "20 ms"}:
        assert (closed["value"] >= 1).all()
    else:
        assert (closed["seconds"] <= 0.02 + 1e-9).all()


@pytest.mark.parametrize("pending", [0, 1])
def test_a_reply_that_was_discarded_is_not_used_later(pending):
    """It came after a deadline, before the coordinator looked; its agent is not called again."""
    calls = SimpleNamespace(pending=np.array([0, pending]))
    made = SimpleNamespace(
        world=SimpleNamespace(settings=SimpleNamespace(horizon=np.inf)),
        hub=SimpleNamespace(
            calls=calls, until=lambda opened: np.inf, satisfied=lambda arrived, over: True
        ),
        arrived=set(), after={1}, _came=2.0,
    )  # fmt: skip
    assert station.Station.collect(made, 1.0) == 2.0
    assert (made.arrived, made.after) == ({1} if pending else set(), set())


def late_reports(module):
    """Models that are taken over of two calls, both used before their reports are here."""
    taken = []
    one = module.Station.__new__(module.Station)
    one.world = SimpleNamespace(
        log=None, reserved=False, state={"x": np.zeros((1, 1))},
        observer=SimpleNamespace(arrived=lambda number, i, x: taken.append((number, float(x[0])))),
    )  # fmt: skip
    one.latest, one.used, one.sent = [0], [0], {}
    for number in (1, 2):
        one.sent[number] = module.Sent(0, number, 0, -1, -1, 0.0, came=1.0)
        one.latest[0] = number
        one.use(0)
    for number in (1, 2):
        x = {"state x": np.array([float(number)])}
        one._report(0, formats.Message("done", {"number": number}, x))
    return taken


def test_a_report_that_is_late_is_of_its_own_round():
    assert late_reports(station) == [(1, 1.0), (2, 2.0)]
    twin = mutant(station, '"done" and sent.used:', '"done" and number == self.used[i]:')
    assert late_reports(twin) != [(1, 1.0), (2, 2.0)]


def test_news_that_a_void_call_has_brought_hold():
    """Two calls have come at once: the job on the news of the first is run, its own job is not."""
    ran, said = [], []
    place = SimpleNamespace(
        agent=0, handlers={}, now=1.0, report=lambda kind, fields: said.append((kind, fields)),
        wait_for=lambda holds: None,
    )  # fmt: skip
    interrupting, four = SimpleNamespace(interrupts=True), SimpleNamespace(agents=4)
    settings = SimpleNamespace(policy=interrupting, problem=four)
    world = SimpleNamespace(settings=settings, work=lambda job, us, news: ran.append(news))
    given = scenario("dp-admm", algorithm={"rho": 1.0, "eta": 0.5})
    made = client.Client(place, world, prepare(load(given)).simulation.method)
    job = {"name": "ascend", "given": 0, "bound": {}}
    for number in (1, 2):
        order = formats.Message(
            "order", {"told": [{"job": job, "round": 1}]}, {"news0": np.ones(4)}
        )
        made.letters.append(client.Letter(formats.Frame(formats.CALL, -1, number, 2), order, 0.5))
    made._take = lambda letter: said.append(("taken", {"number": letter.number}))
    with pytest.raises(IndexError):  # nothing more is to come
        made.live()
    assert [(kind, fields["number"]) for kind, fields in said] == [("aborted", 1), ("taken", 2)]
    assert len(ran) == 1


def test_a_connection_for_every_message_gives_the_same_bits():
    from desim.deployments import deployed as module
    from desim.deployments.fleet import Local
    from desim.deployments.place import Loopback, Transport
    from desim.runs.recording import prepare
    from desim.scenario.load import load

    for given in (scenario(), scenario("dsgd", network={"topology": "ring"})):
        network = Loopback(Transport("new", "reno"))
        real = module.deployed(prepare(load(given)), None, None, False, Local(4, network))
        assert np.array_equal(real.iterates, desim.run(given).iterates)


def test_noise_is_the_operating_systems_unless_the_scenario_says_otherwise():
    local = {"local": NOISY}
    given = scenario("fed-plt", algorithm=local, privacy={}, problem={"clip": 1.0})
    simulated, real = desim.run(given), deploy(given)
    assert not np.array_equal(simulated.model[1:], real.model[1:])
    assert real.iterates is None
    loss = real.metrics.loc[real.metrics["metric"] == "loss", "value"]
    problem = prepare(load(given)).simulation.problem
    assert loss.tolist() == [problem.objective(x) for x in real.model]
    assert real.manifest["privacy"]["noise"] == "os"
    assert real.account().worst == simulated.account().worst
    assert "metrics of" in dict(facts(real))
    assert released(simulated).equals(released(real))
    told = " ".join(statement(real).caveats)
    assert UNSEEDED in told
    assert SEEDED not in told
    assert SEEDED in statement(simulated).caveats
    with pytest.raises(InputError, match=r"real seconds do not come again.*nor does its noise"):
        desim.replay(real)


@pytest.fixture
def lines():
    """Skip where this machine has no networks for processes."""
    if why := refusal():
        pytest.skip(why)


@pytest.mark.parametrize(
    "given",
    [
        scenario(network={"link": {"transport": {"tcp": {"congestion": "reno"}}}}),
        scenario("dsgd", network={"topology": "ring", "link": {"transport": {"tcp": {}}}}),
        scenario(network={"behind": {"sites": 2, "uplink": {"bandwidth": "10 Mbit/s"}}}),
        scenario(network={"link": {"transport": {"tcp": {"connection": "new"}}}}),
    ],
    ids=["kept", "ring", "behind", "new"],
)
@pytest.mark.usefixtures("lines")
def test_lines_carry_the_same_bits_no_faster_than_they_are_long(given):
    link = {**given["network"].get("link", {}), "latency": "20 ms"}
    given = {**given, "network": {**given["network"], "link": link}}
    real, simulated = desim.deploy(given), desim.run(given)
    assert np.array_equal(real.iterates, simulated.iterates)
    trips = 2 if "new" in str(given["network"]) else 1  # SYN and SYN-ACK come before the first byte
    seconds = real.events[real.events["kind"] == "deliver"]["seconds"]
    assert (seconds >= (0.02 if trips == 1 else 0.06) - 1e-4).all()
    links = real.manifest["clock"]["links"]
    assert links["lines"] == 8
    assert links["packets"] > 0
    expected = given["network"].get("link", {}).get("transport", {}).get("tcp", {})
    assert links["congestion"] == expected.get("congestion", "cubic")


@pytest.mark.usefixtures("lines")
def test_ctrl_c_and_a_kill_leave_no_network(tmp_path):
    stop = Stroke(lambda: os.kill(os.getpid(), signal.SIGINT))
    real = desim.deploy(scenario(rounds=500), out=tmp_path / "run", progress=stop)
    assert real.status == "stopped"
    with pytest.raises(RunError, match="was killed by signal 9"):
        desim.deploy(scenario(rounds=500), progress=killed(3))


@pytest.mark.usefixtures("lines")
@pytest.mark.parametrize("algorithm", ["fedavg", "dsgd"])
def test_a_run_whose_links_are_killed_ends_in_words(tmp_path, algorithm):
    def cut():
        here = psutil.Process()
        (one,) = (p for p in here.children() if "desim.deployments.forwarding" in p.cmdline())
        one.terminate()

    network = {"topology": "ring"} if algorithm == "dsgd" else {}
    given = scenario(algorithm, rounds=500, network=network)
    with pytest.raises(RunError, match=r"carries packets has ended: it was killed by signal 15"):
        desim.deploy(given, out=tmp_path / "run", progress=Stroke(cut))
    kept = desim.open(tmp_path / "run")
    assert kept.status == "failed"
    assert len(kept.events) > 50


def test_links_that_end_before_the_run_write_nothing(tmp_path, monkeypatch):
    ours, theirs = socket.socketpair()
    theirs.close()

    class Gone(place_module.Loopback):
        alarm = ours

        def fate(self):
            return "they ended with exit code 3"

    monkeypatch.setattr(deployed, "network_of", lambda *_: Gone())
    with ours, pytest.raises(InputError, match=r"ended with exit code 3 before the run began"):
        desim.deploy(scenario(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture(params=[signal.SIGTERM, signal.SIGHUP])
def number(request):
    """A signal with its usual effect, which nohup, say, may have turned off for this process."""
    before = signal.signal(request.param, signal.SIG_DFL)
    yield request.param
    signal.signal(request.param, before)


def test_other_signals_count_as_ctrl_c_and_are_told(tmp_path, number):
    told, before = [], signal.getsignal(number)
    stop = Stroke(lambda: os.kill(os.getpid(), number))
    with ended_by_others(told.append):
        real = deploy(scenario(rounds=500), out=tmp_path / "run", progress=stop)
    assert real.status == "stopped"
    assert told == [f"{number.name}: stops as by Ctrl-C"]
    assert signal.getsignal(number) is before
    assert len(desim.open(tmp_path / "run").events) > 50


def test_how_processes_end_is_told():
    assert ended(-9) == "was killed by signal 9 (SIGKILL)"
    assert ended(-signal.SIGRTMIN - 2).endswith("(SIGRTMIN+2)")
    assert ended(3) == "ended with exit code 3"


def test_no_networks_are_refused_in_words(monkeypatch, tmp_path):
    def forbidden(*_):
        raise InputError("no network namespace for user 7 (no): --loopback does without")

    monkeypatch.setattr(linked, "Carrier", forbidden)
    with pytest.raises(InputError, match=r"deploy: no network namespace.*--loopback"):
        desim.deploy(scenario(), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


class Stroke:
    """Does something once, some rounds after the beginning."""

    def __init__(self, act):
        self.act, self.done = act, False

    def __call__(self, now):
        if now.round >= 10 and not self.done:
            self.done = True
            self.act()


def killed(number):
    """Kills agent `number`: agents are forks of this process, others of its children are not."""

    def kill():
        here = psutil.Process()
        forks = [one for one in here.children() if one.cmdline() == here.cmdline()]
        forks[number].kill()

    return Stroke(kill)


def test_a_run_that_waits_for_a_killed_agent_ends_in_words(tmp_path):
    given = scenario(rounds=500)
    with pytest.raises(RunError, match=r"agent 1 was killed by signal 9 \(SIGKILL\).*policy all"):
        deploy(given, out=tmp_path / "run", progress=killed(1))
    kept = desim.open(tmp_path / "run")
    assert kept.status == "failed"
    assert 1 <= kept.manifest["rounds"] < 500
    assert len(kept.events) > 50


def test_a_graph_that_waits_for_a_killed_agent_ends_in_words(tmp_path):
    given = scenario("dsgd", network={"topology": "ring"}, rounds=500)
    with pytest.raises(RunError, match=r"agent 2 was killed by signal 9"):
        deploy(given, out=tmp_path / "run", progress=killed(2))
    kept = desim.open(tmp_path / "run")
    assert kept.status == "failed"
    assert len(kept.events) > 50


def test_a_deadline_goes_on_without_a_killed_agent():
    real = deploy(scenario(rounds=40, policy={"deadline": "50 ms"}), progress=killed(0))
    assert (real.status, real.manifest["rounds"]) == ("done", 40)
    assert any("agent 0 was killed" in text for text in real.manifest["warnings"])
    last = real.events[(real.events["round"] == 40) & (real.events["kind"] == "compute")]
    assert 0 not in set(last["agent"])


@pytest.mark.parametrize("algorithm", ["fedavg", "dsgd"])
def test_ctrl_c_leaves_a_readable_run(tmp_path, algorithm):
    network = {"topology": "ring"} if algorithm == "dsgd" else {}
    given = scenario(algorithm, rounds=500, network=network)
    stop = Stroke(lambda: os.kill(os.getpid(), signal.SIGINT))
    real = deploy(given, out=tmp_path / "run", progress=stop)
    assert (real.status, real.manifest["reason"]) == ("stopped", "interrupted by Ctrl-C")
    kept = desim.open(tmp_path / "run")
    assert len(kept.metrics) > 0
    assert kept.events["time"].is_monotonic_increasing


def test_strangers_are_refused_and_the_run_goes_on(monkeypatch):
    found = []
    listen = fleet.Fleet.listen

    def visited(self):
        port = listen(self)
        for text in (
            b"GET / HTTP/1.0\r\n\r\n" * 10,
            b"ds\x02\x00" + bytes(60),
            b"ds\x63" + bytes(60),
        ):
            visitor = socket.create_connection(("127.0.0.1", port))
            visitor.sendall(text)
            found.append(visitor)
        return port

    monkeypatch.setattr(fleet.Fleet, "listen", visited)
    real = deploy(scenario())
    assert real.status == "done"
    text = " ".join(real.manifest["warnings"])
    for words in ("where a frame begins", "a wrong token", "found protocol 99"):
        assert words in text
    for visitor in found:
        assert visitor.recv(1) == b""
        visitor.close()


def test_no_port_of_an_agent_is_open_while_time_counts():
    ports, found = [], []

    def look():
        for port in ports:
            with socket.socket() as one:
                found.append(one.connect_ex(("127.0.0.1", port)))

    def known(fleet):
        begin(fleet)
        ports.extend(fleet.ports.values())

    begin = fleet.Fleet.start
    given = scenario("dsgd", network={"topology": "ring"}, rounds=100)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet.Fleet, "start", known)
        assert deploy(given, progress=Stroke(look)).status == "done"
    assert found == [errno.ECONNREFUSED] * 4


def test_budgets_retire_the_same_agents():
    noise = {"phi": 1e-2, "growth": 0.99}
    private = {"noise": noise, "budget": 1.0, **PRIVATE}
    ring = {"topology": "ring"}
    given = scenario("zcdp-nfl", 60, network=ring, problem={"clip": 1.0}, privacy=private)
    for real in (desim.run(given), deploy(given)):
        assert real.manifest["reason"] == "privacy.budget: every agent has retired"
        assert any("4 of 4 agents retired" in text for text in real.manifest["warnings"])
    star = scenario("fed-plt", 60, algorithm={"local": NOISY}, problem={"clip": 1.0})
    simulated, real = same({**star, "privacy": {"budget": 15.0, **PRIVATE}})
    assert real.manifest["rounds"] == simulated.manifest["rounds"] < 60


@pytest.mark.parametrize(
    ("rounds", "met", "now", "end"),
    [(3, None, 0.31, 0.3), (3, None, 0.29, 0.28), (5, None, 0.31, 0.28), (3, "loss", 0.31, 0.28)],
)
def test_a_program_that_finds_its_time_over_ends_then(rounds, met, now, end):
    observer = SimpleNamespace(latest=0.28, rounds=rounds, rows=SimpleNamespace(met=met))
    settings = SimpleNamespace(rounds=5, horizon=0.3)
    world = SimpleNamespace(observer=observer, settings=settings)
    assert station._ended(SimpleNamespace(world=world, now=now)) == end


@pytest.mark.parametrize("method", ["fedavg", "dsgd"])
@pytest.mark.slow
def test_a_run_ends_at_its_time_or_its_target(method):
    network = {"topology": "ring"} if method == "dsgd" else {}
    given = scenario(method, network=network)
    timed = deploy({**given, "stop": {"time": "300 ms"}})
    assert timed.manifest["time"] == 0.3
    assert timed.events["time"].max() <= 0.3
    start = timed.metrics[timed.metrics["agent"] == -1]["value"].iloc[0]
    met = deploy({**given, "stop": {"metric": {"loss": 0.9 * float(start)}, "rounds": 500}})
    assert met.manifest["reason"].startswith("stop.metric: loss")
    last = met.metrics[met.metrics["agent"] == -1].iloc[-1]
    assert last["value"] <= 0.9 * start
    assert last["time"] == met.manifest["time"]


REFUSED = {
    "central": (scenario("gradient-descent", problem={"agents": 1}), "nobody to talk to"),
    "churn": (scenario(churn={"up": "1 s", "down": "1 s"}), "churn: found a section"),
    "radio": (
        scenario("dsgd", network={"topology": "ring", "medium": "shared"}),
        "TCP has no message to all",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_deployed_is_refused(name, tmp_path):
    given, words = REFUSED[name]
    given.pop("participation", None)
    with pytest.raises(InputError, match=words):
        deploy(given, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_directory_in_use_is_refused_at_once(tmp_path):
    deploy(scenario(rounds=1), out=tmp_path / "run")
    began = time.monotonic()
    with pytest.raises(InputError, match="is not empty"):
        deploy(scenario(rounds=1), out=tmp_path / "run")
    assert time.monotonic() - began < 5.0


def test_an_error_of_a_job_is_told():
    given = scenario("fedavg", algorithm={"local": {"solver": "gradient", "step": 1e200}})
    with pytest.raises(RunError, match="diverged"):
        deploy(given)


def test_a_congestion_control_that_is_refused_is_told_on_loopback():
    tcp = {"tcp": {"congestion": "bbr"}}
    given = scenario(network={"link": {"transport": tcp}})

    def refuse(self, sock):
        if self.transport.congestion is not None:
            raise PermissionError(1, "Operation not permitted")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place_module.Loopback, "_tune", refuse)
        real = deploy(given)
    assert real.status == "done"
    assert any("bbr is refused here" in text for text in real.manifest["warnings"])
