"""What agents have learnt of each other, as it is shown: over time, in words, figures, a report."""

import json
import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.colors import to_hex, to_rgba
from mutant import mutant

import desim
from desim.errors import InputError
from desim.interface import pair_words
from desim.interface.cli import main
from desim.interface.cli.commands import privacy
from desim.interface.plots.learnt import ENDLESS, ITSELF
from desim.interface.reports import each_other
from desim.interface.reports.readable import readings
from desim.runs import pairwise as source

figures = import_module("desim.interface.plots.learnt")  # a function of the package has its name

SCENARIO = {
    "name": "ring",
    "problem": {
        "agents": 5, "loss": "logistic", "clip": 1.0,
        "data": {"source": "synthetic", "kind": "classification", "rows": 20, "dim": 4},
    },
    "algorithm": {"name": "dsgd", "alpha": 0.1, "weights": "metropolis"},
    "network": {"topology": "path", "link": {"latency": {"uniform": ["5 ms", "30 ms"]}}},
    "compute": {"speed": {"uniform": ["1000 /s", "3000 /s"]}},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 0.3}},
    "stop": {"rounds": 6},
}  # fmt: skip
STAR = {
    **SCENARIO, "name": "star", "algorithm": {"name": "fedavg", "local": {
        "solver": "noisy", "epochs": 1, "tau": 0.3,
    }}, "network": "wifi", "privacy": {"delta": 1e-5},
}  # fmt: skip


@pytest.fixture(scope="module")
def desk(tmp_path_factory):
    """A folder with a run on a ring, one without a bound, one with a coordinator."""
    place = tmp_path_factory.mktemp("desk")
    desim.run(SCENARIO, out=place / "ring")
    desim.run(SCENARIO, out=place / "open", overrides={"problem.clip": None})
    desim.run(STAR, out=place / "star")
    return place


@pytest.fixture(scope="module")
def ring(desk):
    return desim.open(desk / "ring")


