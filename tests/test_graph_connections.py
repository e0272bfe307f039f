"""Connections of a deployed graph: one for each direction of a link, as the law of TCP has it."""

import socket
from types import SimpleNamespace

import numpy as np
import pytest

from desim.deployments import namespaces, overseer
from desim.deployments.carrier import Carrier, refusal
from desim.deployments.lines import Line, Link, Plan
from desim.deployments.peer import PeerPost


class Place:
    """Notes whom an agent connects to."""

    agent = 2

    def __init__(self, kept):
        self.ground = SimpleNamespace(transport=SimpleNamespace(connection=kept), peers=None)
        self.called, self.greeted_by = [], []

    def connect(self, to, port):
        self.called.append((to, port))
        return to

    def greet(self, stream):
        self.greeted_by.append(stream)


@pytest.mark.parametrize(("kept", "called"), [("kept", [0, 1, 3]), ("new", [])])
def test_an_agent_calls_all_that_its_links_lead_to(kept, called):
    """On links 2>0, 2>1, 2>3 and 3>2, 4>2: smaller numbers as well as larger, and not agent 4."""
    post = PeerPost.__new__(PeerPost)
    graph = SimpleNamespace(
        outgoing=np.array([0, 0, 0, 3]), out_links=np.arange(3), target=np.array([3, 0, 1])
    )
    post.place, post.graph, post.i, post.sources, post.lines = Place(kept), graph, 2, [3, 4], {}
    ports = {"ports": [50, 51, 52, 53, 54], "places": {}}
    message, peer = SimpleNamespace(fields=ports), SimpleNamespace(post=post, place=post.place)
    overseer._meet(peer, message, set())
    assert post.place.called == [(j, 50 + j) for j in called]
    assert post.place.greeted_by == called == list(post.lines)
    assert post.near == [0, 1, 3, 4]


@pytest.mark.skipif(refusal() is not None, reason="no network namespaces here")
def test_a_message_is_handed_over_whole():
    """Its sender's buffer holds it: nobody has to have a turn in time while it is on its way."""
    with Carrier(Plan((Link(-1, 0, Line(), Line()),))) as links, links.socket(0) as end:
        most = int(namespaces.BUFFERS["ipv4/tcp_wmem"].split()[2])
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == most
