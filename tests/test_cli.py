"""The command line: what it prints, where, with which exit code, and that it starts fast."""

import json
import re
import signal
import subprocess
import sys
import typing
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import typer
from mutant import mutant
from staged import DEVICES, TEXT, Staged
from typer.testing import CliRunner

import desim
from desim import __main__ as start
from desim import amounts, pace
from desim.columns import columns_of
from desim.errors import AtOnce, InputError
from desim.interface.cli import COMMANDS, Command, main, progress
from desim.runs import recording
from desim.runs.reading import waits
from desim.scenario import build, catalogue, registry


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty working directory with the scenario s.yaml, played as staged."""
    monkeypatch.chdir(tmp_path)
    Path("s.yaml").write_text(TEXT)
    monkeypatch.setattr(recording, "build", lambda scenario: Staged())
    monkeypatch.setattr(build, "check", lambda scenario: Staged())
    return tmp_path


@pytest.fixture
def call(capsys):
    """call(argument, ...): exit code, standard output and standard error of one command.

    What is said of a first run's compilation and of devices is left out.
    """

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(list(arguments))
        captured = capsys.readouterr()
        told = captured.err.splitlines(keepends=True)
        apart = "compiling ", "compiled ", DEVICES
        err = "".join(line for line in told if not line.startswith(apart))
        return end.value.code, captured.out, err

    return call


SHOWN = """\
staged: done
  stored in     runs/staged
  ended         4 rounds done
  engine        cohort (staged)
  virtual time  4.4 s, 4 rounds; wall clock 0 s
  messages      12 sent, 0 delivered (0 B)
  accuracy      0.9375 (measured at 4.4 s, round 4)
  error         0.0625 (measured at 4.4 s, round 4)
  slowest       agent 2, last in 75% of rounds; agent 0 in 25%
  warning       rho is large
