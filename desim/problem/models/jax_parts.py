"""What a JAX function is made of, for desim: shapes that are compiled, keys, devices, trees."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np

from desim.arrays import Array
from desim.errors import InputError

MOST = 256  # rows of one agent that a compiled function takes, at most
OPTIONS = {  # of the compiler: no bit depends on how many threads there are
    "cpu": {"xla_cpu_multi_thread_eigen": False},
    "cuda": {"xla_gpu_deterministic_ops": True},
}


def rung(rows: int) -> int:
    """For how many rows there is a compiled function that takes so many: at most a quarter more.

    1 to 8, then four numbers for each doubling: 10, 12, 14, 16, 20, 24, ...
    """
    step = 1 << max(0, (rows - 1).bit_length() - 3)
    return -(-rows // step) * step


def few(rows: int) -> int:
    """The same for losses and predictions, which cost little: 16, 64 or MOST."""
    return next(size for size in (16, 64, MOST) if rows <= size)


def padded(rows: Array, axis: int, size: int) -> Array:
    """Rows along an axis and, up to `size`, the first of them again."""
    lacking = size - rows.shape[axis]
    if not lacking:
        return rows
    first = np.take(rows, [0], axis)
    return np.concatenate([rows, np.repeat(first, lacking, axis)], axis)


def clipped(each: Any, live: Any, clip: Any) -> Any:
    """The sum (dim,) of the gradients (m, dim) of rows that are live (m,), cut to norm `clip`.

    A row counts as 0 whose norm is not finite or has no factor in the type.
    """
    most = jnp.max(jnp.abs(each), axis=1, keepdims=True)
    unit = jnp.where(most > 0.0, most, 1.0)
    norms = (most * jnp.sqrt(_added((each / unit) ** 2)))[:, 0]
    slack = (8 + each.shape[1].bit_length()) * jnp.finfo(each.dtype).eps
    short = clip * (1.0 - slack)  # no norm is rounded above the clip
    factors = jnp.where(norms > short, short / jnp.where(norms > 0.0, norms, 1.0), 1.0)
    sound = norms * jnp.finfo(each.dtype).tiny <= short
    factors = jnp.where(live & sound, factors, 0.0)
    total = jnp.matmul(factors, each, precision="highest")

    def of_sound() -> Any:
        return jnp.matmul(factors, jnp.where(sound[:, None], each, 0.0), precision="highest")

    return jax.lax.cond(jnp.isfinite(total).all(), lambda: total, of_sound)  # 0 times inf is nan


def _added(squares: Any) -> Any:
    """Sums (m, 1) of squares (m, dim) by halves: each is rounded log2(dim) times, not dim times."""
    while (size := squares.shape[1]) > 1:
        half = -(-size // 2)
        rest = jnp.pad(squares[:, half:], ((0, 0), (0, 2 * half - size)))
        squares = squares[:, :half] + rest
    return squares


def words(keys: Any, many: int) -> Array:
    """Keys (many,) of 64 bits as jax has them, (many, 2); (many, 0) where there are none."""
    if keys is None:
        return np.empty((many, 0), np.uint32)
    whole = np.asarray(keys, np.uint64).reshape(many)
    return np.stack([whole >> np.uint64(32), whole & np.uint64(0xFFFFFFFF)], -1).astype(np.uint32)


def key_of(pair: Any) -> Any:
    """The key of jax whose two words (2,) these are."""
    return jax.random.wrap_key_data(jnp.asarray(pair), impl="threefry2x32")


def keys_of_rows(pair: Any, first: Any, rows: int) -> Any:
    """Keys (rows,) for rows from `first` on of the batch that has these words (2,)."""
    return jax.vmap(lambda h: jax.random.fold_in(key_of(pair), first + h))(jnp.arange(rows))


def device_of(name: str) -> Any:
    """The first device of that name; InputError where there is none."""
    try:
        return jax.devices(name)[0]
    except RuntimeError:
        other = jax.default_backend()
        allowed = "cpu" if name == "cuda" else f"{other}, or JAX_PLATFORMS with cpu"
        text = f"problem.device: found {name}, which jax does not find here; allowed: {allowed}"
        raise InputError(text) from None


@contextmanager
def on(device: Any, precision: str) -> Iterator[None]:
    """This thread's arrays are on the device, and of 64 bits where the precision has as many."""
    wide = jax.enable_x64 if hasattr(jax, "enable_x64") else jax.experimental.enable_x64
    with jax.default_device(device), wide(precision == "float64"):
        yield


def refuse_unfit(name: str, weights: Any) -> None:
    """InputError for a tree that holds nothing that trains, or something that cannot."""
    where = f"problem.model: {name}: weights"
    if isinstance(weights, Mapping) and "params" in weights and len(weights) > 1:
        others = ", ".join(str(one) for one in weights if one != "params")
        text = f"found {others} beside params, which nobody sends, clips or noises"
        raise InputError(f"{where}: {text}; allowed: params alone, as layers like GroupNorm have")
    leaves = jax.tree_util.tree_leaves_with_path(weights)
    if not leaves:
        raise InputError(f"{where}: found no array; allowed: a tree of float arrays")
    for path, leaf in leaves:
        kind = getattr(leaf, "dtype", np.dtype(type(leaf)) if isinstance(leaf, float) else None)
        if kind is None or not jnp.issubdtype(kind, jnp.floating):
            found = f"{type(leaf).__name__}" if kind is None else f"{kind}"
            at = jax.tree_util.keystr(path) or "the whole"
            raise InputError(f"{where}: found {found} at {at}; allowed: float arrays")


def by_row(losses: Any, rows: int, name: str) -> Any:
    """Losses (rows,), where rows whose parts have losses (rows, ...) take the mean of these."""
    shape = tuple(np.shape(losses))
    if not shape or shape[0] != rows:
        text = f"problem.model: {name}: losses: found shape {shape} for {rows} rows"
        raise InputError(f"{text}; allowed: ({rows},), a number for each row, not their mean")
    return losses if len(shape) < 2 else losses.reshape(rows, -1).mean(1)


def compiled(function: Callable[..., Any], arguments: tuple[Any, ...], device: str) -> Any:
    """The function for arguments of these shapes and types."""
    return jax.jit(function).lower(*arguments).compile(compiler_options=OPTIONS[device])
