"""What an account of a run needs beside its releases: written at its start, read from then on."""

import json
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from desim.errors import InputError, refusal
from desim.privacy.papers.theorems import bound_of
from desim.runs.beforehand import at_most
from desim.runs.decided_by_rows import tuned
from desim.runs.played import Played
from desim.scenario import disclosures

if TYPE_CHECKING:
    from desim.engine.play import Simulation
    from desim.methods.shared.method import Method
    from desim.scenario.schema import Scenario

PLAIN = "what JSON holds: finite numbers, text, and lists and mappings of them"


class Stated(NamedTuple):
    """In which terms a run's epsilon is, unless others are asked for."""

    delta: float = 1e-5
    view: str = "eavesdropper"
    relation: str = "replace-one"
    accountant: str | None = None


def premises(scenario: "Scenario", simulation: "Simulation") -> dict[str, Any]:
    """What the manifest has under `privacy`, as JSON holds it.

    arithmetic: of gradients; terms: `Stated`, None without a section privacy; claim: inputs of the
    paper's claim, see `Method.claim_inputs`; basis: what sensitivities rest on; tuned: what is
    computed from data without being charged; chosen, where agents are invited by losses: by which
    choice, and whether a budget bounds what that costs; allowed, where data decide how much is
    released: see `desim.runs.beforehand.at_most`; changing, where there are any: names of listeners
    that may change what is sent. InputError for a claim that cannot be stored, or
    names no theorem.
    """
    from desim.scenario.blame import explained

    method, bounded = simulation.method, math.isfinite(simulation.problem.row_norm)
    with explained(scenario):
        claim = None if scenario.participation.power else _claim(method)  # losses are beside it
        basis = getattr(method.planned(1), "basis", "")
    terms = None if scenario.privacy is None else terms_of(scenario)._asdict()
    own: dict[str, Any] = {
        "arithmetic": simulation.problem.precision,
        "terms": terms,
        "claim": claim,
        "basis": basis,
        "tuned": [*tuned(scenario, bounded)],
    }
    if found := at_most(scenario, simulation):
        own["allowed"] = found
    if changing := disclosures.changing(scenario):
        own["changing"] = changing
    if scenario.participation.power:
        budget = scenario.privacy is not None and scenario.privacy.budget is not None
        own["chosen"] = {"by": scenario.participation.choose, "budget": budget}
    return own


def _claim(method: "Method") -> Any:
    """The inputs of the paper's claim, which JSON can hold."""
    given: object = method.claimed()
    if given is None:
        return None
    where = f"algorithm {method.name}: claim_inputs"
    if not isinstance(given, Mapping):
        raise InputError(
            f"{where}: {refusal(given, 'what inputs of desim.method returns, or null')}"
        )
    for key, value in given.items():
        try:
            json.dumps({key: value}, allow_nan=False)
        except (TypeError, ValueError, RecursionError):
            raise InputError(f"{where}: {key}: {refusal(value, PLAIN)}") from None
    try:
        bound_of(given, method.bounds)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    return given


def stored(run: Played) -> dict[str, Any]:
    """What the manifest has of them; of a run of an older version, what its scenario says."""
    if "privacy" in run.manifest:
        return dict(run.manifest["privacy"])
    known = run.known
    if known is None:
        return {}
    terms = None if known.privacy is None else terms_of(known)._asdict()
    return {"terms": terms, "tuned": [*tuned(known)]}


def stated(run: Played) -> Stated:
    """The terms of the run; without a section privacy, what that has by default."""
    return Stated(**(stored(run).get("terms") or {}))


def terms_of(scenario: "Scenario") -> Stated:
    """The terms of a scenario."""
    given = scenario.privacy
    if given is None:
        return Stated()
    return Stated(given.delta, str(given.view), str(given.relation), given.accountant)
