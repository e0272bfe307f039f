"""What a step of a torch module takes: operations as torch counts them, and bytes of memory.

Both follow from the module and one row's shape alone, and are the same on every machine.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from desim.errors import InputError
from desim.problem.models.torch_parts import by_row, seeded


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

    def pack(kept: Tensor) -> Tensor:
        storage = kept.untyped_storage()
        if storage.data_ptr() not in known:
            found[storage.data_ptr()] = storage.nbytes()
        return kept

    with seeded(model.facts.seed), saved_tensors_hooks(pack, lambda kept: kept):
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
