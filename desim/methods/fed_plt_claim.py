"""What the claim about Fed-PLT follows from: Proposition 4, and which of its conditions fail."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.methods.shared.local_training import LocalTraining
from desim.privacy.papers.claims import Inputs, inputs


def claimed(local: LocalTraining, init: Any) -> Inputs | None:
    """Inputs of Proposition 4; None without noise."""
    problem = local.problem
    if not local.noisy:
        return None
    return inputs(
        "fed-plt/adp", problem.agents, _unmet(local, init),
        reach=2.0 * problem.clip * problem.scale, tau=local.tau,
        modulus=problem.public_moduli[0], gamma=local.gamma, epochs=local.local.epochs,
    )  # fmt: skip


def supposed_start(local: LocalTraining) -> Array:
    """Deviations (agents,) of the start that Proposition 4 supposes: sqrt(2 / lambda_i) tau_i."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(np.sqrt(2.0 / local.problem.public_moduli[0]) * local.tau)


def _unmet(local: LocalTraining, init: Any) -> Iterator[str]:
    """Conditions of Proposition 4 that no run of these settings meets."""
    if not local.problem.clipped:
        yield "gradients are not clipped, so L of Assumption 3 is infinite"
    if not (local.problem.public_moduli[0] > 0.0).all():
        yield "local losses are not strongly convex"
    if local.problem.clipped and not local.problem.loss.linear:
        yield "clipped gradients of a layered model are those of no convex function"
    smoothest = local.problem.public_moduli[1] + local.q
    if np.isinf(smoothest).any():
        yield "nothing bounds the norm of rows, and so no smoothness holds for every data set"
    elif (local.gamma >= 2.0 / smoothest).any():
        yield "a step gamma is not below 2 / (smoothness + 1/rho)"
    drawn = init.kind == "normal" and np.allclose(init.value, supposed_start(local))
    if init.kind != "langevin" and not drawn:
        yield "x_{i,0} is not drawn from N(0, 2 tau^2 / lambda)"
