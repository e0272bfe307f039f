"""What a study plays, keeps and counts, in this process: bits, failures, restarts, bad disks."""

import errno
import json
import os
import shutil
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from study_scenes import BASE, STUDY, changed, with_failures
from test_resume import unlike

import desim
from desim.errors import Diverged, InputError, RunError
from desim.experiments.studies import study as study_module
from desim.experiments.studies import trials, work
from desim.experiments.studies.folder import check_free
from desim.experiments.studies.study import study
from desim.experiments.studies.trials import Asked, measured
from desim.experiments.studies.work import Result
from desim.runs import directory, processes
from desim.runs import recording as playing
from desim.runs import replay as resuming
from desim.runs.directory import UNLISTED
from desim.runs.reading import series

NOISY = {
    "algorithm.local": {"solver": "noisy", "epochs": 2, "tau": 0.1},
    "problem.clip": 1.0,
    "privacy": {"view": "eavesdropper"},
}


def test_repeated_runs_are_those_of_one_after_another():
    runs = list(desim.repeat(BASE, range(5, 8), NOISY))
    for seed, run in zip(range(5, 8), runs, strict=True):
        assert unlike(run, desim.run(BASE, overrides={**NOISY, "seed": seed})) == []
    assert unlike(runs[0], desim.run(BASE, overrides={**NOISY, "seed": 6}))


@pytest.mark.parametrize("seed", [-1, 0.5, True])
def test_a_seed_that_is_none_is_refused(seed):
    with pytest.raises(InputError, match="seeds: found"):
        next(desim.repeat(BASE, [seed]))


@pytest.mark.slow
def test_a_study_stores_the_runs_of_one_after_another(tmp_path):
    made = study(STUDY, tmp_path, workers=0)
    assert made.complete
    for case in made.plan.cases:
        for seed in case.seeds:
            alone = desim.run(BASE, overrides={**case.values, "seed": seed})
            assert unlike(made.run(made.plan.keys[case.number, seed]), alone) == []
    for name in ("runs", "summary", "comparisons"):
        stored = pd.read_parquet(tmp_path / f"{name}.parquet")
        pd.testing.assert_frame_equal(stored, made.tables[name], check_dtype=False)
    about = json.loads((tmp_path / "study.json").read_text())
    assert len(about["runs"]) == 8
    assert not (tmp_path / "study.token").exists()


def test_in_memory_the_tables_are_the_same(tmp_path):
    stored, memory = study(STUDY, tmp_path, workers=0), study(STUDY, workers=0)
    pd.testing.assert_frame_equal(
        memory.runs.drop(columns="wall"), stored.runs.drop(columns="wall")
    )
    pd.testing.assert_frame_equal(memory.summary, stored.summary)
    with pytest.raises(InputError, match="keeps no runs"):
        memory.run("0")


def test_measures_are_what_the_run_says():
    run = desim.run(BASE, overrides=NOISY)
    targets = (("error", 0.5), ("loss", 2.5), ("error", 1e-9))
    found = measured(run, Asked(targets))
    spent = run.epsilon()
    for metric, value in targets:
        when = run.time_to(metric, value)
        assert found[f"time to {metric} {value:g}"] == when
        if when == np.inf:
            assert found[f"bytes to {metric} {value:g}"] == np.inf
            continue
        arrived = run.delivered()
        assert (
            found[f"bytes to {metric} {value:g}"] == arrived["bytes"][arrived["time"] <= when].sum()
        )
        epsilon = spent.loc[spent["time"] <= when, "epsilon"].max()
        assert found[f"epsilon to {metric} {value:g}"] == epsilon
        rounds = run.curve(metric).set_index("time")["round"]
        assert found[f"rounds to {metric} {value:g}"] == rounds[when].min()
    assert found["final loss"] == run.curve("loss")["value"].iloc[-1]
    assert found["epsilon"] == spent["epsilon"].max()
    assert found["bytes"] == run.delivered()["bytes"].sum()
    assert "epsilon" not in measured(run, Asked(targets, None))


def test_bytes_that_arrive_later_are_not_counted(monkeypatch):
    run, asked = desim.run(BASE), Asked((("error", 0.5),))
    right = measured(run, asked)
    wrong = mutant(series, 'side="right"', 'side="left"')
    monkeypatch.setattr(trials, "delivered", wrong.delivered)
    assert measured(run, asked) != right


