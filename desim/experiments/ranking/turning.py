"""The smallest change of the inputs that turns the first place over.

Smallest: in the Euclidean norm of the logarithms of the factors. The search goes from changes that
turn it over towards none, then along the surface on which both methods are level, as structural
reliability looks for its design point (Hasofer and Lind, 1974), with drawn directions besides: a
time may jump where a message more is lost. What it finds is a change that does turn the place over;
that none is smaller is not proved.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from desim.arrays import Array

FARTHEST = 32.0  # factors beyond that are no small change
STEPS = (2.0, 4.0, FARTHEST)  # factors tried of each input alone, and of all
HALVINGS = 14
DRAWN = 60  # directions
SLOPE = 0.02  # step of a logarithm for the slope
Gap = Callable[[Array], float]


def smallest(gap: Gap, inputs: int, starts: Sequence[Array], seed: int) -> Array | None:
    """Logarithms (inputs,) of the smallest factors found with gap < 0; None if there are none.

    gap: of logarithms (inputs,), > 0 at 0; starts: some at which it is not.
    """
    best: Array | None = None
    for start in [*starts, *_outwards(inputs)]:
        if best is not None and np.linalg.norm(start) > 2.0 * np.linalg.norm(best):
            continue
        if gap(start) < 0.0:
            best = _nearer(best, _edge(gap, start))
    if best is None:
        slope = _slope(gap, np.zeros(inputs))
        far = -np.log(FARTHEST) * slope / max(float(np.abs(slope).max()), 1e-300)
        best = _edge(gap, far) if slope.any() and gap(far) < 0.0 else None
    return None if best is None else _improved(gap, best, np.random.default_rng(seed))


def _outwards(inputs: int) -> list[Array]:
    """Each input alone, both ways, and all of them."""
    signs = [row * sign for row in np.eye(inputs) for sign in (1.0, -1.0)]
    corners = [np.array(one) for one in product((1.0, -1.0), repeat=inputs)]
    alone = [float(np.log(step)) * one for step in STEPS for one in signs]
    return alone + [float(np.log(step)) * one for step in STEPS for one in corners]


def _nearer(best: Array | None, other: Array) -> Array:
    return other if best is None or np.linalg.norm(other) < np.linalg.norm(best) else best


def _edge(gap: Gap, start: Array) -> Array:
    """The part of `start` at which the gap closes, on the far side of it."""
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (low, middle) if gap(middle * start) < 0.0 else (middle, high)
    return high * start


def _slope(gap: Gap, at: Array) -> Array:
    """The derivative (inputs,) of the gap, by differences on both sides."""
    steps = SLOPE * np.eye(len(at))
    found = np.array([gap(at + step) - gap(at - step) for step in steps]) / (2.0 * SLOPE)
    return np.where(np.isfinite(found), found, 0.0)


def _improved(gap: Gap, best: Array, rng: np.random.Generator) -> Array:
    """Another point on the edge, nearer to 0 where one is found."""
    for _ in range(8):
        slope = _slope(gap, best)
        size = float(np.linalg.norm(slope))
        before = best
        if size > 0.0:
            for part in (1.0, 0.5, 0.25):  # of the way from this direction to the steepest one
                best = _tried(gap, best, (1 - part) * _unit(best) - part * slope / size)
        if np.linalg.norm(best) > 0.999 * np.linalg.norm(before):
            break
    for spread in np.geomspace(0.6, 0.02, DRAWN):
        best = _tried(gap, best, _unit(best) + spread * rng.standard_normal(len(best)))
    for k in range(len(best)):
        best = _tried(gap, best, np.where(np.arange(len(best)) == k, 0.0, best))
    return best


def _tried(gap: Gap, best: Array, direction: Array) -> Array:
    """The edge in another direction where that is nearer."""
    if not np.linalg.norm(direction) > 0.0:
        return best
    start = 0.999 * float(np.linalg.norm(best)) * _unit(direction)
    return _edge(gap, start) if gap(start) < 0.0 else best


def _unit(vector: Array) -> Array:
    return np.asarray(vector / np.linalg.norm(vector))


def rounded(turns: Callable[[dict[int, float]], bool], best: Array) -> dict[int, float]:
    """Factors by input, of as few digits as do, from three on, that turn the place over, too.

    Those of 1 are left out.
    """
    tries = product((3, 4, 5), (0.05, 0.01, 0.0))  # with as few inputs as possible
    for digits, least in tries:
        for stretch in (1.0, 1.001, 1.002, 1.005, 1.01):
            factors = [float(f"{np.exp(stretch * one):.{digits}g}") for one in best]
            kept = {k: f for k, f in enumerate(factors) if abs(np.log(f)) > least}
            if kept and turns(kept):
                return kept
    return {k: float(np.exp(one)) for k, one in enumerate(best) if one != 0.0}
