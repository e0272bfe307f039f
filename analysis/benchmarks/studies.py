"""What processes gain for a study, and what reading a scenario once gains for many seeds.

    python -m analysis.benchmarks.studies

Networks: processor time of one run against a study of it over 20 networks that share its training,
and against one that trains for each, in one process. Two workers against one: wall seconds of a
study of 100 runs of about half a second each, the start of the processes included. Many seeds:
processor time of `desim.repeat` against `desim.run` one after another, the same runs bit for bit
(checked), interleaved in one process.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import desim
from analysis.benchmarks.engines import STAR
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

LINKS = [{"link": {"latency": f"{5 * n} ms", "jitter": {"lognormal": 0.3}}} for n in range(1, 21)]
SIZES = ((100, 200), (100, 1000), (1000, 100))  # agents, rows of each; 50 features


def heavy(agents: int, rows: int, networks: int) -> dict[str, Any]:
    """A study of 50 rounds of Fed-PLT over so many networks, whose log is stored."""
    data = {**STAR["problem"]["data"], "rows": rows, "dim": 50}
    problem = {**STAR["problem"], "agents": agents, "data": data}
    base = {**STAR, "problem": problem, "observe": {"metrics": ["error"]}, "stop": {"rounds": 50}}
    grid = {"network": LINKS[:networks]}
    return {"name": "networks", "base": base, "grid": grid, "compare": {"epsilon": False}}


def networks() -> None:
    """Print processor seconds of one run, of 20 that share a training and of 20 that do not."""
    for agents, rows in SIZES:
        seconds(agents, rows, 2)  # compiles
        one, shared = (min(seconds(agents, rows, n)[0] for _ in range(3)) for n in (1, 20))
        told = seconds(agents, rows, 20)[1]
        alone = seconds(agents, rows, 20, share=False)[0]
        print(f"{agents} agents of {rows} rows: one {one:.2f} s, 20 networks {shared:.2f} s "
              f"({shared / one:.2f}, {told} shared), each trained {alone:.2f} s "
              f"({alone / one:.2f})", flush=True)  # fmt: skip


def seconds(agents: int, rows: int, number: int, share: bool = True) -> tuple[float, int]:
    """Processor seconds of a study over so many networks, and how many runs shared a training."""
    with TemporaryDirectory() as folder:
        began = time.process_time()
        made = desim.study(heavy(agents, rows, number), folder, workers=0, share=share)
        return time.process_time() - began, sum(made.shared.values())


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
    networks()
    seeds()
    workers()
