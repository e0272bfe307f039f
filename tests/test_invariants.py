"""I2 to I7: laws that hold for every algorithm, policy and network."""

from pathlib import Path

import numpy as np
import pytest
from cases import CASES, merged
from laws import check_log
from test_engines import differences, run

import desim
from desim.log.parquet import Tables
from desim.scenario.build import build

BARRIER = ["plt-all", "plt-noisy", "plt-sgd-half", "plt-mixed-schedule", "nfl", "nfl-absolute"]
BARRIER += ["fed-pd-noisy", "fedlin", "fedlin-half", "fedavg-noisy", "scaffold-noisy"]
BARRIER += ["dp-admm-noise"]


# I2: randomness has an address


@pytest.mark.parametrize(
    "name", ["plt-noisy", "plt-deadline", "nfl", "qsgd", "fedlin-noisy", "scaffold-sgd"]
)
def test_observers_shift_no_draw(name):
    seen = run(name)
    blind = run(name, **{"observe.metrics": [], "observe.iterates": False})
    assert seen.events.equals(blind.events)
    assert seen.releases.equals(blind.releases)
    assert seen.state["x"].tobytes() == blind.state["x"].tobytes()
    assert blind.metrics.empty


def test_two_algorithms_see_the_same_network_and_devices():
    nfl, sgd = run("nfl-lossy"), run("qsgd-lossy", **{"compute.redraw": "run"})
    lost = []
    for done in (nfl, sgd):
        event_log = done.events[done.events.kind == "lost"]
        lost.append(
            {tuple(row) for row in event_log[["agent", "peer", "round", "value"]].to_numpy()}
        )
    assert len(lost[0]) > 5
    assert lost[0] == lost[1]


def test_the_seed_matters():
    assert differences(run("nfl"), run("nfl", seed=6))


# I3: delays change clocks, not iterates; doubled durations double timestamps


def doubled(scenario):
    """The scenario with every duration twice as long."""
    return merged(
        scenario,
        {
            "network": {
                "link": {
                    "latency": {"uniform": [0.01, 0.08]},
                    "bandwidth": {"uniform": [0.05e6, 0.5e6]},
                }
            },
            "compute": {"speed": {"uniform": [50, 450]}},
        },
    )


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", BARRIER)
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_delays_leave_the_iterates_of_barrier_methods(name, engine):
    slow = merged(CASES[name], {"network": {"link": {"latency": "1 s"}}})
    fast, late = run(name, engine=engine), desim.run(slow, overrides={"engine": engine})
    assert fast.iterates.tobytes() == late.iterates.tobytes()
    assert late.manifest["time"] > fast.manifest["time"]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", BARRIER)
def test_doubling_every_duration_doubles_every_timestamp(name):
    one, two = run(name), desim.run(doubled(CASES[name]))
    assert np.array_equal(2.0 * one.events.time, two.events.time)
    assert one.events.drop(columns=["time", "seconds"]).equals(
        two.events.drop(columns=["time", "seconds"])
    )
    assert np.array_equal(2.0 * one.metrics.time, two.metrics.time)


# I4: conservation, causality, monotone clocks


@pytest.mark.parametrize("name", ["nfl-lossy", "plt-resend-deadline"])
def test_deliveries_that_count_from_their_last_attempt_are_noticed(name):
    done = run(name)
    check_log(done)
    events, again = done.events.copy(), (done.events.kind == "deliver") & (done.events.value > 0)
    assert again.sum() > 5
    timeouts = events.value * 0.06  # as long as the first attempts waited
    events.loc[again, "seconds"] -= timeouts[again]
    broken = type("R", (), {"events": events, "metrics": done.metrics, "manifest": done.manifest})
    with pytest.raises(AssertionError):
        check_log(broken)


def test_a_log_that_loses_messages_is_noticed(monkeypatch):
    done = run("plt-all")
    events = done.events
    lacking = events.drop(events.index[events.kind == "deliver"][3]).reset_index(drop=True)
    lacking["seq"] = np.arange(len(lacking))
    broken = type("R", (), {"events": lacking, "metrics": done.metrics, "manifest": done.manifest})
    with pytest.raises(AssertionError):
        check_log(broken)


# I5: no noise without a row in the ledger


