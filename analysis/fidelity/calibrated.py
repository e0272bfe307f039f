"""What `desim calibrate` tells of deployed runs, beside what their scenarios said.

    python -m analysis.fidelity.calibrated [--repeats 1]

Eight agents behind links of their own. Of each case three runs are deployed, with messages of 1, 40
and 200 kB and steps of 10, 40 and 20 rows, so that latency and rate, and fixed costs and those of
rows, can be told apart. A row of `measured/calibrated.csv` is one quantity of one case in one
repeat. The fixed cost of a step is the scenario's and what the process itself takes besides.
`measured/calibrated-messages.csv` and `-computations.csv` are what the first case was told by.
"""

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

import desim
from desim.deployments.measuring.calibration import Calibrated, of_samples
from desim.deployments.measuring.samples import Samples, of_run
from desim.runs.run import Run

MEASURED = Path(__file__).parent / "measured"
AIM = 0.05
SEED = 23
HELD = ("latency", "rate", "per row")  # to the aim
RUNS = ((125, 1, 12), (5000, 4, 8), (25_000, 2, 5))  # dimension, epochs of 10 rows, rounds
KEPT = ["source", "sender", "receiver", "begin", "bytes", "seconds"]


class Case(NamedTuple):
    """A network and devices: latency s, rate bit/s, gradients of one row in a s, fixed cost s."""

    name: str
    transport: Any
    latency: float
    rate: float
    speed: float
    overhead: float
    loss: float = 0.0

    def scenario(self, seed: int, dim: int, epochs: int, rounds: int) -> dict[str, Any]:
        """One run on it."""
        data = {"source": "synthetic", "kind": "regression", "rows": 10, "dim": dim}
        link = {
            "latency": f"{self.latency!r} s", "bandwidth": f"{self.rate!r} bit/s",
            "loss": self.loss, "transport": self.transport,
        }  # fmt: skip
        return {
            "name": f"{self.name}, {8 * dim} bytes",
            "seed": seed,
            "problem": {"agents": 8, "data": data, "loss": "squared", "regularizer": {"l2": 1.0}},
            "algorithm": {"name": "fedavg", "local": {"epochs": epochs, "step": 0.01}},
            "network": {"link": link},
            "compute": {"speed": f"{self.speed!r} /s", "overhead": f"{self.overhead!r} s"},
            "observe": {"metrics": []},
            "stop": {"rounds": rounds},
        }


RENO = {"tcp": {"congestion": "reno"}}
CASES = (
    Case("reno", RENO, 0.02, 1e7, 500.0, 0.003),
    Case("cubic", "tcp", 0.02, 1e7, 500.0, 0.003),
    Case("ideal", "ideal", 0.008, 4e6, 250.0, 0.01),
    Case("reno, 1 % of packets lost", RENO, 0.02, 1e7, 500.0, 0.003, 0.01),
)


def deployed(case: Case, seed: int) -> tuple[Samples, float]:
    """What the case's runs measured, and the longest s for which its links were served late."""
    runs = [desim.deploy(case.scenario(seed, *one)) for one in RUNS]
    late = max(run.manifest["clock"]["links"]["late"] for run in runs)
    return together(runs), late


def together(runs: list[Run]) -> Samples:
    """The samples of several runs."""
    first, *others = map(of_run, runs)
    for other in others:
        first = first.and_these(other)
    return first


def quantities(case: Case, made: Calibrated) -> Iterator[dict[str, Any]]:
    """Of each quantity what is true, what is told, and with which standard error, relative."""
    assert made.lines is not None
    assert made.devices is not None
    lines, devices = made.lines, made.devices
    for line in lines.pooled:
        yield {"what": "latency", "true": case.latency, "told": line.latency,
               "error": line.errors[0]}  # fmt: skip
        yield {"what": "rate", "true": case.rate, "told": line.rate, "error": line.errors[1]}
    yield {"what": "per row", "true": 1.0 / case.speed, "told": 1.0 / devices.speed,
           "error": devices.error}  # fmt: skip
    yield {"what": "fixed", "true": case.overhead, "told": devices.overhead,
           "error": devices.overhead_error}  # fmt: skip
    if case.loss:
        spread = (lines.interval[1] - lines.interval[0]) / (2 * 1.96 * lines.loss)
        yield {"what": "loss", "true": case.loss, "told": lines.loss, "error": spread}


def measured(repeats: int) -> pd.DataFrame:
    """Deploy and calibrate all cases, and tell of each as it is done."""
    rows = []
    for repeat in range(repeats):
        for case in CASES:
            began = time.monotonic()
            samples, late = deployed(case, SEED + repeat)
            made = of_samples(samples, apart=False)
            assert made.lines is not None
            law = {"case": case.name, "repeat": repeat, "law": made.lines.law.name}
            found = [{**law, **one, "late": late} for one in quantities(case, made)]
            rows += found
            if not repeat and case is CASES[0]:
                store(samples)
            print(f"{case.name} ({time.monotonic() - began:.1f} s): {law['law']}")
            for row in found:
                off = row["told"] / row["true"] - 1.0
                print(f"  {row['what']:8} true {row['true']:<9.4g} told {row['told']:<9.4g} "
                      f"± {row['error']:.2%}, off by {off:+.2%}", flush=True)  # fmt: skip
    return pd.DataFrame(rows)


def store(samples: Samples) -> None:
    """Keep what a case was told by."""
    messages = MEASURED / "calibrated-messages.csv"
    samples.messages[KEPT].to_csv(messages, index=False, float_format="%.7g")
    computations = MEASURED / "calibrated-computations.csv"
    samples.computations.to_csv(computations, index=False, float_format="%.7g")


def off(table: pd.DataFrame) -> pd.Series:
    """|told / true - 1| of each row."""
    return (table["told"] / table["true"] - 1.0).abs()


def main() -> None:
    """Measure, store, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=1)
    table = measured(parser.parse_args().repeats)
    table.to_csv(MEASURED / "calibrated.csv", index=False, float_format="%.7g")
    for what, some in table.groupby("what", sort=False):
        aim = f" (aim: {AIM:.0%})" if what in HELD else ""
        share = off(some)
        print(f"{what:8} off by {share.median():.2%} in the median, {share.max():.2%} at most{aim}")


if __name__ == "__main__":
    main()
