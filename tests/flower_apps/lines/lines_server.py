"""Servers of all of Flower's interfaces; `final` is the model that they came to."""

import numpy as np
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common import ndarrays_to_parameters, parameters_to_ndarrays
from flwr.server import LegacyContext, ServerAppComponents, ServerConfig
from flwr.server import strategy as old
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp
from flwr.serverapp import strategy as new

final = []
app, secret, pushing = ServerApp(), ServerApp(), ServerApp()
START = np.full(3, 0.25)
OPTIONS = {"FedAdam": {"eta": 0.1}, "FedProx": {"proximal_mu": 0.1}}


def central(server_round, arrays):
    return MetricRecord({"length": float(np.linalg.norm(arrays.to_numpy_ndarrays()[0]))})


@app.main()
def main(grid, context):
    config = context.run_config
    if config["wrong"] == "server":
        raise LookupError("no such strategy")
    own = getattr(new, config["strategy"])(
        fraction_train=config["fraction"],
        fraction_evaluate=config["asked"],
        **OPTIONS.get(config["strategy"], {}),
    )
    start = ArrayRecord({"weight": Array(START[None] if config["row"] else START)})
    result = own.start(
        grid,
        start,
        num_rounds=config["rounds"],
        timeout=config["limit"],
        evaluate_fn=central if config["central"] else None,
    )
    final[:] = result.arrays.to_numpy_ndarrays()


class Adam(old.FedAdam):
    def aggregate_fit(self, *replies):
        return noted(super().aggregate_fit(*replies))


class Mean(old.FedAvg):
    def aggregate_fit(self, *replies):
        return noted(super().aggregate_fit(*replies))


def noted(answer):
    final[:] = parameters_to_ndarrays(answer[0])
    return answer


def begun(kind, **options):
    start = ndarrays_to_parameters([START])
    return kind(initial_parameters=start, **options)


def server_fn(context):
    strategy = begun(Adam, eta=0.1, fraction_evaluate=0.0)  # tau: 1e-9, by which bits grow
    rounds = context.run_config["rounds"]
    return ServerAppComponents(config=ServerConfig(num_rounds=rounds), strategy=strategy)


classic = ServerApp(server_fn=server_fn)


@secret.main()
def secret_main(grid, context):
    strategy = begun(Mean, fraction_evaluate=0.0)
    own = LegacyContext(context=context, config=ServerConfig(num_rounds=1), strategy=strategy)
    workflow = SecAggPlusWorkflow(num_shares=1.0, reconstruction_threshold=0.5)
    DefaultWorkflow(fit_workflow=workflow)(grid, own)


@pushing.main()
def pushing_main(grid, context):
    w, owed = START.copy(), {}

    def push(nodes):
        content = [RecordDict({"arrays": ArrayRecord([w])}) for _ in nodes]
        messages = [Message(one, node, "train") for one, node in zip(content, nodes, strict=True)]
        ids = grid.push_messages(messages)
        owed.update(zip(ids, nodes, strict=True))

    push(list(grid.get_node_ids()))
    for _ in range(6):
        came = list(grid.pull_messages([*owed]))
        for one in came:
            w = 0.5 * w + 0.5 * one.content["arrays"].to_numpy_ndarrays()[0]
        push([owed.pop(one.metadata.reply_to_message_id) for one in came])
    final[:] = [w]


asking = ServerApp()


@asking.main()
def asking_main(grid, context):
    """Statistics of the nodes' rows, twice; or, where `wrong` says so, what nobody pulls."""
    total, unheard = 0.0, context.run_config["wrong"] == "unheard"
    for _ in range(3 if unheard else 2):
        content = [(node, RecordDict()) for node in grid.get_node_ids()]
        messages = [Message(one, node, "query") for node, one in content]
        if unheard:
            grid.push_messages(messages)
            continue
        for one in grid.send_and_receive(messages):
            total += one.content["said"]["rows"]
    final[:] = [np.array([total])]
