"""Batteries that end and charge agents: against an event simulator written apart, and refusals."""

import json
import math
import random

import numpy as np
import pytest
from cases import graph, star
from naive.batteries import Device, play

import desim
from desim.interface.cli import main
from desim.runs import depletion, drain

RUNS = (3, 11, 158)  # of 200 that agree; in the last a radio is on at the end
ROUNDS = 6


def some_devices(number):
    """A scenario of four phones with batteries, and the same for the naive twin."""
    rng = random.Random(number)
    agents, work, size = 4, 8 * 4, 5 * 8
    speeds = [rng.uniform(100, 900) for _ in range(agents)]
    idle = [rng.uniform(0.2, 1) for _ in range(agents)]
    computing = [rng.uniform(2, 8) for _ in range(agents)]
    need = [(a + b) * work / s for a, b, s in zip(idle, computing, speeds, strict=True)]
    capacity = [one * rng.uniform(2, 6) for one in need]
    charge = [rng.uniform(0.6, 1) for _ in range(agents)]
    level = rng.uniform(0.65, 0.95)
    watts = [rng.uniform(1, 3) for _ in range(agents)]
    daily = rng.random() < 0.5
    day, start, lasting = 0.5, rng.uniform(0, 0.5), rng.uniform(0.2, 0.4)
    latency, bandwidth = rng.uniform(0.002, 0.02), rng.uniform(1e4, 1e5)
    radio = {"sent": 2e-3, "received": 1e-3, "radio": 1.0, "tail": 0.03, "tail_power": 0.5}
    charger = {"power": watts}
    if daily:
        charger["daily"] = {"start": start, "lasting": lasting, "day": day}
    scenario = {
        **star(
            name="phones", problem={"agents": agents}, stop={"rounds": ROUNDS},
            network={"link": {"latency": latency, "bandwidth": bandwidth}, "power": radio},
            compute={"speed": speeds, "slow": {"fraction": 0},
                     "power": {"idle": idle, "computing": computing}},
            observe={"metrics": [], "iterates": False},
            battery={"capacity": capacity, "charge": charge, "level": level, "charger": charger},
        ),
        "network": {"link": {"latency": latency, "bandwidth": bandwidth}, "power": radio},
    }  # fmt: skip

    def plugged(time, power):
        return power if not daily or (time - start + 1e-9) % day < lasting else 0.0

    def changes(time):
        if not daily:
            return math.inf
        edges = (start + k * day + more for k in range(-2, 4000) for more in (0.0, lasting))
        return next(edge for edge in edges if edge > time + 1e-9)

    network = {"latency": latency, "wire": 8 * size / bandwidth, "size": size, **radio}
    devices = [
        Device(work / speeds[k], capacity[k], charge[k] * capacity[k], level * capacity[k], idle[k],
               computing[k], lambda time, power=watts[k]: plugged(time, power), changes)
        for k in range(agents)
    ]  # fmt: skip
    return scenario, devices, network


def turned(run):
    """[(time, agent, down or up)] of a run's log."""
    rows = run.events.query("kind in ['down', 'up']")
    return sorted(zip(rows["time"], rows["agent"], rows["kind"].astype(str), strict=True))


def apart(found, expected):
    """How far two lists of turns are apart, s; inf where they are other ones."""
    if [one[1:] for one in found] != [one[1:] for one in expected]:
        return math.inf
    pairs = zip(found, expected, strict=True)
    return max((abs(one[0] - other[0]) for one, other in pairs), default=0.0)


@pytest.mark.parametrize("number", RUNS)
def test_agents_are_empty_and_back_when_a_naive_simulator_says(number):
    scenario, devices, network = some_devices(number)
    run = desim.run(desim.load({**scenario, "engine": "agents"}))
    expected, left, end = play(devices, network, ROUNDS)
    assert len(expected) > 2
    assert apart(turned(run), expected) < 1e-7
    assert run.manifest["batteries"] == {"plays": 2}
    assert run.manifest["time"] == pytest.approx(end, abs=1e-7)
    last = run.charge().groupby("agent").tail(1)["charge"]
    assert last.to_numpy() == pytest.approx(left, abs=1e-6)
    wrong = play(some_devices(number)[1], network, ROUNDS, back=lambda one: 0.98 * one.level)[0]
    assert apart(turned(run), wrong) > 1e-4


