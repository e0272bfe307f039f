"""Energy: an integral over the log, the same by hand, on all engines and from stored runs."""

import json
import math
import random

import numpy as np
import pytest
from cases import DROP, LOSSY, graph, star
from naive.energy import energy as by_hand

import desim
from desim.interface.cli import main
from desim.interface.plots.drawable import course
from desim.runs.reading import energy as reading
from desim.runs.reading.facts import facts

RUNS = (0, 3, 17, 22, 79)  # of 200 that agree; in 22 and 79 an agent is called while it is away
POWER = {"idle": {"uniform": ["1 W", "3 W"]}, "computing": {"lognormal": ["5 W", 0.4]}}
RADIO = {
    "sent": "2 mJ/B", "received": {"exponential": "1 mJ/B"}, "radio": "1 W", "tail": "30 ms",
    "tail_power": {"uniform": [0.2, 0.6]},
}  # fmt: skip


def some_run(number):
    """A random scenario with power: stars and graphs, losses, absences, deadlines, slow uplinks."""
    rng = random.Random(number)
    of, rounds = rng.choice([star, star, graph]), rng.randint(2, 4)
    changes = {"seed": number, "observe": {"metrics": [], "iterates": False}}
    compute, lossy = {"power": dict(POWER)}, [{}, LOSSY]
    if of is graph:
        network = rng.choice([{}, {"medium": "shared"}])
    else:
        network = rng.choice([{}, {"contention": rng.choice(["fair", "fifo"])}])
        if rng.random() < 0.5:
            up, down = rng.uniform(0.4, 1.5), rng.uniform(0.05, 0.3)
            changes["churn"] = {"up": {"exponential": f"{up} s"}, "down": {"exponential": down}}
            compute["speed"] = {"uniform": [500, 2000]}
        if rng.random() < 0.5:
            changes["policy"] = {"deadline": "200 ms"}
            lossy.append(DROP)
    lossy = rng.choice(lossy) if "contention" not in network else {}
    network = {**lossy, **network, "power": dict(RADIO)}
    return of(**changes, network=network, compute=compute, stop={"rounds": rounds})


def played(scenario, **changes):
    """The run of a scenario, and its power."""
    run = desim.run(desim.load({**scenario, "name": "powered", "engine": "agents", **changes}))
    return run, reading.power_of(run)


def hand_made(scenario, run, power, until):
    """{(agent, cause): joules} of the naive twin.

    What is computed when a run ends is in no log of its own: it ends in that of a longer run.
    """
    rows, work = run.events.to_dict("records"), ("compute", "abort")
    if scenario["algorithm"]["name"] == "fed-plt":  # on a graph all agents do all rounds
        longer = {**scenario, "stop": {"rounds": scenario["stop"]["rounds"] + 2}}
        rows = [row for row in rows if row["kind"] not in work]
        rows += [row for row in played(longer)[0].events.to_dict("records") if row["kind"] in work]
    watts = {**power.rates, "lasts": power.lasts}
    return by_hand(rows, len(power.lasts), until, watts, power.shared)


def differing(table, found):
    """Agents and causes of which a table has something else."""
    return [
        (row.agent, row.cause)
        for row in table.itertuples()
        if not math.isclose(row.joules, found[row.agent, row.cause], rel_tol=1e-9, abs_tol=1e-12)
    ]


@pytest.mark.parametrize("number", RUNS)
def test_energy_is_the_integral_by_hand(number):
    scenario = some_run(number)
    run, power = played(scenario)
    until = 0.7 * run.manifest["time"]
    table, found = run.energy(until), hand_made(scenario, run, power, until)
    assert differing(table, found) == []
    assert set(table["cause"]) == set(power.causes) == {cause for _, cause in found}
    assert run.energy()["joules"].sum() > table["joules"].sum() > 0.0
    times = np.linspace(0.0, run.manifest["time"], 5)
    total = [run.energy(time)["joules"].sum() for time in times]
    assert run.joules_by(times) == pytest.approx(np.array(total), rel=1e-9)
    wrong = {key: 1.01 * joules if key[1] == "tail" else joules for key, joules in found.items()}
    assert {cause for _, cause in differing(table, wrong)} == {"tail"}


