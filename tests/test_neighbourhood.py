"""Whole neighbourhoods in one call: the same bits as link by link and agent by agent."""

from typing import Any

import numpy as np
import pytest

from desim.log.event_log import LEVELS, EventLog
from desim.network.conditions.links import make_links
from desim.network.conditions.topology import from_edges
from desim.network.timeline.messages import Links, broadcast
from desim.network.timeline.record import UPLINK, Batch, Kind, empty_rows
from desim.network.timeline.together import overlay, send_all, tell_messages, wait_all, work_all
from desim.network.timeline.waiting_rule import close
from desim.numerics.distributions import (
    CONSTANT,
    EXPONENTIAL,
    GAMMA,
    LOGNORMAL,
    NORMAL,
    UNIFORM,
    Distribution,
)  # fmt: skip
from desim.scenario.sections.links import Link

AGENTS, ROUND, END = 6, 3, 0.9
GRAPH = from_edges(AGENTS, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (1, 4)], "graph")
LINKS = len(GRAPH.source)
WHO, NOTHING = np.arange(AGENTS), np.full(AGENTS, -1)
ROUNDS = np.full(AGENTS, ROUND)
CLOCK = np.array([0.1, 0.5, END, 0.91, np.inf, 0.1])
LAWS = {
    "constant": Distribution(CONSTANT, 1.5),
    "uniform": Distribution(UNIFORM, 0.5, 2.0),
    "normal": Distribution(NORMAL, 1.0, 0.7),
    "lognormal": Distribution(LOGNORMAL, 1.0, 0.4),
    "exponential": Distribution(EXPONENTIAL, 1.0),
    "gamma": Distribution(GAMMA, 1.0, 0.6),
}


def links(law: str) -> Links:
    latency, rate = Distribution(UNIFORM, 0.01, 0.2), Distribution(CONSTANT, 1e4)
    link = Link(latency=latency, bandwidth=rate, jitter=LAWS[law])
    made = make_links(link, GRAPH.source, GRAPH.target, 7)
    assert made.plain
    return made


def written(rows: Any) -> list[tuple[float, ...]]:
    n = int(rows.n[0])
    return sorted(map(tuple, np.hstack([rows.ints[:n], rows.floats[:n]])))


SILENT, BITS, IDS = np.arange(AGENTS) == 1, 64 * np.arange(1, AGENTS + 1), 10 * WHO
SOON = np.array([0.1, 0.5, 0.9, 0.3, 0.0, 0.1])


def sent(law: str, drawn_in: int) -> tuple[Any, ...]:
    """Arrivals, bytes and rows when everybody sends in ROUND."""
    rows, arrival, size = empty_rows(64), np.empty(LINKS), np.empty(AGENTS)
    factor, first = np.empty(LINKS), links(law).first
    place = drawn_in, SOON, BITS, SILENT, np.empty(3, np.uint64)
    total, *ends = send_all(first, GRAPH.outgoing, *place, factor, size, arrival)
    assert ends == [SOON.min(), SOON.max(), arrival.max()]
    tell_messages(tuple(rows), first, factor, SOON, ROUNDS, size, IDS)
    return arrival, total, written(rows)


def sent_one_by_one(law: str) -> tuple[Any, ...]:
    rows, arrival, delivered = empty_rows(64), np.empty(LINKS), np.empty(AGENTS, np.int64)
    broadcast(
        tuple(links(law)), GRAPH.outgoing, GRAPH.out_links, WHO, SOON, ROUNDS, BITS, SILENT, IDS,
        END, arrival, delivered, tuple(rows),
    )  # fmt: skip
    assert (delivered == np.diff(GRAPH.outgoing)).all()
    n = int(rows.n[0])
    sizes, kinds = rows.ints[:n, 3] >> 8, rows.ints[:n, 3] & 255
    return arrival, sizes[kinds == int(Kind.SEND)].sum(), written(rows)


@pytest.mark.parametrize("law", LAWS)
def test_everybody_sends_as_each_one_does(law):
    one, other = sent(law, ROUND), sent_one_by_one(law)
    assert one[0].tobytes() == other[0].tobytes()
    assert one[1:] == other[1:]
    assert len(one[2]) == 2 * LINKS


def test_the_jitter_of_another_round_is_told_apart():
    assert sent("lognormal", ROUND + 1)[0].tobytes() != sent_one_by_one("lognormal")[0].tobytes()


def test_work_is_added():
    seconds, after = np.array([0.1, 0.4, 0.0, 0.0, 0.0, np.inf]), np.empty(AGENTS)
    assert work_all(CLOCK, seconds, after) == (0.2, np.inf)
    assert (after == CLOCK + seconds).all()


def test_a_barrier_closes_with_its_latest_message():
    arrival, clock = np.linspace(0.0, 0.95, LINKS), CLOCK.copy()
    after, waited = np.empty(AGENTS), np.empty(AGENTS)
    ends = wait_all(GRAPH.incoming, arrival, CLOCK, after, waited)
    close(GRAPH.incoming, arrival, clock)
    assert after.tobytes() == clock.tobytes()
    assert ends == (clock.min(), np.inf)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(waited, clock - CLOCK)


def logged(late: bool, kept: int, frontiers: list[float]) -> tuple[Any, ...]:
    """Tables and counts of a log that is told messages late or at once, and work at once."""
    log, first = EventLog(kinds=kept), links("lognormal").first
    factor, arrival, size = np.empty(LINKS), np.empty(LINKS), np.empty(AGENTS)
    place = ROUND, SOON, BITS, SILENT, np.empty(99, np.uint64), factor, size
    total, earliest, _, last = send_all(first, GRAPH.outgoing, *place, arrival)
    batch = Batch(
        tell_messages, (first, factor, SOON, ROUNDS, size, IDS), 2 * LINKS, earliest,
        last, ((int(Kind.SEND), LINKS, total), (int(Kind.DELIVER), LINKS, total)),
    )  # fmt: skip
    if late:
        log.later(batch)
    else:
        log.reserve(batch.number)
        batch.write(log.flat, *batch.inputs)
    log.each(Kind.COMPUTE, UPLINK, WHO, ROUNDS, END, CLOCK, SOON, SOON, IDS)
    log.add(Kind.RETIRE, 0, 2, ROUND, 0.4)
    tables = []
    for frontier in frontiers:
        table = log.take(frontier)
        tables.append({name: np.array(getattr(c, "codes", c)) for name, c in table.items()})
    return tables, log.totals, log.last, log.written


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("frontiers", [[2.0], [-1.0, 0.3, 2.0], [0.3], [0.0, 0.05, 0.6, 0.9]])
def test_rows_told_late_are_those_told_at_once(level, frontiers):
    one, other = (logged(late, LEVELS[level], frontiers) for late in (True, False))
    for late, at_once in zip(one[0], other[0], strict=True):
        for name in at_once:
            np.testing.assert_array_equal(late[name], at_once[name], name)
    assert (one[1] == other[1]).all()
    assert one[2:] == other[2:]


def test_models_that_are_true_by_an_instant_take_their_place():
    time, models, base = np.array([0.1, 0.3, 0.2]), np.ones((3, 2)), np.zeros((3, 2))
    assert overlay(time, 0.2, models, base) == 2
    assert base.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
