"""A training told under other networks is that of the scenario played afresh, to the last bit."""

import re

import pytest
from cases import CASES, LOSSY, deadline, graph, merged, one_each, star
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import blind, retimed
from desim.errors import Deadlock, InputError
from desim.methods.fed_plt import FedPLT
from desim.runs import retime

NETWORKS = {
    "slow": {"link": {"latency": "2 s", "bandwidth": "20 kbit/s"}},
    "ideal": {"link": {"latency": "0 s", "bandwidth": "inf"}},
    "jittery": {"link": {"latency": {"uniform": [0.001, 0.4]}, "jitter": {"lognormal": 1.0}}},
    "lossy": LOSSY,
    "satellite": "satellite",
}
METHODS = {
    "fed-plt": star(
        algorithm={"name": "fed-plt", "rho": 0.5, "local": {"solver": "noisy", "tau": 0.05}},
        problem={"clip": 1.0},
        participation={"uniform": 4},
    ),
    "zcdp-nfl": graph(),
    "q-dpsgd-1": deadline(),
}
DEVICES = {"speed": {"lognormal": [300, 0.7]}, "redraw": "round"}


def afresh(run, network=None, compute=None):
    return desim.run(retime.under(run.scenario, network, compute))


def told(run, network=None, compute=None):
    """What differs between a run told again and the scenario played afresh."""
    new = desim.retime(run, network, compute)
    return differences(new, afresh(run, network, compute))


@pytest.mark.thin(3)
@pytest.mark.parametrize("network", NETWORKS)
@pytest.mark.parametrize("name", METHODS)
def test_a_run_told_again_is_the_run_played_afresh(name, network):
    trained = desim.run(METHODS[name])
    new = desim.retime(trained, NETWORKS[network])
    assert differences(new, afresh(trained, NETWORKS[network])) == []
    assert new.manifest["time"] != trained.manifest["time"]
    assert new.iterates.tobytes() == trained.iterates.tobytes()


KINDS = (
    "plt-all plt-sgd-half plt-exact plt-increments-all plt-lossy plt-target plt-budget-stop "
    "plt-softmax plt-every nfl-lossy nfl-budget nfl-every nfl-mlp subgradient p-admm qsgd-budget "
    "q2sgd sdm-dsgd dsgd-budget dp-admm-budget gd-budget tamuna-masks led led-graph-noisy 5gcs-sgd "
    "fed-pd fedlin-half fedavg scaffold-noisy d-zoa or-zo zoo-admm pvp m-admm pr-admm "
    "pp-admm-budget fm pdfc"
).split()


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", one_each(name for name in KINDS if name in CASES))
def test_every_kind_of_method_can_be_told_again(name):
    trained = desim.run(CASES[name])
    assert told(trained, None if trained.scenario.network.topology == "none" else LOSSY) == []


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", ["fed-plt", "zcdp-nfl"])
def test_devices_can_change_too(name):
    assert told(desim.run(METHODS[name]), NETWORKS["jittery"], DEVICES) == []
    assert told(desim.run(METHODS[name]), None, "stragglers") == []


def test_a_network_file_with_devices_is_refused_without_them():
    trained = desim.run(METHODS["fed-plt"])
    with pytest.raises(InputError, match=r"network: found stragglers, .* allowed: compute strag"):
        desim.retime(trained, network="stragglers")
    assert desim.retime(trained, network="stragglers", compute="stragglers").events.size


@pytest.mark.thin(2)
@pytest.mark.parametrize("name", METHODS)
def test_the_agent_engine_tells_the_same(name):
    trained = desim.run(METHODS[name], overrides={"engine": "agents"})
    assert told(trained, NETWORKS["jittery"]) == []


WRONG = [
    (retimed, "observer.publish(time, k,", "observer.publish(time, k - 1,", "plt-every"),
    (retimed, "dates[round_] = time", "dates[round_ - 1] = time", "plt-all"),
    (retimed, "observer.leave(agent, time)", "pass", "nfl-budget"),
    (blind, "*inputs, **duration", "*inputs, work=2.0", "nfl-lossy"),
    (blind, "us.clock[live], us", "0.5 * us.clock[live], us", "nfl-every"),
]


@pytest.mark.parametrize(("module", "right", "wrong", "name"), WRONG)
def test_a_wrong_tale_is_noticed(monkeypatch, module, right, wrong, name):
    trained, broken = desim.run(CASES[name]), mutant(module, right, wrong)
    for user, part in ((retime, "Training"), (retimed, "BlindMethod")):
        if hasattr(broken, part):
            monkeypatch.setattr(user, part, getattr(broken, part))
    with pytest.raises((InputError, AssertionError, IndexError)):
        assert told(trained, LOSSY) == []


def test_nothing_is_trained_again(monkeypatch):
    trained, calls = desim.run(METHODS["fed-plt"]), []
    train = FedPLT.train
    monkeypatch.setattr(FedPLT, "train", lambda *given: calls.append(1) or train(*given))
    for network in NETWORKS.values():
        desim.retime(trained, network)
    assert len(calls) == 1  # for the shape of the replies
    desim.run(METHODS["fed-plt"], overrides={"engine": "agents"})
    assert len(calls) == 1 + trained.manifest["rounds"]