@pytest.fixture
def call(desk, monkeypatch, capsys):
    """call(argument, ...): exit code and what is printed, among the runs."""
    monkeypatch.chdir(desk)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([*arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out or captured.err

    return call


# Over time.


def check_over_time(module, run, views=((0,), (1, 3))):
    """By each time an observer knows what it knows in a run that ends then."""
    whole = module.pairwise(run, observers=views)
    grown = module.pairwise(run, observers=views, over_time=True)
    assert list(grown) == ["time", *whole]
    pairs = ["observer", "agent"]
    last = grown.groupby(pairs, sort=False).last()[["mu", "epsilon", "local", "distance"]]
    known = whole.set_index(pairs)
    assert (last.loc[known.index] == known[last.columns]).all(axis=None)
    for _, rows in grown.groupby(pairs):
        assert (np.diff(rows["time"]) > 0.0).all()
        assert (np.diff(rows["mu"]) > 0.0).all()
        assert len(rows) == 1 or rows["mu"].iloc[0] > 0.0
    times = np.unique(grown["time"])
    assert len(times) > 10
    for when in times[[1, len(times) // 2, -3]]:
        ended = desim.run(SCENARIO, overrides={"stop.time": float(when) + 1e-9})
        then = module.pairwise(ended, observers=views).set_index(pairs)["mu"]
        now = grown[grown["time"] <= when].groupby(pairs)["mu"].last()
        now = now.reindex(then.index, fill_value=0.0)
        np.testing.assert_allclose(now, then, rtol=1e-7, atol=1e-7)


def test_what_is_known_by_a_time_is_that_of_a_run_that_ends_then(ring):
    check_over_time(source, ring)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("key=lambda one: one[0])", "key=lambda one: one[1].agent)"),
        ("view.Z[: ranks[n - 1]]", "view.Z[: n // 2]"),
        ("(*parts[:-1], view)", "(*parts[1:], view)"),
        ("grows[0] |= ~grows.any(0)", "grows[0] = True"),
    ],
)
def test_a_wrong_course_is_noticed(ring, right, wrong):
    with pytest.raises(AssertionError):
        check_over_time(mutant(source, right, wrong), ring)


def check_few_times(module, run):
    """Of more times than are priced the last one is kept, and the others are spread."""
    module.TIMES = 4
    grown = module.pairwise(run, observers=[2], over_time=True)
    every = np.unique(run.events[run.events["kind"] == "deliver"].query("agent == 2")["time"])
    times = np.unique(grown["time"])
    assert len(times) == 4
    assert times[-1] == every[-1]
    assert (np.searchsorted(every, times) == np.linspace(0, len(every) - 1, 4).round()).all()


def test_few_times_are_spread(ring):
    check_few_times(mutant(source, "TIMES = 50", "TIMES = 51"), ring)
    with pytest.raises(AssertionError):
        check_few_times(mutant(source, "np.linspace(0, n - 1,", "np.linspace(0, n - 2,"), ring)


def test_what_is_infinite_from_the_first_message_on_is_one_row(desk):
    grown = desim.open(desk / "open").pairwise(over_time=True)
    assert np.isinf(grown["epsilon"]).any()
    first = grown.groupby(["observer", "agent"])["epsilon"].agg(["size", "last"])
    assert (first["size"][np.isinf(first["last"])] >= 1).all()
    assert not grown.isna().any(axis=None)


def test_where_all_that_was_released_is_counted_it_grows_as_releases_do(desk):
    run = desim.open(desk / "star")
    grown, spent = run.pairwise(observers=[0], over_time=True), run.epsilon(view="eavesdropper")
    rows, own = grown[grown["agent"] == 3], spent[spent["agent"] == 3]
    np.testing.assert_allclose(rows["epsilon"], own["epsilon"])
    np.testing.assert_allclose(rows["time"], own["time"])
    assert run.pairwise().attrs["reason"] == "a coordinator hears from all agents"


# The command.


def pairs_of(text):
    """Rows of what --json prints, which is JSON and nothing more."""

    def refuse(word):
        raise AssertionError(f"{word} is no JSON")

    return json.loads(text, parse_constant=refuse)["pairs"]


@pytest.mark.parametrize(
    ("view", "observer"),
    [
        (None, None), ("neighbour:3", 3), ("{neighbour: 3}", 3), ("collusion:[3, 1]", (1, 3)),
        ("{agents: [3, 1]}", (1, 3)), ("agents:[1,3]", (1, 3)), ("{ agents : [2] }", 2),
    ],
)  # fmt: skip
def test_a_view_is_that_of_its_agents(call, ring, view, observer):
    code, text = call("privacy", "ring", "--pairs", "--json", *(["--view", view] if view else []))
    wanted = ring.pairwise(observers=None if observer is None else [observer])
    assert code == 0
    assert pairs_of(text) == wanted.to_dict("records")
    assert privacy.observers_of(view) == (None if observer is None else [tuple(np.ravel(observer))])


def test_a_wrong_view_is_noticed():
    twin = mutant(privacy, "return [who.agents]", "return [*who.agents]")
    assert twin.observers_of("{agents: [3, 1]}") != [(1, 3)]


def test_infinity_is_a_word(call):
    code, text = call("privacy", "open", "--pairs", "--json")
    rows = pairs_of(text)
    assert code == 0
    assert {row["epsilon"] for row in rows} == {"infinite"}
    assert all(isinstance(row["agent"], int) for row in rows)
    with pytest.raises(AssertionError):
        pairs_of(text.replace('"infinite"', "Infinity"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("ring", "--pairs", "--view", "{agents: [3, 7]}"), "found (3, 7); allowed: agents 0 to 4"),
        (("ring", "--pairs", "--view", "{agents: 3}"), "--view: found '{agents: 3}'; allowed"),
        (("ring", "--pairs", "--view", "{agents: [a]}"), "allowed: neighbour:3, {agents: [3, 7]}"),
        (("ring", "--pairs", "--view", "direct:1"), "--view: found 'direct:1'"),
        (("ring", "--pairs", "--view", "eavesdropper"), "--view: found 'eavesdropper'"),
        (("ring", "--view", "{agents: [3, 1]}"), "found {agents: [3, 1]} without --pairs"),
        (("ring", "star", "--pairs"), "--pairs: found with several runs"),
        (("ring", "--pairs", "--relation", "x"), "relation: found 'x'"),
        (("ring", "--pairs", "--delta", "3"), "delta: found 3"),
    ],
)  # fmt: skip
def test_refusals_are_words(call, arguments, said):
    code, text = call("privacy", *arguments)
    assert code == 2
    assert said in text
    assert "Traceback" not in text


@pytest.mark.parametrize("observers", ["ab", [], 5, [True], [[]], [None], [5], [(0, -1)]])
def test_observers_are_agents(ring, observers):
    with pytest.raises(InputError, match="observers: found"):
        ring.pairwise(observers=observers)


def check_words(module, table):
    """Each distance has its row: pairs, least, median, most."""
    rows = module.by_links(table)
    assert [row[:2] for row in rows] == [["1", "8"], ["2", "6"], ["3", "4"], ["4", "2"]]
    for away, row in enumerate(rows, 1):
        some = np.sort(table.loc[table["distance"] == away, "epsilon"])
        assert row[2:5] == [f"{some[k]:.4g}" for k in (0, len(some) // 2, -1)]
        assert row[5] == f"{table['local'].max():.4g}"
    most = table.loc[table["epsilon"].idxmax()]
    said = (
        f"observer {most['observer']:.0f} has learnt most, epsilon {most['epsilon']:.4g} of agent"
    )
    assert module.largest(table).startswith(f"{said} {most['agent']:.0f}, of ")


def test_the_command_says_who_knows_most_and_how_far_away(call, ring):
    check_words(pair_words, ring.pairwise())
    code, text = call("privacy", "ring", "--pairs")
    assert code == 0
    assert "links away  pairs  epsilon, least" in text
    assert "assumes  what agents compute follows from no noise that" in text
    assert "reason" not in text
    assert call("privacy", "ring", "--pairs", "--view", "collusion:[0,1,2,3,4]") == (
        0, "ring: nobody is there to be learnt of\n",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("quantile([0, 0.5, 1]", "quantile([0, 0.9, 1]"), (".argmax()", ".argmin()")],
)
def test_wrong_words_are_noticed(ring, right, wrong):
    with pytest.raises(AssertionError):
        check_words(mutant(pair_words, right, wrong), ring.pairwise())


def test_a_star_says_why_nothing_is_known_of_pairs(call):
    code, text = call("privacy", "star", "--pairs")
    assert code == 0
    assert text.startswith("star: nobody has learnt more than epsilon ")
    assert "reason   all that was released is counted: a coordinator hears from all agents" in text


# Figures.


@pytest.fixture
def closed():
    """Figures without a file are pyplot's: they are never drawn, and closed."""
    yield
    pyplot.close("all")


class Told:
    """What stands for a run of n agents on a ring: agent 1 is known, nobody far away is."""

    name, manifest = "told", {"time": 3.0}

    def __init__(self, n):
        self.n = n

    def pairwise(self, observers=None, over_time=False):
        rows = []
        for v in range(self.n) if observers is None else observers:
            for u in set(range(self.n)) - {v}:
                away = min(abs(u - v), self.n - abs(u - v))
                end = np.inf if u == 1 else 3.0 * np.exp(-away) * (1.0 + u) if away < 3 else 0.0
                for k in (1, 2, 3) if over_time else (3,):
                    value = end if k == 3 else min(0.3 * k * end, float(k))
                    rows.append((0.9 * k, u, v, 1.0, value, 9.0, away))
        found = pd.DataFrame(rows, columns="time agent observer mu epsilon local distance".split())
        found.attrs |= {"delta": 1e-5, "relation": "replace-one", "method": "pairwise"}
        return found


def fields(axes, n):
    """The colours of fields (row, column), as they lie one above the other."""
    seen = np.full((n, n), "", object)
    for image in axes.images:
        every = image.to_rgba(image.get_array())
        for place in np.ndindex(n, n):
            if every[place][3] > 0.0:
                seen[place] = to_hex(every[place])
    return seen


def check_field(module):
    """Rows are agents, columns observers; 0, infinite and itself have colours of their own."""
    run, n = Told(6), 6
    axes = module.pairs(run)
    seen, table = fields(axes, n), run.pairwise()
    at = {
        (u, v): e
        for u, v, e in zip(table["agent"], table["observer"], table["epsilon"], strict=True)
    }
    for u, v in np.ndindex(n, n):
        value = at.get((u, v), np.nan)
        marked = {0.0: "white", np.inf: ENDLESS}.get(value, ITSELF if u == v else None)
        if marked is not None:
            assert seen[u, v] == to_hex(marked), (u, v)
        else:
            assert seen[u, v] not in map(to_hex, ("white", ENDLESS, ITSELF))
    dark = [sum(to_rgba(seen[u, v])) for u, v in ((5, 0), (5, 4), (4, 2), (0, 4))]
    assert dark == sorted(dark)  # the larger the epsilon, the darker
    written = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts}
    assert written == {(v, u): f"{e:.3g}" for (u, v), e in at.items() if np.isfinite(e) and e > 0.0}
    names = [text.get_text() for text in axes.get_legend().get_texts()]
    assert names == ["itself", "0", "infinite"]


def test_each_pair_has_its_field(closed):
    check_field(figures)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('field[found["agent"], found["observer"]]', 'field[found["observer"], found["agent"]]'),
        ('("infinite", ENDLESS, np.isinf(field))', '("infinite", "white", np.isinf(field))'),
        ("np.isfinite(field) & (field > 0.0)", "np.isfinite(field)"),
    ],
)
def test_a_wrong_field_is_noticed(closed, right, wrong):
    with pytest.raises(AssertionError):
        check_field(mutant(figures, right, wrong))


