"""Torch modules as local models: what desim adds to training, and what going together gains.

    DESIM_THREADS=1 python -m analysis.benchmarks.models FILE    # images, an npz of Keras

A perceptron and a convolutional network of 10^4 parameters, batches of 32, five local steps. Bare:
torch alone, agent by agent, with torch.optim.SGD. Training: the part of a run that computes; the
rest is events, ledger, log and models on their way. One thread, all in one process.
"""

import sys
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from analysis.benchmarks.timing import interleaved, machine
from desim.engine.world import Discard
from desim.problem.kernels.local import Trainer
from desim.problem.kernels.modelled import GROUP
from desim.problem.models.user_model import Rows
from desim.scenario.build import build
from desim.scenario.load import load

PLUGIN = Path(__file__).parent / "modules.py"
BATCH, STEPS = 32, 5
BATCHES = 10, BATCH  # of gradients that are timed alone
TOTAL = {"perceptron": 10000, "convolution": 1000}  # local steps of a play
ROUNDS = {"perceptron": 20, "convolution": 5}  # of a play, at least
AGENTS = 10, 100, 1000


def simulation(file: Path, model: str, agents: int) -> Any:
    """Federated averaging of so many agents for ROUNDS, or as many as make TOTAL local steps."""
    rounds = max(ROUNDS[model], TOTAL[model] // (agents * STEPS))
    local = {"solver": "sgd", "batch": BATCH, "epochs": STEPS, "step": 0.05}
    data = {"source": "mnist-npz", "file": str(file), "scale": "pixel", "test": {"rows": 100}}
    tree = {
        "plugins": [str(PLUGIN)],
        "problem": {"agents": agents, "data": data, "model": model},
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": {"latency": {"uniform": ["10 ms", "60 ms"]}}},
        "compute": {"speed": {"uniform": [500, 2000]}},
        "observe": {"metrics": []},
        "stop": {"rounds": rounds},
    }
    return build(load(tree))


def bare(simulation: Any) -> None:
    """The same number of steps by torch alone."""
    problem = simulation.settings.problem
    model, agents = problem.loss.model, problem.agents
    torch.set_num_threads(1)
    net, x = model.module(), torch.from_numpy(problem.loss.start.astype(np.float32))
    optimiser = torch.optim.SGD(net.parameters(), lr=0.05)
    random = np.random.default_rng(0)
    for _ in range(int(simulation.settings.rounds)):
        for i in range(agents):
            torch.nn.utils.vector_to_parameters(x.clone(), net.parameters())
            for _ in range(STEPS):
                rows = random.choice(int(problem.rows[i]), min(BATCH, int(problem.rows[i])), False)
                inputs, labels = (one[problem.start[i] + rows] for one in (problem.A, problem.b))
                optimiser.zero_grad()
                scores = net(torch.from_numpy(inputs))
                nn.functional.cross_entropy(scores, torch.from_numpy(labels)).backward()
                optimiser.step()


def shares(simulation: Any, sink: Any) -> tuple[float, float]:
    """Seconds of a play, and those of them in which it trains."""
    spent, whole = [0.0], Trainer.__call__

    def timed(self: Any, *args: Any, **named: Any) -> Any:
        began = time.perf_counter()
        found = whole(self, *args, **named)
        spent[0] += time.perf_counter() - began
        return found

    Trainer.__call__ = timed  # type: ignore[method-assign]
    try:
        began = time.perf_counter()
        simulation.play(sink)
        return time.perf_counter() - began, spent[0]
    finally:
        Trainer.__call__ = whole  # type: ignore[method-assign]


def memory() -> tuple[float, float]:
    """GB/s at which 80 MB are written: to memory that nobody had for 3 s, and once more."""
    taken = []
    for _ in range(5):
        time.sleep(3.0)
        array, seconds = np.empty(10**7), []
        for _ in range(2):
            began = time.perf_counter()
            array.fill(1.0)
            seconds.append(time.perf_counter() - began)
        taken.append(seconds)
        del array
    new, again = np.median(taken, axis=0)
    return 0.08 / new, 0.08 / again


def of_runs(file: Path) -> None:
    """A row for each model and number of agents."""
    print("| model | agents | bare, us a step | desim | training | rest | of bare | desim / bare |")
    print("|---|---|---|---|---|---|---|---|")
    for model in TOTAL:
        for agents in AGENTS:
            made = simulation(file, model, agents)
            steps = int(made.settings.rounds) * agents * STEPS
            made.play(Discard())
            alone = interleaved({"bare": lambda made=made: bare(made)}, 3)["bare"][0]
            taken = [shares(made, Discard()) for _ in range(4)]
            whole, training = min(taken)
            us = [1e6 * one / steps for one in (alone, whole, training)]
            rest = us[1] - us[2]
            print(
                f"| {model} | {agents} | {us[0]:.0f} | {us[1]:.0f} | {us[2]:.0f} | "
                f"{rest:.0f} | {100 * rest / us[0]:.1f} % | {us[1] / us[0]:.2f} |",
                flush=True,
            )  # fmt: skip


def pair(of: Any, x: Any, rows: Rows, clip: float) -> tuple[float, float]:
    """Microseconds of an agent's gradient, in a call of all and in one of its own."""

    def each() -> None:
        for r in range(len(x)):
            of.alone(x[r], rows.agent(r), clip)

    with of.computing():
        found = interleaved({"all": lambda: of.gradients(x, rows, clip), "each": each}, 9)
    return 1e6 * found["all"][0] / len(x), 1e6 * found["each"][0] / len(x)


def together(file: Path) -> None:
    """Gradients of GROUP agents in one call, and one by one, with and without a clip."""
    print("\n| model | rows | clip | together, us an agent | one by one | ratio |")
    print("|---|---|---|---|---|---|")
    for model, size in product(TOTAL, BATCHES):
        problem = simulation(file, model, 100).settings.problem
        place = np.arange(GROUP)[:, None] * BATCH + np.arange(size)
        rows = Rows(problem.A[place], problem.b[place], np.zeros(GROUP, np.uint64))
        x = np.tile(problem.loss.start.astype(np.float32), (GROUP, 1))
        for clip in (np.inf, 1.0):
            a, b = pair(problem.loss.model, x, rows, clip)
            named = "none" if np.isinf(clip) else f"{clip:g}"
            print(f"| {model} | {size} | {named} | {a:.0f} | {b:.0f} | {b / a:.1f} |", flush=True)


def main() -> None:
    """Print tables in Markdown."""
    file = Path(sys.argv[1])
    new, again = memory()
    print(f"{machine()}, torch {torch.__version__}; memory is written at {again:.1f} GB/s, what")
    print(f"nobody had for 3 s at {new:.2f}\n")
    of_runs(file)
    together(file)


if __name__ == "__main__":
    main()
