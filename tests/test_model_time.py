"""Time and memory from the model: measured once and stored, counted, and refused in words."""

import itertools

import numpy as np
import pytest
from scenarios_of_models import modelled

import desim
from desim.errors import InputError
from desim.problem import step_costs
from desim.problem.step_costs import batch_of, memory, operations
from desim.scenario.build import build, check
from desim.scenario.noise_target import settled


@pytest.fixture
def ticking(monkeypatch):
    """A clock that advances by 2 ms at each look: a step then takes 2 ms."""
    looks = itertools.count()

    def speed_here(problem, batch, measure=step_costs.speed_here):
        return measure(problem, batch, lambda: 2e-3 * next(looks))

    monkeypatch.setattr(step_costs, "speed_here", speed_here)
    return looks


def measured(**timing):
    return modelled(compute={"speed": {"measured": timing}})


def test_a_measured_speed_is_rows_of_a_step_over_its_time(ticking):
    run = desim.run(modelled(compute={"speed": "measured"}))
    timing = run.scenario.compute.speed.measured
    assert (timing.rate, timing.batch, timing.spread) == (4 / 2e-3, 4, 0.0)
    seconds = run.events.query("kind == 'compute'")["seconds"]
    assert np.allclose(seconds, 3 * 4 / timing.rate, rtol=1e-12)
    for word in ("numpy", "thread", "float64"):
        assert word in timing.machine


def test_what_was_measured_is_stored_and_never_measured_again(ticking, tmp_path, monkeypatch):
    scenario = measured(factor={"uniform": [0.1, 1]})
    run = desim.run(scenario, out=tmp_path / "a")

    def again(*_):
        raise AssertionError("measured again")

    monkeypatch.setattr(step_costs, "speed_here", again)
    assert desim.replay(run).same
    other = desim.run(tmp_path / "a" / "scenario.yaml", out=tmp_path / "b")
    assert other.events.equals(run.events)
    assert desim.retime(run, network={}).scenario.compute == run.scenario.compute
    resumed = desim.resume(tmp_path / "a", {"stop.rounds": 5})
    assert resumed.scenario.compute == run.scenario.compute
    with pytest.raises(AssertionError, match="again"):
        desim.run(scenario)


def test_a_run_that_was_killed_keeps_its_number(ticking, tmp_path):
    def killed(now):
        raise SystemExit

    with pytest.raises(SystemExit):
        desim.run(modelled(compute={"speed": "measured"}), out=tmp_path / "a", progress=killed)
    next(ticking)
    number = desim.open(tmp_path / "a").scenario.compute.speed.measured.rate
    run = desim.resume(tmp_path / "a")
    assert run.scenario.compute.speed.measured.rate == number
    assert run.events.equals(desim.run(run.scenario).events)


def test_devices_are_factors_of_what_was_measured(tmp_path):
    known = {"rate": 1000.0}
    law = build(desim.load(measured(**known, factor=0.5))).settings.speeds.law
    assert law[:2] == (0, 500.0)
    law = build(desim.load(measured(**known, factor={"lognormal": [0.2, 0.5]}))).settings.speeds.law
    assert law == (3, 200.0, 0.5)
    np.savez(tmp_path / "scores.npz", phone=np.array([415.0]), tablet=np.array([1660.0]))
    trace = {"trace": str(tmp_path / "scores.npz"), "reference": 830, "assign": "in-order"}
    speeds = build(desim.load(measured(**known, factor=trace))).settings.speeds
    assert np.allclose(np.sort(speeds.measured[0]), [500.0, 2000.0], rtol=1e-12)


def test_retiming_measures_the_new_devices_once(ticking):
    run = desim.run(modelled())
    again = desim.retime(run, compute={"speed": {"measured": {"factor": 0.5}}})
    timing = again.scenario.compute.speed.measured
    assert timing.rate == 2000.0
    assert desim.replay(again).same
    assert np.array_equal(again.model, run.model)


def test_a_spread_is_told(ticking):
    run = desim.run(measured(rate=1000, spread=0.5, steps=9))
    assert any("spread by 50 %" in text for text in run.manifest["warnings"])
    assert not any("spread" in text for text in desim.run(measured(rate=1)).manifest["warnings"])


def test_desims_own_losses_are_timed_many_together(ticking):
    scenario = modelled(model=None, compute={"speed": "measured"})
    problem = build(desim.load(modelled(model=None))).problem
    found = settled(desim.load(scenario), problem).compute.speed.measured
    assert (found.batch, found.rate) == (4, 4 / 2e-3)
    assert "numba" in found.machine


def test_what_is_not_compiled_is_not_timed(monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "never")
    with pytest.raises(InputError, match=r"DESIM_COMPILE: found 'never'; allowed: later"):
        check(desim.load(modelled(model=None, compute={"speed": "measured"})))


