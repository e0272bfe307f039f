"""Sixty deployments of Flower on Grid'5000, predicted from one of their twelve cells.

    python -m analysis.fidelity.grid5000 FOLDER

FOLDER: a copy of github.com/tuananhngh/FL-G5K-EnergyConsumption, branch toulouse-g5k, or of its
analysis/files. The set has no licence: no file of it is here. `measured/grid5000.csv`, which this
writes, has its means, as cited numbers, beside what desim predicts; `grid5000.md` is about them.

What is taken from the calibrated cell (fedavg, one epoch): how long each client trained (FIT, a
figure of the set), means of the seconds of the evaluations at the server and at the clients, of the
start and of what the first round takes longer, and the watts of its clients. What is taken from
each other cell: how many rounds it took, and nothing else.
"""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import desim
from desim.arrays import Array

RESULTS = Path(__file__).parent / "measured" / "grid5000.csv"
CALIBRATED = ("fedavg", 1)
OTHER_OPTIMISERS = ("fedavg_adam", "fedconstraints")  # clients': Adam, and Frank-Wolfe steps
STRATEGIES = ("fedavg", "fedadam", "fedyogi", "fedadagrad", *OTHER_OPTIMISERS)
CLIENTS, SIZE = 10, 44_700_000  # bytes of ResNet18 in float32
PORT, LATENCY = 1e9, 1e-4  # bit/s and s of every port
# graphs/avg_fitdur_epoch_1.pdf of the set: s that each client's fit took, with its validation.
FIT = (
    7.618, 7.849, 4.921, 7.591, 7.812, 5.529, 6.993, 5.690, 8.417, 7.475,
)  # fmt: skip
TRAINED, VALIDATED, TESTED = 40_000, 10_000, 10_000  # rows of all clients, and of the server
KEYS = ["strategy", "epochs", "exp_id"]
ROUNDS = 2  # that are simulated: nothing is drawn, so that each is as long as the other


class Data(NamedTuple):
    """runs: a row for each of the 60; rounds: each of their rounds; hosts: each host of each."""

    runs: pd.DataFrame
    rounds: pd.DataFrame
    hosts: pd.DataFrame


class Cell(NamedTuple):
    """What is calibrated: s of an epoch of the slowest client, of its validation, of the server's.

    read: s in which a model is read; loads (clients,): rows relative to the slowest's; cold: s that
    the first round is longer; start: s before it; idle, training: W.
    """

    epoch: float
    validation: float
    read: float
    server: float
    loads: Array
    cold: float
    start: float
    idle: float
    training: float


# The data.


def read(folder: Path) -> Data:
    """The three tables that are needed, from wherever in the folder they are."""
    tables = []
    for name in ("global_summary", "server_round_summary", "hosts_summary"):
        found = sorted(folder.rglob(f"{name}.parquet"))
        if not found:
            raise SystemExit(f"{folder}: found no {name}.parquet; allowed: a copy of the data")
        table = pd.read_parquet(found[0])
        table["epochs"] = table["epoch"].str.removeprefix("epoch_").astype(int)
        tables.append(table)
    runs, rounds, hosts = tables
    began = rounds[rounds["round"] == 1].set_index(KEYS)["starttime"].rename("began")
    runs = runs.merge(began.reset_index(), on=KEYS)
    start = runs["timestamps.start_experiment"]
    runs["start"] = (runs["began"] - start).dt.total_seconds()
    met = runs["filtered_acc_centralized_time"] - runs["began"]
    runs["seconds"] = met.dt.total_seconds()
    runs["window"] = (runs["filtered_acc_distributed_time"] - start).dt.total_seconds()
    rounds["server"] = (rounds["evaluatestart"] - rounds["fitend"]).dt.total_seconds()
    return Data(runs, rounds, hosts.merge(runs[[*KEYS, "window"]], on=KEYS))


def of(table: pd.DataFrame, strategy: str, epochs: int) -> pd.DataFrame:
    """The rows of one cell."""
    return table[(table["strategy"] == strategy) & (table["epochs"] == epochs)]


