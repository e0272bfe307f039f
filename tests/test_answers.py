"""Expected times, distribution functions and profiles of studies: the tables, and from runs."""

import json
import shutil
import sys

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from naive import coco, dolan_more
from study_scenes import BASE, changed

import desim
from desim.errors import InputError
from desim.experiments.studies import answers
from desim.experiments.studies import sides as cases_module
from desim.experiments.studies.sides import labels, sided
from desim.experiments.studies.study import open_study, study
from desim.experiments.studies.trials import Trials, trials
from desim.interface.cli import main
from desim.runs.reading.series import series_of

TARGETS = {"error": [0.5, 1e-3]}
STUDY = changed(
    grid={
        "algorithm.local.epochs": [1, 3],
        "network.link.latency": ["10 ms", "1 s"],
        "seed": "0..3",
    },
    set={"compute.speed": {"lognormal": ["100 /s", 1.0]}, "stop.time": "2.5 s"},
    compare={"targets": TARGETS},
    base={**BASE, "stop": {"rounds": 40}},
)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """The folder of a study of two methods on two networks, and what `desim.study` returned."""
    folder = tmp_path_factory.mktemp("answers") / "study"
    return folder, study(STUDY, folder, workers=0)


def naive_cells(made, kind):
    """(spent, met) of every run by method, problem and target, from the table of runs."""
    found = {}
    for row in made.runs.to_dict("records"):
        method = f"epochs {row['algorithm.local.epochs']}"
        problem = f"latency {row['network.link.latency']}"
        for value in TARGETS["error"]:
            when = row[f"time to error {value:g}"]
            met = bool(np.isfinite(when))
            spent = row[f"{kind} to error {value:g}"] if met else row[kind]
            found.setdefault((method, problem, f"error {value:g}"), []).append((spent, met))
    return found


@pytest.mark.parametrize("kind", ["time", "rounds", "bytes"])
def test_the_table_is_that_of_a_naive_sum(stored, kind):
    found = stored[1].ert(kind)
    naive = naive_cells(stored[1], kind)
    assert len(found) == len(naive) == 8
    for row in found.itertuples():
        runs = naive[row.method, row.problem, row.target]
        assert row.value == pytest.approx(coco.expected_running_time(runs), rel=1e-12)
        assert (row.runs, row.met) == (4, sum(met for _, met in runs))
        assert row.rate == row.met / row.runs
    assert found["rate"].between(0, 1, inclusive="neither").any()  # restarts matter
    finite = found[np.isfinite(found["value"])]
    best = finite.groupby(["problem", "target"])["value"].transform("min")
    assert np.allclose(finite["ratio"], finite["value"] / best)


def check_cells(module, made):
    """What every run spent, and whether it met the target, as the table of runs says."""
    found = module.Trials(trials(made).rows).cells("bytes")
    for key, runs in naive_cells(made, "bytes").items():
        assert list(zip(found[key].spent, found[key].met, strict=True)) == runs


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.where(met, until, rows[kind]", "np.where(met, rows[kind], rows[kind]"),
        ("met, until = np.isfinite(when)", "met, until = np.isfinite(rows[kind])"),
    ],
)
def test_runs_count_until_the_target_or_their_end(stored, right, wrong):
    check_cells(module := sys.modules["desim.experiments.studies.trials"], stored[1])
    with pytest.raises(AssertionError):
        check_cells(mutant(module, right, wrong), stored[1])


def test_the_profile_is_dolan_and_more_s(stored):
    frame, shares = stored[1].ert(), stored[1].profile()
    table = frame.pivot(index="method", columns=["problem", "target"], values="value")
    taken, names = table.to_numpy().tolist(), list(table.index)
    for row in shares.itertuples():
        naive = dolan_more.profile(taken, names.index(row.method), row.ratio * (1 + 1e-12))
        assert (row.share, row.problems) == (pytest.approx(naive), 4)
        assert row.low <= row.high
    assert (shares.groupby("method")["ratio"].first() == 1.0).all()


def test_the_distribution_function_counts_problems_targets_and_restarts(stored):
    found = stored[1].ecdf()
    naive = naive_cells(stored[1], "time")
    for method, rows in found.groupby("method"):
        own = [runs for (name, *_), runs in naive.items() if name == method]
        solved = np.mean([any(met for _, met in runs) for runs in own])
        assert rows["share"].iloc[-1] == pytest.approx(solved)
        assert rows["share"].is_monotonic_increasing
        assert ((rows["low"] <= rows["share"] + 1e-12) | (rows["share"] == 0.0)).mean() > 0.9
        first = min(spent for runs in own for spent, met in runs if met)
        assert rows["value"].iloc[:2].tolist() == [0.0, pytest.approx(first)]


