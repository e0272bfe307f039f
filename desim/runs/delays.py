"""Why delays may change what a run computes, or when its metrics are true, in words."""

from collections.abc import Sequence

from desim.problem.fairness import MEASURES
from desim.runs.run import Run
from desim.scenario.disclosures import changing
from desim.scenario.schema import Scenario

OF_MODEL = ("loss", "accuracy", "gradient", *MEASURES)  # of the coordinator's model alone


def obstacles(run: Run) -> list[str]:
    """Why delays may change what `run` has computed, one line for each reason."""
    found = []
    if run.status != "done":
        found.append(f"{run.name}: the run is {run.status}; allowed: one that is done")
    elif str(run.manifest["reason"]).startswith("stop.time"):
        text = "the run ended by time, which other delays fill with other rounds"
        found.append(f"stop.time: {text}; allowed: stop.rounds")
    return found + delayed(run.scenario)


def delayed(scenario: Scenario) -> list[str]:
    """Why delays may change what a run of `scenario` computes, one line for each reason."""
    found, policy = [], scenario.policy.kind
    if policy != "all":
        text = "who is heard when a wait ends depends on the delays"
        found.append(f"policy.{policy}: {text}; allowed: policy all")
    if (choice := scenario.participation.choose) is not None:
        text = "who is invited follows from what came before, and when"
        others = "all, bernoulli, uniform, schedule, trace"
        found.append(f"participation.choose: found {choice}; {text}; allowed: {others}")
    if scenario.churn is not None:
        text = "which computations and messages an absence meets depends on the delays"
        found.append(f"churn: {text}; allowed: none")
    if names := changing(scenario):
        text = "may change what is computed by when it is sent"
        found.append(f"listeners: {names} {text}; allowed: listeners of rows alone")
    if scenario.kind != "graph":
        return found
    ends = [f"stop.metric.{name}" for name in scenario.stop.targets]
    if scenario.privacy is not None and scenario.privacy.on_exhausted == "stop":
        ends.append("privacy.on_exhausted")
    text = "it stops all agents of a graph at one time, at which some are further than others"
    return found + [f"{key}: {text}; allowed: stop.rounds" for key in ends]


def unkept(coordinator: bool, metrics: Sequence[str], timed: bool, iterates: bool) -> list[str]:
    """What must have been kept for metrics to be told at other times, in words.

    timed: they are taken every so many seconds; iterates: models of all rounds were kept.
    """
    cure = "allowed: a run with observe.iterates: true, or observe.metrics: []"
    if not metrics or iterates:
        return []
    if not coordinator:
        text = "metrics of a graph method depend on who is how far"
        return [f"observe.iterates: found false; {text}; {cure}"]
    if timed and not set(metrics) <= set(OF_MODEL):
        text = "metrics every so many seconds need the models of all rounds"
        return [f"observe.iterates: found false; {text}; {cure}"]
    return []
