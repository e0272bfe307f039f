"""What one run came to, as numbers: where it ended, and what it took until a target was met."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.log.rows import levels_with
from desim.problem.fairness import RISING
from desim.problem.targets import first_met
from desim.runs.reading.series import Meter, delivered
from desim.runs.run import NETWORK, Run

SPENT = ("time", "rounds", "bytes", "epsilon")  # what it takes until a target
UNBOUNDED = ("loss", "error", "consensus", "gradient")  # metrics that grow with the models
UNITS = {"time": "s", "bytes": "B", "wall": "s"}


@dataclass(frozen=True)
class Asked:
    """targets: (metric, value) pairs; epsilon: its terms, None where no epsilon is wanted.

    stays: a target counts as met from when on it is met to the end.
    """

    targets: tuple[tuple[str, float], ...] = ()
    epsilon: Mapping[str, Any] | None = field(default_factory=dict)
    stays: bool = False

    def until(self, kind: str, metric: str, value: float) -> str:
        """The name of a measure: time to accuracy 0.93, or time to accuracy 0.93 for good."""
        return f"{kind} to {metric} {value:g}" + " for good" * self.stays


def unit(measure: str) -> str:
    """The unit of a measure, "" for none."""
    return UNITS.get(measure.partition(" ")[0], "")


def rises(measure: str) -> bool:
    """Whether more of a measure is better: of accuracies at the end, not of what is spent."""
    return measure.removeprefix("final ") in RISING


def measured(run: Run, asked: Asked) -> dict[str, float]:
    """Numbers of a run by name; inf until a target that was never met, nan where undefined.

    time s, rounds, bytes delivered and epsilon (of the agent that spends most) at the end and until
    each target; `final` values of the network's metrics; wall s, without compiling. Targets are met
    as in `Run.time_to`; the epsilon is left out where the scenario states no privacy, and also
    infinite where a target was met with none that is finite. Final losses and distances of a run
    that says it has diverged are infinite.
    """
    manifest = run.manifest
    found = _ended(run)
    compiling = float(manifest.get("compile_seconds", 0.0))
    found["wall"] = float(manifest.get("wall_seconds", np.nan)) - compiling
    curves = curves_of(run)
    found |= {f"final {name}": float(rows[2, -1]) for name, rows in curves.items()}
    if manifest.get("diverged"):  # a number that only says when the run was over
        found |= {f"final {name}": np.inf for name in UNBOUNDED if name in curves}
    counted = manifest.get("counts", {}).get("deliver_bytes")
    sent = _sent(run) if asked.targets or counted is None else None
    if counted is None and sent is not None:  # killed
        counted = sent.totals.max(initial=0.0)
    found["bytes"] = np.nan if counted is None else float(counted)
    spent = _spent(run, asked)
    if spent is not None:
        found["epsilon"] = float(spent.totals.max(initial=0.0))
    for metric, value in asked.targets:
        when, rounds = _first(curves.get(metric), metric, value, asked.stays)
        found[asked.until("time", metric, value)] = when
        found[asked.until("rounds", metric, value)] = rounds
        found[asked.until("bytes", metric, value)] = _by(sent, when)
        if spent is not None:
            found[asked.until("epsilon", metric, value)] = _by(spent, when)
    return found


def _ended(run: Run) -> dict[str, float]:
    """Time s and rounds at the end; of a run that was killed, as far as its log goes."""
    if "time" in run.manifest:
        return {"time": float(run.manifest["time"]), "rounds": float(run.manifest["rounds"])}
    times = run.store.table("events", ["time"])["time"]
    rounds = run.metrics.loc[run.metrics["agent"] == NETWORK, "round"]
    return {"time": float(times.max() if len(times) else 0.0), "rounds": float(rounds.max())}


def curves_of(run: Run) -> dict[str, Array]:
    """(3, n) times s, rounds and values of each metric of the whole network, in order of time."""
    rows = run.store.columns("metrics", ["time", "round", "metric", "agent", "value"])
    of_all = rows["agent"] == NETWORK
    numbers = np.array([rows[name][of_all] for name in ("time", "round", "value")], float)
    codes, words = rows["metric"].codes[of_all], rows["metric"].words
    found = {words[code]: numbers[:, codes == code] for code in np.unique(codes)}
    return dict(sorted(found.items()))


def _first(
    curve: Array | None, metric: str, value: float, stays: bool = False
) -> tuple[float, float]:
    """Time s and round at which the target is met; inf where it never is."""
    if curve is None:  # the run ended before it was measured at all
        return float("inf"), float("inf")
    place = first_met(metric, curve[2], value, stays)
    return (float(curve[0, place]), float(curve[1, place])) if place >= 0 else (np.inf, np.inf)


def _sent(run: Run) -> Meter | None:
    """Bytes delivered; None where the log leaves messages out."""
    return delivered(run) if run.scenario.log in levels_with(["deliver"]) else None


def _spent(run: Run, asked: Asked) -> Meter | None:
    """The largest epsilon of an agent; None where none is wanted."""
    if asked.epsilon is None or (run.scenario.privacy is None and not asked.epsilon):
        return None
    return Meter(*run.account(**asked.epsilon).growth)


def _by(meter: Meter | None, when: float) -> float:
    """What was spent by a time; inf for never, nan where that is not known."""
    if meter is None:
        return float("nan")
    return float(meter.by(when)) if np.isfinite(when) else float("inf")