def test_failed_runs_are_counted_and_never_averaged(tmp_path):
    made = study(with_failures(), tmp_path, workers=0)
    good, bad = (made.runs[made.runs["case"] == n] for n in (0, 1))
    assert (good["status"] == "done").all()
    assert (bad["status"] == "failed").all()
    assert bad["reason"].str.startswith("diverged: the model of agent").all()
    assert bad["final loss"].isna().all()
    summary = made.summary.query("case == 1")
    assert (summary[["runs", "failed", "done"]] == [3, 3, 0]).all(axis=None)
    assert summary["value"].isna().all()
    assert made.comparisons.empty  # no pair is left
    assert made.complete
    assert made.run(bad["run"].iloc[0]).status == "failed"


LATE = """
from desim.methods.fed_plt import FedPLT
from desim.errors import RunError

class Late(FedPLT):
    \"\"\"A method that fails in its third round.\"\"\"
    name = "late"

    def coordinator(self, hub):
        program, answer = super().coordinator(hub), None
        while True:
            if hub.round == 3 and self.settings.seed:
                late = RunError("late")
                late.time = hub.now
                raise late
            try:
                request = program.send(answer)
            except StopIteration:
                return
            answer = yield request
"""


def test_a_target_that_was_met_before_a_failure_counts_and_no_other(tmp_path):
    (tmp_path / "late.py").write_text(LATE)
    late = {"algorithm.name": "late", "plugins": [str(tmp_path / "late.py")], "engine": "cohort"}
    grid = {"seed": [0, 1, 2], "policy": ["all", {"deadline": "1 ms"}]}
    target = {"error": [0.9, 1e-9]}
    made = study(changed(set=late, grid=grid, compare={"targets": target}), workers=0)
    runs = made.runs[made.runs["case"] == 0].set_index("seed")
    assert runs["status"].tolist() == ["done", "failed", "failed"]
    alone = desim.run(BASE, overrides={"seed": 1})
    assert runs["time to error 0.9"][1] == alone.time_to("error", 0.9) < np.inf
    assert (runs["time to error 1e-09"] == np.inf).all()
    assert runs["final error"].isna().tolist() == [False, True, True]
    rows = made.summary[made.summary["case"] == 0].set_index("measure")
    counts = ["failed", "done", "never"]
    assert rows.loc["time to error 0.9", counts].tolist() == [2, 1, 0]
    assert rows.loc["time to error 1e-09", counts].tolist() == [2, 1, 3]
    assert rows.loc["time", counts].tolist() == [2, 1, 0]
    assert rows.loc["time", "value"] == runs["time"][0]
    twin = mutant(work, "for name in (*names, *SPENT)", "for name in SPENT")
    [job] = [one for one in made.plan.jobs if one.seed == 1 and "deadline" not in one.text]
    assert "time to error 0.9" not in twin.run_job(job).numbers


@pytest.mark.slow
def test_what_is_stored_starts_no_process(tmp_path, monkeypatch):
    first = study(STUDY, tmp_path, workers=0)
    monkeypatch.setattr(processes.Worker, "begun", lambda _: pytest.fail("a process was started"))
    again = study(STUDY, tmp_path, workers=2)
    pd.testing.assert_frame_equal(first.runs, again.runs)
    assert all(one.stored for one in again.results.values())


def check_failures(module, found):
    """Three of four runs of a case die before they meet anything, the other one meets .5."""
    results = dict(found.results)
    case = found.plan.pairs[0][0]
    for seed in (1, 2, 3):
        key = found.plan.keys[case.number, seed]
        results[key] = Result(key, "failed", "died")
    asked = found.plan.asked
    runs = module.runs_table(found.plan.cases, found.plan.keys, results, asked)
    rows = module.summary_table(found.plan.cases, runs, asked, 0.95)
    rows = rows[rows["case"] == case.number].set_index("measure")
    counts = ["value", "done", "failed", "never", "settled"]
    assert rows.loc["time to error 0.5", counts].tolist() == [np.inf, 1, 3, 3, False]
    assert np.isfinite(rows.loc["final error", "value"])
    pairs = module.comparisons_table(found.plan.pairs, runs, asked, 0.95).set_index("measure")
    told = pairs.loc["time to error 0.5", ["pairs", "dropped"]].tolist()
    assert told == [4, 0]
    assert pairs.loc["time to error 0.5", "losses"] >= 3
    assert pairs.loc["final error", ["pairs", "dropped"]].tolist() == [1, 3]
    assert pairs.loc["time", ["pairs", "dropped"]].tolist() == [1, 3]


