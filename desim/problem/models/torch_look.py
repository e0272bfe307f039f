"""The first look at a user's torch module: whether its numbers are sound, and what a step costs.

At an array's end torch may compute by another formula than elsewhere, 8 or 16 numbers at a time:
`sigmoid`, `silu` and `elu` (torch 2.13) then differ in a last bit. An agent's numbers must not
depend on where they lie among others'.
"""

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from desim.arrays import Array
from desim.errors import InputError
from desim.problem.models.torch_parts import by_row, refuse_draws, seeded, typed
from desim.problem.models.user_model import Rows

NUDGE = 1e-2  # from a start where a wrong module may look right, such as zeros
NEAR = 1e-3  # relative, of the gradients of two rows to that of both


def refuse_unsettled(model: Any) -> None:
    """InputError where the module's numbers change, come from elsewhere, or rows of it meet."""
    still, start = model.sample._replace(key=None), model.initial(model.facts.seed)
    x = start + (NUDGE * np.sin(np.arange(len(start)))).astype(start.dtype)
    _refuse_averages(model)
    _refuse_other(model)
    refuse_draws(model.name, lambda: (model.gradient(x, still), model.loss(x, still)))
    _refuse_written(model, x, still)
    _refuse_kept(model, start, x, still)
    _refuse_foreign(model, x, still)
    _refuse_meeting(model, x, still)


def _refusal(model: Any, text: str, allowed: str) -> InputError:
    return InputError(f"problem.model: {model.name}: {text}; allowed: {allowed}")


def _same(one: Tensor, other: Tensor | None) -> bool:
    """Whether two tensors hold the same numbers, be some of them none."""
    if other is None or one.shape != other.shape:
        return False
    return bool(((one == other) | ((one != one) & (other != other))).all())


def _refuse_averages(model: Any) -> None:
    """InputError where training has changed what is no parameter."""
    net = model.copies.of(True)
    changed = [n for n, one in net.named_buffers() if not _same(one, model._buffers.get(n))]
    if not changed:
        return
    allowed = "layers without such buffers, as GroupNorm"
    if any(
        one.training for one in net.modules() if isinstance(one, nn.modules.batchnorm._NormBase)
    ):
        allowed += ", or `frozen = True`, for which they stay as they are"
    text = f"training changes {', '.join(changed)}, which nobody sends, clips or noises"
    raise _refusal(model, text, allowed)


def _refuse_other(model: Any) -> None:
    """InputError where the module that is made anew is another one."""
    with seeded(model.facts.seed):
        again = typed(model.module(), model.device, model.type).state_dict()
    for name, one in model.copies.module.state_dict().items():
        if isinstance(one, Tensor) and not _same(one, again.get(name)):
            text = f"module() gives another {name} when it is called again"
            raise _refusal(model, text, "numbers of torch's own generator, which is seeded")


def _refuse_written(model: Any, x: Array, rows: Rows) -> None:
    """InputError where a module at x (dim,) writes to its own parameters."""
    for name, one in model.copies.module.named_modules():
        if getattr(one, "max_norm", None) is not None:
            text = f"found max_norm at {name}, by which a layer writes to its own parameters"
            raise _refusal(model, text, "none, or rows of weights that forward shortens")
    with model.copies.drawing(None):
        model.alone(x, rows, np.inf)
    model.loss(x, rows)
    placed = model._tensor(x).split(model.sizes)
    for training in (True, False):
        named = dict(model.copies.of(training).named_parameters())
        for name, part in zip(model.names, placed, strict=True):
            if not _same(named[name].detach().reshape(-1), part):
                text = f"the module writes to its own parameter {name}"
                raise _refusal(model, text, "parameters that only a step changes")


