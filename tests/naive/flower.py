"""Flower's apps on a Grid without a clock, a network or threads, for comparison with desim's.

Every node answers when it is asked. Flower's own order of replies is that in which threads end;
here it is by node, or by node from the last to the first, as sums follow from it in their last
bits. Nothing here is desim's.
"""

import copy
import importlib
import random
import sys

import numpy as np
from flwr.app import Context, Message, RecordDict
from flwr.server import server as classic
from flwr.serverapp import Grid
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity


class AtOnce(Grid):
    """All nodes, each with its context; `late`: numbers of nodes that never train in time."""

    def __init__(self, client, nodes, config, late=(), order=1):
        self.client, self.late, self.box, self.count = client, late, {}, 0
        self.order = order
        self.contexts = {
            1000 + i: Context(7, 1000 + i, {"partition-id": i, "num-partitions": nodes},
                              RecordDict(), dict(config))
            for i in range(nodes)
        }  # fmt: skip

    def set_run(self, run):
        pass

    @property
    def run(self):
        return Run.create_empty(7)

    def create_message(self, *arguments, **named):
        return Message(*arguments, **named)

    def get_node_ids(self):
        return [one for one in self.contexts if one - 1000 not in self.late]

    def push_messages(self, messages):
        ids = []
        for one in messages:
            self.count += 1
            ids.append(str(self.count))
            one.metadata.__dict__["_message_id"] = ids[-1]
            own = Message(copy.deepcopy(one.content), metadata=copy.deepcopy(one.metadata))
            self.box[ids[-1]] = self.client(own, self.contexts[one.metadata.dst_node_id])
        return ids

    def pull_messages(self, message_ids):
        found = [self.box.pop(one) for one in message_ids if one in self.box]
        return sorted(found, key=lambda one: self.order * one.metadata.src_node_id)

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(list(messages)))


def by_node(fit_clients, order):
    """What the classic server calls, with its results by node, where Flower's are a set's."""

    def sorted_by_node(*arguments, **named):
        results, failures = fit_clients(*arguments, **named)
        return sorted(results, key=lambda one: order * one[0].node_id), failures

    return sorted_by_node


def final(folder, server, client, nodes, config, late=(), order=1):
    """The model (dim,) that an app comes to; server, client: module:attribute; order: 1 or -1."""
    sys.path.insert(0, str(folder))
    state, fit_clients = random.getstate(), classic.fit_clients
    identity = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    try:
        for name in [one for one in sys.modules if one.startswith("lines_")]:
            del sys.modules[name]
        parts = []
        for reference in (server, client):
            module, _, name = reference.partition(":")
            parts.append(getattr(importlib.import_module(module), name))
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 7, 1
        grid = AtOnce(parts[1], nodes, config, late, order)
        classic.fit_clients = by_node(fit_clients, order)
        parts[0](grid=grid, context=Context(7, 1, {}, RecordDict(), dict(config)))
        found = importlib.import_module(server.partition(":")[0]).final
        return np.concatenate([np.ravel(one) for one in found])
    finally:
        sys.path.remove(str(folder))
        classic.fit_clients = fit_clients
        random.setstate(state)
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = identity
