"""What the log costs a run: kept on disk or in memory against discarded, and bytes per event.

    python -m analysis.benchmarks.log

Rows that are kept in memory are put in order when they are first read, which is not timed here; on
disk a second thread does it while the run goes on, so that a second core is worth having.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import shutil
import tempfile
from pathlib import Path
from typing import Any

from analysis.benchmarks.engines import GRAPH, STAR
from analysis.benchmarks.timing import interleaved, machine
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.log.parquet import Tables
from desim.scenario.build import build
from desim.scenario.load import load

LEVELS = ("all", "messages", "rounds")


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


def measure(name: str, of: dict[str, Any], folder: Path) -> None:
    """Print a table for one scenario."""
    plays: dict[str, Any] = {}
    for level in LEVELS:
        made = build(load({**of, "log": level}))
        plays.setdefault("discarded", lambda s=made: s.play(Discard()))
        plays[f"in memory, {level}"] = lambda s=made: s.play(Tables())
        plays[f"on disk, {level}"] = lambda s=made: stored(s, folder)
    seconds = interleaved(plays, 5)
    least, _ = seconds["discarded"]
    print(f"\n{name}\n\n| | min s | median s | of minima | events | B per event |")
    print("|---|---|---|---|---|---|")
    for way, (low, median) in seconds.items():
        told = plays[way]() if way.startswith("on disk") else {}
        size = told.get("events bytes", 0.0) / max(told.get("events", 0), 1)
        counted = f"{told['events']} | {size:.1f}" if told else " | "
        print(f"| {way} | {low:.3f} | {median:.3f} | {low / least:.2f} | {counted} |", flush=True)


def main() -> None:
    """Measure and print."""
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        for name, of in RUNS.items():
            measure(name, of, Path(folder))


if __name__ == "__main__":
    main()
