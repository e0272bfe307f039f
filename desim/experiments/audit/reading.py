"""How the runs of an audit are read: what the view shows of them decides which score there is."""

import numpy as np
import pandas as pd

from desim.columns import columns_of
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.game import Stage
from desim.experiments.audit.neighbours import Neighbours
from desim.experiments.audit.pairs import unobserved
from desim.log.parquet import Tables
from desim.privacy.accounting.views import Adversary, require_seen, visible

HIDDEN = ("none", "objective-perturbation", "objective-laplace")  # no release of its own to score


def require_agent(agent: int | None, agents: int) -> None:
    """Raise InputError for an agent that there is not; None is any."""
    if agent is not None and not 0 <= agent < agents:
        raise InputError(f"agent: {refusal(agent, f'0 to {agents - 1}')}")


def require_other(agent: int, adversary: Adversary) -> None:
    """Raise InputError for an agent whose data the adversary knows."""
    if agent in adversary.agents:
        raise InputError(f"agent: found {agent}, whose data the adversary {adversary} knows")


def tables_of(simulation: Simulation) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Releases and events of one play."""
    tables = Tables()
    unobserved(simulation).play(tables)
    return tables.read("releases"), tables.read("events")


def shown(
    releases: pd.DataFrame, events: pd.DataFrame, adversary: Adversary, agent: int
) -> tuple[frozenset[int], bool, frozenset[int]]:
    """(Ids of the agent's releases that the view shows, whether these are all, who hides some).

    Who looks at links sees no release whole. InputError for a view that no such run has.
    """
    require_seen(adversary, bool((releases["seen_by"] == "coordinator").any()), len(releases))
    shows, owner = visible(columns_of(releases), adversary, columns_of(events)), releases["agent"]
    own = (owner == agent).to_numpy()
    ids = frozenset(releases.loc[own & shows, "release"].tolist())
    whole = bool(shows[own].all()) and adversary.kind != "direct"
    return ids, whole, frozenset(owner[~shows].tolist())


def reading_of(
    releases: pd.DataFrame, events: pd.DataFrame, adversary: Adversary, pair: Neighbours
) -> Stage:
    """The stage of a pair, of whose first simulation the tables are; InputError if nothing is seen.

    A ratio of likelihoods needs all releases of the agent, and their noise: noise inside an
    objective, or a method's own, leaves messages that are no function of what was released.
    """
    agent = pair.agent
    ids, whole, hiding = shown(releases, events, adversary, agent)
    own = releases["agent"] == agent
    silent = not own.any() and adversary.kind == "eavesdropper"  # who hears that nothing is said
    if not ids and not silent:
        raise InputError(f"view: {adversary} sees no release of agent {agent}")
    whole &= not (own & releases["mechanism"].isin(HIDDEN)).any()
    reading = "model" if adversary.kind == "final-model" else "likelihood" if whole else "releases"
    agents = frozenset(range(pair.first.problem.agents)) - hiding if hiding else None
    heard = _heard(events, adversary, agent)
    return Stage(pair.first, pair.second, agent, reading, ids, heard, agents)  # type: ignore[arg-type]


def _heard(
    events: pd.DataFrame, adversary: Adversary, agent: int
) -> frozenset[tuple[int, int]] | None:
    """(Round, release) of the agent's messages that the adversary sees; None for all of them."""
    if adversary.kind == "eavesdropper":
        return None
    came = (events["kind"] == "deliver") & (events["peer"] == agent)
    if adversary.kind == "coordinator":
        came &= events["agent"] < 0
    if adversary.kind == "direct":
        came &= np.isin(events["agent"], adversary.agents)
    rows = events[came]
    return frozenset(zip(rows["round"].tolist(), rows["release"].tolist(), strict=True))
