"""Compiled engine for graph methods: blocks of rounds that a tape knows, in one call each.

Legal where the cohort engine is, on links whose messages all arrive, if all wait for all. A program
runs on a `Tape`, round by round; what it does there is played on the cohort engine with the verbs
of `us` as long as it is new, near the end of the run, and whenever something happens that only they
know. Rounds like the one before are played many in one call. The numbers are the cohort engine's.
"""

from collections import deque
from collections.abc import Generator
from copy import copy
from dataclasses import replace
from types import MethodType
from typing import Any

import numpy as np

from desim.engine.agents.programs import checked_requests
from desim.engine.cohort import graph as cohort
from desim.engine.compiled import calls
from desim.engine.compiled.lowering import Steps, Unplayable
from desim.engine.compiled.machine import play_rounds
from desim.engine.compiled.meeting import Meeting
from desim.engine.compiled.player import Player
from desim.engine.compiled.tape import BEFORE, GIVEN, Round, Stretch, Tape
from desim.engine.compiled.values import BINARY
from desim.engine.observer import ClockObserver
from desim.engine.settings import Settings
from desim.engine.us import Cohort
from desim.engine.world import Unforeseen, World
from desim.numerics import plain
from desim.numerics.jit import use_parallel
from desim.problem.kernels.gradients import Data
from desim.problem.losses.scalar import OWN

WORTH = 60_000  # rounds that gain what it takes to compile them
TRIED = 7  # rounds of a program that are looked at before a run
ALIKE = 2  # rounds in a row that did the same, from which on they are played in blocks
FUNCTIONS: dict[str, Any] = {name: ufunc for ufunc, name in BINARY.items()}
Values = list[Any]  # what the operations of a round gave


def play(program: Any, world: World) -> float:
    """Run `program(us)` to its end; return the end of the run in virtual seconds.

    Unforeseen where it does what no compiled round knows. Where threads, or plain Python, are
    sooner done, the cohort engine runs it.
    """
    data = world.settings.problem.data
    shared, worth = use_parallel(2.0 * data.A.size), WORTH <= world.settings.rounds < np.inf
    if (
        plain.ready(play_rounds, worth=worth)
        and not shared
        and type(world.observer) is ClockObserver
    ):
        program = Played(program, world)
    try:
        return cohort.play(checked_requests(program, "graph", lambda: world.now), world)
    finally:
        player = getattr(program, "player", None)
        if player is not None and player.missed is not None:
            player.wait()


def uncompiled(program: MethodType, settings: Settings) -> str:
    """Why `program(us)` has no compiled rounds with these settings; empty if it has."""
    links, data = settings.links, settings.problem.data
    lets = {
        "neighbours are others in every round": settings.changing is not None,
        f"with policy {settings.policy.kind} rounds differ": settings.policy.kind != "all",
        "agents may be away": settings.churn is not None,
        "who may go on within privacy.budget is decided in Python": settings.budget is not None,
        "messages may be lost": links is not None and links.lossy,
        "messages take TCP, two hops, a trace or radio": links is None or not links.plain,
        "messages share lines": links is not None and (links.contention or links.lines.shape[1]),
        "gradients of this model are not compiled": not isinstance(data, Data) or data.code == OWN,
        "speeds change during a computation": not settings.speeds.steady,
    }
    if found := next((text for text, true in lets.items() if true), ""):
        return found
    try:
        apart = MethodType(program.__func__, copy(program.__self__))  # what it may write to
        tape = Tape(apart, replace(settings, rounds=np.inf))
        *_, before, last = [tape.next() for _ in range(TRIED)]
        if last is None or not last.like(before):
            return "its rounds are of several kinds"
        steps = Steps(last, settings.problem.agents)
        if steps.calls and not tape.steady:  # to know them takes what blocks would save
            return "its rounds call what is not compiled, and are not known to be the same"
    except Unforeseen as why:
        return f"its program asks for {why}"
    except Unplayable as why:
        return f"its program has {why}"
    return ""


