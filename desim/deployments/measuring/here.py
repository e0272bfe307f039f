"""`desim calibrate --here`: how fast this machine takes a method's local steps, without compiling.

The scenario is played with a stopwatch at each job of an agent, alone, after some that warm up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.measuring.samples import Samples, nothing_sent
from desim.engine.opening import BLIND, opening
from desim.engine.world import Discard
from desim.errors import InputError, refusal
from desim.numerics.environment import environment
from desim.numerics.jit import one_thread
from desim.numerics.later import pd
from desim.numerics.plain import at_once, when
from desim.runs.preparing import preparing
from desim.scenario.build import build
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

JOBS, MOST = 120, 400  # jobs that are timed, and rounds that are played for them at most
WARM = 10  # of them that are not
ALLOWED = "later or at-once, as what is timed is compiled code"


@dataclass
class Watch:
    """Seconds of each job, and whose it was."""

    took: list[tuple[Int, float]] = field(default_factory=list)

    def timed(self, job: Any) -> Any:
        """The job, with a stopwatch."""

        def run(us: Any, *inputs: Any) -> Any:
            begin = perf_counter()
            result = job(us, *inputs)
            self.took.append((us.who, perf_counter() - begin))
            return result

        return run


class Watched:
    """A method whose agents' jobs are timed."""

    def __init__(self, method: Any, watch: Watch) -> None:
        self._method, self._watch = method, watch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._method, name)

    def coordinator(self, hub: Any) -> Any:
        """The coordinator's program."""
        return self._method.coordinator(_Screen(hub, self._watch))

    def agents(self, us: Any) -> Any:
        """The agents' program."""
        return self._method.agents(_Screen(us, self._watch))


class _Screen:
    """`hub` or `us` for a program whose jobs are timed."""

    def __init__(self, own: Any, watch: Watch) -> None:
        self.__dict__.update(_own=own, _watch=watch)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._own, name, value)

    def call(self, who: Any, job: Any, *payload: Any, **terms: Any) -> None:
        """As Hub.call."""
        self._own.call(who, self._watch.timed(job), *payload, **terms)

    def compute(self, job: Any, *inputs: Any, **duration: Any) -> Any:
        """As Cohort.compute."""
        return self._own.compute(self._watch.timed(job), *inputs, **duration)


def steps_here(source: Scenario | str | Path | Mapping[str, Any]) -> Samples:
    """Time this machine over the local steps of a scenario, its computations all of agent 0.

    Where the method says how many epochs there are, also with one and with four times as many, so
    that a fixed cost can be told. InputError for methods whose work is not known, and where
    nothing is ever compiled.
    """
    environment()
    if when() == "never":
        raise InputError(f"DESIM_COMPILE: {refusal('never', ALLOWED)}")
    scenario = loaded(source, None)
    found = [_timed(one) for one in _variants(scenario)]
    work, seconds = (np.concatenate(column) for column in zip(*found, strict=True))
    table = pd.DataFrame({"agent": 0, "work": work, "seconds": seconds})
    each = seconds / work
    spread = f"{each.min():.3g} s at best, {np.median(each):.3g} s in the median"
    notes = (f"a gradient of one row took {spread} of {len(each)} steps, with their fixed cost",)
    return Samples(nothing_sent(), table, sources=(f"this machine, {scenario.name}",), notes=notes)


def _variants(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario on the engine that plays agents one by one, and with other numbers of epochs."""
    data = scenario.written()
    data |= {"engine": "agents", "log": "rounds", "stop": {"rounds": MOST}}
    data["policy"] = "each" if scenario.kind == "coordinator" else "all"  # one by one
    data |= {"churn": "none", "participation": "all", "compute": {"speed": "inf"}}
    data |= {"observe": {"metrics": []}}
    if isinstance(data.get("privacy"), dict):
        data["privacy"] = {key: one for key, one in data["privacy"].items() if key != "budget"}
    data["network"] = {"topology": data["network"]["topology"]}
    yield loaded(data, None)
    local = data["algorithm"].get("local")
    epochs = local.get("epochs") if isinstance(local, dict) else None
    for number in (1, 4 * epochs) if isinstance(epochs, int) else ():
        try:
            yield loaded(data, {"algorithm.local.epochs": number})
        except InputError:
            return


def _timed(scenario: Scenario) -> tuple[Array, Array]:
    """Work and seconds (n,) of jobs."""
    with preparing():
        simulation = build(scenario)
    first = opening(simulation)
    if first is None:
        name = scenario.algorithm.name
        raise InputError(f"calibrate: {name} does not say how much work its first step is")
    watch = Watch()
    alone = simulation.method.kind == "coordinator"
    each = 1 if alone else simulation.problem.agents
    rounds = int(np.clip(np.ceil(JOBS / each), 3, MOST)) + WARM // each + 1
    settings = replace(simulation.settings, rounds=rounds, targets=())
    playing = replace(
        simulation, method=Watched(simulation.method, watch), settings=settings, observation=BLIND
    )
    with at_once(), one_thread():
        outcome = playing.play(Discard())
    work = dict(zip(first.who.tolist(), first.work.tolist(), strict=True))
    took = [
        (sum(work[int(one)] for one in who), seconds)
        for who, seconds in watch.took
        if all(int(one) in work for one in who)
    ][WARM:]
    if not took:
        raise InputError(f"calibrate: no step of an agent could be timed ({outcome.reason})")
    pairs = np.array(took)
    return pairs[:, 0], pairs[:, 1]
