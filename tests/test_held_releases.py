"""Releases whose rows are written later cost what they cost when they are written at once."""

import numpy as np
import pytest

from desim.privacy.held import Shelf
from desim.privacy.ledger import Ledger, Mechanism, Terms, View

N, DIM = 5, 3
WHO, EVERYBODY, NAN = np.arange(N), np.ones(N, bool), np.full(N, np.nan)
TERMS = Terms(Mechanism.GAUSSIAN, View.NEIGHBOURS, np.arange(1.0, N + 1), np.ones(N), NAN)


def released(frontiers, drops=False):
    """Tables, one a frontier, of five rounds of releases, the fourth of some agents only."""
    ledger, noisy = Ledger(7, N), []
    for k in range(1, 6):
        time, round_ = k + 0.3 * np.arange(N), np.full(N, k)
        where = EVERYBODY if k != 4 else WHO < 2
        value, ids = ledger.release(time, WHO, round_, k % 2, np.zeros((N, DIM)), TERMS, where)
        noisy.append(value)
        ledger.delivered(ids, WHO + k)
    if drops:
        return [ledger.drop(frontier) for frontier in frontiers]
    tables = [ledger.take(frontier) for frontier in frontiers]
    return [
        {name: np.array(getattr(column, "codes", column)) for name, column in table.items()}
        for table in tables
    ]


def same(one, other):
    return all(
        left[name].tobytes() == right[name].tobytes()
        for left, right in zip(one, other, strict=True)
        for name in right
    )


@pytest.mark.parametrize("frontiers", [[9.0], [0.5, 2.4, 9.0], [3.1, 3.2], [-np.inf, np.inf]])
def test_held_releases_are_those_written_at_once(monkeypatch, frontiers):
    held, dropped = released(frontiers), released(frontiers, drops=True)
    with monkeypatch.context() as patched:
        patched.setattr(Shelf, "put", lambda *place: None)
        at_once = released(frontiers)
    assert same(held, at_once)
    assert dropped == [len(table["time"]) for table in at_once]
    assert sum(dropped) > 0
    monkeypatch.setattr(Shelf, "deliver", lambda self, ids, recipients: True)
    assert not same(released(frontiers), at_once)


def test_a_checkpoint_has_what_was_held():
    ledger, other = Ledger(7, N), Ledger(7, N)
    ids = ledger.release(np.ones(N), WHO, WHO * 0 + 1, 0, np.zeros((N, DIM)), TERMS, EVERYBODY)[1]
    ledger.delivered(ids, WHO)
    other.recall(ledger.remembered())
    assert other.take(2.0)["delivered"].tolist() == WHO.tolist()
