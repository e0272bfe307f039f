"""What two workers gain one run, and from which job on: a convolution, and jobs of any length.

    python -m analysis.benchmarks.workers [convolution | lengths]

One process of one thread, and two workers of one thread each, take turns. Beside the ratio of
wall times, the median of all turns with the least and the most, stands that of processor times, of
the one process to the coordinator and half of the workers': the gain if both have as much to do,
which others on the machine hardly change. Workers have begun and have the data.

What a machine bears at most is measured, too: the same run in two processes that know nothing of
each other, beside the time that one alone takes for both. It is less than 2 where cores share a
memory, a clock or a host, and nobody who shares out one run gains more.
"""

import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

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
# The digits drawn larger, for a model of the size that handwritten digits have in papers.
LARGE = (
    CNN.replace("8 x 8", "28 x 28").split("        return nn.Sequential(")[0]
    + """\
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)), nn.Upsample(28),
            nn.Conv2d(1, 16, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(1568, 64), nn.ReLU(), nn.Linear(64, 10),
        )
"""
)
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
TURNS = 3


def processor(crew: Local) -> list[float]:
    """Processor seconds of this process, and of each worker."""
    workers = [psutil.Process(one.process.pid).cpu_times() for one in crew.every]
    return [time.process_time(), *(one.user + one.system for one in workers)]


class Gains(NamedTuple):
    """Of some turns: least wall s alone and shared, and ratios (turns,) of wall and of processor.

    Of processor times: one process's to the coordinator's and half of the workers'.
    """

    alone: float
    shared: float
    wall: Array
    work: Array

    @property
    def words(self) -> str:
        """Medians, and least and most."""
        each = (
            f"{np.median(a):.2f} ({a.min():.2f} to {a.max():.2f})" for a in (self.wall, self.work)
        )
        return " | ".join(each)


def gains(
    crew: Local, alone: Callable[[], Any], shared: Callable[[], Any], turns: int = TURNS
) -> Gains:
    """What is gained in turns of both, after one that begins the workers."""
    walls, work, results = np.empty((turns + 1, 2)), np.empty((turns + 1, 2)), [None, None]
    for turn in range(turns + 1):
        for k, call in enumerate((alone, shared)):
            before, began = processor(crew), time.perf_counter()
            results[k] = call()
            walls[turn, k] = time.perf_counter() - began
            used = np.subtract(processor(crew), before) if turn else np.ones(1)
            work[turn, k] = used[0] + used[1:].sum() / 2.0
        assert turn == 0 or results[0] == results[1] or isinstance(results[1], bool)
    walls, work = walls[1:], np.maximum(1e-9, work[1:])
    ratios = (walls[:, 0] / walls[:, 1], work[:, 0] / work[:, 1])
    return Gains(*walls.min(0), *ratios)


class Apart:
    """A run in a process of its own, which was played once."""

    simulation: Simulation

    @classmethod
    def begin(cls, changes: dict[str, Any], epochs: int) -> None:
        """Build it here."""
        cls.simulation = build(load({**DIGITS, **changes}, {"algorithm.local.epochs": epochs}))
        cls.play(0)

    @classmethod
    def play(cls, _: int) -> float:
        """Play it: the processor seconds."""
        began = time.process_time()
        cls.simulation.play(Tables())
        return time.process_time() - began


def ceiling(changes: dict[str, Any], epochs: int, turns: int) -> Gains:
    """What two processes gain that each play such a run, over one that plays both."""
    from analysis.benchmarks.workers import Apart  # by the name that processes know

    walls, work = np.empty((turns, 2)), np.empty((turns, 2))
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(2, Apart.begin, (changes, epochs)) as pool:
        pool.map(Apart.play, range(2), 1)  # both are there
        for turn in range(turns):
            for k in (1, 2):
                began = time.perf_counter()
                used = pool.map(Apart.play, range(k), 1)
                walls[turn, k - 1] = time.perf_counter() - began
                work[turn, k - 1] = np.mean(used)
    ratios = (2.0 * a[:, 0] / a[:, 1] for a in (walls, work))
    return Gains(*(walls.min(0) * (2.0, 1.0)), *ratios)


def convolution(folder: Path) -> None:
    """Local training of two convolutions, of several lengths."""
    print(
        "| images, parameters | steps | rounds | one, s | two workers, s | gain: wall | processor |"
    )
    print("|---|---|---|---|---|---|---|")
    for name, text, lengths in (
        ("8 x 8", CNN, ((5, 10), (20, 10))),
        ("28 x 28", LARGE, ((5, 8), (20, 5), (20, 15))),
    ):
        file = folder / f"images{len(name)}.py"
        file.write_text(text)
        changes: dict[str, Any] = {"plugins": [str(file)], "stop": {"rounds": 2}}
        most = ceiling(changes, 20, TURNS)
        head = f"{name}, two processes apart | 20 | 2, two times"
        print(f"| {head} | {most.alone:.2f} | {most.shared:.2f} | {most.words} |", flush=True)
        for epochs, rounds in lengths:
            changes["stop"] = {"rounds": rounds}
            simulation = build(load({**DIGITS, **changes}, {"algorithm.local.epochs": epochs}))
            crew = Local(2)
            found = gains(crew, *(
                partial(played, simulation, who) for who in (None, Batches(crew, (file,)))
            ))  # fmt: skip
            crew.end()
            head = f"{name}, {simulation.problem.dim} | {epochs} | {rounds}"
            print(
                f"| {head} | {found.alone:.2f} | {found.shared:.2f} | {found.words} |", flush=True
            )


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
    file.write_text(CNN)
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
            said = f"{1e3 * found.alone:.1f} | {1e3 * found.shared:.1f} | {found.words}"
            print(f"| {dim} | {1e3 * seconds:g} | {said} |", flush=True)
    crew.end()


def main() -> None:
    """Measure and print."""
    print(f"{machine()}\n")
    with tempfile.TemporaryDirectory() as name:
        for part in (convolution, lengths):
            if part.__name__ in (sys.argv[1:] or ("convolution", "lengths")):
                part(Path(name))


if __name__ == "__main__":
    main()