class Played:
    """A program that does what the tape of another one says."""

    def __init__(self, program: Any, world: World) -> None:
        self.world = world
        self.tape = Tape(program, world.settings)
        self.ahead: deque[Round] = deque()  # rounds that are known and not played
        self.latest: Round | None = None  # the one that was played last, and what it gave
        self.values: Values = []
        self.alike = 0  # how many rounds in a row did the same
        self.unforeseen: Unforeseen | None = None  # what ends this
        self.player: Player | None = None
        self.refused: Round | None = None  # one that no block can be made of

    def __call__(self, us: Cohort) -> Generator[Any, Any, None]:
        """Play on `us`."""
        yield from self._one(us)
        k, limit = 0, self.world.settings.rounds
        while k < limit and us.on:
            if done := self._block(us, k, limit):
                k += done
                continue
            k += 1
            us.begin(k)
            yield from self._one(us)
        if k >= limit:
            yield from self._one(us)

    def _known(self, number: int) -> int:
        """How many rounds are known, up to `number`, that are like the one played last."""
        for place in range(number):
            if place == len(self.ahead):
                try:
                    round_ = None if self.unforeseen else self.tape.next()
                except Unforeseen as error:  # of a round that may never be played
                    self.unforeseen, round_ = error, None
                if round_ is None:
                    return place
                self.ahead.append(round_)
            if not self.ahead[place].like(self.latest):
                return place
        return number

    def _one(self, us: Cohort) -> Generator[Any, Any, None]:
        """Play one round, or what comes before or after all, with the verbs of `us`."""
        self._known(1)
        if not self.ahead and self.unforeseen:
            raise self.unforeseen
        if not self.ahead:
            return
        round_ = self.ahead.popleft()
        self.alike = self.alike + 1 if round_.like(self.latest) else 0
        if self.player is not None and self.player.values:
            self.values = self.player.taken()
        self.values = yield from acted(us, round_, self.values)
        self.latest = round_

    def _block(self, us: Cohort, k: int, limit: float) -> int:
        """Play rounds k + 1, k + 2, ... in one call, if they are known; return how many."""
        if self.alike < ALIKE or self.latest is self.refused:
            return 0
        assert self.latest is not None
        if self.player is None or not self.latest.like(self.player.steps.round):
            try:
                steps = Steps(self.latest, len(us.who))
                played = Player if steps.to is None else Meeting
                self.player = played(self.world, us, steps)
            except Unplayable:
                self.refused = self.latest
                return 0
        if not self.player.ready(us):
            return 0
        if not self.player.values:
            self.player.take(self.values)
        most = int(min(self.player.most, limit - k))
        if not self.ahead and self.tape.steady and self.latest.like(self.tape.steady):
            if stretch := self.tape.stretch(most):
                done = self.player.play(us, k, stretch)
                self.tape.passed(done)
                return done
        most = self._known(most)
        done = self.player.play(us, k, Stretch.of(list(self.ahead)[:most])) if most else 0
        for _ in range(done):
            self.latest = self.ahead.popleft()
        return done


def acted(us: Cohort, round_: Round, before: Values) -> Generator[Any, Any, Values]:
    """Do what a round says with the verbs of `us`; return what its operations give."""
    given, now = round_.constants, list[Any]()
    skipped = {
        inner
        for number, words in enumerate(round_.operations)
        if words[0] == "compute"
        for inner in range(words[5], number)
    }  # a job's own, which it does itself

    def value(operand: Any) -> Any:
        if operand is None:
            return None
        kind, number = operand
        return given[number] if kind == GIVEN else (before if kind == BEFORE else now)[number]

    for number, (name, *words) in enumerate(round_.operations):
        found: Any = None
        if number in skipped:
            pass
        elif name in FUNCTIONS:
            found = FUNCTIONS[name](value(words[0]), value(words[1]))
        elif name == "compute":
            job, inputs, work, seconds = words[:4]
            inputs = [value(one) for one in inputs]
            found = yield us.compute(job, *inputs, work=value(work), seconds=value(seconds))
            if np.shape(found) != round_.results[number]:
                raise Unforeseen("a job that gives something else")
        elif name == "gather":
            found = yield us.gather()
        else:
            found = VERBS[name](us, value, *words)
        now.append(found)
    return now


def _set(us: Cohort, value: Any, name: str, rows: Any) -> Any:
    setattr(us, name, value(rows))
    return value(rows)


def _sent(us: Cohort, value: Any, bits: Any, turn: Any, *rest: Any) -> Any:
    size = value(bits) if bits[0] == GIVEN else value(bits).astype(np.int64)
    to = value(rest[0]) if len(rest) > 1 else None
    us.send(value(rest[-1]), bits=size, turn=value(turn), to=to)


VERBS: dict[str, Any] = {
    "load": lambda us, value, one: value(one),
    "negative": lambda us, value, one: -value(one),
    "column": lambda us, value, one: value(one)[:, None],
    "columns": lambda us, value, one, low, high: value(one)[:, low:high],
    "numbers": lambda us, value, one, low, _: value(one)[:, low],
    "hstack": lambda us, value, parts, _: np.hstack([value(one) for one in parts]),
    "float32": lambda us, value, one: value(one).astype(np.float32).astype(float),
    "count": lambda us, value, heard: value(heard).count,
    "set": _set,
    "send": _sent,
    "meet": _sent,
    "release": lambda us, value, terms, *rest: us.release(value(rest[-1]), value(terms)),
    "keep": lambda us, value, terms, *rest: us.release(value(rest[-1]), value(terms), kept=True),
    "coded": lambda us, value, one: us.coded(value(one)),
    "call": calls.called,
    "perturbation": lambda us, value, terms, *rest: us.perturbation(rest[-1], value(terms)),
    "release_some": lambda us, value, where, terms, *rest: us.release(
        value(rest[-1]), value(terms), value(where)
    ),
    "known": lambda us, value, values: us.known(value(values)),
    "sum": lambda us, value, heard, weights: us.sum(value(heard), value(weights)),
    "sum_fresh": lambda us, value, heard, other: us.sum(value(heard), value(other).fresh),
    "report": lambda us, value, models: us.report(value(models)),
}
