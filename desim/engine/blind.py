"""A method played blind: its clocks, messages and charges, without its arithmetic.

A program runs as it is written, but its jobs are left out: their results are zeros. That is enough
to know when everything happens wherever no duration and no size of a message depends on a value.
Programs see `us` or `hub` through a screen that says which of the others they look at.
"""

import sys
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.clients import Blank
from desim.engine.requests import Compute, Gather, Job
from desim.engine.settings import Settings
from desim.errors import InputError


def watched(settings: Settings) -> tuple[Settings, set[str]]:
    """The same settings, and the names of those that a plug-in has looked at since.

    What desim's methods and engines look at themselves, a plug-in does not see.
    """
    looked = set[str]()

    class Watched(Settings):
        def __getattribute__(self, name: str) -> Any:
            asking = str(sys._getframe(1).f_globals.get("__name__"))
            if not asking.startswith(("desim.methods.", "desim.engine.")):
                looked.add(name)
            return super().__getattribute__(name)

    copy = object.__new__(Watched)
    copy.__dict__.update(vars(settings))
    return copy, looked


@dataclass
class Seen:
    """What a blind play came across.

    shown: (time s, round) of each model that the coordinator showed; reported: (times (n,) s,
    agents (n,), round) of the agents' own; paced: the program asked how fast the agents are;
    clocked: it asked what time it is.
    """

    shown: list[tuple[float, int]] = field(default_factory=list)
    reported: list[tuple[Array, Int, int]] = field(default_factory=list)
    paced: bool = False
    clocked: bool = False
    blanks: dict[Any, Blank] = field(default_factory=dict)

    def blank(self, job: Job) -> Blank:
        """What stands for `job`: one for all calls of one function."""
        function: Any = job
        while isinstance(function, partial):
            function = function.func
        return self.blanks.setdefault(getattr(function, "__func__", function), Blank(job))


class BlindMethod:
    """`method` as engines play it blind; what is seen of its program gathers in `seen`."""

    def __init__(self, method: Any) -> None:
        self.method, self.seen = method, Seen()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.method, name)

    def coordinator(self, hub: Any) -> Any:
        """The coordinator's program."""
        return self.method.coordinator(BlindHub(hub, self.seen))

    def agents(self, us: Any) -> Any:
        """The agents' program."""
        return self.method.agents(BlindCohort(us, self.seen))


class BlindHub:
    """`hub` for a program that is played blind."""

    def __init__(self, hub: Any, seen: Seen) -> None:
        self._hub, self._seen = hub, seen

    def __getattr__(self, name: str) -> Any:
        self._seen.clocked |= name in ("calls", "station", "world")
        return getattr(self._hub, name)

    @property
    def now(self) -> float:
        """Virtual time s."""
        self._seen.clocked = True
        return float(self._hub.now)

    def call(self, who: Int, job: Job, payload: Array, **terms: Any) -> None:
        """As Hub.call."""
        self._hub.call(who, self._seen.blank(job), payload, **terms)

    def tell(self, who: Int, job: Job, payload: Array) -> None:
        """As Hub.tell, but nobody listens."""
        self._hub.tell(who, _deaf, payload)

    def inform(self, who: Int, job: Job, payload: Array) -> None:
        """As Hub.inform, but nobody listens."""
        self._hub.inform(who, _deaf, payload)

    def publish(self, model: Array) -> None:
        """Note when a model is shown, whatever it is."""
        hub = self._hub
        self._seen.shown.append((float(hub.now), hub.round if hub.begun else 0))
        hub.publish(np.zeros_like(model))


class BlindCohort:
    """`us` for a program that is played blind."""

    def __init__(self, us: Any, seen: Seen) -> None:
        self.__dict__.update(_us=us, _seen=seen)

    def __getattr__(self, name: str) -> Any:
        self._seen.clocked |= name in ("ended", "lasting")
        return getattr(self._us, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._us, name, value)

    @property
    def clock(self) -> Array:
        """Clocks (n,) s."""
        self._seen.clocked = True
        return np.asarray(self._us.clock)

    def speed(self) -> Array:
        """As Cohort.speed."""
        self._seen.paced = True
        return np.asarray(self._us.speed())

    def capacity(self, seconds: float) -> Int:
        """As Cohort.capacity."""
        self._seen.paced = True
        return np.asarray(self._us.capacity(seconds))

    def compute(self, job: Job, *inputs: Array, **duration: Any) -> Compute:
        """As Cohort.compute."""
        request: Compute = self._us.compute(self._seen.blank(job), *inputs, **duration)
        return request

    def release(self, value: Array, *terms: Any, **more: Any) -> Array:
        """Charge as Cohort.release, without noise."""
        self._us.release(np.empty((len(value), 0)), *terms, **more)
        return value

    def perturbation(self, dim: int, *terms: Any, **more: Any) -> Array:
        """Charge as Cohort.perturbation, without noise."""
        self._us.perturbation(0, *terms, **more)
        return np.zeros((len(self._us.who), dim))

    def above(self, *question: Any, **more: Any) -> Any:
        """Refuse: the answer is a matter of values."""
        raise InputError("algorithm: its agents decide by values what they send, and whether")

    def gather(self, within: float = np.inf) -> Gather:
        """As Cohort.gather; refuse where only what comes `within` a time is heard."""
        if within < np.inf:
            raise InputError("algorithm: what its agents hear in time depends on the delays")
        request: Gather = self._us.gather()
        return request

    def arrived(self) -> Gather:
        """Refuse: what is there already depends on the delays."""
        return self.gather(0.0)

    def report(self, models: Array) -> None:
        """Note when models are reported, whatever they are."""
        us = self._us
        live = us.live
        if live.any():
            self._seen.reported.append((us.clock[live], us.who[live], int(us.round[0])))
        us.report(np.zeros_like(models))


def _deaf(us: Any, news: Array) -> Array:
    return news
