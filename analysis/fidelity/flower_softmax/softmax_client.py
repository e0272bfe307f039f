"""Softmax regression on digits by NumPy and by torch, for both of Flower's interfaces.

What a node draws follows from its number and the round, so that it is the same in any simulation.
"""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

STEPS, BATCH, STEP = 4, 16, 0.1
pixels, labels = load_digits(return_X_y=True)
pixels = pixels / 16


def rows(i, nodes):
    """The rows (m, 64) and labels (m,) of node i, of whom no two have equally many."""
    own = np.flatnonzero(np.arange(len(labels)) % nodes == i)[: 60 + 9 * i]
    return pixels[own], labels[own]


def batches(i, nodes, round_, wrong):
    """The rows of each step of a round; wrong: node 1 takes another batch in round 2."""
    x, y = rows(i, nodes)
    draws = np.random.default_rng([i, round_, int(wrong and i == 1 and round_ == 2)])
    for _ in range(STEPS):
        own = draws.choice(len(y), BATCH, replace=False)
        yield x[own], y[own]


def by_numpy(start, steps, mu):
    """Gradient steps of softmax regression, with FedProx's term where mu > 0."""
    w, b = w0, b0 = start
    for x, y in steps:
        e = np.exp(x @ w.T + b)
        slope = (e / e.sum(1, keepdims=True) - np.eye(10)[y]) / len(y)
        w, b = (
            w - STEP * (slope.T @ x + mu * (w - w0)),
            b - STEP * (slope.sum(0) + mu * (b - b0)),
        )
    return [w, b]


def by_torch(start, steps, mu):
    """The same by a module of torch and its gradients."""
    import torch  # here, as it takes seconds

    layer = torch.nn.Linear(64, 10, dtype=torch.float64)
    before = [torch.tensor(one) for one in start]
    with torch.no_grad():
        for one, first in zip(layer.parameters(), before, strict=True):
            one.copy_(first)
    for x, y in steps:
        loss = torch.nn.functional.cross_entropy(layer(torch.tensor(x)), torch.tensor(y))
        pairs = [*zip(layer.parameters(), before, strict=True)]
        loss = loss + mu / 2 * sum(((one - first) ** 2).sum() for one, first in pairs)
        slopes = torch.autograd.grad(loss, [*layer.parameters()])
        with torch.no_grad():
            for one, slope in zip(layer.parameters(), slopes, strict=True):
                one -= STEP * slope
    return [one.detach().numpy() for one in layer.parameters()]


def measured(model, i, nodes):
    """Loss and accuracy of a model on a node's rows, and how many these are."""
    (w, b), (x, y) = model, rows(i, nodes)
    e = np.exp(x @ w.T + b)
    p = e / e.sum(1, keepdims=True)
    return -np.log(p[np.arange(len(y)), y]).mean(), (p.argmax(1) == y).mean(), len(y)


def place(context):
    """Which node this is, of how many."""
    own = context.node_config
    return int(own["partition-id"]), int(own["num-partitions"])


def of_messages(learn):
    """A ClientApp of Flower's message API."""
    app = ClientApp()

    @app.train()
    def train(message, context):
        own, config = place(context), message.content["config"]
        arrays = message.content["arrays"]
        steps = batches(*own, config["server-round"], context.run_config["wrong"])
        found = learn(arrays.to_numpy_ndarrays(), steps, config.get("proximal-mu", 0.0))
        after = {name: Array(one) for name, one in zip(arrays, found, strict=True)}
        said = MetricRecord({"num-examples": len(rows(*own)[1])})
        return Message(RecordDict({"arrays": ArrayRecord(after), "said": said}), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        own = message.content["arrays"].to_numpy_ndarrays()
        loss, share, number = measured(own, *place(context))
        said = {"eval_loss": loss, "eval_acc": share, "num-examples": number}
        said = MetricRecord({name: float(one) for name, one in said.items()})
        return Message(RecordDict({"said": said}), reply_to=message)

    return app


class Client(NumPyClient):
    """A node of Flower's classic API."""

    def __init__(self, learn, own, wrong):
        self.learn, self.own, self.wrong = learn, own, wrong

    def fit(self, parameters, config):
        """A round's steps."""
        steps = batches(*self.own, config["round"], self.wrong)
        found = self.learn(parameters, steps, config.get("proximal_mu", 0.0))
        return found, len(rows(*self.own)[1]), {}

    def evaluate(self, parameters, config):
        """Loss and accuracy on the node's own rows."""
        loss, share, number = measured(parameters, *self.own)
        return float(loss), number, {"accuracy": float(share)}


def classic(learn):
    """A ClientApp of Flower's classic API."""

    def client_fn(context):
        return Client(learn, place(context), context.run_config["wrong"]).to_client()

    return ClientApp(client_fn=client_fn)


numpy_messages, torch_messages = of_messages(by_numpy), of_messages(by_torch)
numpy_classic, torch_classic = classic(by_numpy), classic(by_torch)
