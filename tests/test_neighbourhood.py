"""Whole neighbourhoods in one call: the same bits as link by link and agent by agent."""

from typing import Any

import numpy as np
import pytest

from desim.distributions import (
    CONSTANT,
    EXPONENTIAL,
    GAMMA,
    LOGNORMAL,
    NORMAL,
    UNIFORM,
    Distribution,
)  # fmt: skip
from desim.kernels.neighbourhood import first_factors, overlay, send_all, wait_all, work_all
from desim.kernels.network import broadcast, close_all, log_each
from desim.kernels.record import DISTANT, UPLINK, Kind, empty_rows
from desim.network.links import LinkModel, make_links
from desim.network.topology import from_edges

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


def links(law: str) -> tuple[Any, ...]:
    latency, rate = Distribution(UNIFORM, 0.01, 0.2), Distribution(CONSTANT, 1e4)
    model = LinkModel(latency, rate, LAWS[law], (0.0, 0.0), 1.0, 0)
    made = make_links(model, GRAPH.source, GRAPH.target, 7)
    assert made.plain
    return tuple(made)


def written(rows: Any) -> list[tuple[float, ...]]:
    n = int(rows.n[0])
    return sorted(map(tuple, np.hstack([rows.ints[:n], rows.floats[:n]])))


def sent(law: str, drawn_in: int) -> tuple[Any, ...]:
    """Arrivals, deliveries and rows when everybody sends in ROUND."""
    rows, arrival, delivered = empty_rows(64), np.empty(LINKS), np.empty(AGENTS, np.int64)
    factor, flat = np.empty(LINKS), links(law)
    bits, silent = 64 * np.arange(1, AGENTS + 1), np.arange(AGENTS) == 1
    first_factors(flat, drawn_in, factor)
    send_all(
        flat, factor, CLOCK, ROUNDS, bits, silent, 10 * WHO, END, arrival, delivered, tuple(rows)
    )
    return arrival, delivered, written(rows)


def sent_one_by_one(law: str) -> tuple[Any, ...]:
    rows, arrival, delivered = empty_rows(64), np.empty(LINKS), np.empty(AGENTS, np.int64)
    bits, silent = 64 * np.arange(1, AGENTS + 1), np.arange(AGENTS) == 1
    broadcast(
        links(law), GRAPH.outgoing, GRAPH.out_links, WHO, CLOCK, ROUNDS, bits, silent, 10 * WHO,
        END, arrival, delivered, tuple(rows),
    )  # fmt: skip
    return arrival, delivered, written(rows)


@pytest.mark.parametrize("law", LAWS)
def test_everybody_sends_as_each_one_does(law):
    one, other = sent(law, ROUND), sent_one_by_one(law)
    assert one[0].tobytes() == other[0].tobytes()
    assert (one[1] == other[1]).all()
    assert one[2] == other[2]
    assert len(one[2]) == 2 * 9  # agents 0, 1, 2 and 5 send; 3 is past the end, 4 is gone


def test_the_jitter_of_another_round_is_told_apart():
    assert sent("lognormal", ROUND + 1)[0].tobytes() != sent_one_by_one("lognormal")[0].tobytes()


def test_work_is_added_and_written():
    seconds, value = np.array([0.1, 0.4, 0.0, 0.0, 0.0, np.inf]), np.arange(6.0)
    rows, other, after = empty_rows(8), empty_rows(8), np.empty(AGENTS)
    place = WHO, CLOCK, seconds, value, ROUNDS, END, NOTHING, after
    ends = work_all(*place, tuple(rows))
    log_each(
        tuple(other), int(Kind.COMPUTE), UPLINK, WHO, -1, ROUNDS, END, CLOCK + seconds, seconds,
        value, NOTHING,
    )  # fmt: skip
    assert (after == CLOCK + seconds).all()
    assert ends == (0.2, np.inf)
    assert written(rows) == written(other)
    assert len(written(rows)) == 3


def test_a_barrier_closes_with_its_latest_message():
    arrival = np.linspace(0.0, 0.95, LINKS)
    rows, other, after, clock = empty_rows(8), empty_rows(8), np.empty(AGENTS), CLOCK.copy()
    degree = GRAPH.degree.astype(float)
    ends = wait_all(
        GRAPH.incoming, arrival, WHO, CLOCK, degree, ROUNDS, END, NOTHING, after, tuple(rows)
    )
    close_all(GRAPH.incoming, arrival, clock)
    with np.errstate(invalid="ignore"):
        waited = clock - CLOCK
    log_each(
        tuple(other), int(Kind.AGGREGATE), DISTANT, WHO, -1, ROUNDS, END, clock, waited, degree,
        NOTHING,
    )  # fmt: skip
    assert after.tobytes() == clock.tobytes()
    assert ends == (clock.min(), np.inf)
    assert written(rows) == written(other)


def test_models_that_are_true_by_an_instant_take_their_place():
    time, models, base = np.array([0.1, 0.3, 0.2]), np.ones((3, 2)), np.zeros((3, 2))
    assert overlay(time, 0.2, models, base) == 2
    assert base.tolist() == [[1.0, 1.0], [0.0, 0.0], [1.0, 1.0]]