POWER = {"power": {"idle": "1 W", "computing": "5 W"}}
RADIO = {"power": {"sent": "1 mJ/B", "radio": "1 W", "tail": "30 ms"}}
PHONES = {"capacity": {"uniform": ["1 J", "2 J"]}, "level": "90 %", "charger": "2 W"}


def phones(**changes):
    """Agents of which some are empty now and then."""
    common = {"compute": POWER, "network": RADIO, "battery": PHONES, "stop": {"rounds": 6}}
    return star(**{**common, "observe": {"metrics": ["loss"]}, **changes}, name="phones")


def consistent(run):
    """Whether the log has those down whom its batteries say, and what they hold adds up."""
    table = run.charge()
    events = table[table["event"] != ""]
    words = events["event"].map({"empty": "down", "back": "up"})
    expected = sorted(zip(events["time"], events["agent"], words, strict=True))
    return len(expected) > 0 and apart(turned(run), expected) < 1e-9


def test_engines_and_stored_runs_and_replays_agree(tmp_path):
    runs = [desim.run(desim.load({**phones(), "engine": e})) for e in ("agents", "cohort")]
    runs.append(desim.run(desim.load(phones()), out=tmp_path / "a"))
    assert runs[2].manifest["engine"] == "compiled"
    assert all(consistent(run) for run in runs)
    assert turned(runs[0]) == turned(runs[1]) == turned(runs[2])
    stored = desim.open(tmp_path / "a")
    assert stored.charge().equals(runs[0].charge())
    assert desim.replay(stored).same
    assert len(turned(stored)) // 2 >= 2
    assert stored.manifest["batteries"] == {"plays": 2}  # one that foresees, and one that confirms
    with pytest.raises(desim.InputError, match="battery: when an agent is empty"):
        desim.retime(stored, network="wifi")


def test_joules_add_up_and_are_told(tmp_path, capsys):
    run = desim.run(desim.load(phones(battery={"capacity": "20 J"})), out=tmp_path / "a")
    left = run.charge().groupby("agent")["charge"].last().to_numpy()
    took = run.energy().groupby("agent")["joules"].sum().to_numpy()
    assert left + took == pytest.approx(np.full(6, 20.0), abs=1e-9)
    assert left == pytest.approx(20.0 - took) != pytest.approx(20.0 - 1.01 * took)
    half = run.manifest["time"] / 2
    for words in (["--until", f"{half}"], ["--until", f"{1e3 * half} ms"]):
        text = said(capsys, "energy", str(tmp_path / "a"), *words)
        assert f"{run.energy(half)['joules'].sum():.4g} J" in text
        assert "batteries, of the whole run: none was empty; at the end" in text
    assert "none was empty" in said(capsys, "show", str(tmp_path / "a"))


