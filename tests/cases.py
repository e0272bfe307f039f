"""Small scenarios that together use every algorithm, policy and link model; data that all share."""

import copy
from collections.abc import Iterable
from typing import Any

import pytest

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


def central(**changes: Any) -> dict[str, Any]:
    """A gradient-descent scenario: all rows at one agent, who publishes every model."""
    scenario = merged(star(problem={"clip": 2.0}), {"algorithm": {"name": "gradient-descent"}})
    del scenario["problem"]["agents"], scenario["network"]
    scenario["compute"] = {"speed": {"uniform": [100, 900]}, "redraw": "round"}
    return merged(scenario, {"privacy": {"noise": {"sigma": 0.02}}, **changes})


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
DP_ADMM = {"name": "dp-admm", "rho": 0.4, "eta": {"initial": 0.5, "decay": "sqrt"}}
TAMUNA = {"name": "tamuna", "p": 0.3}
LED = {"name": "led", "local": {"epochs": 4}}
FIVE_GCS = {"name": "5gcs", "tau": 0.2, "local": {"epochs": 4}}
FED_PD = {"name": "fed-pd", "eta": 0.3, "local": {"epochs": 4}}
FEDLIN = {"name": "fedlin", "local": {"epochs": 4}}
FEDAVG = {"name": "fedavg", "local": {"epochs": 4}}
SCAFFOLD = {"name": "scaffold", "local": {"epochs": 4}}
FEDPROX = {"name": "fedprox", "mu": 0.5, "local": {"epochs": 4}}
FEDBUFF = {"name": "fedbuff", "global_step": 0.5, "local": {"epochs": 4}}
FEDASYNC = {"name": "fedasync", "alpha": 0.3, "rho": 0.1, "local": {"epochs": 4}}
FEDDYN = {"name": "feddyn", "alpha": 0.5, "local": {"epochs": 4}}
SGD = {"solver": "sgd", "epochs": 3, "batch": 3}
DROP = merged(NETWORK, {"link": {"loss": "10 %", "on_loss": "drop"}})
SUBGRADIENT = {"name": "zcdp-subgradient", "step": {"initial": 0.1, "decay": "sqrt"}}
RING = {"topology": "ring", **NETWORK}
D_ZOA = {"name": "d-zoa", "rho": 1.0, "inner": 6, "samples": 4, "step": 0.3}
OR_ZO = {"name": "or-zo", "samples": 4, "step": 0.5}
ZOO_ADMM = {"name": "zoo-admm", "rho": 0.5, "step": 0.2, "samples": 4}
QSGD = deadline()["algorithm"]
Q2SGD = {**QSGD, "name": "q-dpsgd-2"}
LATTICE = {"noise": {"kind": "discrete-gaussian", "sigma": 0.1, "resolution": 0.05}}
DSGD = {"name": "dsgd", "alpha": {"initial": 0.4, "decay": "sqrt"}, "batch": 3}
GOSSIP, ADPSGD, TRACKING, PUSH = (
    {**DSGD, "name": name} for name in ("gossip", "ad-psgd", "gradient-tracking", "push-sum")
)
DECOR = {**DSGD, "name": "decor", "shared": 0.2}
MUFFLIATO = {**DSGD, "name": "muffliato", "gossip": 2}
SDM = {**DSGD, "name": "sdm-dsgd", "theta": 0.5, "c": 0.4}


