"""As many agents as fit: what a large run costs in time and memory.

    python -m analysis.benchmarks.scale synchronous     10^6 agents, 100 rounds of Fed-PLT
    python -m analysis.benchmarks.scale asynchronous    10^5 agents, each on its own, 10 rounds
    python -m analysis.benchmarks.scale churn           10^6 agents that come and go, 10^7 replies
    python -m analysis.benchmarks.scale graph           10^5 agents with ten neighbours each

Each is one process of its own, because memory is the peak of the process. The run is stored, in a
folder that is removed afterwards or in --out.
"""

import argparse
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from analysis.benchmarks.timing import machine
from desim.runs.recording import run
from desim.scenario.build import build
from desim.scenario.load import load

PHONES = {"speed": {"uniform": [100, 900]}}
WAN = {"latency": {"uniform": ["5 ms", "50 ms"]}, "jitter": {"lognormal": 0.2}}
STAR: dict[str, Any] = {
    "seed": 1,
    "problem": {
        "data": {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 16},
        "loss": "logistic",
        "regularizer": {"l2": 5.0},
    },
    "algorithm": {"name": "fed-plt", "rho": 0.3, "local": {"solver": "gradient", "epochs": 5}},
    "network": {"link": WAN},
    "compute": PHONES,
    "log": "rounds",
}
CHURN: dict[str, Any] = {
    **STAR,
    "network": {"link": {**WAN, "loss": "1 %", "on_loss": "resend", "timeout": "500 ms"}},
    "churn": {"up": {"exponential": "300 s"}, "down": {"exponential": "30 s"}},
    "observe": {"metrics": []},
}
GRAPH: dict[str, Any] = {
    "seed": 1,
    "problem": {
        "data": {"source": "synthetic", "kind": "regression", "rows": 5, "dim": 16},
        "loss": "squared",
        "regularizer": {"l2": 1.0},
        "clip": 5.0,
    },
    "algorithm": {"name": "zcdp-nfl", "rho": 0.3, "eta": 0.01},
    "network": {"topology": {"regular": 10}, "link": WAN},
    "compute": PHONES,
    "privacy": {"noise": {"sigma": 0.01}},
    "observe": {"metrics": ["consensus", "loss"]},
    "log": "rounds",
}
REGIMES: dict[str, tuple[dict[str, Any], int, int, str]] = {
    "synchronous": (STAR, 1_000_000, 100, "all"),
    "asynchronous": ({**STAR, "observe": {"metrics": []}}, 100_000, 10, "each"),
    "churn": (CHURN, 1_000_000, 10, "each"),
    "graph": (GRAPH, 100_000, 100, "all"),
}


def scenario(regime: str, agents: int, rounds: int) -> dict[str, Any]:
    """The regime's scenario; with `each`, a round of everybody is as many collections as agents."""
    base, _, _, policy = REGIMES[regime]
    stop = rounds * agents if policy == "each" else rounds
    problem = {**base["problem"], "agents": agents}
    named = {"name": regime, "problem": problem, "policy": policy, "stop": {"rounds": stop}}
    return {"observe": {"metrics": ["error"]}, **base, **named}


def peak() -> float:
    """Largest memory of this process so far, GiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def measure(regime: str, agents: int, rounds: int, out: Path) -> None:
    """Build, then run from the start as a user does, and print what each took."""
    before, began = peak(), time.perf_counter()
    loaded = load(scenario(regime, agents, rounds))
    build(loaded)
    built, once = time.perf_counter() - began, peak()
    done = run(loaded, out / regime)
    whole = time.perf_counter() - began - built
    played = done.manifest["counts"]["play_seconds"]
    size = sum(file.stat().st_size for file in (out / regime).rglob("*") if file.is_file())
    print(f"{machine()}\n{regime}: {agents} agents, {rounds} rounds, {done.manifest['engine']}")
    print(f"  building alone  {built:.1f} s, peak {once:.2f} GiB (before {before:.2f})")
    print(f"  the whole run   {whole:.1f} s, of which playing {played:.1f} s")
    print(f"  agent-round     {1e6 * played / agents / rounds:.3f} us")
    print(
        f"  peak memory     {peak():.2f} GiB, {(peak() - before) * 2**30 / agents:.0f} B an agent"
    )
    print(f"  on disk         {size / 2**20:.1f} MiB")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("regime", choices=REGIMES)
    parser.add_argument("--agents", type=int)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    _, most, long, _ = REGIMES[given.regime]
    agents, rounds = given.agents or most, given.rounds or long
    with tempfile.TemporaryDirectory() as folder:
        measure(given.regime, agents, rounds, given.out or Path(folder))


if __name__ == "__main__":
    main()
