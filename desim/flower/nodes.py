"""The nodes of a Flower app: their contexts, and one pure call of the ClientApp after the other.

What a node draws at random is a function of the seed, the node, and which call of its it is.
"""

import hashlib
import json
import random
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context, RecordDict

from desim.errors import InputError, RunError, raised
from desim.flower.apps import App
from desim.flower.flower_messages import RUN, copied, node_ids

FORMAT = 1


def word(*address: Any) -> int:
    """32 bits that follow from an address."""
    text = " ".join(map(str, address)).encode()
    return int.from_bytes(hashlib.sha256(text).digest()[:4], "big")


def sow(*address: Any) -> None:
    """Seed `random`, NumPy's and torch's global generators by an address."""
    number = word(*address)
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002
    if (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(number)


@contextmanager
def as_before() -> Iterator[None]:
    """Leave the global generators as they were."""
    torch = sys.modules.get("torch")
    states = random.getstate(), np.random.get_state()  # noqa: NPY002
    own = None if torch is None else torch.get_rng_state()
    try:
        yield
    finally:
        random.setstate(states[0])
        np.random.set_state(states[1])  # noqa: NPY002
        if torch is not None:
            torch.set_rng_state(own)


class Times:
    """Seconds that calls took on the machine that measured them, in a file by node and call.

    Calls that are not there yet are measured, and written before the log tells of them: a run that
    was stopped, or ended earlier, goes on with the times that it had.
    """

    def __init__(self, file: Path | None) -> None:
        self.file, self.known = file, dict[str, float]()
        self.fresh = False
        if file is None:
            return
        if not file.parent.is_dir():
            text = f"flower: algorithm.times: found no folder {file.parent}"
            raise InputError(f"{text}; allowed: a file in a folder that is there")
        if not file.exists():
            return
        try:
            tree = json.loads(file.read_text("utf-8"))
            self.known = {str(key): float(value) for key, value in tree["seconds"].items()}
            if not all(0.0 <= value < np.inf for value in self.known.values()):
                raise ValueError("a time that is below zero, or no number")
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            text = f"flower: {file}: found no times of calls ({raised(error)})"
            raise InputError(f"{text}; allowed: what a run has written, or no file") from None

    def of(self, key: str, seconds: float) -> float:
        """What a call took: as the file says, or now, where it will be written."""
        self.fresh |= key not in self.known
        return self.known.setdefault(key, seconds)

    def written(self) -> None:
        """Store what was measured, all of it or nothing."""
        if self.fresh and self.file is not None:
            text = json.dumps({"format": FORMAT, "seconds": self.known}, indent=0)
            beside = self.file.with_name(f"{self.file.name}.part")
            beside.write_text(text + "\n", "utf-8")
            beside.replace(self.file)
            self.fresh = False


class Nodes:
    """Nodes 0 to agents - 1 of an app whose ClientApp is `client`, each with its context."""

    def __init__(self, app: App, client: Any, agents: int, seed: int) -> None:
        self.app, self.client, self.seed = app, client, seed
        self.ids = node_ids(agents)
        self.number = {one: i for i, one in enumerate(self.ids)}
        self.contexts = [self.context(i) for i in range(agents)]

    def context(self, agent: int) -> Any:
        """A node's context as it begins: which share of the data is its own, and no state."""
        own: Any = {"partition-id": agent, "num-partitions": len(self.ids)}
        config: Any = dict(self.app.config)
        return Context(RUN, self.ids[agent], own, RecordDict(), config)

    def call(self, agent: int, message: Any, address: tuple[Any, ...], where: str) -> Any:
        """What a node replies to its own copy of a message, and the seconds that it took here.

        address: of what it draws; RunError, with the round in `where`, for what the app raises.
        """
        with as_before():
            sow(self.seed, "client", agent, *address)
            begun = time.perf_counter()
            try:
                reply = self.client(copied(message), self.contexts[agent])
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # sys.exit() ends a node's process, and so this run
                kind, own = message.metadata.message_type, _own_part(error)
                place = f"node {agent} (id {self.ids[agent]}), {where}, {kind}"
                text = f"flower: {place}: the ClientApp raised {raised(error)}"
                raise RunError(f"{text}\n{own}") from error
            seconds = time.perf_counter() - begun
        if not hasattr(reply, "metadata"):
            kind = message.metadata.message_type
            text = f"the ClientApp returned a {type(reply).__name__}"
            raise RunError(f"flower: node {agent}, {where}, {kind}: {text}; allowed: a Message")
        if reply.metadata.src_node_id != self.ids[agent]:
            kind, text = message.metadata.message_type, "the ClientApp returned what is no reply"
            allowed = "Message(content, reply_to=message)"
            raise RunError(f"flower: node {agent}, {where}, {kind}: {text}; allowed: {allowed}")
        return reply, seconds

    def addressed(self, message: Any) -> int:
        """The number of the node that a message goes to; RunError where it is none of these."""
        node = message.metadata.dst_node_id
        if node not in self.number:
            text = f"flower: found a message to node {node}"
            raise RunError(f"{text}; allowed: nodes that get_node_ids names")
        return self.number[node]


def _own_part(error: BaseException) -> str:
    """The traceback below desim's own call, which is the app's and Flower's."""
    trace = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, trace and trace.tb_next)).rstrip()
