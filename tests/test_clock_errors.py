"""`desim compare` of a real run: every error is that of the logs, and is explained."""

import json

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.deployments.fidelity import clock_errors, matching
from desim.errors import InputError
from desim.interface.cli import main
from desim.runs.reading import critical

BASE = {
    "name": "small",
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "gradient", "epochs": 2}},
    "network": {"link": {"latency": "10 ms", "bandwidth": "1 Mbit/s"}},
    "compute": {"speed": {"lognormal": ["1000 /s", 0.3]}},
    "observe": {"metrics": ["error"]},
    "stop": {"rounds": 6},
}
OTHER = {"link": {"latency": "12 ms", "bandwidth": "1 Mbit/s", "jitter": {"lognormal": 0.3}}}
GRAPH = {
    "topology": "ring",
    "link": {"latency": "10 ms", "jitter": {"lognormal": 0.2}},
}
SGD = {"algorithm": {"name": "dsgd", "alpha": 0.1}}
CLOCK = {"kind": "real", "hosts": 1, "error": 0.001}
DEADLINE = {"policy": {"deadline": "39 ms", "late": "discard"}}


def played(out=None, real=False, **parts):
    run = desim.run({**BASE, **parts}, out)
    if real and out is not None:
        file = out / "manifest.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "clock": CLOCK}))
        return desim.open(out)
    if real:
        run.manifest["clock"] = CLOCK
    return run


@pytest.fixture(scope="module")
def pair():
    return played(network=OTHER, real=True), played()


@pytest.fixture
def call(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(one) for one in arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


def by_hand(run, kind):
    """Seconds by who, whom, round and number in it, out of the log row by row."""
    found, numbers = {}, {}
    rows = [row for row in run.events.itertuples() if row.kind == kind]
    for row in sorted(rows, key=lambda row: row.time - row.seconds):
        key = row.peer, row.agent, row.round
        numbers[key] = numbers.get(key, -1) + 1
        found[*key, numbers[key]] = row.seconds
    return found


def check_messages(module, pair):
    """Errors of messages and computations, worked out row by row."""
    for kind, what, names in (
        ("deliver", "messages", ["sender", "receiver", "round", "nth"]),
        ("compute", "computations", ["agent", "round", "nth"]),
    ):
        first, second = (by_hand(run, kind) for run in pair)
        made = module.matches_of(*pair)[what]
        assert len(made.frame) == len(first.keys() & second.keys()) > 0
        for row in made.frame.to_dict("records"):
            key = tuple(row[name] for name in names)
            key = key if kind == "deliver" else (-1, *key)
            assert row["real"] == first[key]
            assert row["simulated"] == second[key]
            assert row["error"] == second[key] - first[key]
            assert row["relative"] == (second[key] - first[key]) / first[key]
        assert made.only_real == len(first) - len(made.frame)
        assert made.only_simulated == len(second) - len(made.frame)


@pytest.mark.slow
def test_every_message_and_computation_is_held_against_its_own(pair):
    check_messages(matching, pair)


def test_messages_of_a_graph_are_held_against_their_own():
    runs = played(network=GRAPH, **SGD), played(network={"topology": "ring"}, **SGD)
    check_messages(matching, runs)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('found["simulated"] - found["real"]', 'found["real"] - found["simulated"]'),
        ("share = (simulated - real) / real", "share = (simulated - real) / simulated"),
        ('else [*owner, "round", "nth"]', 'else [*owner, "nth"]'),
    ],
)  # fmt: skip
def test_wrong_errors_are_noticed(pair, right, wrong):
    with pytest.raises((AssertionError, KeyError)):
        check_messages(mutant(matching, right, wrong), pair)


def check_rounds(module, pair):
    """Rounds of a barrier: from one collection's end to the next."""
    for run in pair:
        rows = run.events[run.events["kind"] == "aggregate"]
        made = module.rounds(run.events)
        assert made["round"].tolist() == [1, 2, 3, 4, 5, 6]
        np.testing.assert_array_equal(made["time"], rows["time"])
        np.testing.assert_allclose(made["seconds"], rows["seconds"], rtol=1e-12)


def test_rounds_are_those_of_the_log(pair):
    check_rounds(critical, pair)
    with pytest.raises(AssertionError):
        check_rounds(mutant(critical, "shift(fill_value=0.0)", "shift(0)"), pair)


def test_quantiles_targets_and_the_whole(pair):
    made = desim.clock_errors(*pair, {"error": [1e9, 0.0]})
    row = made.summary.set_index("what").loc["messages"]
    shares = np.abs(made.messages["relative"])
    assert row["n"] == 48
    assert row["median"] == np.median(shares)
    assert row["95 %"] == np.quantile(shares, 0.95)
    assert row["max"] == shares.max()
    assert row["max s"] == np.abs(made.messages["error"]).max()
    assert row["bias"] == np.median(made.messages["relative"])
    times = made.targets.set_index("what")
    assert times.loc["until error 0", "real"] == np.inf
    assert times.loc["until error 1e+09", "simulated"] == pair[1].time_to("error", 1e9)
    assert times.loc["in all", "real"] == pair[0].manifest["time"]
    assert set(made.messages.attrs["columns"]) >= {"real", "simulated", "idle_real", "bytes_real"}


