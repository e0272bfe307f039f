"""Discrete-event simulation of private federated and decentralised learning.

    import desim
    run = desim.run("scenarios/quickstart.yaml")
    run.metrics                          # a DataFrame
    run.time_to("accuracy", 0.9)         # virtual seconds

Names are imported when they are first used: `import desim` loads neither numba nor pandas.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from desim.deployments.deployed import deploy
    from desim.deployments.fidelity.clock_errors import clock_errors
    from desim.deployments.measuring.calibration import calibrate
    from desim.errors import Deadlock, DesimError, Diverged, InputError, RunError
    from desim.experiments.ranking.robust import robust
    from desim.experiments.studies.compare import compare
    from desim.experiments.studies.study import Study, repeat, study
    from desim.experiments.tuning.tune import tune
    from desim.interface.player.animated import player
    from desim.interface.plots import plot
    from desim.interface.reports import report
    from desim.log.column_meanings import KINDS, METRICS
    from desim.runs.exports import export
    from desim.runs.recording import run
    from desim.runs.replay import replay, resume
    from desim.runs.retime import retime
    from desim.runs.run import Run
    from desim.runs.run import open_run as open
    from desim.runs.trackers.event_files import TensorBoard
    from desim.runs.trackers.experiment_runs import MLflow
    from desim.scenario.load import load
    from desim.scenario.schema import Scenario

__all__ = [
    "KINDS",
    "METRICS",
    "Deadlock",
    "DesimError",
    "Diverged",
    "InputError",
    "MLflow",
    "Run",
    "RunError",
    "Scenario",
    "Study",
    "TensorBoard",
    "__version__",
    "calibrate",
    "clock_errors",
    "compare",
    "deploy",
    "export",
    "load",
    "open",
    "player",
    "plot",
    "repeat",
    "replay",
    "report",
    "resume",
    "retime",
    "robust",
    "run",
    "study",
    "tune",
]

_HOMES = {
    "KINDS": "desim.log.column_meanings:KINDS",
    "METRICS": "desim.log.column_meanings:METRICS",
    "export": "desim.runs.exports:export",
    "calibrate": "desim.deployments.measuring.calibration:calibrate",
    "clock_errors": "desim.deployments.fidelity.clock_errors:clock_errors",
    "compare": "desim.experiments.studies.compare:compare",
    "deploy": "desim.deployments.deployed:deploy",
    "load": "desim.scenario.load:load",
    "open": "desim.runs.run:open_run",
    "player": "desim.interface.player.animated:player",
    "plot": "desim.interface.plots:plot",
    "repeat": "desim.experiments.studies.study:repeat",
    "report": "desim.interface.reports:report",
    "resume": "desim.runs.replay:resume",
    "replay": "desim.runs.replay:replay",
    "retime": "desim.runs.retime:retime",
    "robust": "desim.experiments.ranking.robust:robust",
    "run": "desim.runs.recording:run",
    "study": "desim.experiments.studies.study:study",
    "tune": "desim.experiments.tuning.tune:tune",
    "MLflow": "desim.runs.trackers.experiment_runs:MLflow",
    "Run": "desim.runs.run:Run",
    "Scenario": "desim.scenario.schema:Scenario",
    "Study": "desim.experiments.studies.study:Study",
    "TensorBoard": "desim.runs.trackers.event_files:TensorBoard",
    **{
        name: f"desim.errors:{name}"
        for name in ("Deadlock", "DesimError", "Diverged", "InputError", "RunError")
    },
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("desim")
    if name not in _HOMES:
        raise AttributeError(f"module 'desim' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    value = globals()[name] = getattr(import_module(module), attribute)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
