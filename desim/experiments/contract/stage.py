"""Where the laws are tried: small scenarios for an algorithm, and the rows of one for a model."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from desim.arrays import Array
from desim.errors import DesimError, InputError, raised
from desim.methods.shared.declarations import Method
from desim.numerics.environment import environment
from desim.problem.models.user_model import Facts, Model, Rows
from desim.problem.problem import Problem
from desim.runs.recording import run as play
from desim.runs.replay import unlike
from desim.runs.run import Run
from desim.scenario.build import build, check
from desim.scenario.load import load
from desim.scenario.schema import Scenario

# A law that a method or a model has to obey, and what came of it; how two runs are compared.


@dataclass(frozen=True)
class Finding:
    """law: a word; outcome: kept, broken or skipped; about: what was seen, or why not."""

    law: str
    outcome: Literal["kept", "broken", "skipped"]
    about: str

    @property
    def kept(self) -> bool:
        """Whether the law is not broken."""
        return self.outcome != "broken"

    def __str__(self) -> str:
        return f"{self.outcome:7}  {self.law:12} {self.about}"


class BrokenError(Exception):
    """A law is broken; the text says where."""


class SkippedError(Exception):
    """A law does not apply; the text says why."""


def findings(laws: Iterable[tuple[str, Callable[[Any], str]]], stage: Any) -> Iterator[Finding]:
    """Each law checked on the stage; whatever it raises breaks the law that was being checked.

    One error that several laws meet is one finding; a last one names the laws that it hides.
    InputError for an environment in which nothing can be played.
    """
    environment()
    met, untried = set[str](), list[str]()
    for law, obeys in laws:
        try:
            yield Finding(law, "kept", obeys(stage))
        except SkippedError as why:
            yield Finding(law, "skipped", str(why))
        except BrokenError as why:
            yield Finding(law, "broken", str(why))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in's, which may raise anything
            known = isinstance(error, DesimError)
            text = str(error).splitlines()[0] if known else f"raised {raised(error)}"
            if text in met:
                untried.append(law)
            else:
                yield Finding(law, "broken", text)
            met.add(text)
    if untried:
        yield Finding("others", "skipped", f"not tried for that error: {', '.join(untried)}")


def demand_same(one: Run, other: Run, what: str, *names: Sequence[str]) -> None:
    """Raise BrokenError, which begins with `what`, where two runs are not the same.

    names: of tables and of arrays that are compared; all.
    """
    if found := unlike(one, other, *names):
        raise BrokenError(f"{what}: {found}")


ROUNDS = 12
LINK = {
    "latency": {"uniform": ["5 ms", "40 ms"]},
    "bandwidth": {"uniform": ["0.1 Mbit/s", "1 Mbit/s"]},
    "jitter": {"lognormal": 0.3},
}
DATA = {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 5}
PROBLEM: dict[str, Any] = {"data": DATA, "loss": "logistic", "regularizer": {"l2": 3.0}}
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


Tree = tuple[dict[str, Any], dict[str, Any], Path | None]  # a scenario, overrides, its folder


def _with(tree: Tree, changes: Mapping[str, Any]) -> Scenario:
    written, overrides, folder = tree
    dotted = {key.replace("__", "."): value for key, value in changes.items()}
    return load(deepcopy(written), {**overrides, **dotted}, folder)


class Stage:
    """A method's scenario, its variants, and the runs of them that have been played.

    scenario: to start from instead of `small`; overrides: dotted keys of it.
    """

    def __init__(
        self,
        method: type[Method],
        scenario: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.method = method
        written = small(method) if scenario is None else scenario.written()
        rounds = (
            min(scenario.stop.rounds or ROUNDS, ROUNDS) if scenario else written["stop"]["rounds"]
        )
        fixed = {
            "observe.iterates": True,
            "stop": {"rounds": rounds},
            "log": "all",
            "listeners": [],
        }
        folder = None if scenario is None else scenario.folder
        self._tree = written, {**fixed, **(overrides or {})}, folder
        self.scenario = self.changed()
        self._runs: dict[str, Run] = {}

    def changed(self, **changes: Any) -> Scenario:
        """The scenario with other values, by dotted key with __ for the dots."""
        return _with(self._tree, changes)

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
        if self.scenario.privacy is not None and (self.run().releases["scale"] > 0.0).any():
            return self.scenario
        kind = next((one for one in NOISES if one in self.method.noises), None)
        if kind is None:
            raise SkippedError(f"its noises are {', '.join(self.method.noises) or 'none'}")
        return self.possible(privacy__noise=NOISES[kind], problem__clip=1.0)

    def possible(self, **changes: Any) -> Scenario:
        """As `changed`; SkippedError where the method admits no such scenario."""
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
                found[label] = self.possible(**change)
        with suppress(SkippedError):
            found["noise"] = self.noisy
        return found


# For a model: rows of a scenario, or generated ones, and places near its start.
AGENTS, ROWS = 4, 12  # that are generated
FEDAVG = {"name": "fedavg", "local": {"solver": "sgd", "batch": 4, "epochs": 2, "step": 0.1}}
TAKEN = ("seed", "plugins", "problem")  # of a scenario that is given


class ModelStage:
    """A model of class `of` on the rows of a scenario, or on generated ones in a file of `folder`.

    overrides: dotted keys of the scenario, such as the model's parameters.
    """

    def __init__(
        self,
        of: type[Model],
        folder: Path,
        scenario: Scenario | None = None,
        overrides: Mapping[str, Any] | None = None,
    ) -> None:
        self.of, self.generated = of, scenario is None
        self._tree: Tree
        star = {
            "algorithm": FEDAVG,
            "network": {"link": LINK},
            "compute": {"speed": {"uniform": [100, 900]}},
            "observe": {"metrics": ["loss"], "iterates": True},
            "stop": {"rounds": 4},
        }
        if scenario is None:
            path = folder / "rows.npz"
            A, b = _rows(of)
            np.savez(path, A=A, b=b)
            data = {"source": "npz", "file": str(path)}
            written: dict[str, Any] = {
                "seed": 7,
                "problem": {"data": data, "model": {"name": of.name}},
            }
            self._tree = {**written, **star}, dict(overrides or {}), folder
        else:
            written = {key: one for key, one in scenario.written().items() if key in TAKEN}
            partition = written["problem"].get("partition")
            by = isinstance(partition, dict) and "by" in partition  # the column's values
            if written["problem"]["data"]["source"] != "npz" and not by:
                written["problem"].setdefault("agents", AGENTS)
            self._tree = {**written, **star}, {}, scenario.folder or folder
        self.scenario = self.changed()

    def changed(self, **changes: Any) -> Scenario:
        """The scenario with other values, by dotted key with __ for the dots."""
        return _with(self._tree, changes)

    @cached_property
    def _built(self) -> Problem | InputError:
        try:
            return build(self.scenario).settings.problem
        except InputError as error:
            if not self.generated:
                return error
            shape, classes = self.of.example
            rows = f"generated rows of shape {shape} with {classes} classes"
            hint = "`example = (shape, classes)` in the class says others, a scenario has its own"
            return InputError([f"{line}; tried on {rows}: {hint}" for line in error.problems])

    @property
    def problem(self) -> Problem:
        """The rows and the model; InputError where the first look finds no model."""
        if isinstance(self._built, InputError):
            raise self._built
        return self._built

    @property
    def facts(self) -> Facts:
        """What the model is told."""
        found: Facts = self.problem.loss.facts  # type: ignore[attr-defined]
        return found

    def instance(self, **facts: Any) -> Model:
        """Another instance, with some facts changed."""
        loss: Any = self.problem.loss
        model: Model = self.of(loss.parameters, self.facts._replace(**facts))
        model.sample = loss.model.sample
        return model

    @cached_property
    def model(self) -> Model:
        """An instance that no run has used."""
        return self.instance()

    def rows(self, m: int = ROWS, key: int | None = 11, first: int = 0) -> Rows:
        """Some rows of all agents' as those of one."""
        A, b = self.problem.A, self.problem.b
        place = (first + np.arange(m) * 7) % len(b)
        return Rows(A[place], b[place], None if key is None else np.uint64(key))

    def many(self, n: int, m: int) -> Rows:
        """Rows of n agents."""
        each = [self.rows(m, 100 + r, 3 * r) for r in range(n)]
        inputs, labels, keys = (np.stack(one) for one in zip(*each, strict=True))
        return Rows(inputs, labels, keys)

    def places(self, n: int) -> Array:
        """Parameters (n, dim) near the start, in the model's precision."""
        start = np.asarray(self.problem.loss.start)  # type: ignore[attr-defined]
        spread = 0.1 * max(0.1, float(np.sqrt(np.mean(start**2))))
        drawn = np.random.default_rng(5).normal(size=(n, len(start)))
        return np.asarray((start + spread * drawn).astype(self.facts.precision))


def _rows(of: type[Model]) -> tuple[Any, Any]:
    """Inputs A (agents, rows, *shape) and labels b (agents, rows) that can be learnt from them."""
    shape, classes = of.example
    rng = np.random.default_rng(3)
    if of.labels == "arrays":
        A = rng.integers(0, classes, (AGENTS, ROWS, *shape))
        return A, (A + 1) % classes
    A = rng.normal(size=(AGENTS, ROWS, *shape)).astype(np.float32)
    flat = A.reshape(AGENTS, ROWS, -1)
    scores = flat @ rng.normal(size=(flat.shape[-1], max(classes, 1)))
    return A, scores[..., 0] if of.labels == "numbers" else scores.argmax(-1)
