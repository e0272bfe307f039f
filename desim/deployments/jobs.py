"""Jobs as messages name them: methods of the scenario's method, which every process has.

Only their name and the arguments that were bound to them travel, as numbers, words and arrays.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError, show
from desim.privacy.ledger.ledger import Mechanism, Terms, View

Arrays = dict[str, NDArray[Any]]
PLAIN = (int, float, str, bool, type(None))
WANTED = "a function of the method, or a partial of one with numbers, words and arrays"


def named(job: Any, method: Any, prefix: str) -> tuple[dict[str, Any], Arrays]:
    """A job as fields and arrays, whose names begin with `prefix`; InputError if it has no name."""
    given: list[Any] = []
    options: dict[str, Any] = {}
    while isinstance(job, partial):
        given, options = [*job.args, *given], {**job.keywords, **options}
        job = job.func
    name = getattr(job, "__name__", "")
    if getattr(job, "__self__", None) is not method or getattr(method, name, None) != job:
        raise InputError(f"algorithm: its job {name or job!r} cannot be sent; allowed: {WANTED}")
    arrays: Arrays = {}
    bound = {str(place): value for place, value in enumerate(given)} | options
    fields = {key: _field(value, f"{prefix}{key}", arrays) for key, value in bound.items()}
    return {"name": name, "given": len(given), "bound": fields}, arrays


def _field(value: Any, name: str, arrays: Arrays) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
        arrays[name] = value
        return {"array": name}
    if not isinstance(value, PLAIN):
        found = f"its job is bound to {type(value).__name__}"
        raise InputError(f"algorithm: {found}, which cannot be sent; allowed: {WANTED}")
    return value


def found(fields: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], method: Any) -> Any:
    """The job that `named` has named."""
    bound = {
        key: arrays[value["array"]] if isinstance(value, dict) else value
        for key, value in fields["bound"].items()
    }
    given = [bound.pop(str(place)) for place in range(fields["given"])]
    name = str(fields["name"])
    job: Callable[..., Array] | None = getattr(method, name, None)
    if name.startswith("__") or getattr(job, "__self__", None) is not method:
        raise InputError(f"algorithm: found no job {show(name)}; allowed: a function of the method")
    assert job is not None
    return partial(job, *given, **bound) if given or bound else job


def terms_for(terms: Terms, agent: int) -> list[float | None]:
    """What an agent must know of the terms of its reply; None for nan, which equals nothing."""
    coupled = terms.sensitivity if terms.coupled is None else terms.coupled
    amounts = terms.sensitivity, terms.scale, terms.sampling, coupled
    own = [None if (one := float(amount[agent])) != one else one for amount in amounts]
    return [float(terms.mechanism), float(terms.view), terms.resolution, *own]


def terms_of(numbers: list[Any], agent: int, agents: int) -> Terms:
    """Terms (agents,) whose row of that agent `terms_for` has told; others know none."""
    mechanism, view, resolution, *own = numbers
    rows = np.zeros((4, agents))
    rows[:, agent] = [np.nan if one is None else one for one in own]
    kind = Mechanism(int(mechanism)), View(int(view))
    return Terms(*kind, rows[0], rows[1], rows[2], resolution, coupled=rows[3])
