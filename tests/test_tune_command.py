"""`desim tune`: what it prints and writes, and its exit codes."""

import json
from importlib import import_module

import pandas as pd
import pytest
from mutant import mutant
from tuner_scenes import TUNER, private, tuner

import desim
from desim.errors import InputError
from desim.interface.cli import main, progress
from desim.interface.plots import front


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """call(tuner, argument, ...): exit code, standard output and error of `desim tune`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "SOON", 600.0)  # the lines of a slow machine are not looked at

    def call(written, *arguments):
        (tmp_path / "t.yaml").write_text(json.dumps(written))
        with pytest.raises(SystemExit) as end:
            main(["tune", "t.yaml", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


SMALL = tuner(vary={"algorithm.local.epochs": [1, 5]}, seeds="0..2", fresh=1, sampler="grid")


def test_a_tuner_prints_its_best_and_leaves_a_scenario_and_a_figure(call, tmp_path):
    code, out, _ = call(SMALL, "--workers", "0", "--figure", "f.svg", "--set", "stop.rounds=13")
    lines = out.splitlines()
    assert code == 0
    assert lines[0].startswith("small: 2 candidates of 2: 1 best")
    assert "  least time to error 0.1" in lines
    assert lines[-2:] == ["  desim run tuned/small/best.yaml", "f.svg"]
    assert desim.load("tuned/small/best.yaml").stop.rounds == 13
    assert (tmp_path / "f.svg").read_text().startswith("<?xml")
    table = pd.read_parquet("tuned/small/candidates.parquet")
    assert set(table["status"]) <= {"best", "within noise", "dropped"}
    code, again, _ = call(SMALL, "--workers", "0", "--set", "stop.rounds=13")
    assert code == 0
    assert "played" not in again
    for command in (["report", "tuned/small", "-o", "r.html"], ["compare", "tuned/small"]):
        with pytest.raises(SystemExit) as end:
            main(command)
        assert end.value.code == 0


def test_a_dry_run_plays_nothing(call, tmp_path):
    code, out, _ = call(TUNER, "--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "small: least time to error 0.1",
        "  algorithm.rho: [1, 3]",
        "  algorithm.local.epochs: [1, 2, 5]",
        "  6 candidates, 4 seeds, sampler random, at most 30 runs",
        "  goes to tuned/small",
    ]
    assert not (tmp_path / "tuned").exists()


def test_that_nothing_meets_the_target_is_no_success(call, tmp_path):
    never = tuner(until={"error": 1e-30}, vary={"algorithm.rho": [1.0]}, seeds="0..1")
    code, out, err = call(never, "--workers", "0")
    assert code == 1
    assert err.endswith("no candidate met the target\n")
    assert "error 1e-30 not met on 1 of 1 seeds" in out
    assert not (tmp_path / "tuned" / "small" / "best.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "algorithm.rho=3"], "override algorithm.rho: the tuner varies it"),
        (["--set", "tune.runs=3"], "override tune.runs: is a key of the tuner's file"),
        (["--figure", "f.bmp"], "--figure f.bmp: found '.bmp'; allowed: .png, .svg, .pdf"),
        (["--workers", "-1"], "workers: found -1"),
        (["--size", "3"], "--size: found"),
        (["-o", "t.yaml"], "t.yaml: is a file"),
    ],
)
def test_mistakes_are_told(call, tmp_path, arguments, message):
    code, out, err = call(TUNER, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert [one.name for one in tmp_path.iterdir()] == ["t.yaml"]


def test_a_front_is_drawn_wide_and_narrow(tmp_path):
    several = tuner(
        least=["time", "bytes"], vary={"policy": ["all", "each"]}, seeds="0..2", fresh=0
    )
    made = desim.tune(several, workers=0)
    for size in ((8.0, 3.0), (2.6, 2.6)):
        axes = front(made, tmp_path / "f.png", size=size)
        assert axes.get_xlabel().startswith("virtual time")
        assert axes.get_ylabel().startswith("data delivered")
    with pytest.raises(InputError, match="no candidate met the target"):
        front(desim.tune(tuner(until={"error": 1e-30}, seeds=[0], runs=2, fresh=0), workers=0))


def marks(axes):
    """Places of candidates on the axis of x, in order."""
    return sorted(float(x) for line in axes.lines if line.get_marker() not in ("None", "")
                  for x in line.get_xdata())  # fmt: skip


def test_one_goal_is_drawn_over_the_key_that_varied(tmp_path):
    def drawn(vary, draw=front):
        made = desim.tune(tuner(vary=vary, seeds=[0], fresh=0), workers=0)
        return draw(made, tmp_path / "f.png")

    def check(draw=front):
        axes = drawn({"algorithm.rho": [1.0, 3.0]}, draw)
        assert (axes.get_xlabel(), marks(axes)) == ("algorithm.rho", [1.0, 3.0])

    check()
    several = drawn({"algorithm.rho": [1.0, 3.0], "algorithm.local.epochs": [2, 5]})
    assert (several.get_xlabel(), marks(several)[:2]) == ("candidates in order", [1.0, 2.0])
    assert drawn({"policy": ["all", "each"]}).get_xlabel() == "candidates in order"
    wrong = mutant(import_module(front.__module__), "len(keys) == 1 and", "False and")
    with pytest.raises(AssertionError):
        check(wrong.front)


TERMS = "epsilon: of the agent that spends most; view coordinator, replace-one, delta 1e-05, exact"


def test_epsilons_come_with_their_terms_in_the_text_and_in_the_figure(tmp_path):
    several = private(least=["time", "epsilon"], seeds="0..2", fresh=1, runs=9)
    made = desim.tune(several, tmp_path / "t", workers=0)
    assert TERMS in made.text()
    axes = front(made, tmp_path / "f.png", size=(6.0, 4.0))
    assert "epsilon: of the agent" in " ".join(axes.get_legend().get_title().get_text().split())
    assert "epsilon" not in desim.tune(SMALL, workers=0).text().partition("privacy:")[0]


def test_a_figure_has_plain_numbers_and_speaks_of_intervals_that_there_are(tmp_path):
    several = tuner(
        least=["time", "bytes"], vary={"policy": ["all", "each"],
                                       "algorithm.local.epochs": [1, 20]}, seeds="0..2", fresh=0
    )  # fmt: skip
    axes = front(desim.tune(several, workers=0), tmp_path / "f.png")
    assert "interval" not in axes.get_legend().get_title().get_text()  # three seeds have none
    axes.figure.canvas.draw()
    scales = {axes.xaxis: axes.get_xscale(), axes.yaxis: axes.get_yscale()}
    assert "log" in scales.values()
    marks = [one.get_text() for axis in scales for one in axis.get_ticklabels()]
    assert not [text for text in marks if "mathdefault" in text]


def test_a_stopped_tuner_does_not_say_that_nothing_met_the_target():
    def stop(done, total, what):
        raise KeyboardInterrupt

    text = desim.tune(SMALL, workers=0, progress=stop).text()
    assert "nothing is decided" in text
    assert "no candidate met" not in text


def test_seeds_of_the_search_and_fresh_ones_are_not_one_sample(tmp_path):
    made = desim.tune(SMALL, out=tmp_path / "t", workers=0)
    frame = desim.compare(tmp_path / "t").frame
    seeds = frame[frame["measure"] == "time"].set_index("run")["seeds"]
    best = made.best[0].label
    assert seeds[f"{best}, seeds of the search"] == 3
    assert seeds[f"{best}, fresh seeds"] == seeds["base, fresh seeds"] == 1
    with pytest.raises(InputError, match=r"\(it has no manifest.json\); a tuner: its runs"):
        desim.open(tmp_path / "t")


def test_a_dry_run_builds_what_it_looks_for(call):
    code, out, err = call(tuner(vary={"compute.speed": [100, [1, 2]]}), "--dry-run")
    assert (code, out) == (2, "")
    assert err.startswith("candidate speed [1, 2]: ")
    assert "compute.speed: found 2 entries for" in err
