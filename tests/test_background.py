"""A process of its own compiles what has been paid for: no run waits, and later ones find it."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from cases import star
from mutant import mutant

import desim
from desim.interface.cli.progress import announced, silence
from desim.numerics import background, keys, plain
from desim.numerics.cache import cache_home
from desim.numerics.jit import kernel

fcntl = pytest.importorskip("fcntl")


@pytest.fixture
def later(monkeypatch, tmp_path):
    """An empty cache, and a process that has not played anything."""
    monkeypatch.setenv("DESIM_COMPILE", "later")
    monkeypatch.setenv("DESIM_CACHE_DIR", str(tmp_path))
    for name, value in {"seconds": 0.0, "_earlier": None, "_missing": {}, "_paid": 0.0,
                        "_awaited": False, "_next": 0.0, "begun": []}.items():  # fmt: skip
        monkeypatch.setattr(plain, name, value)
    return tmp_path / "compiled"


def ended(folder):
    """Wait until the process has let go of its lock: until it is dead."""
    with (folder / "background.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)


@pytest.fixture
def starts(monkeypatch, later):
    """What processes were begun for, in place of beginning them; in `plain` one function lacks."""
    begun = []
    monkeypatch.setattr(background, "start", lambda wanted: begun.append(wanted) or True)
    monkeypatch.setattr(background, "keeps", lambda *one: True)
    monkeypatch.setattr(background, "busy", lambda: True)
    plain._missing[0, ()] = keys.subset_into, ()
    return begun


def test_it_begins_at_the_end_of_the_run_that_has_paid_for_it(starts, later, monkeypatch):
    price, told = background.price([keys.subset_into]), []
    plain.begun.append(told.append)
    for spent, over, number in ((0.0, True, 0), (price - 0.1, True, 0), (price, False, 0),
                                (price, True, 1), (2 * price - 0.1, True, 1)):  # fmt: skip
        monkeypatch.setattr(plain, "seconds", spent)
        plain.look(over)
        assert len(starts) == number
    assert told == [price]
    assert float(plain._account().read_text()) == 0.0  # all begins anew


def test_what_earlier_processes_spent_counts(starts, monkeypatch):
    plain._account().parent.mkdir(parents=True)
    plain._account().write_text(str(background.price([keys.subset_into])))
    plain.look(over=True)
    assert not starts  # this one has played nothing
    monkeypatch.setattr(plain, "seconds", 0.1)
    plain.look(over=True)
    assert len(starts) == 1


def test_a_long_run_does_not_end_before(starts, monkeypatch):
    monkeypatch.setattr(plain, "seconds", plain.PATIENCE)
    plain.look()
    assert len(starts) == 1


@pytest.mark.parametrize(("cores", "number"), [(2, 1), (1, 0)])
def test_a_run_that_is_known_to_be_long_pays_soon(cores, number, starts, monkeypatch):
    monkeypatch.setattr(plain, "seconds", plain.SOON)
    monkeypatch.setattr(plain, "cores", lambda: cores)
    plain.look()
    assert not starts
    with plain.soon():
        plain.look()
    assert len(starts) == number


@pytest.mark.parametrize("when", ["here", "never", "at-once"])
def test_it_may_be_forbidden(when, starts, monkeypatch):
    monkeypatch.setenv("DESIM_COMPILE", when)
    monkeypatch.setattr(plain, "seconds", 1e9)
    plain.look(over=True)
    assert not starts


def test_what_has_been_compiled_meanwhile_is_looked_for_again(starts, monkeypatch):
    monkeypatch.setattr(plain, "seconds", 100.0)
    plain.look(over=True)
    assert plain._missing
    plain.look()
    assert plain._missing  # it compiles still
    monkeypatch.setattr(background, "busy", lambda: False)
    plain.look()
    assert not plain._missing


def test_one_compiles_at_a_time(later, monkeypatch):
    begun = []

    def process(command, **names):
        begun.append(command)

    monkeypatch.setattr(background.subprocess, "run", process)
    assert background.possible()
    lock = background._lock()
    assert not background.start([])
    assert background.busy()
    assert not begun
    lock.close()
    assert not background.busy()
    assert background.start([])
    assert len(begun) == 1


PROGRAM = """
import json, os, sys
held = [os.path.realpath(f"/proc/self/fd/{n}") for n in os.listdir("/proc/self/fd")]
who = os.getsid(0), os.getpid(), os.isatty(0), [one for one in held if "pipe" in one]
json.dump(who, open("seen", "w"))
"""


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="no list of open files")
def test_it_has_no_terminal_and_no_pipe_of_whoever_began_it(later, monkeypatch):
    monkeypatch.setattr(background, "PROGRAM", PROGRAM)
    assert background.possible()
    ends = os.pipe()
    for end in ends:
        os.set_inheritable(end, True)
    assert background.start([])
    ended(later)
    session, process, terminal, pipes = json.loads((later / "seen").read_text())
    assert session not in (process, os.getsid(0))  # Ctrl-C and a new terminal are for others
    assert not terminal
    assert not pipes
    assert not background.busy()
    assert process not in [
        one.pid for one in psutil.Process().children()
    ]  # nobody has to wait for it
    for end in ends:
        os.close(end)


def test_without_room_it_does_not_begin(later, monkeypatch):
    assert background.possible()
    monkeypatch.setattr(background, "DISK", 1 << 80)
    assert not background.start([])


VALUES = ["-1", '"x"', "NaN", "Infinity", "[1]", "null", "{}", "true", "1e308", "1" + "0" * 400]


@pytest.mark.parametrize(
    "nonsense", ["", "[]", "{", "[" * 100_000, "\0", *(f'{{"f": {one}}}' for one in VALUES)]
)
def test_the_price_is_what_it_took_here(nonsense, later):
    one, other = keys.subset_into, keys.permutation_into
    later.mkdir()
    first = background.BEGINNING + 2 * background.EACH
    assert background.price([one, other]) == first
    background._prices().write_text(nonsense)
    assert background.price([one, other]) == first
    background._noted({"desim.numerics.keys.subset_into": 5.0, "elsewhere": 1.0})
    assert background.price([one]) == background.BEGINNING + 5.0
    assert background.price([one, other]) == background.BEGINNING + 5.0 + 3.0


def test_what_has_no_name_that_another_process_finds_is_not_its_work(later, monkeypatch):
    def nobody(x):
        return x

    kept = []
    found = SimpleNamespace(holds=lambda *_: bool(kept))
    monkeypatch.setattr(keys.subset_into, "_cache", found)
    assert background.keeps(keys.subset_into, ())
    assert not background.keeps(kernel(nobody), ())
    assert not background.keeps(keys.subset_into, (plugged(),))
    kept.append("by another process, meanwhile")
    assert not background.keeps(keys.subset_into, ())


def plugged():
    """A type of a class that is a plug-in's."""
    return SimpleNamespace(instance_class=SimpleNamespace(__module__="mine"))


