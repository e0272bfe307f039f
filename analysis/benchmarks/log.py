"""What the log costs a run: stored against kept in memory, and that against discarded; bytes.

    python -m analysis.benchmarks.log [case ...]

Rows that are kept in memory are put in order when they are first read, which is not timed here; on
disk a second thread does it while the run goes on, so that a second core is worth having. Processor
time is that of both threads. Where others compute, too, the ratios of minima are upper bounds.
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

LEVELS, TURNS = ("all", "messages", "rounds"), 9
HEAD = (
    "in memory, s", "to discarded", "stored to memory, all", "messages", "rounds",
    "stored to discarded", "processor time, to memory", "events", "B per event",
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


def stored(simulation: Simulation, folder: Path) -> dict[str, float]:
    """Play into a new directory; return events and bytes of its tables, and remove it."""
    place = Path(tempfile.mkdtemp(dir=folder))
    tables = Tables(place)
    simulation.play(tables)
    tables.finish()
    sizes = {f"{name} bytes": (place / f"{name}.parquet").stat().st_size for name in tables.rows}
    shutil.rmtree(place)
    return {**tables.rows, **sizes}


class Spent(NamedTuple):
    """Minima over the turns: seconds of wall clock, and of processor time of all threads."""

    wall: float
    processor: float


def spent(plays: dict[str, Callable[[], Any]], turns: int) -> dict[str, Spent]:
    """What each play takes, after a warm-up; they take turns."""
    taken: dict[str, list[Spent]] = {name: [] for name in plays}
    for turn in range(turns + 1):
        for name, play in plays.items():
            wall, processor = time.perf_counter(), time.process_time()
            play()
            if turn:
                wall, processor = time.perf_counter() - wall, time.process_time() - processor
                taken[name].append(Spent(wall, processor))
    return {name: Spent(*map(min, zip(*of, strict=True))) for name, of in taken.items()}


def measured(name: str, of: dict[str, Any], folder: Path) -> str:
    """The line of one scenario."""
    plays: dict[str, Callable[[], Any]] = {}
    made = {level: build(load({**of, "log": level})) for level in LEVELS}
    plays["discarded"] = lambda: made["all"].play(Discard())
    for level, simulation in made.items():
        plays[f"memory {level}"] = lambda s=simulation: s.play(Tables())
        plays[f"disk {level}"] = lambda s=simulation: stored(s, folder)
    least = spent(plays, TURNS)
    all_, kept = least["disk all"], least["memory all"]
    stored_to_kept = [least[f"disk {one}"].wall / least[f"memory {one}"].wall for one in LEVELS]
    ratios = [
        kept.wall / least["discarded"].wall, *stored_to_kept,
        all_.wall / least["discarded"].wall, all_.processor / kept.processor,
    ]  # fmt: skip
    told = stored(made["all"], folder)
    size = told["events bytes"] / told["events"]
    cells = [f"{kept.wall:.3f}", *(f"{one:.2f}" for one in ratios), str(told["events"])]
    return f"| {name} | {' | '.join(cells)} | {size:.1f} |"


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