def test_a_run_that_died_counts_as_never_and_has_lost_its_pair():
    check_failures(study_module, study(STUDY, workers=0))


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("table.loc[lost, name] = np.inf", "pass"),  # what is left are the survivors
        ('int((known["status"] == "done").sum())', "len(values)"),
        ("return known if awaited(name) else known &", "return known &"),
        ("known[kind].fillna(0.0)", "known[kind].fillna(np.inf)"),
        ('both[_counts(both, name, " of case") &', "both["),
    ],
)
def test_medians_of_survivors_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_failures(mutant(study_module, right, wrong), study(STUDY, workers=0))


def test_finished_runs_are_not_run_again(tmp_path, monkeypatch):
    first = study(STUDY, tmp_path, workers=0)
    keys = sorted(first.plan.keys.values())
    shutil.rmtree(tmp_path / "runs" / keys[0])
    manifest = directory.read_manifest(tmp_path / "runs" / keys[1])
    directory.write_manifest(tmp_path / "runs" / keys[1], {**manifest, "status": "running"})
    (tmp_path / "runs" / keys[2] / "metrics.parquet").write_bytes(b"damaged")
    seen, resumed = [], []
    monkeypatch.setattr(
        work, "played", lambda *a, **k: seen.append(a[1].name) or playing.played(*a, **k)
    )
    monkeypatch.setattr(work, "resume", lambda a: resumed.append(a.name) or resuming.resume(a))
    second = study(STUDY, tmp_path, workers=0)
    assert sorted(seen) == [keys[0], keys[2]]
    assert resumed == [keys[1]]
    pd.testing.assert_frame_equal(first.runs.drop(columns="wall"), second.runs.drop(columns="wall"))
    assert sum(one.stored for one in second.results.values()) == 5


def test_a_stored_run_that_cannot_be_checked_says_so(tmp_path):
    first = study(STUDY, tmp_path, workers=0)
    place = tmp_path / "runs" / first.runs["run"].iloc[0]
    manifest = directory.read_manifest(place)
    del manifest["files"]
    directory.write_manifest(place, manifest)
    told = study(STUDY, tmp_path, workers=0).runs["reason"].str.endswith(UNLISTED)
    assert told.tolist() == [True] + [False] * 7
    without = changed(compare={**STUDY["compare"], "epsilon": False})
    assert not study(without, tmp_path, workers=0).runs["reason"].str.endswith(UNLISTED).any()


def test_failed_runs_are_tried_again(tmp_path, monkeypatch):
    study(with_failures(), tmp_path, workers=0)
    seen = []
    monkeypatch.setattr(work, "played", lambda *a, **k: seen.append(1) or playing.played(*a, **k))
    study(with_failures(), tmp_path, workers=0)
    assert len(seen) == 3


def raising(error, after=0):
    """A stand-in for `played` that raises from the run after so many on."""
    count = iter(range(10**6))

    def play(*arguments, **options):
        if next(count) >= after:
            raise error
        return playing.played(*arguments, **options)

    return play


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out of memory"),
        (ZeroDivisionError("x"), "error in desim: ZeroDivisionError: x"),
        (Diverged("diverged: so"), "diverged: so"),
        (InputError(["one", "two"]), "one\ntwo"),
    ],
)
def test_a_study_goes_on_whatever_a_run_raises(monkeypatch, error, reason):
    monkeypatch.setattr(work, "played", raising(error, after=5))
    made = study(STUDY, workers=0)
    assert list(made.runs["status"]) == ["done"] * 5 + ["failed"] * 3
    assert set(made.runs["reason"][5:]) == {reason}


def test_ctrl_c_ends_a_study_with_what_is_there(tmp_path, monkeypatch):
    monkeypatch.setattr(work, "played", raising(KeyboardInterrupt(), after=5))
    made = study(STUDY, tmp_path, workers=0)
    assert not made.complete
    assert list(made.runs["status"]) == ["done"] * 5 + ["stopped"] * 3
    stored = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(stored["status"]) == list(made.runs["status"])
    monkeypatch.undo()
    assert study(STUDY, tmp_path, workers=0).complete


def test_runs_that_are_stored_count_though_nobody_said_so(tmp_path, monkeypatch):
    def silent(jobs):
        work.run_job(jobs[0])
        raise RunError("the scheduler is gone")

    monkeypatch.setattr("desim.experiments.studies.study.players", lambda *_: nullcontext(silent))
    with pytest.raises(RunError, match="the scheduler is gone"):
        study(STUDY, tmp_path)
    stored = pd.read_parquet(tmp_path / "runs.parquet")
    assert list(stored["status"]) == ["done"] + ["stopped"] * 7


