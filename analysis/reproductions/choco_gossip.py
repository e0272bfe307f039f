"""Averages by gossip with coded messages: exact, CHOCO-Gossip, and the schemes it is held against.

The paper's Section 5.2: 25 agents in a ring, here with 500 standard normal numbers each. Q1 moves
by Q(x_j) - x_i, which does not keep the mean; Q2 by Q(x_j) - Q(x_i), which does (its eqs. Q1-G and
Q2-G, with unbiased Q). CHOCO-Gossip is desim's choco-sgd with alpha 0.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import desim
from analysis.reproductions.monte_carlo import mean_and_error
from desim.arrays import Array
from desim.network.conditions.codec import Codec
from desim.numerics.plain import at_once

AGENTS, DIM, AVERAGED = 25, 500, 3000
ROUNDED = 1e-20  # of the start: below it numbers are rounded
QSGD, RANDOM = Codec("quantise", 9), Codec("random-k", 0.01)
SCHEMES: Mapping[str, tuple[str, Any, float]] = {  # kind, codec, gamma
    "exact": ("choco", "none", 1.0),
    "choco, qsgd 9 bits": ("choco", {"quantise": {"bits": 9}}, 1.0),
    "choco, top 1 %": ("choco", {"top-k": "1 %"}, 0.046),
    "choco, random 1 %": ("choco", {"random-k": "1 %"}, 0.011),
    "Q1, qsgd 9 bits": ("q1", QSGD, 1.0),
    "Q2, qsgd 9 bits": ("q2", QSGD, 1.0),
    "Q1, random 1 %": ("q1", RANDOM, 1.0),
    "Q2, random 1 %": ("q2", RANDOM, 1.0),
}


def ring() -> Array:
    """W of a ring: a third for oneself and each neighbour."""
    return sum((np.roll(np.eye(AGENTS), by, axis=0) for by in (-1, 0, 1)), np.zeros(())) / 3.0


def errors_of(kind: str, codec: Any, gamma: float, seed: int, rounds: int = AVERAGED) -> Array:
    """(1/n) sum |x_i - mean of x^0|^2 over that of the start, after every 50th round."""
    if kind == "choco":
        return _choco(codec, gamma, seed, rounds)
    x = np.random.default_rng(seed).normal(size=(AGENTS, DIM))
    others, who, mean = ring() - np.eye(AGENTS) / 3.0, np.arange(AGENTS), x.mean(axis=0)
    found = [float(np.sum((x - mean) ** 2))]
    with np.errstate(all="ignore"), at_once():
        for k in range(1, rounds + 1):
            q = codec.coded(seed, x, True, agent=who, round=k, step=1)
            own = x if kind == "q1" else q
            x = x + gamma * (others @ q - 2.0 / 3.0 * own)
            if k % 50 == 0:
                found.append(float(np.sum((x - mean) ** 2)))
            if not np.isfinite(found[-1]) or found[-1] > 1e12 * found[0]:
                return np.array([1.0, np.inf])
    return np.array(found) / found[0]


def _choco(codec: Any, gamma: float, seed: int, rounds: int) -> Array:
    run = desim.run(
        {
            "name": "choco-gossip",
            "seed": seed,
            "problem": {
                "agents": AGENTS,
                "data": {"source": "synthetic", "kind": "regression", "rows": 1, "dim": DIM},
                "loss": "squared",
            },
            "algorithm": {
                "name": "choco-sgd", "alpha": 0, "gamma": gamma, "init": {"normal": 1.0}
            },
            "codec": codec,
            "network": {"topology": "ring", "link": {"latency": "1 s", "bandwidth": "inf"}},
            "observe": {"metrics": ["consensus"], "every": "50 s"},
            "log": "rounds",
            "stop": {"rounds": rounds},
        }
    )  # fmt: skip
    table = run.metrics
    values = table["value"][table["agent"] < 0].to_numpy(float)
    return np.asarray(values / values[0])


def averaged(sets: int) -> Iterator[dict[str, Any]]:
    """One row for each scheme: the last error, and the rate of a round over the last quarter."""
    for scheme, (kind, codec, gamma) in SCHEMES.items():
        ends, rates = [], []
        for seed in range(1, sets + 1):
            e = errors_of(kind, codec, gamma, seed)
            ends.append(float(e[-1]))
            rates.append(rate_of(e))
        rate, error = mean_and_error(np.array(rates))
        yield {
            "part": "gossip", "scheme": scheme, "alpha": 0.0, "gamma": gamma, "rounds": AVERAGED,
            "bits": 0.0, "log_fewer": 0.0, "standard_error": error, "end": float(np.mean(ends)),
            "rate": rate, "sets": sets,
        }  # fmt: skip


def rate_of(e: Array) -> float:
    """The factor of a round over the last quarter above rounding, 1 where nothing more is won."""
    if not np.isfinite(e).all():
        return float("inf")
    e = e[: max(int(np.count_nonzero(e > ROUNDED)), 8)]
    late = np.log(e[-max(len(e) // 4, 2) :])
    return float(np.exp((late[-1] - late[0]) / (50 * (len(late) - 1))))