@pytest.mark.parametrize(
    ("n", "size", "marks"), [(5, None, 5), (50, None, 11), (12, (2.8, 2.6), 6)]
)
def test_agents_are_numbered_as_there_is_room(closed, n, size, marks):
    axes = figures.pairs(Told(n), size=size)
    shown = [tick for tick in axes.get_xticks() if 0 <= tick < n]
    assert 3 <= len(shown) <= marks
    assert all(float(tick).is_integer() for tick in shown)
    assert len(axes.texts) == (0 if n > 8 else n * (n - 1) - (n - 1))  # agent 1 has no number


def check_distance(module):
    """The line is the median of what is finite; 0 and infinite are marked at the edges."""
    run = Told(7)
    axes, table = module.distance(run), run.pairwise()
    lines = {line.get_label(): np.asarray(line.get_xydata()) for line in axes.lines}
    known = table[np.isfinite(table["epsilon"]) & (table["epsilon"] > 0.0)]
    middle = known.groupby("distance")["epsilon"].median()
    np.testing.assert_allclose(lines["median pair"], [*middle.items()])
    assert lines["all that is released"][:, 1].tolist() == [9.0, 9.0]
    assert lines["0"].tolist() == [[3.0, 0.0]]
    assert lines["infinite"].tolist() == [[1.0, 1.0], [2.0, 1.0], [3.0, 1.0]]
    assert axes.get_xlabel().endswith("replace-one; pairwise")


