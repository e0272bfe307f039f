"""The methods that compete: each is trained once on a seed, and timed in many other worlds.

Whom a coordinator that waits for all calls, with how many bits and for how much work, is the same
in every network. So one blind play (desim.engine.blind) notes it, and a world plays the notes
through the kernels of the engines: the times have the same bits as those of `desim.retime`.
"""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from desim.arrays import Array
from desim.engine.call_trace import CallTrace, Player, noted
from desim.engine.world import Discard
from desim.errors import Diverged, InputError, RunError
from desim.problem.fairness import OF_TESTS
from desim.problem.problem import Problem
from desim.problem.targets import first_met
from desim.runs.likeness import delayed
from desim.runs.retime import Retimable, Root
from desim.scenario.build import build
from desim.scenario.conditions import Conditions
from desim.scenario.load import load
from desim.scenario.scaled import transported
from desim.scenario.schema import Scenario

# A method, and how its time to the target is computed.
Way = Literal["notes", "retime", "play", "never"]
WORDS = {
    "notes": "trained once, its clock played in each world",
    "retime": "trained once, retimed in each world",
    "play": "played anew in each world",
    "never": "never gets there, in any world",
}


@dataclass
class Contender:
    """A method that runs for the target: `seconds` in any world.

    way: how its time is had there, for the reason `why`; trace: of way notes.
    """

    scenario: Scenario
    target: tuple[str, float]
    way: Way
    why: str = ""
    agents: int = 0
    trace: CallTrace | None = None
    problem: Problem | None = field(default=None, repr=False)
    retimable: Retimable | None = field(default=None, repr=False)
    others: dict[str, Scenario] = field(default_factory=dict, repr=False)

    def by(self, transport: str | None) -> Scenario:
        """The scenario with another law of transport; None: its own."""
        if transport is None:
            return self.scenario
        if transport not in self.others:
            self.others[transport] = transported(self.scenario, transport)
        return self.others[transport]

    @cached_property
    def player(self) -> Player:
        """What plays the trace."""
        return Player(self.agents)

    def conditions(self, world: Scenario) -> Any:
        """Speeds, downlinks and uplinks of a world, as `desim.scenario.build` makes them."""
        agents = self.agents
        drawn, everybody, hub = Conditions(world, agents), np.arange(agents), np.full(agents, -1)
        up, down = (drawn.links(everybody, hub, "uplink"), drawn.links(hub, everybody, "downlink"))
        return drawn.speeds(), down, up

    def clocked(self, conditions: Any) -> float:
        """When s the target is met under `conditions`, of way notes; inf: not in time."""
        assert self.trace is not None
        end = self.player.time(self.trace, *conditions)
        return end if end <= (self.scenario.stop.time or np.inf) else np.inf

    def seconds(self, world: Scenario) -> float:
        """When s the target is met in `world`, the scenario with another network or devices.

        inf: never, as far as the scenario's rounds and seconds go.
        """
        if self.way == "never":
            return np.inf
        if self.way == "notes":
            return self.clocked(self.conditions(world))
        with suppress(InputError):  # it would end by time
            if self.way == "retime" and self.retimable is not None:
                return self._met(self.retimable.under(world))
        return self._met(build(world, self.problem))

    @property
    def plain(self) -> dict[str, Any]:
        """What another process makes the same contender of; see `again`."""
        return {
            "scenario": self.scenario.written(), "target": self.target, "way": self.way,
            "agents": self.agents, "trace": self.trace,
        }  # fmt: skip

    def _met(self, simulation: Any) -> float:
        """When a simulation meets the target, s."""
        sink = Curve(self.target[0])
        outcome = simulation.play(sink)
        if outcome.status == "stopped":
            raise KeyboardInterrupt
        if self.scenario.stop.targets:
            met = outcome.status == "done" and outcome.reason.startswith("stop.metric")
            return float(outcome.time) if met else np.inf
        times, values = sink.curve
        place = first_met(self.target[0], values, self.target[1]) if len(values) else -1
        return float(times[place]) if place >= 0 else np.inf


