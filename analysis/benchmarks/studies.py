"""What processes gain for a study, and what reading a scenario once gains for many seeds.

    python -m analysis.benchmarks.studies

Two workers against one: wall seconds of a study of 100 runs of about half a second each, the start
of the processes included. Many seeds: processor time of `desim.repeat` against `desim.run` one
after another, the same runs bit for bit (checked), interleaved in one process.
"""

import time
from pathlib import Path
from typing import Any

import desim
from analysis.benchmarks.timing import machine

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"
RUNS, SEEDS, TURNS = 100, 20, 5
HALF_A_SECOND: dict[str, Any] = {
    "base": str(SCENARIOS / "quickstart.yaml"),
    "set": {"problem.agents": 50, "stop.rounds": 2900, "observe.metrics": ["accuracy"]},
    "grid": {"seed": f"0..{RUNS - 1}"},
    "compare": {"epsilon": False},
}
SMALL = ("papers/fed-plt-noisy.yaml", "papers/fed-plt.yaml", "quickstart.yaml")


def workers() -> None:
    """Print wall seconds of the same study on one and two processes, and their ratio."""
    seconds = {}
    for number in (1, 2):
        began = time.perf_counter()
        made = desim.study(HALF_A_SECOND, workers=number)
        seconds[number] = time.perf_counter() - began
        each = made.runs["wall"].median()
        print(f"{number} workers: {seconds[number]:.1f} s, {each:.3f} s a run, {made}")
    print(f"two workers against one: {seconds[1] / seconds[2]:.2f} times faster")


def seeds() -> None:
    """Print processor ms a run of both ways on small problems, and their ratio."""
    for name in SMALL:
        file = SCENARIOS / name
        check(file)
        least = {"run": float("inf"), "repeat": float("inf")}
        for _ in range(TURNS):
            began = time.process_time()
            for seed in range(SEEDS):
                desim.run(file, overrides={"seed": seed})
            between = time.process_time()
            for _run in desim.repeat(file, range(SEEDS)):
                pass
            least["run"] = min(least["run"], between - began)
            least["repeat"] = min(least["repeat"], time.process_time() - between)
        run, repeat = (1e3 * least[one] / SEEDS for one in ("run", "repeat"))
        print(f"{name}: {run:.2f} ms a run, repeated {repeat:.2f} ms: {run / repeat:.2f} times")


def check(file: Path) -> None:
    """Both ways have the same bits."""
    for seed, run in enumerate(desim.repeat(file, range(2))):
        alone = desim.run(file, overrides={"seed": seed})
        assert run.events.equals(alone.events)
        assert run.metrics.equals(alone.metrics)
        assert run.manifest["scenario_sha256"] == alone.manifest["scenario_sha256"]


if __name__ == "__main__":
    print(machine())
    seeds()
    workers()
