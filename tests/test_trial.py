"""The job that agents play before the clock starts: it is the first one, and leaves nothing."""

import secrets
import time
from collections import defaultdict
from contextlib import nullcontext
from types import SimpleNamespace

import numpy as np
import pytest
from cases import CASES, GRAPH, STAR, one_each
from test_consent import PRIVATE, RING
from test_deploy import GRAPHS, STARS, deploy, plain, released, same  # noqa: F401

from desim.deployments import client, deployed, fleet
from desim.errors import InputError, RunError
from desim.runs.recording import prepare
from desim.scenario.load import load


class Noted(client.World):
    """A world that notes which jobs are run on it."""

    def work(self, job, us, *inputs):
        own = us.who.tolist(), us.round.tolist(), [one.copy() for one in inputs]
        self.__dict__.setdefault("jobs", []).append((job, *own))
        return super().work(job, us, *inputs)


def played(monkeypatch, simulation, agent=1):
    """The world of agent 1's trial, which must not go wrong, and what `warm` has found."""
    asked, worlds = deployed.warm(simulation), []

    def made(*about):
        worlds.append(Noted.alone(*about))
        return worlds[-1]

    with monkeypatch.context() as patch:
        patch.setattr(client, "World", SimpleNamespace(alone=made))
        patch.setattr(client, "suppress", lambda *_: nullcontext())
        patch.setattr(secrets, "randbits", None)
        patch.setattr(client, "gc", SimpleNamespace(collect=lambda: None))  # of an agent's process
        place = SimpleNamespace(agent=agent, keys=defaultdict(lambda: bytes(8)))
        client.rehearse(place, simulation.settings, simulation.method, asked, asked.opening)
    return worlds[0], asked


@pytest.mark.parametrize("name", one_each(n for n in [*STAR, *GRAPH] if "network" in CASES[n]))
def test_every_method_has_a_first_job(name, monkeypatch):
    """It is the agent's own, of the first round; what connections remember stays as it was."""
    simulation = prepare(load(CASES[name])).simulation
    try:
        deployed.refuse(simulation)
    except InputError:
        return
    before = {key: each.copy() for key, each in simulation.settings.connections.items()}
    world, _ = played(monkeypatch, simulation)
    assert world.jobs
    assert all((who, rounds) == ([1], [1]) for _, who, rounds, _ in world.jobs)
    for key, memory in before.items():
        np.testing.assert_array_equal(memory, simulation.settings.connections[key])


def test_it_is_the_first_call_of_the_coordinators_program(monkeypatch):
    world, asked = played(monkeypatch, prepare(load(STARS["fedavg"])).simulation)
    [(job, _, _, [payload])] = world.jobs
    assert job == asked.opening.job
    np.testing.assert_array_equal(payload[0], asked.opening.payload_of(1))


@pytest.mark.parametrize("name", GRAPHS)
def test_an_agent_of_a_graph_hears_itself(name, monkeypatch):
    """So the whole first round is played: messages go out, are read and used, coded or not."""
    heard, gather = [], client.Peer._gather

    def noted(self, request):
        heard.append(gather(self, request))
        return heard[-1]

    monkeypatch.setattr(client.Peer, "_gather", noted)
    played(monkeypatch, prepare(load(GRAPHS[name])).simulation)
    values = heard[0].values
    assert len(values) == 2 + (name == "fewer bits than values")
    assert heard[0].fresh.all()
    assert (values == values[0]).all()


def counted(run):
    """How many rows of each kind, agent, round and size a run has."""
    columns = ["kind", "agent", "peer", "round", "bytes", "release"]
    return run.events[columns].value_counts().sort_index()


@pytest.mark.parametrize("given", [PRIVATE, RING], ids=["star", "graph"])
def test_private_agents_use_nothing_up(given, monkeypatch):
    """With noise of one secret seed: the same releases with and without a trial before."""
    monkeypatch.setattr(secrets, "randbits", lambda bits: 7)
    one = deploy(given)
    monkeypatch.setattr(deployed, "rehearse", lambda *_: None)
    other = deploy(given)
    assert (one.status, other.status) == ("done", "done")
    assert counted(one).equals(counted(other))
    assert released(one).equals(released(other))
    assert (one.model is None) == (other.model is None)
    assert one.model is None or np.array_equal(one.model, other.model)


def test_a_trial_that_uses_addresses_up_is_noticed(monkeypatch):
    """The mutant: the agent's own consent is what the trial has asked."""
    consents, consent = [], client.Consent

    def only(*about):
        consents.append(consents[0] if consents else consent(*about))
        return consents[-1]

    monkeypatch.setattr(client, "Consent", only)
    with pytest.raises(RunError, match="found a state after a call; allowed: before"):
        deploy(PRIVATE)


def test_a_trial_on_the_agents_own_world_is_noticed(monkeypatch):
    """The mutant: the run goes on with the log and the ledger that the trial has left."""
    worlds, world = [], client.World

    def left(*about):
        worlds.append(world.alone(*about))
        return worlds[-1]

    def taken(settings, observer):
        worlds[-1].settings, worlds[-1].observer = settings, observer
        return worlds[-1]

    monkeypatch.setattr(client, "World", SimpleNamespace(alone=left))
    monkeypatch.setattr(client.Soliloquist, "hand_over", lambda *_, **__: None)
    same(GRAPHS["dsgd"])
    monkeypatch.setattr(deployed, "World", SimpleNamespace(alone=taken))
    with pytest.raises(AssertionError):
        same(GRAPHS["dsgd"])


def test_a_trial_that_goes_wrong_says_nothing(monkeypatch):
    """The same happens in the run, and is told there."""
    simulation, tried = prepare(load(STARS["fedavg"])).simulation, []
    asked = deployed.warm(simulation)

    def wrong(*_):
        tried.append(1)
        raise RunError("a job of no use")

    monkeypatch.setattr(client, "_call", wrong)
    place = SimpleNamespace(agent=1, keys={})
    client.rehearse(place, simulation.settings, simulation.method, asked, asked.opening)
    assert tried


def test_a_first_job_takes_what_it_takes(monkeypatch):
    """Patience is for agents that are silent: how long a job takes, nobody knows beforehand."""
    rehearse = deployed.rehearse

    def slowly(*about):
        time.sleep(0.5)
        rehearse(*about)

    monkeypatch.setattr(deployed, "rehearse", slowly)
    monkeypatch.setattr(fleet, "PATIENCE", 0.3)
    assert deploy(STARS["fedavg"]).status == "done"
