"""Small scenarios that together use every algorithm, policy and link model; data that all share."""

import copy
from typing import Any

NETWORK = {
    "link": {
        "latency": {"uniform": ["5 ms", "40 ms"]},
        "bandwidth": {"uniform": ["0.1 Mbit/s", "1 Mbit/s"]},
        "jitter": {"lognormal": 0.3},
    }
}
COMPUTE = {"speed": {"uniform": [100, 900]}, "slow": {"fraction": "20 %", "factor": 4}}
LOSSY = {"link": {**NETWORK["link"], "loss": "15 %", "timeout": "60 ms", "limit": 8}}


REPLACED = ("policy", "participation", "topology", "data", "stop", "speed", "regularizer", "noise")


def star(**changes: Any) -> dict[str, Any]:
    """A fed-plt scenario on heterogeneous links and devices."""
    return merged(
        {
            "seed": 11,
            "problem": {
                "agents": 6,
                "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 5},
                "loss": "logistic",
                "regularizer": {"l2": 3.0},
            },
            "algorithm": {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 4}},
            "network": NETWORK,
            "compute": COMPUTE,
            "observe": {"metrics": ["error", "loss"], "iterates": True},
            "stop": {"rounds": 12},
        },
        changes,
    )


def graph(**changes: Any) -> dict[str, Any]:
    """A zcdp-nfl scenario on a random regular graph."""
    return merged(
        {
            "seed": 5,
            "problem": {
                "agents": 8,
                "data": {"source": "synthetic", "kind": "regression", "rows": 6, "dim": 4},
                "loss": "squared",
                "regularizer": {"l2": 1.0},
                "clip": 4.0,
            },
            "algorithm": {"name": "zcdp-nfl", "rho": 0.4, "eta": 0.2},
            "network": {"topology": {"regular": 3}, **NETWORK},
            "compute": COMPUTE,
            "privacy": {"noise": {"kind": "gaussian", "sigma": 0.1, "decay": 0.95}},
            "observe": {"metrics": ["error", "consensus"], "iterates": True},
            "stop": {"rounds": 12},
        },
        changes,
    )


def deadline(**changes: Any) -> dict[str, Any]:
    """A q-dpsgd-1 scenario: some agents have no sample at some deadlines."""
    return merged(
        graph(
            problem={
                "data": {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4},
                "loss": "logistic",
            },
            algorithm={
                "name": "q-dpsgd-1",
                "alpha": {"initial": 0.5, "decay": "sqrt"},
                "mixing": 0.5,
                "bits": 4,
                "resolution": 0.05,
                "deadline": "10 ms",
            },
            compute={"speed": {"uniform": [20, 600]}, "redraw": "round"},
        ),
        changes,
    )


def merged(scenario: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    """`scenario` with `changes` merged in deeply; algorithm, policy, participation are replaced."""
    result = copy.deepcopy(scenario)
    for key, value in changes.items():
        old = result.get(key)
        whole = isinstance(value, dict) and (
            key in REPLACED or (key == "algorithm" and "name" in value)
        )
        if isinstance(value, dict) and isinstance(old, dict) and not whole:
            result[key] = merged(old, value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def local(**keys: Any) -> dict[str, Any]:
    """Changes of fed-plt's local training."""
    return {"algorithm": {"name": "fed-plt", "rho": 0.5, "local": keys}}


NOISY = {"solver": "noisy", "epochs": 3, "tau": 0.05}
CASES: dict[str, dict[str, Any]] = {
    "plt-all": star(),
    "plt-noisy": star(**local(**NOISY), problem={"clip": 1.0}),
    "plt-sgd-half": star(
        **local(solver="sgd", epochs=3, batch=3), participation={"bernoulli": 0.5}
    ),
    "plt-accelerated-subset": star(
        **local(solver="accelerated", epochs=3), participation={"uniform": 3}
    ),
    "plt-mixed-schedule": star(
        **local(
            solver=["gradient", "accelerated", "noisy", "gradient", "noisy", "accelerated"],
            epochs=3,
            step="per-agent",
            tau=0.02,
        ),
        participation={"schedule": [[0, 2, 4], [], [1, 5]]},
    ),
    "plt-exact": star(
        **local(solver="exact"),
        problem={
            "data": {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5},
            "loss": "squared",
        },
    ),
    "plt-l1": star(problem={"regularizer": {"l1": 0.5}}),
    "plt-box": star(problem={"regularizer": [{"l2": 2.0}, {"box": [-0.2, 0.3]}]}),
    "plt-huber-sum": star(
        problem={
            "data": {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5},
            "loss": {"huber": 0.5},
            "average": "sum",
        }
    ),
    "plt-deadline": star(policy={"deadline": "120 ms"}),
    "plt-deadline-carry": star(policy={"deadline": "120 ms", "late": "carry"}),
    "plt-quorum": star(policy={"quorum": 3}),
    "plt-quorum-carry": star(policy={"quorum": 3, "late": "carry"}),
    "plt-buffer": star(policy={"buffer": 2}, **local(**NOISY), problem={"clip": 1.0}),
    "plt-each": star(policy="each", stop={"rounds": 40}),
    "plt-each-half": star(policy="each", participation={"bernoulli": 0.5}, stop={"rounds": 40}),
    "plt-lossy": star(network=LOSSY),
    "plt-lossy-deadline": star(
        network=merged(LOSSY, {"link": {"on_loss": "drop"}}),
        policy={"deadline": "200 ms"},
        stop={"rounds": 30},
    ),
    "plt-resend-deadline": star(network=LOSSY, policy={"deadline": "50 ms"}, stop={"rounds": 60}),
    "plt-time": star(stop={"time": "1 s"}),
    "plt-target": star(stop={"rounds": 400, "metric": {"error": 1e-3}}),
    "plt-every": star(observe={"metrics": ["error"], "every": "100 ms"}),
    "nfl": graph(),
    "nfl-ring-plain": graph(network={"topology": "ring"}, privacy={"noise": {"sigma": 0.0}}),
    "nfl-phi": {**graph(), "privacy": {"noise": {"phi": 0.01, "growth": 0.99}}},
    "nfl-absolute": graph(
        problem={"loss": "absolute", "regularizer": {"elastic_net": {"l1": 0.3, "l2": 0.5}}},
        algorithm={"eta": {"initial": 0.3, "decay": "sqrt"}},
        network={"topology": {"random_tree_plus": 10}},
    ),
    "nfl-hinge": graph(
        problem={
            "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4},
            "loss": "hinge",
        },
        network={"topology": {"erdos_renyi": 0.5}},
    ),
    "nfl-lossy": graph(network=LOSSY),
    "nfl-time": graph(stop={"time": "1.5 s"}),
    "nfl-target": graph(
        privacy={"noise": {"sigma": 0.0}}, stop={"rounds": 400, "metric": {"error": 0.05}}
    ),
    "nfl-every": graph(observe={"metrics": ["error"], "every": "70 ms"}),
    "nfl-redraw": graph(compute={"redraw": "round"}),
    "qsgd": deadline(),
    "qsgd-lossy": deadline(network=LOSSY),
    "qsgd-plain": deadline(privacy={"noise": {"sigma": 0.0}}),
}
GRAPH = [name for name in CASES if not name.startswith("plt")]
STAR = [name for name in CASES if name.startswith("plt")]
