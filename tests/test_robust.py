"""In how many worlds an order of methods holds, what decides that, and what turns it over."""

import itertools
import json

import numpy as np
import pytest
from cases import CASES, LOSSY, graph, merged, star
from forked import forked
from mutant import mutant
from scipy.stats import binomtest

import desim
from desim.engine import call_trace
from desim.errors import InputError
from desim.experiments.ranking import contenders, turning, worlds
from desim.experiments.ranking.contenders import aimed, entered
from desim.experiments.ranking.turning import Contest
from desim.interface.cli import main
from desim.scenario.scaled import scaled

TARGET = {"error": 1e-2}
FACTORS = {
    "latency": 1.7, "bandwidth": 0.4, "speed": 0.6, "loss": 1.5, "behind": 0.7, "overhead": 1.9,
}  # fmt: skip


def entrant(scenario, target=("error", 1e-2), **changes):
    return entered(aimed(desim.load(merged(scenario, changes)), target), target)


def fresh(found, world):
    """What a user gets who plays the world by hand."""
    return desim.run(world).time_to(*found.target)


STARS = {
    "fed-plt": star(network=LOSSY, stop={"rounds": 60}),
    "half": star(participation={"uniform": 3}, stop={"rounds": 200}),
    "tamuna": star(algorithm={"name": "tamuna", "p": 0.3}, network=LOSSY, stop={"rounds": 300}),
    "fedlin": star(algorithm={"name": "fedlin", "local": {"epochs": 3}}, stop={"rounds": 300}),
    "scaffold": star(algorithm={"name": "scaffold", "local": {"epochs": 3}},
                     participation={"uniform": 3}, stop={"rounds": 300}),
}  # fmt: skip


@pytest.mark.parametrize("name", STARS)
def test_the_clock_of_a_world_is_that_of_retime_and_of_a_fresh_run(name):
    target = ("error", 0.3)
    found = entrant(STARS[name], target)
    assert found.way == "notes", found.why
    world = scaled(found.scenario, FACTORS)
    data, run = world.written(), desim.run(found.scenario)
    told = desim.retime(run, network=data["network"], compute=data["compute"])
    assert found.seconds(world) == told.time_to(*target) == fresh(found, world) < np.inf
    assert found.seconds(found.scenario) == run.time_to(*target) != found.seconds(world)


def test_connections_of_one_method_are_not_those_of_the_next():
    tcp = {"link": {"latency": "20 ms", "bandwidth": "1 Mbit/s", "loss": "10 %",
                    "transport": {"tcp": {"segment": 8}}}}  # fmt: skip
    few, many = (star(network=tcp, algorithm={"name": "fed-plt", "rho": 0.5,
                                              "local": {"epochs": epochs}})
                 for epochs in (2, 6))  # fmt: skip
    found = desim.robust([few, many], {"error": 1.0}, worlds=4, workers=1).worlds
    for row in found.to_dict("records"):
        factors = {name: row[name] for name in FACTORS if name in row}
        for place, one in zip(list(row)[-2:], (few, many), strict=True):
            world = scaled(desim.load(one), factors)
            assert row[place] == desim.run(world).time_to("error", 1.0) < np.inf


def test_where_nobody_gets_there_nobody_is_passed():
    contest = Contest(None, ("loss",), 0, np.array([1]))
    leads = [contest.lead(np.array(row)) for row in ([np.inf, np.inf], [np.inf, 1.0], [1.0, 2.0])]
    assert leads == [np.inf, -np.inf, pytest.approx(np.log(2.0))]


HOMES = {"sites": 2, "uplink": {"bandwidth": "20 kbit/s"}, "downlink": {"bandwidth": "2 Mbit/s"}}
BESIDES = {
    "behind lines": {"network": {"link": {"latency": "10 ms"}, "behind": HOMES}},
    "fixed costs": {"compute": {"speed": "500 /s", "overhead": {"exponential": "20 ms"},
                                "coordinator": {"reply": "3 ms"}}},
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDES)
@pytest.mark.parametrize("transport", [None, "ideal", "reno"])
def test_other_inputs_and_transports_are_those_of_a_fresh_run(name, transport):
    target = ("error", 0.3)
    found = entrant(merged(STARS["fedlin"], BESIDES[name]), target)
    every = worlds.Race({None: [found]})
    world = worlds.World(FACTORS, None, transport)
    assert every.seconds(world) == [fresh(found, every.scenario(world, 0))]
    still = worlds.World({**FACTORS, name.split()[0].replace("fixed", "overhead"): 1.0})
    assert every.seconds(still) != every.seconds(world)


