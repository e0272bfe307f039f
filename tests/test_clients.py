"""Clients' own test rows: apart from training, measured as by hand, on all engines and stored."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import graph, merged, star
from mutant import mutant
from naive import clients as by_hand
from sections import made, shares, written

import desim
from desim.deployments.hosts import public_digest, refuse_common
from desim.errors import InputError
from desim.interface import plots
from desim.interface.cli import main
from desim.interface.plots import of_clients as figures
from desim.interface.plots.style import worded
from desim.problem import own_tests
from desim.problem.data import partition
from desim.runs.recording import prepare
from desim.scenario.build import build
from desim.scenario.checks.chargeable import unchargeable

METRICS = [*own_tests.SUMMARIES, "client_loss"]
ROWS = {"source": "synthetic", "kind": "classification", "rows": 7, "dim": 4}
OF_STAR = {
    "problem": {"data": {**ROWS, "test": {"own": "30 %"}}, "partition": {"dirichlet": 1.0}},
    "observe": {"metrics": METRICS, "iterates": True},
    "stop": {"rounds": 3},
}
OF_GRAPH = merged(OF_STAR, {"problem": {"loss": "logistic", "partition": "iid"}})
ENGINES = ("agents", "cohort", "compiled")


@pytest.fixture(autouse=True)
def _plain(monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", "never")


def numbered(folder, rows=40):
    """A file whose feature is the number of the row, and whose label is its parity."""
    lines = [f"{n},{n % 4},{'yes' if n % 2 else 'no'}" for n in range(rows)]
    return written(folder, "\n".join(["number,group,sick", *lines, ""]))


# Which rows they are ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "partition", ["iid", "contiguous", {"dirichlet": 0.6}, {"labels": 1}, {"by": "group"}]
)
def test_rows_are_apart_and_every_agent_has_its_own(tmp_path, partition):
    keys = {**numbered(tmp_path), "agents": 4, "partition": partition, "seed": 3}
    whole, own = made(**keys), made(**keys, test={"own": 0.3})
    parts = zip(shares(whole), shares(own), np.diff(own.test_start), strict=True)
    for agent, (all_, mine, number) in enumerate(parts):
        test = own.test_A[own.test_start[agent] : own.test_start[agent + 1], 0]
        train = own.A[mine, 0]
        assert (len(train), number) == by_hand.sides(len(all_), 0.3)
        assert sorted([*train, *test]) == sorted(whole.A[all_, 0])
    assert np.array_equal(own.test_b, np.where(own.test_A[:, 0] % 2, 1.0, -1.0))
    assert np.array_equal(own.b, np.where(own.A[:, 0] % 2, 1.0, -1.0))


def test_which_rows_follows_from_seed_and_agent_alone(tmp_path):
    keys = {**numbered(tmp_path), "partition": "contiguous", "test": "own"}
    few, more = made(**{**keys, "agents": 4}), made(**{**keys, "agents": 4, "seed": 1})
    assert np.array_equal(few.test_A, made(**{**keys, "agents": 4}).test_A)
    assert not np.array_equal(few.test_A, more.test_A)
    assert len({tuple(part % 10) for part in np.split(few.test_A[:, 0], few.test_start[1:-1])}) > 1
    same = made(**{**keys, "agents": 4, "sizes": [10, 10, 12, 8]})
    assert np.array_equal(few.test_A[:4], same.test_A[:4])


def test_features_are_scaled_by_training_rows_alone(tmp_path):
    keys = {**numbered(tmp_path), "agents": 4, "test": {"own": 0.5}, "features": ["number"]}
    raw, scaled = made(**keys), made(**keys, scale="standard")
    train = raw.A[:, 0]
    for part, wanted in ((scaled.A, train), (scaled.test_A, raw.test_A[:, 0])):
        assert part[:, 0] == pytest.approx((wanted - train.mean()) / train.std())


WORDED = "number,city,open,sick\n" + "".join(
    f"{n if n % 5 else ''},{'abcz'[n % 4]}{n if n % 4 == 3 else ''},{n % 3 > 0},{n % 2}\n"
    for n in range(40)
)


@pytest.mark.parametrize(
    "keys",
    [
        {"encode": "one-hot", "missing": "drop"},
        {"encode": "ordinal", "missing": "mean"},
        {"features": ["number", "open"], "missing": "median"},
    ],
)
def test_words_and_fillings_are_those_of_training_rows_alone(tmp_path, keys):
    """As where a column of the file marks the same rows."""
    keys = {**written(tmp_path, WORDED), "positive": 1, "partition": "contiguous", **keys}
    own = made(**keys, test={"own": 0.4})
    lines = WORDED.splitlines()
    rows = [n for n in range(1, 41) if keys["missing"] != "drop" or not lines[n].startswith(",")]
    _, tested = partition.held_out([np.array(rows)], 0.4, 0)
    marks = [",marked", *(f",{int(n in tested[0])}" for n in range(1, 41))]
    text = "".join(f"{line}{mark}\n" for line, mark in zip(lines, marks, strict=True))
    whole = {**keys, **written(tmp_path, text, "marked.csv")}
    pooled = made(**whole, test={"column": "marked", "value": 1})
    assert own.names == pooled.names
    for name in ("A", "b", "test_A", "test_b"):
        assert np.array_equal(getattr(own, name), getattr(pooled, name)), name
    if keys.get("encode"):
        with pytest.raises(InputError, match="which no training row holds"):
            made(**keys, test={"own": 0.4}, unseen="error")


def test_generated_rows_to_test_on_come_on_top():
    shards = made(**ROWS, agents=5, test={"own": 0.4})
    assert np.diff(shards.start).tolist() == [7] * 5
    assert np.diff(shards.test_start).tolist() == [5] * 5
    noisy = made(**{**ROWS, "kind": "regression"}, agents=5, test="own", loss="squared")
    assert np.diff(noisy.start).tolist() == [7] * 5
    assert np.diff(noisy.test_start).tolist() == [2] * 5


def test_sources_with_test_rows_leave_them_out(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 9, (30, 2, 2)), np.arange(30) % 2
    np.savez(tmp_path / "m.npz", x_train=x, y_train=y, x_test=x + 100, y_test=y)
    keys = {"source": "mnist-npz", "file": str(tmp_path / "m.npz"), "scale": "none"}
    images = made(**keys, agents=3, test="own", positive=1)
    assert images.test_A.max() < 100.0
    assert np.diff(images.start).tolist() == [8] * 3
    A, b = rng.normal(size=(3, 10, 2)), np.where(rng.normal(size=(3, 10)) > 0.0, 1.0, -1.0)
    np.savez(tmp_path / "a.npz", A=A, b=b, test_A=A[0] + 100.0, test_b=b[0])
    dealt = made(source="npz", file=str(tmp_path / "a.npz"), test={"own": "20 %"})
    assert dealt.A.shape == (24, 2)
    for agent in range(3):
        parts = (dealt.A, dealt.start), (dealt.test_A, dealt.test_start)
        found = [part[start[agent] : start[agent + 1], 0] for part, start in parts]
        assert sorted(np.concatenate(found)) == sorted(A[agent, :, 0])


def check_held_out(module):
    parts = [np.arange(10, 15), np.arange(3), np.arange(20, 22)]
    for share in (0.4, 0.5):
        trained, tested = module.held_out(parts, share, 7)
        for rows, train, test in zip(parts, trained, tested, strict=True):
            assert (len(train), len(test)) == by_hand.sides(len(rows), share)
            assert sorted([*train, *test]) == rows.tolist()


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("tested.append(rows[drawn])", "tested.append(rows[~drawn])"),
        ("trained.append(rows[~drawn])", "trained.append(rows)"),
        ("max(1, round(share * rows))", "round(share * rows) - 1"),
        ("max(1, round(share * rows))", "max(1, int(share * rows + 0.5))"),
    ],
)
def test_wrong_rows_are_noticed(right, wrong):
    check_held_out(partition)
    with pytest.raises(AssertionError):
        check_held_out(mutant(partition, right, wrong))


# Metrics ------------------------------------------------------------------------------------------


def check_by_hand(module, problem, models):
    """Whether the module's metrics of models, (dim,) or (agents, dim), are those by hand."""
    found = module.Clients(problem, models)
    start, each = problem.test_start, np.broadcast_to(models, (problem.agents, problem.dim))
    parts = [
        (problem.test_A[i:j], problem.test_b[i:j], x)
        for i, j, x in zip(start[:-1], start[1:], each, strict=True)
    ]
    accuracies = [by_hand.accuracy(*part) for part in parts]
    assert found.each("client_accuracy") == pytest.approx(accuracies, abs=1e-12)
    losses = [by_hand.logistic(*part) for part in parts]
    assert found.each("client_loss") == pytest.approx(losses, rel=1e-12)
    assert found.value("client_loss") == pytest.approx(np.mean(losses), rel=1e-12)
    for name, value in by_hand.summaries(accuracies, [len(b) for _, b, _ in parts]).items():
        assert found.value(name) == pytest.approx(value, abs=1e-12), name


