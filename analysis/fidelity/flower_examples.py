"""Flower's own public examples under desim's clock, beside Flower's strategies without it.

    python -m analysis.fidelity.flower_examples FOLDER

FOLDER: a copy of github.com/adap/flower (https://github.com/flwrlabs/flower); no file of it is
here, and none is changed. Each example is played in a process of its own, in a folder where
`flower_data` has put what the examples would load from Hugging Face: first with all replies waited
for, then with a deadline of half the longest wait. Beside each run the same app goes through
Flower's own strategies on a Grid without a clock (`flower_lockstep`), with the seeds, and the
replies, that it had under desim; models are compared. It writes them to
`measured/flower_examples.csv`; the page `flower_examples.md` has what plays of single examples
(`--only`) printed.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

RESULTS = Path(__file__).parent / "measured" / "flower_examples.csv"
PHONES: Mapping[str, Any] = {
    "seed": 1, "network": "4g", "compute": {"speed": {"lognormal": ["300 /s", 1.0]}},
}  # fmt: skip
LIMIT = 900  # s that an example may take on this machine
COLUMNS = (
    "example", "api", "data", "nodes", "ran", "why", "rounds", "messages", "bytes", "seconds",
    "difference", "deadline", "seconds_deadline", "replies", "difference_deadline", "wall",
)  # fmt: skip


class Case(NamedTuple):
    """An example: where it is, which kind of interface and data it has, and how it is played.

    config: KEY=VALUE of its configuration that are overridden, to have it end on this machine;
    keys: of the scenario; deadline: s, of an app that gives replies a time of its own.
    """

    folder: str
    api: str
    data: str
    nodes: int = 10
    config: tuple[str, ...] = ()
    keys: Mapping[str, Any] = {}
    deadline: float | None = None

    @property
    def name(self) -> str:
        """What it is called in the table."""
        return self.folder.split("/")[-1]


NEW, CLASSIC = "messages, strategy", "NumPyClient, server_fn"
MASKED, QUERY = "NumPyClient, workflow, SecAgg+", "messages, own loop"
CASES = (
    Case("examples/quickstart-numpy", NEW, "none"),
    Case("examples/quickstart-sklearn", NEW, "iris"),
    Case("examples/quickstart-pandas", QUERY, "iris"),
    Case("examples/federated-kaplan-meier-fitter", QUERY, "in lifelines", nodes=2),
    Case("examples/fl-tabular", NEW, "stand-in"),
    Case("examples/quickstart-pytorch", NEW, "stand-in"),
    Case("examples/quickstart-jax", NEW, "stand-in"),
    Case("examples/custom-mods", f"{NEW}, mods of its own", "stand-in"),
    Case("examples/federated-vae", NEW, "stand-in"),
    Case("examples/opacus", f"{NEW}, DP-SGD", "stand-in"),
    Case("examples/advanced-pytorch", f"{NEW} with a loop of its own", "stand-in",
         config=("num-server-rounds=4",)),
    Case("examples/flower-secure-aggregation", MASKED, "none", nodes=5, deadline=2.0,
         config=("timeout=2.0",),
         keys={"algorithm": {"name": "flower", "work": "measured", "times": "secure.json"},
               "compute": {"speed": "1 /s"}}),
    Case("examples/fl-dp-sa", f"{MASKED}, noise", "stand-in", config=("num-sampled-clients=10",)),
    Case("examples/vertical-fl", QUERY, "stand-in", nodes=3, config=("num-server-rounds=10",)),
    Case("examples/quickstart-xgboost", f"{NEW}, trees", "stand-in",
         config=("fraction-train=1.0", "fraction-evaluate=1.0", "params.nthread=1")),
    Case("baselines/fedprox", CLASSIC, "stand-in",
         config=("algorithm.num-server-rounds=3", "algorithm.fraction-fit=1.0",
                 "algorithm.min-available-clients=10", "algorithm.num-clients=10",
                 "algorithm.local-epochs=2", "dataset.sigma=0.5")),
)  # fmt: skip


# One example, in its own process.


def play(folder: Path, case: Case, policy: Any) -> tuple[Any, Any, float]:
    """A run, what its nodes drew and which replies came, and the wall seconds it took."""
    import desim
    from analysis.fidelity.flower_lockstep import recorded
    from desim.flower.asked import app_of, keys

    words = [str(folder / case.folder)]
    own = keys(app_of(words, case.config), words, case.config, case.nodes, None, PHONES["seed"])
    scenario = {**PHONES, **own, **case.keys, "policy": policy}
    with recorded() as tape:
        begun = time.perf_counter()
        run = desim.run(scenario)
        return run, tape, time.perf_counter() - begun


def difference(folder: Path, case: Case, run: Any, tape: Any) -> float | None:
    """The largest difference of a run's last model to Flower's own, relative to its largest number.

    None where the app has no model.
    """
    from analysis.fidelity.flower_lockstep import final
    from desim.flower.asked import app_of

    app = app_of([str(folder / case.folder)], case.config)
    expected = final(app, case.nodes, PHONES["seed"], tape)
    if expected is None:
        return None
    ours = np.asarray(run.model[-1]).ravel()
    if ours.shape != expected.shape:
        raise ValueError(f"a model of {len(ours)} numbers, Flower's has {len(expected)}")
    return float(np.abs(ours - expected).max() / max(np.abs(expected).max(), 1e-300))


def waits(run: Any) -> Any:
    """The collections of a run: rows of events."""
    return run.events[run.events["kind"] == "aggregate"]


def row(folder: Path, case: Case) -> dict[str, Any]:
    """What was measured of an example; why, for one that did not run."""
    known: dict[str, Any] = {
        "example": case.name, "api": case.api, "data": case.data, "nodes": case.nodes,
    }  # fmt: skip
    try:
        if case.deadline is None:
            run, tape, known["wall"] = play(folder, case, "all")
            sent = run.events[run.events["kind"] == "send"]
            known |= {
                "rounds": run.manifest["rounds"], "messages": len(sent),
                "bytes": int(sent["bytes"].sum()), "seconds": float(run.manifest["time"]),
                "difference": difference(folder, case, run, tape),
            }  # fmt: skip
        limit = case.deadline or float(f"{waits(run)['seconds'].max() / 2:.2g}")
        run, tape, wall = play(folder, case, {"deadline": limit})
        known.setdefault("wall", wall)
        known |= {
            "deadline": limit, "seconds_deadline": float(run.manifest["time"]),
            "replies": tape.share(), "difference_deadline": difference(folder, case, run, tape),
            "rounds": run.manifest["rounds"],
        }  # fmt: skip
        known |= {"ran": "yes", "why": ""}
    except Exception as error:
        why = " ".join(str(error).split("\n")[0].split()).replace(str(folder), "")
        known |= {"ran": "with all" if "seconds" in known else "no", "why": why[:300]}
    return known


# All of them, a process each.


def apart(folder: Path, case: Case, stage: Path) -> dict[str, Any]:
    """The row of an example that is played in a process of its own, in the folder `stage`."""
    file = stage / f"{case.name}.json"
    words = [sys.executable, "-m", __spec__.name, str(folder), "--row", case.name, str(file)]
    root = str(Path(__file__).parents[2])
    paths = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    offline = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(stage / "hf"), "WANDB_MODE": "disabled"}
    environment = {**os.environ, **offline, "PYTHONPATH": paths}
    try:
        done = subprocess.run(
            words, cwd=stage, env=environment, capture_output=True, text=True, timeout=LIMIT,
            check=False,
        )  # fmt: skip
        if file.exists():
            found: dict[str, Any] = json.loads(file.read_text("utf-8"))
            return found
        why = (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1]
    except subprocess.TimeoutExpired:
        why = f"took more than {LIMIT} s"
    return {"example": case.name, "api": case.api, "ran": "no", "why": why}


def markdown(table: pd.DataFrame) -> str:
    """The table of the page."""
    head = (
        "example", "interface", "data", "nodes", "ran", "rounds", "virtual s, all", "MB",
        "difference", "deadline, s", "virtual s", "replies", "difference", "wall s",
    )  # fmt: skip
    lines = [f"| {' | '.join(head)} |", "|---|---|---|--:|---|" + "--:|" * (len(head) - 5)]
    for one in table.to_dict("records"):
        cells = [
            one["example"], one["api"], one["data"], _number(one["nodes"], ".0f"),
            one["ran"] if one["ran"] == "yes" else f"{one['ran']}: {one['why']}",
            _number(one["rounds"], ".0f"), _number(one["seconds"], ".2f"),
            _number(one["bytes"] / 1e6, ".3g"), _number(one["difference"], ".1e"),
            _number(one["deadline"], ".2g"), _number(one["seconds_deadline"], ".2f"),
            _number(100 * one["replies"], ".0f"), _number(one["difference_deadline"], ".1e"),
            _number(one["wall"], ".1f"),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _number(value: Any, form: str) -> str:
    return "" if value is None or np.isnan(float(value)) else format(float(value), form)


def tabled(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """The table of all rows: columns that nobody has are empty."""
    table = pd.DataFrame(list(rows)).reindex(columns=list(COLUMNS))
    words = {"example", "api", "data", "ran", "why"}
    numbers = [one for one in COLUMNS if one not in words]
    table[numbers] = table[numbers].astype(float)
    return table


def main() -> None:
    """Play each, write the table, print it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", metavar="NAME", action="append", help="of these alone; no file")
    parser.add_argument("--row", metavar=("NAME", "FILE"), nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    folder, by_name = asked.folder.resolve(), {one.name: one for one in CASES}
    if asked.row:
        name, file = asked.row
        Path(file).write_text(json.dumps(row(folder, by_name[name])), "utf-8")
        return
    if missing := {*(asked.only or ())} - {*by_name}:
        raise SystemExit(f"found {', '.join(sorted(missing))}; allowed: {', '.join(by_name)}")
    from analysis.fidelity.flower_data import written

    rows = []
    with tempfile.TemporaryDirectory() as place:
        written(Path(place))
        for case in CASES:
            if not asked.only or case.name in asked.only:
                rows.append(apart(folder, case, Path(place)))
                print(json.dumps(rows[-1]), flush=True)
    table = tabled(rows)
    if not asked.only:
        table.to_csv(RESULTS, index=False, float_format="%.6g")
    print(markdown(table))


if __name__ == "__main__":
    main()
