"""What is known of an app before it is played: where its model starts, and how nodes evaluate it.

The ServerApp runs until it sends a model for the first time; what it asks before that, such as a
classic client's parameters or the keys of a secure sum, nodes answer at once. Evaluations are
functions of the model and the node: those that the app asks for while it is played are kept.
"""

import hashlib
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from flwr.app import Context, Message, RecordDict

from desim.errors import InputError, RunError, raised
from desim.flower.apps import App
from desim.flower.central import Central, central
from desim.flower.flower_messages import (
    EPOCH,
    RUN,
    SERVER,
    evaluation,
    examples,
    figures,
    named,
    numbered,
    stamped,
    vector,
)
from desim.flower.grid import LOOKS, VirtualGrid, listening, over
from desim.flower.nodes import Nodes, as_before, sow
from desim.flower.noise import chains
from desim.flower.seam import Seam

QUESTIONS = 64  # of an app that sends no model
UNSAID = 1000  # examples of each node, where they do not say: accuracies to a thousandth
MANY = 10_000_000  # examples of a node, each of which has a row of the test set


class Live:
    """The one app whose thread may be alive: another play ends it."""

    seam: Seam | None = None
    central: ClassVar[dict[int, dict[str, float]]] = {}  # what the latest one's server measured
    loud: ClassVar[bool] = False  # whether Flower's own log is shown

    @classmethod
    def begun(cls, app: App, server: Any, seed: int) -> Seam:
        """The seam of an app that begins now, in a thread of its own."""
        cls.end()
        cls.seam = seam = Seam(over)
        grid = VirtualGrid(seam)
        context = Context(RUN, SERVER, {}, RecordDict(), dict(app.config))

        def run() -> None:
            with listening(seam, grid, cls.loud), as_before():
                sow(seed, "server")
                server(grid=grid, context=context)

        seam.begin(run)
        return seam

    @classmethod
    def end(cls, own: Seam | None = None) -> None:
        """End the app that lives; own: only if it is this one.

        A program that was left open is closed when it is collected: others may play by then.
        """
        if cls.seam is not None and own in (None, cls.seam):
            cls.seam.end()
            cls.central = cls.seam.central
            cls.seam = None


def first_model(app: App, agents: int, seed: int) -> tuple[Any, Any, int | None, Central | None]:
    """Where the model starts, (dim,), the content of the message that brings it, how many rounds.

    And what is known of noise that the strategy adds, None for none.

    None for an app that does not say how many. One that sends no model in its first QUESTIONS has
    one of a single 0, and no content. InputError for one that raises before, or asks nothing.
    """
    parts = app.loaded()
    nodes, replies, asked = Nodes(app, parts.client, agents, seed), dict[str, Any](), 0
    seam, looks = Live.begun(app, parts.server, seed), 0
    try:
        for number in range(QUESTIONS):
            ask = seam.next()
            if ask.kind == "failed":
                text = f"the ServerApp raised {raised(ask.value)}"
                raise InputError(f"flower: {app.folder}: {text}") from ask.value
            if ask.kind == "done":
                break
            looks = looks + 1 if ask.kind == "nodes" else 0
            if looks > LOOKS:
                text = f"{app.folder}: the app asked {looks} times who is there, and sent nothing"
                text += f": it waits for more nodes than are there, {agents}"
                allowed = "more agents, or a strategy that needs no more (min_available_nodes)"
                raise InputError(f"flower: {text}; allowed: {allowed}")
            if ask.kind == "nodes":
                seam.nodes = nodes.ids
                seam.answer(nodes.ids, seed, "nodes", number)
                continue
            if ask.kind == "pull":
                seam.answer([replies.pop(one) for one in ask.value if one in replies])
                continue
            asked += len(ask.value)
            for one in ask.value:
                if (x := vector(one.content)) is not None:
                    own = seam.strategy and central(seam.strategy, chains(parts.client))
                    return x, one.content, seam.rounds, own
            ids = [numbered(one, place) for place, one in enumerate(ask.value)]
            replies = {one: _answered(nodes, m) for one, m in zip(ids, ask.value, strict=True)}
            seam.answer([*replies.values()] if ask.kind == "send" else ids)
    except RunError as error:
        raise InputError(str(error)) from error
    finally:
        Live.end()
    if asked:
        return np.zeros(1), None, seam.rounds, None
    text = "the ServerApp ended without a message to a node"
    raise InputError(f"flower: {app.folder}: {text}; allowed: apps that send some")


def _answered(nodes: Nodes, message: Any) -> Any:
    stamped(message, 0)
    number = nodes.addressed(message)
    return nodes.call(number, message, ("probe",), "before the first round")[0]


