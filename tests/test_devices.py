"""Devices that change their speed, and laws of it: closed forms, both engines, bad files."""

import naive.pace
import numpy as np
import pytest
from cases import graph, star
from mutant import mutant
from test_engines import differences

import desim
from desim.errors import InputError
from desim.network.conditions.devices import NOTHING, rate_traces, speed_model
from desim.network.timeline.computations import OVER_TIME, SPEED, SPELL, alternation, seconds_into
from desim.numerics.distributions import CONSTANT, EXPONENTIAL, SHIFTED, Distribution, draw, mean
from desim.numerics.keys import Stream

SPELLS = {"factor": 4, "every": {"exponential": "300 ms"}, "lasting": {"exponential": "200 ms"}}
RATES = "time,one,two\n0,40,10\n0.25,0,30\n0.5,90,20\n1.75,20,60\n"


def seconds(speeds, begin, work, agent=0, round_=1):
    """How long `work` takes from `begin` s on."""
    out = np.empty(1)
    seconds_into(
        speeds, np.array([agent]), np.array([round_]), np.array([begin]), np.array([work]), out
    )
    return float(out[0])


def spelled(seed=5, factor=4.0):
    """50 gradients a second, at times slower."""
    every, lasting = Distribution(EXPONENTIAL, 3.0), Distribution(EXPONENTIAL, 2.0)
    spells = (factor, every, lasting)
    return speed_model(Distribution(CONSTANT, 50.0), 3, seed, spells=spells)


