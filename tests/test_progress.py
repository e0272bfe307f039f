"""How fast a run goes and how long it will take; what lists say methods need; other versions."""

import json
from hashlib import sha256

import pytest
from mutant import mutant

import desim
from desim import pace
from desim.errors import InputError
from desim.interface.cli import main, progress
from desim.runs import directory
from desim.scenario import registry


def check_pace(module):
    """Ten rounds a second, then five; of a thousand, and resumed at half."""
    now = [100.0]
    pace = module.Pace(lambda: now[0])
    assert pace.words(500, 0.5, "rounds/s") == ""
    now[0] += 0.1
    assert pace.words(501, 0.501, "rounds/s") == ""
    now[0] += 9.9
    assert pace.words(600, 0.6, "rounds/s") == ", 10 rounds/s, 40 s left"
    for _ in range(20):
        now[0] += 1.0
        text = pace.words(600, 0.6, "rounds/s")
    assert text == ", 3.31 rounds/s, 2 min 1 s left"  # 99 in the 29.9 s since 501
    for step in range(1, 21):
        now[0] += 1.0
        text = pace.words(600 + 5 * step, 0.6 + 0.005 * step, "rounds/s")
    assert text == ", 5 rounds/s, 1 min 0 s left"
    assert pace.words(700, None, "rounds/s").endswith("rounds/s")
    slow = module.Pace(lambda: now[0])
    for second in range(110):  # rounds of 25 s, looked at every second
        now[0] += 1.0
        text = slow.words(second // 25, 0.1 * (second // 25), "rounds/s")
        if second > 24 and second % 25 == 0:
            assert text.startswith(", 0.04 rounds/s")
    assert text == ", 0.0294 rounds/s, 3 min 24 s left"  # one in the 34 s since 3 were done


def test_pace_is_that_of_the_latest_seconds():
    check_pace(pace)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("share or 0.0) - had", "share or 0.0)"),
        ("self.samples.popleft()", "break"),
        ("(count - before)", "count"),
        ("if not self.samples or count != self.samples[-1][1]", "if True"),
        ("SETTLED = 0.5", "SETTLED = 0.0"),
    ],
)
def test_a_wrong_pace_is_noticed(right, wrong):
    with pytest.raises((AssertionError, ZeroDivisionError)):
        check_pace(mutant(pace, right, wrong))


def check_lines(module, capsys):
    """A tenth that takes less than 5 s waits for the next; a minute without one is told."""
    now = [0.0]
    lines = module.Lines(lambda: now[0])
    told = []
    shares = [(1, 0.3), (4.9, 0.5), (5, 0.5), (6, 0.6), (9, 0.7), (11, 0.75), (60, 0.75)]
    shares += [(71, 0.75), (72, 0.79), (73, 0.8), (76, 0.8), (200, None)]
    for seconds, done in shares:
        now[0] = seconds
        lines.show("a", done)
        told += [(seconds, line) for line in capsys.readouterr().err.splitlines()]
    assert told == [(5, "a (50%)"), (11, "a (75%)"), (71, "a (75%)"), (76, "a (80%)"), (200, "a")]


def test_without_a_terminal_there_are_few_lines(capsys):
    check_lines(progress, capsys)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("waited >= SOON", "True"),
        ("waited >= LATE", "False"),
        ("tenth > self.tenth and", "True and"),
        ("self.latest, self.tenth = now, tenth", "self.tenth = tenth"),
    ],
)
def test_wrong_lines_are_noticed(right, wrong, capsys):
    with pytest.raises(AssertionError):
        check_lines(mutant(progress, right, wrong), capsys)


def test_lists_say_what_methods_need(capsys):
    with pytest.raises(SystemExit):
        main(["list", "algorithms"])
    lines = capsys.readouterr().out.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("  d-zoa "))
    for text in ("Gratton", "a graph", "a convex loss", "values of the loss only"):
        assert text in lines[at + 1]
    assert "a star or a graph" in " ".join(registry.get("led").needs())
    assert registry.get("gradient-descent").needs()[0] == "one agent"
    assert "a protected attribute" in registry.get("adfc").needs()
    assert "a smooth loss" not in registry.get("pflr").needs()
    for name in registry.names():
        assert len(registry.get(name).needs()) >= 2, name


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """stored(**changes): a run directory whose manifest says otherwise; one round, in Python."""
    monkeypatch.setenv("DESIM_COMPILE", "never")
    scenario = {
        "name": "small",
        "problem": {
            "agents": 2,
            "data": {"source": "synthetic", "kind": "regression", "rows": 4, "dim": 2},
            "loss": "squared",
        },
        "algorithm": {"name": "fedavg"},
        "stop": {"rounds": 1},
    }
    desim.run(scenario, tmp_path / "r")

    def change(text="", **changes):
        path = tmp_path / "r" / "manifest.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        with (tmp_path / "r" / "scenario.yaml").open("a") as file:
            file.write(text)
        digest = sha256((tmp_path / "r" / "scenario.yaml").read_bytes()).hexdigest()
        told = json.loads(path.read_text()) | {"scenario_sha256": digest}
        path.write_text(json.dumps(told))
        return tmp_path / "r"

    return change


def test_a_run_of_another_version_is_read_and_says_so(stored, capsys):
    run = stored(versions={"desim": "0.0.1"})
    with pytest.raises(SystemExit) as end:
        main(["show", str(run)])
    assert end.value.code == 0
    told = f"stored by desim 0.0.1, and this is {desim.__version__}"
    assert told in capsys.readouterr().out
    assert told in directory.written_by({"versions": {"desim": "0.0.1"}})
    assert directory.written_by({"versions": {"desim": desim.__version__}}) == ""
    assert directory.written_by({}) == ""


def test_what_another_version_alone_can_read_is_refused_with_the_version(stored, capsys):
    run = desim.open(stored(text="gravity: 9.81\n", versions={"desim": "9.0.0"}))
    with pytest.raises(InputError, match=r"stored by desim 9\.0\.0, and this is .*gravity"):
        run.scenario  # noqa: B018
    assert len(run.metrics)
    with pytest.raises(SystemExit) as end:
        main(["show", str(run.directory)])
    assert end.value.code == 0
    with pytest.raises(InputError, match=r"stored by desim 9\.0\.0.*in format 2; allowed: formats"):
        desim.open(stored(format=2))


def test_damaged_formats_and_studies_are_no_runs(stored, tmp_path):
    with pytest.raises(InputError, match="not a manifest of desim"):
        desim.open(stored(format="two"))
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "study.json").write_text("{}")
    with pytest.raises(InputError, match="a study: its runs are in runs/"):
        desim.open(tmp_path / "s")
