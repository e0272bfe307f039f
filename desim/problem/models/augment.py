"""Random changes of rows during training, each drawn at the address of its row and step.

A row's draws are a function of the seed, its agent, its number there, the round and the step, so
that engines, batches and threads change no bit, and no row's draws depend on another's.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError
from desim.numerics import keys
from desim.numerics.keys import Stream

KINDS = ("flip", "crop", "noise")
PLACES = len(KINDS) + 1  # of addresses that a row has, the first for later use
MAX_ROWS = (1 << 27) // PLACES  # rows of an agent


class Augmentation(NamedTuple):
    """What is done to a row: its kind, and pixels of a crop or the deviation of a noise."""

    kind: str
    value: float = 0.0


class Place(NamedTuple):
    """Whose rows they are: seed, agents, rounds (n,), step, and the rows' numbers there (n, m)."""

    seed: int
    agent: NDArray[np.int64]
    round: NDArray[np.int64]
    step: int
    row: NDArray[np.int64]


def augmented(
    inputs: NDArray[Any], changes: tuple[Augmentation, ...], place: Place
) -> NDArray[Any]:
    """Inputs (n, m, *shape) after all changes, in their order."""
    for change in changes:
        inputs = _DOERS[change.kind](inputs, change.value, place)
    return inputs


def refuse_unsuited(
    changes: tuple[Augmentation, ...], shape: tuple[int, ...], dtype: Any, rows: int
) -> None:
    """InputError where so many rows of an agent, of that shape and type, cannot be changed so."""
    for change in changes:
        where = f"problem.augment: {change.kind}"
        if rows > MAX_ROWS:
            raise InputError(f"{where}: found an agent with {rows} rows; allowed: up to {MAX_ROWS}")
        if change.kind == "noise" and np.dtype(dtype).kind != "f":
            raise InputError(f"{where}: found inputs of type {dtype}; allowed: real numbers")
        if change.kind != "noise" and len(shape) < 2:
            allowed = "images, (..., height, width)"
            raise InputError(f"{where}: found inputs of shape {shape}; allowed: {allowed}")


def _draws(draw: Any, what: str, place: Place, size: int) -> Array:
    """Numbers (n, m, size) of all rows."""
    found = draw(
        place.seed,
        Stream.MODEL,
        size=size,
        agent=place.agent[:, None],
        peer=PLACES * place.row + KINDS.index(what) + 1,
        round=place.round[:, None],
        step=place.step,
    )
    return np.asarray(found)


def _flipped(inputs: NDArray[Any], value: float, place: Place) -> NDArray[Any]:
    """Each row, left and right exchanged with probability 1/2."""
    turned = _draws(keys.uniforms, "flip", place, 1)[..., 0] < 0.5
    out = inputs.copy()
    out[turned] = out[turned][..., ::-1]
    return out


def _cropped(inputs: NDArray[Any], value: float, place: Place) -> NDArray[Any]:
    """Each row, moved by up to `value` pixels along both axes; zeros come in."""
    most = int(value)
    moved = np.floor(_draws(keys.uniforms, "crop", place, 2) * (2 * most + 1)).astype(int)
    height, width = inputs.shape[-2:]
    around = [(0, 0)] * (inputs.ndim - 2) + [(most, most)] * 2
    padded, out = np.pad(inputs, around), np.empty_like(inputs)
    for r, h in np.ndindex(*inputs.shape[:2]):
        top, left = moved[r, h]
        out[r, h] = padded[r, h, ..., top : top + height, left : left + width]
    return out


def _noisy(inputs: NDArray[Any], value: float, place: Place) -> NDArray[Any]:
    """Each number plus a normal one of deviation `value`."""
    drawn = _draws(keys.normals, "noise", place, int(np.prod(inputs.shape[2:])))
    return np.asarray(inputs + (value * drawn).reshape(inputs.shape).astype(inputs.dtype))


_DOERS = {"flip": _flipped, "crop": _cropped, "noise": _noisy}
