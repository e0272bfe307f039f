"""Kernels as methods call them: their arguments are checked, as those of gradients are."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np

from desim.methods.shared.checked_gradients import models_given
from desim.problem.kernels import argmin, codecs, sums, zeroth
from desim.shapes import has_rows, refuse, rows_given
from desim.unplayed import of_unplayed


def _looked_at(
    kernel: Callable[..., Any], of: str, rows: str = "", each: str = "", three: str = "",
    gives: Any = None, late: str = "",
) -> Any:  # fmt: skip
    """The kernel; ValueError unless its arguments have a row for each of the agents who (n,).

    of: models (n, dim) of the data, or with codecs numbers (n, any); rows: other arrays (n, dim);
    each: one number, or an array (n,); three: numbers (3, T). gives: of what it gives
    of `of`, or of `late`, see `of_unplayed`.
    """
    name, signature = kernel.__name__, inspect.signature(kernel)

    @wraps(kernel)
    def looked_at(*args: Any, **named: Any) -> Any:
        values = signature.bind(*args, **named).arguments
        who = values["who"]
        if "data" in values:
            values[of] = models_given(name, who, values[of], values["data"], None, of)
        else:
            values[of] = rows_given(f"{name}: {of}", values[of], np.size(who))
        for one in rows.split():
            if values.get(one) is not None:
                values[one] = rows_given(f"{name}: {one}", values[one], *values[of].shape)
        for one in each.split():
            value: Any = values.get(one)
            if np.ndim(value) and not (has_rows(value, len(who)) and np.ndim(value) == 1):
                refuse(f"{name}: {one}", value, f"one number, or an array ({len(who)},)")
            if "data" not in values:  # a codec, which takes arrays alone
                values[one] = np.array(np.broadcast_to(value, len(who)))
        if three and (np.ndim(values[three]) != 2 or len(values[three]) != 3):
            refuse(f"{name}: {three}", np.asarray(values[three]), "three rows of numbers, (3, T)")
        return kernel(**values)

    place = list(signature.parameters).index(late or of)
    return of_unplayed(place, gives=gives)(looked_at) if gives else looked_at


def _alike(columns: int) -> int:
    return columns


minimise = _looked_at(
    argmin.minimise, "start", "v", "weight tolerance", gives=lambda columns: (columns, 2)
)
descend = _looked_at(
    zeroth.descend, "x", "c", "round samples q deviation noise", "steps", _alike, "c"
)
estimates = _looked_at(zeroth.estimates, "x", "c", "round u1 u2 step q deviation noise", "", _alike)
capped_losses = _looked_at(sums.capped_losses, "x", each="where")
quantize = _looked_at(codecs.quantize, "x", each="round_", gives=_alike)
sparsify = _looked_at(codecs.sparsify, "x", each="round_", gives=lambda columns: (columns, None))
