"""A law that a method or a model has to obey, and what came of it; how two runs are compared."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.errors import DesimError, raised
from desim.numerics.environment import environment
from desim.runs.directory import ARRAYS
from desim.runs.replay import TABLES, first_difference
from desim.runs.run import Run


@dataclass(frozen=True)
class Finding:
    """law: a word; outcome: kept, broken or skipped; about: what was seen, or why not."""

    law: str
    outcome: Literal["kept", "broken", "skipped"]
    about: str

    @property
    def kept(self) -> bool:
        """Whether the law is not broken."""
        return self.outcome != "broken"

    def __str__(self) -> str:
        return f"{self.outcome:7}  {self.law:12} {self.about}"


class BrokenError(Exception):
    """A law is broken; the text says where."""


class SkippedError(Exception):
    """A law does not apply; the text says why."""


def findings(laws: Iterable[tuple[str, Callable[[Any], str]]], stage: Any) -> Iterator[Finding]:
    """Each law checked on the stage; whatever it raises breaks the law that was being checked.

    One error that several laws meet is one finding; a last one names the laws that it hides.
    InputError for an environment in which nothing can be played.
    """
    environment()
    met, untried = set[str](), list[str]()
    for law, check in laws:
        try:
            yield Finding(law, "kept", check(stage))
        except SkippedError as why:
            yield Finding(law, "skipped", str(why))
        except BrokenError as why:
            yield Finding(law, "broken", str(why))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plug-in's, which may raise anything
            known = isinstance(error, DesimError)
            text = str(error).splitlines()[0] if known else f"raised {raised(error)}"
            if text in met:
                untried.append(law)
            else:
                yield Finding(law, "broken", text)
            met.add(text)
    if untried:
        yield Finding("others", "skipped", f"not tried for that error: {', '.join(untried)}")


# The first difference between two runs, to the last bit.
Names = tuple[str, ...]


def demand_same(
    one: Run, other: Run, what: str, tables: Names = TABLES, arrays: Names = ARRAYS
) -> None:
    """Raise BrokenError, which begins with `what`, where two runs are not the same."""
    for name in tables:
        found = first_difference(getattr(one, name), getattr(other, name), name)
        if found is not None:
            values = f"{found.stored} and {found.replayed}"
            raise BrokenError(f"{what}: {name} differ in row {found.row}, {found.column}: {values}")
    for name in arrays:
        first, second = one.store.arrays(name), other.store.arrays(name)
        for key in sorted({*first, *second}):
            a, b = first.get(key), second.get(key)
            if a is None or b is None or not _same(a, b):
                raise BrokenError(f"{what}: {name if key == name else f'state us.{key}'} differs")


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    """Whether two arrays, of numbers or words, are the same."""
    return np.array_equal(a, b, equal_nan=a.dtype.kind == b.dtype.kind == "f")
