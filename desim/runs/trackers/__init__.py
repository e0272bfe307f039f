"""Trackers: what TensorBoard or MLflow is told of a run, while it plays or once it is stored.

A tracker is no part of a scenario: it hears rows of metrics, never what happens inside rounds, so
that a run has the same bits with it. What can be known to fail is refused before the run begins;
what fails later (a full disk) ends the tracker, with a warning, and never the run.
"""

import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import copy
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from desim.agent_names import NETWORK
from desim.engine.signals import Listener
from desim.errors import InputError, refusal
from desim.loggers import logger
from desim.runs.reading.series import leaves
from desim.runs.run import Run
from desim.runs.trackers.so_far import SoFar, meters, spent

heard = logger("trackers")
MAX_LETTERS = 500  # of a parameter
EXACT = 1 << 53  # up to which TensorBoard, whose parameters are floats, has whole numbers
HEAD = ("seed", "engine", "scenario_sha256", "problem_sha256")  # of the manifest


class Value(NamedTuple):
    """A scalar at a time in virtual seconds, and in a round."""

    name: str
    time: float
    round: int
    value: float


class Tracker(Listener):
    """Hears the metrics of the whole network; a subclass writes them for another program.

    Each run that it follows begins with `begins` and ends with `ends`. Of a member of a group, a
    run of a study, nothing is refused, and who has the study says what could not be written.
    """

    title = ""  # of its runs; as their directory where it is empty
    group = ""  # whose member its run is, as `begins_group` called it
    values: Mapping[str, Any] = {}  # of a member, what varies in its group
    lost = ""  # why nothing is written of this run any more
    arguments: tuple[str, ...] = ()  # attributes that say where it writes, and not what

    def begins(self, title: str, parameters: Mapping[str, Any]) -> None:
        """A run of this title begins; parameters: numbers and texts by dotted key.

        InputError where it is known already that nothing can be written.
        """
        raise NotImplementedError

    def writes(self, values: Sequence[Value]) -> None:
        """Scalars of the run, of each name in order of time."""
        raise NotImplementedError

    def ends(self, status: str, reason: str) -> None:
        """The run is done, stopped or failed, or is left as `interrupted`."""
        raise NotImplementedError

    def begins_group(
        self, title: str, parameters: Mapping[str, Any], varied: Mapping[str, Sequence[Any]],
        metrics: Sequence[str],
    ) -> str:  # fmt: skip
        """A study begins, whose runs will be members of what is returned.

        varied: values by key; metrics: what all of them measure. InputError as `begins`.
        """
        return title

    def ends_group(self) -> None:
        """The study is over, or stopped."""

    def afresh(self, title: str = "", group: str = "", values: Mapping[str, Any] = {}) -> Self:
        """Another one that writes to the same place, and has written nothing yet."""
        other = copy(self)
        other.__dict__ = {name: getattr(self, name) for name in self.arguments}
        other.title, other.group, other.values = title, group, dict(values)
        return other

    def follow(self, run: Run) -> None:
        """Write a run that is over; `lost` says what could not be written."""
        self.opened(run)
        rows = run.metrics
        self.rows("metrics", {str(name): np.array(rows[name].tolist()) for name in rows})
        self.stored(run)

    def opened(self, run: Run) -> None:
        """Begin with a run; InputError where it is known already that nothing can be written."""
        self.lost = ""
        self.instants: dict[float, int] = {}  # rounds of the times s at which something is measured
        path = run.directory
        title = self.title or (run.name if path is None else path.resolve().name)
        self.meters: list[SoFar] = meters(run)
        found = {**self.values, **parameters(run.manifest, run.written)}
        if not self.group:
            self.begins(title, found)
            return
        with self.forgiven():
            self.begins(title, found)

    def rows(self, table: str, columns: Mapping[str, Any]) -> None:
        """Metrics of the network, as they are measured, and what was spent by then if known."""
        if self.lost:
            return
        with self.forgiven():
            for meter in self.meters:
                meter.take(table, columns)
            if table != "metrics":
                return
            names = ("metric", "time", "round", "value", "agent")
            every = zip(*(_plain(columns[one]) for one in names), strict=True)
            values = [Value(str(name), *rest) for name, *rest, agent in every if agent == NETWORK]
            self.instants |= {one.time: one.round for one in values}
            for meter in self.meters:
                values += self._known(meter)
            self.writes(values)

    def _known(self, meter: SoFar) -> list[Value]:
        """What was spent by instants that nothing was told of yet."""
        since = [*self.instants][len(meter.values) :]
        times = [time for time in since if time < meter.known]
        totals = meter.totals(np.array(times)).tolist() if times else []
        meter.values += totals
        return [
            Value(meter.name, time, self.instants[time], one)
            for time, one in zip(times, totals, strict=False)
        ]

    def stored(self, run: Run) -> None:
        """Write what is not known before a run is over, unless it was killed."""
        if self.lost:
            return
        with self.forgiven():
            if run.status == "running":
                self.ends("interrupted", "")
                return
            self.writes([*self._spent(run), *self._said(run)])
            self.ends(run.status, str(run.manifest.get("reason", "")))

    def _spent(self, run: Run) -> Iterator[Value]:
        """The rest of what it had spent by each instant, from the whole run."""
        times, known = np.array([*self.instants]), {one.name: one.values for one in self.meters}
        for name, totals in spent(run).items():
            every, before = totals(times).tolist(), known.get(name, [])
            if before != every[: len(before)]:
                text = "%s: %s: all of the run says more than was known while it played"
                heard.warning(text, run.name, name)
                name, before = f"{name}/of the whole run", []
            for time, total in list(zip(times.tolist(), every, strict=True))[len(before) :]:
                yield Value(name, time, self.instants[time], total)

    def _said(self, run: Run) -> Iterator[Value]:
        """Numbers by round that listeners have said, such as what a Flower server measures."""
        when = {round_: time for time, round_ in reversed(self.instants.items())}
        for listener, said in run.listeners.items():
            rounds = said.get("rounds")
            for one in rounds if isinstance(rounds, list) else ():
                round_ = one.get("round") if isinstance(one, Mapping) else None
                if round_ in when:
                    for name, value in one.items():
                        if name != "round" and type(value) in (int, float):
                            yield Value(f"{listener}/{name}", when[round_], round_, float(value))

    @contextmanager
    def forgiven(self) -> Iterator[None]:
        """What fails here ends the tracker, and not the run."""
        try:
            yield
        except Exception as error:
            self.lost = (str(error).strip() or type(error).__name__).splitlines()[0]
            text = "%s: %s; nothing more of the run is written there, and the run goes on"
            if not self.group:
                heard.warning(text, type(self).__name__, self.lost)
            with suppress(Exception):
                self.ends("interrupted", "")