def _refuse_kept(model: Any, start: Array, x: Array, rows: Rows) -> None:
    """InputError where what a module says at x (dim,) depends on what it was asked before."""
    for what, ask in (("loss", model.loss), ("gradient", model.gradient)):
        ask(start, rows)
        later = ask(x, rows)
        model.copies.renew()
        if not np.array_equal(later, ask(x, rows), equal_nan=True):
            text = f"its {what} depends on the parameters that it was asked for before"
            raise _refusal(model, text, "a module that keeps nothing between calls")


def _refuse_foreign(model: Any, x: Array, rows: Rows) -> None:
    """InputError where a copy of the module computes with numbers of the module itself."""
    own = [one for one in model.copies.module.parameters() if one.requires_grad]
    before, copies = (model.gradient(x, rows), model.loss(x, rows)), [one.clone() for one in own]
    with torch.no_grad():
        for one in own:
            one.add_(1.0)
    after = model.gradient(x, rows), model.loss(x, rows)
    with torch.no_grad():
        for one, old in zip(own, copies, strict=True):
            one.copy_(old)
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True)):
        text = "a copy of the module computes with numbers of the first one, as where a lambda or "
        text += "a hook names the module that it is in"
        raise _refusal(model, text, "methods of the module, whose copies have their own")


def _refuse_meeting(model: Any, x: Array, rows: Rows) -> None:
    """InputError where the gradient of two rows is not the sum of both's: they meet in training."""
    if len(rows.labels) < 2:
        return
    with model.copies.drawing(None):
        one, other, both = (
            model.alone(x, rows.part(*part), np.inf) for part in ((0, 1), (1, 2), (0, 2))
        )
    most = float(np.linalg.norm(one) + np.linalg.norm(other))
    if float(np.linalg.norm(both - one - other)) > NEAR * most:
        text = "the gradients of two rows alone do not add up to that of both"
        allowed = "rows that do not mix in training, as batch normalisation mixes them"
        raise _refusal(model, text, allowed)


# Whether a torch function of single numbers gives other bits where an array ends.
PARTS, LENGTH = 500, 7  # arrays that are tried, and their length, of which most is an end
WIDE = 3.0  # deviation of the numbers in them
_KNOWN: dict[Any, bool] = {}  # by function, types and numbers of its arguments


def same_at_ends(ask: Callable[[], Any]) -> bool:
    """Whether all functions of single numbers that `ask` calls give the same bits everywhere."""
    with seeded(0):
        with _Calls() as calls:
            try:
                ask()
            except (RuntimeError, ValueError):
                return False
        for key, one in calls.found.items():
            if key not in _KNOWN:
                _KNOWN[key] = _same_bits(*one)
    return all(_KNOWN[key] for key in calls.found)


