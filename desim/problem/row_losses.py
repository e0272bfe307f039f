"""What an agent may say of its losses: means over its rows, one agent at a time.

An agent's number depends on its own rows and model alone, so that it has the same bits whoever
else is asked.
"""

import numpy as np

from desim.arrays import Array, Int
from desim.numerics.jit import one_blas_thread
from desim.problem.losses.layers import LayeredLoss
from desim.problem.losses.modelled import ModelLoss
from desim.problem.losses.scalar import values_into
from desim.problem.problem import Problem


def row_losses(problem: Problem, agent: int, x: Array) -> Array:
    """The loss (rows,) of each row of an agent at the model x (dim,); no regulariser.

    Of a linear model under problem.clip it is the loss that has the clipped gradients.
    """
    part = slice(int(problem.start[agent]), int(problem.start[agent + 1]))
    A, b, loss = problem.A[part], problem.b[part], problem.loss
    if isinstance(loss, ModelLoss):
        with loss.model.computing():
            return loss.losses(A, b, x)
    if isinstance(loss, LayeredLoss):
        scores = loss.scores(A, x)
        highest = scores.max(axis=1)
        spread = np.log(np.exp(scores - highest[:, None]).sum(axis=1)) + highest
        return np.asarray(spread - scores[np.arange(len(b)), b.astype(np.int64)])
    u, out = np.ascontiguousarray(A @ x), np.empty(len(b))
    values_into(loss.code, u, b, float(loss.knee), problem.limit[part], out)
    loss.verify()
    return out


def mean_losses(
    problem: Problem, who: Int, x: Array, power: int = 1, clip: float | None = None
) -> Array:
    """Means (n,) over the rows of agents who (n,) of their losses at x (n, dim), to a power.

    clip: each loss is cut to [0, clip] before, and is 0 where it is no number. One row replaced
    moves the mean by at most clip^power / rows.
    """
    out = np.empty(len(who))
    with one_blas_thread():
        for r, i in enumerate(who.tolist()):
            losses = row_losses(problem, i, x[r])
            if clip is not None:
                losses = np.where(np.isnan(losses), 0.0, np.clip(losses, 0.0, clip))
            out[r] = np.mean(losses**power)
    return out