def said(capsys, *words):
    """What a command says."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    out = capsys.readouterr()
    assert left.value.code == 0, out.err
    return out.out


CASES = [
    phones(churn={"up": {"exponential": "800 ms"}, "down": {"exponential": "200 ms"}}),
    phones(policy={"deadline": "300 ms"}, stop={"time": "2 s"}),
    phones(participation={"choose": "power-of-choice", "invite": 2, "candidates": 4}),
    phones(network={**RADIO, "contention": "fair"}),
    {**graph(compute=POWER, network=RADIO, stop={"rounds": 6}, observe={"metrics": []},
             battery={**PHONES, "capacity": {"uniform": ["1 J", "3 J"]}}), "name": "phones"},
]  # fmt: skip


@pytest.mark.parametrize("scenario", CASES, ids=["churn", "deadline", "losses", "fair", "graph"])
def test_batteries_go_with_churn_policies_and_graphs(scenario):
    run = desim.run(desim.load(scenario))
    table = run.charge()
    empty = table[table["event"] == "empty"]
    assert len(empty)
    down = run.events.query("kind == 'down'")
    for time, agent in zip(empty["time"], empty["agent"], strict=True):
        assert (abs(down["time"][down["agent"] == agent] - time) < 1e-9).any()
    assert len(down) >= len(empty)
    if "churn" in scenario:
        assert len(down) > len(empty)
    else:
        assert consistent(run)


AWAY = {"up": {"exponential": "300 ms"}, "down": {"exponential": "9 s"}}
ABSENT = [({"churn": AWAY}, "cohort"), ({"churn": AWAY, "policy": {"quorum": 3}}, "agents")]


@pytest.mark.parametrize(("changes", "engine"), ABSENT, ids=["all", "quorum"])
def test_batteries_that_never_end_change_nothing(changes, engine):
    """Absences last as long as they would, whenever the first play without them was over."""
    scenario = {**phones(**changes), "engine": engine}
    run = desim.run(desim.load({**scenario, "battery": {"capacity": "9 MJ"}}))
    plain = desim.run(desim.load({**scenario, "battery": "none"}))
    assert len(run.events.query("kind == 'down'")) > 2
    assert run.events.equals(plain.events)
    assert run.metrics.equals(plain.metrics)
    assert run.releases.equals(plain.releases)


def test_what_would_come_after_a_target_is_met_is_no_error():
    """Everybody is empty for good once; the loss is met before that, or later."""
    small = phones(battery={"capacity": "2 J"}, stop={"metric": {"loss": 3.9}})
    run = desim.run(desim.load(small))
    plain = desim.run(desim.load({**small, "battery": "none"}))
    assert run.manifest["reason"] == plain.manifest["reason"] == "stop.metric: loss 3.9 reached"
    assert run.exhaustion.startswith("none was empty")
    assert run.events.equals(plain.events)
    with pytest.raises(desim.InputError, match="and all are waited for; allowed: a charger, a"):
        desim.run(desim.load({**small, "stop": {"rounds": 50, "metric": {"loss": 1e-3}}}))
    late = phones(policy={"deadline": "300 ms"}, stop={"time": "2 s"}, battery=small["battery"])
    run = desim.run(desim.load(late))
    assert run.charge().groupby("agent")["charge"].last().max() < 0.0
    assert "; at the end 0 % (agent 0) to 0 % of" in run.exhaustion


REFUSED = [
    ({"capacity": "-1 Wh"}, r"battery.capacity: found '-1 Wh'; allowed: an energy such as 10 Wh"),
    ({"capacity": "3 W"}, r"found unit 'W' in '3 W'; allowed: an energy such as 10 Wh"),
    ({"capacity": "1 Wh", "charge": "120 %"}, r"charge: found '120 %'; allowed: a fraction"),
    ({"capacity": "1 Wh", "charge": 0}, r"charge: found 0, a battery that is empty; allowed: abo"),
    ({"capacity": ["1 Wh", 0]}, r"capacity: found 0, a battery that is empty"),
    ({"capacity": "1 Wh", "charger": {}}, r"charger: found no watts; allowed: power, trace"),
    ({"capacity": "1 Wh", "charger": {"power": 1, "trace": "a.csv"}}, r"trace: "),
    ({"charger": "1 W"}, r"battery.capacity: missing"),
    ("full", r"battery: found 'full'; allowed: none, or {capacity: 10 Wh"),
]


@pytest.mark.parametrize(("battery", "text"), REFUSED)
def test_bad_batteries_are_refused_in_words(battery, text):
    with pytest.raises(desim.InputError, match=text):
        desim.load(phones(battery=None) | {"battery": battery})


def test_what_no_battery_can_do_is_refused_before_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(drain, "TURNS", 60)
    monkeypatch.setattr(drain, "IN_VAIN", 40)
    small = {"capacity": "2 J", "level": "5 %", "charger": "1 W"}
    battery = {"battery": {"capacity": "1 J"}}
    for changes, text in [
        ({"compute": {}, "network": {}}, "battery: found a section without power"),
        ({"churn": {"up": "9 s", "down": "1 s", "messages": "lost"}}, "churn.messages: found lost"),
        ({"policy": {"deadline": "1 s"}, "engine": "cohort"}, "engine: found cohort, but both bat"),
        (
            {},
            r"agent 0 computes for 0.212\d s in round 1, of which a battery of 1 J lasts 0.166",
        ),
        ({"battery": {"capacity": [1, 2]}}, "battery.capacity: found 2 entries for 6 agents"),
        ({"battery": {"capacity": 1, "charge": {"lognormal": [0.9, 2]}}}, "battery.charge: found"),
        ({"battery": small}, "batteries are empty or back 40 times in turn, agent 0's at"),
        ({"battery": small, "stop": {"time": "1 h"}}, "agent 0 is empty or back 60 times"),
    ]:
        with pytest.raises(desim.InputError, match=text):
            desim.run(desim.load(phones() | battery | changes), out=tmp_path / "no")
    assert not (tmp_path / "no").exists()
    from desim.scenario.build import build

    with pytest.raises(desim.InputError, match=r"battery: .* nothing but runs of their own"):
        build(desim.load(phones())).play(None)


def test_who_plays_many_runs_or_real_ones_refuses_batteries(tmp_path, capsys):
    (tmp_path / "a.yaml").write_text(json.dumps({**phones(), "observe": {"metrics": ["loss"]}}))
    file = str(tmp_path / "a.yaml")
    for words, text in [
        (["audit", file], "battery: found a section, and nothing but runs of their own"),
        (["robust", file, file, "--target", "loss=1"], "battery: found a section, and nothing but"),
        (["deploy", file], "churn: found a section, or battery; deployed agents stay"),
    ]:
        with pytest.raises(SystemExit) as left:
            main(words)
        assert left.value.code == 2
        assert text in capsys.readouterr().err


def test_what_a_log_alone_tells_is_what_one_play_foresees(monkeypatch):
    """As on shared lines, where what a message takes is known when it is over: twenty plays."""
    runs = [desim.run(desim.load(phones()))]
    monkeypatch.setattr(depletion.Depletion, "causal", False)
    runs.append(desim.run(desim.load(phones())))
    assert apart(*map(turned, runs)) < 1e-9
    assert runs[1].manifest["batteries"]["plays"] > runs[0].manifest["batteries"]["plays"] == 2


def test_the_radio_of_an_agent_that_is_empty_has_a_tail_also_when_it_would_leave():
    radio = {"power": {"radio": "1 W", "tail": "200 ms"}}
    churn = {"up": {"exponential": "800 ms"}, "down": {"exponential": "150 ms"}}
    common = {"compute": POWER, "network": radio, "churn": churn, "observe": {"metrics": []}}
    battery = {**PHONES, "capacity": {"uniform": ["0.3 J", "0.75 J"]}}
    run = desim.run(
        desim.load({**graph(**common, battery=battery, stop={"rounds": 6}), "name": "phones"})
    )
    assert len(turned(run)) > 4
    assert run.manifest["batteries"] == {"plays": 2}


def test_a_limit_that_is_all_there_is_to_come_is_before_what_charges_later():
    """The next deadline sends messages, which a battery that is ahead of it would not hear of."""
    days = {"power": "2 W", "daily": {"start": "0 s", "lasting": "300 ms", "day": "600 ms"}}
    battery = {**PHONES, "level": "75 %", "charger": days}
    late = {"policy": {"deadline": "300 ms"}, "stop": {"time": "2 s"}}
    run = desim.run(desim.load(phones(battery=battery, **late)))
    assert consistent(run)
    assert run.manifest["batteries"] == {"plays": 2}


def test_what_charges_follows_a_file_and_the_hours_of_a_day(tmp_path):
    (tmp_path / "sun.csv").write_text("time,watts\n0,0\n2,300\n5,100\n")
    for charger, brought in [
        ({"trace": "sun.csv", "unit": "mW"}, lambda t: 0.3 * min(max(t - 2, 0), 3)),
        ({"power": "2 W", "daily": {"start": "1 s", "lasting": "2 s", "day": "10 s"}},
         lambda t: 2 * min(max(t - 1, 0), 2)),
        ({"power": "2 W", "daily": {"start": "9 s", "lasting": "2 s", "day": "10 s"}},
         lambda t: 2 * min(t, 1)),
    ]:  # fmt: skip
        battery = {"capacity": "100 J", "charge": "50 %", "charger": charger}
        scenario = desim.load(phones(battery=battery, stop={"time": "4 s"}), folder=tmp_path)
        run = desim.run(scenario)
        left = run.charge().groupby("agent")["charge"].last().to_numpy()
        took = run.energy().groupby("agent")["joules"].sum().to_numpy()
        assert left == pytest.approx(50 - took + brought(4.0))
        assert desim.load(scenario.written(), folder=tmp_path) == scenario