class _Calls(TorchDispatchMode):  # type: ignore[misc]
    """The functions of single numbers that torch calls, each with arguments once."""

    def __init__(self) -> None:
        super().__init__()
        self.found: dict[Any, tuple[Any, Any, Any]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> object:
        named = kwargs or {}
        if torch.Tag.pointwise in func.tags:
            types = tree_map_only(Tensor, lambda one: one.dtype, (args, named))
            self.found.setdefault(f"{func} {types}", (func, args, named))
        return func(*args, **named)


def _same_bits(func: Any, args: Any, kwargs: Any) -> bool:
    """Whether a function of single numbers has the same bits on a long array and on its parts."""
    whole, spread = (tree_map_only(Tensor, _drawn, one) for one in (args, kwargs))
    try:
        expected = func(*_copies(whole), **_copies(spread))
        ends = [func(*_copies(whole, at), **_copies(spread, at)) for at in range(PARTS)]
    except (RuntimeError, ValueError, NotImplementedError):
        return True  # none of single real numbers
    found = torch.cat([one.reshape(-1) for one in ends])
    return bool(torch.equal(found.nan_to_num(math.pi), expected.nan_to_num(math.pi)))


def _drawn(one: Tensor) -> Tensor:
    """Numbers of the argument's type; whole ones and masks are 0 or 1."""
    numbers = WIDE * torch.randn(PARTS * LENGTH, dtype=torch.float64)
    return (numbers if one.is_floating_point() else numbers > 0.0).to(one.dtype)


def _copies(arguments: Any, at: int | None = None) -> Any:
    """Arguments of memory of their own: all numbers, or those of one part."""

    def copied(one: Tensor) -> Tensor:
        part = one if at is None else one[at * LENGTH : (at + 1) * LENGTH]
        return part.clone()

    return tree_map_only(Tensor, copied, arguments)


# What a step takes, the same on every machine: operations as torch counts them, and memory.


def operations(model: Any) -> float:
    """Floating point operations of the gradient of one row; a multiplication and an addition are 2.

    Matrix products, convolutions and attention count, what works number by number does not.
    InputError for a layer with a matrix of which torch counts nothing: the sum would be too small.
    """
    net, called = model.copies.of(True), set[str]()
    hooks = [
        one.register_forward_pre_hook(lambda *_, name=name: called.add(name))
        for name, one in net.named_modules()
    ]
    try:
        with seeded(model.facts.seed), _in_parts(), FlopCounterMode(display=False) as counter:
            torch.autograd.grad(_total(model, 1), _trained(model), allow_unused=True)
    finally:
        for hook in hooks:
            hook.remove()
    root, counts = type(net).__name__, counter.get_flop_counts()
    for name, one in net.named_modules():
        path = f"{root}.{name}" if name else root
        if name in called and _multiplies(one) and not sum(counts.get(path, {}).values()):
            text = f"torch counts no operations of {name or 'the module'} ({type(one).__name__})"
            allowed = "{flops: operations of one row}, or a method flops(m) of the model"
            raise InputError(f"compute.work: found flops, but {text}; allowed: {allowed}")
    return float(counter.get_total_flops())


@contextmanager
def _in_parts() -> Iterator[None]:
    """Recurrent layers as the products that they are made of, which can be counted."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what the switch says of devices that are not here
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _multiplies(one: nn.Module) -> bool:
    """Whether a module multiplies by a matrix of its own; an embedding looks numbers up."""
    own = one.parameters(recurse=False)
    found = isinstance(one, nn.Embedding | nn.EmbeddingBag)
    return not found and any(part.dim() > 1 and part.requires_grad for part in own)


def needed(model: Any, m: int, clipped: bool) -> float:
    """Bytes of parameters, a gradient, the examples' own if clipped, inputs, and what is kept.

    m: rows that are in memory at a time.
    """
    size = torch.empty((), dtype=model.type).element_size()
    first = _kept(model, 1)
    each = _kept(model, 2) - first
    inputs = model.sample.inputs[:1].nbytes
    vectors = 2 + (m if clipped else 0)
    return float(size * model.dim * vectors + m * (inputs + each) + first - each)


def _kept(model: Any, m: int) -> int:
    """Bytes that m rows' forward pass keeps for the backward one, beside parameters and inputs."""
    inputs = model._tensor(_rows(model, m)[0])
    known = {
        one.untyped_storage().data_ptr() for one in (inputs, *model.copies.of(True).parameters())
    }
    found: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return saved

    with seeded(model.facts.seed), saved_tensors_hooks(pack, lambda saved: saved):
        total = _total(model, m, inputs)  # holds what is kept, so that no address comes twice
    del total
    return sum(found.values())


def _total(model: Any, m: int, inputs: Tensor | None = None) -> Tensor:
    """The sum of the losses of m rows at the start, in training."""
    own, labels = (model._tensor(one) for one in _rows(model, m))
    outputs = model.copies.of(True)(own if inputs is None else inputs)
    return by_row(model.losses(outputs, labels)).sum()


def _trained(model: Any) -> list[Tensor]:
    return [one for one in model.copies.of(True).parameters() if one.requires_grad]


def _rows(model: Any, m: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Inputs and labels of m rows of the data."""
    place = np.arange(m) % len(model.sample.labels)
    return model.sample.inputs[place], model.sample.labels[place]
