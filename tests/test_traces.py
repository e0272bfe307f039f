"""Measured bandwidths, latencies and speeds: closed forms, both engines, the files of real data."""

import naive.fluid
import numpy as np
import pytest
from cases import graph, merged, star
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.network.conditions.devices import rate_traces
from desim.network.conditions.links import latencies
from desim.network.timeline.messages import Links, time_on_wire
from desim.scenario.build import build

ENGINES = ("cohort", "agents")
LOSSY = {"link": {"jitter": {"lognormal": 0.3}, "loss": "15 %", "timeout": "60 ms", "limit": 8}}


def drawn_trace(seed, samples=9):
    """times, rates of a trace with outages."""
    rng = np.random.default_rng(seed)
    times = np.cumsum(rng.uniform(0.1, 2.0, samples)) - 0.1
    rates = rng.uniform(0.5, 4.0, samples) * (rng.random(samples) < 0.7)
    rates[-1] = 1.0 + rng.random()
    return times - times[0], rates


def links_with(samples, loops):
    """One link that plays the whole of samples (3, n)."""
    plays = np.array([[0], [samples.shape[1] - 1]])
    wires, nobody = np.zeros((3, 1)), np.zeros((2, 1), np.int64)
    law, none = (0, 1.0, 0.0), (0.0, 0.0)
    rest = (law, none, none, 1.0, 1.0, 0, plays, samples, loops)
    return Links(np.uint64(0), nobody, wires, *rest)


def written(path, times, rates):
    """A csv file of one trace."""
    rows = [f"{t!r},{r!r}" for t, r in zip(times.tolist(), rates.tolist(), strict=True)]
    path.write_text("\n".join(["time,rate", *rows]) + "\n")
    return path


def fluid_gap(folder, end, twin=naive.fluid):
    """Largest difference from walking through the segments, relative to 1 s."""
    gaps = []
    for seed in range(12):
        times, rates = drawn_trace(seed)
        path = written(folder / "rates.csv", times, rates)
        keys = {"loops": end == "loop", "shuffled": False, "shifted": False, "where": "here"}
        samples = rate_traces(path, (), 1.0, **keys).samples
        links = links_with(samples, end == "loop")
        for begin in (0.0, 0.3, times[4], 7.7, samples[0, -1], 61.0):
            for bits in (1, 2, 7, 40, 500):
                found = time_on_wire(links, 0, begin, bits)
                gaps.append(abs(found - twin.fluid(times, rates, begin, bits, end)))
    return max(gaps)


@pytest.mark.parametrize("end", ["loop", "hold"])
def test_fluid_time_equals_the_walk_through_the_segments(tmp_path, end):
    assert fluid_gap(tmp_path, end) < 1e-9


@pytest.mark.parametrize(
    ("right", "wrong", "end"),
    [
        ("first + left", "first + 1.01 * left", "loop"),
        ("max(start, begin)", "start", "loop"),
        ('end == "hold"', "False", "hold"),
        ("lasts[-1] if lasts else 1.0", "1.0", "loop"),
    ],
)
def test_other_walks_are_noticed(tmp_path, right, wrong, end):
    assert fluid_gap(tmp_path, end, mutant(naive.fluid, right, wrong)) > 1e-3


def test_two_rates_in_closed_form():
    """1 bit/s for 2 s, then 3 bit/s for 2 s, again and again: 8 bits every 4 s."""
    samples = np.array([[0.0, 2.0, 4.0], [1.0, 3.0, 0.0], [0.0, 2.0, 8.0]])
    links = links_with(samples, True)
    assert [time_on_wire(links, 0, 0.0, n) for n in (1, 2, 5, 8, 9, 16, 800)] == [
        1.0, 2.0, 3.0, 4.0, 5.0, 8.0, 400.0,
    ]  # fmt: skip
    assert time_on_wire(links, 0, 4001.0, 4) == 2.0
    held = links_with(samples, False)
    assert time_on_wire(held, 0, 1.0, 7 + 30) == 13.0
    assert time_on_wire(held, 0, 100.0, 30) == 10.0
    waits = links_with(np.array([[0.0, 1.0, 5.0, 6.0], [2, 0, 2, 0], [0, 2, 2, 4.0]]), True)
    assert time_on_wire(waits, 0, 0.0, 2) == 1.0  # nothing of it is left when the outage begins
    assert time_on_wire(waits, 0, 1.5, 1) == 4.0


def test_who_starts_later_is_not_through_earlier(tmp_path):
    times, rates = drawn_trace(3)
    path = written(tmp_path / "rates.csv", times, rates)
    keys = {"loops": True, "shuffled": False, "shifted": False, "where": "here"}
    links = links_with(rate_traces(path, (), 1.0, **keys).samples, True)
    begins = np.linspace(0.0, 40.0, 4001)
    ends = [begin + time_on_wire(links, 0, begin, 5) for begin in begins]
    assert np.diff(ends).min() > -1e-9