def test_access_lines_and_costs_are_inputs_where_there_are_any():
    both = [star(compute={"speed": "500 /s", "overhead": "20 ms"}, stop={"rounds": n})
            for n in (200, 300)]  # fmt: skip
    asked = {"vary": {"transport": "ideal, reno", "behind": "0.5..2"}, "worlds": 16}
    found = desim.robust(both, TARGET, workers=1, **asked)
    assert list(found.laws) == ["latency", "bandwidth", "speed", "overhead", "transport"]
    assert set(found.worlds["transport"]) == {"ideal", "reno"}
    notes = " ".join(found.notes)
    assert "behind: left out" in notes
    silent = desim.robust([star(), star(stop={"rounds": 90})], TARGET, workers=1, worlds=2)
    assert not [one for one in silent.notes if one.startswith(("behind", "overhead"))]


def check_methods_apart(monkeypatch, module):
    """Methods that meet the same network begin with connections that have carried nothing."""
    network = {"link": {**LOSSY["link"], "loss": 0.0, "transport": "tcp"}}
    monkeypatch.setattr(contenders, "Player", module.Player)
    own = [entrant(STARS[name], ("error", 0.3), network=network) for name in ("fed-plt", "fedlin")]
    together = worlds.Race({None: own}).seconds(worlds.World({}))
    assert together == [desim.run(one.scenario).time_to(*one.target) for one in own]


def test_methods_do_not_meet_each_others_connections(monkeypatch):
    check_methods_apart(monkeypatch, contenders)


def test_connections_that_remember_another_method_are_noticed(monkeypatch):
    wrong = mutant(call_trace, "down.unused, up.unused", "down, up")
    with pytest.raises(AssertionError):
        check_methods_apart(monkeypatch, wrong)


