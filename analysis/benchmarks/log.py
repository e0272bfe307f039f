"""What the log costs a run: stored against kept in memory, and that against discarded; bytes.

    python -m analysis.benchmarks.log [case ...]

Rows that are kept in memory are put in order when they are first read, which is not timed here; on
disk a second thread does it while the run goes on, so that a second core is worth having. Where
others use it, wall clock says little; the processor time of the run's own thread and of all that is
done after its end is what the run would take beside a free core.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from analysis.benchmarks.engines import GRAPH, STAR
from analysis.benchmarks.timing import machine
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.log.parquet import Tables
from desim.scenario.build import build
from desim.scenario.load import load

LEVELS, TURNS = ("all", "messages", "rounds"), 7
HEAD = (
    "in memory, s", "to discarded", "stored to memory, all", "messages", "rounds",
    "all, beside a free core", "all, both threads", "events", "B per event",
)  # fmt: skip


def scenario(agents: int, rounds: int, **changes: Any) -> dict[str, Any]:
    """The synchronous Fed-PLT scenario of the engines' benchmark, in another size."""
    problem = {**STAR["problem"], "agents": agents}
    return {**STAR, "problem": problem, "stop": {"rounds": rounds}, **changes}


RUNS = {
    "synchronous, 10 agents": scenario(10, 4000),
    "synchronous, 1000 agents": scenario(1000, 200),
    "asynchronous, 10 agents": scenario(10, 20_000, policy="each"),
    "asynchronous, 1000 agents": scenario(1000, 20_000, policy="each"),
    "graph, 50 agents": {**GRAPH, "observe": {"metrics": []}, "stop": {"rounds": 1000}},
}


def played(simulation: Simulation, into: Callable[[], Any]) -> float:
    """Play into memory, or nowhere; processor seconds."""
    began = time.thread_time()
    simulation.play(into())
    return time.thread_time() - began


def stored(simulation: Simulation, folder: Path, told: dict[str, float]) -> float:
    """Play into a new directory, which is removed; processor seconds until all is stored.

    Those of the thread of the run, and of all threads after its end. told: gets rows and bytes.
    """
    place = Path(tempfile.mkdtemp(dir=folder))
    began = time.thread_time()
    tables = Tables(place)
    simulation.play(tables)
    seconds, began = time.thread_time() - began, time.process_time()
    tables.finish()
    seconds += time.process_time() - began
    told |= tables.rows | {"size": (place / "events.parquet").stat().st_size}
    shutil.rmtree(place)
    return seconds


class Spent(NamedTuple):
    """Minima over the turns, s: wall clock; processor time until stored, and of all threads."""

    wall: float
    own: float
    processor: float


def spent(plays: dict[str, Callable[[], float]], turns: int) -> dict[str, Spent]:
    """What each play takes, after a warm-up; they take turns."""
    taken: dict[str, list[Spent]] = {name: [] for name in plays}
    for turn in range(turns + 1):
        for name, play in plays.items():
            wall, processor = time.perf_counter(), time.process_time()
            own = play()
            if turn:
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                taken[name].append(Spent(wall, own, processor))
    return {name: Spent(*map(min, zip(*of, strict=True))) for name, of in taken.items()}


def measured(name: str, of: dict[str, Any], folder: Path) -> str:
    """The line of one scenario."""
    plays: dict[str, Callable[[], float]] = {}
    made = {level: build(load({**of, "log": level})) for level in LEVELS}
    plays["discarded"] = lambda: played(made["all"], Discard)
    told: dict[str, float] = {}
    for level, simulation in reversed(made.items()):  # the last one tells of all rows
        plays[f"memory {level}"] = lambda s=simulation: played(s, Tables)
        plays[f"disk {level}"] = lambda s=simulation: stored(s, folder, told)
    least = spent(plays, TURNS)
    disk, memory = least["disk all"], least["memory all"]
    ratios = [
        memory.wall / least["discarded"].wall,
        *(least[f"disk {one}"].wall / least[f"memory {one}"].wall for one in LEVELS),
        disk.own / memory.own, disk.processor / memory.processor,
    ]  # fmt: skip
    cells = [f"{memory.wall:.3f}", *(f"{one:.2f}" for one in ratios), f"{told['events']}"]
    return f"| {name} | {' | '.join(cells)} | {told['size'] / told['events']:.1f} |"


def main() -> None:
    """Measure and print."""
    print(machine(), "\n")
    print("| | " + " | ".join(HEAD) + " |\n" + "|---" * (len(HEAD) + 1) + "|")
    chosen = [name for name in RUNS if not sys.argv[1:] or any(one in name for one in sys.argv[1:])]
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen:
            print(measured(name, RUNS[name], Path(folder)), flush=True)


if __name__ == "__main__":
    main()
