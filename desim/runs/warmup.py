"""Compiles beforehand what scenarios need, by playing each for a moment."""

from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from desim.errors import DesimError, InputError, refusal
from desim.numerics.cache import cache_home
from desim.numerics.environment import environment
from desim.numerics.plain import at_once, when
from desim.numerics.watched import watched
from desim.runs.recording import run
from desim.scenario.tree import scenarios

APART = "studies/"  # the same methods again
ROUNDS = 2


class Warmth(NamedTuple):
    """How many scenarios were played, why others could not be, functions compiled, and seconds."""

    played: int
    skipped: dict[str, str]
    functions: int
    seconds: float

    def lines(self) -> list[str]:
        """The same in lines of text; of those that were skipped with the reason of the first."""
        about = "everything was compiled before"
        if self.functions:
            about = f"{self.functions} functions compiled in {self.seconds:.1f} s"
        lines = []
        if self.played:
            lines.append(f"{self.played} scenarios ready: {about}, kept in {cache_home()}")
        if self.skipped:
            lines.append(f"skipped {len(self.skipped)}: {', '.join(self.skipped)}")
            lines.append(f"  {next(iter(self.skipped.values()))}")
        return lines


def shipped() -> list[Path]:
    """The scenarios that come with desim."""
    return [file for name, file in scenarios().items() if not name.startswith(APART)]


def warm_up(files: Iterable[Path], tell: Callable[[Path], None] | None = None) -> Warmth:
    """Play `files` for two rounds, and store what comes of them for a moment.

    tell(file) is called before each.

    A scenario that cannot be played, for want of its data for example, is skipped. InputError where
    nothing is ever to be compiled.
    """
    environment()
    if when() == "never":
        raise InputError(f"DESIM_COMPILE: {refusal('never', 'later or at-once, to compile now')}")
    played, skipped = 0, {}
    with (
        at_once(),
        watched() as compilation,
        TemporaryDirectory(ignore_cleanup_errors=True) as folder,
    ):
        for place, file in enumerate(files):
            if tell is not None:
                tell(file)
            try:
                run(file, out=Path(folder) / str(place), overrides={"stop": {"rounds": ROUNDS}})
                played += 1
            except DesimError as error:
                skipped[file.stem] = str(error).splitlines()[0]
    return Warmth(played, skipped, compilation.functions, compilation.seconds)
