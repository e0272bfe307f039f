"""Chapter 4 of Ding's dissertation, played: who takes part, with which noise, and what is measured.

All curves of a figure end at the same virtual second. Steps, clipping, speeds, deadline and T_c are
the text's; T, the start and the quantiser's resolution, which it does not give, are chosen here.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.optimize import brentq

from analysis.reproductions.monte_carlo import Case
from analysis.reproductions.printed import of_own_order, theorem_15
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.log.parquet import Tables
from desim.privacy.accounting.accountants import account

ROUNDS, RECORDS, CLIP, DELTA = 300, 10_000, 0.5, 1e-5
T_C, BITS, RESOLUTION, KEPT = 3.0, 3, 0.1, 0.3  # T_c s, s, eta, c
SLOWEST = 0.0565  # s a sample that the slowest of an agent's neighbourhood takes, on average
INSTANTS = 21  # of a curve


@dataclass(frozen=True)
class Curve:
    """One method at one budget; noise: what its deviation follows from.

    paper: the dissertation's theorem; rigorous: the accountant, and for q-dpsgd-2 the corrected
    form; none, for dsgd without clipping, too, as the text has it; clipped: none but that. data:
    mnist, or fashion; rounds: T of the Q methods.
    """

    figure: str
    method: str
    epsilon: float
    noise: str
    agents: int = 10
    batch: int = 20
    data: str = "mnist"
    rounds: int = ROUNDS

    @property
    def hidden(self) -> int:
        """Hidden units: 50 on MNIST, 40 on the other data."""
        return 50 if self.data == "mnist" else 40

    @property
    def dim(self) -> int:
        """Parameters of the network."""
        return 784 * self.hidden + self.hidden + 10 * self.hidden + 10

    @property
    def deadline(self) -> float:
        """T_d = B / E[V] s."""
        return self.batch / 50.0

    @property
    def horizon(self) -> float:
        """Seconds at which all curves of the figure end: T iterations of the Q methods."""
        return self.rounds * (self.deadline + T_C * BITS / 16.0)

    @property
    def iterations(self) -> int:
        """Iterations over which noise is spread: T, or what the others come to by the horizon."""
        if self.method.startswith("q"):
            return self.rounds
        share = KEPT if self.method == "sdm-dsgd" else 1.0
        return int(self.horizon / (self.batch * SLOWEST + T_C * share))

    @cached_property
    def sigma(self) -> float:
        """Noise per coordinate by Theorem 11 (15): the paper's sigma K."""
        m, T = RECORDS // self.agents, self.iterations
        if self.method != "q-dpsgd-2":
            return float(CLIP * np.sqrt(8.0 * T / of_own_order(self.epsilon, DELTA)) / m)
        alpha, mixing = self.steps

        def excess(logarithm: float) -> float:
            place = CLIP, alpha * mixing, RESOLUTION, self.dim, DELTA
            said = theorem_15([self.batch] * T, m, float(np.exp(logarithm)), *place)
            return said - self.epsilon

        return float(CLIP * np.exp(brentq(excess, -5.0, 15.0)))

    @property
    def steps(self) -> tuple[float, float]:
        """Alpha and epsilon of the Q methods: 0.3 / T^(1/6) and 11 / T^(1/2), at most 1."""
        return 0.3 / self.rounds ** (1 / 6), min(1.0, 11.0 / self.rounds**0.5)

    def case(self) -> Case:
        """The scenario."""
        data = {"source": "mnist-npz", "train": RECORDS, "test": {"rows": 2000}}
        file = "mnist.npz" if self.data == "mnist" else "fashion_mnist_12k_4k.npz"
        changes: dict[str, Any] = {
            "problem.agents": self.agents,
            "problem.data": {**data, "file": f"${{DESIM_DATA}}/{file}"},
            "problem.loss.mlp.hidden": self.hidden,
            "network.link.bandwidth": 16.0 * self.dim / T_C,
            "algorithm": self._algorithm(),
            "privacy": self._privacy(),
            "observe.every": self.horizon / (INSTANTS - 1),
            "stop": {"rounds": self.iterations, "time": self.horizon * (1.0 + 1e-9)},
        }
        if (self.method, self.noise) == ("dsgd", "none"):
            changes["problem.clip"] = 1e9  # cuts nothing
        return Case("q-dpsgd", changes)

    def _algorithm(self) -> dict[str, Any]:
        made: dict[str, Any] = {"name": self.method, "init": {"common": 0.1}}
        if not self.method.startswith("q"):
            made |= {"alpha": 0.2, "batch": self.batch, "numbers": "float16"}
            sparse = {"theta": 0.6, "c": KEPT, "indices": "seeded"}
            return made | (sparse if self.method == "sdm-dsgd" else {})
        alpha, mixing = self.steps
        made |= {"alpha": alpha, "mixing": mixing, "deadline": self.deadline}
        made |= {"bits": BITS, "resolution": RESOLUTION}
        fixed = self.method == "q-dpsgd-2" and self.noise == "rigorous"
        return {**made, "fixed": True} if fixed else made

    def _privacy(self) -> dict[str, Any]:
        lattice = {"kind": "discrete-gaussian", "resolution": RESOLUTION}
        kind = lattice if self.method == "q-dpsgd-2" else {"kind": "gaussian"}
        if self.noise == "rigorous":
            return {"noise": kind, "target": {"epsilon": self.epsilon, "delta": DELTA}}
        return {"noise": {**kind, "sigma": self.sigma if self.noise == "paper" else 0.0}}


class Kept:
    """A sink of what a curve is made of: the network's metrics, and releases."""

    def __init__(self) -> None:
        self.tables = Tables()

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Take rows of a table."""
        if name != "events":
            self.tables.append(name, columns)

    def metric(self, name: str) -> Array:
        """Values (INSTANTS,) of a network's metric, the last one kept where the run was over."""
        table = self.tables.read("metrics")
        rows = table[(table["metric"] == name) & (table["agent"] < 0)]
        found = rows["value"].to_numpy(float)[:INSTANTS]
        return np.append(found, np.full(INSTANTS - len(found), found[-1]))

    def epsilon(self, made: Simulation) -> float:
        """What all messages cost the agent that spends most, rigorously."""
        releases = self.tables.read("releases")
        return float(account(releases, rows=made.problem.rows, delta=DELTA).worst)


def measure(made: Simulation) -> tuple[float, ...]:
    """Loss per agent at the instants, accuracy at the end, epsilon, sigma K; nan if it diverged."""
    kept = Kept()
    noise = getattr(made.method.noise, "sigma", 0.0)
    if made.play(kept).status != "done":
        return (*np.full(INSTANTS + 2, np.nan), float(noise))
    loss = kept.metric("loss") / made.problem.agents
    return (*loss, kept.metric("accuracy")[-1], kept.epsilon(made), float(noise))
