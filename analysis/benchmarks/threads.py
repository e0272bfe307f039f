"""What a second thread gains: Fed-PLT with its log in memory on one thread and on two.

    python -m analysis.benchmarks.threads

16 features, 20 rows for each agent, 10 noisy local steps. Plays of a few milliseconds that take
turns, many of them: the least of each is that of an idle moment, which others' work on the same
machine leaves rarely. The gain is the ratio of the least times.
"""

from functools import partial
from typing import Any

from analysis.benchmarks.engines import STAR, bare
from analysis.benchmarks.timing import interleaved, machine
from desim.log.parquet import Tables
from desim.numerics.jit import set_threads
from desim.scenario.build import build
from desim.scenario.load import load

SIZES = {10: 5_000, 100: 8_000, 1000: 16_000, 10_000: 60_000}  # agents and trainings of a play
TURNS = 40


def on(threads: int, call: Any) -> None:
    """Call with so many threads."""
    set_threads(threads)
    call()


def plays(agents: int, trainings: int) -> dict[str, Any]:
    """The kernel alone, and runs that wait for all or for nobody, by name."""
    base = {**STAR, "problem": {**STAR["problem"], "agents": agents}}
    synchronous, each = (
        build(load({**base, "policy": policy, "stop": {"rounds": rounds}}))
        for policy, rounds in (("all", trainings // agents), ("each", trainings))
    )
    return {
        "kernel alone": partial(bare, synchronous, trainings // agents),
        "synchronous": lambda: synchronous.play(Tables()),
        "asynchronous": lambda: each.play(Tables()),
    }


def main() -> None:
    """Measure and print."""
    print(f"{machine()}\n\n| | agents | one thread, us | two, us | gain |\n|---|---|---|---|---|")
    for agents, trainings in SIZES.items():
        timed = {
            f"{name} {threads}": partial(on, threads, call)
            for name, call in plays(agents, trainings).items()
            for threads in (1, 2)
        }
        least = {name: low for name, (low, _) in interleaved(timed, TURNS).items()}
        for name in ("kernel alone", "synchronous", "asynchronous"):
            one, two = least[f"{name} 1"], least[f"{name} 2"]
            per = 1e6 / trainings
            told = f"{per * one:.2f} | {per * two:.2f} | {one / two:.2f}"
            print(f"| {name} | {agents} | {told} |", flush=True)


if __name__ == "__main__":
    main()
