"""Flower's strategies as they are, by both of its interfaces, with their own defaults."""

import numpy as np
from flwr.app import ArrayRecord
from flwr.common import ndarrays_to_parameters
from flwr.server import ServerAppComponents, ServerConfig
from flwr.server import strategy as old
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as new

START = [np.zeros((10, 64)), np.zeros(10)]
OPTIONS = {"FedProx": {"proximal_mu": 0.5}}


def least(nodes, verb, noun):
    """How many must be there and take part: all, as Flower's own nodes come one by one."""
    return {f"min_{one}_{noun}": nodes for one in ("available", verb, "evaluate")}


def server_fn(context):
    """A strategy of the classic API."""
    config = context.run_config
    strategy = getattr(old, config["strategy"])(
        initial_parameters=ndarrays_to_parameters(START),
        **least(config["nodes"], "fit", "clients"),
        on_fit_config_fn=lambda server_round: {"round": server_round},
        **OPTIONS.get(config["strategy"], {}),
    )
    rounds = ServerConfig(num_rounds=config["rounds"])
    return ServerAppComponents(config=rounds, strategy=strategy)


messages, classic = ServerApp(), ServerApp(server_fn=server_fn)


@messages.main()
def main(grid, context):
    """A strategy of the message API."""
    config = context.run_config
    options = least(config["nodes"], "train", "nodes") | OPTIONS.get(config["strategy"], {})
    own = getattr(new, config["strategy"])(**options)
    own.start(grid, ArrayRecord(START), num_rounds=config["rounds"])
