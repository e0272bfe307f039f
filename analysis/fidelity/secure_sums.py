"""Secure sums by real processes, with keys and masks, beside their simulations.

    python -m analysis.fidelity.secure_sums [--repeats 3] [PART OF A NAME ...]

What agreements, masks and shares take is measured as `desim calibrate --here` does, and stands in
the scenario as `privacy.secure`; what processes cost besides is measured as in `deployments`. Then
rounds of FedAvg with 10^5 numbers go over lines with latency and bandwidth, in `secagg` and
`secagg+`, by devices that are slower than this machine by a factor, which wait after each secret;
beside them rounds without such a sum. `measured/secure_sums.csv` has a row for each round: seconds
really, in the simulation, and in one whose secrets take no time, and the machine's load before. The
table has medians over rounds and repeats.
"""

import argparse
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import desim
from analysis.fidelity.deployments import MEASURED, costs
from desim.deployments.measuring.secret_parts import in_words, secret_parts
from desim.runs.run import Run

DIM, ROUNDS, BITS = 100_000, 4, 24
SECONDS = 3.0  # of training: noise of 10^5 whole numbers takes 50 ms of a core that others use, too
FACTORS = (20, 100)  # how much slower than this machine devices are
WITHIN = 0.05  # of a round's seconds
PLAIN = "no sum"  # numbers that are neither whole nor masked: what the rest is off by
FREE = {"agree": "0 s", "expand": "1e9 GB/s", "share": "0 s"}


class Case(NamedTuple):
    """So many agents by a protocol, or PLAIN, so many neighbours, devices slower by a factor."""

    agents: int
    protocol: str
    neighbours: int | None
    factor: int

    @property
    def name(self) -> str:
        """In words."""
        near = "" if self.neighbours is None else f" {self.neighbours}"
        return f"{self.protocol}{near}, {self.agents} agents, devices x{self.factor}"

    def scenario(self, secrets: Mapping[str, Any], compute: Mapping[str, Any]) -> dict[str, Any]:
        """secrets: what their parts take; compute: what processes cost."""
        secure: dict[str, Any] = {"protocol": self.protocol, "bits": BITS, **secrets}
        if self.neighbours is not None:
            secure |= {"neighbours": self.neighbours}
        slow = {"slow": {"fraction": "100 %", "factor": self.factor}} if self.factor > 1 else {}
        speed = {"lognormal": [f"{40 / SECONDS * self.factor!r} /s", 0.25]}
        scenario = {
            "seed": 17,
            "name": self.name,
            "problem": {
                "agents": self.agents,
                "data": {"source": "synthetic", "kind": "regression", "rows": 10, "dim": DIM},
                "loss": "squared",
                "regularizer": {"l2": 1.0},
            },
            "algorithm": {"name": "fedavg", "local": {"epochs": 4}},
            "network": {
                "link": {
                    "latency": {"uniform": ["5 ms", "40 ms"]},
                    "bandwidth": {"lognormal": ["12 Mbit/s", 0.3]},
                    "transport": {"tcp": {"congestion": "reno", "connection": "kept"}},
                }
            },
            "compute": {"speed": speed, "redraw": "round", **slow, **compute},
            "privacy": {
                "unit": "agent",
                "relation": "add-or-remove-one",
                "trust": "secure-sum",
                "clip": 1.0,
                "noise": {"multiplier": 1.0},
                "noise_seed": "scenario",
                "secure": secure,
            },
            "observe": {"metrics": ["loss"]},
            "log": "all",
            "stop": {"rounds": ROUNDS},
        }
        return {
            key: scenario[key] for key in scenario if key != "privacy" or self.protocol != PLAIN
        }


CASES = [
    Case(agents, protocol, neighbours, factor)
    for factor in FACTORS
    for agents in (10, 6)
    for protocol, neighbours in (("secagg", None), ("secagg+", 4))
]
CASES += [Case(agents, PLAIN, None, 20) for agents in (10, 6)]


def seconds(run: Run) -> np.ndarray:
    """How long each round took, s, to the model that it has given (rounds,)."""
    rows = run.metrics[(run.metrics["metric"] == "loss") & (run.metrics["agent"] == -1)]
    return np.diff(rows.groupby("round")["time"].min().sort_index().to_numpy())


def played(case: Case, repeats: int, secrets: Mapping[str, Any], spent: Any) -> Iterator[Any]:
    """A row for each round of each deployment."""
    compute = {
        "overhead": f"{spent['overhead']!r} s",
        "coordinator": {key: f"{spent[key]!r} s" for key in ("reply", "number")},
    }
    known = desim.run(case.scenario(secrets, compute))
    free = seconds(desim.run(case.scenario(FREE, compute)))
    for repeat in range(repeats):
        load = round(os.getloadavg()[0], 1)
        real = desim.deploy(case.scenario(secrets, {}))
        if not np.array_equal(real.model, known.model):
            raise RuntimeError(f"{case.name}: found another model than that of the simulation")
        late = sum("computations took longer" in text for text in real.manifest["warnings"])
        rows = zip(seconds(real), seconds(known), free, strict=True)
        for k, (one, other, bare) in enumerate(rows, 1):
            yield case.name, repeat, k, one, other, bare, late, load


def verdict(rows: pd.DataFrame) -> str:
    """A line for each case: errors of its median round, and what secrets take of it."""
    lines = []
    for name, own in rows.groupby("name", sort=False):
        real, simulated, free = (own[one] for one in ("real", "simulated", "free"))
        error = (simulated / real - 1.0).median()
        worst = (simulated / real - 1.0).abs().max()
        of = 1.0 - (free / simulated).median()
        said = "within" if abs(error) <= WITHIN else "beyond"
        lines.append(
            f"{name:42} {real.median():7.3f} s  simulated {error:+7.2%} (at most {worst:.1%}), "
            f"without secrets {(free / real - 1.0).median():+7.2%}; secrets are {of:.1%}; "
            f"{said} {WITHIN:.0%}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, play, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=MEASURED / "secure_sums.csv")
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    parts = secret_parts(BITS)
    print(in_words(parts), flush=True)
    secrets = {
        "agree": f"{parts['agree']!r} s",
        "expand": f"{parts['expand']!r} B/s",
        "share": f"{parts['share']!r} s",
    }
    spent, rows = costs(), list[Any]()
    columns = ["name", "repeat", "round", "real", "simulated", "free", "late", "load"]
    chosen = [c for c in CASES if not asked.names or any(n in c.name for n in asked.names)]
    for case in chosen:
        rows += played(case, asked.repeats, secrets, spent)
        done = pd.DataFrame(rows, columns=columns)
        print(verdict(done[done["name"] == case.name]), flush=True)
        done.to_csv(asked.out, index=False, float_format="%.7g")


if __name__ == "__main__":
    main()
