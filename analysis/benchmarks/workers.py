"""What two workers gain one run, and from which job on: a convolution, and jobs of any length.

    python -m analysis.benchmarks.workers

One process of one thread, and two workers of one thread each, take turns. Beside the ratio of the
least times stands that of processor times, of the one process to the coordinator and half of the
workers': the gain if both have as much to do, which others on the machine hardly change.
"""

import os
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

os.environ.setdefault("DESIM_THREADS", "1")

from analysis.benchmarks.timing import machine
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.log.parquet import Tables
from desim.problem.kernels.modelled import computed, elsewhere
from desim.runs import batches
from desim.runs.batches import Batches, Local
from desim.scenario.build import build
from desim.scenario.load import load

CNN = """
from torch import nn

from desim.torch import TorchModel


class Cnn(TorchModel):
    name = "cnn"
    summary = "two convolutions and a layer, for images of 8 x 8"

    def module(self):
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(),
            nn.Conv2d(32, 32, 3), nn.ReLU(), nn.Flatten(), nn.Linear(1152, 10),
        )
"""
DIGITS: dict[str, Any] = {
    "name": "digits",
    "seed": 1,
    "problem": {
        "agents": 12,
        "data": {"source": "sklearn", "name": "digits", "scale": "max", "test": "20 %"},
        "model": "cnn",
    },
    "algorithm": {"name": "fedavg", "local": {"solver": "sgd", "batch": 32, "step": 0.1}},
    "network": "lan",
    "compute": {"speed": 500},
    "observe": {"metrics": ["loss", "accuracy"]},
}
JOBS = 12  # of a batch
SECONDS = (1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1)  # that a job computes
DIMS = (1_000, 100_000, 1_000_000)  # parameters that go and come, of four bytes
ROUNDS = 2
TURNS = 3


def processor(crew: Local) -> list[float]:
    """Processor seconds of this process, and of each worker."""
    workers = [psutil.Process(one.process.pid).cpu_times() for one in crew.every]
    return [time.process_time(), *(one.user + one.system for one in workers)]


def gains(crew: Local, alone: Callable[[], Any], shared: Callable[[], Any]) -> tuple[float, ...]:
    """Least wall s alone and shared, and the ratio of the least processor times."""
    walls: tuple[list[float], list[float]] = [], []
    work: tuple[list[float], list[float]] = [], []
    for turn in range(TURNS + 1):
        results = []
        for call, wall, spent in zip((alone, shared), walls, work, strict=True):
            before, began = processor(crew), time.perf_counter()
            results.append(call())
            if turn:  # the first one begins the workers
                wall.append(time.perf_counter() - began)
                used = np.subtract(processor(crew), before)
                spent.append(float(used[0] + used[1:].sum() / 2.0))
        assert turn == 0 or results[0] == results[1] or isinstance(results[1], bool)
    one, two = map(min, walls)
    return one, two, min(work[0]) / max(1e-9, min(work[1]))


def convolution(folder: Path) -> None:
    """Local training of a convolution, of several lengths."""
    file = folder / "cnn.py"
    file.write_text(CNN)
    print("| local steps | one process, s | two workers, s | gain | of processor time |")
    print("|---|---|---|---|---|")
    for epochs in (5, 20, 40):
        changes = {"plugins": [str(file)], "stop": {"rounds": ROUNDS}}
        simulation = build(load({**DIGITS, **changes}, {"algorithm.local.epochs": epochs}))
        crew = Local(2)
        one, two, ratio = gains(crew, *(
            partial(played, simulation, who) for who in (None, Batches(crew, (file,)))
        ))  # fmt: skip
        print(f"| {epochs} | {one:.2f} | {two:.2f} | {one / two:.2f} | {ratio:.2f} |", flush=True)
        crew.end()


def played(simulation: Simulation, who: Batches | None) -> bytes:
    """Play with these workers, or without any: the bits of the model."""
    token = elsewhere.set(who)
    try:
        model = simulation.play(Tables()).model
        return b"" if model is None else model.tobytes()
    finally:
        elsewhere.reset(token)


def busy(w: Array, seconds: float, data: Any) -> Array:
    """A job that computes for so long, and gives back w (n, dim)."""
    for _ in range(len(w)):
        began = time.thread_time()
        while time.thread_time() - began < seconds:
            pass
    return w


def lengths(folder: Path) -> None:
    """Jobs of any length, and arrays of any size."""
    from analysis.benchmarks.workers import busy  # by the name that workers know, not __main__'s

    file = folder / "cnn.py"
    data = build(load({**DIGITS, "plugins": [str(file)], "stop": {"rounds": 1}})).problem.data
    batches.WATCHED = 10**9  # who loses goes on, too
    crew = Local(2)
    shared = Batches(crew, (file,))
    print("\n| parameters | a job, ms | alone, ms | two workers, ms | gain | of processor time |")
    print("|---|---|---|---|---|---|")
    for dim in DIMS:
        w = np.random.default_rng(0).standard_normal((JOBS, dim), np.float32)
        out = np.empty((JOBS, dim))
        for seconds in SECONDS:
            call = busy, lambda part: (w[part],), JOBS, (seconds,), data, out  # noqa: B023
            found = gains(crew, lambda: computed(*call), lambda: shared(*call))  # noqa: B023
            one, two, ratio = found
            said = f"{1e3 * one:.1f} | {1e3 * two:.1f} | {one / two:.2f} | {ratio:.2f}"
            print(f"| {dim} | {1e3 * seconds:g} | {said} |", flush=True)
    crew.end()


def main() -> None:
    """Measure and print."""
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory() as name:
        convolution(Path(name))
        lengths(Path(name))


if __name__ == "__main__":
    main()
