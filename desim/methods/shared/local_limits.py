"""Limits of a scenario's local training: what does not fit, and what of its mean has no proof."""

from collections.abc import Iterator

import numpy as np

from desim.arrays import Array
from desim.fields import Local
from desim.privacy.ledger.mechanisms import DynamicZcdp, Noise
from desim.problem.problem import Problem


def oversized(key: str, batch: int | None, problem: Problem) -> list[str]:
    """What is wrong with a batch that no agent can fill; who has fewer rows takes all of them."""
    most = int(problem.rows.max())
    text = f"{key}: found {batch}; allowed: 1 to {most}, the most rows that an agent has"
    return [text] if batch is not None and batch > most else []


def misfits(local: Local, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What in the section `local` does not fit the problem and its noise, one line each."""
    n, loss, key = problem.agents, problem.loss, "algorithm.local"
    clip = " with clip" if problem.clipped else ""
    for name in ("solver", "step", "momentum"):
        entries = len(given) if isinstance(given := getattr(local, name), tuple) else n
        if entries != n:
            allowed = f"one, or one for each of the {n} agents"
            yield f"{key}.{name}: found {entries} entries; allowed: {allowed}"
    yield from oversized(f"{key}.batch", local.batch, problem)
    if "exact" in local.solvers and len(local.solvers) > 1:
        yield f"{key}.solver: exact cannot be mixed with other solvers"
    if "exact" in local.solvers and (clip or not loss.quadratic):
        text = f"exact solves quadratics only; found loss {loss.name}{clip}"
        yield f"{key}.solver: {text}; allowed: squared without clip, or another solver"
    if isinstance(noise, DynamicZcdp):
        yield "privacy.noise: {phi, growth} belongs to zcdp-nfl; give sigma or local.tau"
    elif noise is not None and not noise.constant:
        yield "privacy.noise.decay: local steps have constant noise; allowed: 1"
    if noise is not None and "noisy" not in local.solvers:
        yield f"privacy.noise: this method perturbs its local steps; set {key}.solver: noisy"
    if noise is not None and local.tau > 0.0:
        yield f"{key}.tau: found together with privacy.noise; allowed: one of them"


def unproved(name: str, gamma: Array, global_step: float, late: bool) -> Iterator[str]:
    """Warnings of a mean of what local steps gamma (agents,) changed; late: of older models."""
    if np.ptp(gamma) > 0.0:
        text = f"algorithm.local.step: agents with larger steps weigh more in {name}, whose limit"
        yield f"{text} is then not the optimum of the sum even with one local step"
    if global_step > 1.0:
        text = f"algorithm.global_step: {global_step:g} is above 1, up to which every local step"
        yield f"{text} below 2/smoothness is stable; {name} may diverge"
    if late:
        yield f"policy: {name} is not proved with replies to older models"


def unfit_for_noise(
    name: str, local: Local, noise: Noise | None, clip: float | None
) -> Iterator[str]:
    """What does not fit noise on changes that agents send, of norm `clip`, one line each."""
    if noise is not None and clip is None:
        yield "privacy.noise: nothing bounds what an agent changes; set algorithm.clip"
    if "noisy" in local.solvers:
        text = f"found noisy, but {name} adds noise to what an agent sends"
        yield f"algorithm.local.solver: {text}; allowed: privacy.noise, or fedavg"
