"""A JAX function as a model: flat parameters in, sums of examples' gradients out.

What is compiled, when it is first needed: for gradients and for clipped ones a function of one
agent for each number of rows on the ladder of `rung`, for losses and predictions for three. More
than ROWS_PER_CALL rows are taken in turn. Once a function has been called WORTH times, another one
is compiled that takes up to GROUP agents in turn within one call; it is used where it gives the
same bits, which is tried out (convolutions do not). On a graphics card all go through `vmap`.
JAX_COMPILATION_CACHE_DIR, a setting of jax, stores what takes a second or more to compile.
"""

import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import jax
import jax.experimental
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from desim.arrays import Array
from desim.errors import InputError
from desim.problem.models.user_model import Facts, Model, Rows

# What the model is built from: shapes that are compiled, keys, devices, trees.
ROWS_PER_CALL = 256  # rows of one agent that a compiled function takes, at most
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
    """The same for losses and predictions, which cost little: 16, 64 or ROWS_PER_CALL."""
    return next(size for size in (16, 64, ROWS_PER_CALL) if rows <= size)


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


ROOM = 1 << 23  # numbers of examples' gradients that are in memory at a time
GROUP = 16  # agents within one call, at most
WORTH = 500  # calls for one agent after which compiling another function pays

Arrays = tuple[Any, ...]


