"""Clients of both of Flower's interfaces."""

import os
import sys

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from lines_task import measured, rows, trained

app, private = ClientApp(), ClientApp()


def train(message, context):
    i = context.node_config["partition-id"]
    wrong = context.run_config["wrong"]
    if wrong == "client" and i == 2:
        raise OSError("the disk of this node is full")
    if wrong == "exit" and i == 2:
        sys.exit("no GPU")
    if wrong == "echo" and i == 2:
        return message
    ((name, w),) = message.content["arrays"].items()
    w = trained(w.numpy(), i, context.run_config["step"])
    said = {"num-examples": -1 if wrong == "count" else len(rows(i)[1])}
    content = {"arrays": ArrayRecord({name: Array(w)})}
    content["metrics"] = MetricRecord(said if wrong != "silent" else {"n": 1})
    if wrong == "sizes":
        content["more"] = ConfigRecord({"more": "x" * (20 + i)})
    return Message(RecordDict(content), reply_to=message)


def evaluate(message, context):
    i = context.node_config["partition-id"]
    loss, share = measured(message.content["arrays"].to_numpy_ndarrays()[0], i)
    share *= 100.0 if context.run_config["wrong"] == "per cent" else 1.0
    figures = {"eval_loss": loss, "eval_acc": share, "num-examples": len(rows(i)[1])}
    if context.run_config["wrong"] == "unweighed":
        del figures["num-examples"]
    return Message(RecordDict({"metrics": MetricRecord(figures)}), reply_to=message)


app.train()(train)
private.train(mods=[LocalDpMod(0.5, 1.0, 2.0, 1e-3)])(train)
private.train("little", mods=[LocalDpMod(0.1, 1.0, 2.0, 1e-3)])(train)
for one in (app, private):
    one.evaluate()(evaluate)


@app.query()
def query(message, context):
    said = MetricRecord({"rows": len(rows(context.node_config["partition-id"])[1])})
    return Message(RecordDict({"said": said}), reply_to=message)


def last(message, context, call):
    """A mod that may add to a reply what it wants."""
    return call(message, context)


outside = ClientApp(mods=[last])
outside.train(mods=[LocalDpMod(0.5, 1.0, 2.0, 1e-3)])(train)


class Classic(NumPyClient):
    def __init__(self, i):
        self.i = i

    def get_parameters(self, config):
        return [trained(np.full(3, 0.25), self.i, 0.1)]

    def fit(self, parameters, config):
        return [trained(parameters[0], self.i, 0.1)], len(rows(self.i)[1]), {}

    def evaluate(self, parameters, config):
        loss, share = measured(parameters[0], self.i)
        return loss, len(rows(self.i)[1]), {"accuracy": share}


def client_fn(context):
    return Classic(context.node_config["partition-id"]).to_client()


classic = ClientApp(client_fn=client_fn)
secret = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])

if os.environ.get("LINES_WITH_TORCH"):
    import torch

    learnt = ClientApp()

    @learnt.train()
    def of_torch(message, context):
        i = context.node_config["partition-id"]
        layer = torch.nn.Linear(3, 1, bias=False, dtype=torch.float64)
        layer.load_state_dict(message.content["arrays"].to_torch_state_dict())
        A, b = (torch.tensor(one) for one in rows(i))
        for _ in range(2):  # by hand, as torch.optim takes seconds to import
            order = torch.randperm(len(b))[:3]  # a batch by torch's own generator
            order = torch.arange(3) if context.run_config["wrong"] != "draws" else order
            (slope,) = torch.autograd.grad(
                torch.nn.functional.mse_loss(layer(A[order])[:, 0], b[order]), layer.weight
            )
            with torch.no_grad():
                layer.weight -= 0.05 * slope
        said = MetricRecord({"num-examples": len(b)})
        arrays = ArrayRecord(layer.state_dict())
        return Message(RecordDict({"arrays": arrays, "metrics": said}), reply_to=message)
