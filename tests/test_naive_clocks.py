"""The clock recursions by hand, against max-plus matrix products, and mutated."""

import naive.clocks as clocks
import numpy as np
import pytest
from mutant import mutant

PATH = [[1], [0, 2], [1]]


def durations(rounds, agents, seed=5):
    rng = np.random.default_rng(seed)
    return rng.uniform(1, 3, (rounds, agents)), rng.uniform(0.1, 2, (rounds, agents, agents))


def test_three_agents_by_hand():
    compute = [[1, 5, 2], [1, 1, 1]]
    delay = np.full((2, 3, 3), 0.5)
    computed, ready = clocks.graph_clocks(compute, delay, PATH)
    assert computed.tolist() == [[1, 5, 2], [6.5, 6, 6.5]]
    assert ready.tolist() == [[5.5, 5, 5.5], [6.5, 7, 6.5]]
    _, ready = clocks.graph_clocks(compute, delay, PATH, "send-gather-compute")
    assert ready.tolist() == [[1.5, 5.5, 2.5], [7, 6.5, 7]]
    _, ready = clocks.graph_clocks(compute, delay, PATH, "send-compute-gather")
    assert ready.tolist() == [[1, 5, 2], [5.5, 6, 5.5]]


def test_deadline_round_of_the_dissertation(golden):
    for case in golden("dissertation")["runtime"]["q"]:
        delay = np.full((3, 4, 4), 3 * case["s"] / 16)
        compute = np.full((3, 4), case["Td"])
        ring = [[(i - 1) % 4, (i + 1) % 4] for i in range(4)]
        _, ready = clocks.graph_clocks(compute, delay, ring, "send-gather-compute")
        assert np.abs(ready - case["time"] * np.arange(1, 4)[:, None]).max() < 1e-12


def max_plus_ready(compute, delay, neighbours):
    """ready(k) = M(k) (x) ready(k - 1), M_ij = compute_j + delay_ji, the diagonal without delay."""
    ready, rows = np.zeros(compute.shape[1]), []
    for c, d in zip(compute, delay, strict=True):
        M = np.full(d.shape, -np.inf)
        for i, others in enumerate(neighbours):
            M[i, i] = c[i]
            for j in others:
                M[i, j] = c[j] + d[j, i]
        ready = (M + ready).max(axis=1)
        rows.append(ready)
    return np.array(rows)


def test_barrier_is_a_max_plus_product():
    compute, delay = durations(30, 5)
    ring = [[(i - 1) % 5, (i + 1) % 5] for i in range(5)]
    expected = max_plus_ready(compute, delay, ring)
    _, ready = clocks.graph_clocks(compute, delay, ring)
    assert np.abs(ready - expected).max() < 1e-12
    for right, wrong in [
        ("max([sent[i]]", "min([sent[i]]"),
        ("delay[k, j, i]", "delay[k, i, j]"),
        ("start = ready[k]", "start = computed[k]"),
    ]:
        _, ready = mutant(clocks, right, wrong).graph_clocks(compute, delay, ring)
        assert np.abs(ready - expected).max() > 0.1


# One round trip of agents 0, 1, 2 takes 1, 2 and 4 seconds, the same in every round.
TRIPS = np.broadcast_to([0.25, 0.5, 1.0], (4, 3))
HAND = [
    ({"policy": "all"}, [4, 8, 12, 16], [[0, 0, 0], [1, 1, 1], [2, 2, 2], [3, 3, 3]]),
    (
        {"policy": "deadline", "value": 3},
        [3, 6, 9, 12],
        [[0, 0, -1], [1, 1, -1], [2, 2, -1], [3, 3, -1]],
    ),
    (
        {"policy": "deadline", "value": 3, "late": "carry"},
        [3, 5, 8, 10],
        [[0, 0, -1], [1, 1, 0], [2, 2, -1], [3, 3, 2]],
    ),
    (
        {"policy": "quorum", "value": 2},
        [2, 4, 6, 8],
        [[0, 0, -1], [1, 1, -1], [2, 2, -1], [3, 3, -1]],
    ),
    (
        {"policy": "all", "invited": [[1, 0, 0], [0, 0, 1], [0, 0, 0], [1, 1, 0]]},
        [1, 5, 5, 7],
        [[0, -1, -1], [-1, -1, 1], [-1, -1, -1], [3, 3, -1]],
    ),
]


@pytest.mark.parametrize(("case", "close", "issued"), HAND)
def test_coordinator_by_hand(case, close, issued):
    found = clocks.coordinator_clocks(TRIPS, 2 * TRIPS, TRIPS, **case)
    assert found[0].tolist() == close
    assert found[1].tolist() == issued


def test_a_buffer_keeps_the_slow_reply():
    trips = np.array([[1, 2.5, 4.75]] * 5) / 3
    case = {"policy": "buffer", "value": 2, "late": "carry"}
    close, issued = clocks.coordinator_clocks(trips, trips, trips, **case)
    # due 1, 2.5, 4.75 | 3.5, 5, 4.75 | 5.75, 5, 9.5 | 6.75, 8.25, 9.5 | 9.25, 10.75, 9.5
    assert np.abs(close - [2.5, 4.75, 5.75, 8.25, 9.5]).max() < 1e-12
    assert issued.tolist() == [[0, 0, -1], [1, -1, 0], [2, 1, -1], [3, 3, -1], [4, -1, 2]]
    for right, wrong in [
        ("times[min(need", "times[-min(need"),
        ("if i not in due:", "if True:"),
        ("in due if due[i] <= close[k]]", "in due]"),
        ("issued[k, i] = called[i]", "issued[k, i] = k"),
    ]:
        wrong_close, wrong_issued = mutant(clocks, right, wrong).coordinator_clocks(
            trips, trips, trips, **case
        )
        assert (wrong_close != close).any() or (wrong_issued != issued).any()


def test_each_collects_replies_in_the_order_of_their_due_times():
    trips = np.broadcast_to(np.array([1, np.sqrt(2), np.pi]) / 3, (12, 3))
    close, issued = clocks.coordinator_clocks(trips, trips, trips, policy="each", late="carry")
    due = np.sort(np.concatenate([t * np.arange(1, 13) for t in (1, np.sqrt(2), np.pi)]))[:12]
    assert np.abs(close - due).max() < 1e-12
    assert ((issued >= 0).sum(axis=1) == 1).all()


def test_an_agent_owes_one_reply_and_its_issue_round_is_never_later():
    compute, delay = durations(20, 4)
    for policy, value in (("buffer", 2), ("deadline", 3.0), ("quorum", 3), ("each", None)):
        close, issued = clocks.coordinator_clocks(
            compute, delay[:, 0], delay[:, 1], policy=policy, value=value, late="carry"
        )
        assert (np.diff(close) > 0).all()
        for i in range(4):
            used = issued[issued[:, i] >= 0, i]
            assert (np.diff(used) > 0).all()
        assert (issued <= np.arange(20)[:, None]).all()