"""


def without_wall_clock(text):
    head, clock, tail = text.partition("wall clock ")
    return head + clock + "0 s\n" + tail.partition("\n")[2]


def test_run_and_show_say_the_same(desk, call):
    code, out, err = call("run", "s.yaml")
    assert (code, without_wall_clock(out), err) == (0, SHOWN, "")
    assert call("show", "runs/staged") == (0, out, "")


def test_runs_get_directories_of_their_own(desk, call):
    for _ in range(3):
        assert call("run", "s.yaml")[0] == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == [
        "staged",
        "staged-2",
        "staged-3",
    ]
    code, _, err = call("run", "s.yaml", "-o", "runs/staged")
    assert (code, "is not empty" in err) == (2, True)
    assert "give another -o, or replace the run that is there by --force" in err
    assert "desim resume" not in err  # it is done
    code, _, err = call("audit", "s.yaml", "-o", "runs/staged", "--runs", "20")
    assert (code, "give another -o" in err, "--force" in err) == (2, True, False)  # has none
    assert call("run", "s.yaml", "-o", "runs/staged", "--force")[0] == 0


def test_no_run_is_stored_inside_another_one(desk, call):
    assert call("run", "s.yaml", "-o", "one")[0] == 0
    before = sorted(Path("one").rglob("*"))
    for inside in ("one/two", "one/parts/two"):
        code, _, err = call("run", "s.yaml", "-o", inside)
        assert (code, f"{inside}: is inside a run, " in err) == (2, True)
    assert sorted(Path("one").rglob("*")) == before
    assert "one: is a directory; allowed: a file in it" in call("plot", "one", "-o", "one")[2]
    Path("web").mkdir()
    Path("web/manifest.json").touch()  # of something else
    assert call("run", "s.yaml", "-o", "web/run")[0] == 0


@pytest.mark.parametrize(("status", "more"), [
    ("running", True), ("stopped", True), ("done", False), ("failed", False), (1, False),
])  # fmt: skip
def test_a_run_that_can_go_on_is_offered_resume(status, more, desk, call):
    assert call("run", "s.yaml", "-o", "one")[0] == 0
    manifest = Path("one/manifest.json")
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"status": status}))
    code, _, err = call("run", "s.yaml", "-o", "one")
    assert (code, "(give another -o, go on with it by desim resume one, or" in err) == (2, more)


def test_set_overrides_the_file(desk, call):
    settings = ("--set", "algorithm.rho=1e-1", "--set", "stop={rounds: 9}")
    assert call("run", "s.yaml", "-o", "a", *settings)[0] == 0
    scenario = desim.open("a").scenario
    assert (scenario.algorithm.parameters.rho, scenario.stop.rounds) == (0.1, 9)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "none.yaml: no such file"),
        (["run", "s.yaml", "--set", "seed"], "--set: found 'seed'; allowed: KEY=VALUE"),
        (["run", "s.yaml", "--set", "seed=-1"], "seed"),
        (["run", "s.yaml", "-o", "s.yaml"], "s.yaml: is a file"),
        (["check", "s.yaml", "--set", "algorithm.roh=1"], "rho"),
        (["show", "nothing"], "nothing: not a run directory (there is nothing)"),
        (["show", ""], "found ''; allowed: a name, or . for this directory"),
        (["check", ""], "found ''; allowed: a name, or . for this directory"),
        (["compare", "a", "b", "--view", ""], "found ''; allowed: a value, or to leave"),
        (["compare", "a", "b", "--label", "x", "--label", ""], "found ''; allowed: a value"),
        (["run", "s.yaml", "--force"], "--force: found without -o; allowed: with it"),
        (["plot", "nothing"], "nothing: not a run directory"),
        (["list", ""], "list: found ''; allowed: algorithms, losses"),
        (["list", "algoritms"], "did you mean 'algorithms'?"),
        (["schema", "-o", f"{__file__}/where.json"], "where.json: cannot be written"),
        (["jump"], "jump"),
        (["plot", "runs/staged", "--x", "hours"], "hours"),
    ],
)
def test_bad_input_is_one_clear_error(desk, call, arguments, message):
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    assert message in " ".join(err.split())
    assert "Traceback" not in err
    assert [path.name for path in desk.iterdir()] == ["s.yaml"]


def test_a_failed_run_says_why(desk, call, monkeypatch):
    monkeypatch.setattr(recording, "build", lambda scenario: Staged("diverged"))
    assert call("run", "s.yaml") == (1, "", "diverged: agent 1, round 4\n")
    code, out, _ = call("show", "runs/staged")
    assert code == 0
    assert "staged: failed\n" in out
    assert "ended         diverged: agent 1, round 4" in out


def test_a_stopped_run_exits_with_one(desk, call, monkeypatch):
    def interrupted(now):
        raise KeyboardInterrupt

    monkeypatch.setattr(recording.Interruption, "check", interrupted)
    code, out, err = call("run", "s.yaml")
    assert (code, err) == (1, "stopped: interrupted by Ctrl-C\n")
    assert "staged: stopped\n" in out


def test_a_ctrl_c_more_does_not_hide_what_was_stopped(desk, call, monkeypatch):
    def pressed(run):
        signal.raise_signal(signal.SIGINT)
        return [("pressed", "again")]

    monkeypatch.setattr(recording.Interruption, "check", ended)
    monkeypatch.setattr("desim.runs.reading.facts.facts", pressed)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    code, out, err = call("run", "s.yaml")
    assert (code, err) == (1, "stopped: interrupted by Ctrl-C\n")
    assert "  pressed  again\n" in out
    assert signal.signal(signal.SIGINT, before) is signal.default_int_handler


def test_ctrl_c_before_the_run_writes_nothing(desk, call, monkeypatch):
    def interrupted(scenario):
        raise KeyboardInterrupt

    monkeypatch.setattr(recording, "build", interrupted)
    assert call("run", "s.yaml") == (130, "", "stopped before the run began; nothing was written\n")
    assert not Path("runs").exists()


def test_check_says_what_would_run(desk, call):
    assert call("check", "s.yaml") == (
        0,
        "ok: staged: fed-plt, 3 agents, 12 rows, 5 features, logistic loss, star topology, "
        "cohort engine (staged), until 4 rounds\n"
        "  devices: a gradient of one row takes 1 ms\n"
        "  warning: staged: nothing is computed\n",
        "",
    )
    assert [path.name for path in desk.iterdir()] == ["s.yaml"]


def test_plot_makes_a_file_in_the_run(desk, call):
    call("run", "s.yaml", "-o", "a")
    assert call("plot", "a") == (0, "a/accuracy-time.png\n", "")
    assert Path("a/accuracy-time.png").stat().st_size > 1000
    more = ("--x", "bytes", "--metric", "error", "-o", "two.svg")
    assert call("plot", "a", "a", *more) == (0, "two.svg\n", "")


def test_list_begins_with_five_and_has_a_line_for_each_section(call):
    code, out, _ = call("list")
    assert code == 0
    lines = out.splitlines()
    assert len(lines) <= 23  # and a prompt: what a terminal has
    assert max(map(len, lines)) <= catalogue.WIDTH
    assert sum("desim run " in line or "desim study " in line for line in lines) == 5
    heads = [line.split()[0] for line in lines[8:]]
    assert heads == [name for name, entries in catalogue.SECTIONS.items() if entries()]


def test_list_knows_all_algorithms_and_whole_sections(call):
    code, out, _ = call("list", "algorithms")
    assert code == 0
    assert all(f"  {name} " in out for name in registry.names())
    code, out, _ = call("list", "codecs")
    assert [line.split()[0] for line in out.splitlines()] == (
        ["none", "float32", "float16", "{top-k:", "{random-k:", "{quantise:"]
    )
    code, out, _ = call("list", "losses")
    assert out.splitlines()[0] == "  logistic        log(1 + exp(-b a.x)), labels b in {-1, 1}"


@pytest.mark.parametrize("section", catalogue.SECTIONS)
def test_every_entry_of_a_list_is_described(section):
    entries = catalogue.SECTIONS[section]()
    assert len(entries) >= 2 or section in catalogue.NONE
    assert all(name and about for name, about in entries)


def test_list_says_how_models_come_and_names_those_of_packages(call, monkeypatch):
    none = catalogue.registry.Known(*({} for _ in catalogue.registry.Known._fields))
    monkeypatch.setattr(catalogue.registry, "plugged", lambda: none)
    code, out, _ = call("list", "models")
    assert (code, out.strip()) == (0, catalogue.NONE["models"])
    brought = none._replace(models={"mine": type("Mine", (), {"summary": "a network"})})
    monkeypatch.setattr(catalogue.registry, "plugged", lambda: brought)
    assert call("list", "models")[1].split() == ["mine", "a", "network"]


def test_schema_is_json(call, tmp_path):
    code, out, _ = call("schema")
    assert code == 0
    assert {"problem", "algorithm", "network", "stop"} <= json.loads(out)["properties"].keys()
    call("schema", "-o", str(tmp_path / "s.json"))
    assert (tmp_path / "s.json").read_text() == out


def test_version_and_help(call):
    code, out, _ = call("--version")
    assert (code, out) == (0, f"desim {desim.__version__}\n")
    code, out, _ = call("--help")
    assert code == 0
    assert all(name in out for name in ("run", "check", "list", "show", "plot", "schema"))


def loaded_by(code):
    heavy = "{'numba', 'numpy', 'pandas', 'pydantic', 'pyarrow', 'matplotlib', 'scipy', 'simpy'}"
    code = f"import sys\n{code}\nprint(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


@pytest.mark.slow
def test_help_has_no_escaped_brackets_in_any_command(call):
    """typer escapes them for a markup, whether that is on or off."""
    pages = {name: call(name, "--help")[1] for name in COMMANDS}
    assert "[required]" in pages["run"]
    assert "[required]" in pages["robust"]
    assert [name for name, page in pages.items() if "\\[" in page] == []
    plain, own = (typer.Typer(rich_markup_mode=None) for _ in range(2))
    plain.command()(escaped)
    own.command(cls=Command)(escaped)
    shown = [CliRunner().invoke(one, ["--help"]).output for one in (plain, own)]
    assert ["\\[here]" in page for page in shown] == [True, False]


def escaped(what: str = typer.Argument("", help="\\[here]")):
    pass


def test_help_imports_nothing_heavy():
    help_ = "from desim.interface.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass"
    assert loaded_by(help_) == "[]"
    assert "numpy" in loaded_by(help_ + "\nimport desim.runs.reading.facts")


def test_ctrl_c_during_the_imports_ends_in_words(monkeypatch, capsys):
    def interrupted(arguments=None):
        raise KeyboardInterrupt

    monkeypatch.setattr(desim.interface.cli, "main", interrupted)
    with pytest.raises(SystemExit) as end:
        start.main()
    assert (end.value.code, capsys.readouterr().err) == (130, "stopped by Ctrl-C\n")
    code = "import sys; sys.modules['desim.interface.cli'] = None\n"
    code += "from desim.__main__ import main\nmain()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "ModuleNotFoundError" in done.stderr  # what is no Ctrl-C is not hidden


def test_all_that_is_wrong_is_told_at_once(desk, call):
    Path("full").mkdir()
    Path("full/a").write_text("")
    keys = ("algorithm.rh=1", "network=wify", "seed=[", "policy=al", "algorithm.rho= ")
    settings = [text for key in keys for text in ("--set", key)]
    code, out, err = call("run", "s.yaml", "-o", "full", *settings)
    told = [
        "override seed:1: not YAML 1.2",
        "override algorithm.rho: found nothing; allowed: a value",
        "override network: found 'wify'; allowed: ",
        "override algorithm.rh: unknown key; allowed: rho,",
        "override policy: found 'al'; allowed: all,",
        "full: is not empty; allowed: a new or empty directory (give another -o)",
    ]
    lines = err.splitlines()
    assert (code, out, len(lines)) == (2, "", len(told))
    for text in told:
        assert sum(line.startswith(text) for line in lines) == 1, text
    code, _, err = call("run", "s.yaml", "--set", "a", "--set", "b")
    assert [line[:14] for line in err.splitlines()] == ["--set: found '", "--set: found '"]


def test_a_name_that_is_empty_is_not_this_folder(desk, call):
    for command in (("run", "s.yaml"), ("schema",)):
        code, out, err = call(*command, "-o", "")
        assert (code, out) == (2, "")
        assert "found ''; allowed: a name, or . for this directory" in " ".join(err.split())
    with pytest.raises(InputError, match="out: found ''"):
        desim.run("s.yaml", out="")


def test_help_says_what_a_scenario_may_be_and_how_commands_leave(call):
    told = " ".join(call("run", "--help")[1].replace("│", " ").split())
    assert "or the name of one that comes with desim (desim list scenarios)" in told
    told = " ".join(call("--help")[1].replace("│", " ").split())
    assert "--install-completion" in told
    assert "Exit codes: 0 done; 1 a run failed or was stopped" in told
    assert "Exit code 1: some runs failed" in " ".join(call("study", "--help")[1].split())


def test_every_export_is_there():
    assert dir(desim) == sorted(desim.__all__)
    for name in desim.__all__:
        assert getattr(desim, name) is not None
        assert name in dir(desim)
    assert callable(desim.run)
    with pytest.raises(AttributeError, match="no attribute 'rum'"):
        desim.rum  # noqa: B018


def check_closers(module):
    """Two collections and four barriers of a staged log, with known closers."""
    rows = [
        (1.0, "deliver", -1, 4),
        (2.0, "deliver", -1, 5),
        (2.0, "deliver", 0, 5),
        (2.0, "aggregate", -1, -1),  # agent 5
        (3.0, "deliver", -1, 4),
        (3.5, "deadline", -1, -1),
        (3.5, "aggregate", -1, -1),  # the deadline
        (4.0, "deliver", 1, 0),
        (4.0, "aggregate", 0, -1),  # its own work
        (5.0, "deliver", 2, 1),
        (5.0, "deadline", 2, -1),
        (5.0, "aggregate", 2, -1),  # agent 1, at the last instant
        (6.0, "send", 1, 7),
        (6.0, "deliver", 1, 0),
        (6.0, "aggregate", 1, -1),  # agent 0
        (7.0, "deliver", 2, 0),
        (7.0, "aggregate", 3, -1),  # its own work
        (8.0, "deliver", 3, 1),
        (8.0, "deliver", 3, 2, 2),  # ahead of the round that closes
        (8.0, "aggregate", 3, -1),  # agent 1
        (9.0, "deliver", -1, 2, 0),  # late
        (9.0, "aggregate", -1, -1),  # agent 2
        (9.0, "deliver", 4, 1, 0),  # late
        (9.0, "aggregate", 4, -1),  # its own work
    ]
    rows = [row if len(row) == 5 else (*row, 1) for row in rows]
    rows = [
        (*row, 0.5 if row[0] == 10.0 else 0.0) for row in [*rows, (10.0, "aggregate", 3, -1, 2)]
    ]
    events = pd.DataFrame(rows, columns=["time", "kind", "agent", "peer", "round", "seconds"])
    expected = [5, module.DEADLINE, module.NOBODY, 1, 0, module.NOBODY, 1, 2, module.NOBODY]
    expected.append(module.DEADLINE)  # it waited half a second, and nothing came
    assert module.closers(columns_of(events)).tolist() == expected


def test_who_closed_a_collection():
    check_closers(waits)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("np.concatenate([cut, arrived, closed])", "np.concatenate([arrived, cut, closed])"),
        ("agent[here] == agent[there]", "True"),
        ("time[here] == time[there]", "True"),
        ("turn[here] == turn[there]", "True"),
        ("np.where(agent < 0, 0, ", "np.where(agent < 0, 1, 1) * ("),
        ('"deadline", "deliver")', '"deadline", "send")'),
    ],
)
def test_a_wrong_closer_is_noticed(right, wrong):
    with pytest.raises((AssertionError, ValueError, KeyError)):
        check_closers(mutant(waits, right, wrong))


def test_a_killed_run_is_summed_up(desk, call):
    call("run", "s.yaml", "-o", "a")
    manifest = json.loads(Path("a/manifest.json").read_text())
    kept = ("name", "engine", "why", "seed")
    left = {key: manifest[key] for key in kept} | {"status": "running"}
    Path("a/manifest.json").write_text(json.dumps(left))
    code, out, _ = call("show", "a")
    assert code == 0
    assert out.startswith("staged: interrupted\n")
    assert "4.4 s at the last event that was stored" in out


def test_sizes_are_readable():
    assert [amounts.size(n) for n in (0, 999, 1000, 1234567, 5e9, 2.5e15)] == [
        "0 B",
        "999 B",
        "1 kB",
        "1.235 MB",
        "5 GB",
        "2500 TB",
    ]


@pytest.mark.parametrize(
    ("now", "fraction", "text"),
    [
        ((1.5, 6.0, 3, 10, ("error", 0.25)), 0.3, "round 3/10, 1.5 s, error 0.25"),
        ((3.0, 6.0, 3, 10, None), 0.5, "round 3/10, 3 s"),
        ((9.0, 6.0, 3, None, None), 1.0, "round 3, 9 s"),
        ((1.5, None, 3, None, None), None, "round 3, 1.5 s"),
    ],
)
def test_progress_in_numbers_and_words(now, fraction, text):
    fields = dict(zip(("time", "horizon", "round", "rounds", "metric"), now, strict=True))
    assert pace.fraction(SimpleNamespace(**fields)) == fraction
    assert pace.description(SimpleNamespace(**fields)) == text


def test_a_bar_is_shown_on_terminals_only(monkeypatch, capsys):
    now = SimpleNamespace(time=1.0, horizon=None, round=3, rounds=10, metric=None)
    with progress.progress_bar("staged") as tell:
        tell(now)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress.progress_bar("staged") as tell:
        tell(now)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "staged" in captured.err


def test_hints_of_the_command_line_can_be_resolved():
    for command in desim.interface.cli.app.registered_commands:
        assert typing.get_type_hints(command.callback)


REAL = """
name: small
problem:
  agents: 4
  data: {source: sklearn, name: breast_cancer, test: 20 %, scale: standard}
  loss: logistic
  regularizer: {l2: 0.5}