def some_problem(**keys):
    """Logistic rows of 23 agents with unequal shares, and a model for each of them."""
    problem = {"agents": 23, "partition": {"dirichlet": 2.0}, **keys}
    problem["data"] = {**ROWS, "rows": 20, "test": {"own": "60 %"}}
    simulation = build(desim.load(star(**merged(OF_STAR, {"problem": problem}))))
    return simulation.problem, np.random.default_rng(1).normal(size=(23, simulation.problem.dim))


def test_metrics_are_those_by_hand():
    problem, models = some_problem()
    check_by_hand(own_tests, problem, models)
    check_by_hand(own_tests, problem, models[0])
    clipped, models = some_problem(clip=0.1)
    check_by_hand(own_tests, clipped, models)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("of(A[part], b[part], self.x[i])", "of(A[part], b[part], self.x[0])"),
        ("np.sum(values * rows) / np.sum(rows)", "np.mean(values)"),
        ("np.sort(values)[: _tenth(len(values))]", "np.sort(values)[-2:]"),
        ("-(-number // 10)", "number // 10"),
        ("np.std(values)", "np.var(values)"),
        ("np.full(len(b), np.inf)", "np.full(len(b), 0.1)"),
    ],
)
def test_wrong_metrics_are_noticed(right, wrong):
    problem, models = some_problem()
    with pytest.raises(AssertionError):
        check_by_hand(mutant(own_tests, right, wrong), problem, models)


