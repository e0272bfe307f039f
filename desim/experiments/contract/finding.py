"""One law and what came of it: kept, broken, or skipped because it does not apply."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from desim.errors import DesimError, raised
from desim.numerics.environment import environment


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