def test_it_is_said_in_one_line_unless_nobody_wants_to_hear_it(later, capsys):
    for wanted in (True, False):
        with silence(wanted), announced():
            for tell in plain.begun:
                tell(30.4)
        assert not plain.begun
    line = "compiling in the background: about 30 s; this run goes on without it\n"
    assert capsys.readouterr().err == line


RUN = """
import json, desim, sys
from cases import star
from desim.numerics import plain
from desim.numerics.watched import watched
with watched() as compilation:
    run = desim.run(star(engine="agents"))
print(json.dumps([plain.seconds, compilation.functions, run.model.tobytes().hex()]))
"""


@pytest.mark.slow
def test_a_run_goes_on_and_the_next_one_finds_what_was_compiled(tmp_path):
    """All is on disk but one function, which the first run plays as plain Python."""
    with pytest.MonkeyPatch.context() as patch:
        desim.run(star(engine="agents"))  # which compiles what others have not
        shutil.copytree(
            cache_home() / "compiled", tmp_path / "compiled", dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("plain-seconds-*", "*.lock", "*takes-*", "*.json"),
            copy_function=os.symlink,
        )  # fmt: skip
        patch.setenv("DESIM_CACHE_DIR", str(tmp_path))
        patch.setenv("DESIM_COMPILE", "later")
        plain._account().write_text("1000")

        def played():
            done = subprocess.run([sys.executable, "-c", RUN], cwd=Path(__file__).parent,
                                  capture_output=True, text=True, check=True)  # fmt: skip
            return json.loads(done.stdout)

        first = played()
        ended(tmp_path / "compiled")
        second, priced = played(), background.measured()
    assert first[0] > 0.0 == second[0]
    assert first[1:] == second[1:] == [0, first[2]]  # no process compiled itself; the same bits
    assert list(priced) == ["desim.network.timeline.computations.takes"]


def paths_given(of, folder, monkeypatch):
    """Where the process looks for modules that was begun with a path of this folder's."""
    seen = []
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["own", "", "/other"]))
    monkeypatch.setattr(of.subprocess, "run", lambda *_, env, **__: seen.append(env["PYTHONPATH"]))
    of._folder().mkdir(exist_ok=True)
    assert of.start([])
    return seen[0].split(os.pathsep)[1:]


def test_a_path_of_the_folder_is_found_from_elsewhere(later, tmp_path, monkeypatch):
    monkeypatch.setattr(background, "_room", lambda: True)
    assert paths_given(background, tmp_path, monkeypatch) == [str(tmp_path / "own"), "/other"]
    twin = mutant(background, "*map(os.path.abspath, own)", "*own")
    monkeypatch.setattr(twin, "_room", lambda: True)
    assert paths_given(twin, tmp_path, monkeypatch) == ["own", "/other"]
