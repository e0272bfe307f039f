"""Figures of performance profiles and distribution functions: what is drawn, and by the command."""

from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from naive import coco
from study_scenes import BASE, changed

from desim.errors import InputError
from desim.experiments.studies import answers
from desim.experiments.studies.answers import draws
from desim.experiments.studies.statistics import resamples
from desim.experiments.studies.study import study
from desim.experiments.studies.trials import Trials
from desim.interface.cli import main
from desim.interface.plots import ecdf, profile

TARGET = "accuracy 0.9"


def tried(times, seeds=5, ends=100.0):
    """Trials with times[method][problem], each seed a little later than the one before."""
    rows = [
        {"method": method, "problem": f"p{p}", "seed": seed, "status": "done", "time": ends,
         "bytes": 1e3 * ends, f"time to {TARGET}": time * (1 + seed / 50),
         f"bytes to {TARGET}": 1e3 * time * (1 + seed / 50)}
        for method, own in times.items()
        for p, time in enumerate(own)
        for seed in range(seeds)
    ]  # fmt: skip
    return Trials(pd.DataFrame(rows))


TIMES = {"a": [1.0, 2.0, np.inf, 9.0], "b": [2.0, 1.0, np.inf, 90.0], "c": [np.inf] * 4}


def curves(axes):
    return {line.get_label(): line.get_data() for line in axes.lines}


def texts(axes):
    legend = axes.get_legend()
    return [legend.get_title().get_text(), *(one.get_text() for one in legend.get_texts())]


def test_a_profile_is_drawn_to_its_right_end(tmp_path):
    axes = profile(tried(TIMES), out=tmp_path / "a.svg")
    at, share = curves(axes)["a"]
    assert (at[0], share[0]) == (1.0, 50.0)
    assert share[-1] == 75.0
    assert at[-1] == axes.get_xlim()[1] > 10.0
    assert set(curves(axes)["c"][1]) == {0.0}  # a curve that never rises is there all the same
    assert axes.get_xscale() == "log"
    assert axes.get_xlabel() == "expected virtual time / that of the best method"
    assert axes.get_ylabel() == "share of problems"
    assert texts(axes) == ["4 problems and targets; band: 95 % over seeds", "a", "b", "c"]
    assert len(axes.collections) == 3


def test_a_distribution_function_has_a_unit(tmp_path):
    axes = ecdf(tried(TIMES), out=tmp_path / "a.svg")
    at, share = curves(axes)["a"]
    assert share[0] == 0.0
    assert share[-1] == 75.0
    assert at[1:-1].min() == pytest.approx(1.0)
    assert axes.get_xlabel() == "virtual time (s), with restarts"
    many = ecdf(tried({"a": [1.0, 500.0]}, ends=900.0), x="bytes", out=tmp_path / "b.svg")
    assert many.get_xlabel() == "data delivered, with restarts"
    assert "1 kB" in [one.get_text() for one in many.get_xticklabels()]
    one = ecdf(tried({"a": [3.0]}), out=tmp_path / "c.svg")
    assert (one.get_xscale(), one.get_ylabel()) == ("linear", "share of simulated runs")


def test_curves_that_are_the_same_are_all_seen(tmp_path):
    axes = profile(tried({"a": [1.0, 3.0], "b": [1.0, 3.0]}), out=tmp_path / "a.svg")
    assert texts(axes)[1:] == ["a", "b (the same)"]
    assert axes.get_xlim() == (1.0, 1.2)
    apart(axes, 2)
    apart(profile(tried({f"m{k}": [1.0, 3.0] for k in range(12)}), out=tmp_path / "b.svg"), 12)


def apart(axes, curves):
    """All lines that are the same can be seen: none lies on another one, or off by much."""
    where = [line.get_transform().transform((1.1, 100.0)) for line in axes.lines]
    points = 72.0 * np.array(where) / axes.figure.dpi
    gaps = np.diff(points, axis=0)
    assert len(where) == curves
    assert (gaps[:, 0] > 0.5).all()
    assert (gaps[:, 1] < -0.5).all()
    middle = 72.0 * axes.transData.transform((1.1, 100.0)) / axes.figure.dpi
    assert np.abs(points - middle).max() <= 3.0 + 1e-9


def test_few_seeds_and_many_methods_have_no_bands(tmp_path):
    few = profile(tried(TIMES, seeds=2), out=tmp_path / "a.svg")
    assert texts(few)[0] == "4 problems and targets; no band, which needs 4 seeds"
    assert not few.collections
    many = {f"m{k}": [1.0 + k, 2.0] for k in range(8)}
    axes = profile(tried(many), out=tmp_path / "b.svg", size=(6.0, 4.0))
    assert "no bands of more than 5 methods" in texts(axes)[0]
    assert not axes.collections
    assert len({(line.get_color(), line.get_linestyle()) for line in axes.lines}) == 8
    box = axes.get_legend().get_window_extent()
    assert box.x1 <= axes.figure.bbox.x1


