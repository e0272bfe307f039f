"""How each client did on its own test rows over time, and how far apart clients were."""

from typing import TYPE_CHECKING

import numpy as np

from desim.errors import InputError
from desim.numerics.later import pd
from desim.problem.own_tests import FAIRNESS

if TYPE_CHECKING:
    from desim.runs.run import Run

MEASURED = {"accuracy": "client_accuracy", "loss": "client_loss"}  # column -> metric


def by_client(run: "Run") -> "pd.DataFrame":
    """See `Run.clients`."""
    table = run.metrics
    table = table[table["agent"] >= 0]
    found = {name: table[table["metric"] == metric] for name, metric in MEASURED.items()}
    some = next((one for one in found.values() if len(one)), None)
    rows = run.manifest.get("test_rows")
    if some is None or rows is None:
        text = f"clients: run {run.name} has not measured them"
        allowed = "a scenario with problem.data.test: own and client_accuracy, or client_loss"
        raise InputError(f"{text}; allowed: {allowed}, in observe.metrics")
    times = len(some) // max(1, len(rows))
    if not np.array_equal(some["agent"], np.tile(np.arange(len(rows)), times)):
        text = f"clients: test_rows in the manifest of run {run.name} are of {len(rows)} agents"
        raise InputError(f"{text}, and metrics are of others; allowed: a manifest as it was stored")
    parts = {name: some[name].to_numpy() for name in ("round", "time", "agent")}
    parts["rows"] = np.array(rows, np.int64)[parts["agent"]]
    for name, one in found.items():
        parts[name] = one["value"].to_numpy(float) if len(one) else np.full(len(some), np.nan)
    return pd.DataFrame(parts)


def fairness(run: "Run") -> "pd.DataFrame":
    """See `Run.fairness`."""
    table = by_client(run)
    if table["accuracy"].isna().all():
        text = f"fairness: run {run.name} has not measured clients' accuracies"
        raise InputError(f"{text}; allowed: a run with client_accuracy in observe.metrics")
    agents = len(run.manifest["test_rows"])
    first = table.iloc[::agents]
    values = table["accuracy"].to_numpy(float).reshape(-1, agents)
    rows = np.array(run.manifest["test_rows"], np.int64)
    found = {name: [of(one, rows) for one in values] for name, of in FAIRNESS.items()}
    moments = {name: first[name].to_numpy() for name in ("time", "round")}
    return pd.DataFrame({**moments, **found})
