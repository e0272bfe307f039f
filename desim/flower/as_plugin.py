"""What a scenario of a Flower app is made of: the method `flower`, its model, and its clients.

A plug-in of desim's own, light until something is played: `plugins: [this file]`.
"""

import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from desim.fields import Count, Folder, Form, Positive, Several, Strict, Text
from desim.flower.apps import found
from desim.method import (
    Array,
    Clients,
    Hub,
    Ingredients,
    Method,
    Noise,
    Problem,
    Program,
)
from desim.model import Dataset, Examples, Facts, Model, Rows
from desim.signals import Listener

PATH = "flower-app"  # the model's name


class Work(Form):
    """What a call costs, in the unit of compute.speed: examples, or seconds, of each call."""

    words = ("examples", "measured")
    examples: ClassVar[dict[str, Any]] = {"seconds": 2.0}

    seconds: Positive | None = None
    """work of a call that trains; with compute.speed: 1 /s, its seconds"""


class Keys(Strict):
    """Which app, and what its nodes call the figures that desim shows."""

    app: Folder
    """the app's folder"""
    agents: Count
    """how many nodes it has"""
    server: Text | None = None
    """module:attribute of the ServerApp; default: as pyproject.toml says"""
    client: Text | None = None
    """module:attribute of the ClientApp; default: as pyproject.toml says"""
    config: Several[Text] = ()
    """KEY=VALUE that override [tool.flwr.app.config], with values as TOML has them"""
    loss: Text | None = None
    """the metric of evaluations that is a loss; default: the first with loss in its name"""
    accuracy: Text | None = None
    """the metric that is an accuracy; default: the first with acc in its name"""


def evaluator(keys: Any, seed: int) -> Any:
    """The evaluator of an app; InputError where there is none."""
    if "desim.flower.probe" not in sys.modules:  # else it is there, and to look takes 10 ms
        from desim.flower.apps import require_flower

        require_flower("algorithm flower")
    from desim.flower import probe

    app = found(Path(keys.app), keys.server, keys.client, keys.config)
    return probe.evaluator(app, keys.agents, seed, keys.loss, keys.accuracy)


class App(Model):
    """The model of an app: its numbers are those that the ServerApp sends first.

    A row is (node, place, examples of the node): its loss is that of the evaluation there, and as
    many of a node's test rows are right as its accuracy says.
    """

    name = PATH
    summary = "the model of a Flower app, evaluated by its ClientApp"
    Parameters: ClassVar[Any] = Keys
    libraries: ClassVar[tuple[str, ...]] = ("numpy", "flwr")

    def __init__(self, parameters: Any, facts: Facts) -> None:
        super().__init__(parameters, facts)
        self.seed = facts.seed

    @cached_property
    def evaluator(self) -> Any:
        """What evaluates: one for as long as a run lasts, whatever becomes of the app's files."""
        return evaluator(self.parameters, self.seed)

    def initial(self, seed: int) -> Array:
        """What the ServerApp sends first, (dim,)."""
        start: Array = evaluator(self.parameters, seed).start
        return start

    def loss(self, x: Array, rows: Rows) -> Array:
        """The loss (m,) that each row's node has at x (dim,)."""
        own, agents = self.evaluator, np.asarray(rows.inputs[:, 0], int)
        known = {i: own.loss(i, x) for i in np.unique(agents).tolist()}
        return np.array([known[i] for i in agents.tolist()])

    def predict(self, x: Array, rows: Rows) -> Array:
        """1 for as many of a node's rows as x (dim,) gets right there, 0 for the others."""
        agents, place, number = np.asarray(rows.inputs[:, :3], int).T
        who, first, which = np.unique(agents, return_index=True, return_inverse=True)
        own = zip(who.tolist(), number[first].tolist(), strict=True)
        right = np.array([self.evaluator.right(i, x, m) for i, m in own])
        return np.asarray(place < right[which], float)


class Shares(Dataset):
    """A row for each node, and one for each example on which it evaluates; no data."""

    name = "flower-clients"
    summary = "how many examples each node of a Flower app evaluates on"

    def read(self, **arguments: Any) -> Examples:
        """Rows (node, place, examples of the node): one of each to train on, all to test on."""
        seed = int(arguments.pop("seed", 0))
        keys = Keys.model_validate(
            {name: str(one) if isinstance(one, Path) else one for name, one in arguments.items()},
            context={"folder": Path()},
        )
        own = evaluator(keys, seed)
        counts = [(i, own.rows(i)) for i in range(keys.agents)]
        rows = [np.stack([np.full(m, i), np.arange(m), np.full(m, m)], 1) for i, m in counts]
        first = np.array([(i, 0, m) for i, m in counts])
        inputs = np.concatenate([first, *rows]).astype(float)
        tested = np.arange(len(inputs)) >= len(first)
        return Examples(inputs, np.ones(len(inputs), np.int64), {}, tested, 2)


