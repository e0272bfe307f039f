"""MLflow's runs, by its own client: in a folder of files, a database, or on a server.

The step of a point is its round, and its time stamp the virtual time in ms, so that the axis
`time (relative)` is virtual time; the metric `virtual seconds` has it exactly.
"""

import os
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from desim.errors import InputError, require
from desim.runs.trackers import Tracker, Value, writable

AT_ONCE = {"metrics": 1000, "params": 100}  # that one message to MLflow may have
CLOCK = "virtual seconds"
PARENT = "mlflow.parentRunId"  # by which MLflow nests a run in another one
STATES = {"done": "FINISHED", "failed": "FAILED"}  # of others KILLED
# A folder of files, which MLflow 3.7 refuses unless this asks for it; and nothing is sent anywhere.
ASKED = {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}


class MLflow(Tracker):
    """Writes each run as one of an experiment, in `place`: a folder, or what MLflow tracks by.

    place: a folder, or an address such as sqlite:///mlflow.db (which needs all of MLflow) or
    http://127.0.0.1:5000; experiment: its name, default the scenario's, or the study's, whose runs
    are nested in one. Metrics are written as the run plays, and so are bytes and an epsilon that
    is exact; all else that was spent by then when it is over. InputError without the extra
    desim[mlflow], or where nothing can be written.
    """

    arguments = ("place", "experiment")

    def __init__(self, place: str | Path, experiment: str | None = None) -> None:
        require("MLflow", "mlflow", "mlflow")
        self.place, self.experiment = str(place), experiment

    def begins(self, title: str, parameters: Mapping[str, Any]) -> None:
        """A new run of the experiment, with its parameters; of a study nested in the study's."""
        self.clocked = set[float]()
        experiment, _, parent = self.group.rpartition("/")
        tags = {PARENT: parent} if parent else {}
        name = experiment or self.experiment or str(parameters.get("name", title))
        self._begin(title, name, parameters, tags)

    def begins_group(
        self, title: str, parameters: Mapping[str, Any], varied: Mapping[str, Sequence[Any]],
        metrics: Sequence[str],
    ) -> str:  # fmt: skip
        """A run for the study, in which its runs are nested; its parameters say what varies."""
        experiment = self.experiment or title
        self._begin(title, experiment, parameters, {"desim.varies": ", ".join(varied)})
        return f"{experiment}/{self.run}"

    def ends_group(self) -> None:
        """The study's run is over."""
        self.client.set_terminated(self.run, STATES["done"])

    def _begin(
        self, title: str, experiment: str, parameters: Mapping[str, Any], tags: Mapping[str, str]
    ) -> None:
        address = self.place
        if "://" not in address:
            address = writable(Path(address), "mlflow").resolve().as_uri()
        for name, word in ASKED.items():
            os.environ.setdefault(name, word)
        try:
            self.entities: Any = import_module("mlflow.entities")
            self.client: Any = import_module("mlflow.tracking").MlflowClient(address)
            self.run = self._begun(title, experiment, tags)
            pairs = [self.entities.Param(name, str(one)) for name, one in parameters.items()]
            self._log("params", pairs)
        except Exception as error:  # whatever its store raises
            text = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise InputError(f"mlflow: {self.place}: {text}") from None

    def _begun(self, title: str, name: str, tags: Mapping[str, str]) -> str:
        """The hash of a new run in the experiment of this name, made where there is none."""
        found = self.client.get_experiment_by_name(name)
        one = self.client.create_experiment(name) if found is None else found.experiment_id
        return str(self.client.create_run(one, run_name=title, tags=dict(tags)).info.run_id)

    def writes(self, values: Sequence[Value]) -> None:
        """A point for each, and of every instant the clock."""
        clock = {one.time: Value(CLOCK, one.time, one.round, one.time) for one in values}
        new = [one for time, one in clock.items() if time not in self.clocked]
        self.clocked |= clock.keys()
        metric = self.entities.Metric
        self._log("metrics", [
            metric(name, value, round(1000.0 * time), step)
            for name, time, step, value in [*values, *new]
        ])  # fmt: skip

    def ends(self, status: str, reason: str) -> None:
        """The run is over."""
        self.client.set_tag(self.run, "desim.ended", reason or status)
        self.client.set_terminated(self.run, STATES.get(status, "KILLED"))

    def _log(self, kind: str, every: Sequence[Any]) -> None:
        size = AT_ONCE[kind]
        for first in range(0, len(every), size):
            self.client.log_batch(self.run, **{kind: every[first : first + size]})
