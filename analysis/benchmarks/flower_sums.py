"""What Flower's own SecAgg+ costs: seconds, bytes and messages of its rounds over plain averages.

    python -m analysis.benchmarks.flower_sums

Ten nodes on digits, of speeds that differ, five rounds on each of desim's named networks. Dropout
is the probability that a node leaves in the time that a plain round takes there; it is away for as
long, and begins again what it was at: a round that takes longer loses more of them. Without any all
are waited for; else a collection is over after WAIT times the longest one that the same app had
there without dropouts.

A run is broken where flwr's mod raises a KeyError, so that there is no model: of a node that is
lost after the first exchange and before its shares are out, others are asked for shares that they
never had. Ratios are over the seeds that are not.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

import desim
from desim.errors import RunError
from desim.flower.asked import app_of, keys

APP = Path(__file__).with_name("flower_digits")
RESULTS = Path(__file__).parent / "results" / "flower_sums.csv"
NETWORKS = "lan", "wifi", "4g", "lossy", "stragglers", "satellite"
RATES = 0.0, 0.1, 0.3
KINDS = "plain", "secret"
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


def pair(network: str, seed: int, rate: float, usual: dict[Any, Any]) -> Any:
    """Figures of a plain run and of a secret one, None where Flower's own mod raised.

    usual: those without dropouts, by kind and seed, which are noted.
    """
    found = list[Any]()
    for kind in KINDS:
        own = {}
        if rate:
            plain = usual["plain", seed]
            own = {"wait": WAIT * usual[kind, seed]["longest"], "rate": rate}
            own["round_"] = plain["seconds"] / plain["rounds"]
        try:
            found.append(figures(played(kind, network, seed, **own)))
        except RunError as error:
            if "the ClientApp raised KeyError" not in str(error):
                raise
            found.append(None)
        usual.setdefault((kind, seed), found[-1])
    return found


def rows() -> pd.DataFrame:
    """A row for each network and rate: ratios, secret over plain, and shares of nodes averaged."""
    table = []
    for network in NETWORKS:
        usual: dict[tuple[str, int], dict[str, float]] = {}
        for rate in RATES:
            pairs = []
            for seed in SEEDS:
                plain, secret = pair(network, seed, rate, usual)
                if secret is not None:
                    pairs.append((plain, secret))
            columns = [
                {f"{kind}_{name}": one[name] for kind, one in zip(KINDS, both, strict=True)
                 for name in one} for both in pairs
            ]  # fmt: skip
            total = pd.DataFrame(columns).sum()
            row: dict[str, Any] = {"network": network, "dropout": rate}
            row["broken"] = len(SEEDS) - len(pairs)
            for name in ("seconds", "bytes", "messages") if pairs else ():
                row[name] = float(total[f"secret_{name}"] / total[f"plain_{name}"])
            for kind in KINDS if pairs else ():
                share = total[f"{kind}_averaged"] / total[f"{kind}_rounds"] / NODES
                row[f"{kind}_averaged"] = float(share)
            table.append(row)
            print(table[-1], flush=True)
    return pd.DataFrame(table)


if __name__ == "__main__":
    rows().to_csv(RESULTS, index=False, float_format="%.5f")
