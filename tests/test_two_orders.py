"""Of two messages that come at one time chance has the first: what is said of them is the same."""

from contextlib import nullcontext
from itertools import islice
from types import SimpleNamespace

import numpy as np
import pytest

from desim.deployments import edge_server, peer, station
from desim.deployments.formats import REPLY, Frame, Message, Torn
from desim.deployments.station import Sent
from desim.errors import RunError

KILLED = "was killed by signal 9 (SIGKILL)"


def desk(kind="all", pending=(1, 1, 1), round_=3):
    """A coordinator's station with calls 1 to 3 of a round to agents 0 to 2, and what it said."""
    one, said = object.__new__(station.Station), []
    policy = SimpleNamespace(kind=kind, limited=False, at_least=0, least=lambda n: n)
    one.world = SimpleNamespace(
        settings=SimpleNamespace(policy=policy, problem=SimpleNamespace(agents=3)),
        caution=said.append, filter=None, ledger=SimpleNamespace(charge_one=lambda *_: None),
    )  # fmt: skip
    calls = SimpleNamespace(
        pending=np.array(pending), round_=np.full(3, 1) * round_, due=np.full(3, np.inf)
    )
    one.hub = SimpleNamespace(calls=calls, round=np.max(round_))
    one.fleet = SimpleNamespace(dead={}, now=1.0, alive=[0])
    one.fleet.wait = lambda until: False
    one.sent = {i + 1: Sent(i, 3, 0, 16, 16, 0.1) for i in range(3)}
    one.latest, one.closed, one._came, one._synced = [1, 2, 3], None, 0.0, np.zeros(3)
    one.arrived, one.after, one.lost, one.fell = set(), set(), set(), {}
    one.settle = lambda number: None
    return one


def dies(one, agent):
    one.fleet.dead[agent] = KILLED
    one._bury(agent)


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_that_die_at_once_the_same_is_named(order):
    one = desk()
    for agent in order:
        dies(one, agent)
    words = r"nobody can go on: agent 1 .* in round 3, and policy all waits for it and 1 more"
    with pytest.raises(RunError, match=words):
        one._require_alive()


def test_who_is_waited_for_is_named_and_the_round_in_which_it_died():
    """Agent 2 died when nobody waited for it, agent 1 in round 3, and now it is round 5."""
    one = desk(pending=(1, 1, 0))
    dies(one, 2)
    dies(one, 1)
    one.hub.round = 5
    with pytest.raises(RunError, match=r"agent 1 .* in round 3, and policy all waits for it$"):
        one._require_alive()


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("reply_first", [True, False])
def test_who_dies_before_its_numbers_are_here_has_not_replied(inside, reply_first):
    """A reply is here with its frame, or once its report is, if that has the numbers."""
    one = desk()
    frame = Frame(REPLY, 1, 2, body=bytes(16), inside=inside)
    if reply_first:
        one._receive(frame, 0.5)
    dies(one, 1)
    assert (1 in one.arrived, 1 in one.lost) == (
        inside and reply_first,
        not (inside and reply_first),
    )
    if not (inside and reply_first):
        words = "nobody can go on: agent 1 .* in round 3, and policy all waits for it"
        with pytest.raises(RunError, match=words):
            one._require_alive()


@pytest.mark.parametrize("inside", [True, False])
def test_a_reply_after_a_deadline_is_here_with_its_numbers_too(inside):
    """It waits for the next collection, which its agent's death does not make hopeless."""
    one = desk("deadline")
    one.world.settings.policy.limited = one.world.settings.policy.at_least = 3
    one.world.settings.policy.least = lambda awaited: min(3, awaited)
    one._receive(Frame(REPLY, 1, 2, body=bytes(16), inside=inside), 0.5)
    one.arrived, one.after = set(), one.arrived
    dies(one, 1)
    assert (one.after, one.lost) == (({1}, set()) if inside else (set(), {1}))
    with nullcontext() if inside else pytest.raises(RunError, match="policy deadline waits"):
        one._require_alive()