WRONG_NOTES = {
    "work": ("np.array(work, float)", "np.array(work, float) * 1.01"),
    "bits": ("hub.exchange, bits, reply_bits)", "hub.exchange, bits, bits + 64)"),
    "draws": ("note(CALL, who, hub.round,", "note(CALL, who, hub.round + 1,"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_NOTES)
def test_notes_that_are_wrong_are_not_used(name, monkeypatch):
    twin = mutant(call_trace, *WRONG_NOTES[name])
    monkeypatch.setattr(call_trace, "NotedMethod", twin.NotedMethod)
    assert entrant(STARS["fed-plt"], ("error", 0.3)).way == "retime"


WAYS = {
    "quorum": (star(policy={"quorum": 4}, stop={"rounds": 200}), "play"),
    "budget": (CASES["plt-budget-stop"], "play"),
    "graph": (graph(), "retime"),
    "contention": (star(network={"contention": "fifo"}, stop={"rounds": 60}), "retime"),
}


@pytest.mark.parametrize("name", WAYS)
def test_what_delays_may_change_is_played_anew(name):
    scenario, way = WAYS[name]
    target = ("error", 0.6)
    found = entrant(scenario, target)
    world = scaled(found.scenario, FACTORS)
    if name != "budget":
        assert found.way == way
    assert found.seconds(world) == fresh(found, world)


def test_who_never_gets_there_has_no_time():
    assert entrant(star(stop={"rounds": 2}), ("error", 1e-9)).way == "never"
    short = entrant(star(stop={"rounds": 60, "time": "20 s"}), ("error", 0.3))
    assert short.seconds(short.scenario) < np.inf
    late = scaled(short.scenario, {"latency": 1e3})
    assert short.seconds(late) == np.inf == fresh(short, late)


# Two methods whose times are a latency + b / bandwidth + c / speed: an oracle by integration.

LINK = {"latency": 0.05, "bandwidth": 2e4}
MANY, FEW = 6, 1  # epochs
SPEED, ROWS, DIM, LOW, HIGH = 250.0, 8, 5, 0.5, 2.0


def steady(name, epochs, **changes):
    """FedAvg on equal agents: a round takes 2 latencies, bits there and back, epochs of work."""
    local = {"solver": "gradient", "epochs": epochs}
    sections = {
        "name": name,
        "algorithm": {"name": "fedavg", "local": local},
        "network": {"link": LINK},
        "compute": {"speed": SPEED},
        "stop": {"rounds": 2000},
    }
    problem = {"agents": 3, "regularizer": {"l2": 0.05}}
    return {**star(problem=problem), **sections, **changes}


def affine(scenario, target):
    """Coefficients (a, b, c) of 1 / latency factor ... in s: rounds x what one round takes."""
    rounds = entrant(scenario, target).trace.acts[:, 1].max()
    epochs = scenario["algorithm"]["local"]["epochs"]
    parts = 2 * LINK["latency"], 2 * 64 * DIM / LINK["bandwidth"], epochs * ROWS / SPEED
    return rounds * np.array(parts)


def integrated(first, second, nodes=24):
    """The share of worlds in which first is first, and Sobol' indices of log(second / first)."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    factors = np.exp(np.log(LOW) + (np.log(HIGH) - np.log(LOW)) * (x + 1) / 2)
    scale = np.stack(np.meshgrid(factors, 1 / factors, 1 / factors, indexing="ij"))
    weights = np.einsum("i,j,k->ijk", w / 2, w / 2, w / 2)
    lead = np.log(np.tensordot(second, scale, 1) / np.tensordot(first, scale, 1))
    mean = (weights * lead).sum()
    variance = (weights * (lead - mean) ** 2).sum()
    one, total = [], []
    for i in range(3):
        others = tuple(j for j in range(3) if j != i)
        one.append(((w / 2) * ((weights * lead).sum(others) / (w / 2) - mean) ** 2).sum())
        rest = np.tensordot(np.moveaxis(lead, i, -1), w / 2, 1)
        total.append(variance - (np.outer(w / 2, w / 2) * (rest - mean) ** 2).sum())
    fine = np.exp(np.linspace(np.log(LOW), np.log(HIGH), 121)[:-1] + np.log(HIGH / LOW) / 240)
    dense = np.stack(np.meshgrid(fine, 1 / fine, 1 / fine, indexing="ij"))
    share = np.mean(np.tensordot(first, dense, 1) < np.tensordot(second, dense, 1))
    return share, np.array(one) / variance, np.array(total) / variance


@pytest.fixture(scope="module")
def duel():
    """What desim finds of few and of many local steps, and the coefficients of both times."""
    aim = ("error", 0.01)
    both = [steady("many", MANY), steady("few", FEW)]
    found = desim.robust(both, dict([aim]), worlds=1024, seed=3, workers=1)
    return found, {one["name"]: affine(one, aim) for one in both}


def check_oracle(found, first, second):
    share, one, total = integrated(first, second)
    row = found.pairs.iloc[0]
    assert 0.55 < share < 0.95  # else the oracle says little
    assert abs(row["share"] - share) < 0.02  # 5 standard errors of 1024 even points would be .06
    assert np.abs(found.indices["first"] - one).max() < 0.1
    assert np.abs(found.indices["total"] - total).max() < 0.1
    for kind, true in (("first", one), ("total", total)):
        error = found.indices[f"{kind}_error"].to_numpy()
        assert (np.abs(found.indices[kind] - true) < 4.0 * error + 0.01).all()


def test_shares_and_indices_are_those_of_the_integral(duel):
    found, times = duel
    names = found.pairs.iloc[0]
    check_oracle(found, times[names["before"]], times[names["after"]])
    with pytest.raises(AssertionError):
        check_oracle(found, times[names["before"]] * [1, 1, 0.7], times[names["after"]])


def test_the_smallest_change_is_that_of_a_dense_search(duel):
    found, times = duel
    change = found.change
    first, second = times[change.led], times[change.by]
    grid = np.linspace(-0.7, 0.7, 71)
    logs = np.stack(np.meshgrid(grid, grid, grid, indexing="ij"))
    scale = np.exp(logs * np.array([1, -1, -1])[:, None, None, None])
    turned = np.tensordot(second, scale, 1) < np.tensordot(first, scale, 1)
    least = float(np.sqrt((logs**2).sum(0))[turned].min())
    assert change.size == pytest.approx(least, rel=0.05)
    assert change.within
    assert str(change).endswith(f"{change.by} before {change.led}")


def test_the_smallest_change_turns_the_place_over_when_it_is_played(duel):
    found, _ = duel
    change, seconds = found.change, []
    for name in (change.led, change.by):
        epochs = MANY if name == "many" else FEW
        one = desim.load(steady(name, epochs, stop={"rounds": 2000, "metric": {"error": 0.01}}))
        seconds.append(desim.run(scaled(one, change.factors)).time_to("error", 0.01))
    assert seconds == list(change.seconds)
    assert seconds[1] < seconds[0]


def test_a_search_that_does_not_improve_is_noticed():
    """The nearest point of a plane, at distance 1: not on an axis, nor where all change alike."""
    normal = np.array([3.0, -2.0, 1.0]) / np.sqrt(14.0)

    def gap(logs):
        return 1.0 - float(logs @ normal)

    found = turning.smallest(gap, 3, [], seed=1)
    assert np.linalg.norm(found) == pytest.approx(1.0, rel=2e-3)
    lazy = mutant(turning, "_improved(gap, best, np.random.default_rng(seed))", "best")
    assert np.linalg.norm(lazy.smallest(gap, 3, [], seed=1)) > 1.05
    assert turning.smallest(lambda logs: 1.0, 3, [], seed=1) is None


def test_factors_have_as_many_digits_as_turn_the_place_over():
    """x1.04 and x1.04 do not, x1.042 do; what is 1 but for rounding is left out."""
    best = np.log([1.0417, 1.000001, 1.0417])

    def turns(factors):
        return factors.get(0, 1.0) * factors.get(2, 1.0) > 1.0416**2

    assert turning.rounded(turns, best) == {0: 1.042, 2: 1.042}
    assert turning.rounded(lambda factors: True, best) == {0: 1.04, 2: 1.04}


def test_seeds_are_an_input():
    both = [steady("many", MANY), steady("few", FEW)]
    found = desim.robust(
        both, {"error": 0.2}, worlds=64, vary={"seed": "1..3", "bandwidth": None}, workers=1
    )
    assert set(found.worlds["seed"]) == {1, 2, 3}
    assert list(found.indices["input"]) == ["latency", "speed", "seed"]


def test_the_same_seed_gives_the_same_worlds(duel):
    found, _ = duel
    again = desim.robust(
        [steady("many", MANY), steady("few", FEW)], {"error": 0.01}, worlds=1000, seed=3, workers=1
    )
    assert again.worlds.equals(found.worlds)
    assert again.indices.equals(found.indices)
    assert again.change == found.change


@pytest.mark.slow
def test_workers_change_nothing(monkeypatch):
    """Neither those of methods whose clock is told anew nor of one that is played again.

    What would turn the order over is looked for by one process, whatever their number.
    """
    monkeypatch.setattr(turning, "smallest", lambda *_: None)
    scenarios = [star(name="a"), star(name="b", policy={"quorum": 4}), graph(), graph()]
    alone = desim.robust(scenarios, {"error": 0.9}, worlds=4, workers=1)
    monkeypatch.setattr(worlds, "FIRST", 0.0)
    monkeypatch.setattr(worlds, "WORTH", 0.0)
    with forked():
        several = desim.robust(scenarios, {"error": 0.9}, worlds=4, workers=2)
    assert several.worlds.equals(alone.worlds)
    assert several.indices.equals(alone.indices)


def test_intervals_are_wilsons():
    for met, n in itertools.product((0, 1, 37, 63, 64), (64, 1000)):
        known = binomtest(met, n).proportion_ci(method="wilson")
        assert worlds.wilson(met, n) == pytest.approx((known.low, known.high), abs=1e-12)
    bad = mutant(worlds, "part = met / worlds, LEVEL**2 / worlds", "part = met / worlds, 0.0")
    assert bad.wilson(1, 64) != pytest.approx(worlds.wilson(1, 64))


def test_orders_pairs_and_first_places():
    inf, names = np.inf, ("a", "b", "c")
    seconds = np.array([[1, 2, 3], [2, 1, 1], [1, 1, inf], [inf, inf, inf]], float)
    found = worlds.orders(names, seconds)
    assert dict(zip(found["order"], found["share"], strict=True)) == {
        "a < b < c": 0.25, "b = c < a": 0.25, "a = b < (never: c)": 0.25, "(never: a, b, c)": 0.25,
    }  # fmt: skip
    pair = worlds.pairs(names, seconds, seconds[0]).set_index(["before", "after"])
    assert pair.loc[("a", "b"), "share"] == 0.25
    assert pair.loc[("a", "b"), "level"] == 0.5
    assert pair.loc[("b", "c"), "share"] == 0.5
    won = worlds.first(names, seconds, seconds[0]).set_index("method")
    assert won["share"].to_dict() == {"a": 0.25, "b": 0.0, "c": 0.0}  # a shared place is nobody's
    assert won["never"].to_dict() == {"a": 0.25, "b": 0.25, "c": 0.5}
    assert won.loc["c", "median"] == 3.0


def test_methods_that_are_level_say_so():
    found = desim.robust([star(name="a"), star(name="b")], {"error": 0.7}, worlds=8, workers=1)
    assert found.order == "a = b"
    assert found.change is None
    assert not len(found.indices)
    assert "level in the scenario as it is" in " ".join(found.notes)
    assert "level in 100 %" in found.text()


BAD = {
    "one": ([star()], TARGET, {}, r"robust: found one method; allowed: at least two"),
    "none": ([], TARGET, {}, r"robust: found no method"),
    "metric": ([star(), star()], {"eror": 1.0}, {}, r"target: found 'eror'.*did you mean 'error'"),
    "targets": ([star(), star()], {"error": 1.0, "loss": 2.0}, {}, "target: found 2 metrics"),
    "nan": ([star(), star()], {"error": np.nan}, {}, "target error: found nan"),
    "accuracy": ([star(), star()], {"accuracy": 0.9}, {}, "accuracy without test rows"),
    "far": ([star(), star()], {"error": 1e-30}, {}, r"target error: found 1e-30, which no method"),
    "input": ([star(), star()], TARGET, {"vary": {"latncy": "1..2"}}, "did you mean 'latency'"),
    "law": ([star(), star()], TARGET, {"vary": {"speed": "2..1"}}, "vary.speed: found"),
    "law text": ([star(), star()], TARGET, {"vary": {"speed": "fast"}}, "allowed: LOW..HIGH"),
    "transport": ([star(), star()], TARGET, {"vary": {"transport": ["ideal", "tpc"]}},
                  "vary.transport: found .*at least two of ideal, tcp, cubic, reno, bbr"),
    "one transport": ([star(), star()], TARGET, {"vary": {"transport": "tcp"}},
                      "vary.transport: found 'tcp'; allowed: at least two"),
    "seeds": ([star(), star()], TARGET, {"vary": {"seed": "3..3"}}, "vary.seed: .*at least two"),
    "worlds": ([star(), star()], TARGET, {"worlds": 1}, "worlds: found 1; allowed"),
    "many": ([star(), star()], TARGET, {"worlds": 1 << 30}, "worlds: found .*at most"),
    "workers": ([star(), star()], TARGET, {"workers": 0}, "workers: found 0"),
    "idle": ([star(network={"link": {"loss": 0}})] * 2, TARGET,
             {"vary": dict.fromkeys(("latency", "bandwidth", "speed"), "none")},
             "vary: found no input that changes anything"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_told_in_words(name):
    scenarios, target, more, words = BAD[name]
    with pytest.raises(InputError, match=words):
        desim.robust(scenarios, target, **{"workers": 1, **more})


def test_what_differs_beside_the_method_is_told():
    other = star(name="b", seed=4, network={"link": {"latency": "9 ms"}})
    found = desim.robust([star(name="a"), other], {"error": 0.7}, worlds=4, workers=1)
    assert any(one.startswith("network: a and b differ") for one in found.notes)
    assert any(one.startswith("seed: a and b differ") for one in found.notes)
    assert any(one.startswith("loss: left out") for one in found.notes)


def test_ctrl_c_in_a_training_ends_all(monkeypatch):
    class Stopped:
        status, manifest = "stopped", {"reason": "interrupted"}

    stopped = type("Root", (), {"run": Stopped()})
    monkeypatch.setattr(contenders.Root, "trained", lambda *_: stopped)
    with pytest.raises(KeyboardInterrupt):
        desim.robust([star(), star()], TARGET, worlds=4)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """A folder with two scenarios and a study of both."""
    monkeypatch.chdir(tmp_path)
    for name, epochs in (("many", MANY), ("few", FEW)):
        (tmp_path / f"{name}.yaml").write_text(json.dumps(steady(name, epochs)))
    listed = [("six", MANY), ("one", FEW)]
    entries = [{"label": label, "algorithm.local.epochs": n} for label, n in listed]
    study = {"base": "many.yaml", "list": entries}
    (tmp_path / "both.yaml").write_text(json.dumps(study))
    (tmp_path / "laws.yaml").write_text("latency: 0.1..10\nspeed: {lognormal: 0.3}\nloss: none\n")
    return tmp_path


def call(*arguments):
    with pytest.raises(SystemExit) as end:
        main(["robust", *arguments])
    return end.value.code


ASKED = ("--target", "error=0.01", "--worlds", "64", "--workers", "1")


def test_the_command_prints_a_table_and_writes_files(desk, capsys):
    files = ("-o", "a.json", "-o", "a.csv", "-o", "a.svg")
    assert call("many.yaml", "few.yaml", *ASKED, *files, "--vary", "laws.yaml") == 0
    told = capsys.readouterr().out
    assert "error 0.01 in 64 worlds: latency log-uniform x0.1 to x10" in told
    assert "speed lognormal, sigma 0.3" in told
    assert told.splitlines()[-3:] == ["a.json", "a.csv", "a.svg"]
    made = json.loads((desk / "a.json").read_text())
    assert made["methods"] == ["many", "few"]
    assert len((desk / "a.csv").read_text().splitlines()) == 65
    assert "worlds" in (desk / "a.svg").read_text()


def test_a_study_stands_for_its_cases_and_runs_for_their_scenarios(desk, capsys):
    assert call("both.yaml", *ASKED) == 0
    of_study = capsys.readouterr().out
    assert [line.split()[0] for line in of_study.splitlines()[2:4]] in (
        ["six", "one"],
        ["one", "six"],
    )
    desim.run("few.yaml", out="runs/few")
    assert call("runs/few", "many.yaml", *ASKED) == 0
    told = capsys.readouterr().out
    assert of_study.splitlines()[5].split(":")[0] == told.splitlines()[5].split(":")[0]


COMMANDS = {
    "nothing": (("absent.yaml", "few.yaml", *ASKED), "absent.yaml: "),
    "one": (("few.yaml", *ASKED), "robust: found one method"),
    "target": (("few.yaml", "many.yaml", "--target", "error"), "--target: found 'error'"),
    "file": (("few.yaml", "many.yaml", *ASKED, "-o", "a.xlsx"), "-o a.xlsx: found '.xlsx'"),
    "vary": (("few.yaml", "many.yaml", *ASKED, "--vary", "a", "--vary", "b=1..2"), "--vary: found"),
    "law": (("few.yaml", "many.yaml", *ASKED, "--vary", "loss={uniform: 1}"), "vary.loss: found"),
    "laws": (("few.yaml", "many.yaml", *ASKED, "--vary", "no.yaml"), "no.yaml: no such file"),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_wrong_command_is_told_in_words(name, desk, capsys):
    arguments, words = COMMANDS[name]
    assert call(*arguments) == 2
    assert words in capsys.readouterr().err
    assert not list(desk.glob("a.*"))
