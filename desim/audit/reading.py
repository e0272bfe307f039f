"""How the runs of an audit are read: what the view shows of them decides which score there is."""

import numpy as np
import pandas as pd

from desim.audit.game import Stage
from desim.audit.neighbours import Neighbours
from desim.columns import columns_of
from desim.errors import InputError
from desim.privacy.accounting.views import Adversary, require_seen, visible

HIDDEN = ("none", "objective-perturbation", "objective-laplace")  # no release of its own to score


def reading_of(
    releases: pd.DataFrame, events: pd.DataFrame, seen: Adversary, pair: Neighbours
) -> Stage:
    """The stage of a pair, of whose first simulation the tables are; InputError if nothing is seen.

    A ratio of likelihoods needs all releases of the agent, and their noise: noise inside an
    objective, or a method's own, leaves messages that are no function of what was released.
    """
    agent, owner = pair.agent, releases["agent"].to_numpy()
    own = owner == agent
    require_seen(seen, bool((releases["seen_by"] == "coordinator").any()), len(releases))
    shows = visible(columns_of(releases), seen, columns_of(events))
    shown = own & shows
    silent = not own.any() and seen.kind == "eavesdropper"  # who hears that nothing is said
    if not shown.any() and not silent:
        raise InputError(f"view: {seen} sees no release of agent {agent}")
    ids = frozenset(releases.loc[shown, "release"].tolist())
    hidden = releases["mechanism"].isin(HIDDEN).to_numpy(bool)
    whole = bool((shown == own).all() and not (own & hidden).any() and seen.kind != "direct")
    reading = "model" if seen.kind == "final-model" else "likelihood" if whole else "releases"
    agents = None
    if not shows.all():
        agents = frozenset(range(pair.first.problem.agents)) - frozenset(owner[~shows].tolist())
    heard = _heard(events, seen, agent)
    return Stage(pair.first, pair.second, agent, reading, ids, heard, agents)  # type: ignore[arg-type]


def _heard(events: pd.DataFrame, seen: Adversary, agent: int) -> frozenset[tuple[int, int]] | None:
    """(Round, release) of the agent's messages that the adversary sees; None for all of them."""
    if seen.kind == "eavesdropper":
        return None
    came = (events["kind"] == "deliver") & (events["peer"] == agent)
    if seen.kind == "coordinator":
        came &= events["agent"] < 0
    if seen.kind == "direct":
        came &= np.isin(events["agent"], seen.agents)
    rows = events[came]
    return frozenset(zip(rows["round"].tolist(), rows["release"].tolist(), strict=True))
