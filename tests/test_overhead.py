"""compute.overhead: a fixed cost of every computation, to the same bits on all engines."""

import numpy as np
import pytest
from cases import deadline, graph, star
from mutant import mutant
from test_engines import differences

import desim
from desim.network.conditions.devices import NO_TIME, speed_model
from desim.network.timeline import computations
from desim.network.timeline.computations import OVERHEAD, seconds_into
from desim.numerics.distributions import CONSTANT, EXPONENTIAL, Distribution, draw
from desim.numerics.keys import Stream

TWENTY = Distribution(CONSTANT, 20.0)


def seconds(speeds, work, agent=0, round_=1, module=seconds_into):
    out, who = np.empty(1), np.array([agent])
    module(speeds, who, np.array([round_]), np.zeros(1), np.array([float(work)]), out)
    return float(out[0])


def test_it_comes_on_top_and_slow_devices_need_no_more_of_it():
    slow = speed_model(TWENTY, 2, 0, slow=(1.0, 4.0), overhead=Distribution(CONSTANT, 0.25))
    assert seconds(slow, 10) == 0.25 + 10 / 5.0
    assert seconds(slow, 0) == 0.25
    assert seconds(speed_model(TWENTY, 2, 0, overhead=NO_TIME), 10) == 0.5


def test_a_law_is_drawn_for_each_agent_and_round():
    law = Distribution(EXPONENTIAL, 0.1)
    speeds = speed_model(Distribution(CONSTANT, np.inf), 3, 7, overhead=law)
    for agent in range(3):
        for round_ in (1, 2, 9):
            place = {"agent": agent, "round": round_, "step": OVERHEAD}
            assert seconds(speeds, 5, agent, round_) == float(draw(law, 7, Stream.SPEED, **place))


def test_a_wrong_overhead_is_noticed():
    wrong = mutant(computations, "seconds = overhead + work / ", "seconds = work / ")
    speeds = speed_model(TWENTY, 1, 0, overhead=Distribution(CONSTANT, 0.25))
    assert seconds(speeds, 10, module=wrong.seconds_into) != seconds(speeds, 10)


@pytest.mark.parametrize("overhead", ["7 ms", {"exponential": "7 ms"}])
@pytest.mark.parametrize("make", [star, graph])
def test_the_engines_agree(make, overhead):
    scenario = make(compute={"overhead": overhead})
    engines = ("agents", "cohort", "compiled") if make is star else ("agents", "cohort")
    first, *others = (desim.run(scenario, overrides={"engine": one}) for one in engines)
    for other in others:
        assert differences(first, other) == []


def test_without_it_no_bit_changes():
    assert differences(desim.run(star()), desim.run(star(compute={"overhead": "0 s"}))) == []


def test_a_plan_leaves_room_for_it():
    compute = {"speed": 500, "slow": {"fraction": 0}, "redraw": "run"}
    free = desim.run(deadline(compute=compute)).events
    costly = desim.run(deadline(compute={**compute, "overhead": "6 ms"})).events
    found = [set(one[one.kind == "compute"].value) for one in (free, costly)]
    assert found == [{5.0}, {2.0}]  # of 10 ms, and of the 4 ms that are left
