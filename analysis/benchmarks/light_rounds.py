"""What a light round of graph methods takes: on both engines, and in a loop written by hand.

    python -m analysis.benchmarks.light_rounds

One gradient of 10 features and 20 rows for each agent, noise whose variance decays, 4 neighbours,
jitter, the log and the ledger. The loop is dsgd's round in one compiled function, with the same
functions for gradients, noise, mixing, clocks and rows. Microseconds of processor time per round:
the least of several runs of many rounds, less the same of few.
"""

import os

os.environ.setdefault("DESIM_THREADS", "1")

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.benchmarks.timing import machine
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.network.timeline.messages import log_each, neighbour_sum
from desim.network.timeline.record import empty_rows
from desim.network.timeline.together import TOGETHER, send_all, tell_messages, wait_all, work_all
from desim.numerics.jit import kernel
from desim.numerics.keys import seed_word
from desim.privacy.ledger.ledger import charge_each, normal_into
from desim.problem.kernels.gradients import gradients_into
from desim.scenario.build import build
from desim.scenario.load import load

FEW, REPEATS = 100, 7
SIZES = {50: 1000, 1000: 100}  # agents: rounds beyond FEW
METHODS: dict[str, dict[str, Any]] = {
    "dsgd": {"alpha": 0.02},
    "zcdp-nfl": {"rho": 0.4, "eta": 0.05},
    "dp-nfl": {"rho": 0.4, "eta": 0.05},
    "zcdp-subgradient": {"step": {"initial": 0.02, "decay": "sqrt"}},
    "gradient-tracking": {"alpha": 0.005},
    "push-sum": {"alpha": 0.02},
    "gossip": {"alpha": 0.02},
    "ad-psgd": {"alpha": 0.02},
    "choco-sgd": {"alpha": 0.02, "gamma": 0.3},
    "led": {"local": {"epochs": 3}},
    "p-admm": {"rho": 0.4},
    "dvp": {"rho": 2.0},
}
NOISE = {"kind": "gaussian", "sigma": 0.1, "decay": 0.99}
OWN_NOISE: dict[str, Any] = {  # of methods that have another kind, or have it elsewhere
    "dp-nfl": {"epsilon": 50.0, "delta": 1e-3, "composition": "basic"},
    "led": {"sigma": 0.0},
    "dvp": {"kind": "l2-laplace", "sigma": 0.1, "decay": 0.99},
}
CODED = {"choco-sgd": {"top-k": 0.3}}


def simulated(name: str, agents: int, rounds: int) -> Simulation:
    """The method on a random regular graph."""
    scenario = {
        "seed": 5,
        "engine": "cohort",
        "problem": {
            "agents": agents,
            "data": {"source": "synthetic", "kind": "regression", "rows": 20, "dim": 10},
            "loss": "squared",
            "regularizer": {"l2": 1.0},
            "clip": 4.0,
        },
        "algorithm": {"name": name, **METHODS[name]},
        "network": {
            "topology": {"regular": 4},
            "link": {"latency": {"uniform": ["5 ms", "40 ms"]}, "jitter": {"lognormal": 0.3}},
        },
        "compute": {"speed": {"uniform": [100, 900]}},
        "privacy": {"noise": OWN_NOISE.get(name, NOISE)},
        **({"codec": CODED[name]} if name in CODED else {}),
        "observe": {"metrics": []},
        "stop": {"rounds": rounds},
    }
    return build(load(scenario))


