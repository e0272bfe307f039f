"""Who competes in seconds and bytes, with which parameters, and how a run is scored."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from analysis.reproductions.monte_carlo import Case, share_of_auto
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard

SCENARIO = "fed-plt-in-seconds"
NETWORKS = ("lan", "wifi", "4g", "satellite", "stragglers")
ROUNDS, PATIENCE = 150, 10  # of all agents: a search's longest run, a reported one's in its units
STEP = (0.1, 4.0)  # of local training, tried in units of the automatic one
EPOCHS = (1, 2, 3, 5, 10, 20, 40)


class Own(NamedTuple):
    """A method's label, its own parameter and the lowest and highest value tried."""

    label: str
    parameter: str = ""
    low: float = 1.0
    high: float = 1.0


METHODS = {
    "fed-plt": Own("Fed-PLT", "rho", 0.1, 4.0),
    "tamuna": Own("TAMUNA", "chi", 0.05, 2.0),
    "scaffold": Own("SCAFFOLD", "global_step", 0.2, 8.0),
    "led": Own("LED", "beta epochs", 0.1, 4.0),
    "fed-pd": Own("Fed-PD", "eta", 0.1, 4.0),
    "5gcs": Own("5GCS", "tau", 0.05, 2.0),
    "fedlin": Own("FedLin"),
    "fedavg": Own("FedAvg", "global_step", 0.2, 8.0),
}


@dataclass(frozen=True)
class Way:
    """Who takes part and who is waited for; replies: how many close a collection."""

    words: str
    overrides: Mapping[str, Any]
    replies: int


WAYS = {
    "all": Way("all agents", {}, 10),
    "half": Way("five agents drawn each round", {"participation": {"uniform": 5}}, 10),
    "buffer": Way("goes on after five replies", {"policy": {"buffer": 5}}, 5),
    "each": Way("goes on after each reply", {"policy": "each"}, 1),
}
ASYNCHRONOUS = ("buffer", "each")
FULL_ONLY = ("led", "fed-pd")


class Contest(NamedTuple):
    """One method run in one way on one network."""

    network: str
    method: str
    way: str

    @property
    def box(self) -> Array:
        """Logarithms (2, 2) of the lowest and highest values of the own parameter and the step."""
        own = METHODS[self.method]
        return np.asarray(np.log([(own.low, own.high), STEP])).T

    def case(self, point: "Point", patience: float = 1.0, seconds: float = np.inf) -> Case:
        """The scenario with these parameters; it ends after patience * ROUNDS, or so many s."""
        way, name = WAYS[self.way], METHODS[self.method].parameter
        own = {name: point.own} if name else {}
        if name == "beta epochs":
            own = {"beta": point.own / point.epochs}
        local = {"solver": "gradient", "epochs": point.epochs}
        changes = {
            "network": self.network,
            "algorithm": {"name": self.method, **own, "local": local},
            "stop.rounds": round(patience * ROUNDS * 10 / way.replies),
            **({"stop.time": seconds} if seconds < np.inf else {}),
        }
        return Case(SCENARIO, {**changes, **way.overrides}, share_of_auto(point.step))


class Point(NamedTuple):
    """Parameters: the method's own, the local step as a share of the automatic one, local steps."""

    own: float
    step: float
    epochs: int


CONTESTS = [
    Contest(network, method, way)
    for network in NETWORKS
    for method in METHODS
    for way in WAYS
    if way == "all"
    or (way == "half" and method not in FULL_ONLY)
    or (way in ASYNCHRONOUS and method == "fed-plt")
]


def reach(made: Simulation) -> Any:
    """Virtual s, bytes sent by all and rounds until the scenario's error; all inf if never."""
    played = made.play(Discard())
    if not played.reason.startswith("stop.metric"):
        return np.full(3, np.inf)
    return np.array([played.time, played.counts["send_bytes"], played.rounds])
