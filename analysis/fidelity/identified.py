"""What `desim calibrate` tells of logs of desim's own law, and what follows for other scenarios.

    python -m analysis.fidelity.identified [--seeds 40]

Twelve links, most with TCP, are told by two runs each, with messages of two sizes. Other scenarios
are then played with what was told and with what is true: models of other sizes, another policy,
another clock. A row of `measured/identified.csv` is one scenario on one link; `told` says whether
the messages tell the rate. `measured/identified-intervals.csv` counts over seeds how often 95 %
intervals of latency, rate and jitter hold where latencies vary.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import desim
from desim.deployments.measuring.calibration import Calibrated
from desim.deployments.measuring.fitted_laws import by_tcp
from desim.deployments.measuring.lines import line_of
from desim.deployments.measuring.samples import EXACT
from desim.network.conditions.links import connected, law, make_links
from desim.network.timeline.flow import carried
from desim.scenario.sections.links import Link as NoLoss
from desim.scenario.sections.links import Tcp

MEASURED = Path(__file__).parent / "measured"
AIM = 0.02
SMALL, LARGE = 150, 6000  # dimensions: 1.2 and 48 kB


class Link(NamedTuple):
    """A link: latency s, rate bit/s, what carries messages, and what varies; pause s of steps."""

    name: str
    latency: float
    rate: float
    tcp: dict[str, Any] | None = {}
    jitter: float = 0.0
    loss: float = 0.0
    sizes: tuple[int, int] = (SMALL, LARGE)
    pause: float = 0.4
    agents: int = 2

    @property
    def network(self) -> dict[str, Any]:
        """As a scenario has it."""
        link: dict[str, Any] = {
            "latency": f"{self.latency!r} s",
            "bandwidth": f"{self.rate!r} bit/s",
        }
        if self.tcp is not None:
            link["transport"] = {"tcp": self.tcp} if self.tcp else "tcp"
        if self.jitter:
            link["jitter"] = {"lognormal": self.jitter}
        if self.loss:
            link |= {"loss": self.loss, "timeout": f"{20.0 * self.latency!r} s"}
        return {"link": link}


LINKS = (
    Link("CUBIC, 20 ms, 5 Mbit/s", 0.02, 5e6),
    Link("CUBIC, 30 ms, 4 Mbit/s", 0.03, 4e6),
    Link("CUBIC, 40 ms, 3 Mbit/s", 0.04, 3e6),
    Link("CUBIC, 20 ms, 5 Mbit/s, five agents", 0.02, 5e6, agents=5),
    Link("CUBIC, 1 ms, 200 Mbit/s", 0.001, 2e8, sizes=(SMALL, 50_000), pause=0.01),
    Link("Reno, 5 ms, 50 Mbit/s", 0.005, 5e7, {"congestion": "reno"}, sizes=(500, 20_000)),
    Link("CUBIC, new, 90 ms, 6.2 Mbit/s, 20 and 48 kB", 0.0905, 6.244e6, {"connection": "new"},
         sizes=(2500, LARGE)),
    Link("BBR, 80 ms, 20 Mbit/s", 0.08, 2e7, {"congestion": "bbr"}, sizes=(SMALL, 25_000)),
    Link("CUBIC, 300 ms, .5 Mbit/s", 0.3, 5e5),
    Link("Reno, new, 150 ms, 100 Mbit/s", 0.15, 1e8, {"congestion": "reno", "connection": "new"},
         sizes=(SMALL, 60_000)),
    Link("CUBIC, 30 ms, 4 Mbit/s, jitter", 0.03, 4e6, jitter=0.1, agents=4),
    Link("ideal, 10 ms, 2 Mbit/s, 5 % lost, jitter", 0.01, 2e6, None, 0.2, 0.05, agents=4),
)  # fmt: skip
SCENARIOS: dict[str, dict[str, Any]] = {
    "8 kB": {"dim": 1000},
    "120 kB": {"dim": 15_000, "rounds": 6},
    "400 kB, quick steps": {"dim": 50_000, "pause": 0.02, "rounds": 4},
    "30 kB, the first reply": {"dim": 3750, "policy": {"quorum": 1}, "rounds": 10},
}
VARIED = (
    Link("CUBIC, 20 ms, 5 Mbit/s, jitter .1", 0.02, 5e6, jitter=0.1),
    Link("Reno, new, 5 ms, 2 Mbit/s, jitter .3", 0.005, 2e6,
         {"congestion": "reno", "connection": "new"}, 0.3, sizes=(500, 7500), pause=0.05),
)  # fmt: skip
COLUMNS = ["sender", "receiver", "source", "bytes", "begin", "seconds", "sending"]


def played(link: Link, network: Any, seed: int = 1, *, dim: int, pause: float | None = None,
           rounds: int = 12, policy: Any = "all") -> desim.Run:  # fmt: skip
    """One run over a network."""
    data = {"source": "synthetic", "kind": "regression", "rows": 10, "dim": dim}
    return desim.run({
        "name": f"{8 * dim} bytes",
        "seed": seed,
        "problem": {"agents": link.agents, "data": data, "loss": "squared",
                    "regularizer": {"l2": 1.0}},
        "algorithm": {"name": "fedavg", "local": {"epochs": 1, "step": 1e-4}},
        "network": network,
        "compute": {"speed": "1e9 /s", "overhead": f"{pause or link.pause!r} s"},
        "policy": policy,
        "observe": {"metrics": []},
        "stop": {"rounds": rounds},
    })  # fmt: skip


def told(link: Link, seed: int = 1) -> Calibrated:
    """What two runs tell of a link."""
    runs = [played(link, link.network, seed, dim=dim) for dim in link.sizes]
    return desim.calibrate(runs, apart=False)


def lasted(run: desim.Run) -> float:
    """Seconds until the last thing happened."""
    return float(run.events["time"].max())


def transfers(folder: Path) -> Iterator[dict[str, Any]]:
    """A row for each link and scenario: what it takes by what is true, and by what was told."""
    for number, link in enumerate(LINKS):
        made = told(link)
        assert made.lines is not None
        (line,) = made.lines.pooled
        file = replace(made, devices=None).write(folder / f"{number}.yaml")
        for name, scenario in SCENARIOS.items():
            true = lasted(played(link, link.network, 2, **scenario))
            found = lasted(played(link, str(file), 2, **scenario))
            yield {
                "link": link.name, "scenario": name, "told": line.identified,
                "latency": line.latency, "rate": line.rate, "true": true, "found": found,
            }  # fmt: skip


def sent(link: Link, seed: int, lines: int = 2, number: int = 12) -> pd.DataFrame:
    """Messages that lines of their own carry one after the other, each size on lines apart."""
    rng = np.random.default_rng(seed)
    ends = np.arange(2 * lines)
    links = make_links(NoLoss(), ends, ends + 2 * lines, seed)
    links.wires[0], links.wires[1] = link.latency, link.rate
    tcp = Tcp.model_validate(link.tcp)
    links = connected(links, [law(tcp, False)] * 2 * lines, links)
    rows = []
    for e in ends.tolist():
        size, begin = 8 * link.sizes[e // lines], 0.0
        for n in range(number):
            late = link.latency * float(np.exp(link.jitter * rng.standard_normal()))
            there = float(carried(links, e, begin, 8 * size, late, n, 0, False)[1])
            rows.append((e, -1, 0, size, begin, there - begin, np.nan))
            begin = there + link.latency + link.pause * rng.uniform(0.9, 1.1)
    return pd.DataFrame(rows, columns=COLUMNS)


def coverage(seeds: int) -> Iterator[dict[str, Any]]:
    """A row for each link that varies: how often intervals hold."""
    for link in VARIED:
        way = Tcp.model_validate(link.tcp)
        (forward,) = by_tcp(way, 0.0, (way.connection,))
        held = {"latency": 0, "rate": 0, "jitter": 0}
        for seed in range(seeds):
            line = line_of("link", sent(link, seed), forward, EXACT)
            sets = {"latency": line.latencies, "rate": line.rates, "jitter": (line.jitters,)}
            for what, some in sets.items():
                truth = getattr(link, what)
                held[what] += any(low <= truth <= high for low, high in some)
        found = {"link": link.name, "seeds": seeds, **held}
        print(found, flush=True)
        yield found


def main() -> None:
    """Play, store, tell."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=40)
    seeds = parser.parse_args().seeds
    rows = []
    with TemporaryDirectory() as folder:
        for row in transfers(Path(folder)):
            rows.append(row)
            share = row["found"] / row["true"] - 1.0
            words = "" if row["told"] else " (not told apart)"
            found = f"{row['latency']:.5g} s, {row['rate']:.5g} bit/s{words}"
            total = f"{row['scenario']}: {row['true']:.4g} s, off by {share:+.3%}"
            print(f"{row['link']}: {found}; {total}", flush=True)
    table = pd.DataFrame(rows)
    table.to_csv(MEASURED / "identified.csv", index=False, float_format="%.8g")
    off = (table["found"] / table["true"] - 1.0).abs()
    print(f"told: off by {off[table['told']].max():.3%} at most (aim: {AIM:.0%}); not told: "
          f"{off[~table['told']].max():.3%}")  # fmt: skip
    if seeds:
        counted = pd.DataFrame([*coverage(seeds)])
        counted.to_csv(MEASURED / "identified-intervals.csv", index=False)
        print(counted.to_string(index=False))


if __name__ == "__main__":
    main()
