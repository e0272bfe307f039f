"""Models of Flower apps under desim's clock, and in Flower's own simulation of the same app.

    python -m analysis.fidelity.flower_models

Twelve apps: {FedAvg, FedAdam, FedProx} with Flower's own defaults, clients that learn by NumPy or
by torch, of the classic or the message API. Each is played twice under desim, on `4g` with devices
that differ, and once by Flower's simulation runtime: its Grid, its link state, its workers. Ray
alone is left out of it: a worker calls the ClientApp in its thread (`in_threads`). Flower has no
order of replies, as they come when threads end; here its strategies get them by partition, as
desim's get them (`by_partition`).

`difference`: the largest one of the last models, relative to the largest number. `another`: the
same where one node of Flower's takes another batch in one round, which the difference must see.
Both sides share the app, and nothing else: what it draws follows from node and round alone.
"""

import copy
import logging
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from desim.arrays import Array

APP = Path(__file__).with_name("flower_softmax")
RESULTS = Path(__file__).parent / "measured" / "flower_models.csv"
STRATEGIES, LEARNERS, INTERFACES = (
    ("FedAvg", "FedAdam", "FedProx"), ("numpy", "torch"), ("classic", "messages"),
)  # fmt: skip
NODES, ROUNDS, SEED = 6, 4, 1
PHONES = {"network": "4g", "compute": {"speed": {"lognormal": ["300 /s", 1.0]}}}
BAR = 1e-12
TABLES = "events", "metrics", "releases"
VCE = "flwr.server.superlink.fleet.vce"


# Flower's own run.


def app(strategy: str, learner: str, interface: str, wrong: bool = False) -> Any:
    """One of the twelve apps; wrong: one node takes another batch in one round."""
    from desim.flower.apps import App

    parts = f"softmax_server:{interface}", f"softmax_client:{learner}_{interface}"
    config = {"strategy": strategy, "rounds": ROUNDS, "nodes": NODES, "wrong": wrong}
    return App(APP, *parts, tuple(config.items()))


def in_threads() -> Any:
    """A backend of Flower's simulation whose workers call the ClientApp themselves."""
    from flwr.server.superlink.fleet.vce.backend import Backend

    class InThreads(Backend):  # type: ignore[misc]
        """Two workers, as a pool of two actors has."""

        num_workers = 2

        def build(self, app_fn: Any) -> None:
            """Where the ClientApp comes from."""
            self.app_fn = app_fn

        def is_worker_idle(self) -> bool:
            """Workers take messages by themselves."""
            return True

        def terminate(self) -> None:
            """There is nothing to end."""

        def process_message(self, message: Any, context: Any) -> tuple[Any, Any]:
            """A reply, and the node's context after it."""
            own = copy.deepcopy(context)
            return self.app_fn()(message, own), own

    return InThreads


@contextmanager
def by_partition() -> Iterator[None]:
    """Let strategies get replies in the order of partitions, in Flower's own simulation."""
    from flwr.server import server as classic
    from flwr.server.superlink.fleet.vce import vce_api
    from flwr.serverapp.strategy import FedAvg

    register, fit, train = vce_api._register_nodes, classic.fit_clients, FedAvg.aggregate_train
    place: dict[int, int] = {}

    def registered(**named: Any) -> Any:
        found = register(**named)
        place.update(found)
        return found

    def fitted(*arguments: Any, **named: Any) -> Any:
        results, failures = fit(*arguments, **named)
        return sorted(results, key=lambda one: place[one[0].node_id]), failures

    def trained(self: Any, server_round: int, replies: Any) -> Any:
        whole = sorted(replies, key=lambda one: place[one.metadata.src_node_id])
        return train(self, server_round, whole)

    vce_api._register_nodes, classic.fit_clients = registered, fitted
    FedAvg.aggregate_train = trained
    try:
        yield
    finally:
        vce_api._register_nodes, classic.fit_clients = register, fit
        FedAvg.aggregate_train = train


