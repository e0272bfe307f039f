"""What deployments say of the law: its errors, beside the aims and beside latency + bits / rate.

    python -m analysis.fidelity.verdicts

Of the tables that `deployments` has measured.
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from desim.arrays import Array

MEASURED = Path(__file__).parent / "measured"
LUCK = "each"  # a round ends with a reply: rounds are gaps between replies, and their order counts
BARRIERS = ("all,", "ring,", "grid,")  # nobody's speed decides who is heard: equal bits


def errors_of(plays: pd.DataFrame, law: str = "simulated") -> Array:
    """|law / real - 1| of the totals."""
    return np.abs(plays[law].to_numpy(float) / plays["real"].to_numpy(float) - 1.0)


def barrier(plays: pd.DataFrame) -> pd.DataFrame:
    """The plays in which everybody waits for all."""
    return plays[[any(word in name for word in BARRIERS) for name in plays["name"]]]


def order(plays: pd.DataFrame) -> float:
    """Kendall's tau between the methods' orders by real and by simulated seconds, all repeats."""
    taus = [
        kendalltau(some["real"], some["simulated"]).statistic
        for _, some in plays.groupby("repeat")
    ]  # fmt: skip
    return float(np.mean(taus))


def quantiles(found: Array) -> str:
    """Median, 95th percentile and largest of |errors|."""
    middle, high, most = np.quantile(found, [0.5, 0.95, 1.0])
    return f"median {middle:.2%}, 95 % {high:.2%}, max {most:.2%}"


def repeatable(plays: pd.DataFrame) -> Array:
    """How far plays of one configuration are from their median: what no law can do better."""
    middle = plays.groupby("name")["real"].transform("median")
    return np.abs(plays["real"].to_numpy(float) / middle.to_numpy(float) - 1.0)


def verdicts(plays: pd.DataFrame, rounds: pd.DataFrame) -> str:
    """All findings as text, each with its aim."""
    lines = []
    for kind, words in (("kernel", "Reno"), ("cubic", "CUBIC")):
        some = plays[plays["kind"] == kind]
        if some.empty:
            continue
        sure = some[[LUCK not in name for name in some["name"]]]
        own = rounds[rounds["name"].isin(sure["name"])]
        share = np.abs(own["simulated"] / own["real"] - 1.0).to_numpy(float)
        same, of = sure[["same", "collections"]].sum()
        close, narrow = sure[["same_narrow", "narrow"]].sum()
        ordered, pairs = some[["ordered", "pairs"]].sum()
        still = barrier(some)
        lines += [
            f"{words}, {some['name'].nunique()} configurations, {len(some)} plays",
            f"  totals   {quantiles(errors_of(some))} (aim: 1 %, every one 3 %)",
            f"  bare     {quantiles(errors_of(some, 'bare'))}",
            f"  ideal    {quantiles(errors_of(some, 'ideal'))}",
            f"  repeats  {quantiles(repeatable(some))}",
            f"  rounds   {quantiles(share)} of {len(share)} (aim: 1 %, 5 %)",
            f"  accepted {same / max(of, 1):.1%} of {of} with a margin above 2 % (aim: 95 %); "
            f"{close} of {narrow} below",
            f"  pairs    {ordered / max(pairs, 1):.2%} of {pairs} in order (aim: 98 %)",
            f"  models   {(still['apart'] == 0).sum()} of {len(still)} to the bit under barriers",
        ]
    methods = plays[plays["kind"] == "order"]
    if methods["name"].nunique() > 1:
        lines.append(
            f"order of {methods['name'].nunique()} methods: tau {order(methods):.3f} (aim: .95); "
            f"totals {quantiles(errors_of(methods))}"
        )
    return "\n".join(lines)


def main() -> None:
    """Judge what is stored."""
    print(verdicts(*(pd.read_csv(MEASURED / f"{name}.csv") for name in ("deployments", "rounds"))))


if __name__ == "__main__":
    main()
