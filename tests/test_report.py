"""What a report says: warnings first, exact targets, thinned curves, and runs that went wrong."""

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from report_runs import SCENARIO, four, manipulated, played, rewritten

import desim
from desim.errors import InputError
from desim.interface.cli import main
from desim.interface.reports import page, results
from desim.interface.reports.readable import readings
from desim.interface.reports.scenarios import cautions
from desim.runs.run import Run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    return four(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def text(runs, tmp_path_factory):
    return desim.report(runs, tmp_path_factory.mktemp("out") / "r.html").read_text("utf-8")


def section(text, name):
    """The words of a section of a page."""
    found = re.search(rf'<section id="{name}".*?</section>', text, re.DOTALL)
    return re.sub(r"<[^>]*>|\s+", " ", found.group())


def test_warnings_come_first_and_results_after_them(text):
    order = [text.index(f'<section id="{name}"') for name in ("warnings", "results", "charts")]
    assert order == sorted(order)
    assert "failed: &lt;/script&gt;" in section(text, "warnings")


def test_a_warning_of_all_seeds_names_their_series(runs):
    found = readings(runs[:3])
    for one in found[:2]:
        one.troubles["no disk"] = ["traffic"]
    assert ("not shown: traffic: no disk", ["small (2 seeds)"]) in cautions(found)
    found[0].troubles["no disk"].append("epsilon")
    assert ("not shown: traffic: no disk", ["small, seed 4"]) in cautions(found)


def test_every_epsilon_has_its_terms(text):
    said = section(text, "privacy")
    for word in ("eavesdropper", "replace-one", "1e-05", "exact GDP", "assumes", "caveat"):
        assert word in said


def test_what_differs_is_told_once(text):
    said = section(text, "scenario")
    assert "network.link.latency 10 ms 10 ms 40 ms 10 ms" in re.sub(r" +", " ", said)
    assert "algorithm.alpha 0.1" not in re.sub(r" +", " ", said)


def test_nothing_is_loaded_and_nothing_has_a_style_of_its_own(text):
    body = text.split("</style>")[-1].split("<script")[0]
    assert not re.search(r"(src|href)=\"(?!#)|\sstyle=|\son\w+=\"", body)
    assert "default-src &#39;none&#39;" in text


def check_targets(module, runs):
    """Time to a target is that of the run itself, and the default is met by every run."""
    found = readings(runs[:3])
    targets = module.default_targets(found)
    assert [name for name, _ in targets] == ["error", "error"]
    for one in found:
        for name, value in targets:
            assert module.reached(one, (name, value))["time"] == one.run.time_to(name, value)
    met = [[np.isfinite(one.run.time_to(*target)) for one in found] for target in targets]
    assert sum(met[0]) >= 2
    assert all(met[1])
    assert all(one.run.time_to(*target) > 0.0 for one in found for target in targets)
    best = min(one.curves["error"].value.min() for one in found)
    assert module.reached(found[0], ("error", 0.5 * best))["time"] == np.inf
    assert np.isnan(module.reached(found[0], ("accuracy", 0.5))["time"])


def test_targets_are_those_of_the_runs(runs):
    check_targets(results, runs)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.ceil(round(", "np.floor(round("),
        ("first_met(name, curve.value, value)", "first_met(name, curve.value, 0.9 * value)"),
        ("first_met(name, curve.value, value)", "len(curve.value) - 1"),
        ("np.inf if name in asked else np.nan", "np.inf"),
        ("ranks[-1])", "ranks[0])"),
    ],
)
def test_wrong_targets_are_noticed(runs, right, wrong):
    with pytest.raises(AssertionError):
        check_targets(mutant(results, right, wrong), runs)


def check_thinning(module):
    """Few rows are all kept; of many the ends, and every peak of one row."""
    value = np.zeros(100_000)
    value[[37, 5_500, 99_998]] = [1.0, -1.0, 2.0]
    rows = module.thinned(value, 400)
    assert len(rows) <= 402
    assert {0, 37, 5_500, 99_998, 99_999} <= set(rows.tolist())
    assert (np.diff(rows) > 0).all()
    assert module.thinned(value[:400], 400).tolist() == list(range(400))


def test_thinned_curves_keep_their_peaks():
    check_thinning(page)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.nanargmax(part)", "0"),
        ("np.nanargmin(part)", "0"),
        ("(1, most // 4)", "(1, most)"),
    ],
)
def test_wrong_thinning_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_thinning(mutant(page, right, wrong))


def test_embedded_data_cannot_end_their_element():
    data = {"name": "</script><!--\u2028&amp;"}
    told = page.embedded(data)
    assert not set("<>&\u2028") & set(told)
    assert json.loads(told) == data
    with pytest.raises(ValueError, match="not JSON compliant"):
        page.embedded([float("nan")])


class Long:
    """A run in memory with four metrics of 10^5 rows each."""

    def table(self, name, columns=None):
        n = 100_000
        rng = np.random.default_rng(1)
        time = np.cumsum(rng.random(n))
        kinds = {"events": ["deliver"] * n, "metrics": ["a", "b", "c", "d"] * (n // 4)}
        table = {
            "events": {"kind": kinds["events"], "agent": 0, "peer": 1, "bytes": 64},
            "metrics": {"metric": kinds["metrics"], "agent": -1, "value": rng.random(n)},
            "releases": {},
        }[name]
        frame = pd.DataFrame({"time": time, "round": np.arange(n), **table})
        frame = frame if name != "releases" else frame.iloc[:0]
        return frame[list(columns)] if columns else frame

    def arrays(self, name):
        return {}


@pytest.mark.slow
def test_long_runs_make_a_small_page(monkeypatch):
    reading = "desim.interface.reports.readable.Reading"
    monkeypatch.setattr(
        "desim.interface.reports.readable.delivered_by",
        lambda run, times: 64.0 * np.arange(len(times)),
    )
    monkeypatch.setattr(f"{reading}.released", 0)
    found = readings([Run({"name": f"run {n}", "status": "done"}, Long()) for n in range(10)])
    told = page.embedded(page.chart_data(found))
    assert len(told.encode()) < 2_500_000
    assert "cut into" in page.thinning(found)


def test_the_library_is_the_one_that_is_named():
    source = (page.ASSETS / "uplot.min.js").read_bytes()
    assert f"(v{page.UPLOT})".encode() in source[:120]
    assert hashlib.sha256(source).hexdigest() == (
        "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f"
    )
    assert "MIT License" in (page.ASSETS / "uplot.LICENSE").read_text("utf-8")


def test_a_report_needs_runs_and_a_place(runs, tmp_path):
    with pytest.raises(InputError, match="found 0 runs"):
        desim.report([], tmp_path / "r.html")
    with pytest.raises(InputError, match="is a directory"):
        desim.report(runs, tmp_path)
    with pytest.raises(InputError, match="found metric 'accuracy'; allowed: error, consensus"):
        desim.report(runs, tmp_path / "r.html", {"accuracy": 0.9})
    assert not (tmp_path / "r.html").exists()


@pytest.fixture
def bad(tmp_path):
    """Runs that failed, were killed, lost files, saw nothing, or are of another desim."""
    failed = played(tmp_path / "failed", name="failed")
    manipulated(failed, status="failed", reason="diverged: agent 0")
    old = played(tmp_path / "old", name="old")
    rewritten(manipulated(old, versions={"desim": "0.0.3"}), "future: 3\n")
    bare = played(tmp_path / "bare", name="bare")
    for file in bare.directory.glob("*.parquet"):
        file.unlink()
    (bare.directory / "scenario.yaml").write_bytes(b"\xff\xfe")
    played(tmp_path / "blind", name="blind", observe__metrics=[])
    played(tmp_path / "rounds", name="rounds", log="rounds")
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "manifest.json").write_text('{"name": "begun", "status": "running"}')
    return [tmp_path / name for name in ("failed", "old", "bare", "blind", "rounds", "begun")]


def test_what_can_be_shown_of_bad_runs_is_shown(bad, tmp_path, capsys):
    out = tmp_path / "r.html"
    with pytest.raises(SystemExit) as left:
        main(["report", *map(str, bad), "-o", str(out), "--target", "error=2"])
    assert (left.value.code, capsys.readouterr().out) == (0, f"{out}\n")
    warned = section(out.read_text("utf-8"), "warnings")
    for expected in (
        "failed : failed: diverged: agent 0",
        "simulated by desim 0.0.3",
        "future: unknown key",
        "metrics.parquet is missing",
        "blind, begun : no metric",
        "which run rounds leaves out",
        "begun : interrupted",
    ):
        assert expected in warned, expected
    for path in bad:  # each by itself, too
        desim.report(desim.open(path), out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "not a run directory"),
        (["a", "--target", "error"], "found 'error'; allowed: METRIC=VALUE"),
        (["a", "--target", "accuracy=1"], "found metric 'accuracy'; allowed: error"),
        (["a", "-o", "a"], "is a directory; allowed: a file"),
        (["a", "-o", "a/manifest.json/r.html"], "cannot be written"),
    ],
)
def test_bad_arguments_are_told(runs, arguments, said, monkeypatch, capsys):
    monkeypatch.chdir(runs[0].directory.parent)
    with pytest.raises(SystemExit) as left:
        main(["report", *arguments])
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_the_medians_stand_first_and_never_is_a_time(runs):
    found = readings(runs[:3])
    strict, lax = (results.time_to_targets(found, [("error", at)])[0] for at in (1e-9, 9.0))
    assert strict.rows[0] == ["small: median of 2 seeds", *["never"] * 4]
    assert [row[0] for row in strict.rows[1:]] == ["slow"]
    assert [row[0] for row in strict.more[0].rows] == ["small, seed 3", "small, seed 4"]
    assert [row[1][:14] for row in strict.more[0].rows] == ["never, at best"] * 2
    assert lax.rows[0][1:] == ["0 s", "0", "0 B", "0"]
    assert all(strict.numeric[1:])