@pytest.mark.slow
def test_the_folder_and_its_runs_say_the_same(stored):
    folder, made = stored
    again = open_study(folder)
    pd.testing.assert_frame_equal(again.ert(), made.ert())
    written = pd.read_parquet(folder / "ert.parquet")
    pd.testing.assert_frame_equal(written, made.ert(), check_dtype=False)
    runs = [run for case in made.by_case().values() for run in case]
    measured = desim.compare(runs, TARGETS, profile=True)
    anew = desim.compare([folder], TARGETS, profile=True)
    for found in (measured.ert, anew.ert):
        assert found["value"].tolist() == made.ert()["value"].tolist()
    assert measured.profile["share"].tolist() == made.profile()["share"].tolist()
    assert anew.ert["problem"].tolist() == made.ert()["problem"].tolist()
    assert set(measured.ert["problem"]) == {"latency 10 ms", "latency 1 s"}


def test_seeds_too_few_have_no_interval(stored):
    rows = trials(stored[1]).rows
    few = Trials(rows[rows["seed"] < 3])
    for frame in (answers.ert(few), answers.profile(few), answers.ecdf(few)):
        assert frame["low"][frame.get("method") != ""].isna().all()


def test_runs_that_failed_count_with_what_they_had_spent(stored):
    rows = trials(stored[1]).rows.copy()
    one = rows.index[0]
    rows["status"] = rows["status"].mask(rows.index == one, "failed")
    for name in [name for name in rows if str(name).startswith("time to")]:
        rows.loc[one, name] = np.inf
    rows.loc[one, "time"] = 0.25
    found = answers.ert(Trials(rows)).iloc[0]
    own = rows[(rows["method"] == found["method"]) & (rows["problem"] == found["problem"])]
    when = own[f"time to {found['target']}"]
    spent = when.where(np.isfinite(when), own["time"])
    assert (found["runs"], found["met"]) == (4, int(np.isfinite(when).sum()))
    assert found["value"] == pytest.approx(spent.sum() / found["met"])
    rows.loc[one, ["time", f"time to {found['target']}"]] = np.nan  # it died without a word
    lost = answers.ert(Trials(rows)).iloc[0]
    assert np.isnan(lost["value"])
    assert lost["runs"] == 4
    with pytest.raises(InputError, match="no problem that all methods have runs of"):
        answers.profile(Trials(rows[(rows["problem"] == found["problem"])].drop(
            columns=[name for name in rows if str(name).endswith("0.001")])))  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"spent": "tme"}, "spent: found 'tme'; allowed: time, rounds, bytes, joules, epsilon"),
        ({"spent": "epsilon"}, "spent: found epsilon, which is not known: no privacy is stated"),
        ({"methods": ["algoritm"]}, "methods: found 'algoritm'; allowed: algorithm.local.epochs"),
    ],
)
def test_what_is_refused(stored, asked, message):
    with pytest.raises(InputError, match=message):
        stored[1].profile(**asked)


def test_a_failed_run_that_left_nothing_is_not_forgotten(stored, tmp_path):
    again = open_study(shutil.copytree(stored[0], tmp_path / "s"))
    lost = again.runs["run"].iloc[0]
    shutil.rmtree(again.directory / "runs" / lost)
    with pytest.raises(InputError, match=lost):
        trials(again, TARGETS)
    again.runs.loc[again.runs["run"] == lost, "status"] = "failed"
    found = answers.ert(trials(again, TARGETS))
    assert found["runs"].tolist() == [4] * 8
    assert found["value"].isna().tolist() == [True, False] * 2 + [False] * 4


def test_one_method_no_target_and_no_success_are_refused(stored):
    folder, made = stored
    one = {"few": made.by_case()["epochs 1, latency 10 ms"]}
    with pytest.raises(InputError, match="profile: found one method, few; allowed: at least two"):
        desim.compare(one, TARGETS, profile=True)
    runs = [run for case in made.by_case().values() for run in case]
    with pytest.raises(InputError, match="target: found none"):
        desim.compare(runs, profile=True)
    with pytest.raises(InputError, match="target: found 'accuracy'"):
        desim.compare(runs, {"accuracy": 0.9}, profile=True)
    with pytest.raises(InputError, match="profile: found no method with a finite expected time"):
        desim.compare([folder], {"error": 1e-30}, profile=True)


@pytest.mark.parametrize(
    ("cases", "listed", "chosen", "expected"),
    [
        (
            [{"policy": "all", "network.include": n} for n in ("4g", "lan")],
            [], [], [("policy all", "4g"), ("policy all", "lan")],
        ),
        (
            [{"label": "x", "algorithm.name": "a", "network.topology": t} for t in ("r", "s")],
            ["algorithm.name", "network.topology"], [], [("x", "base")] * 2,
        ),
        (
            [{"label": n, "network.include": n, "policy": "all"} for n in ("4g", "lan")],
            ["network.include"], [], [("policy all", "4g"), ("policy all", "lan")],
        ),
        (
            [{"network.link.latency": 1, "problem.agents": n} for n in (5, 9)],
            [], ["network"], [("latency 1", "agents 5"), ("latency 1", "agents 9")],
        ),
    ],
)  # fmt: skip
def test_the_sides_of_a_case(cases, listed, chosen, expected):
    found = sided(cases, frozenset(listed), chosen)
    assert [(one.method, one.problem) for one in found] == expected


