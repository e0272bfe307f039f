"""Flower's own strategies on a Grid without a clock, with what an app drew under desim.

An app draws at random in its ServerApp, its ClientApp and its strategy. For a comparison each call
begins from the seed that it had in a run of desim (`recorded`), and a reply is there where it was
there: what is left is whatever the messages, the order, the policy and the engine do to a model.
"""

import copy
import random
import threading
from collections import defaultdict, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

from desim.arrays import Array

RUN = 0x1F2E3D4C5B6A7988
MAIN = "parameters"  # the record of a classic workflow's model


class Tape:
    """calls: of each node and kind, seeds and messages' ids, in order; came: ids with an answer.

    draws: what `random` was seeded by after each answer to the ServerApp's own thread.
    """

    def __init__(self) -> None:
        self.calls: dict[tuple[int, str], list[tuple[Any, str]]] = defaultdict(list)
        self.came: set[str] = set()
        self.draws: list[tuple[Any, ...]] = []

    def share(self) -> float:
        """The share of all calls whose replies came."""
        ids = [one for calls in self.calls.values() for _, one in calls]
        return len(self.came & {*ids}) / max(1, len(ids))


@contextmanager
def recorded() -> Iterator[Tape]:
    """Note what is drawn, and who is heard, in the run that is played meanwhile."""
    from desim.flower.nodes import Nodes
    from desim.flower.plays import Play
    from desim.flower.seam import Seam

    tape, call, answer, hand = Tape(), Nodes.call, Seam.answer, Play.hand

    def called(self: Any, agent: int, message: Any, address: Any, where: str) -> Any:
        if where.startswith("round"):
            own = message.metadata
            tape.calls[agent, own.message_type].append((address, own.message_id))
        return call(self, agent, message, address, where)

    def answered(self: Any, value: Any, *address: Any) -> None:
        if "draw" in address:
            tape.draws.append(address)
        answer(self, value, *address)

    def handed(self: Any, replies: list[Any]) -> None:
        tape.came |= {one.metadata.reply_to_message_id for one in replies}
        hand(self, replies)

    changed: tuple[tuple[Any, str, Any], ...] = (
        (Nodes, "call", called), (Seam, "answer", answered), (Play, "hand", handed),
    )  # fmt: skip
    try:
        for owner, name, new in changed:
            setattr(owner, name, new)
        yield tape
    finally:
        for (owner, name, _), old in zip(changed, (call, answer, hand), strict=True):
            setattr(owner, name, old)


class LockStep(Grid):  # type: ignore[misc]
    """Every node answers when it is asked; whose reply did not come under desim is not heard."""

    def __init__(self, client: Any, config: Any, ids: Sequence[int], seed: int, tape: Tape):
        self.client, self.seed, self.box, self.count = client, seed, dict[str, Any](), 0
        self.number = {one: i for i, one in enumerate(ids)}
        own: Any = [{"partition-id": i, "num-partitions": len(ids)} for i in range(len(ids))]
        self.contexts = {
            one: Context(RUN, one, own[i], RecordDict(), dict(config))
            for one, i in self.number.items()
        }
        self.calls = {key: deque(some) for key, some in tape.calls.items()}
        self.draws, self.came = deque(tape.draws), tape.came
        self.lock, self.thread = threading.RLock(), threading.current_thread()
        self.model: Array | None = None

    def set_run(self, run: Any) -> None:
        """The run is an empty one."""

    @property
    def run(self) -> Any:
        """An empty run."""
        return Run.create_empty(RUN)

    def create_message(self, *arguments: Any, **named: Any) -> Any:
        """A new message."""
        return Message(*arguments, **named)

    def get_node_ids(self) -> Any:
        """All nodes."""
        self.drawn()
        return list(self.number)

    def drawn(self) -> None:
        """Seed `random` as it was after this answer; other threads of a classic server ask, too."""
        if threading.current_thread() is self.thread and self.draws:
            random.seed(" ".join(map(str, self.draws.popleft())))

    def replied(self, message: Any) -> Any:
        """What a node replies, None where that did not come."""
        from desim.flower.nodes import as_before, sow

        node, kind = message.metadata.dst_node_id, message.metadata.message_type
        calls = self.calls.get((self.number[node], kind))
        if not calls:
            return None
        address, key = calls.popleft()
        with as_before():
            sow(self.seed, "client", self.number[node], *address)
            own = Message(copy.deepcopy(message.content), metadata=copy.deepcopy(message.metadata))
            reply = self.client(own, self.contexts[node])
        return reply if key in self.came else None

    def sent(self, messages: Sequence[Any]) -> list[str]:
        """Ask the nodes; the ids of messages."""
        ids = []
        with self.lock:
            for one in messages:
                self.count += 1
                ids.append(f"{self.count:064x}")
                one.metadata.__dict__["_message_id"] = ids[-1]
                self.noted(one.content)
                if (reply := self.replied(one)) is not None:
                    reply.metadata.__dict__["_reply_to_message_id"] = ids[-1]
                    self.box[ids[-1]] = reply
        return ids

    def noted(self, content: Any) -> None:
        """The latest model that was sent."""
        for record in content.array_records.values():
            if len(record):
                self.model = flat([one.numpy() for one in record.values()])
                return

    def heard(self, ids: Sequence[str]) -> list[Any]:
        """Replies by node, as desim hands them over."""
        found = [self.box.pop(one) for one in ids if one in self.box]
        return sorted(found, key=lambda one: self.number[one.metadata.src_node_id])

    def push_messages(self, messages: Any) -> Any:
        """Ask nodes."""
        ids = self.sent(list(messages))
        self.drawn()
        return ids

    def pull_messages(self, message_ids: Any) -> Any:
        """Their replies."""
        found = self.heard(list(message_ids))
        self.drawn()
        return found

    def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
        """Ask nodes, and hear them."""
        found = self.heard(self.sent(list(messages)))
        self.drawn()
        return found


