"""CHOCO-SGD: bits until a suboptimality, and averages by compressed gossip.

The experiments of the paper's Section 5 on a stand-in for epsilon: even and odd digits of MNIST,
images of norm 1, ten agents in a ring, one digit at each (sorted) or digits at random (shuffled).
Bits are those of messages, indices and norms among them, against float64 numbers.
python -m analysis.reproductions choco_sgd_bits [--sets N]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from analysis.reproductions import page
from analysis.reproductions.choco_gossip import AVERAGED, averaged
from analysis.reproductions.choco_sgd_words import verdicts
from analysis.reproductions.monte_carlo import Case, MonteCarlo, mean_and_error, reported
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.numerics.cache import cache_home
from desim.problem.optimum import centralised_optimum

NAME = "choco_sgd_bits"
SETS = 5
TARGETS = {"shuffled": 0.03, "sorted": 0.3}  # of the start's suboptimality
CODECS: Mapping[str, Any] = {
    "exact": "none",
    "top 1 %": {"top-k": "1 %"},
    "random 1 %": {"random-k": "1 %"},
    "qsgd 5 bits": {"quantise": {"bits": 5}},
}
TUNED = {  # alpha's initial value, gamma, rounds: the best of a few on seed 1
    ("shuffled", "exact"): (100.0, 1.0, 200),
    ("shuffled", "top 1 %"): (100.0, 0.06, 300),
    ("shuffled", "random 1 %"): (100.0, 0.01, 300),
    ("shuffled", "qsgd 5 bits"): (100.0, 0.6, 300),
    ("sorted", "exact"): (50.0, 1.0, 100),
    ("sorted", "top 1 %"): (50.0, 0.06, 1200),
    ("sorted", "random 1 %"): (50.0, 0.016, 4000),
    ("sorted", "qsgd 5 bits"): (50.0, 1.0, 200),
}


class Losses(Discard):
    """A sink that keeps the loss at the mean of all models, by round."""

    def __init__(self) -> None:
        self.rows: list[tuple[Array, Array]] = []

    def append(self, name: str, columns: dict[str, Any]) -> None:
        """Take rows of a table."""
        if name == "metrics":
            network = np.asarray(columns["agent"]) < 0
            kept = (np.asarray(columns[one], float)[network] for one in ("round", "value"))
            self.rows.append((*kept,))  # type: ignore[arg-type]


def bits_to(target: float, made: Simulation) -> tuple[float, float]:
    """Rounds and bits that an agent sends on a link until f - f* is this share of its start."""
    kept, problem = Losses(), made.problem
    if made.play(kept).status != "done":
        return np.inf, np.inf
    rounds, values = (np.concatenate(one) for one in zip(*kept.rows, strict=True))
    least = problem.objective(centralised_optimum(problem, cache_home() / "optima").x)
    first = problem.objective(np.zeros(problem.dim)) - least
    there = np.flatnonzero(values - least <= target * first)
    if not len(there):
        return np.inf, np.inf
    number = float(rounds[there[0]])
    return number, number * made.settings.codecs.up.bits(problem.dim)


def shuffled(made: Simulation) -> tuple[float, float]:
    """`bits_to` the target of shuffled digits."""
    return bits_to(TARGETS["shuffled"], made)


def sorted_(made: Simulation) -> tuple[float, float]:
    """`bits_to` the target of sorted digits."""
    return bits_to(TARGETS["sorted"], made)


MEASURES: Mapping[str, Callable[[Simulation], tuple[float, float]]] = {
    "shuffled": shuffled,
    "sorted": sorted_,
}


def case(digits: str, codec: str) -> Case:
    """A method on sorted or shuffled digits."""
    alpha, gamma, rounds = TUNED[digits, codec]
    return Case(
        "choco-sgd",
        {
            "problem.partition": {"labels": 1} if digits == "sorted" else "iid",
            "codec": CODECS[codec],
            "algorithm.alpha.initial": alpha,
            "algorithm.gamma": gamma,
            "stop.rounds": rounds,
            "observe.every": "6 ms",
        },
    )


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each scheme of gossip, then one for each partition and codec."""
    rows = [dict(one) for one in averaged(sets)]
    for digits in TARGETS:
        cases = {codec: case(digits, codec) for codec in CODECS}
        found = monte_carlo.values(cases, reported(sets), MEASURES[digits], chunk=1)
        exact = found["exact"][:, 1]
        for codec in CODECS:
            rounds, bits = found[codec].T
            fewer = np.log(exact / bits)  # paired by seeds
            alpha, gamma, _ = TUNED[digits, codec]
            numbers = {
                "rounds": float(rounds.mean()), "bits": float(bits.mean()),
                "log_fewer": float(fewer.mean()), "standard_error": mean_and_error(fewer)[1],
            }  # fmt: skip
            about = {"part": digits, "scheme": codec, "alpha": alpha, "gamma": gamma}
            rows.append({**about, **numbers, "end": 0.0, "rate": 0.0, "sets": sets})
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Bits until the target, errors of averages, and what the paper says of them."""
    sgd, gossip = [], []
    for digits in TARGETS:
        for row in page.chosen(rows, part=digits):
            factor, error = np.exp(row["log_fewer"]), row["standard_error"]
            told = "-" if row["scheme"] == "exact" else f"{factor:.1f} ± {factor * error:.1f}"
            numbers = (f"{row['rounds']:.0f}", f"{row['bits'] / 1e6:.2f}", told)
            steps = (f"{row['alpha']:g}", f"{row['gamma']:g}")
            sgd.append((digits, str(row["scheme"]), *steps, *numbers))
    for row in page.chosen(rows, part="gossip"):
        rate = f"{row['rate']:.5f} ± {row['standard_error']:.0e}"
        gossip.append((str(row["scheme"]), f"{row['gamma']:g}", f"{row['end']:.1e}", rate))
    head = ("digits", "messages", "alpha", "gamma", "rounds", "Mbit on a link", "times fewer bits")
    parts = [page.table(head, sgd)]
    head = ("scheme", "gamma", f"error at {AVERAGED}", "rate of the last quarter")
    parts += [page.table(head, gossip)]
    said = ("the paper", "ours", "verdict")
    return "\n\n".join([*parts, page.table(said, [*verdicts(rows)])])
