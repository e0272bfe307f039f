"""Reports of studies: its own tables first, seeds folded under their medians; what is proposed."""

import re

import numpy as np
import pytest
from mutant import mutant
from report_runs import SCENARIO, played
from test_report import section
from tuner_scenes import TUNER

import desim
from desim.errors import InputError
from desim.experiments import reported
from desim.experiments.studies.study import StoredStudy, open_study
from desim.experiments.studies.words import shown
from desim.interface.cli import main
from desim.interface.reports import results, study_part
from desim.interface.reports.readable import readings

STUDY = {
    "name": "steps of two sizes",
    "base": SCENARIO,
    "set": {"stop.rounds": 12},
    "grid": {"algorithm.alpha": [0.1, 0.3], "seed": [1, 2, 3]},
    "compare": {"targets": {"error": [2.5]}, "against": {"algorithm.alpha": 0.1}},
}


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return desim.study(STUDY, tmp_path_factory.mktemp("study"), workers=0)


@pytest.fixture(scope="module")
def text(study):
    with pytest.raises(SystemExit) as left:
        main(["report", str(study.directory)])
    assert left.value.code == 0
    return (study.directory / "report.html").read_text("utf-8")


def test_the_report_of_a_study_begins_with_the_study(study, text):
    assert re.search(r"<h1>steps of two sizes <small>study, 6 runs</small>", text)
    assert text.index('<section id="study"') < text.index('<section id="results"')
    said = section(text, "study")
    assert "2 cases, 6 runs: 6 done." in said
    for table in shown(study):
        assert table.title in said
        for row in (table.head, *table.rows):
            assert all(cell in said for cell in row), row
    targets = section(text, "targets")
    assert "error at most 2.5" in targets
    assert targets.count("median of 3 seeds") == 2


def test_seeds_are_folded_under_their_medians(text):
    found = section(text, "results")
    before, after = found.split("Each of the 6 runs", 1)
    assert before.count(": 3 seeds") == 2
    assert after.count(" done ") == 6
    folded = re.findall(r"<details class=\"more\"><summary>([^<]*)", text)
    assert [one for one in folded if one.startswith("Each of")] == [
        "Each of the 6 runs", "Each of 6 seeds: error at most 2.5",
    ]  # fmt: skip
    assert "assumptions and caveats" in " ".join(folded)
    assert text.count('<pre tabindex="0">') == 2  # scenarios: one of each series


def test_the_report_of_a_study_says_which_method_is_first(study, text):
    said = section(text, "study")
    assert "<h3>Which method is first</h3>" in text
    assert "expected time to error 2.5" in said
    assert text.count('<img class="drawn" src="data:image/svg+xml;base64,') == 1  # one problem
    assert "Targets met over time" in said
    assert "img-src data:" in text
    part, figures = study_part(study)
    assert [one.title for one in part.expected][-1].startswith("profile of expected time over one")
    assert [caption for caption, *_ in figures] == ["Targets met over time"]
    alone = {
        **study.written,
        "compare": {"targets": {"error": 2.5}, "profile": {"methods": "seed"}},
    }
    for written in (alone, {**study.written, "grid": {}}):  # a key of none, and one method
        other = StoredStudy("x", None, (), study.runs, study.summary, study.comparisons, written)
        assert study_part(other)[1] == ()


def test_a_study_in_memory_says_the_same(study, text, tmp_path):
    again = desim.report(study, tmp_path / "r.html").read_text("utf-8")
    assert section(again, "study") == section(text, "study")
    stored = open_study(study.directory)
    assert stored.targets == (("error", 2.5),)
    (mine, drawn), (theirs, again_drawn) = map(study_part, (stored, study))
    assert mine._replace(trials=None) == theirs._replace(trials=None)
    assert drawn == again_drawn


def test_a_study_that_was_cut_says_so(study, tmp_path):
    import shutil

    cut = tmp_path / "cut"
    shutil.copytree(study.directory, cut)
    for name in ("runs", "summary", "comparisons"):
        (cut / f"{name}.parquet").unlink()
    said = study_part(open_study(cut))[0].said
    assert said == [reported.UNWRITTEN]
    with pytest.raises(InputError, match="not the directory of a study"):
        open_study(tmp_path)
    (cut / "study.json").write_text("{}")
    with pytest.raises(InputError, match="not a study of desim, or damaged"):
        open_study(cut)
    shutil.copyfile(study.directory / "study.json", cut / "study.json")
    (cut / "summary.parquet").write_bytes(b"nothing")
    with pytest.raises(InputError, match="cannot be read as a table of a study"):
        open_study(cut)


