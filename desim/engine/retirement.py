"""The budget of agents on a graph: who may release, and how the others take their leave."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.engine.world import World
from desim.network.timeline.record import LEAVING, Kind
from desim.privacy.ledger.ledger import Terms


def admitted(us: Any, world: World, terms: Terms, where: Any) -> NDArray[np.bool_]:
    """Agents (n,) of the cohort that release now where `where`: live, and within their budget.

    The others leave: they retire with the next message, a null, or are gone where the run stops.
    """
    mask, filter_ = us.live if where is None else us.live & np.asarray(where), world.filter
    if filter_ is None or not mask.any():
        return np.asarray(mask)
    rows = np.flatnonzero(mask)
    price = filter_.price(us.who[rows], terms, rows)
    fit = filter_.admit(us.who[rows], price, us.clock[rows])
    filter_.spend(us.who[rows[fit]], price[:, fit])
    if fit.all():
        return np.asarray(mask)
    refused = np.zeros_like(mask)
    refused[rows[~fit]] = True
    us._set(live=us.live & ~refused)
    if filter_.budget.on_exhausted == "stop":
        us.depart(refused)
    else:
        us._set(leaving=us.leaving | refused)
        for r in rows[~fit]:
            i, k, now = int(us.who[r]), int(us.round[r]), float(us.clock[r])
            world.log.add(Kind.RETIRE, LEAVING, i, k, now, value=filter_.epsilon(i))
            world.observer.leave(i, now)
    return np.asarray(mask & ~refused)
