"""Means with one packet in a hundred lost: what the kernel took, beside the law.

    python -m analysis.fidelity.losses

Every kind of `measured/lossy.csv` is sent again, some hundred messages with each of three seeds. A
message waits for an answer of 8 bytes to the one before, or opens a connection of its own.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from desim.network.conditions.links import connected, law, make_links
from desim.network.timeline.messages import Links, transmit_one
from desim.network.timeline.record import Rows, empty_rows
from desim.scenario.sections.links import Link

FILE = Path(__file__).parent / "measured" / "lossy.csv"
SEEDS = 3
MESSAGES = {1_000_000: 60}  # of a seed, by size; of others
OTHERS = 150
ANSWER = 60 * 8  # bits, headers included


def connection(kind: pd.Series, seed: int, loss: float) -> Links:
    """One link, its connection and the way back."""
    kept = "new" if kind["state"] == "new" else "kept"
    tcp = {"congestion": kind["congestion"], "connection": kept}
    given = {"latency": kind["latency"], "bandwidth": kind["rate"], "loss": loss}
    there, agent, hub = (
        Link.model_validate(given | {"transport": {"tcp": tcp}}),
        np.array([0]),
        np.array([-1]),
    )
    made = make_links(there, agent, hub, seed), make_links(there, hub, agent, seed)
    return connected(made[0], [law(there.transport.tcp, False)], made[1])


def seconds(kind: pd.Series, loss: float | None = None, rows: Rows | None = None) -> np.ndarray:
    """Seconds (messages,) of the messages of a kind by the law; loss: if another than measured."""
    rows = rows if rows is not None else empty_rows(8)
    found = []
    for seed in range(SEEDS):
        links, time = connection(kind, seed, kind["loss"] if loss is None else loss), 0.0
        for number in range(MESSAGES.get(kind["size"], OTHERS)):
            rows.n[0] = 0
            there = transmit_one(links, 0, time, number, 0, 8 * kind["size"], -1, 0, rows)
            found.append(there - time)
            time = there + kind["latency"] + ANSWER / kind["rate"]
    return np.array(found)


def table() -> pd.DataFrame:
    """All kinds, with the law's mean s, its relative error, and that in standard errors."""
    kinds = pd.read_csv(FILE)
    every = [seconds(kind) for _, kind in kinds.iterrows()]
    kinds["law"] = [one.mean() for one in every]
    spread = np.hypot(kinds["error"], [one.std() / len(one) ** 0.5 for one in every])
    kinds["off"] = kinds["law"] / kinds["mean"] - 1.0
    kinds["errors"] = (kinds["law"] - kinds["mean"]) / spread
    return kinds


def main() -> None:
    """Print how many means are within 15 %, and how many of the others within two errors."""
    found = table()
    for words, some in found.groupby(["congestion", "state"]):
        share = np.abs(some["off"])
        near, known = share <= 0.15, np.abs(some["errors"]) <= 2.0
        print(
            f"{' '.join(words):12} {len(some)} kinds: median {share.median():.1%}, "
            f"max {share.max():.0%}, mean {some['off'].mean():+.1%}; {near.sum()} within 15 %, "
            f"{(known & ~near).sum()} more within two standard errors"
        )


if __name__ == "__main__":
    main()
