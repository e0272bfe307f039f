"""`desim plot`: every kind of a run and of a study; what is refused, with nothing written."""

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes

import desim
from desim.errors import InputError
from desim.experiments.studies.folder import STUDY, stored_runs
from desim.interface.cli import main

PROBLEM = {
    "agents": 3,
    "data": {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 4},
    "loss": "logistic",
    "clip": 1.0,
    "regularizer": {"l2": 1.0},
}
SCENARIO = {
    "name": "small",
    "problem": PROBLEM,
    "algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "noisy", "epochs": 2,
                                                          "tau": 0.3}},
    "network": "wifi",
    "observe": {"metrics": ["error", "loss"]},
    "stop": {"rounds": 4},
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two runs and a study of two cases with two seeds."""
    place = tmp_path_factory.mktemp("desk")
    desim.run(SCENARIO, out=place / "one")
    desim.run({**SCENARIO, "seed": 2}, out=place / "two")
    study = {"base": SCENARIO, "grid": {"algorithm.rho": [0.5, 1.0], "seed": [1, 2]}}
    desim.study({"name": "rho", **study}, place / "rho", workers=0)
    return place


@pytest.fixture
def call(folder, monkeypatch, capsys):
    """call(argument, ...): exit code and output, told among the files of a run."""
    monkeypatch.chdir(folder)

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["plot", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out + captured.err

    return call


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        ((), "error-time.png"),
        (("--x", "epsilon", "--metric", "loss"), "loss-epsilon.png"),
        (("--kind", "bars", "--target", "9"), "error-time-bars.png"),
        (("--kind", "tradeoff"), "tradeoff.png"),
        (("--kind", "timeline", "--rounds", "2-3"), "timeline.png"),
        (("--kind", "network"), "network.png"),
        (("--kind", "staleness"), "staleness.png"),
        (("--kind", "utilisation"), "utilisation.png"),
        (("--kind", "epsilon"), "epsilon.png"),
    ],
)
def test_every_kind_of_a_run(call, arguments, file):
    assert call("one", *arguments) == (0, f"one/{file}\n")
    assert Path("one", file).stat().st_size > 1000


def test_runs_and_studies_together(call):
    assert call("rho") == (0, "rho/error-time.png\n")
    assert call("rho", "one", "--kind", "bars", "--target", "9", "-o", "a.svg") == (0, "a.svg\n")
    text = Path("a.svg").read_text()
    assert all(label in text for label in ("rho 0.5", "rho 1", desim.open("one").name))


def test_a_study_of_one_run_is_that_run(call):
    cut = Path("single")
    cut.mkdir()
    study = json.loads(Path("rho", STUDY).read_text())
    (cut / STUDY).write_text(json.dumps(study))
    key = study["runs"][0]["run"]
    (cut / "runs").mkdir()
    (cut / "runs" / key).symlink_to(Path("rho", "runs", key).resolve())
    assert call("single", "--kind", "timeline") == (0, "single/timeline.png\n")
    text = "--kind timeline: found 4 runs; allowed: one run\n"
    assert call("rho", "--kind", "timeline") == (2, text)


def test_a_study_that_was_cut_is_read_as_far_as_it_came(call):
    runs = stored_runs(Path("rho"))
    assert {label: len(some) for label, some in runs.items()} == {"rho 0.5": 2, "rho 1": 2}
    cut = Path("cut")
    cut.mkdir()
    (cut / STUDY).write_text(Path("rho", STUDY).read_text())
    assert call("cut") == (2, "cut: none of its 4 runs has been simulated yet\n")
    (cut / STUDY).write_text(json.dumps([]))
    assert call("cut") == (2, f"cut/{STUDY}: not a study of desim, or damaged\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("one", "two", "--kind", "timeline"), "--kind timeline: found 2 runs; allowed: one"),
        (("one", "--kind", "timeline", "--x", "bytes"), "--x: found with --kind timeline"),
        (("one", "--target", "1"), "--target: found with --kind curve; allowed: with bars"),
        (("one", "--kind", "timeline", "--rounds", "x"), "found 'x'; allowed: FIRST-LAST"),
        (("one", "--kind", "timeline", "--rounds", "3-"), "found '3-'; allowed: FIRST-LAST"),
        (("one", "--kind", "timeline", "--rounds", "3-2"), "found '3-2'; allowed: FIRST-LAST"),
        (("one", "--kind", "timeline", "--rounds", "7-9"), "of rounds up to 4"),
        (("one", "--kind", "bars"), "target: found none; allowed: a value of error"),
        (("one", "--metric", "eror"), "did you mean 'error'?"),
        (("one", "-o", "x.pgn"), "did you mean 'png'?"),
        (("none",), "none: not a run directory"),
    ],
)
def test_bad_input_is_told_and_nothing_is_written(call, arguments, message):
    before = sorted(Path().rglob("*"))
    code, text = call(*arguments)
    assert code == 2
    assert message in text
    assert "Traceback" not in text
    assert sorted(Path().rglob("*")) == before


def test_a_log_of_rounds_says_what_it_lacks(tmp_path):
    run = desim.run({**SCENARIO, "log": "rounds"})
    for figure in ("timeline", "network", "staleness", "utilisation"):
        with pytest.raises(InputError, match="allowed: a run with log: all"):
            getattr(run.plot, figure)(out=tmp_path / "a.png")
    assert isinstance(run.plot.epsilon(out=tmp_path / "a.png"), Axes)
    assert isinstance(run.plot(metric="loss", out=tmp_path / "b.png"), Axes)


def test_the_figures_of_a_run_are_those_of_its_log(folder, tmp_path):
    run = desim.open(folder / "one")
    called = run.plot(metric="loss", out=tmp_path / "a.png").lines[0].get_xydata()
    named = run.plot.curve(metric="loss", out=tmp_path / "b.png").lines[0].get_xydata()
    assert called.tolist() == named.tolist()
    stored = run.curve("loss")[["time", "value"]].to_numpy()
    np.testing.assert_allclose(called, stored * [1e3, 1.0])  # ms


def test_time_to_a_target_is_that_of_the_run(folder, tmp_path):
    from desim.interface.plots import bars

    run = desim.open(folder / "one")
    target = float(run.curve("loss")["value"].iloc[2])
    axes = bars([run], metric="loss", target=target, out=tmp_path / "a.png")
    assert axes.patches[0].get_width() == pytest.approx(1e3 * run.time_to("loss", target))  # ms
