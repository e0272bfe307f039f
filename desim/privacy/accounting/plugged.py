"""Accountants of plug-ins: what they are asked, and what they may answer.

desim does not prove what they say: a number of theirs stands beside desim's own, under their name.
"""

import sys
from abc import ABC, abstractmethod
from contextlib import redirect_stdout
from typing import ClassVar

import numpy as np

from desim.errors import InputError, raised, show
from desim.privacy.accounting.accountants import Account
from desim.privacy.accounting.prices import Prices

EPSILON_LIMIT = 1e300
ALLOWED = "a number >= 0, or inf for no privacy"


class Accountant(ABC):
    """A class with a name, a summary and one method; a plug-in's file or module defines it.

    It is made once, without arguments.
    """

    name: ClassVar[str]
    summary: ClassVar[str]

    @abstractmethod
    def epsilon(self, prices: Prices, delta: float) -> float:
        """Return an epsilon at which all priced releases of one agent are (epsilon, delta)-DP.

        prices: arrays (n,), see `Prices`, of what a view is charged for in
        order of time; they are those of the relation that was asked for, sensitivities over scales.
        """


def answered(accountant: type[Accountant], prices: Prices, delta: float) -> float:
    """What a plug-in's accountant says; InputError where it raises or says what is no epsilon."""
    where = f"accountant {accountant.name}"
    try:
        with redirect_stdout(sys.stderr):  # what it prints is no part of what desim says
            found: object = accountant().epsilon(prices, delta)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise InputError(f"{where}: raised {raised(error)}") from error
    real = isinstance(found, int | float | np.integer | np.floating) and not isinstance(found, bool)
    if not real or not 0.0 <= found or (found > EPSILON_LIMIT and found != np.inf):  # type: ignore[operator]
        raise InputError(f"{where}: found {show(found)}; allowed: {ALLOWED}")
    return float(found)  # type: ignore[arg-type]


def spent(accountant: type[Accountant], account: Account) -> float:
    """The largest epsilon of an agent by a plug-in's accountant, asked once for each different one.

    Where desim knows that there is no privacy at all it is not asked: inf.
    """
    if np.isinf(account.worst):
        return float("inf")
    known: dict[bytes, float] = {}
    for agent in range(account.agents):
        priced = account.prices(agent)
        if len(priced.mu2):
            key = b"".join(np.ascontiguousarray(column).tobytes() for column in priced)
            if key not in known:
                known[key] = answered(accountant, priced, account.delta)
    return max(known.values(), default=0.0)
