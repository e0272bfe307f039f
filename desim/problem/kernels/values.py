"""Values of many agents' losses in one call, in the order of additions that gradients have."""

import numpy as np

from desim.numerics.jit import kernel
from desim.problem.kernels.batches import plain
from desim.problem.kernels.gradients import Data, forward, whole_block
from desim.problem.losses.scalar import clipped_value


@kernel
def _linear(who, x, flat_data, out):
    data = Data(*flat_data)
    most = 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    u = np.empty(most)
    for r in range(who.size):
        block = whole_block(who[r], data)
        forward(block.columns, x[r], u)
        total = 0.0
        for h in range(block.b.size):
            total += clipped_value(data.code, u[h], block.b[h], data.knee, block.limit[h])
        out[r] = data.scale[who[r]] * total


def agent_losses(who, x, data, out):
    """Set out[r] to agent who[r]'s sum of losses at x[r], times scale; no regulariser.

    x (n, dim), out (n,). Where a linear model's data are clipped, the loss is the one whose
    gradient the clipped kernels compute; a layered model's clipped gradients are of no function,
    so its losses are the examples' own.
    """
    if not isinstance(data, Data):
        from desim.problem.kernels.of_models import losses

        losses(who, x, data, out)
    else:
        _linear(plain(who, np.int64), plain(x), tuple(data), out)


@kernel
def _capped(who, x, cap, where, flat_data, out):
    data = Data(*flat_data)
    most = 0
    for i in who:
        most = max(most, data.start[i + 1] - data.start[i])
    u = np.empty(most)
    for r in range(who.size):
        out[r] = 0.0
        if not where[r]:
            continue
        i = who[r]
        block = whole_block(i, data)
        forward(block.columns, x[r], u)
        total, size = 0.0, 0.0
        for h in range(block.b.size):
            loss = clipped_value(data.code, u[h], block.b[h], data.knee, block.limit[h])
            if loss > 0.0:  # what is no number counts as 0
                total += min(cap, loss)
        for j in range(x.shape[1]):
            size += x[r, j] * x[r, j]
        out[r] = data.scale[i] * total + min(cap, 0.5 * data.ridge[i] * size)


def capped_losses(who, x, cap, where, data):
    """Values (n,) of f_i at x (n, dim), i = who[r], each row's loss and the ridge cut to [0, cap].

    0 where not where[r] (n,), whose rows are not read. data: of a linear model.
    """
    out = np.empty(len(who))
    who, x, where = plain(who, np.int64), plain(x), plain(where, np.bool_)
    _capped(who, x, float(cap), where, tuple(data), out)
    return out
