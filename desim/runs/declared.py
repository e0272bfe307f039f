"""What a run's plug-ins say of themselves, on which its epsilon rests without having been tried."""

from collections.abc import Iterator

from desim.runs.played import Played
from desim.scenario.own import LOSSES, METHODS

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
    return "" if method in METHODS else method, "" if loss in LOSSES else loss


def names(run: Played) -> tuple[str, str]:
    """Names of method and loss, as the scenario has them, be it that it loads no more."""
    try:
        written = run.written
        loss = written["problem"].get("loss") or ""  # a model brings its own
        kind = next(iter(loss)) if isinstance(loss, dict) else loss
        return str(written["algorithm"]["name"]), str(kind)
    except (KeyError, TypeError, StopIteration):
        return "", ""