class Curve(Discard):
    """A sink that keeps a metric of the whole network and nothing else."""

    def __init__(self, metric: str) -> None:
        self.metric = metric
        self.parts: list[Array] = []

    def append(self, name: str, columns: Any) -> None:
        """Take rows of a table."""
        if name == "metrics":
            own = np.asarray(columns["agent"]) < 0
            own &= np.asarray(columns["metric"], object).astype(str) == self.metric
            rows = [np.asarray(columns[one], float)[own] for one in ("time", "value")]
            self.parts.append(np.array(rows))

    @property
    def curve(self) -> Array:
        """Times s and values (2, n)."""
        return np.concatenate([np.empty((2, 0)), *self.parts], axis=1)


def aimed(scenario: Scenario, target: tuple[str, float]) -> Scenario:
    """The scenario whose end is the target, or its own rounds or seconds; checked.

    Where agents of a graph wait for each other it ends by rounds alone, and models of all are kept:
    their training is then the same in every network.
    """
    metric, value = target
    data = scenario.written()
    stops = ((key, data["stop"].get(key)) for key in data["stop"] if key in ("rounds", "time"))
    limits = {key: one for key, one in stops if one is not None}
    graph = scenario.kind != "coordinator" and "rounds" in limits
    stop = limits if graph else {**limits, "metric": {metric: value}}
    observe = {**data["observe"], "metrics": [metric], "iterates": graph}
    observe.pop("checkpoints", None)
    if metric not in OF_TESTS:
        observe.pop("sample", None)
    observe["every"] = data["observe"].get("every", "round") if graph else "round"
    found = load({**data, "stop": stop, "observe": observe})
    return found.model_copy(update={"source": scenario.source})


def entered(scenario: Scenario, target: tuple[str, float]) -> Contender:
    """A contender of a scenario that `aimed` made: trained once, and asked how it may be timed.

    InputError as `desim.run` raises it; KeyboardInterrupt where Ctrl-C ended the training.
    """
    if delays := delayed(scenario):
        return _played(scenario, target, delays[0])
    try:
        root = Root.trained(scenario, None, "", scenario.name)
    except Diverged as error:
        return Contender(scenario, target, "never", str(error))
    except RunError as error:
        return _played(scenario, target, str(error))
    if root.run.status == "stopped":
        raise KeyboardInterrupt
    assert root.problem is not None
    found = Contender(scenario, target, "play", "", root.problem.agents, problem=root.problem)
    star, reason = scenario.kind == "coordinator", str(root.run.manifest["reason"])
    try:
        retimable = root.retimable
    except InputError as error:
        return replace(found, why=str(error).splitlines()[0])
    if star and not reason.startswith("stop.metric"):
        text = f"its {root.run.manifest['rounds']} rounds end before"
        return replace(found, way="never", why=text)
    trace = traced(retimable, found) if star else None
    if trace is not None:
        return replace(found, way="notes", trace=trace)
    return replace(found, way="retime", retimable=retimable)


def _played(scenario: Scenario, target: tuple[str, float], why: str) -> Contender:
    problem = build(scenario).problem
    return Contender(scenario, target, "play", why, problem.agents, problem=problem)


def traced(retimable: Retimable, contender: Contender) -> CallTrace | None:
    """The trace of a coordinator up to the target; None where its clock needs more than that."""
    simulation, rounds = retimable.under(contender.scenario), retimable.training.rounds
    settings = simulation.settings
    if simulation.engine == "agents" or settings.budget is not None or settings.tree is not None:
        return None
    trace, end = noted(simulation, rounds, retimable.blanks)
    contender = replace(contender, way="notes", trace=trace)
    return trace if contender.seconds(contender.scenario) == end else None


def again(plain: dict[str, Any]) -> Contender:
    """The contender that was `plain` in another process: trained once more where it is retimed."""
    scenario, way = load(plain["scenario"]), plain["way"]
    if way == "retime":
        return entered(scenario, plain["target"])
    problem = build(scenario).problem if way == "play" else None
    return Contender(
        scenario, plain["target"], way, agents=plain["agents"], trace=plain["trace"],
        problem=problem,
    )  # fmt: skip