def test_failures_of_a_study_are_told_with_their_reasons(study):
    runs = study.runs.assign(status="failed", reason="diverged\nmore")
    assert reported._said(runs) == ["2 cases, 6 runs: 6 failed.", "Failed 6 times: diverged"]


def check_row(module, found):
    """Medians of what the runs of one series came to."""
    rows = results.headline(found).more[0].rows
    row = module.together(found, rows, ["error"])
    assert row[:4] == ["small: 3 seeds", "3 done", "dsgd", "3"]
    last = sorted(one.curves["error"].value[-1] for one in found)
    assert float(row[7]) == pytest.approx(last[1], rel=1e-3)
    found[0].curves["error"].value[-1] = np.nan
    found[1].curves["error"].value[-1] = np.nan
    assert module.together(found, rows, ["error"])[7] == "diverged"


def test_seeds_are_one_row(tmp_path):
    runs = [played(tmp_path / str(seed), seed=seed) for seed in (1, 2, 3)]
    check_row(results, readings(runs))
    wrong = mutant(results, "-np.inf if name in RISING else np.inf", "0.0")
    with pytest.raises(AssertionError):
        check_row(wrong, readings(runs))


def test_no_target_is_proposed_from_a_curve_that_gets_worse(tmp_path):
    worse = played(tmp_path / "a", algorithm__alpha=0.9, privacy__noise__sigma=30.0)
    value = worse.curve("error")["value"].to_numpy()
    assert value[-1] > value[0]
    assert results.default_targets(readings([worse])) == []
    said = section(desim.report(worse, tmp_path / "r.html").read_text("utf-8"), "targets")
    assert "No target is proposed: no metric ended better than it began" in said
    better = played(tmp_path / "b", **{"privacy__noise__sigma": 1e-3})
    [(name, target)] = results.default_targets(readings([better]))
    assert name == "error"
    assert better.time_to(name, target) > 0.0


def test_an_epsilon_without_end_is_a_sentence_and_no_chart(tmp_path):
    bare = played(tmp_path / "a", privacy=None)
    text = desim.report(bare, tmp_path / "r.html").read_text("utf-8")
    assert 'data-kind="epsilon"' not in text
    assert "No epsilon is finite, so there is none to draw over time" in section(text, "charts")
    noisy = desim.report(played(tmp_path / "b"), tmp_path / "n.html").read_text("utf-8")
    assert 'data-kind="epsilon"' in noisy


def test_the_first_metric_is_that_of_the_figures(tmp_path):
    from desim.interface.plots import shared_metric
    from desim.interface.reports.page import metrics

    test = {"problem.data.test": "25 %", "observe.metrics": ["error", "loss", "accuracy"]}
    run = desim.run(SCENARIO, overrides=test)
    found = readings([run])
    assert metrics(found)[0] == shared_metric([run]) == "accuracy"
    text = desim.report(run, tmp_path / "r.html").read_text("utf-8")
    assert re.search(r'name="metric"><option value="(\w+)">', text).group(1) == "accuracy"


def test_a_tuner_has_a_page_of_its_candidates_and_of_fresh_seeds(tmp_path):
    made = desim.tune(TUNER, out=tmp_path / "t", workers=0)
    with pytest.raises(SystemExit):
        main(["report", str(tmp_path / "t"), "-o", str(tmp_path / "t.html")])
    page = (tmp_path / "t.html").read_text("utf-8")
    part, _ = study_part(found := open_study(tmp_path / "t"))
    candidates, fresh = part.tables
    assert next(row[2] for row in candidates.rows) == "best"
    assert len(candidates.rows) == len(made.candidates)
    assert [row[0] for row in fresh.rows] == made.fresh["label"].tolist()
    assert found.targets == (("error", 0.1),)
    assert "has not written its tables" not in page
    chosen = reported.of_the_best(found, found.by_case())
    seen = {label: sorted(run.manifest["seed"] for run in runs) for label, runs in chosen.items()}
    assert set(seen) == {made.best[0].label, "base"}
    assert len(set(map(tuple, seen.values()))) == 1
    other = mutant(reported, 'if run.manifest.get("seed") in shared', "if True")
    assert len({len(runs) for runs in other.of_the_best(found, found.by_case()).values()}) == 2