def turns(speeds, agent, count=400):
    """Ends of an agent's turns, drawn one by one."""
    laws = [Distribution(*law) for law in speeds.spells[1]]
    place = {"agent": agent, "step": SPELL}
    seed = int(speeds.seed)
    drawn = [
        float(draw(laws[n % 2], seed, Stream.SPEED, index=64 * (n % 2), round=n // 2, **place))
        for n in range(count)
    ]
    return np.cumsum(drawn)


def walk_gap(twin=naive.pace):
    """Largest difference from a walk through the turns, s."""
    speeds, gaps = spelled(), []
    for agent in range(3):
        ends = turns(speeds, agent)
        for begin in (0.0, 1.1, 7.3, 200.0, 4.4):
            for work in (0.0, 1.0, 90.0, 2000.0):
                expected = twin.slowed(ends, 50.0, 4.0, begin, work)
                gaps.append(abs(seconds(speeds, begin, work, agent) - expected))
    return max(gaps)


def test_a_computation_runs_through_spells():
    assert walk_gap() < 1e-9


@pytest.mark.parametrize(
    ("right", "wrong"), [("speed / factor", "speed"), ("turn % 2", "(turn + 1) % 2")]
)
def test_another_walk_is_noticed(right, wrong):
    assert walk_gap(mutant(naive.pace, right, wrong)) > 1e-3


def test_a_state_depends_on_the_time_alone():
    laws = ((EXPONENTIAL, 3.0, 0.0), (EXPONENTIAL, 2.0, 0.0))
    times, seed = np.random.default_rng(1).uniform(0.0, 500.0, 300), np.uint64(9)
    memory = np.zeros((3, 1))
    shuffled = [alternation(seed, SPEED, SPELL, laws, 0, t, memory) for t in times]
    fresh = [alternation(seed, SPEED, SPELL, laws, 0, t, np.zeros((3, 1))) for t in times]
    assert shuffled == fresh


def markov_share(mutated=1.0):
    """Share of time at full speed over long runs, which for a Markov chain is 3 / (3 + 2)."""
    laws = ((EXPONENTIAL, 3.0 * mutated, 0.0), (EXPONENTIAL, 2.0, 0.0))
    memory, times = np.zeros((3, 200)), np.arange(50.0, 500.0, 0.9)
    found = [
        [alternation(np.uint64(2), SPEED, SPELL, laws, i, t, memory)[0] for t in times]
        for i in range(200)
    ]
    return np.mean(found)


def test_a_markov_speed_has_its_stationary_share():
    """Correlation time 1 / (1/3 + 1/2) = 1.2 s: 200 x 450 s hold 37 500 draws; 5 deviations."""
    assert abs(markov_share() - 0.6) < 5 * np.sqrt(0.24 / 37_500)
    assert abs(markov_share(1.2) - 0.6) > 5 * np.sqrt(0.24 / 37_500)


def shifted_gap(least=0.02, more=0.05):
    """Distance of drawn times of a gradient from 20 ms + Exp(50 ms) (Kolmogorov)."""
    law = Distribution(SHIFTED, least, more)
    speeds = speed_model(law, 40, 3, inverse=True, redraw=True)
    times = np.sort([seconds(speeds, 0.0, 1.0, i, k) for i in range(40) for k in range(1, 101)])
    law_ = np.where(times > 0.02, 1.0 - np.exp(-(times - 0.02) / 0.05), 0.0)
    steps = np.arange(len(times) + 1) / len(times)
    return max(np.abs(law_ - steps[1:]).max(), np.abs(law_ - steps[:-1]).max())


def test_shifted_exponential_times():
    assert mean(Distribution(SHIFTED, 0.02, 0.05)) == pytest.approx(0.07)
    assert shifted_gap() < 2.0 / np.sqrt(4000)  # exceeded with probability 7e-4
    assert shifted_gap(0.02, 0.06) > 2.0 / np.sqrt(4000)


def test_speeds_over_time_integrate_the_trace(tmp_path):
    (tmp_path / "rates.csv").write_text(RATES)
    keys = {"loops": True, "shuffled": False, "shifted": False, "where": "here"}
    traces = rate_traces(tmp_path / "rates.csv", (), 1.0, **keys)
    speeds = speed_model(traces, 2, 1, order=OVER_TIME, slow=(0.5, 2.0))
    slow = int(np.argmax(speeds.devices[0]))
    factor = [2.0 if slow == i else 1.0 for i in (0, 1)]
    assert seconds(speeds, 0.0, 10.0 / factor[0]) == pytest.approx(0.25)
    assert seconds(speeds, 0.25, 9.0 / factor[0]) == pytest.approx(0.35)  # an outage, then 90 /s
    assert seconds(speeds, 300.0, 6.0 / factor[1], agent=1) == pytest.approx(
        naive.pace.integrated(RATES, 1, 300.0, 6.0), abs=1e-4
    )
    assert not speeds.steady
    assert speed_model(NOTHING, 2, 1).steady


def varying(tmp_path):
    """Models of speeds that change during a computation."""
    path = tmp_path / "rates.csv"
    path.write_text(RATES)
    trace = {"trace": str(path), "order": "time", "offset": "random", "unit": "8 /s"}
    return {
        "spells": {"speed": {"lognormal": ["60 /s", 0.4]}, "redraw": "round", "spells": SPELLS},
        "time": {"speed": trace},
        "law": {"time": {"shifted_exponential": ["5 ms", "9 ms"]}, "redraw": "round"},
    }


@pytest.mark.thin(3)
@pytest.mark.parametrize("kind", ["spells", "time", "law"])
@pytest.mark.parametrize("make", [star, graph])
def test_engines_agree_on_changing_speeds(tmp_path, make, kind):
    scenario = {**make(), "compute": varying(tmp_path)[kind]}
    cohort = desim.run(scenario, overrides={"engine": "cohort"})
    agents = desim.run(scenario, overrides={"engine": "agents"})
    assert differences(cohort, agents) == []
    computed = cohort.events[cohort.events.kind == "compute"]
    assert computed.groupby("agent").seconds.nunique().min() > 1
    steady = desim.run(make())
    assert cohort.iterates.tobytes() == steady.iterates.tobytes()


def test_a_deferred_call_with_spells_agrees(tmp_path):
    scenario = {
        **star(policy={"deadline": "250 ms"}, stop={"rounds": 25}),
        "compute": varying(tmp_path)["spells"],
    }
    runs = [desim.run(scenario, overrides={"engine": e}) for e in ("cohort", "agents")]
    assert differences(*runs) == []
    assert (runs[0].events.kind == "deadline").sum() > 2


def test_scores_of_phones_scale_to_their_median(shared):
    path = str(shared / "data" / "flash_ai_benchmark.csv")
    speed = {"trace": path, "field": "FP32_Score", "median": "50 /s"}
    run = desim.run({**star(), "compute": {"speed": speed}})
    events = run.events[run.events.kind == "compute"]
    computed = events.seconds.round(9).groupby(events.agent)
    assert computed.nunique().max() == 1
    assert computed.first().nunique() > 3
    with pytest.raises(InputError, match="allowed: only one of them"):
        desim.run({**star(), "compute": {"speed": {**speed, "unit": "ms"}}})


@pytest.mark.parametrize(
    ("compute", "told"),
    [
        ({"speed": "5 /s", "time": "1 s"}, "found speed and time"),
        ({"spells": {**SPELLS, "every": "0 s"}}, "every: found 0"),
        ({"spells": {"factor": 0.5, "every": "1 s", "lasting": "1 s"}}, "number >= 1"),
    ],
)
def test_speeds_that_make_no_sense_are_refused(compute, told):
    with pytest.raises(InputError, match=told):
        desim.load({**star(), "compute": compute})


def test_samples_planned_by_a_speed_need_one_that_holds():
    quantised = {"name": "q-dpsgd-1", "alpha": 0.1, "mixing": 0.5, "bits": 8, "resolution": 0.1}
    scenario = graph(algorithm={**quantised, "deadline": "1 s"})
    scenario["algorithm"].pop("rho", None), scenario["algorithm"].pop("eta", None)
    with pytest.raises(InputError, match="plans its samples by it"):
        desim.load({**scenario, "compute": {"spells": SPELLS}})


def test_words_in_a_column_of_a_trace_are_named(tmp_path):
    file = tmp_path / "speeds.csv"
    file.write_text("time,one,two\n0,40,10\n1,30,fast\n")
    terms = {"loops": True, "shuffled": False, "shifted": False, "where": "compute.speed"}
    with pytest.raises(InputError, match=r"compute\.speed: found 'fast' in row 1 of column two"):
        rate_traces(file, (), 1.0, **terms)
    assert rate_traces(file, ("one",), 1.0, **terms).samples.shape == (3, 3)  # the other may be


POSITIVE = r"allowed: a speed such as 50 /s or 10 GFLOP/s \(.*\), or a bare number > 0"


def test_a_list_has_a_speed_for_each_agent():
    speeds = ["100 /s", 200, "1 /ms", 50.0, 70, 80]
    taken = []
    for law in (speeds, 100):
        events = desim.run(star(compute={"speed": law}, stop={"rounds": 1})).events
        taken.append(events[events["kind"] == "compute"].groupby("agent")["seconds"].first())
    assert (taken[1] / taken[0]).to_numpy() == pytest.approx([1.0, 2.0, 10.0, 0.5, 0.7, 0.8])
    for wrong, words in (
        ([1.0, 2.0], "found 2 entries for 6 agents; allowed: one for each agent"),
        ([], r"found \[\]; allowed: one entry for each agent"),
        ([1.0, 2.0, 0.0, 1.0, 1.0, 1.0], rf"of agent 2: found 0.0; {POSITIVE}$"),
        ([-5, 2.0], rf"of agent 0: found -5; {POSITIVE}$"),
        ([1.0, "inf"], rf"of agent 1: found 'inf'; {POSITIVE}$"),
        ([1.0, "5 m"], rf"of agent 1: found unit 'm' in '5 m'; {POSITIVE}"),
        ([{"uniform": [1, 2]}] * 4, rf"of agent 0: found {{'uniform': \[1, 2\]}}; {POSITIVE}$"),
    ):
        with pytest.raises(desim.InputError, match=words):
            desim.run(star(compute={"speed": wrong}))
    for one in (0, -5):  # a single speed may be infinite, and the rest is the same sentence
        with pytest.raises(desim.InputError, match=rf"found {one}; {POSITIVE}, or inf$"):
            desim.run(star(compute={"speed": one}))
