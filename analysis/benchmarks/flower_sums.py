"""What Flower's own SecAgg+ costs: seconds, bytes and messages of its rounds over plain averages.

    python -m analysis.benchmarks.flower_sums

Ten nodes on digits, of speeds that differ, five rounds on each of desim's named networks. Dropout is
the probability that a node leaves in the time that a plain round takes there; it is away for as
long, and begins again what it was at: a round that takes longer loses more of them. Without dropouts
all are waited for; with them a collection is over after WAIT times the longest one that the same app
had there without any.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import desim
from desim.flower.asked import app_of, keys

APP = Path(__file__).with_name("flower_digits")
RESULTS = Path(__file__).parent / "results" / "flower_sums.csv"
NETWORKS = "lan", "wifi", "4g", "lossy", "stragglers", "satellite"
RATES = 0.0, 0.1, 0.3
NODES, SEEDS, WAIT = 10, (1, 2), 1.5
SPEED = {"lognormal": ["300 /s", 0.5]}


def played(
    kind: str, network: str, seed: int, wait: float = 0.0, rate: float = 0.0, round_: float = 0.0
) -> Any:
    """A run of the app's `kind`, plain or secret.

    wait: s after which a collection is over, 0 for never; rate: the probability that a node leaves
    within round_ s.
    """
    own = keys(app_of([str(APP)], []), [str(APP)], [], NODES, None, seed)
    parts = {"server": f"digits_server:{kind}", "client": f"digits_client:{kind}"}
    for where in (own["problem"]["model"], own["problem"]["data"]["arguments"]):
        where |= parts
    base: dict[str, Any] = {"seed": seed, "network": network, "compute": {"speed": SPEED}}
    if wait:
        base["policy"] = {"deadline": wait}
        base["churn"] = {"up": {"exponential": -round_ / np.log(1.0 - rate)}, "down": round_}
    return desim.run({**base, **own, "observe": {"metrics": []}})


def figures(run: Any) -> dict[str, float]:
    """Seconds, bytes and messages of a run, and nodes in its averages, of all rounds together."""
    sent, closed = (run.events[run.events["kind"] == kind] for kind in ("send", "aggregate"))
    return {
        "seconds": float(run.events["time"].iloc[-1]),
        "bytes": float(sent["bytes"].sum()),
        "messages": float(len(sent)),
        "averaged": float(closed.groupby("round")["value"].last().sum()),
        "rounds": float(run.manifest["rounds"]),
        "longest": float(closed["seconds"].max()),
    }


def rows() -> pd.DataFrame:
    """A row for each network and rate: ratios, secret over plain, of sums over the seeds; nodes."""
    table = []
    for network in NETWORKS:
        usual: dict[tuple[str, int], dict[str, float]] = {}
        for rate in RATES:
            total: dict[str, pd.Series] = {}
            for kind in ("plain", "secret"):
                runs = []
                for seed in SEEDS:
                    own = {}
                    if rate:
                        wait, plain = usual[kind, seed]["longest"], usual["plain", seed]
                        own = {"wait": WAIT * wait, "rate": rate}
                        own["round_"] = plain["seconds"] / plain["rounds"]
                    runs.append(figures(played(kind, network, seed, **own)))
                    usual.setdefault((kind, seed), runs[-1])
                total[kind] = pd.DataFrame(runs).sum()
            over, plain = total["secret"] / total["plain"], total["plain"]
            table.append({"network": network, "dropout": rate, **over[:3]})
            for kind, one in total.items():
                table[-1][f"{kind}_averaged"] = one["averaged"] / one["rounds"] / NODES
            print(table[-1], flush=True)  # noqa: T201
    return pd.DataFrame(table)


if __name__ == "__main__":
    rows().to_csv(RESULTS, index=False, float_format="%.3f")
