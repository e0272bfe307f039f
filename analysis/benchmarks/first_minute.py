"""What a run costs in a fresh process on a machine that has never run desim, and on one that has.

    python -m analysis.benchmarks.first_minute

The quickstart on each engine, every line a process of its own: all compiled before it is called,
from an empty cache; the same again, found there; and, from another empty cache, as desim does by
itself: plain Python as long as that is sooner. Processor seconds of the process on one thread, and
seconds that compiling and plain Python took of them. *Everything* is `desim warmup` from an empty
cache: two rounds of each scenario that comes with desim, in one process.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from analysis.benchmarks.timing import machine

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "quickstart.yaml"
ENGINES = ("compiled", "cohort", "agents")
CODE = """
import json, sys, time
import desim
from desim.numerics import plain
from desim.numerics.watched import watched
with watched() as compilation:
    run = desim.run(sys.argv[1], overrides={"engine": sys.argv[2]})
ends = [run.metrics["value"].iloc[-1], run.manifest["time"]]
spent = compilation.seconds, plain.seconds
print(json.dumps([time.process_time(), compilation.functions, *spent, ends]))
"""
EVERYTHING = """
import json, time
from desim.runs.warmup import shipped, warm_up
warmth = warm_up(shipped())
spent = time.process_time(), warmth.functions, warmth.seconds, 0.0
print(json.dumps([*spent, [warmth.played, list(warmth.skipped)]]))
"""


def process(engine: str, when: str, cache: str, code: str = CODE) -> list[float]:
    """Processor seconds, functions compiled, seconds of that and of plain Python; the results."""
    env = {**os.environ, "DESIM_CACHE_DIR": cache, "DESIM_COMPILE": when, "DESIM_THREADS": "1"}
    command = [sys.executable, "-c", code, str(SCENARIO), engine]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    found: list[float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Print the table."""
    print(f"{machine()}\n")
    print("| engine | cache | processor s | functions compiled | s | plain Python s |")
    print("|---|---|---|---|---|---|")
    results = []
    for engine in ENGINES:
        with TemporaryDirectory() as full, TemporaryDirectory() as empty:
            lines = [
                ("empty, all compiled", process(engine, "at-once", full)),
                ("full", process(engine, "later", full)),
                ("empty", process(engine, "later", empty)),
                ("empty, second run", process(engine, "later", empty)),
            ]
        for cache, (seconds, functions, compiling, plain, ends) in lines:
            told = f"{seconds:.1f} | {functions} | {compiling:.1f} | {plain:.1f}"
            print(f"| {engine} | {cache} | {told} |", flush=True)
            results.append(ends)
    with TemporaryDirectory() as empty:
        seconds, functions, compiling, plain, ends = process("", "at-once", empty, EVERYTHING)
    told = f"{seconds:.1f} | {functions} | {compiling:.1f} | {plain:.1f}"
    print(f"| everything | empty, all compiled | {told} |")
    print(f"\nScenarios of everything, and those that were skipped for want of data: {ends}")
    assert all(ends == results[0] for ends in results), "the bits depend on what is compiled"


if __name__ == "__main__":
    main()
