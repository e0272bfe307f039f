"""Contestants in turns: each is a process of its own that answers when it is asked."""

import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from analysis.benchmarks.peers.environments import Unavailable, interpreter

HERE = Path(__file__).resolve().parent
CHECK = 20  # rounds after which all must have the same models
EQUAL = 1e-8


class Contestant(NamedTuple):
    """A script, its argument, its environment, and about how many agent-rounds a turn has.

    pinned: to one core; else what stores desim's log may use another.
    """

    script: str
    updates: int
    mode: str = ""
    environment: str = ""
    pinned: bool = True


CONTESTANTS = {
    "desim, log stored": Contestant("with_desim.py", 20_000, "played"),
    "desim, noise, log stored": Contestant("with_desim.py", 20_000, "noisy"),
    "desim, log stored, a core to store it": Contestant(
        "with_desim.py", 20_000, "played", pinned=False
    ),
    "desim, noise, log stored, a core to store it": Contestant(
        "with_desim.py", 20_000, "noisy", pinned=False
    ),
    "desim, log discarded": Contestant("with_desim.py", 20_000, "silent"),
    "desim, kernels alone": Contestant("with_desim.py", 20_000, "bare"),
    "JAX, jit and scan": Contestant("with_jax.py", 20_000, "", "jax"),
    "JAX, jit and scan, noise": Contestant("with_jax.py", 20_000, "noisy", "jax"),
    "NumPy, all agents at once": Contestant("with_numpy.py", 10_000, "batched"),
    "NumPy, agent by agent": Contestant("with_numpy.py", 2_000, "single"),
    "tvopt, its gradients": Contestant("with_tvopt.py", 200, "", "tvopt"),
    "decent-bench, FedLT": Contestant("with_decent_bench.py", 500, "", "decent-bench"),
}
OTHER = "noise"  # in the names of those that have other iterates


class Row(NamedTuple):
    """One line of the table: microseconds per agent-round of wall clock and of processor time."""

    agents: int
    name: str
    least: float
    median: float
    processor: float
    difference: float
    rounds: int
    versions: str
    remark: str = ""


def held(file: Path, agents: int, names: list[str], folder: Path, turns: int) -> list[Row]:
    """The rows of one problem, in the order of the contestants."""
    found: dict[str, Row] = {}
    running: dict[str, tuple[Any, int, dict[str, Any]]] = {}
    for name in names:
        rounds = max(2, CONTESTANTS[name].updates // agents)
        try:
            process = _started(CONTESTANTS[name], file, rounds, folder)
            running[name] = process, rounds, _answer(process, name)
        except Unavailable as why:
            found[name] = Row(agents, name, *[float("nan")] * 4, 0, "", f"skipped: {why}")
            print(f"{name}: skipped: {why}", file=sys.stderr)
    times: dict[str, list[list[float]]] = {name: [] for name in running}
    for _ in range(turns):
        for name, (process, _, _) in running.items():
            process.stdin.write("go\n")
            process.stdin.flush()
            times[name].append(_answer(process, name))
    reference = _models(running) if running else None
    for name, (process, rounds, answer) in running.items():
        process.communicate()
        difference = float(np.abs(np.asarray(answer["models"]) - reference).max())
        found[name] = _row(agents, name, times[name], difference, rounds, answer["versions"])
    return [found[name] for name in names]


def _models(running: dict[str, tuple[Any, int, dict[str, Any]]]) -> Any:
    """The models to compare with: NumPy's if it takes part, else the first ones."""
    plain = [name for name in running if name.startswith("NumPy")] or list(running)
    return np.asarray(running[plain[0]][2]["models"])


def _row(
    agents: int, name: str, times: list[list[float]], difference: float, rounds: int,
    versions: dict[str, str],
) -> Row:  # fmt: skip
    per = 1e6 / (rounds * agents)
    wall, processor = [per * one for one, _ in times], [per * one for _, one in times]
    remark = ""
    if OTHER in name:
        difference, remark = float("nan"), "adds noise"
    elif difference > EQUAL:
        remark = "OTHER ITERATES"
    told = " ".join(f"{one} {number}" for one, number in versions.items())
    median = statistics.median(wall)
    return Row(agents, name, min(wall), median, min(processor), difference, rounds, told, remark)


def _started(contestant: Contestant, file: Path, rounds: int, folder: Path) -> Any:
    python = interpreter(contestant.environment, folder)
    script = str(HERE / contestant.script)
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    processors = ",".join(map(str, cores[-1:] if contestant.pinned else cores))
    arguments = [str(file), str(CHECK), str(rounds), processors, contestant.mode]
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "DESIM_THREADS"), "1")
    path = os.pathsep.join(filter(None, [str(HERE.parents[2]), os.environ.get("PYTHONPATH")]))
    own = {} if contestant.environment else {"PYTHONPATH": path}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.Popen(
        [str(python), script, *arguments], text=True, env={**environment, **one, **own},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def _answer(process: Any, name: str) -> Any:
    line = process.stdout.readline()
    if not line:
        said = process.communicate()[1].strip().splitlines()
        raise Unavailable(f"{name} failed: {said[-1] if said else 'no reason given'}")
    return json.loads(line)