def test_what_is_known_far_away(closed):
    check_distance(figures)
    for right, wrong in ((".median()", ".max()"), ("away[value == 0.0]", "away[value <= 1.0]")):
        with pytest.raises(AssertionError):
            check_distance(mutant(figures, right, wrong))


def check_learnt(module, run):
    """One line for each distance: the largest pair's course, to the end."""
    axes, table = module.learnt(run), run.pairwise()
    grown, end = run.pairwise(over_time=True), run.manifest["time"]
    steps = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    most = table.groupby("distance")["epsilon"].max()
    assert len(steps) == len(most)
    for line, (away, value) in zip(steps, most.items(), strict=True):
        label = re.match(r"of (\d+) by (\d+), (\d+) link", line.get_label())
        u, v, links = map(int, label.groups())
        assert links == away
        rows = grown[(grown["agent"] == u) & (grown["observer"] == v)]
        assert rows["epsilon"].iloc[-1] == value
        x, y = (np.asarray(one, float) for one in line.get_data())
        assert (y[1:-1] == rows["epsilon"]).all()
        np.testing.assert_allclose(x[1:] / x[-1], [*(rows["time"] / end), 1.0])


def test_what_is_known_by_when(closed, ring):
    check_learnt(figures, ring)
    with pytest.raises(AssertionError):
        check_learnt(
            mutant(figures, '["epsilon", "mu"], ascending=False', '["epsilon", "mu"]'), ring
        )


@pytest.mark.slow
def test_figures_by_command_and_by_run(call, ring, tmp_path):
    for kind in ("pairs", "distance", "learnt"):
        assert call("plot", "ring", "--kind", kind, "--size", "2x2") == (0, f"ring/{kind}.png\n")
        assert Path("ring", f"{kind}.png").stat().st_size > 1000
    axes = ring.plot.distance(tmp_path / "a.svg", ylim=(0.1, None), log=True, title="Far")
    assert axes.get_yscale() == "log"
    assert axes.get_ylim()[0] == 0.1
    code, text = call("plot", "star", "--kind", "distance")
    assert (code, text.split(";")[0]) == (
        2, "distance: as the graph changes or is none, nobody knows how many links lie between "
        "agents",
    )  # fmt: skip
    assert call("plot", "ring", "star", "--kind", "pairs")[0] == 2
    assert not Path("star", "distance.png").exists()
    assert call("plot", "star", "--kind", "pairs", "-o", "star.svg")[0] == 0
    assert "as a coordinator hears from" in " ".join(Path("star.svg").read_text().split())


