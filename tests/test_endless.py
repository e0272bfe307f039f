"""Runs that would never end: refused before, or told after a bounded number of rounds and waits."""

import signal

import numpy as np
import pytest
from cases import graph, star
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import observer as observing
from desim.engine import play, world
from desim.errors import InputError, RunError
from desim.log import event_log
from desim.scenario.build import build, check
from desim.scenario.load import load

LIMIT = 1800  # s after which a test that hangs is ended; compiling may take minutes
FREE = {"latency": "0 s", "bandwidth": "inf"}
INSTANT = {"speed": "inf"}
TIMELESS = r"stop\.rounds: missing, and nothing takes time"


@pytest.fixture(autouse=True)
def bound():
    def over(number, frame):
        raise AssertionError("the run does not end")

    signal.signal(signal.SIGALRM, over)
    signal.alarm(LIMIT)
    yield
    signal.alarm(0)


def free(make, **changes):
    """A scenario without durations."""
    link = {"link": FREE} if make is star else {"link": FREE, "topology": "ring"}
    return {**make(), "network": link, "compute": INSTANT, **changes}


def network_rows(run):
    """What the network's errors are by the agents' own times and models, one after the other."""
    best = build(run.scenario).observation.optimum
    own = run.metrics.query("metric == 'error' and agent >= 0")
    times = own.pivot_table(index="round", columns="agent", values="time").to_numpy()
    values = []
    for instant in times.max(1):
        newest = (times <= instant).sum(0) - 1
        models = run.iterates[newest, np.arange(len(newest))]
        values.append(((models - best) ** 2).sum() / (best @ best))
    return times.max(1), np.array(values)


MIXED = {"topology": "ring", "link": FREE, "links": [{"sender": 2, "latency": "30 ms"}]}


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("network", [MIXED, {"topology": "ring", "link": FREE}], ids=str)
def test_rows_of_one_time_show_the_newest_models(engine, network):
    run = desim.run(free(graph, network=network, engine=engine, stop={"rounds": 9}))
    found = run.curve("error")
    times, values = network_rows(run)
    np.testing.assert_array_equal(found["time"], times)
    np.testing.assert_allclose(found["value"], values, rtol=1e-12)


def test_rows_that_are_alike_are_told_beforehand(capsys):
    told = "all rounds end at 0 s, when the models are those of the last one"
    ring = free(graph, stop={"rounds": 3})
    for scenario, flat in (
        (ring, True),
        (free(graph, stop={"rounds": 3}, network=MIXED), False),
        (free(graph, stop={"rounds": 3}, observe={"metrics": []}), False),
        (free(star, stop={"rounds": 3}), False),
        (free(graph, stop={"rounds": 1}), False),
        (free(graph, stop={"rounds": 3}, policy={"deadline": "10 ms", "late": "carry"}), False),
    ):
        run = desim.run(scenario)
        assert any(told in one for one in run.manifest["warnings"]) == flat
    values = desim.run(ring).curve("error")["value"]
    assert values.nunique() == 1


def test_models_that_are_forgotten_too_early_are_noticed(monkeypatch):
    wrong = mutant(observing, "if np.array_equal(self._time[round_], later):", "if True:")
    monkeypatch.setattr(play, "ClockObserver", wrong.ClockObserver)
    run = desim.run(free(graph, network=MIXED, stop={"rounds": 9}))
    assert not np.array_equal(run.curve("error")["time"], network_rows(run)[0])


def looks(monkeypatch, rounds):
    """How often models are put together in a run without durations, and the most that are kept."""
    kept, calls = [], []

    def counted(*arrays):
        calls.append(1)
        return overlay(*arrays)

    def report(self, *news):
        told(self, *news)
        kept.append(len(self._models))

    overlay, told = observing.overlay, observing.ClockObserver.report
    with monkeypatch.context() as patch:
        patch.setattr(observing, "overlay", counted)
        patch.setattr(observing.ClockObserver, "report", report)
        desim.run(free(graph, stop={"rounds": rounds}))
    return len(calls), max(kept)


def test_rows_of_one_time_are_settled_once(monkeypatch):
    calls, kept = looks(monkeypatch, 300)
    assert calls <= 300
    assert kept <= 2
    monkeypatch.setattr(observing.ClockObserver, "_outdate", lambda self, round_: None)
    assert looks(monkeypatch, 300)[1] > 250