@kernel
def loop(rounds, who, x, weights, mixing, problem, noise, links, seconds, rows, charges):  # type: ignore
    """Rounds of dsgd: work, gradient, noise, mixing, messages, a barrier, and all their rows."""
    own, link, alpha = weights
    incoming, source = mixing
    seed, count, data = problem
    scale, terms, everybody, nobody, none = noise
    first, outgoing, keys, bits, arrival, factor, size = links
    n, end = x.shape[0], np.inf
    clock, after, waited, k = np.zeros(n), np.empty(n), np.empty(n), np.empty(n, np.int64)
    g, noisy, mean, ids = np.empty_like(x), np.empty_like(x), np.empty_like(x), k.copy()
    for turn in range(1, rounds + 1):
        k[:], rows[3][0], charges[3][0] = turn, 0, 0
        work_all(clock, seconds, after)
        clock[:] = after
        log_each(rows, 4, 0, who, -1, k, end, clock, seconds, waited, none)
        gradients_into(0, n, who, x, count, k, 0, seed, data, g)
        charge_each(charges, clock, who, k, 0, n, terms, everybody, ids)
        normal_into(seed, who, k, 0, scale, everybody, g, noisy)
        log_each(rows, 5, 0, who, -1, k, end, clock, waited, waited, ids)
        neighbour_sum(incoming, source, x, link, mean)
        for i in range(n):
            for j in range(x.shape[1]):
                x[i, j] = own[i] * x[i, j] + mean[i, j] - alpha * noisy[i, j]
        send_all(first, outgoing, turn, clock, bits, nobody, keys, factor, size, arrival)
        tell_messages(rows, first, factor, clock, k, size, ids)
        wait_all(incoming, arrival, clock, after, waited)
        clock[:] = after
        log_each(rows, 6, 1, who, -1, k, end, clock, waited, waited, none)


def by_hand(simulation: Simulation, rounds: int) -> Callable[[], None]:
    """That loop on the same problem and network."""
    settings, method = simulation.settings, simulation.method
    graph, links, n = settings.graph, settings.links, settings.problem.agents
    assert graph is not None
    assert links is not None
    who, number = np.arange(n), len(graph.source)
    own, link = method.averages.mixing.heard_by(who)
    terms, count = method.planned(1), settings.problem.rows.astype(np.int64)
    rows, charges = empty_rows(4 * n + 2 * number), empty_rows(n, width=(6, 4))
    wires = links.first, graph.outgoing, np.empty(TOGETHER, np.uint64), np.full(n, 640)
    arrays = np.empty(number), np.empty(number), np.empty(n)
    everybody, nobody, none = np.ones(n, bool), np.zeros(n, bool), np.full(n, -1)
    noise = terms.scale.copy(), terms.compiled, everybody, nobody, none
    problem = seed_word(settings.seed), count, tuple(settings.problem.data)
    seconds = count / np.linspace(100.0, 900.0, n)

    def play() -> None:
        x = np.zeros((n, settings.problem.dim))
        weights, mixing = (own[:, 0].copy(), link, 0.02), (graph.incoming, graph.source)
        loop(
            rounds, who, x, weights, mixing, problem, noise, (*wires, *arrays), seconds,
            tuple(rows), tuple(charges),
        )  # fmt: skip

    return play


def least(few: Callable[[], Any], many: Callable[[], Any], rounds: int) -> float:
    """Microseconds of a round: what `many` take longer than `few`, so many rounds fewer."""
    seconds = []
    for call in (few, many):
        call()
        taken = []
        for _ in range(REPEATS):
            began = time.process_time()
            call()
            taken.append(time.process_time() - began)
        seconds.append(min(taken))
    return 1e6 * (seconds[1] - seconds[0]) / rounds


def main() -> None:
    """Measure and print."""
    print(machine())
    print("| agents | | cohort, us | compiled, us |")
    for agents, more in SIZES.items():
        for name in METHODS:
            few, many = (simulated(name, agents, rounds) for rounds in (FEW, FEW + more))
            if name == "dsgd":
                hand = least(by_hand(few, FEW), by_hand(many, FEW + more), more)
                print(f"| {agents} | written by hand | | {hand:.1f} |", flush=True)
            line = []
            for engine in ("cohort", "compiled"):
                plays = [replace(one, engine=engine) for one in (few, many)]
                one, two = (lambda s=s: s.play(Discard()) for s in plays)  # type: ignore[misc]
                line.append(f"{least(one, two, more):.1f}")
            print(f"| {agents} | {name} | {' | '.join(line)} |", flush=True)


if __name__ == "__main__":
    main()
