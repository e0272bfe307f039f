"""On what a run's epsilon rests without having been tried: plug-ins' words, coarse arithmetic."""

from collections.abc import Iterator
from typing import Any

from desim.runs.played import Played
from desim.runs.real import exposed
from desim.scenario.disclosures import uncounted
from desim.scenario.own import LOSSES, METHODS

TESTED = "untested by this run; desim check --contract {name} tests them"
COARSE = (
    "infinite: what noise was added to was computed in IEEE singles, by an older version or by a "
    "plug-in with noise of its own; they round a parameter by 6e-8 of its size, and nothing bounds "
    "what that tells of a record"
)
FAILED = (
    "infinite: the run failed; that it did, and when, may follow from the data, and is not charged"
)
SHORT = "sensitivities as plug-in {name} declares them, untested"


def declared(run: Played) -> Iterator[str]:
    """One line for each plug-in whose word the run's epsilon takes, or that changes messages."""
    method, loss = plugged(run)
    if method:
        tested = TESTED.format(name=method)
        yield f"sensitivities are declared by plug-in {method}, {tested}"
    if loss:
        tested = TESTED.format(name=loss)
        yield f"slopes and curvatures of the loss are declared by plug-in {loss}, {tested}"
    if model := model_of(run):
        tested = TESTED.format(name=model)
        yield f"the start and clipped gradients of rows are computed by plug-in {model}, {tested}"
    if names := (run.manifest.get("privacy") or {}).get("changing"):
        yield uncounted(names)


def void(run: Played) -> str:
    """Why no epsilon of a run is finite, whatever its releases cost; empty where nothing is so."""
    return exposed(run.manifest) or failed(run) or coarse(run)


def failed(run: Played) -> str:
    """FAILED of a run with noise that failed: that it did, and when, is seen and not charged."""
    return FAILED if run.status == "failed" and with_noise(run) else ""


def with_noise(run: Played) -> bool:
    """Whether a run states what its releases cost, or any of them has noise."""
    if (run.manifest.get("privacy") or {}).get("terms") is not None:
        return True
    return any((rows["scale"] > 0.0).any() for rows in run.store.pieces("releases", ["scale"]))


def coarse(run: Played) -> str:
    """COARSE where noise was added to what singles computed: by an older version, a plug-in."""
    kind = (run.manifest.get("privacy") or {}).get("arithmetic")
    if kind is not None:
        return COARSE if kind == "float32" and with_noise(run) else ""
    try:
        problem, local = run.written["problem"], run.written["algorithm"]["local"]
        solver, usual = local["solver"], "float32" if "model" in problem else "float64"
    except (KeyError, TypeError):
        return ""
    noisy = "noisy" in ([solver] if isinstance(solver, str) else solver)
    return COARSE if noisy and problem.get("precision", usual) == "float32" else ""


def shortly(run: Played) -> str:
    """The same of a method in a few words; empty where it is desim's own."""
    method = plugged(run)[0]
    return SHORT.format(name=method) if method else ""


def plugged(run: Played) -> tuple[str, str]:
    """Names of the run's method and loss, each empty where it is desim's own or not known."""
    method, loss = names(run)
    return "" if method in METHODS else method, "" if loss in LOSSES else loss


def names(run: Played) -> tuple[str, str]:
    """Names of method and loss, as the scenario has them, be it that it loads no more.

    The loss of a model that a plug-in brings has no name.
    """
    try:
        written = run.written
        problem, name = written["problem"], str(written["algorithm"]["name"])
        return name, "" if "model" in problem else _name(problem["loss"])
    except (KeyError, TypeError, StopIteration):
        return "", ""


def model_of(run: Played) -> str:
    """The name of the run's model, which a plug-in brings; empty where it has none."""
    try:
        given = run.written["problem"]["model"]
        return str(given["name"] if isinstance(given, dict) else given)
    except (KeyError, TypeError):
        return ""


def _name(given: Any) -> str:
    return str(next(iter(given)) if isinstance(given, dict) else given)
