"""Draws of many agents at once are those of each alone; asking for memory changes nothing."""

import numpy as np
import pytest
from cases import CASES
from test_engines import differences

import desim
from desim.network.timeline.computations import speeds_into
from desim.network.timeline.messages import neighbour_sum, try_once
from desim.network.timeline.together import DOWN, PACE, TOGETHER, UP, draw_calls, memory_for_draws
from desim.numerics.keys import Stream, normals
from desim.privacy.ledger.ledger import add_normal
from desim.scenario.build import build

LAWS = ({"lognormal": 0.3}, {"uniform": [0.5, 2]}, {"exponential": 1}, "none", {"normal": [1, 1]})
SPEEDS = ({"lognormal": [50, 0.5]}, {"uniform": [10, 90]}, {"gamma": [50, 2]}, 50, 50)


def devices(jitter, speed, redraw):
    """Speeds and links of 300 agents with these laws."""
    scenario = CASES["plt-all"] | {
        "network": {"link": {"latency": {"uniform": ["5 ms", "50 ms"]}, "jitter": jitter}},
        "compute": {"speed": speed, "redraw": redraw, "slow": {"fraction": 0.5, "factor": 3}},
    }
    settings = build(desim.load(scenario, {"problem.agents": 300})).settings
    return settings.speeds, settings.downlinks, settings.uplinks


def alone(speeds, down, up, who, round_):
    """Latencies down and up, and speeds, (3, n), one by one."""
    drawn = np.empty((3, len(who)))
    for row, links in ((DOWN, down), (UP, up)):
        drawn[row] = [try_once(tuple(links), e, 0.0, round_, 2, 0)[0] for e in who]
    speeds_into(speeds, who, np.full(len(who), round_), drawn[PACE])
    return drawn


@pytest.mark.parametrize(("jitter", "speed"), list(zip(LAWS, SPEEDS, strict=True)), ids=str)
def test_draws_at_once_have_the_bits_of_each_alone(jitter, speed):
    speeds, down, up = devices(jitter, speed, "round")
    who, memory = np.arange(300)[1::3], memory_for_draws()
    draw_calls(speeds, down, up, who, 7, 2, memory)
    found = memory[0][:, : len(who)].copy()
    found[DOWN] *= down.wires[0, who]
    found[UP] *= up.wires[0, who]
    np.testing.assert_array_equal(found, alone(speeds, down, up, who, 7))
    if speed != 50:
        assert (found[PACE] != alone(speeds, down, up, who, 8)[PACE]).all()


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"policy": "each", "stop.rounds": 500}], ids=str)
def test_more_agents_than_are_drawn_at_once(changes):
    """The agent engine draws message by message; 300 agents have more rows than a cache holds."""
    agents, data = TOGETHER + 44, {"problem.data.rows": 12, "problem.data.dim": 12}
    same = {"problem.agents": agents, "stop": {"rounds": 2}} | data | changes
    case, engines = CASES["plt-noisy"], ("auto", "agents")
    runs = [desim.run(case, overrides={"engine": engine} | same) for engine in engines]
    assert runs[0].manifest["engine"] == "compiled"
    assert differences(*runs) == []
    other = desim.run(case, overrides=same | {"seed": 99})
    assert differences(other, runs[1])


@pytest.mark.parametrize("shape", [(300, 1), (70, 7), (3, 2 * TOGETHER + 3), (1, 4 * TOGETHER)])
def test_noise_at_once_is_the_noise_of_each_alone(shape):
    """More rows than are drawn at once, and rows with more numbers than are."""
    n, dim = shape
    value, who = np.linspace(-1.0, 1.0, n * dim).reshape(shape), np.arange(n) + 5
    scale, where, round_ = 0.1 + who, who % 3 != 0, who % 4
    drawn = normals(11, Stream.NOISE, size=dim, agent=who, round=round_, step=2)
    noisy = np.where(where[:, None], value + scale[:, None] * drawn, value)
    place = np.uint64(11), who, round_
    found = add_normal(*place, 2, scale, where, value)
    np.testing.assert_array_equal(found, noisy)
    assert (add_normal(*place, 3, scale, where, value) != noisy)[where].all()


def test_sums_over_neighbours_keep_their_order():
    """0 to 11 neighbours: in fours, twos and one, with the bits of one after another."""
    degree, dim = np.arange(12), 5
    pointer = np.concatenate([[0], np.cumsum(degree)])
    index = np.arange(pointer[-1]) * 7 % 12
    values, weights = np.sin(np.arange(60.0)).reshape(12, dim), np.cos(np.arange(66.0))
    out, one_by_one, backwards = np.empty((12, dim)), np.zeros((12, dim)), np.zeros((12, dim))
    neighbour_sum(pointer, index, values, weights, out)
    for r in range(12):
        for e in range(pointer[r], pointer[r + 1]):
            one_by_one[r] += weights[e] * values[index[e]]
        for e in reversed(range(pointer[r], pointer[r + 1])):
            backwards[r] += weights[e] * values[index[e]]
    np.testing.assert_array_equal(out, one_by_one)
    assert (out != backwards).any()
