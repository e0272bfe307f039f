"""What a run's plug-ins say of themselves, on which its epsilon rests without having been tried."""

from collections.abc import Iterator

from desim.errors import DesimError
from desim.runs.digests import own_scenario
from desim.runs.played import Played
from desim.scenario.load import read
from desim.scenario.registry import OWN
from desim.scenario.sections.problem import Loss

TESTED = "untested by this run; desim check --contract {name} tests them"
SHORT = "sensitivities as plug-in {name} declares them, untested"


def declared(run: Played) -> Iterator[str]:
    """One line for each plug-in whose word the run's epsilon takes."""
    method, loss = plugged(run)
    if method:
        tested = TESTED.format(name=method)
        yield f"sensitivities are declared by plug-in {method}, {tested}"
    if loss:
        tested = TESTED.format(name=loss)
        yield f"slopes and curvatures of the loss are declared by plug-in {loss}, {tested}"


def shortly(run: Played) -> str:
    """The same of a method in a few words; empty where it is desim's own."""
    method = plugged(run)[0]
    return SHORT.format(name=method) if method else ""


def plugged(run: Played) -> tuple[str, str]:
    """Names of the run's method and loss, each empty where it is desim's own or not known."""
    method, loss = names(run)
    return "" if method in OWN else method, "" if loss in _losses() else loss


def names(run: Played) -> tuple[str, str]:
    """Names of method and loss, read from the stored text where the scenario loads no more."""
    try:
        scenario = run.known
        if scenario is not None:
            return str(scenario.algorithm.name), scenario.problem.loss.kind
    except DesimError:
        pass
    try:
        if run.directory is None:
            return "", ""
        data = read(own_scenario(run.directory, run.manifest)).data
        loss = data["problem"]["loss"]
        return str(data["algorithm"]["name"]), str(
            next(iter(loss)) if isinstance(loss, dict) else loss
        )
    except (DesimError, KeyError, TypeError):
        return "", ""


def _losses() -> tuple[str, ...]:
    return ("", *Loss.words, *Loss.alternatives())