@pytest.mark.parametrize("make", [star, graph])
def test_rows_leave_while_time_stands_still(monkeypatch, make):
    scenario, held = free(make, stop={"rounds": 100}), []
    whole = desim.run(scenario, overrides={"engine": "cohort"})
    take = event_log.EventLog.take
    with monkeypatch.context() as patch:
        patch.setattr(world, "FLUSH_ROWS", 200)
        patch.setattr(
            event_log.EventLog,
            "take",
            lambda self, until: held.append(self.written) or take(self, until),
        )
        parts = desim.run(scenario, overrides={"engine": "cohort"})
    assert len(held) > 4
    assert held[-2] > 0.7 * len(whole.events)
    assert differences(parts, whole) == []
    assert differences(desim.run(scenario, overrides={"engine": "agents"}), whole) == []


@pytest.mark.parametrize(
    "scenario",
    [
        free(graph, stop={"time": "1 s"}),
        free(graph, stop={"metric": {"error": 1e-3}}),
        free(star, stop={"time": "1 s"}),
        free(star, stop={"time": "1 s"}, policy={"deadline": "1 s"}),
        free(star, stop={"time": "1 s"}, churn={"up": "5 s", "down": "1 s"}),
        free(star, stop={"time": "1 s"}, compute={"time": 0, "redraw": "round"}),
        {**star(stop={"time": "1 s"}, policy="each", compute={"speed": "inf"}),
         "network": {"link": {"latency": "1 s", "bandwidth": "inf"},
                     "links": [{"sender": 3, "latency": 0}, {"receiver": 3, "latency": 0}]}},
        free(graph, stop={"time": "1 s"}, policy="each",
             network={"topology": "ring", "link": {"latency": "1 s"}}),
    ],
    ids=str,
)  # fmt: skip
def test_what_has_no_duration_is_refused_before(scenario, tmp_path):
    if "each" in str(scenario.get("policy")) and "topology" in scenario["network"]:
        scenario = {**scenario, "algorithm": {"name": "zcdp-subgradient", "step": 0.1}}
    if scenario.get("stop", {}).get("metric"):
        scenario = {**scenario, "observe": {"metrics": ["error"]}}
    with pytest.raises(InputError, match=TIMELESS):
        desim.run(scenario, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with pytest.raises(InputError, match=TIMELESS):
        check(desim.load(scenario))


@pytest.mark.parametrize(
    "scenario",
    [
        free(graph),
        free(star, stop={"metric": {"error": 1e-2}}),
        free(star, stop={"time": "1 s"}, compute={"speed": 300}),
        free(graph, stop={"time": "50 ms"}, network=MIXED),
        free(
            graph,
            stop={"time": "1 s"},
            privacy={"noise": {"kind": "gaussian", "sigma": 1.0}, "budget": 5.0},
        ),
    ],
    ids=str,
)
def test_what_ends_is_played(scenario):
    assert desim.run(scenario).status == "done"


def failed(scenario, folder):
    with pytest.raises(RunError) as caught:
        desim.run(scenario, folder)
    return str(caught.value), desim.open(folder)


def alike(scenario, engines, folder):
    """The one text with which a scenario fails on all engines, their tables being equal."""
    told, runs = zip(*(failed({**scenario, "engine": e}, folder / e) for e in engines), strict=True)
    assert len({*told}) == 1
    for run in runs[1:]:
        assert run.manifest["time"] == runs[0].manifest["time"]
        assert run.metrics.equals(runs[0].metrics)
        assert run.events.equals(runs[0].events)
    return told[0]


STAR = ["compiled", "cohort", "agents"]
SHORT = {"deadline": "1e-9 s"}


@pytest.mark.slow
def test_a_first_computation_at_speed_0_is_looked_at_quietly():
    check(
        load(
            star(
                seed=2, policy="all", participation="all", stop={"rounds": 5, "time": "1 s"},
                compute={"speed": {"normal": [1, 150]}}, churn={"up": "50 ms", "down": "20 ms"},
            )
        )
    )  # fmt: skip


def test_time_that_hardly_passes_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("desim.engine.patience.STANDSTILL", 40)
    scenario = star(policy=SHORT, stop={"rounds": None, "time": "100 s"})
    scenario["stop"].pop("rounds")
    told = alike(scenario, STAR, tmp_path)
    assert told.startswith("time hardly passes: 40 rounds took 4e-08 s, so that stop.time 100 s")
    creeping = free(graph, compute={"speed": "1e15 /s"}, stop={"time": "1 h"})
    text = "time hardly passes: 40 rounds took"
    for engine in ("cohort", "agents"):
        assert failed({**creeping, "engine": engine}, tmp_path / f"graph-{engine}")[0][: len(text)]


@pytest.mark.parametrize("late", ["discard", "carry"])
def test_collections_without_replies_are_told(monkeypatch, tmp_path, late):
    monkeypatch.setattr("desim.engine.patience.SILENCE", 30)
    scenario = {**star(), "policy": {**SHORT, "late": late}, "stop": {"time": "1 s"}}
    told = alike(scenario, STAR, tmp_path)
    assert told.startswith("30 collections in a row closed without a reply, the last at 3e-08 s")
    rounds = {**scenario, "stop": {"rounds": 50}}
    assert {desim.run(rounds, overrides={"engine": e}).manifest["rounds"] for e in STAR} == {50}


def test_agents_that_never_wait_long_enough_are_told(monkeypatch, tmp_path):
    monkeypatch.setattr("desim.engine.patience.SILENCE", 30)
    scenario = graph(algorithm={"name": "dsgd", "alpha": 0.01, "batch": 2}, policy=SHORT)
    scenario |= {"compute": INSTANT, "stop": {"time": "1 s"}}
    scenario.pop("privacy")
    told = {failed({**scenario, "engine": e}, tmp_path / e)[0] for e in ("cohort", "agents")}
    assert len(told) == 1
    assert "did not hear from a neighbour 30 times in a row" in told.pop()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"churn": {"up": "1e-9 s", "down": "0 s"}}, r"up: found turns of 1e-09 s on average"),
        ({"churn": {"daily": {"up": "1 s", "day": "1e-17 s"}}}, r"day: found turns of 1e-17 s"),
        (
            {"compute": {"spells": {"factor": 2, "every": "1 ns", "lasting": "1 ns"}}},
            "every: found",
        ),
        (
            {"network": {"link": {"loss": {"gilbert_elliott": {"good": "1 ns", "bad": "1 s"}}}}},
            "found 1e-09; allowed: at least 1 us",
        ),
        ({"observe": {"every": "1e-7 s"}, "stop": {"time": "1 s"}}, r"found 1e-07 s, 1e\+07 obs"),
    ],
    ids=str,
)
def test_turns_and_observations_without_number_are_refused(changes, text):
    with pytest.raises(InputError, match=text):
        check(desim.load({**star(), **changes}))


