"""A torch module as a model: flat parameters in, sums of examples' gradients out.

Where the bits of a gradient do not depend on how many agents' gradients are computed with it, which
is tried out, agents go together through `torch.func.vmap`; else one by one. Torch computes on one
thread of its own, agents on all: then no bit depends on a number of threads.
"""

import copy
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from desim.arrays import Array
from desim.errors import InputError, show
from desim.problem.models import torch_parts as parts_of
from desim.problem.models.torch_look import needed, operations, refuse_unsettled, same_at_ends
from desim.problem.models.torch_parts import Parts
from desim.problem.models.user_model import Facts, Model, Rows

# Copies of the module: every thread has one that trains and one that is measured.


class Copies:
    """Copies of `module`, of whose parameters those in `names` train.

    frozen: layers that keep averages of rows use them as they are.
    """

    def __init__(self, module: nn.Module, names: Sequence[str], frozen: bool) -> None:
        self.module, self.names, self.frozen = module, names, frozen
        self.random = any(map(parts_of.draws, module.modules()))
        self.lock = threading.RLock()
        self._own = threading.local()

    def of(self, training: bool) -> nn.Module:
        """The calling thread's own copy, as it trains or as it is measured."""
        training = training and not getattr(self._own, "still", False)
        found: dict[bool, nn.Module] | None = getattr(self._own, "found", None)
        if found is None:
            torch.set_num_threads(1)  # of this thread
            found = self._own.found = {kind: copy.deepcopy(self.module) for kind in (False, True)}
            found[True].train()
            found[False].eval()
            for one in found[True].modules() if self.frozen else ():
                if isinstance(one, nn.modules.batchnorm._NormBase):
                    one.eval()
        return found[training]

    def renew(self) -> None:
        """The calling thread's next call has new copies."""
        self._own.found = None

    def at(self, w: Tensor, training: bool) -> tuple[nn.Module, list[nn.Parameter]]:
        """The copy whose parameters that train are parts of w (dim,), and these."""
        module = self.of(training)
        named = dict(module.named_parameters())
        parameters = [named[name] for name in self.names]
        with torch.no_grad():
            parts = w.split([one.numel() for one in parameters])
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.reshape(parameter.shape))
        return module, parameters

    @contextmanager
    def drawing(self, key: int | None) -> Iterator[None]:
        """Random layers draw from `key`, and nothing else does meanwhile; without one none does."""
        if key is None or not self.random:
            self._own.still = self.random
            try:
                yield
            finally:
                self._own.still = False
            return
        with self.lock, parts_of.seeded(int(key) % (1 << 63)):
            yield


ROOM = 1 << 22  # numbers of examples' gradients that are in memory at a time
EVEN = 4  # rows, so that an agent's part of a product begins where 16 bytes do
TRIED = (1, 3, 16, 32)  # agents that go together where it is tried out whether that changes a bit


