"""A JAX function as a model: flat parameters in, sums of examples' gradients out.

What is compiled, when it is first needed: for gradients and for clipped ones a function of one
agent for each number of rows on the ladder of `jax_parts.rung`, for losses and predictions for
three. More than jax_parts.MOST rows are taken in turn. Once a function has been called WORTH times,
another one is compiled that takes up to GROUP agents in turn within one call; it is used where it
gives the same bits, which is tried out (convolutions do not). On a graphics card all go through
`vmap`. JAX_COMPILATION_CACHE_DIR, a setting of jax, keeps what takes a second or more to compile.
"""

import inspect
import threading
from abc import abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

from desim.arrays import Array
from desim.problem.models.jax_parts import (
    MOST,
    by_row,
    clipped,
    compiled,
    device_of,
    few,
    key_of,
    keys_of_rows,
    on,
    padded,
    refuse_unfit,
    rung,
    words,
)
from desim.problem.models.model import Facts, Model, Rows

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
        most, one = (self._some, self._cut) if cut else (MOST, self._summed)
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
        self, one: Callable[..., Any], size: Any, x: Array, *given: Array, key: Array | None = None
    ) -> Array:
        """What `one` gives (m, ...) for rows of one agent, in calls with `size` of them."""
        w, arrays, found = self._array(x), [self._array(rows) for rows in given], []
        most, m = self._some if size is rung else MOST, len(given[0])
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
        return max(1, min(MOST, ROOM // self.dim))

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
