"""The privacy of one run: what its paper claims beside what holds, view by view.

All of it follows from what the run has stored: its releases, and `desim.runs.premises`. No epsilon
stands without its view, relation, delta and method.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from desim.amounts import epsilon
from desim.columns import Columns, gathered
from desim.errors import DesimError, InputError
from desim.numerics.later import pd
from desim.privacy.accounting.accountants import Account, account
from desim.privacy.accounting.gaussian import check_delta, mu_of
from desim.privacy.accounting.plugged import Accountant
from desim.privacy.accounting.plugged import spent as asked
from desim.privacy.accounting.risk import risk
from desim.privacy.papers.claims import RELEASED, Claim, Inputs
from desim.privacy.papers.theorems import BY_NAME, claim_of, theorems
from desim.runs.allowance import listed, one_each, table_of_listed
from desim.runs.premises import (
    Stated,
    ended_by_rows,
    exposed,
    names,
    shortly,
    stored,
    terms_of,
    trusted,
)
from desim.runs.run import Run, with_coordinator
from desim.scenario import registry
from desim.scenario.build import check
from desim.scenario.schema import Scenario
from desim.scenario.trusting import planned
from desim.tabulated import each_once

SEEDED = "seeded noise is public noise: who has the seed and the log can remove it"
UNSEEDED = "noise is from the operating system, drawn by each agent's process: no seed removes it"
DOUBLES = (
    "noise is simulated in IEEE doubles; epsilon is that of real-valued mechanisms (Mironov 2012). "
    "Not for releasing real data"
)
WHOLES = "noise is of whole numbers, drawn exactly but simulated. Not for releasing real data"
CAVEATS = (
    DOUBLES,
    SEEDED,
    "sensitivities are those of exact arithmetic; rounding before noise adds about an ulp",
    "message sizes, times and numbers of rounds must not depend on data, or they are releases too",
    "parameters tuned on the data (steps, clip norms, regularisers) are not accounted for",
)

OF_EDGES = (
    "the coordinator that views have is an agent's own edge, which sees its messages; coordinators "
    "above see sums of what edges saw, for which nothing smaller is claimed"
)

Asked = Callable[[Account], tuple[float, tuple[str, ...]]]  # a plug-in's accountant, see `_own`
ROUNDING = 1e-6  # by which a number that is computed otherwise may fall short of an exact one
UNTOLD = "its epsilon needs numbers that this run has not stored; desim run of its scenario does"


@dataclass(frozen=True, eq=False)
class Statement:
    """What is known about the privacy of one run.

    table: a row for each view, columns view, relation, delta, paper epsilon, rigorous epsilon (the
    largest of an agent), agent (whose it is; the first of several), median epsilon, method, risk
    (the best attack on that agent, see `risk`), assumptions, flags, and own epsilon,
    what the plug-in `accountant` says; paper and own epsilon are nan where nothing is claimed;
    claim: the paper's, or None for the reason `silence`; tuned: what was computed from the data
    without being charged; unsure: whose word the sensitivities are, empty where they are desim's;
    trusted: whether the coordinator is, so that the first view, the stated one, is what counts.
    """

    table: "pd.DataFrame"
    claim: Claim | None
    silence: str
    tuned: tuple[str, ...]
    caveats: tuple[str, ...] = CAVEATS
    accountant: str = ""
    unsure: str = ""
    trusted: bool = False

    def notes(self) -> Iterator[tuple[str, str]]:
        """What numbers rest on, by name; with the views that one is about where not all have it."""
        for name, column in (("assumes", "assumptions"), ("flag", "flags")):
            said = list(zip(self.table["view"], self.table[column], strict=True))
            yield from ((name, text) for text in each_once(said))
        yield from (("flag", f"tuned on data, not charged: {text}") for text in self.tuned)
        yield from (("caveat", text) for text in self.caveats)

    def paper(self) -> Iterator[tuple[str, str]]:
        """What the paper claims and what holds instead, in words by name; or why nothing."""
        claim = self.claim
        if claim is None:
            yield "paper", self.silence
            return
        bound = claim.bound
        terms = f"view: {bound.view}; {claim.relation}; delta {claim.delta:g}; {claim.method}"
        yield "paper", f"epsilon {epsilon(claim.worst)} by {bound.theorem} ({bound.paper}); {terms}"
        yield "verdict", f"{bound.verdict}: {bound.wrong}"
        yield "instead", bound.rigorous
        yield from (("unmet", text) for text in claim.unmet)


def statement(
    run: Run, delta: float | None = None, view: str | None = None, relation: str | None = None,
    accountant: str | None = None,
) -> Statement:  # fmt: skip
    """Account for a run; by default in the scenario's terms and for every view that applies.

    accountant: of a plug-in, whose epsilon stands beside. InputError for a view, relation, delta or
    accountant that has no meaning here.
    """
    if delta is not None:
        check_delta(delta)
    known, unread = dict[str, Any](), list[str]()
    try:
        known = stored(run)
    except DesimError as error:  # a run of an older version says less, as its scenario is lost
        text = f"the terms are not the scenario's, which cannot be read: {error}"
        unread = [text.splitlines()[0]]
    terms = Stated(**(known.get("terms") or {}))
    if delta is not None or relation:
        terms = terms._replace(
            delta=terms.delta if delta is None else delta, relation=relation or terms.relation
        )
    named = accountant if accountant is not None else terms.accountant
    own = None
    if named is not None:
        own = partial(_own, registry.accountant(named, "accountant"), must=accountant is not None)
    claim, silence = _claim(run, terms.delta)
    views = (
        [view] if view is not None else views_of(with_coordinator(run), terms.view, trusted(run))
    )
    assumed = [basis] if (basis := known.get("basis")) else []
    unseeded = run.manifest.get("privacy", {}).get("noise") == "os"
    accounts = [_accounts(run, one, terms) for one in views]
    records = [_record(run, both, terms, claim, own, assumed, unread) for both in accounts]
    whole = all(replay.whole for replay, _ in accounts)
    instead = {SEEDED: UNSEEDED} if unseeded else {}
    instead |= {DOUBLES: WHOLES} if whole else {}
    caveats = tuple(instead.get(one, one) for one in CAVEATS)
    caveats += (OF_EDGES,) if "edges" in run.manifest else ()
    return Statement(
        pd.DataFrame(records), claim, silence, (*known.get("tuned", ()), *ended_by_rows(run)),
        caveats=caveats, accountant=named or "", unsure=shortly(run), trusted=trusted(run),
    )  # fmt: skip


def _claim(run: Run, delta: float) -> tuple[Claim | None, str]:
    """What the paper claims, or why nothing is claimed."""
    if exposed(run.manifest):
        return None, "nothing is claimed for a deployment that is a test"
    algorithm, inputs = names(run)[0], run.manifest.get("privacy", {}).get("claim")
    pieces = run.store.pieces("releases", ["mechanism"])
    bare = bool(pieces.first[-1]) and all(rows["mechanism"].equal("none").all() for rows in pieces)
    if inputs is not None and not bare:  # without any noise no paper claims anything
        releases = gathered(run.store.pieces("releases", RELEASED))
        if algorithm in registry.OWN or inputs.get("theorem") in BY_NAME:
            return claim_of(inputs, releases, delta), ""
        return _brought(algorithm, inputs, releases, delta)
    known = ", ".join(bound.theorem for bound in theorems(algorithm))
    if not known:
        return None, f"no claim of differential privacy by a paper is on record for {algorithm}"
    if "privacy" not in run.manifest:
        return None, f"{known}: {UNTOLD}"
    if "chosen" in run.manifest["privacy"]:
        return None, f"{known}: nothing is claimed for a run whose replies say losses, too"
    return None, f"{known}: nothing is claimed for a run without the paper's noise"


def _brought(
    algorithm: str, inputs: Inputs, releases: Columns, delta: float
) -> tuple[Claim | None, str]:
    """What a plug-in's theorem says; or why nothing, for desim's own account needs no plug-in."""
    theorem = inputs.get("theorem")
    method = registry.plugged().methods.get(algorithm)
    if method is None:
        return None, f"{theorem} is in plug-in {algorithm}, which is not there; give it by --plugin"
    try:
        return claim_of(inputs, releases, delta, method.bounds), ""
    except InputError as error:
        return None, f"{theorem} of plug-in {algorithm} says nothing: {error}"


def foreseen(
    scenario: Scenario, delta: float | None = None, relation: str | None = None
) -> Account | None:
    """What all that a run may ever release costs, whoever sees it; known before any run.

    With a trusted coordinator: whoever has the scenario's view.

    Terms that are None are the scenario's; None where nothing but a budget bounds how much is
    released. InputError for a scenario that cannot be played.
    """
    simulation, stated = check(scenario), terms_of(scenario)
    delta, relation = delta or stated.delta, relation or stated.relation
    if simulation.settings.trust is not None:
        view = str(stated.view)
        return planned(simulation.settings, simulation.settings.trust, delta, view, relation)
    cost = partial(account, rows=simulation.problem.rows, delta=delta, relation=relation)
    rows, terms = listed(simulation), scenario.privacy
    found = None if rows is None else cost(table_of_listed(rows))
    if terms is None or terms.budget is None or found is None or found.method != "exact GDP":
        return found
    if (terms.delta, terms.neighbours) != (delta, relation):
        return found
    most = cost(one_each(simulation.problem.agents, mu_of(terms.budget, delta)))
    return most if most.worst < found.worst else found


def views_of(star: bool, asked: str = "eavesdropper", trust: bool = False) -> list[str]:
    """The views of which an account speaks unless one is chosen; star: there is a coordinator.

    trust: whether it is trusted.
    """
    views = ["eavesdropper", *["coordinator"] * star, "final-model"]
    if trust:  # what sums are for comes first
        return [*dict.fromkeys((asked, "participants", "final-model", *views))]
    return views if asked in views else [asked, *views]


def _record(
    run: Run, accounts: tuple[Account, Account | None], terms: Stated, claim: Claim | None,
    own: Asked | None, assumed: list[str], unread: list[str],
) -> dict[str, Any]:  # fmt: skip
    replay, other = accounts
    own_epsilon, doubts = (np.nan, ()) if own is None else own(replay)
    said = claim.worst if claim is not None and terms.relation == claim.relation else np.nan
    return {
        "view": replay.view,
        "relation": replay.relation,
        "delta": replay.delta,
        "paper epsilon": said,
        "rigorous epsilon": replay.worst,
        "agent": int(replay.final.argmax()) if replay.agents else -1,
        "median epsilon": float(np.median(replay.final)) if replay.agents else 0.0,
        "method": replay.method,
        "risk": risk(replay),
        "own epsilon": own_epsilon,
        "assumptions": (*replay.assumptions, *assumed),
        "flags": (*_flags(replay, other, claim, trusted(run)), *doubts, *unread),
    }


def _accounts(run: Run, view: str, terms: Stated) -> tuple[Account, Account | None]:
    """The account that says least, and without amplification by sampling where that is more.

    Both are upper bounds: with much noise secret batches help, with little the exact sum is less.
    """
    amplified = run.account(terms.delta, view, terms.relation)
    pieces = run.store.pieces("releases", ["sampling"])
    if not any((part["sampling"] < 1.0).any() for part in pieces):
        return amplified, None
    known = run.account(terms.delta, view, terms.relation, amplification=False)
    return (known, None) if known.worst <= amplified.worst else (amplified, known)


def _flags(
    replay: Account, known: Account | None, claim: Claim | None, trust: bool
) -> Iterator[str]:
    yield from replay.flags
    if known is not None:
        worst = f"{known.worst:.4g}" if np.isfinite(known.worst) else "infinite"
        drawn = "it is known who took part" if trust else "batches are known"
        yield f"epsilon {worst} ({known.method}) where {drawn}: no amplification"
    if claim is not None and replay.relation != claim.relation:
        yield f"the paper claims nothing under this relation, only under {claim.relation}"
    elif claim is not None and not claim.bound.covers(replay.view):
        yield f"the paper's epsilon does not cover this view, only {claim.bound.view}"


def _own(
    accountant: type[Accountant], replay: Account, must: bool
) -> tuple[float, tuple[str, ...]]:
    """A plug-in's epsilon, nan where it has none, and what is to be said of that.

    must: it was asked for by name, and has an answer or none is given.
    """
    try:
        own = asked(accountant, replay)
    except InputError as error:
        if must:
            raise
        return float("nan"), (f"no answer of {error}",)
    if np.isinf(replay.worst):
        return own, ()
    name = accountant.name
    said = f"epsilon of accountant {name} is the plug-in's own: desim does not check it"
    if replay.method == "exact GDP" and own < replay.worst * (1.0 - ROUNDING):
        return own, (said, f"accountant {name} is wrong: {own:.6g} is less than is attained")
    return own, (said,)
