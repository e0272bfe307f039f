"""Values of many agents' losses in one call, in the order of additions that gradients have."""

import numpy as np

from desim.jit import kernel
from desim.kernels.gradients import forward, whole_block
from desim.losses import clipped_value


@kernel
def agent_losses(who, x, data, out):
    """out[r] = scale_i sum_h loss(a_h . x[r]), i = who[r]; x (n, dim), out (n,); no regulariser.

    Where data.clipped, the loss is the one whose gradient the clipped kernels compute.
    """
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