def played(of, engine, folder=None, **changes):
    scenario = desim.load({**of, "name": "clients", "engine": engine, **changes})
    return desim.run(scenario, out=folder)


@pytest.mark.parametrize("of", [star(**OF_STAR), graph(**OF_GRAPH)], ids=["star", "graph"])
def test_engines_agree_and_rows_are_of_the_models_of_that_time(of, tmp_path):
    first, *others = (played(of, engine) for engine in ENGINES)
    assert first.manifest["engine"] == "agents"
    assert others[-1].manifest["engine"] == "compiled"
    assert all(first.metrics.equals(one.metrics) for one in others)
    problem, table = build(first.scenario).problem, first.clients()
    models = first.iterates if first.model is None else first.model
    last = models[-1]
    each = np.broadcast_to(last, (problem.agents, problem.dim))
    rows = table[table["round"] == 3]
    starts = problem.test_start
    assert rows["agent"].tolist() == list(range(problem.agents))
    assert rows["rows"].tolist() == np.diff(starts).tolist()
    for agent, part in enumerate(map(slice, starts[:-1], starts[1:])):
        own = problem.test_A[part], problem.test_b[part], each[agent]
        assert rows["accuracy"].iloc[agent] == pytest.approx(by_hand.accuracy(*own))
        assert rows["loss"].iloc[agent] == pytest.approx(by_hand.logistic(*own))
    stored = played(of, "cohort", tmp_path / "run")
    again = desim.open(tmp_path / "run")
    assert again.clients().equals(table)
    assert again.fairness().equals(first.fairness())
    assert desim.replay(again).same
    assert stored.manifest["test_rows"] == np.diff(starts).tolist()


def test_fairness_over_time_is_what_the_metrics_say():
    run = played(star(**OF_STAR), "cohort")
    table = run.fairness()
    names = {
        "mean": "client_accuracy", "weighted": "client_accuracy_weighted",
        "min": "client_accuracy_min", "worst_decile": "client_accuracy_worst_decile",
        "spread": "client_accuracy_spread",
    }  # fmt: skip
    for column, metric in names.items():
        curve = run.curve(metric)
        assert np.array_equal(curve["value"], table[column])
        assert np.array_equal(curve["time"], table["time"])
    accuracies = run.clients().groupby("round")["accuracy"]
    assert np.array_equal(accuracies.max(), table["max"])
    assert np.array_equal(accuracies.max(), table["best_decile"])  # of six the best one
    pooled = played(star(**merged(OF_STAR, {"observe": {"metrics": ["accuracy"]}})), "cohort")
    assert pooled.curve("accuracy")["value"].to_numpy() == pytest.approx(table["weighted"])


