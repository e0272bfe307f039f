"""The same convolutional network on the same images in desim, Flower, pfl, and a bare torch loop.

    python -m analysis.benchmarks.peers.networks FILE --environments FOLDER
        [--clients 100 1000] [--rounds 4] [--turns 3]

FILE: images, an npz of Keras. Each contestant is a process with its own interpreter, pinned to one
processor; they take turns. Microseconds of a round for each local step: the mean of rounds after
the first, in the best turn; memory: the most that a contestant's processes hold at a time, as the
kernel shares it out (PSS).
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from statistics import mean
from typing import Any

from analysis.benchmarks.peers.environments import Unavailable, interpreter
from analysis.benchmarks.peers.network import STEPS
from analysis.benchmarks.timing import machine

CONTESTANTS = {
    "torch alone": ("with_torch.py", ""),
    "desim": ("with_desim_model.py", ""),
    "pfl": ("with_pfl.py", "pfl"),
    "Flower": ("with_flower.py", "flower"),
}
HERE = Path(__file__).parent
MARK = "DESIM_BENCHMARK"  # in the environment of a contestant's processes
SOON = 0.2  # s between looks at their memory


def megabytes(mark: str) -> float:
    """Proportional memory of all processes that carry the mark."""
    total = 0.0
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if mark.encode() in (process / "environ").read_bytes():
                lines = (process / "smaps_rollup").read_text().splitlines()
                total += sum(float(one.split()[1]) for one in lines if one.startswith("Pss:"))
    return total / 1e3


def played(python: Path, script: str, arguments: list[str]) -> dict[str, Any]:
    """What a contestant says of its rounds, and the most memory it had, MB."""
    mark, most, over = f"{MARK}={time.monotonic_ns()}", [0.0], threading.Event()
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    given = {**kept, "PYTHONPATH": f"{HERE}:{HERE.parents[2]}", "DESIM_THREADS": "1"}
    given |= {"OMP_NUM_THREADS": "1", MARK: mark.partition("=")[2]}

    def watch() -> None:
        while not over.wait(SOON):
            most[0] = max(most[0], megabytes(mark))

    watching = threading.Thread(target=watch)
    watching.start()
    try:
        command = ["taskset", "-c", "0", str(python), str(HERE / script), *arguments]
        done = subprocess.run(command, env=given, capture_output=True, text=True, check=False)
    finally:
        over.set()
        watching.join()
    said = [one for one in done.stdout.splitlines() if one.startswith("RESULT ")]
    if not said:
        raise Unavailable((done.stderr.strip() or "it said nothing").splitlines()[-1])
    return {**json.loads(said[-1].partition(" ")[2]), "memory": most[0]}


def table(file: Path, folder: Path, clients: int, rounds: int, turns: int) -> list[str]:
    """Lines of Markdown for so many clients."""
    found: dict[str, list[dict[str, Any]]] = {}
    for _ in range(turns):
        for name, (script, environment) in CONTESTANTS.items():
            try:
                python = interpreter(environment, folder)
                one = played(python, script, [str(file), str(clients), str(rounds)])
            except Unavailable as why:
                print(f"{name}: {why}", file=sys.stderr)
                continue
            found.setdefault(name, []).append(one)
    best = {name: min(mean(one["rounds"]) for one in all_) for name, all_ in found.items()}
    lines = []
    for name, all_ in found.items():
        us = 1e6 * best[name] / (clients * STEPS)
        ratio = best[name] / best["torch alone"]
        memory = max(one["memory"] for one in all_)
        version = all_[0]["version"]
        lines.append(f"| {clients} | {version} | {us:.0f} | {ratio:.2f} | {memory:.0f} |")
    return lines


def main() -> None:
    """Print a table in Markdown."""
    parser = argparse.ArgumentParser(prog="python -m analysis.benchmarks.peers.networks")
    parser.add_argument("file", type=Path)
    parser.add_argument("--environments", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--clients", type=int, nargs="+", default=[100, 1000])
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    print(f"{machine()}\n\n| clients | | us a step | ratio to torch alone | memory, MB |")
    print("|---|---|---|---|---|")
    for clients in given.clients:
        lines = table(given.file, given.environments, clients, given.rounds, given.turns)
        print("\n".join(lines), flush=True)


if __name__ == "__main__":
    main()