def files(folder, scale=1.0):
    """Matrix, rates and speeds of six sites; scale stretches time."""
    rng = np.random.default_rng(8)
    matrix = scale * rng.integers(5, 90, (9, 9)) / 1024.0
    np.fill_diagonal(matrix, 0.0)
    np.savez(folder / "rtt.npz", rtt=matrix)
    traces = {}
    for name in "abc":
        times = scale * np.cumsum(rng.integers(1, 9, 12)) / 64.0
        traces[name] = np.column_stack([times, rng.integers(0, 40, 12) / scale])
        traces[name][-1, 1] = 9.0 / scale
    np.savez(folder / "rates.npz", **traces)
    np.savez(folder / "speeds.npz", speeds=rng.integers(3, 40, (4, 7)) / scale)
    return matrix, traces


def conditions(folder, **keys):
    """Network and compute sections of measurements."""
    trace = {"trace": str(folder / "rates.npz"), "unit": "kbit/s", "offset": "random"}
    return {
        "network": {
            "link": {"bandwidth": trace, **keys},
            "latency_matrix": {"file": str(folder / "rtt.npz"), "unit": "s", "places": "random"},
        },
        "compute": {"speed": {"trace": str(folder / "speeds.npz"), "unit": "8 /s"}},
    }


def measured(folder, made, **keys):
    """The scenario under measured conditions."""
    own = conditions(folder, **keys)
    topology = {k: v for k, v in made["network"].items() if k == "topology"}
    return {**made, **own, "network": {**topology, **own["network"]}}


