"""What a deployment's agents keep: nothing leaves their processes but what they release."""

import os

import numpy as np
import pytest
from test_deploy import NOISY, PROBLEM, deploy, plain, scenario  # noqa: F401

from desim.deployments import client, deployed, peer, place, station, streams
from desim.deployments import formats as wire_module
from desim.errors import InputError


class Wire:
    """What comes from agents, as rows of numbers, and in files what these had to themselves."""

    def __init__(self, monkeypatch, folder):
        self.folder, self.came = folder, []
        keep, own, report = self.keep, client.Client._own, peer.Watched.report
        posted, wire, here = peer.PeerPost.send, self, os.getpid()

        class Heard(streams.Unpacking):
            def feed(self, data):
                for message in super().feed(data):
                    wire.came += message.arrays.values()
                    yield message

        class Framed(place.Framing):
            def feed(self, data):
                for frame in super().feed(data):
                    if os.getpid() == here:
                        keep("released", wire_module.values_of(frame.body))
                    yield frame

        def own_kept(self):
            state = own(self)
            keep("state", *state.values())
            return state

        def report_kept(self, models):
            keep("state", models)
            report(self, models)

        def posted_kept(self, us, payload, *rest):
            keep("released", payload)
            posted(self, us, payload, *rest)

        monkeypatch.setattr(streams, "Unpacking", Heard)
        monkeypatch.setattr(place, "Framing", Framed)
        monkeypatch.setattr(client.Client, "_own", own_kept)
        monkeypatch.setattr(peer.Watched, "report", report_kept)
        monkeypatch.setattr(peer.PeerPost, "send", posted_kept)

    def keep(self, kind, *arrays):
        with (self.folder / kind).open("ab") as file:
            for array in arrays:
                file.write(np.asarray(array, float).tobytes())

    def rows(self, kind):
        dim = PROBLEM["data"]["dim"]
        return {row.tobytes() for row in np.fromfile(self.folder / kind).reshape(-1, dim)}

    @property
    def unreleased(self):
        """Rows that agents had to themselves and that came nevertheless; all others, too."""
        dim = PROBLEM["data"]["dim"]
        came = [rows for rows in self.came if rows.dtype == float and rows.shape[-1:] == (dim,)]
        private = self.rows("state") - self.rows("released") - {np.zeros(dim).tobytes()}
        return private & {row.tobytes() for rows in came for row in rows.reshape(-1, dim)}, private


SIGMA = {"noise": {"kind": "gaussian", "sigma": 2.0}}
RESERVED = {
    "noise on models": scenario(
        "dp-admm", 2, algorithm={"rho": 1.0, "eta": 0.5}, problem={"clip": 1.0}, privacy=SIGMA,
        observe={"metrics": ["loss", "consensus"]},
    ),
    "noise inside": scenario(
        "fed-plt", 2, algorithm={"local": NOISY}, problem={"clip": 1.0}, privacy={}
    ),
    "graph": scenario(
        "zcdp-nfl", 2, network={"topology": "ring"}, problem={"clip": 1.0}, privacy=SIGMA
    ),
    "graph that keeps models": scenario(
        "choco-sgd", 2, network={"topology": "ring"}, problem={"clip": 1.0}, privacy=SIGMA
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", RESERVED)
def test_what_an_agent_does_not_release_does_not_leave_its_process(name, monkeypatch, tmp_path):
    wire = Wire(monkeypatch, tmp_path)
    run = deploy(RESERVED[name])
    came, private = wire.unreleased
    assert run.status == "done"
    assert not came
    assert private
    assert run.account().worst < np.inf
    assert set(run.state) == {"released"}
    assert {row.tobytes() for row in run.state["released"]} <= wire.rows("released")
    said = " ".join(run.manifest["warnings"])
    if name == "graph":
        assert {row.tobytes() for row in run.iterates[1:].reshape(-1, 4)} <= wire.rows("released")
        assert set(run.metrics["metric"]) == {"loss"}
    else:
        assert run.iterates is None
    if name == "graph that keeps models":
        assert "agents release no model" in said
    if name == "noise on models":
        assert "consensus and iterates are of models that agents keep" in said
        assert set(run.metrics["metric"]) == {"loss"}


def test_the_old_letters_are_found(monkeypatch, tmp_path):
    """The mutants: agents that tell their states, and models as the method reports them."""
    wire = Wire(monkeypatch, tmp_path)
    monkeypatch.setattr(
        station, "Client", lambda place, world, method, _: client.Client(place, world, method)
    )
    deploy(RESERVED["noise on models"])
    assert wire.unreleased[0]
    wire.came.clear()
    monkeypatch.setattr(deployed, "Reserved", peer.Witness)
    deploy(RESERVED["graph"])
    assert wire.unreleased[0]


def test_targets_of_models_that_agents_keep_are_refused():
    given = scenario(
        "fed-plt", algorithm={"local": NOISY}, problem={"clip": 1.0}, privacy={},
        stop={"metric": {"consensus": 1e-3}}, observe={"metrics": ["consensus"]},
    )  # fmt: skip
    with pytest.raises(
        InputError, match=r"stop.metric: found consensus, .* agents with noise keep"
    ):
        deploy(given)
