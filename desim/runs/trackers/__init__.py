"""Trackers: what TensorBoard or MLflow is told of a run, while it plays or once it is stored.

A tracker is no part of a scenario: it hears rows of metrics, never what happens inside rounds, so
that a run has the same bits with it. What can be known to fail is refused before the run begins;
what fails later (a full disk) ends the tracker, with a warning, and never the run.
"""

import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from desim.agent_names import NETWORK
from desim.arrays import Array
from desim.engine.signals import Listener
from desim.errors import DesimError, InputError, refusal
from desim.loggers import logger
from desim.runs.reading.series import Meter, delivered, leaves
from desim.runs.run import Run

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

    Each run that it follows begins with `begins` and ends with `ends`.
    """

    title = ""  # of its runs; as their directory where it is empty
    lost = ""  # why nothing is written of this run any more

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

    def opened(self, run: Run) -> None:
        """Begin with a run; InputError where it is known already that nothing can be written."""
        self.lost = ""
        self.instants: dict[float, int] = {}  # rounds of the times s at which something is measured
        path = run.directory
        title = self.title or (run.name if path is None else path.resolve().name)
        self.begins(title, parameters(run.manifest, run.written))

    def rows(self, table: str, columns: Mapping[str, Any]) -> None:
        """Metrics of the network, as they are measured."""
        if table != "metrics" or self.lost:
            return
        names = ("metric", "time", "round", "value", "agent")
        every = zip(*(_plain(columns[one]) for one in names), strict=True)
        values = [Value(str(name), *rest) for name, *rest, agent in every if agent == NETWORK]
        self.instants |= {one.time: one.round for one in values}
        with self.forgiven():
            self.writes(values)

    def stored(self, run: Run) -> None:
        """Write what the run had spent whenever something was measured, unless it was killed."""
        if self.lost:
            return
        with self.forgiven():
            if run.status == "running":
                self.ends("interrupted", "")
                return
            self.writes([*self._spent(run)])
            self.ends(run.status, str(run.manifest.get("reason", "")))

    def _spent(self, run: Run) -> Iterator[Value]:
        times = np.array(sorted(self.instants))
        for name, totals in spent(run).items():
            for time, total in zip(times.tolist(), totals(times).tolist(), strict=True):
                yield Value(name, time, self.instants[time], total)

    @contextmanager
    def forgiven(self) -> Iterator[None]:
        """What fails here ends the tracker, and not the run."""
        try:
            yield
        except Exception as error:
            self.lost = str(error).strip() or type(error).__name__
            text = "%s: %s; nothing more of the run is written there, and the run goes on"
            heard.warning(text, type(self).__name__, self.lost.splitlines()[0])
            with suppress(Exception):
                self.ends("interrupted", "")


def _plain(column: Any) -> Any:
    """A column as Python's own numbers or texts."""
    if hasattr(column, "words"):
        return [column.words[code] for code in column.codes]
    return column.tolist()


def spent(run: Run) -> dict[str, Callable[[Array], Array]]:
    """What a run had spent by times (n,) s, by name: bytes, joules, and epsilon with its terms."""
    found: dict[str, Callable[[Array], Array]] = {}
    try:
        found["bytes delivered"] = delivered(run).by
    except InputError:
        heard.info("%s: no bytes: the log leaves messages out", run.name)
    if run.powered:
        found["joules"] = run.joules_by
    try:
        if (run.written.get("privacy") or {}) and len(run.manifest["rows"]):
            account = run.account()
            view, terms = account.view, f"delta {account.delta:g}/{account.method}"
            name = f"epsilon/{view}/{account.unit}/{account.relation}/{terms}"
            found[re.sub(r"[^\w\-. /:]", "-", name)] = Meter(*account.growth).by
    except DesimError as error:
        heard.info("%s: no epsilon: %s", run.name, error)
    return found


def parameters(head: Mapping[str, Any], written: Mapping[str, Any]) -> dict[str, Any]:
    """The scenario by dotted key, seed and versions: numbers and booleans, the rest as text."""
    found = {".".join(place): _parameter(one) for place, one in leaves(written)}
    found |= {name: _parameter(head[name]) for name in HEAD if name in head}
    return found | {f"version.{name}": str(one) for name, one in head["versions"].items()}


def _parameter(value: Any) -> Any:
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
    tracker.opened(run)
    rows = run.metrics
    tracker.rows("metrics", {str(name): np.array(rows[name].tolist()) for name in rows})
    tracker.stored(run)
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