CASES = {
    "nfl": graph(),
    "nfl-deadline": graph(policy={"deadline": "60 ms"}, stop={"rounds": 30}),
    "p-admm": graph(algorithm={"name": "p-admm", "rho": 0.4}, problem={"clip": 1.0}),
    "plt": star(),
    "plt-deadline": star(policy={"deadline": "120 ms"}),
    "plt-each": star(policy="each", stop={"rounds": 40}),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("lossy", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_the_engines_agree_under_measured_conditions(tmp_path, name, lossy):
    files(tmp_path)
    made = measured(tmp_path, CASES[name], **(LOSSY["link"] if lossy else {}))
    cohort, agents = (desim.run(made, overrides={"engine": engine}) for engine in ENGINES)
    assert differences(cohort, agents) == []
    check_log(cohort)


@pytest.mark.parametrize("name", ["nfl", "plt"])
def test_every_message_takes_what_the_files_say(tmp_path, name):
    """Half a round trip, and the bits at the device's rates, from their departure on."""
    matrix, traces = files(tmp_path)
    made = measured(tmp_path, merged(CASES[name], {"stop": {"rounds": 6}}))
    made["network"]["link"]["bandwidth"].update(assign="in-order", offset="none")
    places = [3, 0, 8, 8, 1, 5, 2, 4]
    for_agents = places[: CASES[name]["problem"]["agents"]]
    made["network"]["latency_matrix"]["places"] = for_agents
    if name == "plt":
        made["network"]["latency_matrix"]["coordinator"] = 7
    site = [*for_agents, 7]
    done = desim.run(made)
    sends = done.events[done.events.kind == "send"]
    for row in sends.itertuples():
        device = row.peer if row.agent < 0 else row.agent
        times, rates = traces["abc"[device % 3]].T
        wire = naive.fluid.fluid(times - times[0], 1e3 * rates, row.time, 8 * row.bytes)
        assert abs(row.seconds - wire) < 1e-9
        ends = (done.events.kind == "deliver") & (done.events.peer == row.agent)
        arrival = done.events[ends & (done.events.agent == row.peer)]
        delay = matrix[site[row.agent], site[row.peer]] / 2
        assert np.abs(arrival.time - (row.time + delay + wire)).min() < 1e-9
    assert len(sends) > 60


@pytest.mark.parametrize("name", ["nfl", "p-admm", "plt"])
def test_stretched_files_stretch_every_timestamp_and_no_iterate(tmp_path, name):
    runs = []
    for scale in (1.0, 2.0):
        folder = tmp_path / str(scale)
        folder.mkdir()
        files(folder, scale)
        runs.append(desim.run(measured(folder, CASES[name])))
    one, two = runs
    assert np.array_equal(2.0 * one.events.time, two.events.time)
    assert one.iterates.tobytes() == two.iterates.tobytes()
    assert one.iterates.tobytes() == desim.run(CASES[name]).iterates.tobytes()


def test_an_agent_more_moves_nobody_elses_trace(tmp_path):
    files(tmp_path)
    links = []
    for agents in (6, 7):
        made = measured(tmp_path, star(problem={"agents": agents}))
        made["network"]["latency_matrix"]["coordinator"] = 0
        links.append(build(desim.load(made)).settings.uplinks)
    few, many = links
    assert np.array_equal(few.plays, many.plays[:, :6])
    assert np.array_equal(few.wires[1:], many.wires[1:, :6])
    assert len(set(many.plays[0])) > 1
    lasts = many.samples[0, many.plays[1]]
    assert ((many.wires[2] > 0) & (many.wires[2] < lasts)).all()


def test_what_was_not_measured_is_stood_in_for_as_declared(tmp_path):
    holes = np.array([[0.0, 4.0, np.nan], [0.0, 0.0, 6.0], [8.0, 0.0, 0.0]])
    np.savez(tmp_path / "rtt.npz", rtt_ms=holes)
    far, near = np.array([0, 1, 2, 0, 1]), np.array([1, 0, 1, 2, 1])

    def seconds(missing):
        read = latencies(tmp_path / "rtt.npz", None, 0, None, 0.5, missing)
        return read.between(far, near).tolist()

    assert seconds("mirror") == [0.002, 0.002, 0.003, 0.004, 0.0]
    assert seconds("median") == seconds("mirror")
    holes[0, 1] = np.nan
    np.savez(tmp_path / "rtt.npz", rtt_ms=holes)
    assert seconds("median") == [0.0035, 0.0035, 0.003, 0.004, 0.0]  # of 6 and 8 ms
    with pytest.raises(desim.errors.InputError, match="from site 0 to 1"):
        seconds("mirror")
    with pytest.raises(desim.errors.InputError, match="4 of 5 links"):
        seconds("error")


def speeds_of(made, rounds):
    """Speeds (rounds, agents) as the kernels see them."""
    from desim.network.timeline.computations import speeds_into

    settings = build(desim.load(made)).settings
    who = np.arange(settings.problem.agents)
    found = np.empty((rounds, len(who)))
    for k in range(rounds):
        speeds_into(settings.speeds, who, np.full(len(who), k + 1), found[k])
    return found


def test_speeds_come_from_the_file_drawn_or_in_turn(tmp_path):
    files(tmp_path)
    table = np.load(tmp_path / "speeds.npz")["speeds"]
    made = measured(tmp_path, star(problem={"agents": 5}))
    trace = made["compute"]["speed"]
    once = speeds_of(made, 3)
    assert (once == once[0]).all()
    assert np.isin(once / 8, table).all()
    made["compute"]["redraw"] = "round"
    trace.update(assign="in-order")
    drawn = speeds_of(made, 400) / 8
    for i in range(5):
        assert set(drawn[:, i]) == set(table[i % 4])
        # 400 draws among 7: a count is off its mean by 4 deviations once in 1e4; 35 counts
        counts = [(drawn[:, i] == value).sum() for value in table[i % 4]]
        repeats = [(table[i % 4] == value).sum() for value in table[i % 4]]
        assert np.abs(np.array(counts) / repeats - 400 / 7).max() < 4.5 * np.sqrt(400 / 7)
    trace.update(order="measured")
    turns = speeds_of(made, 9) / 8
    assert np.array_equal(turns, table[np.arange(5) % 4][:, np.arange(9) % 7].T)
    trace.update(end="hold")
    held = speeds_of(made, 9) / 8
    assert np.array_equal(held, table[np.arange(5) % 4][:, np.minimum(np.arange(9), 6)].T)


def test_a_duration_is_the_inverse_of_a_speed(tmp_path):
    np.savez(tmp_path / "slow.npz", ms=np.array([4.0]))
    made = star(compute={"speed": {"trace": str(tmp_path / "slow.npz"), "unit": "2 ms"}})
    made["compute"]["slow"] = {"fraction": 0}
    assert np.array_equal(speeds_of(made, 1), np.full((1, 6), 1 / 0.008))


def test_real_measurements_on_both_engines(shared):
    data = shared / "data"
    made = merged(CASES["nfl"], {"stop": {"rounds": 5}})
    places = {"places": "random", "missing": "median"}
    made["network"] = {
        "topology": {"regular": 3},
        "link": {
            "bandwidth": {"trace": str(data / "hsdpa_3g_bandwidth.npz"), "unit": "Mbit/s"},
        },
        "latency_matrix": {"file": str(data / "seattle_rtt.npz"), "slice": 40, **places},
    }
    phones = [f"{phone}__lstm__Y" for phone in ("nexus6", "redmi_note8", "sumsung_note10")]
    trace = {"trace": str(data / "flash_train_latency.npz"), "field": phones, "unit": "ms"}
    made["compute"] = {"speed": trace, "redraw": "round"}
    cohort, agents = (desim.run(made, overrides={"engine": engine}) for engine in ENGINES)
    assert differences(cohort, agents) == []
    made["network"]["latency_matrix"] = {"file": str(data / "planetlab_rtt.npz"), "slice": 2}
    matrix = np.load(data / "planetlab_rtt.npz")["rtt_ms"][2]
    links = build(desim.load(made)).settings.links
    assert np.allclose(links.wires[0], matrix[links.ends[0], links.ends[1]] / 2000, rtol=1e-12)