def test_observed_at_instants_they_are_told_each_time():
    of = merged(star(**OF_STAR), {"observe": {"every": "50 ms", "metrics": ["client_accuracy"]}})
    one, other = played(of, "agents"), played(of, "compiled")
    assert one.metrics.equals(other.metrics)
    table = one.clients()
    counts = table.groupby("time").size()
    assert set(counts) == {6}
    assert len(counts) == len(one.curve("client_accuracy"))
    assert table["loss"].isna().all()


def test_training_knows_nothing_of_them():
    """Other labels of test rows change the metrics, and no model, optimum or loss."""
    of = star(**merged(OF_STAR, {"observe": {"metrics": [*METRICS, "error", "loss"]}}))
    one = desim.load(of)
    simulation = build(one)
    problem = simulation.problem
    flipped = replace(problem, test_b=-problem.test_b)
    other = replace(simulation, settings=replace(simulation.settings, problem=flipped))
    assert problem.digest() != flipped.digest()
    told = []
    for each in (simulation, other):
        rows = []

        class Sink:
            def append(self, name, columns, rows=rows):
                if name == "metrics":
                    rows += zip(columns["metric"], columns["agent"], columns["value"], strict=True)

        told.append((each.play(Sink()).model, rows))
    (model, rows), (same, others) = told
    assert np.array_equal(model, same)
    accuracies = [
        [value for name, agent, value in some if name == "client_accuracy" and agent >= 0]
        for some in (rows, others)
    ]
    assert np.add(*accuracies) == pytest.approx(1.0)
    public = [[row for row in some if row[0] in ("error", "loss")] for some in (rows, others)]
    assert public[0] == public[1]


# Figures, and a report ----------------------------------------------------------------------------


def rows_of(run):
    """The last rows of each client."""
    table = run.clients()
    return table[table["round"] == table["round"].max()].set_index("agent")["accuracy"]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "figure.svg"


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """Two stored runs of six clients: all are waited for, or few."""
    folder = tmp_path_factory.mktemp("pair")
    of = star(**OF_STAR)
    one = played(of, "cohort", folder / "all")
    other = played(of, "cohort", folder / "few", policy={"deadline": "120 ms"})
    return one, other, folder


def test_a_band_is_drawn_from_the_worst_to_the_best_tenth(pair, out):
    one, other, _ = pair
    axes = plots.clients([one, other], out)
    table = one.fairness()
    for line, column in zip(axes.lines[:3], ("mean", "worst_decile", "best_decile"), strict=True):
        assert np.array_equal(line.get_ydata(), table[column])
    assert [len(axes.lines), len(axes.collections)] == [6, 2]
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "clients: policy all", "clients: policy {deadline: 0.12, late: discard}",
    ]  # fmt: skip


def test_the_band_of_seeds_is_of_medians(out):
    of = star(**OF_STAR)
    same = {"churn": "none", "compute": {"speed": 500}, "network": {"link": {"latency": "9 ms"}}}
    runs = [played({**of, **same, "seed": seed}, "cohort") for seed in (1, 2, 3)]
    axes = plots.clients(runs, out)
    each = [run.fairness() for run in runs]
    last = [line.get_ydata()[-1] for line in axes.lines]
    for found, column in zip(last, ("mean", "worst_decile", "best_decile"), strict=True):
        assert found == pytest.approx(np.median([one[column].iloc[-1] for one in each]))
    assert axes.get_legend().get_texts()[0].get_text().endswith("median of 3 seeds")


def test_bars_are_the_clients_in_order_the_worst_first(pair, out):
    _, other, _ = pair
    accuracies = rows_of(other)
    axes = other.plot.served(out=out)
    assert [bar.get_width() for bar in axes.patches] == sorted(accuracies)
    names = [int(label.get_text()) for label in axes.get_yticklabels()]
    assert accuracies[names].tolist() == sorted(accuracies)
    colours = [bar.get_facecolor() for bar in axes.patches]
    assert colours[0] != colours[1]
    assert len(set(colours)) == 2


def test_many_clients_are_a_staircase(pair, out, monkeypatch):
    monkeypatch.setattr(figures, "NAMED", 5)
    axes = pair[0].plot.served(out=out)
    assert not axes.patches
    assert axes.get_xlabel() == "clients, the worst first"


def test_names_that_have_no_room_make_a_staircase(pair, out):
    for high, xlabel in ((1.5, "clients, the worst first"), (2.0, "own test accuracy")):
        assert pair[0].plot.served(out=out, size=(3.0, high)).get_xlabel() == xlabel


