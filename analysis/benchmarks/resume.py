"""What a kill costs: a run killed near its end, and how soon it is as far again.

    DESIM_THREADS=1 python -m analysis.benchmarks.resume FILE    # images, an npz of Keras

Each run is killed after nine tenths of its rounds. Then two copies of its directory go on to that
round: one from the checkpoint, one without it, played again from the start. Processor seconds of
the process, all threads, compiled code being there already; what checkpoints cost is the time in
which they are made and written, of the run until the kill.
"""

import shutil
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import desim
from analysis.benchmarks.engines import GRAPH, STAR
from analysis.benchmarks.models import PLUGIN
from analysis.benchmarks.timing import machine
from desim.engine.world import World
from desim.runs.directory import CHECKPOINT

KILLED = 0.9  # of the rounds


class Killed(BaseException):
    """Ends a run as a kill does: nothing more is written."""


def star(rounds: int, agents: int, **more: Any) -> dict[str, Any]:
    """Fed-PLT of the engines' benchmark."""
    problem = {**STAR["problem"], "agents": agents}
    return {**STAR, "problem": problem, "stop": {"rounds": rounds}, **more}


def modelled(file: Path, model: str, agents: int, rounds: int) -> dict[str, Any]:
    """Federated averaging of a torch module, ten batches of 32 a round."""
    data = {"source": "mnist-npz", "file": str(file), "scale": "pixel", "test": {"rows": 1000}}
    local = {"solver": "sgd", "batch": 32, "epochs": 10, "step": 0.05}
    return {
        "plugins": [str(PLUGIN)],
        "problem": {"agents": agents, "data": data, "model": model},
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": {"uniform": ["10 ms", "60 ms"]}}},
        "compute": {"speed": {"uniform": [500, 2000]}},
        "observe": {"metrics": ["accuracy"]},
        "stop": {"rounds": rounds},
    }


def spent(play: Any, until: int, **where: Any) -> float:
    """Processor seconds in which a run, or one that goes on, comes to round `until`."""

    def step(now: Any) -> None:
        if now.round >= until:
            raise Killed

    began = time.process_time()
    try:
        play(**where, progress=step)
    except Killed:
        pass
    return time.process_time() - began


def row(name: str, scenario: dict[str, Any], folder: Path) -> str:
    """A row of the table."""
    until = int(KILLED * scenario["stop"]["rounds"])
    spent(desim.run, until // 50, scenario=scenario)  # compiled from here on
    own, keep = [0.0, 0], World.keep

    def timed(world: World, engine: Any) -> None:
        began, rested = time.process_time(), world._rested
        keep(world, engine)
        own[0] += time.process_time() - began
        own[1] += world._rested != rested

    World.keep = timed  # type: ignore[method-assign]
    try:
        whole = spent(desim.run, until, scenario=scenario, out=folder / "run")
    finally:
        World.keep = keep  # type: ignore[method-assign]
    again = {}
    size = (folder / "run" / CHECKPOINT).stat().st_size if own[1] else 0
    for kind in ("with", "without"):
        place = folder / kind
        shutil.copytree(folder / "run", place)
        if kind == "without":
            (place / CHECKPOINT).unlink(missing_ok=True)
        again[kind] = spent(desim.resume, until, path=place)
        shutil.rmtree(place)
    shutil.rmtree(folder / "run")
    cells = [f"{whole:.1f}", f"{again['without']:.1f}", f"{again['with']:.1f}"]
    kept = f"{own[1]} of {size / 1e6:.2g} MB, {own[0]:.2f} s" if own[1] else "none"
    return f"| {name} | {' | '.join(cells)} | {kept} |"


def main(file: Path) -> None:
    """Print the table."""
    print(machine())
    print("| run | until the kill, s | again, replayed | again, from checkpoint | checkpoints |")
    print("|---|---|---|---|---|")
    runs = {
        "compiled star, 10 agents, 10^5 rounds": star(100_000, 10),
        "compiled star, `policy: each`, 10^6 replies": star(1_000_000, 100, policy="each"),
        "cohort star, 10 agents, 10^4 rounds": star(10_000, 10, engine="cohort"),
        "cohort graph, 50 agents, 10^4 rounds": {**GRAPH, "stop": {"rounds": 10_000}},
        "agents engine, star, 10 agents, 2000 rounds": star(2_000, 10, engine="agents"),
        "torch, perceptron of 10^4, 100 agents, 100 rounds": modelled(file, "perceptron", 100, 100),
        "torch, convolution, 10 agents, 60 rounds": modelled(file, "convolution", 10, 60),
    }
    with TemporaryDirectory() as folder:
        for name, scenario in runs.items():
            print(row(name, scenario, Path(folder)), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