def test_all_engines_and_stored_runs_have_the_same_energy(tmp_path):
    scenario = star(
        stop={"rounds": 3}, network={"power": RADIO}, policy={"deadline": "300 ms"},
        compute={"power": {**POWER, "coordinator": {"idle": 9}}}, log="all",
    )  # fmt: skip
    tables = [
        played(scenario, engine=engine)[0].energy() for engine in ("agents", "cohort", "compiled")
    ]
    stored = desim.open(
        desim.run(desim.load({**scenario, "name": "a"}), out=tmp_path / "a").directory
    )
    tables += [stored.energy(), stored.energy(np.inf).replace(np.inf, 0.0)]
    assert [one.equals(tables[0]) for one in tables] == [True, True, True, True, False]
    server = tables[0][tables[0]["agent"] == -1]
    assert server["joules"].tolist() == [9 * stored.manifest["time"], 0.0]


@pytest.mark.parametrize("make", [star, graph])
def test_a_run_took_what_a_longer_one_had_taken_by_then(make):
    """What it computes when it ends is not in its log: it follows from what is."""
    network = {"power": {"sent": "1 mJ/B"}}
    scenario = make(network=network, compute={"power": POWER}, observe={"metrics": []})
    short = played({**scenario, "stop": {"time": "0.35 s"}})[0]
    longer = played({**scenario, "stop": {"time": "2 s"}})[0].energy(until=0.35)
    assert (short.events["time"] > 0.3).any()
    table = short.energy()
    table["joules"] -= longer["joules"]
    assert abs(table.loc[table["cause"] != "sending", "joules"]).max() < 1e-12
    ended = short.events.query("kind == 'compute'").groupby("agent")["seconds"].sum()
    busy = longer[longer["cause"] == "computing"].set_index("agent")["joules"]
    done = ended * reading.power_of(short).rates["computing"][ended.index]
    assert busy.sum() - done.sum() > 0.1  # what was under way


def test_work_on_an_older_call_and_at_the_coordinator_is_counted_when_a_run_ends():
    """Whatever newer call is on its way: at .76 s an agent is at its fifth call, the sixth left."""
    power = {**POWER, "coordinator": {"computing": "3 W"}}
    compute = {"power": power, "coordinator": {"reply": "5 ms"}}
    scenario = star(policy={"deadline": "150 ms"}, compute=compute, observe={"metrics": []})
    longer = played({**scenario, "stop": {"time": "1.2 s"}})[0]
    work = longer.events[longer.events["agent"] == -1].query("kind == 'compute'")
    calls = longer.events.query("kind == 'activate' and time > 0.5")
    for end in (float(calls["time"].iloc[0]) + 0.004, float(work["time"].iloc[2]) - 0.004):
        short = played({**scenario, "stop": {"time": end}})[0]
        busy = [
            one.query("cause == 'computing'").set_index("agent")["joules"]
            for one in (short.energy(), longer.energy(until=end))
        ]
        assert busy[0].to_numpy() == pytest.approx(busy[1].to_numpy(), rel=1e-12)
        rates = reading.power_of(short).rates["computing"]
        assert short.joules_by(np.array([end])) == pytest.approx(short.energy()["joules"].sum())
        done = short.events.query("kind in ['compute', 'abort'] and agent >= 0")
        done = done.groupby("agent")["seconds"].sum().reindex(range(6), fill_value=0.0)
        assert busy[0][-1] > 0.0
        assert (busy[0].drop(-1) > done * rates + 0.01).any()


