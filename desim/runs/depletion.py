"""When batteries are empty: one play foresees it, and another one, whose log is read, says so.

An agent is up where the scenario's churn has it up and its battery is not empty; and when that is,
what happens says, which depends on who is up. `desim.runs.drain` knows at each moment of a play.
Whatever the engine, the run has these turns in its calendar, as it has churn; so it is certain that

    turns of all agents -> the log of a run in which they are down then -> turns by that log

are the same. Where they are not, or on lines that several share, where the log alone tells what a
message took, the log's turns are played until they are: what turns a log says up to a time depends
on what came before that alone, so that each play gives at least one more for good. (A waveform
relaxation: Lelarasmee, Ruehli, Sangiovanni-Vincentelli 1982.)

These plays leave arithmetic out (desim.engine.blind) where that changes no time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from desim.arrays import Array
from desim.engine.blind import BlindMethod
from desim.engine.play import BLIND, Simulation
from desim.engine.world import Discard
from desim.errors import InputError
from desim.log.event_log import Outcome
from desim.log.parquet import Tables
from desim.loggers import logger
from desim.runs.drain import Drain
from desim.runs.reading.charge import SAME, charges
from desim.runs.reading.energy import DONE
from desim.scenario import batteries
from desim.scenario.build import build
from desim.scenario.disclosures import changing
from desim.scenario.schema import Scenario

T = TypeVar("T", Tables, Discard)
MAX_PLAYS = 500
AHEAD = 4.0  # times the latest end: how far churn is written down


@dataclass
class Depletion:
    """The search for when the batteries of a scenario are empty; simulation: see `build`."""

    scenario: Scenario
    simulation: Simulation

    def __post_init__(self) -> None:
        scenario, agents = self.scenario, self.simulation.problem.agents
        of = batteries.batteries(scenario, agents)
        assert of is not None
        self.of = of
        self.horizon = scenario.stop.time or 0.0  # up to which churn is written down
        self.turns: list[Array] = [np.zeros(0)] * agents
        self.blind = not by_values(scenario, self.simulation)
        less: dict[str, Any] = {"checkpoints": None, "iterates": False}
        less |= {"metrics": (), "sample": None} if self.blind else {}
        observe = scenario.observe.model_copy(update=less)
        kept = scenario.listeners if changing(scenario) else ()
        bare = {"observe": observe, "log": "all", "listeners": kept}
        self.bare = scenario.model_copy(update=bare)

    def settled(self) -> tuple[Simulation, dict[str, Any]]:
        """The simulation whose agents are down when they are empty, and what a manifest says."""
        first = 1
        if self.causal:
            first, self.turns = 2, self._foreseen()
        for play in range(first, MAX_PLAYS + 1):
            written = self.horizon if self.of.churn is not None else np.inf
            outcome, tables = self._played(self._simulation(self.bare), Tables())
            rounds, end = float(self.scenario.stop.rounds or np.inf), outcome.time
            failed = outcome.status == "failed"
            if failed:  # nothing follows, but that batteries last until then, or do not
                end = max([end, *(float(one[one < np.inf].max(initial=0.0)) for one in self.turns)])
            found = charges(tables.pieces("events", DONE), self.of, rounds, end)
            if not self._agree([one.turns for one in found], end) or outcome.time > written:
                continue  # or it went on without churn
            if failed:
                self._refuse()
            return self._simulation(self.scenario), {"batteries": {"plays": play}}
        often = [int((one[::2] <= outcome.time).sum()) for one in self.turns]
        text = f"after {MAX_PLAYS} plays it is not known when which battery is empty; agent "
        text += f"{int(np.argmax(often))} is {max(often)} times until {outcome.time:.6g} s"
        raise InputError(f"battery: {text}; allowed: more capacity, a higher level, or less time")

    @property
    def causal(self) -> bool:
        """Whether what a battery gives is known when it gives it: on shared lines it is not."""
        settings = self.simulation.settings
        sides = settings.links, settings.uplinks, settings.downlinks
        shared = any(one is not None and one.contention for one in sides)
        return settings.tree is None and not shared

    def _foreseen(self) -> list[Array]:
        """When batteries are empty, and back, in turn, s, by a play of one event after another."""
        simulation, drain = self._simulation(self.bare), Drain(self.of)
        churn = simulation.settings.churn
        assert churn is not None
        churn = replace(churn, calendar=self.of.churn or churn.calendar, live=drain)
        settings = replace(simulation.settings, churn=churn)
        play = replace(simulation, settings=settings, engine="agents")
        outcome, _ = self._played(play, Discard())
        return drain.turns(outcome.time)

    def _simulation(self, scenario: Scenario) -> Simulation:
        """That of a scenario whose agents are down when they are empty, as far as that is known."""
        turns = self.of.calendar(self.turns, self.horizon)
        return build(scenario, self.simulation.problem, turns)

    def _played(self, simulation: Simulation, tables: T) -> tuple[Outcome, T]:
        method, engine = simulation.method, simulation.engine
        seen = BLIND if self.blind else simulation.observation
        if self.blind:
            method = BlindMethod(method)
            engine = "agents" if engine == "agents" else "cohort"
        played = Simulation(
            method, simulation.settings, seen, engine, simulation.why,
            listeners=simulation.listeners,
        )  # fmt: skip
        with unheard():
            outcome = played.play(tables)
        if outcome.error is not None and not np.isfinite(outcome.time):
            raise outcome.error
        self.horizon = max(self.horizon, AHEAD * outcome.time)
        return outcome, tables

    def _agree(self, found: Sequence[Array], end: float) -> bool:
        """Take up what a play to `end` s has found; whether it is what was played."""
        first, turns = np.inf, []
        for old, new in zip(self.turns, found, strict=True):
            n = min(len(old), len(new))
            with np.errstate(invalid="ignore"):  # inf: for good
                near = (old[:n] == new[:n]) | (abs(old[:n] - new[:n]) <= SAME * (1.0 + new[:n]))
            n = n if near.all() else int(np.argmin(near))
            odd = min([one[n] for one in (old, new) if len(one) > n], default=np.inf)
            first = min(first, float(odd))
            turns.append(np.concatenate([old[:n], new[n:]]))  # the bits that were played
        self.turns = turns
        return first > end

    def _refuse(self) -> None:
        """InputError where who is waited for is empty for ever."""
        empty = {k: one[-2] for k, one in enumerate(self.turns) if len(one) and one[-1] == np.inf}
        if not empty:
            return
        agent = min(empty, key=lambda one: (empty[one], one))
        text = f"agent {agent} is empty from {empty[agent]:.6g} s on for good"
        text += f", {len(empty) - 1} more are later" if len(empty) > 1 else ""
        allowed = "a charger, a stop.time before that, or a policy that does not wait for all"
        raise InputError(f"battery: {text}, and all are waited for; allowed: {allowed}")


@contextmanager
def unheard() -> Iterator[None]:
    """Nothing is said of plays that are only tried."""
    heard = logger("run")
    heard.addFilter(_nothing)
    try:
        yield
    finally:
        heard.removeFilter(_nothing)


def _nothing(_: Any) -> bool:
    return False


def by_values(scenario: Scenario, simulation: Simulation) -> bool:
    """Whether what is computed may change when anything happens, or ends, so that plays do it."""
    own = type(simulation.method).__module__.partition(".")[0] == "desim"
    chosen = getattr(simulation.settings.participation, "losses", None) is not None
    return not own or chosen or bool(changing(scenario) or scenario.stop.metric)


def settled(scenario: Scenario, simulation: Simulation) -> tuple[Simulation, dict[str, Any]]:
    """The simulation of a scenario with batteries, and how it was found; see the module.

    simulation: what `build` makes of the scenario. InputError where somebody waits for ever for an
    agent whose battery nothing charges, or after MAX_PLAYS plays.
    """
    return Depletion(scenario, simulation).settled()
