"""When batteries are empty: played until playing it says what was played.

An agent is up where the scenario's churn has it up and its battery is not empty; and when that is,
the log of a run says, which depends on who is up. So from "never empty" on

    turns of all agents -> the log of a run in which they are down then -> turns by that log

until nothing changes. What turns a log says up to a time depends on what came before that alone:
each play gives at least one more of them for good, and its fixed point is the run, step by step as
a clock would have it. (A waveform relaxation: Lelarasmee, Ruehli, Sangiovanni-Vincentelli 1982.)

These plays leave arithmetic out (desim.engine.blind) where that changes no time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.blind import BlindMethod
from desim.engine.play import BLIND, Simulation
from desim.errors import InputError
from desim.log.event_log import Outcome
from desim.log.parquet import Tables
from desim.loggers import logger
from desim.runs.reading.charge import SAME, charges
from desim.runs.reading.energy import DONE
from desim.scenario import batteries
from desim.scenario.build import build
from desim.scenario.disclosures import changing
from desim.scenario.schema import Scenario

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
        self.known = 0.0  # s up to which turns are certain
        self.turns: list[Array] = [np.zeros(0)] * agents
        observe = scenario.observe.model_copy(
            update={"metrics": (), "sample": None, "checkpoints": None, "iterates": False}
        )
        stop = scenario.stop.model_copy(update={"metric": ()})
        kept = scenario.listeners if changing(scenario) else ()
        bare = {"observe": observe, "stop": stop, "log": "all", "listeners": kept}
        self.bare = scenario.model_copy(update=bare)
        self.blind = not by_values(scenario, self.simulation)

    def settled(self) -> tuple[Simulation, dict[str, Any]]:
        """The simulation whose agents are down when they are empty, and what a manifest says."""
        for play in range(1, MAX_PLAYS + 1):
            written = self.horizon if self.of.churn is not None else np.inf
            outcome, tables = self._played()
            rounds = float(self.scenario.stop.rounds or np.inf)
            pieces = tables.pieces("events", DONE)
            found = charges(pieces, self.of, rounds, outcome.time)
            failed = outcome.status == "failed"
            same = self._agree([one.turns for one in found], outcome.time, failed, written)
            if outcome.time > written:
                continue  # it went on without churn
            if not same:
                continue
            waits = failed and any(len(one) and one[-1] == np.inf for one in self.turns)
            error = self._refusal() if waits else None
            if not waits or (error is not None and self._ends_before()):
                return self._simulation(self.scenario), {"batteries": {"plays": play}}
            if error is not None:
                raise error
        if self._ends_before():
            return self._simulation(self.scenario), {"batteries": {"plays": MAX_PLAYS}}
        often = [int((one[::2] <= outcome.time).sum()) for one in self.turns]
        text = f"after {MAX_PLAYS} plays it is not known when which battery is empty; agent "
        text += f"{int(np.argmax(often))} is {max(often)} times until {outcome.time:.6g} s"
        raise InputError(f"battery: {text}; allowed: more capacity, a higher level, or less time")

    def _simulation(self, scenario: Scenario) -> Simulation:
        """That of a scenario whose agents are down when they are empty, as far as that is known."""
        turns = self.of.calendar(self.turns, self.horizon)
        return build(scenario, self.simulation.problem, turns)

    def _ends_before(self) -> bool:
        """Whether the run meets its stop.metric as long as all is certain: nothing later matters.

        Only a run with all its arithmetic says so.
        """
        if not self.scenario.stop.metric:
            return False
        with unheard():
            outcome = self._simulation(self.scenario).play(Tables())
        return outcome.status != "failed" and outcome.time <= self.known

    def _played(self) -> tuple[Outcome, Tables]:
        simulation, tables = self._simulation(self.bare), Tables()
        method, engine = simulation.method, simulation.engine
        if self.blind:
            method = BlindMethod(method)
            engine = "agents" if engine == "agents" else "cohort"
        played = Simulation(
            method, simulation.settings, BLIND, engine, simulation.why,
            listeners=simulation.listeners,
        )  # fmt: skip
        with unheard():
            outcome = played.play(tables)
        if outcome.error is not None and not np.isfinite(outcome.time):
            raise outcome.error
        self.horizon = max(self.horizon, AHEAD * outcome.time)
        return outcome, tables

    def _agree(self, found: Sequence[Array], end: float, failed: bool, written: float) -> bool:
        """Take up what a play to `end` s has found; whether it is what was played.

        written: s up to which it had churn.
        Of a play that failed, what was to come later stays: it may be the reason.
        """
        first, turns = np.inf, []
        for old, new in zip(self.turns, found, strict=True):
            n = min(len(old), len(new))
            with np.errstate(invalid="ignore"):  # inf: for good
                near = (old[:n] == new[:n]) | (abs(old[:n] - new[:n]) <= SAME * (1.0 + new[:n]))
            n = n if near.all() else int(np.argmin(near))
            odd = min(
                [one[n] for one in (old, new) if len(one) > n and one[n] <= end], default=None
            )
            first = first if odd is None else min(first, float(odd))
            later = old if failed and odd is None else new
            turns.append(np.concatenate([old[:n], later[n:]]))  # the bits that were played
        self.turns, self.known = turns, max(self.known, min(first, end, written))
        return first == np.inf

    def _refusal(self) -> InputError | None:
        """After a play that failed, what is wrong; None where what comes later is left out now.

        Whoever waits for an agent that is empty waits for ever.
        """
        stuck = {k: one[-2] for k, one in enumerate(self.turns) if len(one) and one[-1] == np.inf}
        sure = self.known * (1.0 + SAME)
        following = min([t for one in self.turns for t in one.tolist() if t > sure], default=np.inf)
        agent = min(stuck, key=lambda one: (stuck[one], one))
        if stuck[agent] <= max(sure, following):
            text, more = f"agent {agent} is empty from {stuck[agent]:.6g} s on", len(stuck) - 1
            text += (
                ", nothing charges it enough, and it is waited for"
                if not more
                else (
                    f", and {more} of the others later, nothing charges them enough, and they are "
                    "waited for"
                )
            )
            allowed = "a charger, a stop.time before that, or a policy that does not wait for all"
            return InputError(f"battery: {text}; allowed: {allowed}")
        for k, one in enumerate(self.turns):
            n = int(np.searchsorted(one, following, "right"))
            self.turns[k] = one[: n + n % 2]
        return None


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
    """Whether what is computed may change when anything happens, so that plays compute it."""
    own = type(simulation.method).__module__.partition(".")[0] == "desim"
    chosen = getattr(simulation.settings.participation, "losses", None) is not None
    return not own or chosen or bool(changing(scenario))


def settled(scenario: Scenario, simulation: Simulation) -> tuple[Simulation, dict[str, Any]]:
    """The simulation of a scenario with batteries, and how it was found; see the module.

    simulation: what `build` makes of the scenario. InputError where somebody waits for ever for an
    agent whose battery nothing charges, or after MAX_PLAYS plays.
    """
    return Depletion(scenario, simulation).settled()
