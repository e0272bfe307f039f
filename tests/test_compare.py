"""`desim compare`: numbers are those of the runs, terms are complete, mixed runs work."""

import inspect
import json
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

import desim
from desim import tabulated
from desim.errors import InputError
from desim.experiments.studies import compare
from desim.experiments.studies import study as study_module
from desim.experiments.studies.folder import opened
from desim.interface.cli import main
from desim.interface.plots import drawable
from desim.runs.directory import UNLISTED

BASE = {
    "name": "small",
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 8, "dim": 4},
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
        "clip": 1.0,
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2}},
    "network": {"link": {"latency": {"lognormal": ["10 ms", 0.5]}}},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}, "delta": 1e-5},
    "observe": {"metrics": ["error", "loss"]},
    "stop": {"rounds": 5},
}
LEAST = 0.0  # an error that noise never lets it reach


def played(folder, place, **overrides):
    return desim.run(
        BASE, folder / place, {key.replace("__", "."): v for key, v in overrides.items()}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for seed in (1, 2, 3):
        played(place, f"a{seed}", seed=seed)
        played(place, f"b{seed}", seed=seed, algorithm__rho=2.0)
    bare = {key: part for key, part in BASE.items() if key != "privacy"}
    desim.run(
        {**bare, "name": "plain", "algorithm": {"name": "fed-plt", "rho": 1}}, place / "plain"
    )
    played(place, "shorter", seed=1, problem__clip=0.5)
    played(place, "other", problem__data__dim=5, name="other")
    return place


@pytest.fixture
def call(capsys):
    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main([str(one) for one in arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


def value(frame, run, measure, column="value"):
    found = frame[(frame["run"] == run) & (frame["measure"] == measure)]
    assert len(found) == 1, (run, measure)
    return found[column].iloc[0]


def check_numbers(module, folder):
    """Medians and means over seeds, worked out from the runs themselves."""
    runs = [desim.open(folder / f"a{seed}") for seed in (1, 2, 3)]
    target = float(np.median([run.curve("error")["value"].iloc[3] for run in runs]))
    made = module.compare([*runs, folder / "b1"], {"error": [target, LEAST]})
    frame, mine = made.frame, "small: rho 1"
    when = [run.time_to("error", target) for run in runs]
    assert value(frame, mine, f"time to error {target:g}") == np.median(when)
    final = [run.curve("error")["value"].iloc[-1] for run in runs]
    assert value(frame, mine, "final error") == pytest.approx(np.mean(final), rel=1e-12)
    spent = [run.epsilon()["epsilon"].max() for run in runs]
    assert value(frame, mine, "epsilon") == np.median(spent)
    assert value(frame, mine, "epsilon", "seeds") == 3
    assert value(frame, mine, "time to error 0") == np.inf
    assert value(frame, mine, "time to error 0", "never") == 3
    assert value(frame, "small: rho 2", "time", "seeds") == 1
    assert made.frame.attrs["columns"]["never"]


def wrong_compare(right, wrong):
    """`compare` with a fragment of it replaced, or of what sums a case up."""
    if right in inspect.getsource(compare):
        return mutant(compare, right, wrong)
    twin = mutant(compare, "def compare(", "def compare(")
    twin.summarised = mutant(study_module, right, wrong).summarised
    return twin


def test_numbers_are_those_of_the_runs(folder):
    check_numbers(compare, folder)


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(mean_estimate if final else median_estimate)", "median_estimate"),
        ("**measured(run, asked)", "**measured(rows[-1].runs[0], asked)"),
        ("int(np.isinf(when).sum())", "0"),
        ("whole = values[np.isfinite(values)] if final else values", "whole = values[:1]"),
    ],
)
def test_wrong_numbers_are_noticed(folder, right, wrong):
    with pytest.raises(AssertionError):
        check_numbers(wrong_compare(right, wrong), folder)


def test_every_epsilon_has_its_terms(folder):
    text = str(desim.compare([folder / "a1", folder / "b1"]))
    assert (
        "epsilon: of the agent that spends most; view eavesdropper, replace-one, delta 1e-05"
        in text
    )
    text = str(desim.compare([folder / "a1", folder / "plain"], relation="agent"))
    assert "agent, delta 1e-05" in text
    text = str(desim.compare([folder / "a1", folder / "plain"]))
    assert "infinite (no noise)" in text
    made = desim.compare([folder / "plain"], delta=1e-6)
    assert "infinite" in str(made)
    assert "delta 1e-06" in str(made)


def test_runs_are_told_apart_and_what_differs_is_said(folder):
    made = desim.compare([folder / "a1", folder / "a2", folder / "b1", folder / "b2"])
    assert list(dict.fromkeys(made.frame["run"])) == ["small: rho 1", "small: rho 2"]
    assert "differ in: algorithm.rho" in made.notes
    assert not any(note.startswith("warning") for note in made.notes)
    mixed = desim.compare([folder / "a1", folder / "other"])
    assert mixed.notes[0].startswith("warning: not the same data")
    shorter = desim.compare([folder / "a1", folder / "shorter"])
    assert shorter.notes[0].startswith("warning: not the same data or loss")
    apart = desim.compare([folder / "a1", folder / "b2"])
    assert apart.notes[0] == "not the same seeds in all rows, and so not the same draws"
    named = desim.compare({"mine": opened([folder / "a1"]), "theirs": opened([folder / "b1"])})
    assert list(dict.fromkeys(named.frame["run"])) == ["mine", "theirs"]


def test_letters_that_are_two_columns_wide_stand_below_each_other():
    lines = tabulated.aligned([["诊所", "1"], ["clinic", "2"], ["ab\u0301", "3"]])
    assert lines == ["诊所    1", "clinic  2", "ab\u0301      3"]
    narrow = mutant(tabulated, "return cell_len(text)", "return len(text)")
    assert narrow.aligned([["诊所", "1"], ["clinic", "2"]]) != lines[:2]


def test_the_same_run_twice_is_one_seed(folder):
    made = desim.compare([folder / "a1", folder / "a1"])
    assert set(made.frame["seeds"]) == {1}
    assert set(made.frame["statistic"]) == {"value"}


def cut(folder, tmp_path, status):
    """A copy of run a2 whose manifest says that it did not end as it should."""
    place = tmp_path / "a2"
    place.mkdir()
    for file in (folder / "a2").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((place / "manifest.json").read_text())
    manifest |= {"status": status, "reason": "the cat"}
    if status == "running":
        for name in ("time", "rounds", "counts", "wall_seconds"):
            del manifest[name]
    (place / "manifest.json").write_text(json.dumps(manifest))
    return place


@pytest.mark.parametrize("status", ["failed", "stopped", "running"])
def test_runs_that_did_not_end_are_shown_alone_and_counted_among_others(folder, tmp_path, status):
    place = cut(folder, tmp_path, status)
    told = {"running": "interrupted"}.get(status, status)
    alone = desim.compare([place])
    assert set(alone.frame["run"]) == {f"small ({told})"}
    assert alone.frame["value"].notna().all()
    sent = desim.open(place).delivered()["bytes"].sum()
    assert value(alone.frame, f"small ({told})", "bytes") == sent > 0
    assert any("the cat" in note or "process ended" in note for note in alone.notes)
    among = desim.compare([folder / "a1", place])
    assert set(among.frame["seeds"]) == {1}
    assert f"left out of small: 1 {told}" in among.notes


def check_survivors(module, folder, place):
    """A run that died beside one that is done: it counts until targets, not at the end."""
    start = desim.open(place).curve("error")["value"].iloc[0]
    made = module.compare([folder / "a1", place], {"error": [LEAST, start]})
    frame = made.frame
    for name in ("time", "bytes", "epsilon"):
        assert value(frame, "small", f"{name} to error 0", "seeds") == 2
    assert value(frame, "small", "time to error 0", "never") == 2
    met = f"time to error {start:g}"
    assert value(frame, "small", met, "seeds") == 2
    assert value(frame, "small", met, "never") == 0
    for name in ("time", "final error", "epsilon"):
        assert value(frame, "small", name, "seeds") == 1
    wanted = "small: 1 failed: never until targets not met before, left out at the end"
    assert wanted in made.notes


def test_a_run_that_failed_counts_until_targets(folder, tmp_path):
    place = cut(folder, tmp_path, "failed")
    check_survivors(compare, folder, place)
    for right, wrong in (
        ("return known if awaited(name) else known &", "return known &"),
        ("return known if awaited(name) else", "return known if True else"),
        ("lost = row.lost if asked.targets", "lost = () if asked.targets"),
    ):
        with pytest.raises(AssertionError):
            check_survivors(wrong_compare(right, wrong), folder, place)


def cell(kind="time", **columns):
    row = {"measure": f"{kind} to error 0.1", "unit": "s" if kind == "time" else "", "seeds": 10}
    return compare._cell(SimpleNamespace(**row, diverged=0, **columns), kind, False)


def test_an_interval_may_end_at_never():
    some = {"low": 0.6866, "high": np.inf}
    assert cell(value=0.7562, never=2, **some) == "0.7562 s [0.6866, never], 2 of 10 never"
    assert cell(value=np.inf, never=6, **some) == "never [0.6866 s, never], 6 of 10 never"
    assert cell(value=np.inf, never=10, low=np.inf, high=np.inf) == "never"
    assert cell(value=0.7, never=0, low=np.nan, high=np.nan) == "0.7 s"
    assert cell("epsilon", value=0.7, never=0, **some) == "0.7 [0.6866, infinite]"
    assert cell("epsilon", value=0.7, never=2, **some) == "0.7 [0.6866, never], 2 of 10 never"


def test_runs_that_cannot_be_checked_are_named(folder, tmp_path):
    place = tmp_path / "older"
    place.mkdir()
    for file in (folder / "a1").iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    manifest = json.loads((place / "manifest.json").read_text())
    del manifest["files"]
    (place / "manifest.json").write_text(json.dumps(manifest))
    made = desim.compare([place, folder / "b1"])
    assert f"epsilon of small: rho 1: {UNLISTED}" in made.notes
    assert not any(UNLISTED in note for note in desim.compare([folder / "a1"]).notes)
    assert "cannot be checked" in drawable.terms({"x": desim.open(place)})
    assert "cannot be checked" not in drawable.terms({"x": desim.open(folder / "a1")})


def test_means_of_few_seeds_say_what_their_intervals_hold(folder):
    runs = [folder / f"a{seed}" for seed in (1, 2, 3)]
    assert not any("skewed" in note for note in desim.compare(runs).notes)  # no interval
    assert any("88 % at 4 seeds" in note for note in desim.compare(runs, level=0.8).notes)


def test_the_command(folder, call, tmp_path):
    code, out, err = call("compare", folder / "a1", folder / "b1", "--target", "error=0.5")
    assert (code, err) == (0, "")
    assert out.splitlines()[0] == "until error 0.5"
    assert out.splitlines()[1].split() == ["run", "time", "rounds", "bytes", "epsilon"]
    code, out, _ = call("compare", folder / "a1", "--format", "latex")
    assert r"\toprule" in out
    code, out, _ = call("compare", folder / "a1", "--format", "markdown", "-o", tmp_path / "t.md")
    assert (tmp_path / "t.md").read_text().startswith("**at the end**")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--target", "eror=1"], "did you mean 'error'?"),
        (["--target", "error"], "allowed: METRIC=VALUE"),
        (["--view", "nobody"], "eavesdropper"),
        (["--format", "html"], "html"),
        (["none"], "none: not a run directory"),
        (["-o", f"{__file__}/where"], "where: cannot be written"),
    ],
)
def test_bad_input_is_one_clear_error(folder, call, more, message):
    code, out, err = call("compare", folder / "a1", *more)
    assert (code, out) == (2, "")
    assert message in err