def test_points_are_where_logs_say(pair, out):
    _, other, _ = pair
    events = other.events
    done = events[(events["kind"] == "compute") & (events["agent"] >= 0)]
    came = events[events["kind"] == "deliver"]
    ends = came[["agent", "peer"]].max(axis=1)
    by_log = {
        "rows": other.manifest["rows"],
        "computing": done.groupby("agent")["seconds"].mean().reindex(range(6)),
        "messages": came["seconds"].groupby(ends).mean(),
        "contributions": other.participation()["contributions"],
    }
    for against in figures.AGAINST[1:]:
        value, unit = figures._abscissa(other, against, np.arange(6))
        found = value / (1e3 if unit == "ms" else 1.0)
        assert found == pytest.approx(np.array(by_log[against], float), nan_ok=True), against
    axes = other.plot.served("computing", out)
    points = np.concatenate([np.asarray(one.get_offsets()) for one in axes.collections[:2]])
    wanted = zip(by_log["computing"], rows_of(other), strict=True)
    known = sorted(one for one in wanted if np.isfinite(one[0]))
    assert sorted(map(tuple, points / [1e3, 1.0])) == [pytest.approx(one) for one in known]
    assert len(known) == 5  # an agent is always too late
    assert axes.get_xlabel().endswith("(ms)\n1 client without any left out")


def test_a_graph_has_no_collections_to_draw_against(out):
    run = played(graph(**merged(OF_GRAPH, {"stop": {"rounds": 1}})), "cohort")
    with pytest.raises(InputError, match="nobody collects replies; allowed: agent, rows, comp"):
        run.plot.served("contributions", out)
    assert run.plot.served("messages", out).collections


def called(*arguments):
    """What the command line exits with."""
    with pytest.raises(SystemExit) as end:
        main(list(arguments))
    return end.value.code


def test_the_command_draws_them_and_reports_have_them(pair, capsys):
    _, _, folder = pair
    runs = [str(folder / name) for name in ("all", "few")]
    assert called("plot", *runs, "--kind", "clients", "--size", "2x2") == 0
    assert (folder / "all" / "clients.png").stat().st_size > 5000
    assert called("plot", *runs, "--kind", "served") == 2
    assert "found 2 runs; allowed: one run" in capsys.readouterr().err
    assert called("plot", runs[0], "--against", "rows") == 2
    assert "--against: found with --kind curve; allowed: with served" in capsys.readouterr().err
    page = desim.report([desim.open(one) for one in runs], folder / "page.html").read_text("utf-8")
    worst = desim.open(runs[1]).fairness()["worst_decile"].iloc[-1]
    part = page[page.index('id="clients"') : page.index('id="targets"')]
    assert worded("client_accuracy", worst) in part
    assert part.count("<img") == 3
    assert "img-src data:" in page


def test_a_run_without_clients_has_neither(tmp_path):
    run = played(star(observe={"metrics": ["error"]}, stop={"rounds": 1}), "cohort")
    for draw in (run.plot.clients, run.plot.served):
        with pytest.raises(InputError, match="has not measured them"):
            draw()
    page = desim.report([run], tmp_path / "page.html").read_text("utf-8")
    assert 'id="clients"' not in page


# What they disclose -------------------------------------------------------------------------------


def test_a_run_that_they_end_has_no_epsilon():
    noise = {"noise": {"kind": "gaussian", "sigma": 0.1}}
    own = merged(
        graph(**OF_GRAPH), {"privacy": noise, "stop": {"metric": {"client_accuracy": 0.0}}}
    )
    run = played(own, "cohort")
    assert "private rows" in " ".join(run.manifest["warnings"])
    assert run.epsilon()["epsilon"].max() == np.inf
    pooled = merged(
        own, {"observe": {"metrics": ["accuracy"]}, "stop": {"metric": {"accuracy": 0.0}}}
    )
    assert "private rows" in " ".join(played(pooled, "cohort").manifest["warnings"])


def test_hosts_that_hold_their_own_rows_need_not_hold_these():
    """Nor can their coordinator measure them; how many there are is common."""
    prepared = prepare(desim.load(star(**OF_STAR)))
    problem = prepared.simulation.problem
    assert public_digest(problem) == public_digest(replace(problem, test_b=-problem.test_b))
    fewer = replace(problem, test_start=problem.test_start[[0, 1, 3, 4, 5, 6, 6]])
    assert public_digest(problem) != public_digest(fewer)
    with pytest.raises(InputError, match="found client_accuracy, of rows that the coordinator"):
        refuse_common(prepared)