# The report.


def check_report(module, run):
    """The table and the picture are those of the run's pairs."""
    (one,) = module.mutual(readings([run]))
    table = run.pairwise()
    assert one.said.startswith("Observer ")
    assert one.table.rows == pair_words.by_links(table)
    field = {about: colour for *_, colour, about in one.figure.fields}
    for u, v, value in zip(table["agent"], table["observer"], table["epsilon"], strict=True):
        assert f"epsilon {value:.4g} of agent {u}, observer {v}" in field
    places = {about: at[:2] for *at, _, _, _, about in one.figure.fields}
    assert places["agent 0"] < places["agent 4"]
    assert {field[f"agent {i}"] for i in range(5)} == {""}
    assert any(what == "assumes" for what, _ in one.facts)


def test_a_report_says_what_agents_learn(ring, desk, tmp_path):
    check_report(each_other, ring)
    text = desim.report([ring, desim.open(desk / "star")], tmp_path / "r.html").read_text("utf-8")
    assert text.count('<section id="mutual"') == 1
    part = text[text.index('<section id="mutual"') : text.index('<section id="waiting"')]
    assert part.count("<details") == 1  # the star has none
    assert part.count("<rect") > 25
    assert " style=" not in part
    alone = desim.report(desim.open(desk / "star"), tmp_path / "s.html").read_text("utf-8")
    assert 'id="mutual"' not in alone


def test_a_wrong_part_is_noticed(ring):
    wrong = "of agent {observer}, observer {agent}", "of agent {agent}, observer {observer}"
    with pytest.raises(AssertionError):
        check_report(
            mutant(each_other, wrong[1], "of agent {observer + 1}, observer {agent}"), ring
        )


def test_what_takes_long_is_left_to_a_command(ring, monkeypatch):
    work = ring.manifest["counts"]["deliver"] * 2 * ring.manifest["counts"]["compute"]
    for limit, several in ((work - 1, 0), (work, 1), (2 * work - 1, 1), (2 * work, 2)):
        monkeypatch.setattr(each_other, "WORK", limit)
        parts = each_other.mutual([*readings([ring]), *readings([ring])])
        assert [part.table is not None for part in parts] == [True] * several + [False] * (
            2 - several
        )
    monkeypatch.setattr(each_other, "WALL", -1e9)
    (one,) = each_other.mutual(readings([ring]))
    assert f"desim privacy {ring.directory} --pairs" in one.said


def test_why_pairs_are_not_known_is_said(tmp_path):
    run = desim.run(SCENARIO, overrides={"privacy.budget": 50.0})
    (one,) = each_other.mutual(readings([run]))
    assert one.table is None
    assert one.said.startswith("Nobody has learnt more than epsilon")
    (reason,) = [text for what, text in one.facts if what == "reason"]
    assert reason.startswith("all that was released is counted: codecs, budgets and metrics")
    other = {"name": "sdm-dsgd", "alpha": 0.1, "theta": 0.5, "c": 0.5}
    other = desim.run({**SCENARIO, "algorithm": other})
    assert other.account().worst < np.inf
    assert each_other.mutual(readings([other])) == []  # nobody has said that it is linear


def test_a_picture_of_what_is_unlike():
    field = np.array([[np.nan, 0.0, np.inf], [1e-9, np.nan, 5.0], [0.5, 0.01, np.nan]])
    shown = each_other.picture(field)
    colours = {about: colour for *_, colour, about in shown.fields}
    assert colours["epsilon infinite of agent 0, observer 2"] == colours["infinite"] == ENDLESS
    assert colours["epsilon 0 of agent 0, observer 1"] == colours["0"] == "#FFFFFF"
    words = [text for *_, text in shown.words]
    assert "≤ 0.005" in words
    assert {"inf", "0", "5", "0.5", "0.01", "1e-09"} <= set(words)
    assert all(0.0 <= x <= 124.0 and 0.0 <= y <= 108.0 for x, y, *_ in shown.words)
