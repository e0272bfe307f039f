"""`desim study`: what it prints, where it goes on, and its exit codes."""

import json

import pytest
from study_scenes import BASE, changed, with_failures

from desim.errors import InputError
from desim.experiments.studies.study import study
from desim.interface.cli import main, progress
from desim.interface.cli.commands.study import memory_size


@pytest.fixture
def call(tmp_path, monkeypatch, capsys):
    """call(study, argument, ...): exit code, standard output and error of `desim study`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "SOON", 600.0)  # the lines of a slow machine are not looked at

    def call(written, *arguments):
        (tmp_path / "s.yaml").write_text(json.dumps(written))
        with pytest.raises(SystemExit) as end:
            main(["study", "s.yaml", *arguments])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


SMALL = changed(grid={"policy": ["all", {"quorum": 2}], "seed": "0..2"}, name="small")
SMALL["compare"] = {"targets": {"error": 0.5}, "level": 0.9}


def test_a_study_prints_its_tables_and_goes_on_where_it_was(call):
    code, out, err = call(SMALL, "--workers", "0")
    lines = out.splitlines()
    assert (code, err) == (0, "")
    assert lines[:2] == ["small: 2 cases, 6 runs: 6 done", "  stored in studies/small"]
    assert lines[3] == "time to error 0.5"
    assert lines[4].split() == (
        "case median 90% interval done failed never "
        "against ratio interval better (sign test)".split()
    )
    assert lines[5].startswith("  policy all")
    assert "policy all" in lines[6].partition("policy {quorum: 2}")[2]
    code, again, _ = call(SMALL, "--workers", "0")
    assert (code, again) == (0, out.replace("6 done", "6 done (6 stored before)"))


def test_another_study_s_folder_is_refused(call, tmp_path):
    assert call(SMALL, "--workers", "0", "-o", "here")[0] == 0
    before = sorted(tmp_path.rglob("*"))
    code, _, err = call({**SMALL, "name": "other"}, "--workers", "0", "-o", "here")
    assert code == 2
    assert err == "here: holds the study small; allowed: a new directory, or other's\n"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_is_no_study(tmp_path, capsys):
    with pytest.raises(SystemExit) as end:
        main(["study", str(tmp_path)])
    assert end.value.code == 2
    assert capsys.readouterr().err == f"{tmp_path}: found a directory; allowed: a file\n"


def test_a_dry_run_plays_nothing(call, tmp_path):
    code, out, _ = call(SMALL, "--dry-run")
    assert code == 0
    assert out.splitlines() == [
        "small: 2 cases, 6 runs, 0 stored",
        "  policy all: seeds 0 to 2",
        "  policy {quorum: 2}: seeds 0 to 2",
        "  goes to studies/small",
    ]
    assert not (tmp_path / "studies").exists()


def test_failures_are_told_with_their_reason(call):
    code, out, err = call(with_failures(), "--workers", "0")
    assert (code, err) == (1, "3 of 6 runs failed; the same command tries them again\n")
    assert out.startswith("policies: 2 cases, 6 runs: 3 done, 3 failed\n")
    assert "  failed once: diverged: the model of agent" in out
    assert "final loss" in out


def test_a_study_without_any_result_fails(call):
    wrong = changed(grid={"algorithm.local.step": [1e9], "seed": [1]}, compare={})
    code, out, err = call(wrong, "--workers", "0")
    assert code == 1
    assert "1 failed" in out
    assert err == "no run came to its end\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--memory", "2 XB"], "--memory: found unit 'XB' in '2 XB'; allowed: a size such as 2 GB"),
        (["--memory", "inf"], "--memory: found 'inf'; allowed: a size such as 2 GB"),
        (["--memory", "-2 GB"], "--memory: found '-2 GB'; allowed: a size such as 2 GB"),
        (["--workers", "-1"], "workers: found -1"),
        (["--set", "seed=3"], "override seed: the study varies it"),
        (["--set", "algorithm.rhoo=3"], "algorithm.rhoo: unknown key"),
        (["-o", "s.yaml"], "s.yaml: is a file"),
        (["--dask", "tcp://x:1", "--workers", "2"], "dask: found workers"),
    ],
)
def test_mistakes_are_told(call, arguments, message):
    code, out, err = call(SMALL, *arguments)
    assert (code, out) == (2, "")
    assert message in err


def test_sizes_have_units():
    assert memory_size("2 GB") == memory_size("2GB") == 2e9
    assert memory_size("1.5 GiB") == 1.5 * 2**30
    assert memory_size("500000000") == 5e8
    with pytest.raises(InputError, match="--memory: found 'GB'"):
        memory_size("GB")


@pytest.mark.slow
def test_a_long_table_is_cut():
    many = changed(grid={"algorithm.rho": [1.0 + 0.01 * n for n in range(45)], "seed": [1]})
    many["base"] = {**BASE, "stop": {"rounds": 1}}
    many["compare"] = {}
    lines = study(many, workers=0).text().splitlines()
    assert sum(line == "  ... and 5 more cases, in summary.parquet" for line in lines) == 2


def test_a_dry_run_builds_each_case(call):
    wrong = {**SMALL, "grid": {"compute.speed": [100, [1, 2]], "seed": [1, 2]}, "compare": {}}
    code, out, err = call(wrong, "--dry-run")
    assert (code, out) == (2, "")
    assert err.startswith("case speed [1, 2]: ")
    assert "compute.speed: found 2 entries for" in err
    assert err.count("\n") == 1
