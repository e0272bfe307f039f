"""Real processes that speak TCP play the same methods, on the machine's own clock.

`desim.deploy` is this room and the function of the same name: it can be called either way.
"""

import sys
from types import ModuleType
from typing import Any


class _Room(ModuleType):
    """A module that is called as its function."""

    def __call__(self, *given: Any, **more: Any) -> Any:
        """`desim.deploy.deploy.deploy`."""
        from desim.deploy.deploy import deploy

        return deploy(*given, **more)


sys.modules[__name__].__class__ = _Room