def test_cases_are_told_by_as_few_values_as_do():
    cases = [{"a.x": 1, "b.y": n, "c.z": n, "d.w": m} for n in (1, 2) for m in (3, 4)]
    assert labels(cases) == ["y 1, w 3", "y 1, w 4", "y 2, w 3", "y 2, w 4"]
    assert labels([{}, {"a.x": 1}]) == ["base", "x 1"]
    assert cases_module.METHOD[0] == "algorithm"


def test_the_study_file_says_what_a_method_is():
    grid = {"policy": ["all"], "network.link.latency": ["10 ms", "1 s"], "seed": [1]}
    asked = {"profile": {"methods": "network"}, "targets": {"error": 0.5}}
    kept = changed(grid=grid, compare=asked)
    made = study(kept, workers=0)
    assert made.profile()["method"].unique().tolist() == ["latency 10 ms", "latency 1 s"]
    for wrong, allowed in (("polcy", "keys of the method such as"), ("network", "policy")):
        message = rf"compare\.profile\.methods: found '{wrong}'; allowed: {allowed}"
        with pytest.raises(InputError, match=message):
            study(changed(compare={"profile": {"methods": [wrong]}}))


def test_the_command_prints_tables_and_refuses_in_words(stored, capsys, tmp_path):
    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["compare", str(stored[0]), *arguments])
        return end.value.code, *capsys.readouterr()

    code, out, _ = call("--profile", "--spent", "bytes")
    assert code == 0
    assert "expected bytes to error 0.5\n" in out
    assert "profile of expected bytes over 4 problems and targets\n" in out
    assert "ERT: the bytes of all runs, until they met the target or ended" in out
    out_file = tmp_path / "table.md"
    for wrong in (
        ["--spent", "bytes"],
        ["--profile", "--methods", "nothing"],
        ["--profile", "--target", "accuracy=0.5"],
    ):
        code, _, err = call(*wrong, "-o", str(out_file))
        assert code == 2
        assert "allowed: " in err
    assert not out_file.exists()


def test_series_of_runs_are_told_apart_by_their_labels(stored):
    cases = stored[1].by_case()
    some = {"few": cases["epochs 1, latency 10 ms"], "many": cases["epochs 3, latency 10 ms"]}
    found = trials(some, TARGETS)
    assert (found.methods, found.problems) == (["few", "many"], ["base"])
    assert len(series_of(some)) == 2
    assert json.dumps(found.targets) == '["error 0.5", "error 0.001"]'


PRIVATE = {
    **BASE,
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2}},
    "problem": {**BASE["problem"], "clip": 1.0},
    "privacy": {"delta": 1e-5},
    "stop": {"rounds": 4},
}


def private(grid, **compare):
    asked = {"targets": {"loss": 9.0}, **compare}
    return study(changed(base=PRIVATE, grid={**grid, "seed": [1, 2]}, compare=asked), workers=0)


def test_epsilons_are_spent_too_and_say_what_they_are(tmp_path):
    grid = {"algorithm.local.tau": [0.3, 1.0, 0.0]}
    asked = {"targets": {"loss": 2.3}}
    written = changed(base=PRIVATE, grid={**grid, "seed": [1, 2]}, compare=asked)
    made = study(written, tmp_path / "s", workers=0)
    found = made.ert("epsilon").set_index("method")
    runs = made.runs[made.runs["algorithm.local.tau"] == 0.3]
    spent = runs["epsilon to loss 2.3"].mean()
    assert found.loc["tau 0.3", "value"] == pytest.approx(spent)
    assert 0.0 < spent < np.inf
    assert found["value"].tolist() == [found["value"].min(), np.inf, np.inf]
    assert found["met"].tolist() == [2, 0, 2]  # the last without noise
    text = str(desim.compare([tmp_path / "s"], profile=True, spent="epsilon"))
    assert "view eavesdropper, replace-one, delta 1e-05" in text
    assert "restarts add up, as in basic composition, and so do their deltas" in text
    assert "never" in text
    assert "infinite" in text
    other = desim.compare([tmp_path / "s"], profile=True, spent="epsilon", delta=1e-2)
    assert "delta 0.01" in str(other)
    assert other.ert["value"].iloc[0] < 0.8 * spent
    good = desim.compare([tmp_path / "s"], profile=True, stays=True)
    assert set(good.ert["target"]) == {"loss 2.3 for good"}


def test_epsilons_in_different_terms_are_not_compared():
    mixed = private({"privacy.delta": [1e-5, 1e-6], "algorithm.local.tau": [0.3, 1.0]})
    assert len(mixed.ert("time")) == 4
    with pytest.raises(InputError, match=r"epsilons in different terms \(privacy\.delta\)"):
        mixed.ert("epsilon")
    one = private({"algorithm.local.tau": [0.3, 1.0]}, epsilon={"delta": 1e-7})
    assert np.isfinite(one.ert("epsilon")["value"]).all()