def test_the_same_run_twice_has_no_error(pair):
    made = desim.clock_errors(pair[0], pair[0])
    assert (made.summary["max"] == 0.0).all()
    assert made.worst.empty
    assert made.accepted == {"wide": (6, 6), "narrow": (0, 0)}
    assert made.ordered == (36, 36)
    assert str(made.models) == "the coordinator's models of 6 rounds are equal to the bit"
    assert "none" in str(made)


def check_replies(module):
    """Who makes a deadline, by the arrivals of each round before it."""
    runs = played(network=OTHER, **DEADLINE), played(**DEADLINE)
    made = module.replies(*runs).set_index("round")
    sets, gaps = [], []
    for run in runs:
        events = run.events
        closed = events[events["kind"] == "aggregate"].set_index("round")
        came = events[(events["kind"] == "deliver") & (events["agent"] < 0)]
        begun = closed["time"] - closed["seconds"]
        sets.append({
            number: {row.peer for row in came.itertuples()
                     if row.round == number and row.time <= closed["time"][number]}
            for number in closed.index
        })  # fmt: skip
        gaps.append({
            number: min(abs(row.time - begun[number] - 0.039) for row in came.itertuples()
                        if row.round == number)
            for number in closed.index
        })  # fmt: skip
        for number in closed.index:
            assert len(sets[-1][number]) == closed["value"][number]
    assert not made["same"].all()
    for number in made.index:
        assert made["same"][number] == (sets[0][number] == sets[1][number])
        assert made["margin"][number] == pytest.approx(min(one[number] for one in gaps), abs=1e-12)


def test_who_makes_a_deadline_and_by_how_much():
    check_replies(matching)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("came.to_numpy(float) <= last", "came.to_numpy(float) <= last + 1.0"),
        ("margin = min(side.margin(number)", "margin = max(side.margin(number)"),
    ],
)
def test_wrong_replies_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_replies(mutant(matching, right, wrong))


def test_a_quorum_is_as_narrow_as_what_came_next():
    run = played(policy={"quorum": 2, "late": "carry"})
    made = matching.replies(run, run)
    assert made["same"].all()
    closed = run.events[run.events["kind"] == "aggregate"].iloc[0]
    came = run.events[(run.events["kind"] == "deliver") & (run.events["agent"] < 0)]["time"]
    assert made["margin"].iloc[0] == min(came[came > closed["time"]]) - closed["time"]


def test_pairs_of_replies(pair):
    made = matching.replies(*pair)
    right = 0
    for number in range(1, 7):
        times = []
        for run in pair:
            rows = run.events[(run.events["kind"] == "deliver") & (run.events["agent"] < 0)]
            times.append(rows[rows["round"] == number].set_index("peer")["time"])
        for i in range(4):
            for j in range(i):
                right += (times[0][i] < times[0][j]) == (times[1][i] < times[1][j])
    assert made["pairs"].sum() == 36
    assert made["ordered"].sum() == right


def test_models_to_the_bit_and_how_far_apart(pair):
    assert "equal to the bit" in str(desim.clock_errors(*pair).models)
    other = played(**DEADLINE)
    found = clock_errors.compared(pair[1], other)
    assert found.first is not None
    one, two = pair[1].model, other.model
    norms = np.linalg.norm(two - one, axis=1)[1:] / np.linalg.norm(one, axis=1)[1:]
    assert found.distance == norms.max()
    assert f"from round {found.first} on" in str(found)


def test_reasons_say_what_the_log_knows(pair):
    made = desim.clock_errors(*pair)
    first = made.messages[np.isinf(made.messages["idle_real"])].iloc[0].to_dict()
    assert matching.of_message(first, made.messages).startswith("1 segment, the first on its link")
    big = {**first, "bytes_real": 1449 + 1448 * 10, "idle_real": 1.5}
    assert matching.of_message(big, made.messages).startswith("12 segments after 1.5 s of idleness")
    assert matching.parted({"real": 0.0579, "simulated": 0.0228}) == (
        "real 57.9 ms, simulated 22.8 ms"
    )
    kinds = made.worst["what"].tolist()
    assert kinds == sorted(kinds, key=["message", "computation", "round"].index)
    assert made.worst["error"].abs().iloc[0] == made.messages["error"].abs().max()
    assert "closed by agent" in made.worst["reason"].iloc[-1]


def test_compare_tells_of_clocks_where_one_run_is_deployed(tmp_path, call):
    played(tmp_path / "real", real=True, network=OTHER)
    played(tmp_path / "simulated")
    code, out, _ = call("compare", tmp_path / "simulated", tmp_path / "real")
    assert code == 0
    assert out.startswith("at the end")
    assert "errors of the clock of small" in out
    made = desim.compare([tmp_path / "simulated", tmp_path / "real"])
    assert made.clocks[0].real.directory == tmp_path / "real"
    for form in ("markdown", "latex"):
        assert "the largest errors" in made.written(form)
    assert "errors of the clock" in made._repr_html_()
    assert "clocks of the real run's hosts agree to 1 ms" in out
    code, out, _ = call("compare", tmp_path / "simulated", tmp_path / "simulated")
    assert "errors of the clock" not in out
    code, out, err = call("compare", tmp_path / "simulated", "--clock")
    assert (code, err.strip()) == (
        2,
        "clock: found 1 run; allowed: two runs of one scenario, of which one at most is deployed",
    )