def test_a_study_is_all_of_its_runs(tmp_path, call):
    made = desim.study(
        {"base": BASE, "grid": {"algorithm.rho": [1.0, 2.0]}}, tmp_path / "s", workers=0
    )
    assert made.complete
    code, out, _ = call("compare", tmp_path / "s")
    assert code == 0
    assert "rho 1" in out
    assert "rho 2" in out
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "study.json").write_text("{}")
    assert "not a study of desim" in call("compare", tmp_path / "t")[2]


def test_nothing_to_compare():
    with pytest.raises(InputError, match="no run"):
        desim.compare([])


def test_labels_of_a_study_and_given_ones_are_those_of_the_tables(tmp_path, capsys):
    base = {**BASE, "stop": {"rounds": 2}}
    cases = [{"label": "patient", "policy": "all"}, {"label": "hasty", "policy": {"quorum": 1}}]
    study = {"name": "wards", "base": base, "list": cases, "grid": {"seed": [1, 2]}}
    desim.study(study, out=tmp_path / "s", workers=0)
    made = desim.compare([tmp_path / "s"], {"loss": 1e-9})
    assert list(dict.fromkeys(made.frame["run"])) == ["patient", "hasty"]
    text = made.written("latex")
    assert re.search(r"\\label\{tab:at-the-end-[0-9a-f]{6}\}", text)
    assert "seeds 1 to 2" in text.split(r"\caption")[1]
    assert "never, at best" in made.written()
    runs = sorted((tmp_path / "s" / "runs").iterdir())[:2]
    with pytest.raises(SystemExit):
        main(["compare", *map(str, runs), "--label", "a", "--label", "b"])
    assert "\n  a " in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["compare", *map(str, runs), "--label", "a"])
    assert "found 1; allowed: 2, one for each RUN" in capsys.readouterr().err


