"""What a run has spent so far: bytes and epsilon as of each time at which something is measured.

Rows come in order of time, so that what had been spent by an instant is known once a row of a later
one is there. Epsilon is told meanwhile only where what comes later takes nothing back and adds to
nothing before it: where the account is exact, of Gaussian noise alone, and what is released hangs
on no data. Otherwise it is known when the run is over, as is whatever else is spent.
"""

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.errors import DesimError, InputError
from desim.log.parquet import Tables
from desim.loggers import logger
from desim.privacy.accounting.accountants import Account
from desim.runs.allowance import allowed
from desim.runs.premises import stated, trusted
from desim.runs.reading.series import Meter, delivered
from desim.runs.run import Run
from desim.runs.store import Memory

BYTES = "bytes delivered"
EXACT = "exact GDP"  # the account that a later release leaves as it was
MAX_RELEASES = 1 << 17  # above which epsilon waits for the end
REST = 20.0  # times as long as an account takes there is no other one
said = logger("trackers")


class SoFar:
    """One thing that is spent; name: its curve's; values: what was told of it, in order of time."""

    def __init__(self, name: str) -> None:
        self.name, self.known = name, -np.inf  # s before which all is known
        self.values: list[float] = []

    def take(self, table: str, columns: Mapping[str, Any]) -> None:
        """Hear rows of a table."""
        raise NotImplementedError

    def totals(self, times: Array) -> Array:
        """What had been spent by times (n,) s, known and later than those before; or nothing."""
        raise NotImplementedError


class Bytes(SoFar):
    """Bytes of messages that have arrived."""

    def __init__(self) -> None:
        super().__init__(BYTES)
        self.parts: list[tuple[Array, Array]] = []  # of times s, later than the latest told, bytes
        self.total = 0.0

    def take(self, table: str, columns: Mapping[str, Any]) -> None:
        """Hear of deliveries."""
        if table != "events" or not len(columns["time"]):
            return
        when, came = columns["time"], columns["kind"].equal("deliver")
        self.known = float(when[-1])
        self.parts.append((when[came], columns["bytes"][came].astype(float)))

    def totals(self, times: Array) -> Array:
        """See SoFar."""
        when, amount = (np.concatenate(column) for column in zip(*self.parts, strict=True))
        running = np.cumsum(np.concatenate([[self.total], amount]))
        found = running[np.searchsorted(when, times, side="right")]
        self.total, over = float(found[-1]), when > times[-1]
        self.parts = [(when[over], amount[over])]
        return np.asarray(found)


class Epsilon(SoFar):
    """The largest epsilon of an agent, of a run of which that can be told meanwhile."""

    def __init__(self, run: Run) -> None:
        self.manifest, self.scenario = run.manifest | {"status": "done"}, run.known
        self.written, self.tables, self.rested, self.lost = run.written, Tables(), 0.0, False
        super().__init__(curve_name(self._account()))
        self.lost = self._account().method != EXACT

    def take(self, table: str, columns: Mapping[str, Any]) -> None:
        """Hear of releases."""
        if table != "releases" or self.lost or not len(columns["time"]):
            return
        self.tables.append(table, columns)
        rested = time.monotonic() >= self.rested
        self.known = float(columns["time"][-1]) if rested else -np.inf
        if self.tables.rows[table] > MAX_RELEASES:
            self._lose()

    def totals(self, times: Array) -> Array:
        """See SoFar."""
        began = time.monotonic()
        account = self._account()
        self.rested = time.monotonic() + REST * (time.monotonic() - began)
        if account.method != EXACT or account.void:
            self._lose()
            return np.zeros(0)
        return Meter(*account.growth).by(times)

    def _lose(self) -> None:
        self.lost, self.known, self.tables = True, -np.inf, Tables()

    def _account(self) -> Account:
        run = Run(self.manifest, Memory(self.tables, {}), None, self.scenario)
        run.written = self.written
        return run.account()


def curve_name(account: Account) -> str:
    """What the curve of an account is called: its terms, of letters that every tracker takes."""
    terms = f"delta {account.delta:g}/{account.method}"
    name = f"epsilon/{account.view}/{account.unit}/{account.relation}/{terms}"
    return re.sub(r"[^\w\-. /:]", "-", name)


def _accounted(run: Run) -> bool:
    return bool(run.written.get("privacy") or {}) and bool(len(run.manifest["rows"]))


def meters(run: Run) -> list[SoFar]:
    """What can be told of a run while it plays, which is about to begin."""
    found: list[SoFar] = []
    try:
        run.require("bytes", "deliver")
        found.append(Bytes())
    except InputError:
        said.info("%s: no bytes: the log leaves messages out", run.name)
    if not _accounted(run):
        return found
    try:
        if trusted(run) or allowed(run) or stated(run).view.startswith("direct"):
            why = "what is released hangs on data, or its view on sums or messages"
            said.info("%s: epsilon comes when the run is over: %s", run.name, why)
        else:
            found.append(Epsilon(run))
    except DesimError as error:
        said.info("%s: no epsilon meanwhile: %s", run.name, error)
    return found


def spent(run: Run) -> dict[str, Callable[[Array], Array]]:
    """What a run had spent by times (n,) s, by name: bytes, joules, and epsilon with its terms."""
    found: dict[str, Callable[[Array], Array]] = {}
    with suppress(InputError):  # the log leaves messages out, as was said at the start
        found[BYTES] = delivered(run).by
    if run.powered:
        found["joules"] = run.joules_by
    try:
        if _accounted(run):
            account = run.account()
            found[curve_name(account)] = Meter(*account.growth).by
    except DesimError as error:
        said.info("%s: no epsilon: %s", run.name, error)
    return found