def flat(arrays: Sequence[Any]) -> Array:
    """Arrays as one vector (dim,) of float64."""
    return np.concatenate([np.asarray(one, float).ravel() for one in arrays])


def final(app: Any, nodes: int, seed: int, tape: Tape) -> Array | None:
    """The model (dim,) that an app comes to without desim's clock; None where it has none."""
    from desim.flower.flower_messages import node_ids
    from desim.flower.nodes import as_before, sow

    parts = app.loaded()
    identity = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    grid = LockStep(parts.client, app.config, node_ids(nodes), seed, tape)
    with ends(grid), by_node(grid), as_before():
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, 1
        try:
            sow(seed, "server")
            parts.server(grid=grid, context=Context(RUN, 1, {}, RecordDict(), dict(app.config)))
        finally:
            TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = identity
    return grid.model


@contextmanager
def ends(grid: Any) -> Iterator[None]:
    """Let `grid.model` be what Flower's strategies, workflows and servers end with."""
    from flwr.common import parameters_to_ndarrays
    from flwr.server import LegacyContext
    from flwr.server.compat import app as compat
    from flwr.serverapp.strategy import Strategy

    start, defaults, begin = Strategy.start, compat.init_defaults, LegacyContext.__init__
    servers, contexts = list[Any](), list[Any]()

    def started(self: Any, *arguments: Any, **named: Any) -> Any:
        found = start(self, *arguments, **named)
        grid.model = flat([one.numpy() for one in found.arrays.values()])
        return found

    def defaulted(**named: Any) -> Any:
        found = defaults(**named)
        servers.append(found[0])
        return found

    def begun(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        contexts.append(self)

    Strategy.start, compat.init_defaults, LegacyContext.__init__ = started, defaulted, begun
    try:
        yield
    finally:
        Strategy.start, compat.init_defaults, LegacyContext.__init__ = start, defaults, begin
    for one in servers:
        grid.model = flat(parameters_to_ndarrays(one.parameters))
    for one in contexts:
        if MAIN in one.state.array_records:
            grid.model = flat([a.numpy() for a in one.state.array_records[MAIN].values()])


@contextmanager
def by_node(grid: LockStep) -> Iterator[None]:
    """Let a classic server hear replies by node, as desim hands them over, and draw as it did.

    Flower's own order is that of a set of threads, which moves the last bits of a float32 average.
    """
    from flwr.server import server as classic

    asking = classic.fit_clients, classic.evaluate_clients

    def ordered(ask: Any) -> Any:
        def asked(*arguments: Any, **named: Any) -> Any:
            results, failures = ask(*arguments, **named)
            grid.drawn()
            return sorted(results, key=lambda pair: grid.number[pair[0].node_id]), failures

        return asked

    classic.fit_clients, classic.evaluate_clients = map(ordered, asking)
    try:
        yield
    finally:
        classic.fit_clients, classic.evaluate_clients = asking