@pytest.mark.parametrize("make", [star, graph])
def test_interrupts_are_heeded_between_observations(monkeypatch, make, tmp_path):
    """An instant after the other is recorded, of which any may be the last."""
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    seen = []

    def stop(progress):
        seen.append(1)
        if len(seen) == 200:
            raise KeyboardInterrupt

    scenario = make(observe={"metrics": ["error"], "every": "100 us"})
    whole = desim.run(scenario)
    run = desim.run(scenario, tmp_path / "run", progress=stop)
    assert run.status == "stopped"
    n = len(run.metrics)
    assert 0 < n < 260 < len(whole.metrics)
    assert run.metrics.equals(whole.metrics[:n])
    columns = ["time", "seq", "agent", "peer", "round", "seconds", "release"]
    assert run.events[columns].equals(whole.events[columns][: len(run.events)])
    assert run.events["time"].max() <= run.manifest["time"]
    assert desim.resume(tmp_path / "run").metrics.equals(whole.metrics)


@pytest.mark.parametrize("make", [star, graph])
def test_a_run_that_measures_nothing_keeps_what_came_before_the_interrupt(monkeypatch, make):
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    seen = []

    def stop(progress):
        seen.append(progress.time)
        if len(seen) == 8:
            raise KeyboardInterrupt

    run = desim.run(
        make(engine="cohort", observe={"metrics": [], "iterates": False}), progress=stop
    )
    assert run.status == "stopped"
    assert run.manifest["time"] == seen[-1] > 0.0
    assert len(run.events) > 20


def lossy(kind, late):
    """The end of a run, s, that nobody can go on with, whose last limits are over after its end."""
    link = {"latency": "10 ms", "loss": "50 %", "on_loss": "drop"}
    made = star() if kind == "star" else graph()
    policy = {
        "deadline": "2 s" if kind == "graph" else "4 s",
        "at_least": 4 if kind == "star" else 2,
    }
    network = {**made["network"], "link": link}
    scenario = {**made, "policy": policy, "network": network, "seed": 0,
                "stop": {"time": f"{late} s"}}  # fmt: skip
    for engine in ("agents", "cohort"):
        with pytest.raises(RunError, match="nobody can go on") as error:
            desim.run(scenario, overrides={"engine": engine})
        ended = error.value.run
        yield ended.manifest["time"], ended.manifest["rounds"], len(ended.events)


@pytest.mark.parametrize("late", [3.0, 9.0])
@pytest.mark.parametrize("kind", ["star", "graph"])
def test_limits_that_end_no_wait_keep_no_run_alive(kind, late):
    agents, cohort = lossy(kind, late)
    assert agents == cohort


def test_hope_in_such_limits_is_noticed(monkeypatch):
    monkeypatch.setattr("desim.engine.agents.star.AgentStation.hopeful", lambda self: True)
    with pytest.raises(pytest.fail.Exception):
        list(lossy("star", 3.0))