def test_no_theorem_prices_a_choice_by_them():
    private = merged(star(**OF_STAR), {"problem": {"clip": 1.0}})
    scenario = desim.load(merged(private, {"observe": {"metrics": ["accuracy"]}}))
    for metric in ("accuracy", "client_accuracy"):
        assert "which is computed from private rows" in " ".join(unchargeable(scenario, metric))
    pooled = desim.load(star(problem={"data": {**ROWS, "test": 0.3}}))
    assert "private rows" not in " ".join(unchargeable(pooled, "accuracy"))


# Refusals -----------------------------------------------------------------------------------------


def test_an_agent_with_one_row_is_refused(tmp_path):
    keys = {**numbered(tmp_path, 9), "agents": 3, "partition": "contiguous", "sizes": [1, 5, 3]}
    with pytest.raises(InputError, match="found own, and agent 0 with 1 row; allowed: at least 2"):
        made(**keys, test="own")
    keys = {**keys, "sizes": [7, 1, 1]}
    with pytest.raises(InputError, match="agent 1 and 1 others with 1 row"):
        made(**keys, test="own")


CSV = {"source": "csv", "file": __file__, "label": "y"}
ARRAYS = {"source": "arrays", "file": __file__}
TORCH = {"source": "torch", "of": "torchvision.datasets.MNIST", "test_arguments": {"train": False}}
SAVED = {
    "source": "huggingface",
    "folder": str(Path(__file__).parent),
    "inputs": "a",
    "labels": "b",
    "test_split": "t",
}


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (
            {**ROWS, "test": {"own": 0}},
            "test.own: found 0; allowed: a fraction above 0 and below 1",
        ),
        (
            {**ROWS, "test": {"own": 1}},
            "test.own: found 1; allowed: a fraction above 0 and below 1",
        ),
        ({**ROWS, "test": {"own": 1.5}}, "test.own: found 1.5"),
        ({**CSV, "test": {"Own": 0.2}}, "{own: share}, or a share; did you mean 'own'?"),
        ({**CSV, "test": {"owns": 0.2}}, "test: found {'owns': 0.2}; allowed: {rows: n}"),
        ({**CSV, "test": {"own": 0.2, "rows": 3}}, "test: found own together with rows"),
        (
            {**ARRAYS, "test": {"own": 0.2, "inputs": "a", "labels": "b"}},
            "test: found own together with inputs, labels, which are nobody's own",
        ),
        ({**TORCH, "test": "own"}, "found test: own together with test_arguments"),
        ({**SAVED, "test": "own"}, "found test: own together with test_split"),
        ({"source": "npz", "file": __file__, "test": 0.2}, "test: found 0.2; allowed: own"),
    ],
)
def test_a_share_that_is_none_or_stands_beside_others_is_refused(data, problem):
    with pytest.raises(InputError, match=re.escape(problem)):
        desim.load(star(problem={"data": data}))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"problem": {"data": {**ROWS, "test": "20 %"}}},
            "found client_accuracy without test rows of clients; allowed with problem.data.test",
        ),
        (
            {"problem": {"data": {**ROWS, "kind": "regression", "test": "own"}, "loss": "squared"}},
            "found client_accuracy with loss squared, which classifies nothing",
        ),
        ({"observe": {"sample": 5}}, "observe.sample: found 5 with client_accuracy"),
        ({"stop": {"metric": {"client_los": 1}}}, "client_los"),
    ],
)
def test_metrics_that_have_no_meaning_are_refused(changes, problem):
    of = merged(star(**OF_STAR), {"observe": {"metrics": ["client_accuracy"]}})
    with pytest.raises(InputError, match=re.escape(problem)):
        desim.load(merged(of, changes))


def test_a_run_without_them_says_what_it_would_need():
    run = played(star(observe={"metrics": ["error"]}, stop={"rounds": 1}), "cohort")
    with pytest.raises(InputError, match="has not measured them; allowed: a scenario with problem"):
        run.clients()
    loss = merged(OF_STAR, {"observe": {"metrics": ["client_loss"]}, "stop": {"rounds": 1}})
    with pytest.raises(InputError, match="has not measured clients' accuracies; allowed: a run"):
        played(star(**loss), "cohort").fairness()


@pytest.mark.parametrize("rows", [[], [3, 3], [3] * 7])
def test_a_manifest_of_other_agents_is_refused(pair, rows):
    run = desim.open(pair[2] / "all")
    run.manifest["test_rows"] = rows
    with pytest.raises(InputError, match=f"are of {len(rows)} agents, and metrics are of others"):
        run.fairness()
