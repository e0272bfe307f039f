"""The virtual Grid, and where Flower's strategies are listened to while an app is played.

Four things of Flower are changed for as long as a run lasts. A strategy tells of each model that
it makes. A classic server that waits for more clients asks for them, and not for a day of real
time. The classic server, which asks each client from a thread of its own, in a pool of a few, asks
them all at once: the group is known, so that no window of real time decides who is in it, and its
strategy gets results by node, where Flower's own order is that of a set of threads. And
whatever asks after the run's end hears that the run is not running.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid
from flwr.supercore.run import Run, RunNotRunningException
from flwr.supercore.task_identity import TaskIdentity

from desim.flower.central import watched
from desim.flower.flower_messages import RUN, SERVER, of_parameters
from desim.flower.seam import Seam

LOOKS = 4  # questions in a row for nodes, or for replies, of an app that polls in vain


class Held(BaseException):
    """A message of a group is noted; what asks for its reply is asked again once that is here."""


class VirtualGrid(Grid):  # type: ignore[misc]
    """Hands an app's messages to the seam, and returns what comes back."""

    def __init__(self, seam: Seam) -> None:
        self.seam, self._run = seam, Run.create_empty(RUN)
        self.group: list[Any] | None = None  # messages of a group that is being noted
        self.replies: list[Any] | None = None  # those to them, in their order

    def set_run(self, run: Any) -> None:
        """The run is desim's own."""

    @property
    def run(self) -> Any:
        """An empty run with an id."""
        return self._run

    def create_message(
        self, content: Any, message_type: str, dst_node_id: int, group_id: str,
        ttl: float | None = None,
    ) -> Any:  # fmt: skip
        """A new message."""
        return Message(content, dst_node_id, message_type, ttl=ttl, group_id=group_id)

    def get_node_ids(self) -> Iterable[int]:
        """Nodes that take part in this round and owe no reply."""
        found: list[int] = self.seam.ask("nodes")
        return list(found)

    def push_messages(self, messages: Iterable[Any]) -> Iterable[str]:
        """Send messages; the ids by which their replies are asked for."""
        found: list[str] = self.seam.ask("push", _whole(messages))
        return found

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Any]:
        """Wait in virtual time until the policy lets replies through; those asked for."""
        found: list[Any] = self.seam.ask("pull", list(message_ids))
        return found

    def send_and_receive(
        self, messages: Iterable[Any], *, timeout: float | None = None
    ) -> Iterable[Any]:
        """The replies that the policy let through, by node."""
        whole = _whole(messages)
        if self.group is not None:
            self.group += whole
            raise Held
        if self.replies is not None:
            own: list[Any] = self.replies.pop(0)
            return own
        found: list[Any] = self.seam.ask("send", whole, timeout)
        return found

    def together(
        self, asks: list[Callable[[], Any]], timeout: float | None
    ) -> list[tuple[int, Any]]:
        """What each of some functions returns that ask for one reply, all at once; or raises.

        With each its place in `asks`: those with a reply first, in the order of the replies.
        """
        self.group, sizes, answers = [], list[int](), list[tuple[int, int, Any]]()
        try:
            for ask in asks:
                before = len(self.group)
                try:
                    ask()
                except Held:
                    pass
                sizes.append(len(self.group) - before)
            messages = self.group
        finally:
            self.group = None
        by_id = {}
        if messages:
            replies: list[Any] = self.seam.ask("send", messages, timeout)
            by_id = {one.metadata.reply_to_message_id: one for one in replies}
        queue = [one.metadata.message_id for one in messages]
        order = {one: rank for rank, one in enumerate(by_id)}
        for place, (ask, size) in enumerate(zip(asks, sizes, strict=True)):
            own, queue = queue[:size], queue[size:]
            self.replies = [[by_id[one]] if one in by_id else [] for one in own]
            rank = min((order.get(one, len(order)) for one in own), default=len(order))
            try:
                answer = ask()
            except Exception as error:
                answer = error
            finally:
                self.replies = None
            answers.append((rank, place, answer))
        return [one[1:] for one in sorted(answers, key=lambda one: one[:2])]


def _whole(messages: Iterable[Any]) -> list[Any]:
    """Messages that an app sends; TypeError for what is none, or has no content."""
    found = list(messages)
    for one in found:
        if not isinstance(one, Message) or not one.has_content():
            text = f"found {type(one).__name__} among messages"
            raise TypeError(f"flower: {text}; allowed: Message, with a content")
    return found


def over() -> BaseException:
    """What Flower's own threads end at."""
    found: BaseException = RunNotRunningException("the run is over")
    return found


# What is changed while an app is played.