def test_a_table_too_wide_goes_on_below():
    head, rows = ["run", "a" * 30, "b" * 30, "c" * 30], [["x", "1", "2", "3"]]
    table = tabulated.Table("wide", head, rows)
    cut = table.text(70).splitlines()
    assert max(map(len, cut)) <= 70
    assert [line.split() for line in cut[1:]] == [
        ["run", "a" * 30, "b" * 30], ["x", "1", "2"], [], ["run", "c" * 30], ["x", "3"]
    ]  # fmt: skip
    assert len(table.text().splitlines()) == 3


def test_runs_are_compared_though_their_plugin_is_gone(tmp_path):
    file = tmp_path / "losses.py"
    file.write_text((Path(__file__).parent / "plugins/losses.py").read_text())
    problem = BASE["problem"] | {"loss": "margin"}
    stop, observe = {"rounds": 4, "metric": {"loss": 1e-9}}, {"metrics": ["loss"]}
    for seed in (0, 1):
        own = {"seed": seed, "plugins": [str(file)], "problem": problem, "stop": stop}
        own["observe"] = observe
        desim.run(BASE | own, out=tmp_path / f"{seed}")
    places = [tmp_path / "0", tmp_path / "1"]
    before = desim.compare([desim.open(place) for place in places])
    file.unlink()
    after = desim.compare([desim.open(place) for place in places])
    pd.testing.assert_frame_equal(before.frame, after.frame)
    assert str(before) == str(after)
    (tmp_path / "0" / "scenario.yaml").write_text("{}")
    with pytest.raises(InputError, match="has changed since the run"):
        desim.compare([desim.open(place) for place in places])