def test_of_a_quorum_none_of_an_earlier_round_is_waited_for():
    """Agent 0 owes a reply to round 1, which it never will send, and nobody waits for that."""
    one = desk("quorum", round_=np.array([1, 3, 3]))
    dies(one, 0)
    dies(one, 1)
    with pytest.raises(RunError, match=r"agent 1 .*, and policy quorum waits for it$"):
        one._require_alive()


def test_a_reply_that_was_told_elsewhere_is_here_with_its_report():
    one = desk()
    one._receive(Frame(REPLY, 1, 2, body=bytes(16), inside=False), 0.5)
    one.sent[2].report = Message("done", {}, {"reply": np.ones(2)})
    dies(one, 1)
    assert one.arrived == {1}
    np.testing.assert_array_equal(one._values(1), np.ones(2))


def test_the_words_are_those_of_a_death_where_a_collection_has_closed():
    one = desk()
    one._receive(Frame(REPLY, 1, 2, body=bytes(16), inside=False), 0.5)
    one.arrived.clear()  # it was taken
    one.fleet.wait = lambda until: dies(one, 1)
    with pytest.raises(
        RunError, match=r"nobody can go on: agent 1 .* in round 3, and its reply is"
    ):
        one._values(1)


@pytest.mark.parametrize("reply_first", [True, False])
def test_a_reply_to_a_call_that_was_given_up_is_refused_in_one_way(reply_first):
    one, given_up = desk(), Message("aborted", {"number": 2}, {})
    acts = [lambda: one._receive(Frame(REPLY, 1, 2, body=bytes(16)), 0.5),
            lambda: one._report(1, given_up)]  # fmt: skip
    first, second = acts if reply_first else acts[::-1]
    first()
    with pytest.raises(Torn, match="both a reply to a call and word that it was given up"):
        second()


def test_an_edge_hears_what_was_here_of_a_member_before_it_misses_it():
    """Word of a member's death, on another connection, may be read before its last reply."""
    said, line = [], object()
    server = object.__new__(edge_server.Server)
    server.place = SimpleNamespace(
        greeted={7: line}, read=lambda lines: said.append("reply"), drop=lambda one: None
    )
    members = SimpleNamespace(bury=lambda node, how: said.append(how))
    server.edge = SimpleNamespace(station=SimpleNamespace(fleet=members))
    server._miss(7, KILLED)
    server._miss(7, KILLED)
    assert said == ["reply", KILLED, KILLED]


def overseer(kind="all"):
    one = object.__new__(peer.Overseer)
    policy = SimpleNamespace(kind=kind, limited=False, at_least=0)
    observer = SimpleNamespace(
        leave=lambda agent, now: None, failed=None, rows=SimpleNamespace(reached=None)
    )
    one.world = SimpleNamespace(
        settings=SimpleNamespace(policy=policy, horizon=9.0, targets=()),
        caution=lambda text: None, observer=observer,
    )  # fmt: skip
    one.fleet = SimpleNamespace(dead={}, now=1.0, agents=3, origin=0.0, wait=lambda until: None)
    one.finished, one.settled = {}, np.zeros(3)
    return one


def test_who_had_finished_before_it_died_is_not_blamed():
    one = overseer()
    one.finished[0] = 0.9
    dies(one, 0)
    one._require_alive()
    dies(one, 2)
    with pytest.raises(RunError, match=r"agent 2 .*, and policy all waits for it"):
        one.watch()


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_of_two_of_a_graph_that_die_at_once_the_same_is_named(order):
    one, line = overseer(), iter(order)
    one.fleet.wait = lambda until: bool([dies(one, i) for i in islice(line, 1)])
    with pytest.raises(RunError, match=r"agent 1 .*, and policy all waits for it"):
        one.watch()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
def test_where_nobody_is_left_nobody_is_said_to_wait(order):
    one = overseer("each")
    for agent in order:
        dies(one, agent)
    with pytest.raises(RunError, match=r"nobody can go on: agent 0 .*, and no other is left"):
        one.watch()