@contextmanager
def listening(seam: Seam, grid: VirtualGrid, loud: bool) -> Iterator[None]:
    """Hear of every model that a strategy makes, and gather what classic servers ask for.

    loud: whether Flower's log says more than warnings.
    """
    from flwr.server import LegacyContext
    from flwr.server import server as classic
    from flwr.server.client_manager import SimpleClientManager as clients
    from flwr.server.compat import app as compat
    from flwr.serverapp.strategy import Strategy

    start, defaults, begin = Strategy.start, compat.init_defaults, LegacyContext.__init__

    def started(self: Any, *arguments: Any, **named: Any) -> Any:
        asked = signature(start).bind(self, *arguments, **named)
        asked.apply_defaults()
        seam.rounds = int(asked.arguments["num_rounds"])
        if (measure := asked.arguments["evaluate_fn"]) is not None:
            asked.arguments["evaluate_fn"] = _measured(measure, seam, dict)
        with _noted(self, "aggregate_train", seam, _of_record):
            return start(*asked.args, **asked.kwargs)

    def defaulted(**named: Any) -> Any:
        server, config = defaults(**named)
        seam.rounds = int(config.num_rounds)
        classical(server.strategy)
        return server, config

    def begun(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        seam.rounds = int(self.config.num_rounds)
        classical(self.strategy)

    def classical(strategy: Any) -> None:
        _note(strategy, "aggregate_fit", seam, _of_classic)
        own = strategy.evaluate
        strategy.evaluate = _measured(own, seam, lambda one: {"loss": one[0], **one[1]})

    changes = [
        (clients, "wait_for", _waiting(clients.wait_for, seam)),
        (Strategy, "start", started),
        (compat, "init_defaults", defaulted),
        (LegacyContext, "__init__", begun),
        (classic, "fit_clients", _gathered(grid, "fit")),
        (classic, "evaluate_clients", _gathered(grid, "evaluate")),
    ]
    identity = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    level = (talk := logging.getLogger("flwr")).level
    try:
        talk.setLevel(level if loud else max(level, logging.WARNING))
        for owner, name, value in changes:
            setattr(owner, name, value)
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, RUN, SERVER
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)
        talk.setLevel(level)
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = identity


def _waiting(wait: Any, seam: Seam) -> Callable[..., Any]:
    """What takes the place of the function that waits until so many clients are there."""

    def waited(self: Any, num_clients: int, timeout: int = 86400) -> Any:
        while len(self) < num_clients and threading.current_thread() is seam.thread:
            seam.ask("nodes")  # until desim says that no others come
        return wait(self, num_clients, timeout)

    return waited


def _of_record(answer: Any) -> Any:
    arrays = answer[0]
    return None if arrays is None else of_parameters([one.numpy() for one in arrays.values()])


def _of_classic(answer: Any) -> Any:
    from flwr.common import parameters_to_ndarrays

    parameters = None if answer is None else answer[0]
    return None if parameters is None else of_parameters(parameters_to_ndarrays(parameters))


def _note(one: Any, name: str, seam: Seam, model: Callable[[Any], Any]) -> None:
    """Let the seam hear what a function of a strategy returns, from now on."""
    seam.told, seam.strategy = True, one
    own = watched(one, seam.averages, getattr(one, name))

    def noted(*arguments: Any, **named: Any) -> Any:
        answer = own(*arguments, **named)
        seam.note(model(answer))
        return answer

    setattr(one, name, noted)


@contextmanager
def _noted(one: Any, name: str, seam: Seam, model: Callable[[Any], Any]) -> Iterator[None]:
    """The same, as long as it lasts."""
    _note(one, name, seam, model)
    try:
        yield
    finally:
        vars(one).pop(name, None)


def _measured(measure: Any, seam: Seam, figures: Callable[[Any], Any]) -> Callable[..., Any]:
    """A function of a round and a model, whose figures the seam hears."""

    def measured(server_round: int, *arguments: Any, **named: Any) -> Any:
        found = measure(server_round, *arguments, **named)
        if found is not None:
            numbers = figures(found).items()
            seam.central[server_round] = {
                str(key): float(one) for key, one in numbers if isinstance(one, int | float)
            }
        return found

    return measured


def _gathered(grid: VirtualGrid, verb: str) -> Callable[..., Any]:
    """What takes the place of the function that asks each client from a thread."""

    def asked(
        client_instructions: Any, max_workers: Any, timeout: Any, group_id: Any
    ) -> tuple[list[Any], list[Any]]:
        from flwr.common import Code

        results, failures, asks = list[Any](), list[Any](), list[Callable[[], Any]]()
        for client, instruction in client_instructions:
            asks.append(_one(getattr(client, verb), instruction, timeout, group_id))
        for place, answer in grid.together(asks, timeout):
            client, _ = client_instructions[place]
            if isinstance(answer, Exception):
                failures.append(answer)
            elif answer.status.code == Code.OK:
                results.append((client, answer))
            else:
                failures.append((client, answer))
        return results, failures

    return asked


def _one(ask: Any, instruction: Any, timeout: Any, group_id: Any) -> Callable[[], Any]:
    return lambda: ask(instruction, timeout, group_id)