def test_runs_of_other_scenarios_are_refused_in_words(tmp_path, pair):
    other = played(algorithm={"name": "fed-plt", "rho": 2.0})
    with pytest.raises(InputError, match=r"different scenarios: they differ in algorithm\.rho"):
        desim.clock_errors(pair[0], other)
    with pytest.raises(InputError, match="found seeds 0 and 1; allowed: one seed"):
        desim.clock_errors(pair[0], played(seed=1))
    with pytest.raises(InputError, match="clock: needs deliver and aggregate events"):
        desim.clock_errors(pair[0], played(log="rounds"))
    made = desim.compare([pair[0], other])
    assert made.clocks == ()
    assert any("algorithm.rho" in note for note in made.notes)
    assert clock_errors.against([pair[0], pair[0], other], True) is None
    with pytest.raises(InputError, match="not a run directory"):
        desim.clock_errors(tmp_path, pair[1])


def test_what_one_run_has_alone_is_counted(pair):
    short = played(stop={"rounds": 4})
    made = desim.clock_errors(pair[0], short)
    assert made.matches["messages"].only_real == 16
    assert "messages: 16 in the real run alone, 0 in the other" in str(made)
    assert clock_errors.ClockErrors is type(made)


def test_the_figure_of_both_timelines(tmp_path, pair, call):
    made = desim.clock_errors(*pair)
    axes = made.plot(out=tmp_path / "both.png", rounds=(1, 3))
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert names == ["coordinator", "0", "1", "2", "3"]
    beside = [text.get_text() for text in axes.texts if "ms" in text.get_text()]
    rows = made.rounds.set_index("round").loc[3]
    late = 1e3 * (rows["time_simulated"] - rows["time_real"])
    assert beside[0] == f"{late:+.3g} ms"
    assert (tmp_path / "both.png").stat().st_size > 1000
    with pytest.raises(InputError, match="agents: found 9"):
        made.plot(out=tmp_path / "no.png", agents=[9])
    played(tmp_path / "a")
    code, _, err = call("plot", "--kind", "clocks", tmp_path / "a")
    assert (code, "found 1 run; allowed: a real run" in err) == (2, True)
    played(tmp_path / "b", network=OTHER)
    code, out, _ = call("plot", "--kind", "clocks", tmp_path / "a", tmp_path / "b")
    assert (code, out.strip()) == (0, str(tmp_path / "a" / "clocks.png"))


def test_of_many_agents_the_farthest_apart_are_drawn(tmp_path):
    problem = {**BASE["problem"], "agents": 15}
    slow = {"link": {"latency": "10 ms"}, "links": [{"sender": 7, "latency": "100 ms"}]}
    runs = played(problem=problem, network=slow), played(problem=problem)
    axes = desim.clock_errors(*runs).plot(out=tmp_path / "many.png")
    names = [label.get_text() for label in axes.get_yticklabels()]
    assert len(names) == 13
    assert "7" in names
    assert "12 farthest apart of 15" in axes.get_ylabel()


def looped(run, noise="scenario"):
    """The same run as if processes had played it without links, with noise from there."""
    links = {"kind": "loopback, without links"}
    run.manifest["clock"] = {**CLOCK, "links": links}
    run.manifest["privacy"] = {**run.manifest["privacy"], "noise": noise}
    return run


@pytest.mark.parametrize("noise", ["os", "scenario"])
def test_a_run_without_links_is_not_held_against_a_network(noise):
    """Not one number of messages or rounds, but why there is none; computations are compared."""
    real, other = looped(played(network=OTHER, real=True), noise), played()
    found = desim.clock_errors(real, other)
    text = found.written()
    assert "was played over loopback, without links" in text
    assert ("drew its noise from the operating system" in text) == (noise == "os")
    firsts = [row[0] for table in found.tables for row in table.rows]
    assert "computations" in firsts
    assert not {"messages", "rounds", "message", "round", "in all"} & set(firsts)
    linked = desim.clock_errors(played(network=OTHER, real=True), other)
    cells = [row[0] for table in linked.tables for row in table.rows]
    assert {"messages", "computations", "rounds", "in all"} <= set(cells)
    assert "loopback" not in linked.written()


def test_a_report_of_a_run_without_links_says_so_first():
    from desim.interface.reports.readable import readings
    from desim.interface.reports.scenarios import cautions

    real, other = looped(played(network=OTHER, real=True), "os"), played()
    found = readings([real, other])
    told = " ".join(text for text, _ in cautions(found))
    assert "without links" in told
    assert "drew its noise from the operating system" in told
    plain = " ".join(text for text, _ in cautions(readings([played(), played(network=OTHER)])))
    assert "without links" not in plain
