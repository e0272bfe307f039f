"""The exceptions desim raises on purpose, their exit codes, and the shape of their messages.

DesimError (1)
 ├ InputError (2)    a scenario, data set or argument is wrong; nothing has been written
 ├ Unfit            a checkpoint is of no use; seen by desim only
 └ RunError (1)      a run failed after it began; its log up to there is readable
    ├ Diverged       an iterate is no longer finite
    ├ Deadlock       somebody waits for a message that can never come
    └ Differs        a run that goes on is not the one whose log is stored

AtOnce, a KeyboardInterrupt, is a second Ctrl-C: what it falls into is left half done.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from math import isfinite

MOST_WORDS = 2000  # letters of what somebody else's code has to say


class DesimError(Exception):
    """Anything that went wrong and has been explained; caught by the command line."""

    exit_code = 1


class InputError(DesimError):
    """Bad input: `problems` holds one line for each thing that is wrong, and `str` joins them."""

    exit_code = 2

    def __init__(self, problems: str | Iterable[str]):
        self.problems = [problems] if isinstance(problems, str) else list(problems)
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type["InputError"], tuple[list[str]]]:
        return type(self), (self.problems,)


def require(what: str, package: str, extra: str) -> None:
    """Raise InputError where the package of an extra that `what` needs is not installed."""
    if find_spec(package) is None:
        raise InputError(f"{what}: needs the package {package}; pip install 'desim[{extra}]'")


@contextmanager
def gathering(problems: list[str]) -> Iterator[None]:
    """Take down what is wrong and go on, so that all that is wrong can be told at once."""
    try:
        yield
    except InputError as error:
        problems += error.problems


class RunError(DesimError):
    """A run that began but could not be completed."""

    time = 0.0  # virtual s at which that was seen
    run: object = None  # the run as far as it came, once it is stored


def at(time: float, text: str) -> RunError:
    """An error that ends a run at `time` s."""
    error = RunError(text)
    error.time = time
    return error


class Diverged(RunError):
    """An iterate is not finite: the message names agent, round, time and the key to change."""

    place = (0, 0)  # round and agent: of several at one time the least is told


class Deadlock(RunError):
    """Nobody can go on: the message says who waits for what, naming the root."""


class Differs(RunError):
    """What is played again is not what is stored: the message names the first row that differs."""


class ProgramError(ValueError):
    """A job of a method's program gave what no engine can use; the message says where it stands."""


class ListenerError(ProgramError):
    """A listener returned what cannot be sent or released; the message names it."""


class Unfit(DesimError):
    """A checkpoint holds what the run cannot go on from: it is played again from its start."""


class AtOnce(KeyboardInterrupt):
    """Ctrl-C again: nothing that was at work is complete, and what was stored stays as it is."""


def show(value: object) -> str:
    """`value` as messages quote it, in the scenario's own spelling and cut to a readable length."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    try:
        text = repr(value)
    except ValueError:
        return "an integer of thousands of digits"
    except Exception:
        return f"a {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def raised(error: BaseException) -> str:
    """What was raised and its words, whatever these do when they are asked for."""
    try:
        text = str(error).strip()
    except KeyboardInterrupt:
        raise
    except BaseException:
        text = "its own words cannot be had"
    text = text.encode("utf-8", "backslashreplace").decode()[:MOST_WORDS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def shortened(text: str, longest: int = 200) -> str:
    """A text in one line of readable length."""
    line = " ".join(text.split())
    return line if len(line) <= longest else line[: longest - 3] + "..."


def refusal(value: object, allowed: str, nearest: Iterable[str] = ()) -> str:
    """The one shape of a message: what was found, what is allowed, and the `nearest` spelling."""
    return f"found {show(value)}; allowed: {allowed}{spelling(value, nearest)}"


def chosen(what: str, value: str, names: Iterable[str]) -> str:
    """The value if it is one of the names; InputError otherwise."""
    if value not in (known := list(names)):
        raise InputError(f"{what}: {refusal(value, ', '.join(known), known)}")
    return value


def finite(what: str, value: float) -> float:
    """The value if it is a finite number; InputError otherwise."""
    if not isfinite(value):
        raise InputError(f"{what}: found {value}; allowed: a finite number")
    return float(value)


def spelling(found: object, options: Iterable[str]) -> str:
    """The end of a message that offers the option spelt most like `found`, or nothing."""
    if not isinstance(found, str):
        return ""
    lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(found.lower(), lower, n=1, cutoff=0.6)
    return f"; did you mean {lower[close[0]]!r}?" if close else ""
