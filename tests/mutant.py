"""Wrong twins: a module with one fragment of its source changed, to show that a test can fail."""

import inspect
from types import ModuleType


class Absent(Exception):
    """The text that a twin was to replace is not there once: no assertion, which tests expect."""


def mutant(module: ModuleType, right: str, wrong: str) -> ModuleType:
    """The module with `right`, which must occur exactly once in its source, replaced by `wrong`."""
    source = inspect.getsource(module)
    if source.count(right) != 1:
        raise Absent(f"{right!r} occurs {source.count(right)} times in {module.__name__}")
    twin = ModuleType(module.__name__ + "_mutant")
    twin.__file__ = module.__file__
    exec(
        compile(source.replace(right, wrong), f"<mutant of {module.__name__}>", "exec"), vars(twin)
    )
    return twin
