"""FedAvg with Flower's workflows: plain averages, and SecAgg+."""

import numpy as np
from flwr.common import ndarrays_to_parameters
from flwr.server import LegacyContext, ServerConfig
from flwr.server.strategy import FedAvg
from flwr.server.workflow import DefaultWorkflow, SecAggPlusWorkflow
from flwr.serverapp import ServerApp

plain, secret = ServerApp(), ServerApp()


def play(grid, context, **workflow):
    """Rounds of FedAvg; nobody evaluates."""
    start = ndarrays_to_parameters([np.zeros((65, 10))])
    strategy = FedAvg(initial_parameters=start, fraction_evaluate=0.0, min_fit_clients=1)
    config = ServerConfig(num_rounds=int(context.run_config["rounds"]))
    DefaultWorkflow(**workflow)(grid, LegacyContext(context, config=config, strategy=strategy))


@plain.main()
def plain_main(grid, context):
    """Averages of what nodes send."""
    play(grid, context)


@secret.main()
def secret_main(grid, context):
    """Averages of masked replies: each node shares its secrets with all others."""
    play(grid, context, fit_workflow=SecAggPlusWorkflow(1.0, 0.5))