def test_a_run_that_failed_is_told_about_but_not_averaged(runs, tmp_path):
    failed = manipulated(played(tmp_path / "e", seed=5), status="failed")
    found = readings([failed, *runs[:2]])
    assert [(one.label, one.series) for one in found] == [
        ("small, seed 3", "small"), ("small, seed 4", "small"), ("small, seed 5", "small"),
    ]  # fmt: skip
    made = results.time_to_targets(found, [("error", 9.0)])[0]
    assert [row[0] for row in made.rows] == ["small: median of 3 seeds"]
    assert [row[0] for row in made.more[0].rows] == [one.label for one in found]
    ended = results.headline(found)
    assert [row[:2] for row in ended.rows] == [["small: 3 seeds", "2 done, 1 failed"]]
    two = results.headline(found[:2]).rows[0]
    assert ended.rows[0][2:] == two[2:]
    assert [row[0] for row in ended.more[0].rows] == [one.label for one in found]


def test_a_run_that_failed_before_it_was_measured_is_the_worst_of_a_chart(runs, tmp_path):
    failed = manipulated(played(tmp_path / "e", seed=5, observe__metrics=[]), status="failed")
    made = page.chart_data(readings({"small": [*runs[:2], failed]}))
    assert [(one["group"], one["failed"]) for one in made["runs"]] == [
        (0, False), (0, False), (0, True),
    ]  # fmt: skip
    assert made["runs"][2]["curves"]["error"]["value"] == [None]
    assert None not in made["runs"][0]["curves"]["error"]["value"]


def test_runs_in_memory_and_by_label_have_a_report_too(tmp_path):
    runs = [desim.run(SCENARIO), desim.run(SCENARIO, overrides={"seed": 4})]
    given = {"mine": [*runs, runs[0]]}
    text = desim.report(given, tmp_path / "new" / "r.html").read_text("utf-8")
    assert "mine: median of 2 seeds" in text
    assert "in memory" in section(text, "manifest")
