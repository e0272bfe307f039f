"""Softmax regression on digits, by NumPyClients, with and without Flower's masks."""

import numpy as np
from flwr.client import NumPyClient
from flwr.client.mod import secaggplus_mod
from flwr.clientapp import ClientApp
from sklearn.datasets import load_digits

pixels, labels = load_digits(return_X_y=True)
pixels = np.hstack([pixels / 16, np.ones((len(pixels), 1))])


class Client(NumPyClient):
    """A node with every `nodes`-th row."""

    def __init__(self, i, nodes):
        self.x, self.y = pixels[i::nodes], labels[i::nodes]

    def fit(self, parameters, config):
        """Five gradient steps."""
        w = parameters[0]
        for _ in range(5):
            e = np.exp(self.x @ w)
            w = w - 0.1 * self.x.T @ (e / e.sum(1, keepdims=True) - np.eye(10)[self.y]) / len(
                self.y
            )
        return [w], len(self.y), {}


def client_fn(context):
    """The client of a node."""
    own = context.node_config
    return Client(int(own["partition-id"]), int(own["num-partitions"])).to_client()


plain = ClientApp(client_fn=client_fn)
secret = ClientApp(client_fn=client_fn, mods=[secaggplus_mod])
