"""Times of all methods in many worlds, in one process or in several: the same numbers.

What a world draws beside its factors is addressed by the scenario's seed, the same for all methods
and in all worlds: they differ by the factors alone.
"""

import signal
import time
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array
from desim.errors import DesimError, InputError, RunError
from desim.experiments.ranking.entrants import Entrant, again
from desim.experiments.ranking.scaled import scaled
from desim.experiments.studies.processes import begun
from desim.numerics.plain import at_once
from desim.scenario.schema import Scenario

FIRST = 0.5  # s for which this process plays worlds alone, to see how long they take
WORTH = 15.0  # s of worlds from which on to start others takes less
CHUNK = 0.25  # s of worlds that a process is given at a time
Progress = Callable[[int, int], None]


class World(NamedTuple):
    """Factors by input, the seed and the law of transport; None: the scenario's."""

    factors: dict[str, float]
    seed: int | None = None
    transport: str | None = None

    @property
    def chosen(self) -> dict[str, int | str]:
        """What it has chosen of several."""
        found = {"seed": self.seed, "transport": self.transport}
        return {name: one for name, one in found.items() if one is not None}


class Field:
    """All methods, by seed (None: their own): seconds of each in any world."""

    def __init__(self, entrants: dict[int | None, list[Entrant]]) -> None:
        self.entrants = entrants
        self.alike = {seed: _alike(own) for seed, own in entrants.items()}

    def seconds(self, world: World) -> list[float]:
        """When s each method meets the target in a world; inf: never."""
        found, drawn = [], dict[int, Any]()
        for entrant, first in zip(self.entrants[world.seed], self.alike[world.seed], strict=True):
            if entrant.way != "notes":
                found.append(entrant.seconds(_in(entrant, world)))
                continue
            if first not in drawn:
                drawn[first] = entrant.conditions(_in(entrant, world))
            found.append(entrant.clocked(drawn[first]))
        return found

    def scenario(self, world: World, number: int) -> Scenario:
        """What method `number` is in a world."""
        return _in(self.entrants[world.seed][number], world)


def _in(entrant: Entrant, world: World) -> Scenario:
    return scaled(entrant.by(world.transport), world.factors)


def _alike(entrants: Sequence[Entrant]) -> list[int]:
    """For each the first that draws the same network and devices."""
    drawn = [(one.agents, one.scenario.seed, one.scenario.kind, one.scenario.network,
              one.scenario.compute) for one in entrants]  # fmt: skip
    return [drawn.index(one) for one in drawn]


def times(
    field: Field, worlds: Sequence[World], workers: int, progress: Progress | None = None
) -> Array:
    """Seconds (worlds, methods) until the target; inf: never. workers: processes at most."""
    tell = progress or (lambda done, total: None)
    found, began = np.full((len(worlds), len(field.entrants[worlds[0].seed])), np.nan), _clock()
    done = 0
    with at_once():
        for k, world in enumerate(worlds):
            found[k] = field.seconds(world)
            done = k + 1
            if done == 1:
                began = _clock()  # the first one may have compiled
                continue
            pace = (_clock() - began) / (done - 1)
            tell(done, len(worlds))
            if workers > 1 and _clock() - began > FIRST and pace * (len(worlds) - done) > WORTH:
                break
        else:
            return found
    size = max(1, min(int(CHUNK / pace), (len(worlds) - done) // (4 * workers) + 1))
    for part, values in _elsewhere(field, worlds, range(done, len(worlds), size), size, workers):
        found[part : part + size] = values
        done += len(values)
        tell(done, len(worlds))
    return found


def _clock() -> float:
    return time.perf_counter()


def _elsewhere(
    field: Field, worlds: Sequence[World], starts: Sequence[int], size: int, workers: int
) -> Iterator[tuple[int, Array]]:
    """(place of the first, seconds of so many worlds) as processes have played them."""
    plain = {seed: [one.plain for one in own] for seed, own in field.entrants.items()}
    waiting, crew = list(reversed(starts)), [begun(serve) for _ in range(min(workers, len(starts)))]
    try:
        owed = {pipe: 0 for _, pipe in crew}
        for _, pipe in crew:
            pipe.send(plain)
        while waiting or any(owed.values()):
            for pipe in owed:
                if waiting and not owed[pipe]:
                    first = waiting.pop()
                    pipe.send((first, worlds[first : first + size]))
                    owed[pipe] = 1
            ready = wait(list(owed))
            for pipe in owed:
                if pipe in ready:
                    yield _heard(pipe)
                    owed[pipe] = 0
    except OSError as error:
        raise RunError(f"workers: a process ended before its work was done ({error})") from None
    finally:
        for process, pipe in crew:
            process.kill()
            process.join()
            pipe.close()


def _heard(pipe: Any) -> tuple[int, Array]:
    try:
        said = pipe.recv()
    except EOFError:
        text = "workers: a process ended before its work was done"
        raise RunError(f"{text}; allowed: --workers 1, which needs less memory") from None
    if isinstance(said, str):
        raise InputError(said)
    first, values = said
    return first, np.asarray(values)


def serve(pipe: Connection) -> None:
    """What a process does: worlds, until the pipe is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the one that waits
    try:
        plain = pipe.recv()
        field = Field({seed: [again(one) for one in own] for seed, own in plain.items()})
        with at_once():
            while True:
                first, worlds = pipe.recv()
                pipe.send((first, [field.seconds(world) for world in worlds]))
    except DesimError as error:
        pipe.send(str(error))
    except (EOFError, OSError):
        return