def _as_read(problem: Problem) -> bool:
    """Whether agent i has the one row (i, 0, examples) of node i, as `Shares` reads it."""
    nodes = problem.loss.model.parameters.agents  # type: ignore[attr-defined]
    rows, order = np.asarray(problem.A), np.stack([np.arange(nodes), np.zeros(nodes)], 1)
    fine = problem.agents == nodes and rows.shape == (nodes, 3)
    return fine and np.array_equal(rows[:, :2], order)


class Heard(Listener):
    """Ends the app when the run ends before it, and says what its server has measured."""

    name = "flower"
    summary = "what the server of a Flower app measures by itself; ends the app with the run"

    def ended(self, time: float) -> Mapping[str, Any]:
        """The latest figures of its central evaluations, and `rounds`: those of each, if any."""
        if (probe := sys.modules.get("desim.flower.probe")) is None:
            return {}
        probe.Live.end()
        central = sorted(probe.Live.central.items())
        rounds = [{"round": k, **one} for k, one in central]
        return {**central[-1][1], "rounds": rounds} if central else {}


class Parameters(Strict):
    """work, passes: what calls cost; times: what they took; charge: what the ledger counts."""

    work: Work = Work.of("examples")
    """what a call costs: examples (of the reply's num-examples), measured, or {seconds: 2}"""
    passes: Positive = 1.0
    """examples: how often a call that trains goes through them, such as its local epochs"""
    times: Text | None = None
    """measured: the file of seconds, written by the first run and read by every other one; relative
    to the working directory"""
    charge: Literal["everything", "models"] = "everything"
    """models: metrics in replies, which Flower's mods do not protect, are left out of epsilon"""


class Flower(Method):
    """A Flower app as it is: its ServerApp asks, its ClientApp computes, desim has the clock."""

    name = "flower"
    kind = "coordinator"
    summary = "a Flower app, played unmodified: ServerApp, ClientApp, strategies, mods"
    paper = "Beutel et al. 2020 (arXiv 2007.14390), and the app's own"
    Parameters: ClassVar[type[Strict]] = Parameters
    models: ClassVar[Literal["linear", "convex", "any"]] = "any"
    policies = ("all", "deadline", "quorum", "buffer", "each")
    restarts = policies
    trains_itself = True
    noises: ClassVar[tuple[str, ...]] = ()
    codecs: ClassVar[tuple[str, ...]] = ()
    uncoded = "an app's messages are its own: it codes them itself"
    unaudited = "an app's nodes have data of their own, which no audit can change"
    cures: ClassVar[tuple[str, ...]] = ("the app's step",)
    unweighable = "the app's strategy weighs them"
    wants: ClassVar[tuple[str, ...]] = (f"problem.model {PATH}",)

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        loss: Any = self.problem.loss
        if (file := self.parameters.times) is not None:
            from desim.flower.nodes import Times

            Times(Path(file))  # refused here where it is none
        self.evaluator = loss.model.evaluator
        if (noised := self.evaluator.central) is not None:
            self.trusts = noised.trusts
            if self.trusts:
                from desim.flower.central import Averages

                self.hung = (Averages,)
        if text := self.evaluator.trouble:
            self.warnings.append(f"{text}; loss and accuracy say nothing")
            return
        if self.evaluator.lossless:
            self.warnings.append("flower: evaluations say no loss, which is 0 where it is shown")
        if self.evaluator.unweighed:
            text = "flower: evaluations say no num-examples: all nodes count alike in accuracy"
            self.warnings.append(text)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return [*cls._odd(parameters, problem)]

    @classmethod
    def _odd(cls, parameters: Any, problem: Problem) -> Iterator[str]:
        if getattr(problem.loss, "name", "") != PATH:
            yield f"problem.model: found another one; allowed: {PATH}, with algorithm flower"
        elif not _as_read(problem):
            nodes = problem.loss.model.parameters.agents  # type: ignore[attr-defined]
            text = f"problem: found other rows than those of {nodes} nodes, one each and in order"
            allowed = f"agents: {nodes} there, in model and in data.arguments, partition: "
            yield f"{text}; allowed: {allowed}contiguous, and no preparation of the data"
        if parameters.work.kind == "measured" and parameters.times is None:
            allowed = "a file, from which the next run has the same times"
            yield f"algorithm.times: missing with work: measured; allowed: {allowed}"
        if parameters.times is not None and parameters.work.kind != "measured":
            yield f"algorithm.times: found with work: {parameters.work.kind}; allowed: measured"

    def coordinator(self, hub: Hub) -> Program:
        """What the ServerApp asks for, one question after the other."""
        from desim.flower.plays import Play

        x0 = self.evaluator.start
        hub.start(x=np.broadcast_to(x0, (hub.agents, len(x0))))
        hub.publish(x0)  # round 0
        yield from Play(hub, self, self.evaluator).program()

    def reply(self, us: Clients, payload: Array) -> Array:
        """A reply without noise: what is in it the app knows."""
        return payload

    def noised(self, us: Clients, payload: Array) -> Array:
        """A reply whose noise a mod has added: the ledger has its row."""
        return us.noised(payload)
