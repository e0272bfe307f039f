"""Where algorithms are tried: a small scenario, and others that differ from it in one thing."""

from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from typing import Any

from desim.errors import InputError
from desim.experiments.contract.finding import SkippedError
from desim.methods.shared.method import Method
from desim.runs.play import run as play
from desim.runs.run import Run
from desim.scenario.build import check
from desim.scenario.load import load
from desim.scenario.schema import Scenario

ROUNDS = 12
LINK = {
    "latency": {"uniform": ["5 ms", "40 ms"]},
    "bandwidth": {"uniform": ["0.1 Mbit/s", "1 Mbit/s"]},
    "jitter": {"lognormal": 0.3},
}
DATA = {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 5}
PROBLEM: dict[str, Any] = {
    "data": DATA,
    "loss": "logistic",
    "regularizer": {"l2": 3.0},
}
POLICIES: dict[str, Any] = {
    "deadline": {"deadline": "120 ms"}, "adaptive": {"adaptive": {"mad": 1}},
    "quorum": {"quorum": 2}, "buffer": {"buffer": 2}, "each": "each",
}  # fmt: skip
NOISES: dict[str, dict[str, Any]] = {
    "gaussian": {"sigma": 0.1},
    "laplace": {"kind": "laplace", "sigma": 0.1},
    "l2-laplace": {"kind": "l2-laplace", "sigma": 0.1},
    "discrete-gaussian": {"kind": "discrete-gaussian", "sigma": 0.1, "resolution": 0.05},
}


def small(method: type[Method]) -> dict[str, Any]:
    """Unequal links and devices, few rounds."""
    agents = {"coordinator": {"agents": 6}, "graph": {"agents": 8}, "central": {}}[method.kind]
    shape = {"topology": {"regular": 3}} if method.kind == "graph" else {}
    network = {} if method.kind == "central" else {"network": {**shape, "link": LINK}}
    return {
        "name": method.name,
        "seed": 11,
        "problem": {**agents, **deepcopy(PROBLEM)},
        "algorithm": {"name": method.name},
        **network,
        "compute": {"speed": {"uniform": [100, 900]}, "slow": {"fraction": "20 %", "factor": 4}},
        "observe": {"metrics": ["loss"]},
        "stop": {"rounds": 1 if method.once else ROUNDS},
    }


class Stage:
    """A method's scenario, its variants, and the runs of them that have been played.

    given: a scenario to start from instead of `small`; overrides: dotted keys of it.
    """

    def __init__(
        self,
        method: type[Method],
        given: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        written = small(method) if given is None else given.written()
        least = min(given.stop.rounds or ROUNDS, ROUNDS) if given else written["stop"]["rounds"]
        fixed = {"observe.iterates": True, "stop": {"rounds": least}, "log": "all", "listeners": []}
        folder = None if given is None else given.folder
        self._tree = written, {**fixed, **(overrides or {})}, folder
        self.scenario = self.changed()
        self._runs: dict[str, Run] = {}

    def changed(self, **changes: Any) -> Scenario:
        """The scenario with other values, by dotted key with __ for the dots."""
        written, overrides, folder = self._tree
        dotted = {key.replace("__", "."): value for key, value in changes.items()}
        return load(deepcopy(written), {**overrides, **dotted}, folder)

    def run(self, scenario: Scenario | None = None) -> Run:
        """The scenario, by default as it is, played in memory; once for equal ones."""
        scenario = scenario or self.scenario
        key = repr(scenario.written())
        if key not in self._runs:
            self._runs[key] = play(scenario)
        return self._runs[key]

    @cached_property
    def noisy(self) -> Scenario:
        """The scenario with noise; SkippedError where the method admits none."""
        if self.scenario.privacy is not None and self._speaks_noisily(self.scenario):
            return self.scenario
        kind = next((one for one in NOISES if one in self.method.noises), None)
        if kind is None:
            raise SkippedError(f"its noises are {', '.join(self.method.noises) or 'none'}")
        return self._possible(privacy__noise=NOISES[kind], problem__clip=1.0)

    def _speaks_noisily(self, scenario: Scenario) -> bool:
        return bool((self.run(scenario).releases["scale"] > 0.0).any())

    def _possible(self, **changes: Any) -> Scenario:
        try:
            scenario = self.changed(**changes)
            check(scenario)
            return scenario
        except InputError as error:
            raise SkippedError(error.problems[0].removeprefix("scenario: ")) from None

    def variants(self) -> dict[str, Scenario]:
        """Scenarios that the method admits, by what is different in them."""
        changes: dict[str, dict[str, Any]] = {"as it is": {}}
        if self.method.kind != "central":
            lossy = {"network.link.loss": "15 %", "network.link.timeout": "60 ms"}
            changes["lossy links"] = {key.replace(".", "__"): one for key, one in lossy.items()}
        if self.method.kind == "coordinator":
            changes["half of the agents"] = {"participation": {"bernoulli": 0.5}}
        for policy in self.method.admitted(self.method.kind):
            if policy in POLICIES:
                changes[f"policy {policy}"] = {"policy": POLICIES[policy]}
        found = {}
        for label, change in changes.items():
            with suppress(SkippedError):
                found[label] = self._possible(**change)
        with suppress(SkippedError):
            found["noise"] = self.noisy
        return found
