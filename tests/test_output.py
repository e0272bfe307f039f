"""What `-o` may replace: files, through links; never a pipe, a device or a link itself."""

import os

import pytest

from desim.errors import InputError
from desim.interface.cli import main
from desim.runs.directory import OWN, output


def call(capsys, *arguments):
    with pytest.raises(SystemExit) as end:
        main([str(one) for one in arguments])
    return end.value.code, capsys.readouterr().err


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    import desim

    data = {"source": "synthetic", "kind": "classification", "rows": 4, "dim": 3}
    return desim.run(
        {
            "name": "tiny",
            "problem": {"agents": 2, "data": data, "loss": "logistic", "regularizer": {"l2": 1.0}},
            "algorithm": {"name": "fed-plt", "rho": 1.0},
            "observe": {"metrics": ["error"]},
            "stop": {"rounds": 2},
        },
        tmp_path_factory.mktemp("run") / "tiny",
    ).directory


COMMANDS = [["report"], ["plot"], ["compare"], ["export", "--to", "perfetto"]]
ENDINGS = {"report": ".html", "plot": ".png", "compare": ".md", "export": ".pftrace"}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_is_no_file_is_refused_links_followed_and_folders_made(run, tmp_path, capsys, command):
    name, *more = command
    pipe = tmp_path / "pipe.png"
    os.mkfifo(pipe)
    code, told = call(capsys, name, run, *more, "-o", pipe)
    assert (code, told) == (2, f"{pipe}: is no regular file; allowed: a file, old or new\n")
    assert pipe.is_fifo()
    link, end = tmp_path / "link.png", tmp_path / "some" / "where" / f"end{ENDINGS[name]}"
    link.symlink_to(end)
    for _ in range(2):
        assert call(capsys, name, run, *more, "-o", link)[0] == 0
        assert link.is_symlink()
        assert [one.name for one in end.parent.iterdir()] == [end.name]
    assert end.stat().st_size > 50


def test_a_pipe_in_a_folder_of_tables_stays(run, tmp_path, capsys):
    os.mkfifo(tmp_path / "events.csv")
    code, told = call(capsys, "export", run, "--to", "csv", "-o", tmp_path)
    assert (code, "events.csv: is no regular file" in told) == (2, True)
    assert (tmp_path / "events.csv").is_fifo()


def half(path):
    path.write_text("new")
    raise OSError(28, "No space left on device")


def test_a_write_that_fails_leaves_what_was_there(tmp_path):
    path = tmp_path / "a"
    path.write_text("old")
    with pytest.raises(InputError, match="cannot be written"), output(path) as partial:
        half(partial)
    assert [one.read_text() for one in tmp_path.iterdir()] == ["old"]
    path.unlink()
    path.symlink_to(path)  # leads nowhere but to itself
    with pytest.raises(InputError, match="no regular file"), output(path):
        pass
    assert path.is_symlink()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["report", "--target", "error=nan"], "target: error: found nan; allowed: a finite number"),
        (["compare", "--target", "error=inf"], "error: found inf; allowed: a finite number"),
        (["plot", "--kind", "bars", "--target", "nan"], "found nan; allowed: a finite number"),
        (
            ["export", "--to", "foo"],
            "--to: found 'foo'; allowed: perfetto, csv, public, tensorboard, mlflow\n",
        ),
        (["export", "--to", "perfeto"], "did you mean 'perfetto'?"),
        (["plot", "--kind", "bar"], "did you mean 'bars'?"),
        (["plot", "--x", "tim"], "did you mean 'time'?"),
        (["compare", "--format", "latx"], "did you mean 'latex'?"),
    ],
)
def test_values_are_refused_with_what_is_allowed(run, capsys, arguments, told):
    before = sorted(run.iterdir())
    code, text = call(capsys, arguments[0], run, *arguments[1:])
    assert (code, told in text) == (2, True), text
    assert sorted(run.iterdir()) == before


@pytest.mark.parametrize("command", COMMANDS)
def test_files_of_a_run_and_of_other_kinds_stay(run, tmp_path, capsys, command):
    name, *more = command
    stored = {one.name: one.read_bytes() for one in run.iterdir() if one.is_file()}
    for own in stored.keys() & set(OWN):
        code, told = call(capsys, name, run, *more, "-o", run / own)
        assert (code, f"{run / own}: " in told) == (2, True)
    other = tmp_path / "mine.yaml"
    other.write_text("seed: 3")
    code, told = call(capsys, name, run, *more, "-o", other)
    assert (code, other.read_text(), "allowed: " in told) == (2, "seed: 3", True)
    assert {one: (run / one).read_bytes() for one in stored} == stored


def test_a_file_that_a_run_would_have_is_not_made_in_its_folder(run, tmp_path):
    text = f"is a file of the run in {run}; allowed: a new file, or one of .npz"
    with pytest.raises(InputError, match=text), output(run / "iterates.npz", [".npz"]):
        pass
    empty = tmp_path / "empty"
    empty.touch()
    for words in ("new", "again"):
        with output(empty.with_suffix(".txt"), [".txt"]) as partial:
            partial.write_text(words)
    with output(empty, [".txt"]) as partial:
        partial.write_text("nothing is lost")
    with pytest.raises(InputError, match="exists, and is of another kind"):
        with output(empty, [".txt"]) as partial:
            partial.write_text("this would be")
    assert empty.read_text() == "nothing is lost"


@pytest.mark.parametrize("command", ["plot", "report", "compare", "show", "check"])
def test_a_link_that_leads_to_itself_is_told_in_words(command, tmp_path, capsys):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    code, told = call(capsys, command, loop)
    assert (code, "Too many levels of symbolic links" in told) == (2, True)


@pytest.mark.parametrize("command", ["check", "run"])
def test_a_study_that_is_taken_for_a_scenario_is_called_one(command, tmp_path, capsys):
    study = tmp_path / "few.yaml"
    study.write_text("base: quickstart\ngrid: {seed: [1, 2]}\n")
    cure = f"desim study {study} --dry-run checks and lists its cases"
    told = f"{study}: is a study; allowed: a scenario ({cure})\n"
    assert call(capsys, command, study) == (2, told)
