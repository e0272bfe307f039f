"""Which scenarios are deployed and simulated: sizes, rules of waiting, graphs, connections."""

from dataclasses import dataclass
from typing import Any

SIZES = {"1 kB": 125, "40 kB": 5000, "400 kB": 50_000}  # dimensions of a model of float64
ROUNDS = {"1 kB": 6, "40 kB": 5, "400 kB": 3}
DEADLINES = {"1 kB": "350 ms", "40 kB": "420 ms", "400 kB": "1.1 s"}
RULES: dict[str, Any] = {
    "all": "all",
    "deadline, discard": {"late": "discard"},
    "deadline, carry": {"late": "carry"},
    "quorum": {"quorum": 5, "late": "carry"},
    "each": "each",
}
LINK: dict[str, Any] = {"latency": {"uniform": ["5 ms", "40 ms"]}}
RATES = {"star": "12 Mbit/s", "ring": "8 Mbit/s", "grid": "6 Mbit/s"}
# together less than the 20,000 packets a second that lines in user space hold
SPEED: dict[str, Any] = {
    "speed": {"lognormal": ["120 /s", 0.35]},
    "redraw": "round",
}  # of 30 rows: .25 s
SLOW = SPEED | {"speed": {"lognormal": ["40 /s", 0.35]}}  # of one step of 10 rows: .25 s
GRAPHS: dict[str, Any] = {"ring": "ring", "grid": {"grid": [2, 4]}}
CHANCE = ("deadline, carry", "quorum", "each")
AGENTS = 8
METHODS: dict[str, dict[str, Any]] = {
    "fedavg": {},
    "fed-plt": {"rho": 0.003},
    "scaffold": {},
    "fedlin": {},
    "led": {},
    "tamuna": {"chi": 1.0},
    "5gcs": {"tau": 100.0},
    "fed-pd": {"eta": 0.01},
}
TARGET = ("loss", 3000.0)  # that these methods meet after 2 to 9 rounds


@dataclass(frozen=True)
class Configuration:
    """One scenario that is played by real processes and simulated.

    kind: "kernel" for those that the law is held to, "cubic" for those beside them, "order" for
    those whose times to a target are ranked.
    """

    name: str
    kind: str
    scenario: dict[str, Any]

    def beside(self, transport: Any) -> dict[str, Any]:
        """The same with another law of transport."""
        network = self.scenario["network"]
        link = {**network["link"], "transport": transport}
        return {**self.scenario, "network": {**network, "link": link}}


def made(
    kind: str,
    size: str,
    rule: str,
    *,
    topology: str = "star",
    connection: str = "kept",
    congestion: str = "reno",
    algorithm: dict[str, Any] | None = None,
    rounds: int | None = None,
) -> Configuration:
    """One configuration, named by what it is made of."""
    graph = topology != "star"
    method = algorithm or (
        {"name": "dsgd", "alpha": 0.1 / SIZES[size]} if graph else {"name": "fedavg"}
    )
    local = {} if graph else {"local": {"epochs": 3}}
    policy = RULES[rule]
    if "deadline" in rule:
        policy = {"deadline": DEADLINES[size], **policy}
    transport = {"tcp": {"congestion": congestion, "connection": connection}}
    compute = SLOW if graph else SPEED
    if (
        rule in CHANCE
    ):  # which round somebody is called in hangs on who came first: draws would, too
        compute = {**compute, "redraw": "run"}
    rounds = rounds or ROUNDS[size] * (5 if rule == "each" else 1)
    words = [method["name"], size, topology if graph else rule, connection, congestion]
    scenario = {
        "seed": 11 + len(SIZES) * len(words[2]),
        "name": ", ".join(words),
        "problem": {
            "agents": AGENTS,
            "data": {"source": "synthetic", "kind": "regression", "rows": 10, "dim": SIZES[size]},
            "loss": "squared",
            "regularizer": {"l2": 1.0},
        },
        "algorithm": {**local, **method},
        "network": {
            **({"topology": GRAPHS[topology]} if graph else {}),
            "link": {
                **LINK,
                "bandwidth": {"lognormal": [RATES[topology], 0.5]},
                "transport": transport,
            },
        },
        "compute": compute,
        "observe": {"metrics": ["loss"], "iterates": size != "400 kB"},
        "stop": {"rounds": rounds},
    }
    if not graph:
        scenario["policy"] = policy
    return Configuration(", ".join(words), kind, scenario)


def configurations() -> list[Configuration]:
    """All: 28 that the law is held to, 4 beside them with CUBIC, and 8 methods."""
    found = [made("kernel", size, rule) for size in SIZES for rule in RULES]
    found += [made("kernel", size, "all", topology=one) for size in SIZES for one in GRAPHS]
    found += [
        made("kernel", size, rule, connection="new") for size in SIZES for rule in ("all", "quorum")
    ]
    found.append(made("kernel", "40 kB", "all", topology="ring", connection="new"))
    found += [
        made("cubic", size, "all", connection=one, congestion="cubic")
        for size in ("40 kB", "400 kB")
        for one in ("kept", "new")
    ]
    return found + [
        made("order", "40 kB", "all", algorithm={"name": name, **own}, rounds=9)
        for name, own in METHODS.items()
    ]