# The twin, and its calibration from one cell.


def scenario(cell: Cell, epochs: int) -> dict[str, Any]:
    """Rounds of all clients behind the server's port, which both directions of messages share."""
    speeds = (1.0 / (cell.epoch * cell.loads)).tolist()
    link = {"bandwidth": PORT, "latency": LATENCY, "transport": "tcp"}
    own = {"epochs": epochs, "size": SIZE, "validation": cell.validation / cell.epoch}
    return {
        "name": f"grid5000-{epochs}",
        "plugins": ["flower_rounds.py"],
        "problem": {
            "agents": CLIENTS,
            "data": {"source": "synthetic", "kind": "regression", "rows": 1, "dim": 2},
            "loss": "squared",
            "regularizer": {"l2": 1.0},
        },
        "algorithm": {"name": "flower-rounds", **own},
        "network": {"link": link, "contention": "fair"},
        "compute": {
            "speed": speeds,
            "overhead": cell.read,
            "coordinator": {"number": cell.server / (CLIENTS * SIZE / 8)},
            "power": {"idle": cell.idle, "computing": cell.training},
        },
        "observe": {"metrics": []},
        "stop": {"rounds": ROUNDS},
    }


class Round(NamedTuple):
    """s of fit, of the clients' evaluation, and of a round; J of all clients: idle W, training."""

    fit: float
    evaluation: float
    whole: float
    idle: float
    training: float


def simulated(cell: Cell, epochs: int) -> Round:
    """A round of the twin."""
    run = desim.run(desim.load(scenario(cell, epochs), folder=Path(__file__).parent))
    events = run.events
    closed = events.loc[(events["kind"] == "aggregate") & (events["agent"] < 0), "seconds"]
    lasted = float(run.manifest["time"])
    joules = run.energy().groupby("cause")["joules"].sum()
    # Watts are those of training: models are read and rows validated at what a board takes idle.
    besides = 2 * (CLIENTS * cell.read + cell.validation * cell.loads.sum())
    return Round(
        float(closed.iloc[-2]), float(closed.iloc[-1]), lasted / ROUNDS,
        float(joules["idle"]) / lasted,
        float(joules["computing"]) / ROUNDS - cell.training * besides,
    )  # fmt: skip


def calibrated(data: Data) -> Cell:
    """What the one cell says of seconds and of watts.

    All boards are alike: the server tests TESTED rows, and reads a model, in the seconds of its
    evaluation, and a client validates its share of VALIDATED rows at that pace. So

        read + TESTED pace = server,  read + rows pace = call,  validation = rows pace

    where a call is what the twin's evaluation lacks without it, and rows are the slowest client's.
    """
    rounds, hosts = (of(table, *CALIBRATED) for table in (data.rounds, data.hosts))
    warm, first = rounds[rounds["round"] > 1], rounds[rounds["round"] == 1]
    cold = first["roundtime"].mean() - warm["roundtime"].mean()
    clients = hosts[hosts["role"] == "client"]
    watts = [
        (clients[f"{part}_J"] / clients["window"]).groupby(clients["hostname"]).mean().to_numpy()
        for part in ("energy", "gpu")
    ]
    idle = float(np.polynomial.polynomial.polyfit(watts[1], watts[0], 1)[0])  # where no GPU works
    start = of(data.runs, *CALIBRATED)["start"].mean()
    fit, server = np.array(FIT), float(warm["server"].mean())
    rows = VALIDATED * fit.max() / fit.sum()
    bare = Cell(fit.max(), 0.0, 0.0, server, fit / fit.max(), float(cold), float(start), idle, 1.0)
    call = warm["evaluatetime"].mean() - simulated(bare, 1).evaluation
    pace = (server - call) / (TESTED - rows)
    validation = float(rows * pace)
    cell = bare._replace(
        epoch=float(fit.max() - validation), validation=validation, read=float(call - validation)
    )
    runs, one = of(data.runs, *CALIBRATED), simulated(cell, 1)
    more = (runs["clients_J"] - CLIENTS * idle * runs["window"]).mean()
    done = runs["filtered_acc_distributed_round"].mean()
    return cell._replace(training=float(more / (done * one.training)))