algorithm: {name: fed-plt, rho: 0.3, local: {solver: noisy, epochs: 5, tau: 1e-3}}
network: {link: {latency: 20 ms, loss: 1 %}}
compute: {speed: {uniform: [500, 1500]}}
observe: {metrics: [error, accuracy], iterates: true}
stop: {rounds: 30}
"""


CONDITIONS = """\
links: 20 ms, 100 Mbit/s, 1 % of messages lost
devices: a gradient of one row takes 0.892 to 1.58 ms
first exchange: 240 B down, 565 to 570 gradients in 509 to 903 ms, 240 B up; in all 549 to 943 ms
"""


def test_check_tells_what_else_takes_time(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(REAL)
    _, out, _ = call("check", "small.yaml")
    assert "besides" not in out
    assert "coordinator:" not in out
    more = {
        "compute.overhead": "5 ms",
        "compute.coordinator": "{reply: 1 ms}",
        "network.behind": "{sites: 1, uplink: {bandwidth: 1 Mbit/s}}",
    }
    _, out, _ = call("check", "small.yaml", *(f"--set={key}={more[key]}" for key in more))
    assert "; a computation 5 ms besides\n" in out
    assert "coordinator: takes replies in one after the other" in out
    assert "behind 1 line of 1 Mbit/s" in out


def test_a_real_run_from_file_to_figure(tmp_path, monkeypatch, call):
    monkeypatch.chdir(tmp_path)
    Path("small.yaml").write_text(REAL)
    code, out, err = call("check", "small.yaml")
    assert (code, out.startswith("ok: small: fed-plt, 4 agents, "), err) == (0, True, "")
    code, out, err = call("run", "small.yaml")
    assert (code, err) == (0, CONDITIONS)
    run = desim.open("runs/small")
    assert run.status == "done"
    assert run.iterates.shape == (31, 4, 30)
    assert run.metrics["time"].is_monotonic_increasing
    assert run.events["seq"].tolist() == list(range(len(run.events)))
    assert np.isfinite(run.time_to("error", 1.0))
    assert "last in" in out
    assert call("plot", "runs/small")[1] == "runs/small/accuracy-time.png\n"
    again = desim.run("runs/small/scenario.yaml")
    pd.testing.assert_frame_equal(again.events, run.events)


@pytest.mark.slow
def test_a_real_run_without_room_says_so(tmp_path):
    """A file size limit stands for a full disk: one line, no traceback, exit code 1."""
    (tmp_path / "small.yaml").write_text(REAL)
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000)); "
        "from desim.interface.cli import main; main(['run', 'small.yaml', '-o', 'a'])"
    )
    warm = "from desim.interface.cli import main; main(['run', 'small.yaml', '-o', 'b'])"
    for program in (warm, code):
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True
        )
    assert done.returncode == 1
    assert done.stderr.startswith(CONDITIONS)
    assert "Traceback" not in done.stderr
    assert "a: cannot be written (File too large)" in done.stderr
    assert desim.open(tmp_path / "a").status == "failed"


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("command", ["main(['schema'])", "main(['--help'])"])
def test_a_full_output_is_one_line(command):
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", f"from desim.interface.cli import main; {command}"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
        )
    told = "output: cannot be written (No space left on device)\n"
    assert (done.returncode, done.stderr) == (1, told)


def test_a_place_that_cannot_be_written_is_bad_input():
    with pytest.raises(InputError, match="not a writable directory"):
        desim.runs.directory.check_free(Path("/dev/null/a"))


def test_quiet_says_nothing_and_verbose_says_where(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as end:
        main(["run", "quickstart", "--set", "stop.rounds=1", "-q", "-o", "a"])
    assert end.value.code == 0
    assert capsys.readouterr() == ("", "")
    for option, traced in (("-v", True), ("-q", False)):
        with pytest.raises(SystemExit) as end:
            main(["show", "nothing", option])
        assert end.value.code == 2
        told = capsys.readouterr().err
        assert ("Traceback" in told) is traced
        assert told.endswith("not a run directory (there is nothing)\n")


def test_a_run_that_is_ended_at_once_is_like_a_killed_one(desk, call, monkeypatch):
    def interrupted(*given, **more):
        raise AtOnce

    monkeypatch.setattr(Staged, "play", interrupted)
    code, out, err = call("run", "s.yaml")
    assert code == 1
    assert err.startswith("interrupted: the process ended before the run did; ")
    assert err.endswith("; desim resume goes on with it\n")
    assert "staged: interrupted\n" in out


CODES = {  # what is interrupted, of which command, and what comes of it
    "desim.deployments.deployed.begin": (
        ["deploy", "s.yaml", "--loopback"],
        130,
        "stopped before the run began; nothing was written",
    ),
    "desim.interface.cli.commands.audit._audited": (
        ["audit", "s.yaml"],
        130,
        "stopped before the verdict; nothing was written",
    ),
    "desim.experiments.ranking.robust.robust": (
        ["robust", "s.yaml", "s.yaml", "--target", "error=1"],
        130,
        "stopped by Ctrl-C",
    ),
    "desim.interface.cli.commands.plot.opened_runs": (
        ["report", "runs/staged"],
        130,
        "stopped by Ctrl-C",
    ),
    "desim.experiments.studies.study.plan": (["study", "study.yaml"], 130, "stopped by Ctrl-C"),
    "desim.experiments.studies.study.players": (
        ["study", "study.yaml"],
        1,
        "not all runs could be simulated; the same command goes on",
    ),
    "desim.experiments.tuning.tune.planned": (["tune", "tuner.yaml"], 130, "stopped by Ctrl-C"),
    "desim.experiments.tuning.search.RunCache.play": (
        ["tune", "tuner.yaml"],
        1,
        "not all runs could be simulated; the same command goes on",
    ),
    "desim.runs.replay.carry_out": (
        ["resume", "runs/staged"],
        130,
        "runs/staged: stopped before it was where it ended; it is as it was",
    ),
}


@pytest.mark.parametrize("what", CODES)
def test_what_ctrl_c_comes_to(desk, call, monkeypatch, what):
    command, wanted, words = CODES[what]
    Path("study.yaml").write_text("base: s.yaml\ngrid: {seed: [1, 2]}\n")
    tune = "{vary: {algorithm.rho: [0.1, 0.2]}, until: {error: 1}, seeds: [1]}"
    Path("tuner.yaml").write_text(f"base: s.yaml\ntune: {tune}\n")
    with monkeypatch.context() as patch:
        patch.setattr(recording.Interruption, "check", ended)
        call("run", "s.yaml")
    module, _, name = what.rpartition(".")
    if module in sys.modules:  # what is called like its module hides that
        monkeypatch.setattr(sys.modules[module], name, ended)
    else:
        monkeypatch.setattr(what, ended)
    code, _, err = call(*command)
    assert (code, err) == (wanted, f"{words}\n")


def ended(*given, **more):
    raise KeyboardInterrupt


def test_a_scenario_that_is_gone_is_told(desk, call):
    call("run", "s.yaml")
    Path("runs/staged/scenario.yaml").unlink()
    _, out, _ = call("show", "runs/staged")
    assert "  scenario      not known: scenario.yaml is missing\n" in out


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_on_a_narrow_terminal_breaks_no_word(command, call, monkeypatch):
    pages = {}
    for columns in (40, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        pages[columns] = call(*command.split(), "--help")[1]
    narrow, wide = (re.sub(r"-\n +", "-", page).split() for page in pages.values())
    assert narrow == wide
    assert not any("…" in word for word in narrow)


def test_lines_that_do_not_fit_go_on_below():
    fact = "  warning       " + "some words of a warning that is long, replace-one " * 3
    note = "a note " * 20
    found = progress.wrapped(f"{fact}\n{note}\n  short", 50).splitlines()
    assert max(map(len, found)) <= 50
    assert sum(line[:16].isspace() for line in found) >= 3
    assert " ".join(found).split() == f"{fact} {note} short".split()
    assert found[-1] == "  short"
    assert progress.wrapped(fact, float("inf")) == fact
    assert progress.wrapped("x" * 60, 50) == "x" * 60  # a path can be copied