def test_directories_that_cannot_hold_a_study_are_refused(tmp_path):
    (tmp_path / "file").write_text("")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x").write_text("")
    for name, why in (("file", "is a file"), ("file/x", "cannot be written"), ("other", "holds")):
        with pytest.raises(InputError, match=why):
            study(STUDY, tmp_path / name, workers=0)
    if os.geteuid() == 0:
        return  # nothing is unwritable for root
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(InputError, match="not a writable directory"):
        study(STUDY, tmp_path / "locked" / "study", workers=0)


def test_two_at_work_on_one_study_are_one_too_many(tmp_path):
    with pytest.raises(InputError, match="another process is at work"):
        study(STUDY, tmp_path, workers=0, progress=lambda *_: study(STUDY, tmp_path, workers=0))


@pytest.mark.slow
def test_a_full_disk_fails_runs_and_says_so_of_the_tables(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    made = study(STUDY, tmp_path, workers=0)
    shutil.rmtree(tmp_path / "runs" / made.runs["run"].iloc[0])

    def refuse(*_, **__):
        raise full

    monkeypatch.setattr(directory, "write_text", refuse)
    monkeypatch.setattr(pd.DataFrame, "to_parquet", refuse)
    results = []
    with pytest.raises(RunError, match=r"tables cannot be written \(No space left on device\)"):
        study(STUDY, tmp_path, workers=0, progress=lambda *now: results.append(now))
    assert results[-1] == (8, 8, 1)


def test_what_an_argument_cannot_be_is_told():
    for wrong, why in (({"workers": -1}, "workers: found -1"), ({"memory": 5}, "memory: found 5"),
                       ({"dask": "x", "workers": 1}, "dask: found workers")):  # fmt: skip
        with pytest.raises(InputError, match=why):
            study(STUDY, **wrong)


def test_targets_of_the_scenario_are_those_of_the_study_by_default():
    base = {**BASE, "stop": {"rounds": 12, "metric": {"error": 0.5}}}
    made = study(changed(base=base, compare={}), workers=0)
    assert made.plan.asked.targets == (("error", 0.5),)
    assert "time to error 0.5" in set(made.summary["measure"])


@pytest.mark.parametrize(
    ("left", "free"),
    [
        ([], True),
        (["runs/"], True),
        (["runs/", "study.token", ".study.json.partial", ".study.token.partial"], True),
        (["runs/", "runs/mine/"], False),
        (["notes.txt"], False),
        (["runs"], False),
        (["study.json|"], True),
    ],
)
def test_what_a_study_leaves_that_was_killed_at_once_is_no_obstacle(left, free, tmp_path):
    for name in left:
        make = Path.mkdir if name.endswith("/") else os.mkfifo if "|" in name else Path.touch
        make(tmp_path / name.strip("|"))
    with nullcontext() if free else pytest.raises(InputError, match="holds something else"):
        check_free(tmp_path, "mine")


MEASURED = """a,b,y
1,0,1
0,1,-1
1,1,0.5
2,1,1.5
"""


@pytest.mark.parametrize("name", ["rows.csv", "losses.py"])
def test_a_run_on_other_files_is_not_taken_for_this_one(name, tmp_path, monkeypatch):
    (tmp_path / "rows.csv").write_text(MEASURED)
    (tmp_path / "losses.py").write_text((Path(__file__).parent / "plugins/losses.py").read_text())
    data = {"source": "csv", "file": str(tmp_path / "rows.csv"), "label": "y"}
    problem = {"agents": 2, "data": data, "loss": "twin", "regularizer": {"l2": 0.1}}
    base = {**BASE, "problem": problem, "plugins": [str(tmp_path / "losses.py")]}

    def played():
        made = study({"name": "s", "base": base}, tmp_path / "out", workers=0)
        return "1 stored before" in made.counted, made.runs["final error"].tolist()

    stored, first = played()
    assert not stored
    assert played() == (True, first)
    file = tmp_path / name
    file.write_text(file.read_text().replace("1.5", "-9.5").replace("2.0 * (u - b)", "u - b"))
    stored, changed = played()
    assert not stored
    assert changed != first
    monkeypatch.setattr(work, "_of", lambda scenario, run: True)
    file.write_text(file.read_text().replace("-9.5", "1.5").replace("u - b", "2.0 * (u - b)"))
    assert played() == (True, changed)  # the wrong twin