def test_many_runs_do_not_each_measure():
    scenario = modelled(compute={"speed": "measured"})
    with pytest.raises(InputError, match="every run of a study would measure anew"):
        desim.study({"name": "s", "base": scenario, "grid": {"seed": [0, 1]}})
    with pytest.raises(InputError, match="every run of repeat"):
        desim.repeat(scenario, [0, 1])
    with pytest.raises(InputError, match="every run of many worlds"):
        desim.robust([scenario, scenario], target={"loss": 0.1})


@pytest.mark.parametrize(
    ("compute", "text"),
    [
        ({"speed": "10 GFLOP/s"}, "found '10 GFLOP/s' with work: rows; allowed: with work: flops"),
        ({"speed": "10 /s", "work": "flops"}, "allowed: operations in a second"),
        ({"work": "flops"}, "found no speed with work: flops"),
        ({"work": "flops", "time": "1 ms"}, "found time with work: flops"),
        ({"work": "flops", "speed": "measured"}, "found measured with work: flops"),
        ({"work": "flop"}, "did you mean 'flops'"),
        ({"speed": {"measured": {"factor": 0}}}, "measured.factor: found 0; allowed"),
        (
            {"memory": [1, 2]},
            "compute.memory: found 2 entries for 3 agents; allowed: one for each agent",
        ),
        ({"memory": "0 B"}, "compute.memory: found '0 B'; allowed: a size such as 2 GB (B, "),
    ],
)
def test_what_does_not_agree_is_refused(compute, text):
    with pytest.raises(InputError) as caught:
        check(desim.load(modelled(compute=compute)))
    assert text in str(caught.value)


def test_work_in_operations_takes_operations_over_speed():
    run = desim.run(modelled(compute={"speed": "1 MFLOP/s", "work": "flops"}))
    assert run.scenario.compute.work.flops == 1000.0
    seconds = run.events.query("kind == 'compute'")["seconds"]
    assert np.allclose(seconds, 3 * 4 * 1000.0 / 1e6, rtol=1e-12)
    given = desim.run(modelled(compute={"speed": "1 MFLOP/s", "work": {"flops": 1000}}))
    assert given.events.equals(run.events)
    twin = desim.run(modelled(compute={"speed": "1 MFLOP/s", "work": {"flops": 2000}}))
    assert not twin.events.equals(run.events)


def test_a_model_that_counts_nothing_says_so():
    scenario = modelled(model="silent-quadratic", compute={"speed": 1e6, "work": "flops"})
    with pytest.raises(InputError, match=r"compute.work: found flops with silent.*does not count"):
        check(desim.load(scenario))


def test_operations_of_desims_own_losses():
    def of(loss, **more):
        return operations(build(desim.load(modelled(model=None, loss=loss, **more))).problem)

    assert of("squared") == 4 * 5


def test_a_model_that_does_not_fit_is_refused_by_agent():
    fits = {"memory": ["2 MB", "2 MB", "1.1 MB"]}
    check(desim.load(modelled(compute=fits)))
    with pytest.raises(InputError) as caught:
        check(desim.load(modelled(compute={"memory": ["2 MB", "1 MB", "1 MB"]})))
    for part in (
        "agent 1 has 1 MB",
        "on 4 rows needs 1.004 MB",
        "1 other has too little",
        "5 parameters",
    ):
        assert part in str(caught.value)


def test_a_drawn_memory_is_each_agents_own():
    law = {"memory": {"uniform": ["1.0039 MB", "1.0041 MB"]}}
    refused = set()
    for seed in range(12):
        try:
            check(desim.load(modelled(compute=law, seed=seed)))
        except InputError as error:
            refused.add(str(error).partition("agent ")[2][0])
    assert len(refused) > 1


@pytest.mark.parametrize("said", [None, "many", -1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("what", ["flops", "memory"])
def test_a_model_that_says_no_number_is_refused(what, said, monkeypatch):
    problem = build(desim.load(modelled())).problem
    monkeypatch.setattr(type(problem.loss.model), what, lambda *_: said)
    with pytest.raises(InputError, match=f"counted-quadratic: {what} returned"):
        operations(problem) if what == "flops" else memory(problem, 4)


def test_what_the_class_says_of_memory():
    """Parameters, a gradient, those of the rows, and the rows' inputs: 5 numbers each."""
    simulation = build(desim.load(modelled(model="silent-quadratic")))
    problem, batch = simulation.problem, batch_of(simulation.method.parameters)
    assert batch == 4
    assert memory(problem, batch).tolist() == [8 * 5 * (1 + 1 + 4) + 4 * 8 * 5] * 3
    assert memory(problem, None).tolist() == [8 * 5 * (1 + 1 + 6) + 6 * 8 * 5] * 3
