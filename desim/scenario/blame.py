"""Whose fault an unexpected error is: a plug-in's, the machine's that lacks memory, or desim's."""

import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from desim.errors import DesimError, InputError, ListenerError, ProgramError, raised
from desim.scenario.schema import Scenario

DESIM = Path(__file__).resolve().parents[1]
TOO_BIG = (
    "array is too big",
    "Maximum allowed",
    "iterator is too large",
)  # what numpy says of sizes beyond an address
SIZES = "problem.agents, problem.data or network.topology"


@contextmanager
def explained(scenario: Scenario) -> Iterator[None]:
    """Turn what goes wrong before a run into InputError, unless it is desim's own fault."""
    try:
        yield
    except (InputError, KeyboardInterrupt):
        raise
    except BaseException as error:
        if (text := blame(error, scenario)) is None:
            raise
        raise InputError(text) from error


def blame(error: BaseException, scenario: Scenario) -> str | None:
    """What to say of an error that a plug-in raised or memory caused; None where desim is wrong."""
    if text := accused(error, scenario.plugins):
        return text
    if isinstance(error, ProgramError):
        return f"{'listeners' if isinstance(error, ListenerError) else 'algorithm'}: {error}"
    beyond = type(error) is ValueError and str(error).startswith(TOO_BIG)
    if isinstance(error, MemoryError) or beyond:
        return f"{SIZES}: too large for the memory of this machine ({error or 'none is left'})"
    return None if isinstance(error, DesimError | OSError) else _unusable(error, scenario)


def _unusable(error: BaseException, scenario: Scenario) -> str | None:
    """What to say of an error in desim that a plug-in's method led to: it gave something odd.

    Such as a constructor that returns a number.
    """
    method = scenario.algorithm.method
    file = getattr(sys.modules.get(method.__module__), "__file__", None)
    places = [index for index, one in enumerate(scenario.plugins) if str(one) == file]
    if not places or not isinstance(error, Exception):
        return None
    last = next(reversed(list(_frames(error))), None)
    place = f" in {Path(last.filename).name}, line {last.lineno}" if last else ""
    what = f"plugins[{places[0]}]: {file}: desim cannot use what {method.__name__} gives it"
    return f"{what}: {raised(error)}{place}"


def accused(error: BaseException, plugins: Sequence[Path]) -> str | None:
    """What to say of an error that passed one of these files; None where it passed none."""
    for frame in reversed(list(_frames(error))):
        for index, file in enumerate(plugins):
            if Path(frame.filename) == file:
                return f"plugins[{index}]: {file}, line {frame.lineno}, raised {raised(error)}"
    return None


def own_access(error: OSError, plugins: Sequence[Path]) -> bool:
    """Whether one of these files, and not desim for it, asked for what the system refused."""
    for frame in reversed(list(_frames(error))):
        file = Path(frame.filename)
        if file in plugins:
            return True
        if file.is_relative_to(DESIM):
            return False
    return False


def _frames(error: BaseException) -> Iterator[traceback.FrameSummary]:
    """Where `error` passed, then its causes: SimPy raises copies of some."""
    cause: BaseException | None = error
    while cause is not None:
        yield from traceback.extract_tb(cause.__traceback__)
        cause = cause.__cause__
