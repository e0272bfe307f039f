"""A thousand models of 10^5 parameters each: seconds and memory of a run, beside bare arithmetic.

python -m analysis.benchmarks.large_models FILE [--rounds 100]    # FILE: images, an npz of Keras

Federated averaging of 1000 agents, five local steps on ten rows each, on all processors. Memory is
the most that the process held. Bare is torch alone on one core, a loop over a tenth of the agents
for one round, scaled up.
"""

import argparse
import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from analysis.benchmarks.timing import machine
from desim.engine.world import Discard
from desim.scenario.build import build
from desim.scenario.load import load

PLUGIN = Path(__file__).parent / "modules.py"
AGENTS, STEPS, ROWS = 1000, 5, 10
SOME = AGENTS // 10


def simulation(file: Path, rounds: int) -> Any:
    """Full gradients of ten rows; links with a latency."""
    data = {"source": "mnist-npz", "file": str(file), "scale": "pixel", "train": AGENTS * ROWS}
    local = {"solver": "gradient", "epochs": STEPS, "step": 0.05}
    tree = {
        "plugins": [str(PLUGIN)],
        "problem": {"agents": AGENTS, "data": data | {"test": {"rows": 100}}, "model": "wide"},
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": "20 ms"}},
        "observe": {"metrics": []},
        "log": "rounds",
        "stop": {"rounds": rounds},
    }
    return build(load(tree))


def bare(made: Any) -> float:
    """Seconds of one round of all agents on one core, from a tenth of them."""
    problem = made.settings.problem
    model = problem.loss.model
    torch.set_num_threads(1)
    net, entropy = model.module(), torch.nn.CrossEntropyLoss()
    parts = list(net.parameters())
    spans = [slice(i * ROWS, (i + 1) * ROWS) for i in range(SOME)]
    rows = [(torch.tensor(problem.A[own], dtype=torch.float32),
             torch.tensor(problem.b[own]).long()) for own in spans]  # fmt: skip
    began = time.perf_counter()
    for inputs, labels in rows:
        for _ in range(STEPS):
            found = torch.autograd.grad(entropy(net(inputs), labels), parts)
            with torch.no_grad():
                for parameter, gradient in zip(parts, found, strict=True):
                    parameter -= 0.05 * gradient
    return (time.perf_counter() - began) * AGENTS / SOME


def main() -> None:
    """Print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--rounds", type=int, default=100)
    given = parser.parse_args()
    made = simulation(given.file, given.rounds)
    began = time.perf_counter()
    made.play(Discard())
    seconds = time.perf_counter() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    alone = np.median([bare(made) for _ in range(5)]) * given.rounds
    print(f"{machine()}, torch {torch.__version__}")
    print(f"{AGENTS} agents, {made.problem.dim} parameters, {given.rounds} rounds of {STEPS} steps")
    print(f"{seconds:.0f} s, peak {peak:.2f} GB; bare arithmetic on one core {alone:.0f} s")


if __name__ == "__main__":
    main()