class Evaluator:
    """What the nodes of an app say of a model: loss, accuracy, and of how many examples."""

    def __init__(self, app: App, agents: int, seed: int, keys: tuple[str | None, str | None]):
        self.app, self.agents, self.seed, self.keys = app, agents, seed, keys
        self.start, self.content, self.rounds, self.central = first_model(app, agents, seed)
        self.client: Any = None
        self._said: dict[tuple[int, bytes], dict[str, float]] = {}
        self._round: dict[bytes, None] = {}  # models, the latest last
        self.trouble = "" if self.models else "flower: the app sends no model"  # no evaluations

    @property
    def models(self) -> bool:
        """Whether the app sends any: what only asks nodes, such as for statistics, has none."""
        return self.content is not None

    def note(self, agent: int, x: Any, content: Any) -> None:
        """A node has said this of x (dim,) while the app was played."""
        self._keep(agent, _digest(x), figures(content))

    def _keep(self, agent: int, key: bytes, said: dict[str, float]) -> None:
        self._round.pop(key, None)
        self._round[key] = None
        if len(self._round) > 4:  # models of which it is asked again, at most
            old = next(iter(self._round))
            del self._round[old]
            self._said = {one: value for one, value in self._said.items() if one[1] != old}
        self._said[agent, key] = said

    def of(self, agent: int, x: Any) -> dict[str, float]:
        """What a node says of x (dim,); nothing where its ClientApp cannot evaluate."""
        if agent >= self.agents:
            text = f"flower: problem.data: found node {agent} of {self.agents} in problem.model"
            raise InputError(f"{text}; allowed: as many nodes as there")
        key = _digest(x)
        if (agent, key) not in self._said:
            self._keep(agent, key, self._asked(agent, x))
        return self._said[agent, key]

    def _asked(self, agent: int, x: Any) -> dict[str, float]:
        if self.trouble:
            return {}
        if self.client is None:
            self.client = self.app.loaded().client
        nodes = Nodes(self.app, self.client, self.agents, self.seed)
        content = evaluation(self.content, x)
        message = Message(content, metadata=_metadata(nodes.ids[agent]))
        try:
            reply, _ = nodes.call(agent, message, ("evaluate",), "off the clock")
        except RunError as error:
            self.trouble = str(error).splitlines()[0]
            return {}
        if reply.has_error():
            self.trouble = f"flower: node {agent} replies with an error: {reply.error.reason}"
            return {}
        return figures(reply.content)

    def loss(self, agent: int, x: Any) -> float:
        """The loss of x (dim,) on a node's own examples, 0 where nodes say none."""
        return 0.0 if self.lossless else self._figure(agent, x, "loss", "loss", self.keys[0])

    def right(self, agent: int, x: Any, rows: int) -> int:
        """How many of a node's examples x (dim,) gets right."""
        share = self._figure(agent, x, "accuracy", "acc", self.keys[1])
        if not 0.0 <= share <= 1.0:
            text = f"flower: node {agent}: found an accuracy of {share:g}; allowed: 0 to 1"
            raise InputError(f"{text}, or observe.metrics without accuracy")
        return round(share * rows)

    def _figure(self, agent: int, x: Any, metric: str, word: str, key: str | None) -> float:
        """What a node says of x (dim,) under a name; 0 where nodes cannot evaluate at all."""
        found = named(said := self.of(agent, x), word, key)
        if found is None and not self.trouble:
            names = ", ".join(said) or "nothing"
            text = f"flower: node {agent}: found {names} in its evaluation, and no {key or metric}"
            raise InputError(f"{text}; allowed: that, or observe.metrics without {metric}")
        return found or 0.0

    @cached_property
    def lossless(self) -> bool:
        """Whether nodes say no loss, and were not asked for one by its name."""
        return self.keys[0] is None and "loss" not in self.says

    @cached_property
    def unweighed(self) -> bool:
        """Whether nodes say an accuracy, and some of them not of how many examples."""
        said = [self.of(agent, self.start) for agent in range(self.agents)]
        return "accuracy" in self.says and None in map(examples, said)

    def rows(self, agent: int) -> int:
        """For how many examples a node's evaluation counts: as it says, UNSAID if one does not."""
        number = UNSAID if self.unweighed else examples(self.of(agent, self.start)) or 1.0
        if not 0.0 <= number <= MANY:
            text = f"flower: node {agent}: found an evaluation on {number:g} examples"
            raise InputError(f"{text}; allowed: 0 to {MANY:,}")
        return max(1, round(number))

    @property
    def says(self) -> tuple[str, ...]:
        """Which of desim's metrics nodes can tell, of what the first one says at the start."""
        said = self.of(0, self.start)
        words = zip(("loss", "accuracy"), ("loss", "acc"), self.keys, strict=True)
        return tuple(name for name, word, key in words if named(said, word, key) is not None)


def _digest(x: Any) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(x, float).tobytes()).digest()


def _metadata(node: int) -> Any:
    from flwr.app import Metadata

    address: dict[str, Any] = {"run_id": RUN, "message_id": "0" * 64, "src_node_id": SERVER}
    rest: dict[str, Any] = {"reply_to_message_id": "", "group_id": "", "created_at": EPOCH}
    return Metadata(dst_node_id=node, ttl=43200.0, message_type="evaluate", **address, **rest)


_known: dict[Any, Evaluator] = {}


def evaluator(
    app: App, agents: int, seed: int, loss: str | None = None, accuracy: str | None = None
) -> Evaluator:
    """That of an app as its files are now; the same one for as long as nothing changes."""
    place = str(app.folder), app.server, app.client, repr(app.config)  # NaN is no other NaN's equal
    key = place, agents, seed, loss, accuracy, _files(app)
    if key not in _known:
        while len(_known) > 1:
            del _known[next(iter(_known))]
        _known[key] = Evaluator(app, agents, seed, (loss, accuracy))
    return _known[key]


def _files(app: App) -> str:
    """A hash of the folder's Python files, as far as the app's own modules are among them."""
    tops = {reference.split(":")[0].split(".")[0] for reference in (app.server, app.client)}
    code = hashlib.sha256()
    for top in sorted(tops):
        places = [app.folder / f"{top}.py", *sorted((app.folder / top).rglob("*.py"))]
        for path in (one for one in places if one.is_file()):
            code.update(_content(path, *_state(path)))
    for path in sorted(app.folder.glob("*.py")):
        code.update(_content(path, *_state(path)))
    return code.hexdigest()


def _state(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=1024)
def _content(path: Path, written: int, size: int) -> bytes:
    """The hash of a file, read once for as long as nobody writes it."""
    return hashlib.sha256(path.read_bytes()).digest()
