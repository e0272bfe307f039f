"""The accountant that `privacy.accountant` names, asked once before the run."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.columns import Words
from desim.errors import InputError
from desim.privacy.accounting.plugged import answered
from desim.privacy.accounting.prices import prices
from desim.privacy.ledger.ledger import MECHANISMS, Terms
from desim.scenario import registry
from desim.scenario.schema import Scenario


def try_accountant(scenario: Scenario, first: Terms | None, rows: NDArray[np.int64]) -> None:
    """Raise InputError where the accountant has no answer to agent 0's first planned release.

    first: terms (agents,) of it, None where the method has no plan; rows (agents,): records.
    """
    terms = scenario.privacy
    if terms is None or terms.accountant is None or first is None:
        return
    chosen = registry.accountant(terms.accountant, "privacy.accountant")
    table: dict[str, Any] = {
        "agent": np.zeros(1, np.int64),
        "mechanism": Words(np.zeros(1, np.int8), [MECHANISMS[first.mechanism]]),
        "sensitivity": first.sensitivity[:1],
        "scale": first.scale[:1],
        "sampling": first.sampling[:1],
    }
    priced = prices(table, rows, terms.relation)
    if np.isinf(priced.mu2).any():
        return
    try:
        answered(chosen, priced, terms.delta)
    except InputError as error:
        text = f"privacy.accountant: {error}, asked for the first planned release of agent 0"
        raise InputError(text) from error.__cause__
