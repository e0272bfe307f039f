"""Servers whose strategies add noise, and clients that clip what they were changed by."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, RecordDict
from flwr.client.mod import fixedclipping_mod as classic_clipping
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import fixedclipping_mod
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerAppComponents, ServerConfig
from flwr.server import strategy as old
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as new
from lines_client import client_fn, evaluate, train

CLIP, MULTIPLIER, COHORT = 0.5, 2.0, 4
START = np.full(3, 0.25)
HEAD = "DifferentialPrivacy"
SIDES = {
    "server": "ServerSideFixedClipping",
    "client": "ClientSideFixedClipping",
    "adaptive": "ServerSideAdaptiveClipping",
}
final = []


def wrapped(strategies, inner, side):
    kind = getattr(strategies, HEAD + SIDES[side])
    if side == "adaptive":
        return kind(inner, 0.2, COHORT, initial_clipping_norm=CLIP)
    return kind(inner, MULTIPLIER, CLIP, COHORT)


app, secret = ServerApp(), ServerApp()


@app.main()
def main(grid, context):
    config = context.run_config
    options = {"eta": 0.1} if config["strategy"] == "FedAdam" else {}
    inner = getattr(new, config["strategy"])(
        fraction_train=config["fraction"], fraction_evaluate=config["asked"], **options
    )
    start = ArrayRecord({"weight": Array(START)})
    own = wrapped(new, inner, config["noise"])
    result = own.start(grid, start, num_rounds=config["rounds"])
    final[:] = result.arrays.to_numpy_ndarrays()


around = ServerApp()


@around.main()
def around_main(grid, context):
    """Rounds with noise, and beside them what has none: of which kind the configuration says."""
    start, what = ArrayRecord({"weight": Array(START)}), context.run_config["wrong"]
    own = wrapped(new, new.FedAvg(fraction_evaluate=0.0), "server")
    if what == "replaced":
        own._add_noise_to_aggregated_arrays = lambda arrays: arrays
    first = own.start(grid, start, num_rounds=1).arrays
    if what == "asked":
        content = RecordDict({"arrays": first})
        ids = list(grid.get_node_ids())
        grid.send_and_receive([Message(content, i, "query") for i in ids])
        own.start(grid, first, num_rounds=1)
    elif what == "plain":
        new.FedAvg(fraction_evaluate=0.0).start(grid, first, num_rounds=1)
    elif what == "twice":
        own.start(grid, first, num_rounds=1)


def server_fn(context):
    start = ndarrays_to_parameters([START])
    asked = context.run_config["wrong"] == "asked"
    inner = old.FedAvg(initial_parameters=None if asked else start, fraction_evaluate=0.0)
    strategy = wrapped(old, inner, context.run_config["noise"])
    return ServerAppComponents(config=ServerConfig(num_rounds=2), strategy=strategy)


@secret.main()
def secret_main(grid, context):
    own = server_fn(context)
    legacy = LegacyContext(context=context, config=own.config, strategy=own.strategy)
    workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5)
    DefaultWorkflow(fit_workflow=workflow)(grid, legacy)


classic = ServerApp(server_fn=server_fn)
clipped = ClientApp()
clipped.train(mods=[fixedclipping_mod])(train)
clipped.evaluate()(evaluate)
asked = ClientApp()
asked.train()(train)
asked.query()(train)
clipped_classic = ClientApp(client_fn=client_fn, mods=[classic_clipping])
