"""Two flows that meet on one line: what the kernel took, beside the law of a shared line.

    python -m analysis.fidelity.sharing

Every pair of flows of `measured/shared.csv` is sent again, at the same instants, through the line
of one site, as `network.behind` has it.
"""

from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from desim.engine.agents.clock import Clock
from desim.engine.agents.ports import Handed, Streams
from desim.network.timeline.messages import FIFO, Links
from desim.runs.recording import prepare
from desim.scenario.load import load

FILE = Path(__file__).parent / "measured" / "shared.csv"
PAIR = ["congestion", "pair", "repeat"]
DISTURBED = 0.02  # of a message's seconds, by which the links were served late


def line(row: pd.Series) -> Links:
    """The uplinks of two agents behind one line, as a row says it was."""
    tcp = {"tcp": {"congestion": row["congestion"], "queue": 1000}}
    own = {"latency": row["own_latency"], "bandwidth": row["own_rate"], "transport": tcp}
    shared = {"latency": row["latency"], "bandwidth": row["rate"]}
    scenario = load(
        {
            "problem": {
                "agents": 2,
                "data": {"source": "synthetic", "kind": "regression", "rows": 2, "dim": 1},
                "loss": "squared",
            },
            "algorithm": {"name": "fedavg"},
            "network": {"link": own, "behind": {"sites": 1, "uplink": shared, "downlink": shared}},
            "stop": {"rounds": 1},
        }
    )
    links = prepare(scenario).simulation.settings.uplinks
    assert links is not None
    return links._replace(contention=FIFO)


def replayed(pair: pd.DataFrame) -> pd.Series:
    """The seconds that the law gives each message of two flows, by the pair's index."""
    links, clock, found = line(pair.iloc[0]), Clock(), pd.Series(np.nan, pair.index)
    streams = Streams(clock, links)

    def told(at: int, there: float) -> None:
        found[at] = there - float(pair["sent"][at])

    def begin(at: int) -> None:
        e, number = int(pair["flow"][at]), int(pair["position"][at])
        bits, latency = 8 * int(pair["size"][at]), float(links.latency[e])
        streams.enter(Handed(e, float(clock.now), bits, latency, number, 0, partial(told, at)))

    for at in pair.index:
        clock.at(float(pair["sent"][at]), partial(begin, at))
    clock.run()
    return found


def table() -> pd.DataFrame:
    """All messages that nothing disturbed, with `law` s and the relative error of the law."""
    rows = pd.read_csv(FILE)
    rows["law"] = rows.groupby(PAIR, group_keys=False)[list(rows.columns)].apply(replayed)
    rows["error"] = rows["law"] / rows["seconds"] - 1.0
    quiet = rows["late"] <= np.maximum(DISTURBED * rows["seconds"], 0.0005)
    return rows[quiet]


def main() -> None:
    """Print the errors by congestion control and by what meets."""
    found = table()
    for words, some in (
        *((f"{name}", one) for name, one in found.groupby("congestion")),
        *((f"{size // 1000} kB", one) for size, one in found.groupby("size")),
        *((f"{rate / 1e6:g} Mbit/s", one) for rate, one in found.groupby("rate")),
        ("all", found),
    ):
        share = np.abs(some["error"])
        middle, high, most = share.quantile([0.5, 0.95, 1.0])
        within = (share <= 0.1).mean()
        text = f"median {middle:.2%}, 95 % {high:.2%}, max {most:.2%}, within 10 %: {within:.1%}"
        print(f"{words:12} {len(some):4} messages: {text}")


if __name__ == "__main__":
    main()