def test_joules_of_single_causes_are_what_one_can_say_without_a_log():
    compute = {"speed": "100 /s", "power": {"idle": "2 W", "computing": [1, 2, 3, 4, 5, 6]}}
    network = {"link": {"latency": "1 ms", "bandwidth": "1 kB/s"}, "power": {"sent": "3 mJ/B",
               "radio": "1 W", "tail": "10 s", "tail_power": "0.5 W"}}  # fmt: skip
    scenario = star(stop={"rounds": 2}, compute={**compute, "slow": {"fraction": 0}})
    run = desim.run(desim.load({**scenario, "name": "flat", "network": network}))
    table, lasted = run.energy(), 2 * (8 * 4 / 100 + 2 * (0.001 + 0.04))
    assert run.manifest["time"] == pytest.approx(lasted)
    found = table.pivot(index="agent", columns="cause", values="joules")
    assert found["idle"].to_numpy() == pytest.approx(np.full(6, 2 * lasted))
    assert found["computing"].to_numpy() == pytest.approx(0.64 * np.arange(1, 7))
    assert found["sending"].to_numpy() == pytest.approx(np.full(6, 2 * 40 * 0.003))
    assert found["radio"].to_numpy() == pytest.approx(np.full(6, 4 * 0.04))
    tail = 0.5 * (lasted - 0.16 - 0.001)  # but the latency of the first message: none was before
    assert found["tail"].to_numpy() == pytest.approx(np.full(6, tail))
    assert table["joules"].sum() == pytest.approx(found.to_numpy().sum())
    half = run.energy(until=lasted / 2)["joules"].sum()
    assert 0.4 < half / table["joules"].sum() < 0.6


def test_until_a_target(tmp_path, capsys):
    run = desim.run(
        desim.load({**star(compute={"power": {"idle": "1 W"}}), "name": "aim"}), out=tmp_path / "a"
    )
    when = run.time_to("loss", 3.9)
    assert 0.0 < when < run.manifest["time"]
    assert run.energy({"loss": 3.9})["joules"].sum() == pytest.approx(6 * when)
    assert np.isinf(run.energy({"loss": 0.0})["joules"]).all()
    main_says = said(capsys, "energy", str(run.directory), "--target", "loss=3.9", "--by", "agent")
    assert main_says.startswith(f"aim: {6 * when:.4g} J of 6 agents until loss 3.9\n")
    assert len(main_says.splitlines()) == 8
    assert "never" in said(capsys, "energy", str(run.directory), "--target", "loss=0")
    plain = json.loads(said(capsys, "energy", str(run.directory), "--json"))
    assert sum(one["joules"] for one in plain["energy"]) == pytest.approx(6 * run.manifest["time"])
    for until in (-1.0, 1e9, True, {"loss": 1, "error": 1}, "1 s"):
        with pytest.raises(desim.InputError, match="until: "):
            run.energy(until)


def said(capsys, *words):
    """What a command says."""
    with pytest.raises(SystemExit) as left:
        main(list(words))
    assert left.value.code == 0
    return capsys.readouterr().out


REFUSED = [
    ({"compute.power.idle": "-1 W"}, r"compute.power.idle: found '-1 W'; allowed: a power"),
    ({"compute.power.computing": ["1 W", "-2 W"]}, r"of agent 1: found '-2 W'; allowed"),
    ({"compute.power.idle": "3 J"}, r"found unit 'J' in '3 J'; allowed: a power such as 7.4 W"),
    ({"compute.power": {}}, r"compute.power: found no watts; allowed: idle, computing"),
    ({"compute.power": "abacus"}, r"named: found 'abacus'; allowed: jetson-agx-xavier"),
    (
        {"compute.power": "40 W"},
        r"found '40 W'; .*, or watts as a mapping: {idle: 2 W, computing: 5",
    ),
    ({"network.power.sent": "1 W"}, r"allowed: joules for a byte such as 2 uJ/B"),
    ({"network.power.tail": "3 s"}, r"tail: found without watts; allowed: with radio or tail_po"),
    ({"network.power": {"radio": 1, "tail_power": 1}}, r"tail_power: found without tail; allowed"),
]


