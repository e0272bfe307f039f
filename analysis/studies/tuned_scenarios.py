"""Three scenarios that play in some ten milliseconds, each with a grid of keys to tune."""

from typing import Any

SEEDS = "0..9"
WIFI = {"link": {"latency": "20 ms", "bandwidth": "5 Mbit/s", "jitter": {"lognormal": 0.3}}}
PHONES: dict[str, Any] = {
    "problem": {
        "agents": 10,
        "data": {"source": "synthetic", "kind": "classification", "rows": 20, "dim": 5},
        "loss": "logistic", "regularizer": {"l2": 1.0},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "gradient", "epochs": 5}},
    "network": WIFI,
    "compute": {"speed": {"lognormal": ["2000 /s", 0.8]}},
    "observe": {"metrics": ["error"]},
    "stop": {"rounds": 400, "time": "60 s", "metric": {"error": 1e-3}},
}  # fmt: skip
DIGITS: dict[str, Any] = {
    "problem": {
        "agents": 10,
        "data": {"source": "sklearn", "name": "digits", "test": "20 %", "scale": "max"},
        "partition": {"dirichlet": 0.3}, "loss": {"softmax": {"classes": 10}},
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {
        "name": "fedavg", "local": {"solver": "sgd", "epochs": 2, "batch": 16, "step": 0.1},
    },
    "participation": {"uniform": 5},
    "network": WIFI,
    "compute": {"speed": {"lognormal": ["200 /s", 0.5]}},
    "observe": {"metrics": ["accuracy"]},
    "stop": {"rounds": 100, "time": "60 s", "metric": {"accuracy": 0.85}},
}  # fmt: skip
PRIVATE: dict[str, Any] = {
    "problem": {
        "agents": 10,
        "data": {
            "source": "sklearn", "name": "breast_cancer", "test": "20 %", "scale": "standard",
            "normalize": "clip", "intercept": True,
        },
        "loss": "logistic", "regularizer": {"l2": 1.0}, "clip": 1.0,
    },
    "algorithm": {
        "name": "fed-plt", "rho": 0.5, "local": {"solver": "noisy", "epochs": 10, "tau": 0.1},
    },
    "network": WIFI,
    "compute": {"speed": {"lognormal": ["2000 /s", 0.4]}, "slow": {"fraction": 0.2, "factor": 4}},
    "privacy": {"relation": "replace-one", "view": "coordinator"},
    "observe": {"metrics": ["accuracy"]},
    "stop": {"rounds": 60, "metric": {"accuracy": 0.93}},
}  # fmt: skip
SCENARIOS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "phones": (
        PHONES,
        {
            "until": {"error": 1e-3}, "seeds": SEEDS,
            "vary": {
                "algorithm.rho": [0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
                "algorithm.local.epochs": [1, 2, 3, 5, 8, 12, 20],
                "policy": [
                    "all", "each", {"quorum": 8}, {"quorum": 5}, {"deadline": "100 ms"},
                    {"deadline": "200 ms"}, {"deadline": "500 ms"}, {"deadline": "1 s"},
                ],
            },
        },
    ),
    "digits": (
        DIGITS,
        {
            "until": {"accuracy": 0.85}, "seeds": SEEDS,
            "vary": {
                "algorithm.local.epochs": [1, 2, 3, 5, 8],
                "algorithm.local.step": [0.02, 0.05, 0.1, 0.2, 0.5, 1.0],
                "algorithm.local.batch": [8, 16, 32],
                "participation.uniform": [2, 3, 5, 8, 10],
            },
        },
    ),
    "private": (
        PRIVATE,
        {
            "until": {"accuracy": 0.93}, "seeds": SEEDS, "limits": {"epsilon": 3},
            "vary": {
                "algorithm.rho": [0.1, 0.3, 1.0, 3.0],
                "algorithm.local.epochs": [2, 5, 10, 20, 40],
                "algorithm.local.tau": [0.02, 0.05, 0.1, 0.2, 0.4],
                "policy": ["all", {"quorum": 8}, {"deadline": "500 ms"}],
            },
        },
    ),
}  # fmt: skip
