"""What the releases of a run cost, read from its tables piece by piece."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from desim.columns import Columns, Words, gathered
from desim.errors import InputError, refusal
from desim.privacy.accounting.accountants import Account, account
from desim.privacy.accounting.prices import RELATIONS
from desim.privacy.accounting.views import read_view
from desim.runs.directory import own_scenario
from desim.runs.premises import Stated, allowed, bounded, declared, names, real, stated, void
from desim.scenario import own

if TYPE_CHECKING:
    from desim.runs.run import Run

RELEASED = "time agent release mechanism sensitivity scale sampling seen_by delivered".split()
HEARD = ["kind", "agent", "peer", "release"]


def spent(
    run: "Run",
    delta: float | None = None,
    view: str | None = None,
    relation: str | None = None,
    amplification: bool = True,
) -> Account:
    """See `Run.account`.

    In a deployment batches are known: who holds the scenario can draw them. Where data decide how
    much is released, final epsilons are what holds before the run. That the files cannot be
    checked, or sensitivities are a plug-in's, is said among the flags. It is infinite where more
    was seen than releases, or these are not what is charged.
    """
    if run.directory is not None:
        own_scenario(run.directory, run.manifest)
    asked = None in (delta, view, relation)  # else a run without a scenario is accounted for, too
    terms = stated(run) if asked else Stated()
    seen, relation = view or terms.view, relation or terms.relation
    require_known(run, relation)
    asked_for: dict[str, Any] = {
        "rows": run.manifest.get("rows"), "delta": terms.delta if delta is None else delta,
        "relation": relation, "amplification": amplification and not real(run.manifest),
    }  # fmt: skip
    released = run.store.pieces("releases", RELEASED)
    found = account(released, view=seen, events=arrivals(run, seen), **asked_for)
    private = found.worst > 0.0 or bool(run.manifest.get("privacy", {}).get("terms"))
    if private and (might := allowed(run)) is not None:
        found = bounded(run, found, might, partial(account, view="eavesdropper", **asked_for))
    found = replace(found, flags=(*found.flags, *doubts(run)))
    return found.voided(why) if (why := void(run)) else found


def doubts(run: "Run") -> Iterator[str]:
    """On whose word the run's epsilon rests, and that its files cannot be checked."""
    yield from declared(run)
    if doubt := run.store.unchecked:
        yield doubt


def with_coordinator(run: "Run") -> bool:
    """Whether a coordinator receives releases."""
    pieces = run.store.pieces("releases", ["seen_by"])
    return any(rows["seen_by"].equal("coordinator").any() for rows in pieces)


def require_known(run: "Run", relation: str) -> None:
    """InputError for a relation for which the sensitivities of the run's method are not known."""
    name = names(run)[0]
    if name in own.METHODS and relation in RELATIONS and relation not in own.RELATIONS:
        from desim.scenario import registry  # of compiled methods, which takes a while

        known = registry.get(name).relations
        if relation not in known:
            allowed = f"{', '.join(known)}, with {name}"
            raise InputError(f"relation: {refusal(relation, allowed)}")


def arrivals(run: "Run", view: str) -> Columns | None:
    """The events that a direct view needs: what arrived at its agent."""
    if not str(view).startswith("direct"):
        return None
    run.require(f"view {view}", "deliver")
    try:
        agents = read_view(view).agents
    except ValueError:
        return None  # told by who reads it next

    def arrived(log: Columns) -> Any:
        kind: Words = log["kind"]
        return kind.equal("deliver") & (log["agent"] == agents[0])

    return gathered(run.store.pieces("events", HEARD), arrived)
