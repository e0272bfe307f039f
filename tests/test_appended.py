"""Rows of both tables leave once they are final: all of them, once, in order of time."""

import numpy as np
import pytest
from mutant import mutant

from desim.log.event_log import LEVELS, ROUNDS, EventLog
from desim.network.timeline import record
from desim.network.timeline.record import Kind
from desim.privacy.ledger.ledger import Ledger, Mechanism, Terms, View

N = 40
TIME = np.random.default_rng(3).integers(0, 20, N) / 10.0
WHO, ONES = np.arange(N), np.ones(N)
FRONTIERS = [[9.0], [0.0, 0.55, 0.55, 1.2, 9.0], [1.9, 9.0], [-np.inf, np.inf]]


def events(level="all"):
    log = EventLog(4, LEVELS[level])
    for agent, time in enumerate(TIME.tolist()):
        log.add(list(Kind)[agent % len(Kind)], 0, agent, 1, time, seconds=time)
    return log


def releases():
    ledger = Ledger(7, N)
    terms = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, 1.0 + WHO, ONES, ONES)
    _, ids = ledger.release(TIME, WHO, WHO * 0 + 1, 0, np.zeros((N, 2)), terms, ONES > 0.0)
    ledger.delivered(ids, WHO)
    return ledger


CLOSING = sum(Kind(one % len(Kind)) in ROUNDS for one in range(N))
MADE = {
    "events": (events, N),
    "rounds": (lambda: events("rounds"), CLOSING),
    "releases": (releases, N),
}


def check_leaving(make, rows, frontiers):
    """Rows leave by the frontier, in order; to drop them counts the same."""
    taken, dropped, whole = make(), make(), make().take(np.inf)
    tables, until = [], -np.inf
    assert len(whole["time"]) == rows
    for frontier in frontiers:
        table = taken.take(frontier)
        assert len(table["time"]) == table.rows
        assert ((table["time"] >= until) & (table["time"] < frontier)).all()
        tables.append(table)
        until = max(until, frontier)
        dropped.drop(frontier)
        assert dropped.written == taken.written == sum(one.rows for one in tables)
        taken, old = make(), taken
        taken.recall({k: np.array(v) for k, v in old.remembered().items() if v is not None})
    for name in whole:
        parts = [np.array(getattr(one[name], "codes", one[name])) for one in tables]
        assert np.concatenate(parts).tolist() == list(getattr(whole[name], "codes", whole[name]))


@pytest.mark.parametrize("name", MADE)
@pytest.mark.parametrize("frontiers", FRONTIERS)
def test_rows_leave_once_and_in_order(name, frontiers):
    check_leaving(*MADE[name], frontiers)


def test_every_release_knows_whom_it_reached():
    table = releases().take(np.inf)
    assert (table["delivered"] == table["agent"]).all()
    assert (table["sensitivity"] == 1.0 + table["agent"]).all()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("first, self.rows = self.written, rest", "first = self.written"),
        ("first, self.rows = self.written, rest", "first, self.rows = 0, rest"),
        (
            "            self.rows = larger",
            "            self.rows = larger._replace(n=self.rows.n * 0)",
        ),
        ("self.rows.n[:2] = used, short", "self.rows.n[:2] = used - (used > 0), short"),
    ],
)
def test_rows_that_are_lost_or_doubled_are_noticed(right, wrong, monkeypatch):
    broken = mutant(record, right, wrong).Appended
    for name in ("take", "recall", "reserve"):
        monkeypatch.setattr(record.Appended, name, vars(broken)[name])
    with pytest.raises((AssertionError, IndexError, ValueError)):
        check_leaving(events, N, FRONTIERS[1])
