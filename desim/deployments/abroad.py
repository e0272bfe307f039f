"""What another machine hears of an error here: its kind and where in the scenario, and no values.

Words of an error may quote a row of somebody's data, so they stay on the screen of their own host.
"""

import re
from collections.abc import Mapping
from typing import Any, cast

from desim.errors import InputError

PLACE = re.compile(r"([^:\s]+):")
REST = "its words are on the screen of its host"


class Declined(InputError):
    """A host does not take part; the words are desim's own and say nothing of its data."""


def abroad(error: BaseException, scenario: Mapping[str, Any]) -> str:
    """What may be said of an error; scenario: as the other side has sent it."""
    if isinstance(error, Declined):
        return str(error)
    text = type(error).__name__
    problems = error.problems if isinstance(error, InputError) else []
    known = {where for one in problems if (where := _known(one, scenario))}
    return f"{text}{f' at {min(known)}' if known else ''}; {REST}"


def _known(problem: str, scenario: Mapping[str, Any]) -> str:
    """The key at which a problem is, as far as the scenario that was sent has it."""
    for found in PLACE.findall(problem):
        names, node = list[str](), cast(Any, scenario)
        for name in re.split(r"[.\[]", found):
            if not isinstance(node, Mapping) or name not in node:
                break
            names.append(name)
            node = node[name]
        if names:
            return ".".join(names)
    return ""
