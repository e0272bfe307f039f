"""The kernels of layered models and of users' models, in the place of those of linear models.

A problem with layers, or with a model of users, is what imports this.
"""

import numpy as np

from desim.problem.kernels import layered, modelled
from desim.problem.kernels.layered import Layered, in_type
from desim.problem.kernels.layered import train as train_layered
from desim.problem.kernels.modelled import Modelled
from desim.problem.kernels.modelled import train as train_modelled


def data_of(problem):
    """All that kernels need of such a problem, as `Problem.data` has it."""
    if problem.loss.modelled:
        return Modelled(
            problem.A, problem.b, problem.start, problem.scale, problem.ridge, problem.lasso,
            float(problem.clip), problem.loss, problem.augment,
        )  # fmt: skip
    kind, loss = np.dtype(problem.precision), problem.loss
    rows = problem.A.astype(kind, copy=False)
    return Layered(
        rows, problem.b.astype(np.int64), problem.start,
        np.einsum("hj,hj->h", problem.A, problem.A), problem.scale, problem.ridge.astype(kind),
        problem.lasso.astype(kind), float(problem.clip), loss.hidden, loss.classes,
        loss.activation == "relu",
    )  # fmt: skip


def batch_gradients(who, x, count, round, step, seed, data, out):
    """As `gradients.batch_gradient`, whose arguments these are once they are arrays."""
    kernels = layered if isinstance(data, Layered) else modelled
    kernels.batch_gradients(who, x, count, round, step, seed, data, out)


def losses(who, x, data, out):
    """As `values.agent_losses`."""
    (layered if isinstance(data, Layered) else modelled).losses(who, x, data, out)


def training(plan, data):
    """What trains: the function, its plan and data, multiply-adds of an epoch, and parameters."""
    flat, work = tuple(in_type(plan, data)), 2.0 * data.A.size / data.scale.size
    if isinstance(data, Layered):
        return train_layered, (flat, tuple(data)), layered.work(data), data.A.shape[1]
    return train_modelled, (flat, data), work, data.dim
