"""Expected running times, success rates and distribution functions by cocopp, from the same runs.

python -m analysis.studies.coco        # needs cocopp and six; writes tests/golden/coco.json

cocopp counts evaluations: here a run spends microseconds, rounded, and its error is the function's
value. Runs go to cocopp in the data files of COCO's experiments; the targets are among those at
which cocopp aligns runs, powers of 10^(1/5). Where it draws runs at random, it is handed desim's
indices, so that its simulated restarts are the same ones.
"""

import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.experiments.studies.answers import draws

GOLDEN = Path(__file__).parents[2] / "tests" / "golden" / "coco.json"
EXPONENTS = (0, -4, -8, -12)  # of targets: 10^(i/5)
SCALE = 1e6  # microseconds
Run = Mapping[str, Any]  # method, problem, seed, curve: pairs (spent, value), end


def targets() -> list[float]:
    """The targets, the easiest first."""
    return [float(np.power(10, i / 5.0)) for i in EXPONENTS]


def runs() -> list[Run]:
    """Runs of a small study: two methods on two networks, ten seeds, ended after a while."""
    from desim.experiments.studies.study import study

    base = {
        "problem": {
            "agents": 4, "loss": "logistic", "regularizer": {"l2": 1.0},
            "data": {"source": "synthetic", "kind": "classification", "rows": 10, "dim": 3},
        },
        "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "gradient"}},
        "compute": {"speed": {"lognormal": ["100 /s", 1.0]}},
        "observe": {"metrics": ["error"]}, "stop": {"rounds": 60, "time": "2.5 s"},
    }  # fmt: skip
    grid = {
        "algorithm.local.epochs": [1, 3], "network.link.latency": ["10 ms", "100 ms"],
        "seed": ["0..9"],
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        made = study({"name": "coco", "base": base, "grid": grid}, folder, workers=0)
        return [
            {
                "method": f"epochs {row['algorithm.local.epochs']}",
                "problem": f"latency {row['network.link.latency']}",
                "seed": int(row["seed"]),
                "curve": _improvements(made.run(row["run"]).curve("error")),
                "end": round(SCALE * row["time"]),
            }
            for row in made.runs.to_dict("records")
        ]


def _improvements(curve: Any) -> list[tuple[int, float]]:
    """What was spent whenever the value was better than ever before; evaluations begin at 1."""
    found: list[tuple[int, float]] = []
    for when, value in zip(curve["time"], curve["value"], strict=True):
        if not found or value < found[-1][1]:
            found.append((max(round(SCALE * when), 1), float(value)))
    return found


def by_cocopp(given: Sequence[Run]) -> list[dict[str, Any]]:
    """What cocopp makes of runs, a record for each method and problem; lists over the targets.

    evals (targets, runs), None where a run did not meet it; ert, None for infinite; rates; sp: of
    its toolsstats; simulated: every tenth value in order, none where no run met it.
    """
    found = []
    cells: dict[tuple[str, str], list[Run]] = {}
    for run in given:
        cells.setdefault((run["method"], run["problem"]), []).append(run)
    for (method, problem), own in cells.items():
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it looks for its archive on the network
            data = _read(_written(Path(folder), own))
            found.append({"method": method, "problem": problem, **_numbers(data)})
    return found


def _written(folder: Path, own: Sequence[Run]) -> Path:
    """COCO's data files of runs on one problem; the path of the index."""
    (folder / "data_f1").mkdir()
    lines = []
    for number, run in enumerate(own, 1):
        lines.append(f"% function eval | instance = {number}\n")
        points = [*run["curve"], (run["end"], run["curve"][-1][1])]
        lines += [f"{n} 0 {value!r} {value!r} {value!r} 0 0\n" for n, value in points]
    for ending in ("dat", "tdat"):
        (folder / "data_f1" / f"bbobexp_f1_DIM2.{ending}").write_text("".join(lines))
    ends = ", ".join(f"{k}:{run['end']}|{run['curve'][-1][1]!r}" for k, run in enumerate(own, 1))
    index = folder / "bbobexp_f1.info"
    head = "suite = 'bbob', funcId = 1, DIM = 2, Precision = 1.000e-08, algId = 'desim'"
    index.write_text(f"{head}\n% runs of desim\ndata_f1/bbobexp_f1_DIM2.dat, {ends}\n")
    return index


def _read(index: Path) -> Any:
    from cocopp import genericsettings, pproc

    genericsettings.verbose = 0
    header, comment, data = index.read_text().splitlines()
    return pproc.DataSet(header, comment, data, str(index))


def _numbers(data: Any) -> dict[str, Any]:
    from cocopp import toolsstats

    wanted = targets()
    evals = data.detEvals(wanted)
    rates = data.detSuccessRates(wanted)
    completed = [np.where(np.isnan(one), data.maxevals, one) for one in evals]
    simulated = [_simulated(data, target) for target in wanted]
    return {
        "evals": [[None if np.isnan(one) else int(one) for one in row] for row in evals],
        "ert": [_plain(one) for one in data.detERT(wanted)],
        "rates": [float(one) for one in rates],
        "sp": [
            [_plain(one) for one in toolsstats.sp(all_, issuccessful=~np.isnan(row))]
            for all_, row in zip(completed, evals, strict=True)
        ],
        "simulated": [sparse(one) for one in simulated],
    }


def _plain(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def sparse(values: Array) -> list[float]:
    """Every tenth of the simulated values in order, and the last; nothing where none was met."""
    known = np.sort(values[np.isfinite(values)])
    return [float(one) for one in [*known[::10], *known[-1:]]]


def _simulated(data: Any, target: float) -> Array:
    """Cocopp's simulated restarts, with desim's indices in place of its random ones."""
    signed = data.detEvals([target], complement_unsuccessful=-1)[0]
    chosen = Indices(signed, draws(len(signed)))
    size = len(next(draws(len(signed))))
    found = data.evals_with_simulated_restarts(
        [target], samplesize=size, randintfirst=chosen.first, randintrest=chosen.rest
    )
    return np.asarray(found[0])


class Indices:
    """Indices of runs as desim draws them, as cocopp asks for them: in its order, of those failing.

    signed (n,): what runs spent, below 0 for those that did not meet the target.
    """

    def __init__(self, signed: Array, drawn: Iterator[Int]) -> None:
        self.met, self.drawn = signed > 0, drawn
        mixed = bool(self.met.any() and not self.met.all())  # only then it sorts them
        order = np.argsort(signed)[::-1] if mixed else np.arange(len(signed))
        self.place = np.argsort(order)
        self.going = np.empty(0, np.int64)

    def first(self, low: int, high: int, size: int) -> Int:
        """The first run of each simulated one."""
        own = next(self.drawn)
        assert (low, high, size) == (0, len(self.met), len(own))
        self.going = np.flatnonzero(~self.met[own])
        return self.place[own]

    def rest(self, low: int, high: int, size: int) -> Int:
        """The next run of those that have not met the target yet."""
        own = next(self.drawn)[self.going]
        assert (low, high, size) == (0, len(self.met), len(own))
        self.going = self.going[~self.met[own]]
        return self.place[own]


def main() -> None:
    """Play, ask cocopp and write."""
    given = runs()
    found = {"targets": targets(), "runs": given, "cocopp": by_cocopp(given)}
    GOLDEN.write_text(json.dumps(found) + "\n", "utf-8")


if __name__ == "__main__":
    main()
