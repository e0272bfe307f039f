"""Connections of a deployed graph: one for each direction of a link, as the law of TCP has it."""

import socket
from types import SimpleNamespace

import numpy as np
import pytest

from desim.deployments import namespaces
from desim.deployments import peer as peer_module
from desim.deployments.linked import Carrier, refusal
from desim.deployments.namespaces import Line, Link, Plan
from desim.deployments.peer import PeerPost


class Place:
    """Notes whom an agent connects to."""

    agent = 2

    def __init__(self, kept):
        self.network = SimpleNamespace(transport=SimpleNamespace(connection=kept), peers=None)
        self.called, self.greeted_by, self.greeted, self.waited = [], [], {}, []

    def connect(self, to, port):
        self.called.append((to, port))
        return to

    def greet(self, stream):
        self.greeted_by.append(stream)

    def wait_for(self, done):
        """Agents 3 and 4 have called, then 1: what had been called whenever it was not enough."""
        for caller in (3, 4, 1):
            self.greeted[caller] = object()
            if done():
                return
            self.waited.append(list(self.greeted_by))
        raise AssertionError


def test_an_agent_calls_all_that_its_links_lead_to():
    """On links 2>0, 2>1, 2>3 and 1>2, 3>2, 4>2: 3 at once, 0 and 1 once 1 has called, and not 4.

    Who calls a host answers nobody meanwhile, so that two that called each other would wait on.
    """
    post = PeerPost.__new__(PeerPost)
    graph = SimpleNamespace(
        outgoing=np.array([0, 0, 0, 3]), out_links=np.arange(3), target=np.array([3, 0, 1])
    )
    post.place, post.graph, post.i, post.sources, post.lines = (
        Place("kept"),
        graph,
        2,
        [1, 3, 4],
        {},
    )
    ports = {"ports": [50, 51, 52, 53, 54], "places": {}}
    message, peer = SimpleNamespace(fields=ports), SimpleNamespace(post=post, place=post.place)
    peer_module._hear_ports(peer, message)
    peer_module._meet(peer)
    assert post.place.called == [(j, 50 + j) for j in (3, 0, 1)]
    assert post.place.greeted_by == [3, 0, 1] == list(post.lines)
    assert post.place.waited == [[3], [3]]
    assert post.near == [0, 1, 3, 4]


@pytest.mark.skipif(refusal() is not None, reason="no network namespaces here")
def test_a_message_is_handed_over_whole():
    """Its sender's buffer holds it: nobody has to have a turn in time while it is on its way."""
    with Carrier(Plan((Link(-1, 0, Line(), Line()),))) as links, links.socket(0) as end:
        most = int(namespaces.BUFFERS["ipv4/tcp_wmem"].split()[2])
        assert end.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == most