@pytest.mark.parametrize(
    "name",
    ["plt-noisy", "plt-buffer", "nfl", "nfl-phi", "qsgd", "dp-admm-phi", "gd", "scaffold-noisy"],
)
def test_every_noisy_release_is_in_the_ledger(name):
    done = run(name)
    releases = done.releases
    assert releases.release.is_unique
    assert (releases.scale > 0).all()
    assert np.isfinite(releases.sensitivity).all()
    event_log = done.events[done.events.kind == "release"]
    assert set(event_log.release) == set(releases.release)
    carried = done.events[(done.events.kind == "send") & (done.events.agent >= 0)]
    known = set(releases.release)
    assert set(carried.release) - {-1} <= known


def test_noise_without_a_charge_is_an_error():
    from desim.engine.clients import Clients
    from desim.privacy.ledger.ledger import View, plain

    simulation = build(desim.load(CASES["plt-noisy"]))
    world = simulation._world(simulation.settings, Tables(), None)
    who = np.arange(2)
    uncharged = Clients(world, who, who, plain(6, View.COORDINATOR))
    with pytest.raises(RuntimeError, match="declares no charge"):
        _ = uncharged.noise_key
    charged = Clients(world, who, who, simulation.method.local.terms)
    assert charged.noise_key == world.ledger.seed


def test_only_the_ledger_and_the_charged_kernel_name_the_noise_stream():
    package = Path(desim.__file__).parent
    naming = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if "Stream.NOISE" in path.read_text()
    }
    kernels = {f"problem/kernels/{one}.py" for one in ("plan", "zeroth", "modelled")}
    shares = "privacy/sums/lattice.py"  # of the noise of a sum, whose row is written with it
    assert naming == {*kernels, "privacy/ledger/ledger.py", shares}


# I6: limits that must coincide


@pytest.mark.parametrize(
    ("name", "quiet", "silent"),
    [
        ("nfl", {"privacy.noise.sigma": 0.0}, {"privacy": {"relation": "replace-one"}}),
        ("qsgd", {"privacy.noise.sigma": 0.0}, {"privacy": {"relation": "replace-one"}}),
        ("dp-admm-noise", {"privacy.noise.sigma": 0.0}, {"privacy": {"relation": "replace-one"}}),
        ("gd", {"privacy.noise.sigma": 0.0}, {"privacy": {"relation": "replace-one"}}),
        (
            "plt-noisy",
            {"algorithm.local.tau": 0.0},
            {"algorithm.local": {"solver": "gradient", "epochs": 3}},
        ),
    ],
)
def test_no_noise_equals_the_twin_without_privacy(name, quiet, silent):
    assert run(name, **quiet).iterates.tobytes() == run(name, **silent).iterates.tobytes()
    assert run(name).iterates.tobytes() != run(name, **silent).iterates.tobytes()


@pytest.mark.parametrize("participation", [{"bernoulli": 1.0}, {"uniform": 6}])
def test_full_participation_drawn_equals_declared(participation):
    assert differences(run("plt-all"), run("plt-all", participation=participation)) == []
    assert differences(run("plt-all"), run("plt-all", participation={"uniform": 5}))


# I7: a rerun of the stored scenario


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    "name", ["plt-lossy", "plt-each", "nfl-absolute", "qsgd", "fedlin-deadline"]
)
def test_the_stored_scenario_gives_the_same_log(name, tmp_path):
    first = desim.run(CASES[name], out=tmp_path / "a")
    again = desim.run(tmp_path / "a" / "scenario.yaml", out=tmp_path / "b")
    assert differences(first, again) == []
    for table in ("events", "metrics", "releases"):
        assert (tmp_path / "a" / f"{table}.parquet").read_bytes() == (
            tmp_path / "b" / f"{table}.parquet"
        ).read_bytes()


def test_a_longer_run_begins_like_a_shorter_one():
    for name in ("nfl", "plt-deadline"):
        short, long = run(name), run(name, **{"stop.rounds": 24})
        assert long.iterates[: len(short.iterates)].tobytes() == short.iterates.tobytes()


@pytest.mark.slow
def test_flushing_often_changes_nothing(monkeypatch, tmp_path):
    from desim.log import event_log

    whole = [run(name) for name in ("nfl-lossy", "plt-resend-deadline")]
    monkeypatch.setattr(event_log, "FLUSH_ROWS", 40)
    for name, one in zip(("nfl-lossy", "plt-resend-deadline"), whole, strict=True):
        for engine in ("cohort", "agents"):
            out = tmp_path / f"{name}-{engine}"
            flushed = desim.run(CASES[name], out=out, overrides={"engine": engine})
            assert differences(one, flushed) == []