def fair(name: str, noise: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """A one-round scenario on data with a protected group; `keys`: more of its algorithm."""
    data = {"source": "synthetic", "kind": "classification", "rows": 12, "dim": 5}
    group = {"column": "x1", "above": 0.1}
    scenario = star(
        problem={"data": {**data, "protected": group}, "regularizer": {"l2": 0.3}},
        algorithm={"name": name, **changes.pop("keys", {})},
        stop={"rounds": 1},
    )
    scenario["privacy"] = {"noise": noise} if noise else {"relation": "replace-one"}
    return merged(scenario, changes)


def allotted(kind: str, *epsilons: float, delta: float = 1e-3) -> dict[str, Any]:
    """Noise for an epsilon, or for those of the special attribute and of the rest."""
    ends = ("",) if len(epsilons) == 1 else ("_s", "_n")
    noise: dict[str, Any] = {"kind": kind}
    for end, epsilon in zip(ends, epsilons, strict=True):
        noise[f"epsilon{end}"] = epsilon
        if kind == "gaussian":
            noise[f"delta{end}"] = delta
    return noise


PRINTED = {"penalty": "printed", "sensitivity": "printed", "zbar": 0.4}
PLAUSIBLE = {"eta": 0.4, "beta": 0.01, "splits": 0.2, "norm": 1.5}
UNIT = {
    "data": {
        "source": "synthetic", "kind": "classification", "rows": 6, "dim": 4, "normalize": "l2",
    },
    "loss": "logistic",
    "clip": 1.0,
}  # fmt: skip
CASES: dict[str, dict[str, Any]] = {
    "plt-all": star(),
    "plt-noisy": star(**local(**NOISY), problem={"clip": 1.0}),
    "plt-calibrated": star(
        **local(solver="noisy", epochs=3),
        problem={"clip": 1.0},
        privacy={"target": {"epsilon": 2, "delta": 1e-5}, "relation": "add-or-remove-one"},
    ),
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
    "plt-increments": star(
        algorithm={"name": "fed-plt", "rho": 0.5, "send": "increments", "local": NOISY},
        problem={"clip": 1.0, "regularizer": [{"l2": 3.0}, {"l1": 0.1}]},
        policy={"buffer": 2},
        participation={"bernoulli": 0.7},
        network=LOSSY,
        stop={"rounds": 30},
    ),
    "plt-langevin": star(
        algorithm={"name": "fed-plt", "rho": 0.5, "init": "langevin", "local": NOISY},
        problem={"clip": 1.0},
    ),
    "plt-box-each": star(
        problem={"regularizer": [{"l2": 2.0}, {"box": [-0.2, 0.3]}]},
        policy="each",
        stop={"rounds": 40},
    ),
    "plt-deadline": star(policy={"deadline": "120 ms"}),
    "plt-deadline-carry": star(policy={"deadline": "120 ms", "late": "carry"}),
    "plt-quorum": star(policy={"quorum": 3}),
    "plt-quorum-carry": star(policy={"quorum": 3, "late": "carry"}),
    "plt-quorum-at-most": star(policy={"quorum": 4, "at_most": "90 ms", "late": "carry"}),
    "plt-adaptive": star(
        policy={"adaptive": {"quantile": 0.6, "times": 1.1}, "at_least": 2, "at_most": "0.3 s"},
        compute={"redraw": "round"},
    ),
    "plt-buffer": star(policy={"buffer": 2}, **local(**NOISY), problem={"clip": 1.0}),
    "plt-each": star(policy="each", stop={"rounds": 40}),
    "plt-each-half": star(policy="each", participation={"bernoulli": 0.5}, stop={"rounds": 40}),
    "plt-lossy": star(network=LOSSY),
    "plt-lossy-carry": star(
        network=merged(LOSSY, {"link": {"on_loss": "drop"}}),
        policy={"deadline": "0.2 s", "late": "carry"},
        stop={"rounds": 40},
    ),
    "plt-lossy-deadline": star(
        network=merged(LOSSY, {"link": {"on_loss": "drop"}}),
        policy={"deadline": "200 ms"},
        stop={"rounds": 30},
    ),
    "plt-resend-deadline": star(network=LOSSY, policy={"deadline": "50 ms"}, stop={"rounds": 60}),
    "plt-time": star(stop={"time": "1 s"}),
    "plt-target": star(stop={"rounds": 400, "metric": {"error": 1e-3}}),
    "plt-budget": star(
        **local(**NOISY),
        problem={"clip": 1.0},
        policy={"deadline": "90 ms"},
        network=LOSSY,
        privacy={"budget": 60},
        stop={"rounds": 30},
    ),
    "plt-budget-stop": star(
        **local(**NOISY),
        problem={"clip": 1.0},
        privacy={"budget": 60, "on_exhausted": "stop"},
    ),
    "plt-softmax": star(
        **local(**NOISY),
        problem={"loss": "softmax", "clip": 1.0},
        observe={"metrics": ["loss", "gradient"]},
    ),
    "plt-every": star(observe={"metrics": ["error"], "every": "100 ms"}),
    "nfl": graph(),
    "nfl-ring-plain": graph(network={"topology": "ring"}, privacy={"noise": {"sigma": 0.0}}),
    "nfl-phi": {**graph(), "privacy": {"noise": {"phi": 0.01, "growth": 0.99}}},
    "nfl-laplace": {**graph(), "privacy": {"noise": {"kind": "laplace", "sigma": 0.1}}},
    "nfl-discrete": {
        **graph(),
        "privacy": {"noise": {"kind": "discrete-gaussian", "sigma": 0.1, "resolution": 0.01}},
    },
    "nfl-calibrated": {
        **graph(),
        "privacy": {"noise": {"growth": 0.95}, "target": {"epsilon": 4, "delta": 1e-5}},
    },
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
    "nfl-budget": graph(
        network={"topology": {"erdos_renyi": 0.5}},
        privacy={"noise": {"sigma": 0.3}, "budget": 10},
    ),
    "nfl-budget-stop": graph(privacy={"budget": 25, "on_exhausted": "stop"}),
    "nfl-mlp": graph(
        algorithm={"name": "zcdp-nfl", "rho": 0.4, "eta": 0.2, "init": {"normal": 0.5}},
        problem={
            "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4},
            "loss": {"mlp": {"hidden": 3}},
            "clip": 0.5,
            "precision": "float32",
        },
        observe={"metrics": ["loss", "consensus"]},
    ),
    "nfl-every": graph(observe={"metrics": ["error"], "every": "70 ms"}),
    "nfl-redraw": graph(compute={"redraw": "round"}),
    "nfl-late": graph(
        network=DROP, policy={"deadline": "60 ms", "late": "carry"}, stop={"rounds": 30}
    ),
    "nfl-late-budget": graph(
        network={**DROP, "topology": {"erdos_renyi": 0.5}},
        policy={"deadline": "60 ms", "late": "carry"},
        privacy={"noise": {"sigma": 0.3}, "budget": 10},
    ),
    "nfl-late-time": graph(
        network=DROP, policy={"deadline": "30 ms", "late": "carry"}, stop={"time": "1.5 s"}
    ),
    "dp-nfl": {
        **graph(algorithm={"name": "dp-nfl", "rho": 0.4, "eta": 0.2}),
        "privacy": {"noise": {"epsilon": 3.0, "delta": 1e-5, "composition": "basic"}},
    },
    "dp-nfl-advanced": {
        **graph(algorithm={"name": "dp-nfl", "rho": 0.4, "eta": {"initial": 0.2, "decay": "sqrt"}}),
        "privacy": {"noise": {"epsilon": 9.0, "delta": 1e-5, "composition": "advanced"}},
    },
    "subgradient": graph(algorithm=SUBGRADIENT),
    "subgradient-absolute": graph(
        algorithm={**SUBGRADIENT, "weights": "laplacian"},
        problem={"loss": "absolute", "regularizer": {"l1": 0.3}},
        network=DROP,
        policy={"deadline": "60 ms", "late": "carry"},
        privacy={"noise": {"kind": "laplace", "sigma": 0.1}},
    ),
    "subgradient-phi": {
        **graph(algorithm={"name": "zcdp-subgradient", "step": 0.05}),
        "privacy": {"noise": {"phi": 0.01, "growth": 0.99}},
    },
    "p-admm": graph(algorithm={"name": "p-admm", "rho": 0.4}, problem={"clip": 1.0}),
    "p-admm-late": graph(
        algorithm={"name": "p-admm", "rho": 0.4, "passes": 4},
        problem={
            "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4},
            "loss": "logistic",
            "clip": 0.5,
        },
        network=DROP,
        policy={"deadline": "60 ms", "late": "carry"},
        stop={"rounds": 20},
    ),
    "p-admm-calibrated": {
        **graph(algorithm={"name": "p-admm", "rho": 0.4}, problem={"clip": 1.0}),
        "privacy": {"noise": {"growth": 0.95}, "target": {"epsilon": 4, "delta": 1e-5}},
    },
    "admm": {
        **graph(algorithm={"name": "admm", "eta": 0.4}, problem={"clip": 1.0}, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "choco": {
        **graph(algorithm={"name": "choco-sgd", "alpha": 0.1, "gamma": 0.3}, network=LOSSY),
        "codec": {"top-k": 0.5},
    },
    "choco-plain": {
        **graph(
            algorithm={"name": "choco-sgd", "alpha": DSGD["alpha"], "batch": 3, "gamma": 0.2},
            privacy={"noise": {"sigma": 0.0}},
        ),
        "codec": {"quantise": {"bits": 3}},
    },
    "qsgd": deadline(),
    "qsgd-laplace": {
        **deadline(),
        "privacy": {"noise": {"kind": "laplace", "sigma": 0.1, "decay": 0.95}},
    },
    "qsgd-lossy": deadline(network=LOSSY),
    "qsgd-budget": deadline(
        problem={"clip": 0.2}, privacy={"noise": {"sigma": 0.3}, "budget": 4.3}
    ),
    "qsgd-plain": deadline(privacy={"noise": {"sigma": 0.0}}),
    "qsgd-late": deadline(
        algorithm={**QSGD, "least": 2, "weights": "metropolis"},
        network=DROP,
        policy={"deadline": "40 ms", "late": "carry"},
        stop={"rounds": 30},
    ),
    "q2sgd": deadline(algorithm={**Q2SGD, "fixed": True, "bits": 8}, privacy=LATTICE),
    "q2sgd-printed": deadline(algorithm=Q2SGD, privacy=LATTICE, network=LOSSY),
    "q2sgd-plain": {**deadline(algorithm=Q2SGD), "privacy": {"relation": "replace-one"}},
    "q2sgd-budget": deadline(
        algorithm={**Q2SGD, "fixed": True, "bits": 8, "alpha": 1.0},
        privacy={"noise": {**LATTICE["noise"], "sigma": 3.0}, "budget": 7},
    ),
    "q2sgd-calibrated": {
        **deadline(algorithm={**Q2SGD, "fixed": True, "bits": 8}),
        "privacy": {
            "noise": {"kind": "discrete-gaussian", "resolution": 0.05},
            "target": {"epsilon": 40, "delta": 1e-5},
        },
    },
    "dsgd": deadline(algorithm=DSGD),
    "dsgd-late": deadline(
        algorithm={"name": "dsgd", "alpha": 0.2, "numbers": "float16", "weights": "metropolis"},
        network=DROP,
        policy={"deadline": "60 ms", "late": "carry"},
        stop={"rounds": 30},
    ),
    "dsgd-quorum": deadline(algorithm=DSGD, policy={"quorum": 2, "at_most": "60 ms"}),
    "dsgd-adaptive": deadline(algorithm=DSGD, policy={"adaptive": {"mad": 1}}),
    "dsgd-plain": {**deadline(algorithm=DSGD), "privacy": {"relation": "replace-one"}},
    "dsgd-budget": deadline(
        algorithm=DSGD, problem={"clip": 0.2}, privacy={"noise": {"sigma": 0.3}, "budget": 4.3}
    ),
    "sdm-dsgd": deadline(algorithm=SDM),
    "sdm-dsgd-seeded": deadline(
        algorithm={**SDM, "numbers": "float16", "indices": "seeded"},
        network=LOSSY,
        privacy={"noise": {"kind": "laplace", "sigma": 0.1}},
    ),
    "sdm-dsgd-budget": deadline(
        algorithm=SDM, problem={"clip": 0.2}, privacy={"noise": {"sigma": 0.3}, "budget": 4.3}
    ),
    "gossip": deadline(algorithm=GOSSIP),
    "gossip-steps": {
        **deadline(algorithm={**GOSSIP, "steps": 3}, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "gossip-budget": deadline(
        algorithm=GOSSIP, problem={"clip": 0.2}, privacy={"noise": {"sigma": 0.3}, "budget": 4.3}
    ),
    "muffliato": deadline(algorithm=MUFFLIATO),
    "muffliato-chebyshev": {
        **deadline(algorithm={**MUFFLIATO, "gossip": 3, "chebyshev": True}, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "decor": deadline(algorithm=DECOR),
    "ad-psgd": deadline(algorithm=ADPSGD),
    "ad-psgd-plain": {
        **deadline(algorithm=ADPSGD, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "gradient-tracking": deadline(algorithm=TRACKING),
    "gradient-tracking-next": {
        **deadline(algorithm={**TRACKING, "form": "next"}, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "push-sum": deadline(algorithm=PUSH),
    "dp-admm": star(algorithm=DP_ADMM),
    "dp-admm-noise": star(
        algorithm=DP_ADMM, problem={"clip": 1.0}, privacy={"noise": {"sigma": 0.1, "decay": 0.95}}
    ),
    "dp-admm-phi": star(
        algorithm=DP_ADMM, problem={"clip": 1.0}, privacy={"noise": {"phi": 0.01, "growth": 0.99}}
    ),
    "dp-admm-hinge": star(
        algorithm=DP_ADMM,
        problem={
            "loss": "hinge",
            "regularizer": {"elastic_net": {"l1": 0.3, "l2": 0.5}},
            "clip": 1.0,
        },
        network=LOSSY,
        privacy={"noise": {"kind": "laplace", "sigma": 0.05}},
    ),
    "dp-admm-budget": star(
        algorithm=DP_ADMM,
        problem={"clip": 1.0, "sizes": [1, 1, 1, 2, 2, 3]},
        privacy={"noise": {"sigma": 0.2}, "budget": 8},
        stop={"rounds": 20},
    ),
    "gd": central(),
    "gd-plain": central(privacy={"noise": {"sigma": 0.0}}),
    "gd-discrete": central(
        algorithm={"name": "gradient-descent", "solver": "accelerated"},
        problem={"regularizer": [{"l2": 0.5}, {"l1": 0.05}]},
        privacy={"noise": {"kind": "discrete-gaussian", "sigma": 0.05, "resolution": 0.01}},
    ),
    "gd-time": central(stop={"time": "300 ms"}, observe={"metrics": ["error"], "every": "20 ms"}),
    "gd-budget": central(privacy={"noise": {"sigma": 0.1}, "budget": 30}),
    "gd-calibrated": {
        **central(),
        "privacy": {"noise": {"growth": 0.9}, "target": {"epsilon": 3, "delta": 1e-5}},
    },
    "tamuna": star(algorithm=TAMUNA),
    "tamuna-cohort": star(algorithm=TAMUNA, participation={"uniform": 3}),
    "tamuna-masks": star(algorithm={**TAMUNA, "s": 2}, participation={"uniform": 4}),
    "tamuna-half": star(algorithm={**TAMUNA, "s": 2}, participation={"bernoulli": 0.5}),
    "tamuna-noisy": star(
        algorithm={"name": "tamuna", "p": 0.3, "local": {"solver": "noisy", "tau": 0.05}},
        problem={"clip": 1.0},
        participation={"uniform": 3},
    ),
    "tamuna-deadline": star(algorithm=TAMUNA, policy={"deadline": "90 ms"}, stop={"rounds": 30}),
    "tamuna-quorum": star(algorithm=TAMUNA, policy={"quorum": 3}, network=LOSSY),
    "tamuna-time": star(algorithm=TAMUNA, participation={"uniform": 3}, stop={"time": "1 s"}),
    "led": star(algorithm=LED),
    "led-noisy": star(algorithm={"name": "led", "local": NOISY}, problem={"clip": 1.0}),
    "led-sgd": star(
        algorithm={"name": "led", "local": {"solver": "sgd", "epochs": 3, "batch": 3}},
        network=LOSSY,
    ),
    "led-graph": star(algorithm=LED, network=RING),
    "led-graph-sgd": star(
        algorithm={
            "name": "led",
            "mixing": "metropolis",
            "local": {"solver": "sgd", "epochs": 3, "batch": 3},
        },
        network=merged(LOSSY, RING),
    ),
    "led-graph-noisy": star(
        algorithm={"name": "led", "local": NOISY}, problem={"clip": 1.0}, network=RING
    ),
    "led-graph-budget": star(
        algorithm={"name": "led", "local": NOISY},
        problem={"clip": 1.0},
        network=RING,
        privacy={"budget": 150},
    ),
    "5gcs": star(algorithm=FIVE_GCS),
    "5gcs-cohort": star(algorithm=FIVE_GCS, participation={"uniform": 3}),
    "5gcs-sgd": star(
        algorithm={**FIVE_GCS, "local": {"solver": "sgd", "epochs": 3, "batch": 3}},
        participation={"bernoulli": 0.5},
    ),
    "5gcs-noisy": star(algorithm={**FIVE_GCS, "local": NOISY}, problem={"clip": 1.0}),
    "5gcs-deadline": star(algorithm=FIVE_GCS, policy={"deadline": "120 ms", "late": "carry"}),
    "5gcs-quorum": star(algorithm=FIVE_GCS, policy={"quorum": 3}),
    "5gcs-each": star(algorithm=FIVE_GCS, policy="each", stop={"rounds": 40}),
    "fed-pd": star(algorithm=FED_PD),
    "fed-pd-noisy": star(algorithm={**FED_PD, "local": NOISY}, problem={"clip": 1.0}),
    "fed-pd-sgd": star(algorithm={**FED_PD, "local": SGD}, network=LOSSY),
    "fedlin": star(algorithm=FEDLIN),
    "fedlin-sgd": star(
        algorithm={**FEDLIN, "local": SGD}, network=LOSSY, participation={"uniform": 3}
    ),
    "fedlin-half": star(algorithm=FEDLIN, participation={"bernoulli": 0.5}),
    "fedlin-noisy": star(algorithm={**FEDLIN, "local": NOISY}, problem={"clip": 1.0}),
    "fedlin-deadline": star(
        algorithm=FEDLIN,
        network=merged(LOSSY, {"link": {"on_loss": "drop"}}),
        policy={"deadline": "90 ms"},
        stop={"rounds": 30},
    ),
    "fedlin-quorum": star(algorithm={**FEDLIN, "local": SGD}, policy={"quorum": 3}),
    "fedlin-time": star(algorithm=FEDLIN, stop={"time": "1 s"}),
    "fedavg": star(algorithm=FEDAVG),
    "fedavg-noisy": star(
        algorithm={**FEDAVG, "local": NOISY}, problem={"clip": 1.0}, participation={"uniform": 3}
    ),
    "fedavg-deadline": star(
        algorithm={**FEDAVG, "local": SGD}, policy={"deadline": "120 ms", "late": "carry"}
    ),
    "fedavg-quorum": star(algorithm=FEDAVG, policy={"quorum": 3}, network=LOSSY),
    "fedavg-buffer": star(
        algorithm={**FEDAVG, "global_step": 0.5, "local": NOISY},
        problem={"clip": 1.0},
        policy={"buffer": 2},
    ),
    "fedavg-each": star(
        algorithm={**FEDAVG, "global_step": 0.2}, policy="each", stop={"rounds": 40}
    ),
    "fedavg-weights": star(
        algorithm={**FEDAVG, "global_step": 0.5},
        policy={"buffer": 2, "staleness": {"polynomial": 0.5}},
        stop={"rounds": 30},
    ),
    "fedavg-adam": star(
        algorithm={**FEDAVG, "server": {"adam": {"rate": 0.1}}}, policy={"deadline": "90 ms"}
    ),
    "fedprox": star(algorithm=FEDPROX),
    "fedprox-noisy": star(
        algorithm={**FEDPROX, "local": NOISY}, problem={"clip": 1.0}, participation={"uniform": 3}
    ),
    "fedprox-yogi": star(
        algorithm={**FEDPROX, "server": {"yogi": {"rate": 0.1}}, "local": SGD},
        policy={"quorum": 3, "late": "carry", "staleness": {"hinge": {"a": 2, "b": 1}}},
    ),
    "fedbuff": star(
        algorithm=FEDBUFF,
        policy={"buffer": 2, "staleness": {"hinge": {"a": 2, "b": 1}}},
        stop={"rounds": 30},
    ),
    "fedbuff-private": star(
        algorithm={**FEDBUFF, "clip": 0.3, "local": SGD},
        policy={"buffer": 2, "staleness": {"polynomial": 0.5}},
        network=LOSSY,
        privacy={"noise": {"sigma": 0.1}, "relation": "agent"},
    ),
    "fedbuff-budget": star(
        algorithm={**FEDBUFF, "clip": 0.3, "server": {"momentum": 0.5}},
        policy={"buffer": 2, "staleness": {"polynomial": 0.5}},
        privacy={"noise": {"sigma": 0.5, "decay": 0.9}, "relation": "agent", "budget": 30},
    ),
    "fedasync": star(algorithm=FEDASYNC, stop={"rounds": 40}),
    "fedasync-weights": star(
        algorithm={**FEDASYNC, "local": NOISY},
        problem={"clip": 1.0},
        policy={"buffer": 2, "staleness": {"polynomial": 0.5}},
    ),
    "feddyn": star(algorithm=FEDDYN),
    "feddyn-noisy": star(
        algorithm={**FEDDYN, "local": NOISY}, problem={"clip": 1.0}, participation={"uniform": 3}
    ),
    "feddyn-quorum": star(
        algorithm={**FEDDYN, "local": SGD}, policy={"quorum": 3, "late": "carry"}, network=LOSSY
    ),
    "scaffold": star(algorithm=SCAFFOLD),
    "scaffold-momentum": star(
        algorithm={**SCAFFOLD, "server": {"momentum": 0.3}}, participation={"uniform": 3}
    ),
    "scaffold-sgd": star(
        algorithm={**SCAFFOLD, "global_step": 0.7, "local": SGD}, participation={"bernoulli": 0.5}
    ),
    "scaffold-noisy": star(
        algorithm={**SCAFFOLD, "local": NOISY}, problem={"clip": 1.0}, participation={"uniform": 3}
    ),
    "fedavg-coded": {
        **star(algorithm=FEDAVG, policy={"buffer": 2}),
        "codec": {"random-k": 2, "error_feedback": True, "downlink": "float32"},
    },
    "scaffold-deadline": star(algorithm=SCAFFOLD, policy={"deadline": "90 ms"}, network=LOSSY),
    "scaffold-quorum": star(algorithm=SCAFFOLD, policy={"quorum": 3, "late": "carry"}),
    "scaffold-each": star(
        algorithm={**SCAFFOLD, "global_step": 0.2}, policy="each", stop={"rounds": 40}
    ),
    "scaffold-budget": star(
        algorithm={**SCAFFOLD, "local": NOISY},
        problem={"clip": 1.0},
        policy={"deadline": "90 ms"},
        network=LOSSY,
        privacy={"budget": 300},
        stop={"rounds": 30},
    ),
    "d-zoa": graph(algorithm=D_ZOA, privacy={"noise": {"sigma": 0.0}}),
    "d-zoa-noise": graph(algorithm=D_ZOA),
    "d-zoa-phi": {
        **graph(algorithm={**D_ZOA, "init": {"normal": 0.5}}),
        "privacy": {"noise": {"phi": 0.01, "growth": 0.99}},
    },
    "d-zoa-absolute": graph(
        problem={"loss": "absolute", "regularizer": {"elastic_net": {"l1": 0.3, "l2": 0.5}}},
        algorithm={**D_ZOA, "u1": 0.5},
        network={"topology": "ring"},
    ),
    "d-zoa-deadline": graph(
        algorithm=D_ZOA, network=LOSSY, policy={"deadline": "300 ms", "late": "carry"}
    ),
    "d-zoa-budget": graph(algorithm=D_ZOA, privacy={"noise": {"sigma": 3.0}, "budget": 30}),
    "or-zo": central(algorithm=OR_ZO, privacy={"noise": {"sigma": 0.0}}),
    "or-zo-noise": central(algorithm={**OR_ZO, "model": "mean"}),
    "or-zo-hinge": central(
        algorithm=OR_ZO,
        problem={"loss": "hinge", "regularizer": {"l1": 0.1}},
        privacy={"noise": {"sigma": 2.0}, "budget": 15},
    ),
    "zoo-admm": central(algorithm=ZOO_ADMM, privacy={"noise": {"sigma": 0.0}}),
    "zoo-admm-noise": central(
        algorithm={**ZOO_ADMM, "step": {"initial": 0.3, "decay": "sqrt"}},
        problem={"regularizer": [{"l2": 0.5}, {"l1": 0.05}, {"box": [-0.2, 0.3]}]},
    ),
    "zoo-admm-calibrated": {
        **central(algorithm=ZOO_ADMM),
        "privacy": {"noise": {"growth": 0.9}, "target": {"epsilon": 3, "delta": 1e-5}},
    },
    "zoo-admm-time": central(algorithm=ZOO_ADMM, stop={"time": "3 s"}),
    "pvp": {
        **graph(algorithm={"name": "pvp", "rho": 0.4}, problem={"clip": 1.0}),
        "privacy": {"noise": {"kind": "l2-laplace", "sigma": 0.2, "decay": 0.95}},
    },
    "pvp-gaussian": graph(
        algorithm={"name": "pvp", "rho": 0.4}, problem={"clip": 1.0}, network=LOSSY
    ),
    "pvp-calibrated": {
        **graph(algorithm={"name": "pvp", "rho": 0.4}, problem={"clip": 1.0}),
        "privacy": {
            "noise": {"kind": "l2-laplace"},
            "target": {"epsilon": 40, "delta": 1e-5},
        },
    },
    "dvp": {
        **graph(algorithm={"name": "dvp", "rho": 2.0, "norm": 10.0}, problem={"clip": 1.0}),
        "privacy": {"noise": {"kind": "l2-laplace", "sigma": 0.2, "decay": 0.95}},
    },
    "dvp-logistic": {
        **graph(
            algorithm={"name": "dvp", "rho": 0.4},
            problem={
                "data": {"source": "synthetic", "kind": "classification", "rows": 6, "dim": 4},
                "loss": "logistic",
            },
            network=LOSSY,
        ),
        "privacy": {"noise": {"kind": "l2-laplace", "sigma": 0.2}},
    },
    "m-admm": {
        **graph(
            algorithm={"name": "m-admm", "eta": 2.0, "growth": 1.05, "theta": 1.5, "norm": 10.0},
            problem={"clip": 1.0},
        ),
        "privacy": {"noise": {"kind": "l2-laplace", "sigma": 0.05, "decay": 0.95}},
    },
    "m-admm-late": {
        **graph(
            algorithm={"name": "m-admm", "eta": 0.4, "growth": 1.02},
            problem={"clip": 1.0},
            network=DROP,
            policy={"deadline": "60 ms", "late": "carry"},
        ),
        "privacy": {"relation": "replace-one"},
    },
    "r-admm": {
        **graph(
            algorithm={"name": "r-admm", "eta": 2.0, "gamma": 1.0, "norm": 10.0},
            problem={"clip": 1.0},
        ),
        "privacy": {"noise": {"kind": "l2-laplace", "sigma": 0.2, "decay": 0.95}},
    },
    "r-admm-plain": {
        **graph(algorithm={"name": "r-admm", "eta": 0.4, "gamma": 1.0}, network=LOSSY),
        "privacy": {"relation": "replace-one"},
    },
    "pr-admm": graph(
        algorithm={"name": "pr-admm", "eta": 0.4, "U": 2.0},
        problem={"clip": 1.0},
        privacy={"noise": {"sigma": 0.1, "decay": 0.8, "period": 3}},
    ),
    "pr-admm-late": {
        **graph(
            algorithm={"name": "pr-admm", "eta": 0.4, "U": 3.0},
            problem={"clip": 1.0},
            network=DROP,
            policy={"deadline": "60 ms", "late": "carry"},
        ),
        "privacy": {"noise": {"sigma": 0.1, "iteration": 0.2}},
    },
    "pr-admm-calibrated": {
        **graph(algorithm={"name": "pr-admm", "eta": 0.4, "U": 4.0}, problem={"clip": 1.0}),
        "privacy": {
            "noise": {"kind": "gaussian", "iteration": 0.015},
            "target": {"epsilon": 20, "delta": 1e-5},
        },
    },
    "pp-admm": graph(algorithm={**PLAUSIBLE, "name": "pp-admm"}, problem=UNIT, network=LOSSY),
    "pp-admm-budget": graph(
        algorithm={**PLAUSIBLE, "name": "pp-admm"},
        problem=UNIT,
        privacy={"noise": {"sigma": 0.3, "decay": 1.0}, "budget": 25},
    ),
    "pp-admm-plain": graph(
        algorithm={"name": "pp-admm", "eta": 0.4, "beta": 0.01}, privacy={"noise": {"sigma": 0.0}}
    ),
    "ipp-admm": graph(
        algorithm={**PLAUSIBLE, "name": "ipp-admm", "c": 4, "answers": 40.0}, problem=UNIT
    ),
    "ipp-admm-all": graph(
        algorithm={
            **PLAUSIBLE,
            "name": "ipp-admm",
            "c": 3,
            "answers": 9.0,
            "variant": "charge-all",
        },
        problem=UNIT,
        network=LOSSY,
    ),
    "ipp-admm-printed": graph(
        algorithm={**PLAUSIBLE, "name": "ipp-admm", "c": 3, "variant": "printed"},
        problem={**UNIT, "regularizer": {"l2": 0.1}},
        stop={"rounds": 20},
    ),
    "ipp-admm-budget": graph(
        algorithm={**PLAUSIBLE, "name": "ipp-admm", "c": 12, "answers": 20.0},
        problem=UNIT,
        privacy={"noise": {"sigma": 0.3, "decay": 1.0}, "budget": 25},
    ),
    "ipp-admm-plain": graph(
        algorithm={"name": "ipp-admm", "eta": 0.4, "c": 3, "alpha": 0.02},
        privacy={"noise": {"sigma": 0.0}},
    ),
    "dvp-plain": {
        **graph(algorithm={"name": "dvp", "rho": 0.4}),
        "privacy": {"relation": "replace-one"},
    },
    "fm": fair("functional-mechanism"),
    "fm-laplace": fair("functional-mechanism", allotted("laplace", 2.0)),
    "fm-gaussian": fair(
        "functional-mechanism",
        allotted("gaussian", 1.0),
        keys={"sensitivity": "printed"},
        network=LOSSY,
        problem={"average": "sum", "sizes": [1, 1, 1, 2, 2, 3]},
    ),
    "fm-box": fair(
        "functional-mechanism", {"kind": "gaussian", "sigma": 0.5}, keys={"domain": "box"}
    ),
    "fm-calibrated": merged(
        fair("functional-mechanism", {"kind": "laplace"}),
        {"privacy": {"target": {"epsilon": 3, "delta": 1e-5}, "budget": 3.001}},
    ),
    "pflr": fair("pflr", allotted("laplace", 2.0), policy={"deadline": "90 ms"}, network=LOSSY),
    "pflr-star": fair("pflr", allotted("laplace", 2.0), keys={"penalty": "shifted", "zbar": 0.3}),
    "pflr-rows": fair("pflr", {"kind": "laplace", "sigma": 1.0}, keys={"penalty": "shifted-rows"}),
    "pdfc": fair("pdfc", allotted("laplace", 0.5, 2.0), keys={"x_s": "x2", "zbar": 0.4}),
    "pdfc-printed": fair(
        "pdfc",
        {"kind": "laplace", "epsilon": 2.0, "epsilon_s": 0.5},
        keys={"x_s": "x2", **PRINTED},
        participation={"uniform": 4},
        policy={"quorum": 3},
    ),
    "adfc": fair("adfc", allotted("gaussian", 0.5, 2.0), keys={"x_s": "x2", "alpha": 2.0}),
    "adfc-printed": fair(
        "adfc",
        allotted("gaussian", 2.0, 0.5),
        keys={"x_s": "x2", **PRINTED},
        participation={"bernoulli": 0.7},
    ),
}
GRAPH = [name for name in CASES if "topology" in CASES[name].get("network", {})]
STAR = [name for name in CASES if name not in GRAPH]


def one_each(names: Iterable[str]) -> list[Any]:
    """Names of cases as parameters: all but one with and one without noise of a method are slow."""
    chosen: dict[tuple[str, bool], str] = {}
    for name in (names := list(names)):
        method = CASES[name]["algorithm"]["name"]
        chosen.setdefault((method, name.endswith("noisy") or "privacy" in CASES[name]), name)
    slow = pytest.mark.slow
    return [pytest.param(name, marks=[] if name in chosen.values() else [slow]) for name in names]