def test_a_stored_run_becomes_another_stored_run(tmp_path):
    trained = desim.run(METHODS["zcdp-nfl"], out=tmp_path / "a")
    new = desim.retime(desim.open(tmp_path / "a"), NETWORKS["slow"], out=tmp_path / "b")
    assert differences(desim.open(tmp_path / "b"), afresh(trained, NETWORKS["slow"])) == []
    again = desim.retime(desim.open(tmp_path / "b"), NETWORKS["jittery"])
    assert differences(again, afresh(trained, NETWORKS["jittery"])) == []
    told_of = new.manifest["retimed"]["scenario_sha256"]
    assert told_of == trained.manifest["scenario_sha256"] != new.manifest["scenario_sha256"]
    with pytest.raises(InputError, match="not empty"):
        desim.retime(trained, NETWORKS["slow"], out=tmp_path / "b")


def test_time_that_suffices_is_no_reason_to_refuse():
    trained = desim.run(merged(METHODS["zcdp-nfl"], {"stop": {"rounds": 6, "time": "30 s"}}))
    assert told(trained, NETWORKS["jittery"]) == []
    with pytest.raises(InputError, match=r"stop\.time: the run would need"):
        desim.retime(trained, {"link": {"latency": "9 s"}})


def test_a_run_that_fails_there_fails_in_the_same_words():
    gone = {"link": {"loss": "50 %", "limit": 1}}
    trained = desim.run(METHODS["fed-plt"])
    with pytest.raises(Deadlock) as here:
        desim.retime(trained, gone)
    with pytest.raises(Deadlock) as fresh:
        afresh(trained, gone)
    assert str(here.value) == str(fresh.value)
    assert here.value.run.events.equals(fresh.value.run.events)
    assert here.value.run.metrics.equals(fresh.value.run.metrics)


CLOCKED = """
from desim.methods.zcdp_nfl import ZcdpNfl
class Clocked(ZcdpNfl):
    name = "clocked"
    def agents(self, us):
        before = us.clock
        yield from super().agents(us)
"""

LOOKING = """
from desim.methods.zcdp_nfl import ZcdpNfl
class Looking(ZcdpNfl):
    name = "NAME"
    def __init__(self, ingredients):
        super().__init__(ingredients)
        self.known = self.settings.NAME
"""


@pytest.fixture
def plugins(tmp_path):
    texts = {name: LOOKING.replace("NAME", name) for name in ("speeds", "links")}
    for name, text in (texts | {"clocked": CLOCKED}).items():
        (tmp_path / f"{name}.py").write_text(text)
    own = {name: tmp_path / f"{name}.py" for name in ("clocked", *texts)}
    return own | {"hearsay": "tests/plugins/gossip.py"}


GOSSIP = {"name": "hearsay", "step": 0.05}
REFUSED = [
    (star(policy={"deadline": "120 ms"}), {}, "policy.deadline: who is heard"),
    (star(policy="each"), {}, "policy.each: who is heard"),
    (graph(policy={"deadline": "90 ms"}), {}, "policy.deadline: who is heard"),
    (star(stop={"time": "1 s"}), {}, "stop.time: the run ended by time"),
    (graph(stop={"metric": {"error": 5.0}}), {}, "stop.metric.error: it stops all agents"),
    (star(churn={"up": "3 s", "down": "1 s"}), {}, "churn: which computations"),
    (graph(observe={"iterates": False}), {}, "observe.iterates: found false; metrics of a graph"),
    (star(observe={"iterates": False, "every": "1 s"}), {}, "observe.iterates: found false; met"),
    (CASES["ipp-admm"], {}, "algorithm: its agents decide by values"),
    (deadline(), {"compute": DEVICES}, "compute: its agents do as much as their speeds allow"),
    (graph(), {"network": {"topology": "ring"}}, "network.topology: another topology"),
    (graph(), {"network": {"link": {"latncy": 1}}}, "did you mean 'latency'"),
    (graph(), {"network": "nowhere"}, "network: found 'nowhere'"),
    (graph(), {"compute": "nowhere"}, "compute: found 'nowhere'"),
    (star(), {"compute": "wifi"}, "compute: wifi has no section compute"),
    (graph(algorithm={**GOSSIP, "wait": 0.03}), {}, "algorithm: what its agents hear in time"),
    (graph(algorithm={**GOSSIP, "quiet": "small"}), {}, "do not come out again without its values"),
    (graph(algorithm={"name": "clocked", "rho": 0.4, "eta": 0.2}), {}, "looks at the clock"),
    (graph(algorithm={"name": "links", "rho": 0.4, "eta": 0.2}), {}, "it looks at the links"),
    (
        graph(algorithm={"name": "speeds", "rho": 0.4, "eta": 0.2}),
        {"compute": DEVICES},
        "compute: its agents do as much as their speeds allow",
    ),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("scenario", "conditions", "reason"), REFUSED)
def test_what_delays_change_is_refused_with_the_reason(plugins, scenario, conditions, reason):
    name = scenario["algorithm"]["name"]
    if name in plugins:
        scenario = {**scenario, "plugins": [plugins[name]]}
    if name == "hearsay":
        del scenario["privacy"]
    trained = desim.run(scenario)
    with pytest.raises(InputError, match=re.escape(reason)):
        desim.retime(trained, **conditions or {"network": {}})


def test_a_run_without_iterates_keeps_its_metrics_where_they_follow_the_rounds():
    plain = {"observe": {"iterates": False}}
    assert told(desim.run(star(**plain)), NETWORKS["jittery"]) == []
    seen = {"observe": {"iterates": False, "every": "80 ms", "metrics": ["loss"]}}
    assert told(desim.run(star(**seen)), NETWORKS["jittery"]) == []
    unseen = {"observe": {"iterates": False, "metrics": []}}
    assert told(desim.run(graph(**unseen)), NETWORKS["jittery"]) == []