def flowers(own: Any) -> Array:
    """The model (dim,) that an app comes to in Flower's simulation."""
    from flwr.app import Context, RecordDict
    from flwr.supercore.constant import NOOP_FEDERATION_ID
    from flwr.supercore.run import Run
    from flwr.supercore.task_identity import TaskIdentity

    from analysis.fidelity.flower_lockstep import ends

    simulation, ray = import_module("flwr.simulation.run_simulation"), f"{VCE}.backend.raybackend"
    stand_in = types.ModuleType(ray)
    vars(stand_in)["RayBackend"] = in_threads()
    parts, before, event = own.loaded(), sys.modules.get(ray), simulation.event
    identity = TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id
    run, config = Run.create_empty(run_id := 7), dict(own.config)
    run.primary_task_id, run.federation_id, run.override_config = 1, NOOP_FEDERATION_ID, config
    heard = types.SimpleNamespace(model=None)
    try:
        sys.modules[ray] = stand_in
        simulation.event = lambda *_, **__: None  # which would tell Flower's makers of this play
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, run_id, 1
        with by_partition(), ends(heard):
            simulation._run_simulation(
                num_supernodes=NODES, exit_event=None,
                client_app=parts.client, server_app=parts.server, backend_name="in threads",
                server_app_context=Context(run_id, 1, {}, RecordDict(), config),
                app_dir=str(own.folder), run=run, is_app=True,
            )  # fmt: skip
    finally:
        simulation.event = event
        del sys.modules[ray]
        if before is not None:
            sys.modules[ray] = before
        TaskIdentity._task_id, TaskIdentity._run_id, TaskIdentity._node_id = identity
    return np.asarray(heard.model)


# Under desim, and both side by side.


def played(own: Any) -> Any:
    """A run of an app under desim's clock."""
    import desim
    from desim.flower.asked import keys

    config = [f"{key}={str(one).lower() if key == 'wrong' else one}" for key, one in own.config]
    scenario = keys(own, [str(APP)], config, NODES, None, SEED)
    for where in (scenario["problem"]["model"], scenario["problem"]["data"]["arguments"]):
        where |= {"server": own.server, "client": own.client}
    return desim.run({"seed": SEED, **PHONES, **scenario})


def apart(one: Array, other: Array) -> float:
    """The largest difference of two models (dim,), relative to the second's largest number."""
    return float(np.abs(one - other).max() / np.abs(other).max())


def row(strategy: str, learner: str, interface: str) -> dict[str, Any]:
    """What was found of one app."""
    own = app(strategy, learner, interface)
    runs, expected = [played(own) for _ in range(2)], flowers(own)
    whole = all(getattr(runs[0], name).equals(getattr(runs[1], name)) for name in TABLES)
    other = played(app(strategy, learner, interface, wrong=True))
    return {
        "strategy": strategy, "client": learner, "interface": interface,
        "rounds": int(runs[0].manifest["rounds"]), "seconds": float(runs[0].manifest["time"]),
        "difference": apart(runs[0].model[-1], expected), "same log twice": whole,
        "another": apart(other.model[-1], expected),
    }  # fmt: skip


def rows() -> pd.DataFrame:
    """A row for each of the twelve."""
    cells = [(s, c, i) for s in STRATEGIES for c in LEARNERS for i in INTERFACES]
    return pd.DataFrame([row(*one) for one in cells])


def failures(table: pd.DataFrame) -> list[str]:
    """Which rows are not what they are to be, a line each: models equal, and seen where not."""
    good = (table["difference"] <= BAR) & table["same log twice"] & (table["another"] > BAR)
    return [" ".join(map(str, one)) for one in table[~good].to_numpy().tolist()]


def line(one: Any) -> str:
    """A row as the page has it."""
    what = one["strategy"], one["client"], one["interface"], f"{one['seconds']:.2f}"
    same = "yes" if one["same log twice"] else "no"
    found = f"{one['difference']:.1g}", same, f"{one['another']:.1g}"
    return f"| {' | '.join([*what, *found])} |"


def main() -> None:
    """Play them, write and print the table; fail where a model differs."""
    logging.disable(logging.ERROR)
    table = rows()
    table.to_csv(RESULTS, index=False, float_format="%.6g")
    print("\n".join(map(line, table.to_dict("records"))))
    if found := failures(table):
        raise SystemExit("\n".join(found))


if __name__ == "__main__":
    main()