# Measured beside predicted.


def predicted(data: Data, cell: Cell) -> pd.DataFrame:
    """A row for each cell; s from the first round to 75 % at the server, J of clients to clients'.

    Errors are relative; sd: of five repetitions.
    """
    twins = {epochs: simulated(cell, epochs) for epochs in (1, 5)}
    rows = []
    for strategy in STRATEGIES:
        for epochs, one in twins.items():
            runs, rounds = (of(table, strategy, epochs) for table in (data.runs, data.rounds))
            warm = rounds[rounds["round"] > 1]
            central = runs["filtered_acc_centralized_round"].mean()
            spread = runs["filtered_acc_distributed_round"].mean()
            seconds = cell.cold + (central - 1) * one.whole + one.fit + cell.server
            window = cell.start + cell.cold + spread * one.whole
            row = {
                "strategy": strategy, "epochs": epochs, "runs": len(runs),
                "round": warm["roundtime"].mean(), "round predicted": one.whole,
                "rounds": central, "seconds": runs["seconds"].mean(),
                "seconds sd": runs["seconds"].std(), "seconds predicted": seconds,
                "rounds to joules": spread, "kJ": runs["clients_J"].mean() / 1e3,
                "kJ sd": runs["clients_J"].std() / 1e3,
                "kJ predicted": (one.idle * window + one.training * spread) / 1e3,
            }  # fmt: skip
            for what in ("round", "seconds", "kJ"):
                row[f"{what} error"] = row[f"{what} predicted"] / row[what] - 1.0
            rows.append(row)
    return pd.DataFrame(rows)


def markdown(table: pd.DataFrame) -> str:
    """The table of the page."""
    head = (
        "strategy|epochs|round, s|predicted|rounds|s to 75 % (sd)|predicted|error|kJ (sd)|"
        "predicted|error"
    )
    lines = [f"| {' | '.join(head.split('|'))} |", "|---|--:|" + "--:|" * 9]
    for row in table.to_dict("records"):
        cells = [
            str(row["strategy"]), str(row["epochs"]), f"{row['round']:.2f}",
            f"{row['round predicted']:.2f}", f"{row['rounds']:.1f}",
            f"{row['seconds']:.0f} ({row['seconds sd']:.0f})", f"{row['seconds predicted']:.0f}",
            f"{100 * row['seconds error']:+.1f} %", f"{row['kJ']:.1f} ({row['kJ sd']:.1f})",
            f"{row['kJ predicted']:.1f}", f"{100 * row['kJ error']:+.1f} %",
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(table: pd.DataFrame) -> Mapping[str, float]:
    """Median and largest errors without the calibrated cell: of all, and of one optimiser."""
    others = table[(table["strategy"] != CALIBRATED[0]) | (table["epochs"] != CALIBRATED[1])]
    same = others[~others["strategy"].isin(OTHER_OPTIMISERS)]
    return {
        f"{name} {what} {how}": float(getattr(some[f"{what} error"].abs(), how)())
        for name, some in (("same optimiser", same), ("all", others))
        for what in ("seconds", "kJ")
        for how in ("median", "max")
    }


def main() -> None:
    """Read, calibrate, predict, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    data = read(parser.parse_args().folder)
    cell = calibrated(data)
    table = predicted(data, cell)
    table.round(6).to_csv(RESULTS, index=False)
    said = {name: round(one, 4) for name, one in cell._asdict().items() if name != "loads"}
    print(f"from {' '.join(map(str, CALIBRATED))}: {said}, loads {cell.loads.round(3).tolist()}")
    print(markdown(table))
    for name, one in verdict(table).items():
        print(f"{name}: {100 * one:.2f} %")


if __name__ == "__main__":
    main()