def _plain(column: Any) -> Any:
    """A column as Python's own numbers or texts."""
    if hasattr(column, "words"):
        return [column.words[code] for code in column.codes]
    return column.tolist()


def parameters(head: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario by dotted key, seed and versions: numbers and booleans, the rest as text."""
    found = {".".join(place): parameter(one) for place, one in leaves(written)}
    found |= {name: parameter(head[name]) for name in HEAD if name in head}
    return found | {f"version.{name}": str(one) for name, one in head["versions"].items()}


def parameter(value: Any) -> Any:
    """A number or a boolean as it is, all else as text."""
    if isinstance(value, int) and abs(value) <= EXACT:
        return value
    if isinstance(value, float) and math.isfinite(value):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= MAX_LETTERS else f"{text[: MAX_LETTERS - 3]}..."


def require_trackers(trackers: Sequence[Tracker]) -> None:
    """InputError for what is no list of trackers."""
    if not isinstance(trackers, Sequence) or not all(isinstance(one, Tracker) for one in trackers):
        allowed = "a list, of desim.TensorBoard(...) and desim.MLflow(...)"
        raise InputError(f"trackers: {refusal(trackers, allowed)}")


def tell(tracker: Tracker, run: Run, title: str) -> None:
    """Tell a tracker of a run that is over; InputError where it cannot write all of it."""
    tracker.title = title
    tracker.follow(run)
    if tracker.lost:
        raise InputError(f"export: {type(tracker).__name__}: {tracker.lost}")


def writable(folder: Path, what: str) -> Path:
    """The folder, which is made where it is not there; InputError where nothing can be written."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{what}: {folder}: is a file; allowed: a folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        why = error.strerror or str(error)
        raise InputError(f"{what}: {folder}: cannot be written ({why})") from None
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"{what}: {folder}: cannot be written; allowed: a folder that can")
    return folder
