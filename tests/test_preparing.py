"""Ctrl-C before a run begins: at once, after the compiler, never inside it, always in words."""

import signal
import time
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest
from mutant import mutant

import desim.interface.cli
from desim.runs import interruption

pytestmark = pytest.mark.usefixtures("keyboard")


def press():
    signal.raise_signal(signal.SIGINT)


def called_by(package, function):
    """The function with a frame of that package around it."""
    scope = {"__name__": f"{package}.callbacks", "function": function}
    exec("def call(): return function()", scope)
    return scope["call"]


def wait():
    end = time.monotonic() + 10.0
    while time.monotonic() < end:
        time.sleep(0.001)


def steps(context, *taken):
    with context:
        for step in taken:
            step()


def fail():
    raise RuntimeError("no compiled object yet for <Library 'log_'>")


def check_presses(module):
    left = []
    with pytest.raises(KeyboardInterrupt):
        steps(module.preparing(), press, lambda: left.append("at once"))
    assert left == []
    for package in ("llvmlite", "numba"):  # not inside, but as soon as that is left
        began, inside = time.monotonic(), called_by(package, press)
        with pytest.raises(KeyboardInterrupt):
            steps(module.preparing(), inside, lambda: left.append("inside"), wait)
        assert time.monotonic() - began < 5.0
    assert left == ["inside", "inside"]
    with pytest.raises(KeyboardInterrupt):  # numba trips over what it lost
        steps(module.preparing(), called_by("llvmlite", press), fail)
    with pytest.raises(RuntimeError):
        steps(module.preparing(), fail)
    with pytest.raises(KeyboardInterrupt):
        press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_press_is_heeded_outside_the_compiler():
    check_presses(interruption)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("raise KeyboardInterrupt from None", "pass"),
        ('COMPILER = ("llvmlite", "numba")', 'COMPILER = ("llvmlite", "nobody")'),
        ("        if self.pressed and not", "        if not"),
    ],
)
def test_a_wrong_press_is_noticed(right, wrong):
    twin = mutant(interruption, right, wrong)
    with pytest.raises((AssertionError, KeyboardInterrupt, RuntimeError, pytest.fail.Exception)):
        check_presses(twin)


def test_while_a_function_is_compiled_the_second_press_ends_it():
    for last in (called_by("numba", press), None):
        patient, compiling = interruption.Preparing(), SimpleNamespace(under_way=True)
        patient.compiling, left = compiling, []
        ended = last or patient.compiled
        first = called_by("numba", press)
        with pytest.raises(KeyboardInterrupt):
            steps(patient, first, partial(left.append, "first"), ended, partial(left.append, "on"))
        assert left == ["first"]


def test_where_it_is_ignored_it_stays_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    went_on = []
    steps(interruption.preparing(), press, lambda: went_on.append(signal.getsignal(signal.SIGINT)))
    assert went_on == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_command_that_is_interrupted_says_so(monkeypatch, capsys, tmp_path):
    def interrupted(path, texts):
        raise KeyboardInterrupt

    monkeypatch.setattr("desim.interface.cli.commands.check.load_scenario", interrupted)
    with pytest.raises(SystemExit) as end:
        desim.interface.cli.main(["check", "x.yaml"])
    assert (end.value.code, capsys.readouterr().err) == (130, "stopped by Ctrl-C\n")


def check_ends(module, patch):
    """Ctrl-C while such a context is entered or left is heeded after that, which is whole."""
    patch.setattr(module, "PAUSE", 0.0)
    pressing = []

    class Bell(module._Bell):
        def __init__(self, of):
            pressing and press()
            super().__init__(of)
            pressing and press()

        def close(self):
            pressing and press()
            super().close()
            pressing and press()

    patch.setattr(module, "_Bell", Bell)
    for kind in (module.Interruption, module.Preparing):
        went_on, context = [], kind()
        pressing.append("now")
        with pytest.raises(KeyboardInterrupt):
            steps(context, pressing.clear, partial(went_on.append, "begun"), context.check)
        assert went_on == ["begun"] * (kind is module.Interruption)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        pressing.clear()
        with suppress(KeyboardInterrupt), kind():
            pressing.append("now")
        pressing.clear()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        assert signal.set_wakeup_fd(-1) == -1


def test_what_begins_or_ends_is_not_broken_off(monkeypatch):
    check_ends(interruption, monkeypatch)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("        if self._between(frame):\n            return\n", ""),
        ("PAUSE and not self._between(frame):", "PAUSE:"),
        ("        if self.pressed:\n            self.__exit__(None, None, None)\n", ""),
    ],
)
def test_what_is_broken_off_is_noticed(right, wrong, monkeypatch):
    twin = mutant(interruption, right, wrong)
    with pytest.raises((AssertionError, KeyboardInterrupt, pytest.fail.Exception)):
        check_ends(twin, monkeypatch)
    signal.set_wakeup_fd(-1)