class TorchModel(Model):
    """A model whose `module` is a torch.nn.Module, with the cross-entropy unless `losses` differs.

    Parameters that train (requires_grad) are x, in the order of `module.named_parameters()`.
    """

    libraries = ("torch",)
    devices = ("cpu", "cuda")
    draws = "random numbers from layers of torch.nn, such as Dropout"
    threads = True
    #: whether layers that keep averages of rows, as batch normalisation does, use them as they are
    frozen = False

    def __init__(self, parameters: Any, facts: Facts) -> None:
        super().__init__(parameters, facts)
        self.device = parts_of.device_of(facts.device)
        self.type = getattr(torch, facts.precision)
        module = self._made(facts.seed)
        parts_of.typed(module, self.device, self.type)
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        parts_of.refuse_unfit(self.name, named)
        self.names = [name for name, _ in named]
        self.shapes = [p.shape for _, p in named]
        self.sizes = [p.numel() for _, p in named]
        self.dim = sum(self.sizes)
        self._buffers = {name: one.clone() for name, one in module.named_buffers()}
        self.copies = Copies(module, self.names, self.frozen)
        self._sizes: dict[tuple[int, bool], int] = {}  # what _together_with says
        self._maps: bool | None = None  # whether `vmap` takes the module, once that was tried

    def _made(self, seed: int) -> nn.Module:
        """What `module` returns at a seed of torch's; InputError where it is no module."""
        if isinstance(self.module, nn.Module):
            text = "module: found a torch.nn.Module"
            raise InputError(f"problem.model: {self.name}: {text}; allowed: def module(self)")
        with parts_of.seeded(seed):
            module = self.module()
        if not isinstance(module, nn.Module):
            found = f"module returned {show(module)}"
            raise InputError(f"problem.model: {self.name}: {found}; allowed: a torch.nn.Module")
        return module

    @abstractmethod
    def module(self) -> nn.Module:
        """The network, made anew at each call; its initial numbers are those of torch's seed."""

    def losses(self, outputs: Any, labels: Tensor) -> Tensor:
        """The loss (m,) of each row, or of its parts (m, ...), of which the mean is taken."""
        if labels.dtype.is_floating_point:
            return nn.functional.mse_loss(outputs.reshape(labels.shape), labels, reduction="none")
        return nn.functional.cross_entropy(outputs, labels, reduction="none")

    def predictions(self, outputs: Any) -> Tensor:
        """What the outputs of rows (m, ...) say, of the shape of labels."""
        return outputs if self.labels == "numbers" else outputs.argmax(1)

    def initial(self, seed: int) -> Array:
        """The parameters of a module made with this seed, (dim,)."""
        module = self._made(seed)
        parts_of.typed(module, torch.device("cpu"), self.type)
        parts = [p.detach().reshape(-1) for p in module.parameters() if p.requires_grad]
        return np.asarray(torch.cat(parts).numpy())

    def loss(self, x: Array, rows: Rows) -> Array:
        """The loss (m,) of each row at x (dim,), without random layers."""
        with torch.no_grad():
            found = parts_of.by_row(self.losses(self._outputs(x, rows), self._tensor(rows.labels)))
            return np.asarray(found.double().cpu().numpy())

    def predict(self, x: Array, rows: Rows) -> Array:
        """What the module says of each row."""
        with torch.no_grad():
            return np.asarray(self.predictions(self._outputs(x, rows)).cpu().numpy())

    def gradient(self, x: Array, rows: Rows) -> Array:
        """The gradient (dim,) of the sum of the rows' losses."""
        return self.clipped(x, rows, np.inf)

    def clipped(self, x: Array, rows: Rows, clip: float) -> Array:
        """The sum (dim,) of the rows' gradients, each cut to the norm `clip`."""
        return np.asarray(self.gradients(x[None], parts_of.lone(rows), clip)[0])

    def example_gradients(self, x: Array, rows: Rows) -> Array:
        """The gradient (m, dim) of each row's loss."""
        inputs, labels = self._tensor(rows.inputs), self._tensor(rows.labels)
        self.copies.of(True)
        with self.copies.drawing(rows.key):
            found = torch.cat(self._each(self._tensor(x), inputs, labels), -1)
            return np.asarray(found.detach().cpu().numpy())

    def gradients(self, x: Array, rows: Rows, clip: float) -> Array:
        """Sums (n, dim) of the rows' gradients of n agents with models x (n, dim)."""
        inputs, labels, w = (self._tensor(one) for one in (rows.inputs, rows.labels, x))
        cut, m = bool(np.isfinite(clip)), labels.shape[1]
        self.copies.of(True)  # made here: within `vmap`, copies would be of its kind
        if size := self._together_with(m, cut):
            inputs, labels = (parts_of.filled_up(one, size) for one in (inputs, labels))
            some = max(1, ROOM // (self.dim * min(size, self._some))) if cut else len(w)
            groups = zip(*(one.split(some) for one in (w, inputs, labels)), strict=True)
            sums = torch.cat([self._all(x, A, b, m, clip) for x, A, b in groups])
            return np.asarray(sums.detach().cpu().numpy())
        many = []  # each with arrays of its own: how memory is aligned may change a bit
        for r in range(len(w)):
            with self.copies.drawing(None if rows.key is None else int(rows.key[r])):
                x, A, b = (one[r].clone() for one in (w, inputs, labels))
                many.append(self._alone(x, A, b, clip))
        return np.asarray(torch.stack(many).cpu().numpy())

    def alone(self, x: Array, rows: Rows, clip: float) -> Array:
        """By the module itself, without `vmap` over agents, which costs one of them much more."""
        inputs, labels = self._tensor(rows.inputs), self._tensor(rows.labels)
        return np.asarray(self._alone(self._tensor(x), inputs, labels, clip).cpu().numpy())

    def flops(self, m: int) -> float:
        """As torch counts them: products and convolutions, forward and backward."""
        return m * operations(self)

    def memory(self, m: int, clipped: bool) -> float:
        """Parameters, gradients, and what m rows keep for the backward pass."""
        return needed(self, min(m, self._some) if clipped else m, clipped)

    @property
    def fixed_sha256(self) -> str:
        """Hash of the module's buffers and of its parameters that do not train."""
        return parts_of.fixed_sha256(self.copies.module, self.type)

    @property
    def hardware(self) -> str:
        """The kind of graphics card."""
        return "" if self.device.type == "cpu" else str(torch.cuda.get_device_name(self.device))

    def settled(self) -> None:
        """InputError where the module is no function of its parameters and rows."""
        refuse_unsettled(self)

    def computing(self) -> AbstractContextManager[None]:
        """One thread of torch's own: its bits depend on their number."""
        return parts_of.one_thread()

    @property
    def _some(self) -> int:
        """Rows whose gradients are in memory at a time, of one agent: the same for any m."""
        fit = ROOM // int(self.dim)
        return fit - fit % EVEN if fit > EVEN else max(1, fit)

    def _together_with(self, m: int, cut: bool) -> int:
        """To how many rows m are filled up for agents to go together; 0 where they do not.

        No bit may depend on who goes together. A product's may on where in memory an agent's part
        of it begins, which is the same for all where rows are a multiple of EVEN.
        """
        if self.copies.random or not self._mapped():
            return 0
        if self.device.type != "cpu":
            return m
        with self.copies.lock:
            if (m, cut) not in self._sizes:
                sizes = dict.fromkeys((m, -(-m // EVEN) * EVEN))
                fit = (size for size in sizes if self._tried(m, size, cut))
                self._sizes[m, cut] = next(fit, 0)
            return self._sizes[m, cut]

    def _tried(self, m: int, size: int, cut: bool) -> bool:
        """Whether gradients of m rows, filled up, have the same bits in groups of any of TRIED."""
        most, (inputs, labels, _) = max(TRIED), self.sample
        place = (np.arange(most)[:, None] + np.arange(m)) % len(labels)
        own = [self._tensor(one[place]) for one in (inputs, labels)]
        spread = torch.linspace(-1e-2, 1e-2, most * self.dim, dtype=self.type)
        w = self._tensor(self.initial(self.facts.seed)) + spread.reshape(most, self.dim)
        together = partial(self._all, m=m, clip=1.0 if cut else np.inf)
        arguments = w, *(parts_of.filled_up(one, size) for one in own)
        few = tuple(one[:2].clone() for one in arguments)
        if not same_at_ends(lambda: together(*few)):
            return False
        if size > m and not parts_of.near(together(*few), together(w[:2], *(a[:2] for a in own))):
            return False
        return parts_of.same_in_groups(together, arguments, TRIED)

    def _alone(self, w: Tensor, inputs: Tensor, labels: Tensor, clip: float) -> Tensor:
        """The sum (dim,) of one agent's rows: by the module itself, or by `_each`."""
        if np.isfinite(clip):
            return self._clipped(self._each, w, inputs, labels, len(labels), clip)
        module, parameters = self.copies.at(w, True)
        total = parts_of.by_row(self.losses(module(inputs), labels)).sum()
        if not total.requires_grad:  # nothing of it leads back to a parameter
            return torch.zeros_like(w)
        found = torch.autograd.grad(total, parameters, allow_unused=True, materialize_grads=True)
        return torch.cat([one.to_dense().reshape(-1) for one in found])

    def _all(self, w: Tensor, inputs: Tensor, labels: Tensor, m: int, clip: float) -> Tensor:
        """The sums (n, dim) over the first m rows of many agents, together."""
        if np.isfinite(clip):
            return self._clipped(vmap(self._mapped_rows()), w, inputs, labels, m, clip)
        total = partial(self._total, m=m)
        found = vmap(grad(total))(self._parts(w), inputs, labels)
        return torch.cat([one.reshape(len(one), -1) for one in found], -1)

    def _clipped(
        self, each: Callable[..., Parts], w: Tensor, inputs: Tensor, labels: Tensor, m: int,
        clip: float,
    ) -> Tensor:  # fmt: skip
        """Sums over m of what `each` gives, parts (..., m, some) of rows cut to the norm `clip`.

        A row counts as 0 whose norm is not finite or has no factor in the type.
        """
        axis, total = w.dim() - 1, torch.zeros_like(w)
        for low in range(0, m, self._some):
            size = min(self._some, labels.shape[axis] - low)
            found = each(w, inputs.narrow(axis, low, size), labels.narrow(axis, low, size))
            norms, kind = parts_of.lengths(found), torch.finfo(w.dtype)
            short = clip * (1.0 - 64.0 * kind.eps)  # no norm is rounded above
            sound = norms * kind.tiny <= short  # nor is a factor without digits
            factors = torch.where(norms > short, short / norms, 1.0).to(w.dtype)
            factors[..., m - low :] = 0.0
            if not bool(sound.all()):
                factors, found = parts_of.only(sound, factors, found)
            total = total + parts_of.weighted(factors, found)
        return total

    def _each(self, w: Tensor, inputs: Tensor, labels: Tensor) -> Parts:
        """Gradients of one agent's rows in parts; row by row where `vmap` does not take them."""
        if self._mapped():
            return self._mapped_rows()(w, inputs, labels)
        rows = [(inputs[h : h + 1].clone(), labels[h : h + 1]) for h in range(len(labels))]
        return (torch.stack([self._alone(w, *row, np.inf) for row in rows]),)

    def _mapped(self) -> bool:
        """Whether `vmap` takes the module, and does not warn that it goes row by row."""
        with self.copies.lock:
            if self._maps is None:
                inputs, labels = (self._tensor(one) for one in self.sample[:2])
                w = self._tensor(self.initial(self.facts.seed))
                self._maps = parts_of.works(lambda: self._mapped_rows()(w, inputs, labels))
            return self._maps

    def _mapped_rows(self) -> Callable[..., Parts]:
        """Gradients of rows (m, ...) at w (dim,): (m, some) of each parameter."""
        each = grad(lambda parts, a, b: self._total(parts, a.unsqueeze(0), b.unsqueeze(0)))
        rows = vmap(each, (None, 0, 0), randomness="different")
        return lambda w, a, b: tuple(
            one.reshape(len(one), -1) for one in rows(self._parts(w), a, b)
        )

    def _parts(self, w: Tensor) -> Parts:
        """The parameters in w (..., dim), each in its shape (..., *shape)."""
        parts = zip(self.shapes, w.split(self.sizes, -1), strict=True)
        return tuple(part.reshape(*w.shape[:-1], *shape) for shape, part in parts)

    def _total(self, parts: Parts, inputs: Tensor, labels: Tensor, m: int | None = None) -> Tensor:
        """The sum of the losses of the first m rows, or all, as a function of the parameters."""
        named = dict(zip(self.names, parts, strict=True))
        outputs = functional_call(self.copies.of(True), named, (inputs,))
        return parts_of.by_row(self.losses(outputs, labels))[:m].sum()

    def _outputs(self, x: Array, rows: Rows) -> Any:
        """What the module, not training, says of rows at x (dim,)."""
        module, _ = self.copies.at(self._tensor(x), False)
        return module(self._tensor(rows.inputs))

    def _tensor(self, array: Array) -> Tensor:
        """An array on the device: real numbers in the model's type, whole ones as they are."""
        return parts_of.tensor_of(array, self.device, self.type)