def test_labels_and_a_title(tmp_path):
    axes = ecdf(tried(TIMES), labels=["x", "y", "z"], title="All", out=tmp_path / "a.svg")
    assert texts(axes)[1:] == ["x", "y", "z"]
    with pytest.raises(InputError, match="label: found 1 labels; allowed: 3"):
        ecdf(tried(TIMES), labels=["x"], out=tmp_path / "b.svg")
    with pytest.raises(
        InputError, match="x: found 'day'; allowed: time, round, bytes, joules, epsilon"
    ):
        ecdf(tried(TIMES), x="day", out=tmp_path / "b.svg")
    assert not (tmp_path / "b.svg").exists()


def test_what_is_met_at_once_can_be_drawn(tmp_path):
    axes = ecdf(tried({"a": [0.0], "b": [0.0]}), out=tmp_path / "a.svg")
    assert {share[0] for _, share in curves(axes).values()} == {100.0}
    axes = profile(tried({"a": [0.0], "b": [2.0]}), out=tmp_path / "b.svg")
    assert [share.tolist() for _, share in curves(axes).values()] == [[100.0] * 2, [0.0] * 2]


def test_bands_are_of_seeds_that_are_drawn_for_all_together():
    rng = np.random.default_rng(3)
    found = tried({"a": [1.0, 2.0, 4.0], "b": [2.0, 1.0, 8.0]})
    luck = {seed: float(rng.lognormal()) for seed in range(5)}
    found.rows[f"time to {TARGET}"] *= found.rows["seed"].map(luck)  # shared by both methods
    shares = answers.profile(found)
    assert (shares["low"] == shares["share"]).all()
    assert (shares["high"] == shares["share"]).all()
    apart = found.rows.copy()
    other = apart["method"] == "b"
    apart.loc[other, "seed"] = 4 - apart.loc[other, "seed"]
    spread = answers.profile(Trials(apart))
    assert (spread["low"] < spread["high"]).any()


def test_a_band_of_restarts_is_that_of_resampled_runs():
    found = tried({"a": [1.0, 50.0]}, ends=60.0)
    rows = found.rows
    rows.loc[(rows["seed"] < 2) & (rows["problem"] == "p1"), f"time to {TARGET}"] = np.inf
    cells = list(found.cells("time").values())
    at = np.array([1.0, 1.05, 55.0, 120.0, 500.0])
    picked = next(resamples(5))[:4]
    for gone in (None, 3):  # and where a seed has no run
        for cell in cells:
            if gone is not None:
                cell.spent[gone] = np.nan
            shares = answers._shares_again(cell, at, picked)
            for row, own in zip(shares, picked, strict=True):
                left = [i for i in own if i != gone]
                steps = list(islice(draws(len(left)), 60))
                runs = [(cell.spent[i], cell.met[i]) for i in left]
                naive = [coco.restarted(runs, [one[k] for one in steps])
                         for k in range(len(steps[0]))]  # fmt: skip
                assert row.tolist() == [coco.share_of(naive, one) for one in at]


def test_bands_hold_the_curve():
    found = answers.profile(tried(TIMES))
    assert (found["low"] <= found["share"]).all()
    assert (found["share"] <= found["high"]).all()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("desk")
    grid = {"policy": ["all", "each"], "network.link.latency": ["10 ms", "1 s"], "seed": ["0..1"]}
    base = {**BASE, "stop": {"rounds": 9}}
    asked = {"targets": {"error": 0.5}}
    study(changed(grid=grid, base=base, compare=asked), place / "s", workers=0)
    return place


@pytest.fixture
def call(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["plot", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out + captured.err

    return call


def test_the_command_draws_both(call):
    assert call("s", "--kind", "profile") == (0, "s/profile-time.png\n")
    asked = ("--target", "error=0.5", "--target", "error=0.1", "--methods", "policy")
    assert call("s", "--kind", "ecdf", *asked, "-o", "a.svg") == (0, "a.svg\n")
    assert "2 problems and targets" not in Path("a.svg").read_text()
    assert "4 problems and targets" in Path("a.svg").read_text()
    runs = sorted(str(one) for one in Path("s/runs").iterdir())
    assert call(*runs, "--kind", "profile", "--target", "error=0.5", "-o", "b.svg")[0] == 0
    assert "policy each" in Path("b.svg").read_text()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--kind", "profile", "--target", "0.5"), "--target: found '0.5'; allowed: METRIC=VALUE"),
        (("--kind", "profile", "--target", "eror=1"), "did you mean 'error'?"),
        (("--kind", "profile", "--metric", "error"), "--metric: found with --kind profile"),
        (("--kind", "profile", "--x", "epsilon"), "spent: found epsilon, which is not known"),
        (("--kind", "profile", "--methods", "comput"), "methods: found 'comput'; allowed: policy"),
        (("--kind", "profile", "--target", "error=1e-40"), "found no method with a finite"),
        (("--kind", "bars", "--target", "x"), "--target: found 'x'; allowed: one number"),
        (
            ("--methods", "policy"),
            "--methods: found with --kind curve; allowed: with ecdf, profile",
        ),
    ],
)
def test_bad_input_writes_nothing(call, arguments, message):
    before = sorted(Path().rglob("*"))
    code, text = call("s", *arguments)
    assert code == 2
    assert message in text
    assert sorted(Path().rglob("*")) == before