class JaxModel(Model):
    """A model of weights, a tree of arrays, and what it says of rows, by default as cross-entropy.

    Where `outputs` takes `key`, a key of jax, it is that of one row in training and None else.
    """

    libraries = ("jax", "jaxlib")
    devices = ("cpu", "cuda")
    draws = "random numbers from the argument key of outputs"
    threads = True

    def __init__(self, parameters: Any, facts: Facts) -> None:
        super().__init__(parameters, facts)
        self.device = device_of(facts.device)
        self.random = "key" in inspect.signature(self.outputs).parameters
        self._type = np.dtype(facts.precision)
        self._lock = threading.Lock()
        self._compiled: dict[Any, Any] = {}
        self._calls: dict[Any, int] = {}
        self._same: dict[Any, bool] = {}
        with self._here():
            flat, self._tree = self._flat(facts.seed)
        self.dim = len(flat)

    @abstractmethod
    def weights(self, key: Any) -> Any:
        """What trains: a tree of float arrays, made from a key of jax."""

    @abstractmethod
    def outputs(self, weights: Any, inputs: Any) -> Any:
        """What the model says of inputs (m, *shape), an array (m, ...) or a tree of them."""

    def losses(self, outputs: Any, labels: Any) -> Any:
        """The loss (m,) of each row, or of its parts (m, ...), of which the mean is taken."""
        if jnp.issubdtype(labels.dtype, jnp.floating):
            return (outputs.reshape(labels.shape) - labels) ** 2
        scores = jax.nn.log_softmax(outputs)
        return -jnp.take_along_axis(scores, labels[..., None].astype(jnp.int32), -1)[..., 0]

    def predictions(self, outputs: Any) -> Any:
        """What the outputs of rows (m, ...) say, of the shape of labels."""
        return outputs if self.labels == "numbers" else jnp.argmax(outputs, -1)

    def initial(self, seed: int) -> Array:
        """The weights made from this seed's key, (dim,)."""
        with self._here():
            return np.array(self._flat(seed)[0])

    @property
    def hardware(self) -> str:
        """The kind of graphics card."""
        return "" if self.device.platform == "cpu" else str(self.device.device_kind)

    def loss(self, x: Array, rows: Rows) -> Array:
        """The loss (m,) of each row at x (dim,), without random layers."""
        return self._of_rows(self._losses, few, x, rows.inputs, rows.labels).astype(float)

    def predict(self, x: Array, rows: Rows) -> Array:
        """What the model says of each row."""
        return self._of_rows(self._said, few, x, rows.inputs)

    def gradient(self, x: Array, rows: Rows) -> Array:
        """The gradient (dim,) of the sum of the rows' losses."""
        return self.clipped(x, rows, np.inf)

    def clipped(self, x: Array, rows: Rows, clip: float) -> Array:
        """The sum (dim,) of the rows' gradients, each cut to the norm `clip`."""
        one = Rows(np.asarray(rows.inputs)[None], np.asarray(rows.labels)[None], rows.key)
        found: Array = self.gradients(np.asarray(x)[None], one, clip)[0]
        return found

    def example_gradients(self, x: Array, rows: Rows) -> Array:
        """The gradient (m, dim) of each row's loss."""
        key = words(rows.key if self.random else None, 1)[0]
        return self._of_rows(self._each, rung, x, rows.inputs, rows.labels, key=key)

    def gradients(self, x: Array, rows: Rows, clip: float) -> Array:
        """Sums (n, dim) of the rows' gradients of n agents with models x (n, dim)."""
        inputs, labels, w = (self._array(one) for one in (rows.inputs, rows.labels, x))
        keys = words(rows.key if self.random else None, len(w))
        cut, m, total = bool(np.isfinite(clip)), labels.shape[1], np.zeros_like(w)
        most, one = (self._some, self._cut) if cut else (ROWS_PER_CALL, self._summed)
        for low in range(0, m, most):
            part = slice(low, min(low + most, m))
            size = rung(m) if m <= most else most
            live = np.arange(size) < part.stop - low
            own = w, padded(inputs[:, part], 1, size), padded(labels[:, part], 1, size), keys
            with self._here():
                total += self._agents(one, own, (np.int32(low), live, self._type.type(clip)))
        return total

    def _agents(self, one: Callable[..., Any], own: Arrays, shared: Arrays) -> Array:
        """What `one` gives (n, dim) for n agents, of whom each has its `own` (n, ...)."""
        n, address = len(own[0]), (one.__name__, *((a.shape[1:], a.dtype.str) for a in own))
        if n > 1 and self._goes_together(one, address, own, shared):
            parts = [slice(low, low + GROUP) for low in range(0, n, GROUP)]
            return np.concatenate(
                [
                    self._together(one, address, tuple(a[part] for a in own), shared)
                    for part in parts
                ]
            )
        self._calls[address] = self._calls.get(address, 0) + n
        return self._alone(one, address, own, shared)

    def _alone(self, one: Callable[..., Any], address: Any, own: Arrays, shared: Arrays) -> Array:
        """One agent after the other, each in a call of its own."""
        alone = [(*(a[r] for a in own), *shared) for r in range(len(own[0]))]
        do = self._ready(address, one, alone[0])
        begun = [do(*arguments) for arguments in alone]
        return np.stack([np.asarray(sums) for sums in begun])

    def _goes_together(
        self, one: Callable[..., Any], address: Any, own: Arrays, shared: Arrays
    ) -> bool:
        """Whether agents go together, on which no bit may depend: tried out once that may pay."""
        if self.device.platform != "cpu":
            return True
        if address not in self._same and self._calls.get(address, 0) >= WORTH:
            w, *rest = (a[:GROUP] for a in own)
            spread = np.linspace(-1e-2, 1e-2, w.size, dtype=w.dtype).reshape(w.shape)
            some = (w + spread, *rest)
            alone, together = (f(one, address, some, shared) for f in (self._alone, self._together))
            self._same[address] = np.array_equal(alone, together)
        return self._same.get(address, False)

    def _together(
        self, one: Callable[..., Any], address: Any, own: Arrays, shared: Arrays
    ) -> Array:
        """Up to GROUP agents in one call, compiled once for any number of them."""

        def in_turn(count: Any, own: Any, shared: Any) -> Any:
            def of_agent(r: Any) -> Any:
                return one(*(a[r] for a in own), *shared)

            if self.device.platform != "cpu":
                return jax.vmap(of_agent)(jnp.arange(GROUP))
            start = jnp.zeros_like(own[0])
            return jax.lax.fori_loop(0, count, lambda r, out: out.at[r].set(of_agent(r)), start)

        n = len(own[0])
        arguments = (np.int32(n), tuple(padded(a, 0, GROUP) for a in own), shared)
        done = self._ready((address, GROUP), in_turn, arguments)(*arguments)
        return np.asarray(done)[:n]

    def _of_rows(
        self, one: Callable[..., Any], size: Any, x: Array, *inputs: Array, key: Array | None = None
    ) -> Array:
        """What `one` gives (m, ...) for rows of one agent, in calls with `size` of them."""
        w, arrays, found = self._array(x), [self._array(rows) for rows in inputs], []
        most, m = self._some if size is rung else ROWS_PER_CALL, len(inputs[0])
        for low in range(0, m, most):
            many = min(most, m - low)
            parts = [padded(rows[low : low + many], 0, size(many)) for rows in arrays]
            arguments = (w, *parts, *(() if key is None else (key, np.int32(low))))
            address = (one.__name__, *((a.shape, a.dtype.str) for a in arguments))
            with self._here():
                done = self._ready(address, one, arguments)(*arguments)
            found.append(np.asarray(done)[:many])
        return np.concatenate(found)

    def _ready(self, address: Any, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The function compiled for such arguments: once."""
        with self._lock:
            if address not in self._compiled:
                self._compiled[address] = compiled(function, arguments, self.facts.device)
            return self._compiled[address]

    def _summed(self, w: Any, inputs: Any, labels: Any, key: Any, *shared: Any) -> Any:
        """The gradient (dim,) of the sum of the losses of rows that are live."""
        first, live, _ = shared

        def total(w: Any) -> Any:
            if key.size:
                keys = keys_of_rows(key, first, len(live))
                losses = jax.vmap(self._loss_of_one, (None, 0, 0, 0))(w, inputs, labels, keys)
            else:
                losses = self._losses(w, inputs, labels)
            return jnp.where(live, losses, 0.0).sum()

        return jax.grad(total)(w)

    def _cut(self, w: Any, inputs: Any, labels: Any, key: Any, *shared: Any) -> Any:
        """The sum (dim,) of gradients, each cut to a norm, of rows that are live."""
        first, live, clip = shared
        return clipped(self._each(w, inputs, labels, key, first), live, clip)

    def _each(self, w: Any, inputs: Any, labels: Any, key: Any, first: Any) -> Any:
        """The gradients (m, dim) of rows."""
        if key.size:
            keys = keys_of_rows(key, first, len(labels))
            return jax.vmap(jax.grad(self._loss_of_one), (None, 0, 0, 0))(w, inputs, labels, keys)
        return jax.vmap(jax.grad(self._loss_of_one), (None, 0, 0))(w, inputs, labels)

    def _loss_of_one(self, w: Any, inputs: Any, labels: Any, key: Any = None) -> Any:
        return self._losses(w, inputs[None], labels[None], key)[0]

    def _losses(self, w: Any, inputs: Any, labels: Any, key: Any = None) -> Any:
        """The losses (m,) of rows."""
        found = self.losses(self._outputs(w, inputs, key), labels)
        return by_row(found, len(labels), self.name)

    def _said(self, w: Any, inputs: Any) -> Any:
        return self.predictions(self._outputs(w, inputs, None))

    def _outputs(self, w: Any, inputs: Any, key: Any) -> Any:
        drawn = {"key": key} if self.random else {}
        return self.outputs(self._tree(w), inputs, **drawn)

    @property
    def _some(self) -> int:
        """Rows whose gradients are in memory at a time, of one agent."""
        return max(1, min(ROWS_PER_CALL, ROOM // self.dim))

    def _flat(self, seed: int) -> tuple[Any, Any]:
        """The weights made from a seed (dim,), and what makes their tree again."""
        weights = self.weights(key_of(words(seed % (1 << 64), 1)[0]))
        refuse_unfit(self.name, weights)
        typed = jax.tree_util.tree_map(lambda a: jnp.asarray(a, self._type), weights)
        flat, tree = ravel_pytree(typed)
        return flat, tree

    def _array(self, array: Any) -> Array:
        """An array as compiled functions take it: real numbers in the model's type."""
        found = np.asarray(array)
        wide = self._type == np.float64
        if found.dtype.kind == "f":
            return found.astype(self._type, copy=False)
        if found.dtype.kind in "iub" and found.dtype.itemsize < 8:
            return found
        return found.astype(np.int64 if wide else np.int32)

    def _here(self) -> AbstractContextManager[None]:
        return on(self.device, self.facts.precision)
