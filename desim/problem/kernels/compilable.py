"""What a coordinator method hands to the engine that plays its rounds in compiled code."""

from dataclasses import dataclass
from typing import Any

from desim.arrays import Array


@dataclass(frozen=True)
class Compilable:
    """A coordinator method that needs no Python inside a round.

    Every round it calls agents to train between what `begin` says, keeps what `finish` says, sums
    the replies, and publishes `model` of what `aggregate` makes of that; see
    `kernels.formulas`. local: the LocalTraining, in steps on a linear model; state: the agents'
    arrays (agents, dim) by name, their models first; memory (dim,), or a tuple of such: what the
    coordinator keeps; latest (agents, dim) where it sums the latest replies of all agents, of which
    these are the first, None where it sums those of a collection; beside: arrays (agents, dim) that
    formulas are given after the state, and nobody changes; sloped: whether they are given the
    gradient where an agent has trained to, last. terms, work: of a call, those of local if None.
    clip: replies are cut to this norm, and noised, Gaussian, as terms say if not inside training.
    """

    formulas: Any
    local: Any
    state: dict[str, Array]
    memory: Array | tuple[Array, ...]
    latest: Array | None = None
    beside: tuple[Array, ...] = ()
    sloped: bool = False
    terms: Any = None
    work: Any = None
    clip: float | None = None
