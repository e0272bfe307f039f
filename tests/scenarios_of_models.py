"""Small scenarios whose local model is a plug-in's."""

from pathlib import Path

PLUGIN = Path(__file__).parent / "plugins" / "timed_models.py"


def modelled(model="counted-quadratic", loss="squared", **changes):
    """FedAvg with batches of 4 rows, three local steps, three agents with 6 rows of 5 numbers."""
    data = {"source": "synthetic", "kind": "regression", "rows": 6, "dim": 5}
    problem = {"agents": 3, "data": data, "precision": "float64"}
    problem |= {"loss": loss} if model is None else {"model": model}
    local = {"solver": "sgd", "batch": 4, "epochs": 3, "step": 0.01}
    return {
        "name": "timed",
        "seed": 3,
        "plugins": [str(PLUGIN)],
        "problem": problem,
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": "10 ms"}},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 4},
        **changes,
    }