@pytest.mark.parametrize(("changes", "text"), REFUSED)
def test_bad_watts_are_refused_in_words(changes, text):
    with pytest.raises(desim.InputError, match=text):
        desim.load({**star(), "name": "bad"}, overrides=changes)


def test_what_no_run_can_say_is_refused():
    listed = star(stop={"rounds": 1}, compute={"power": {"idle": [1, 2]}})
    with pytest.raises(desim.InputError, match=r"compute.power.idle: found 2 entries for 6 agents"):
        desim.run(desim.load({**listed, "name": "short"}))
    run = desim.run(desim.load({**star(stop={"rounds": 1}), "name": "none"}))
    with pytest.raises(desim.InputError, match=r"allowed: a scenario with compute.power"):
        run.energy()
    quiet = star(stop={"rounds": 1}, compute={"power": POWER}, log="rounds")
    with pytest.raises(desim.InputError, match="energy: needs compute events"):
        desim.run(desim.load({**quiet, "name": "quiet"})).energy()


def test_a_device_has_a_name_and_a_source():
    run = played(star(stop={"rounds": 1}, compute={"power": "jetson-agx-xavier"}))[0]
    assert run.scenario.compute.power.idle.a == 6.95
    own = desim.load(
        {**star(), "name": "own"},
        overrides={"compute.power": {"named": "jetson-agx-xavier", "idle": "9 W"}},
    )
    assert (own.compute.power.idle.a, own.compute.power.computing.a) == (9.0, 16.6)
    assert desim.load(own.written()) == own


def test_joules_stand_beside_seconds_and_bytes(tmp_path):
    """In comparisons, studies and reports of runs with power, and in no others."""
    scenario = {**star(observe={"metrics": ["loss"]}), "name": "aim"}
    plain = desim.run(desim.load(scenario))
    power = desim.load(scenario, overrides={"compute.power": {"idle": "1 W"}})
    run = desim.run(power, out=tmp_path / "a")
    when = run.time_to("loss", 3.9)
    frame = desim.compare([run], {"loss": 3.9}).frame.set_index("measure")
    assert frame.loc["joules to loss 3.9", "value"] == pytest.approx(6 * when)
    assert frame.loc["joules", "unit"] == "J"
    assert frame.loc["joules", "value"] == pytest.approx(6 * run.manifest["time"])
    assert "joules" not in {*desim.compare([plain], {"loss": 3.9}).frame["measure"]}
    text = f"{6 * run.manifest['time']:.4g} J"
    assert ("energy", f"{text}: idle 100%") in facts(run)
    assert "energy" not in dict(facts(plain))
    where, _ = course(run, "joules", "loss")
    assert where == pytest.approx(6 * run.curve("loss")["time"].to_numpy())
    with pytest.raises(desim.InputError, match="says no watts"):
        course(plain, "joules", "loss")
    axes = run.plot(x="joules", metric="loss", out=tmp_path / "joules.png")
    assert axes.get_xlabel() == "energy of all devices (J)"
    desim.report([run], tmp_path / "page.html")
    assert text in (tmp_path / "page.html").read_text("utf-8")


TUNER = {"vary": {"algorithm.rho": [0.4, 0.6]}, "until": {"loss": 3.9}, "seeds": [1], "fresh": 0}


def test_a_tuner_looks_for_joules_where_there_are_watts():
    power = {"compute": {"power": {"idle": "1 W"}}}
    for base, text in (({}, "no watts"), ({**power, "log": "messages"}, "joules in tune")):
        file = {"base": {**star(**base, observe={"metrics": ["loss"]}), "name": "aim"}}
        with pytest.raises(desim.InputError, match=text):
            desim.tune({**file, "tune": {**TUNER, "limits": {"joules": "1 kJ"}}}, workers=0)
    file = {"base": {**star(**power, observe={"metrics": ["loss"]}), "name": "aim"}}
    found = desim.tune({**file, "tune": {**TUNER, "least": "joules"}}, workers=0)
    assert (found.candidates["joules"] > 0.0).any()
