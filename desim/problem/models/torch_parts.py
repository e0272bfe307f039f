"""The parts of a torch module that desim needs: parameters as one vector, seeds, devices, rows."""

import hashlib
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from desim.arrays import Array
from desim.errors import InputError
from desim.problem.models.user_model import Rows

Parts = tuple[Tensor, ...]  # of one vector, or of each of some rows
BLOCK = 4096  # numbers whose squares are added up in their own type
NARROW = 1024
NEAR = 1e-3
RANDOM = (nn.modules.dropout._DropoutNd, nn.RReLU)
DROPPING = (nn.RNNBase, nn.MultiheadAttention)  # where their argument `dropout` says so


def filled(module: nn.Module, x: Array) -> nn.Module:
    """The module with its trainable parameters set to x (dim,); InputError if it has others."""
    parameters = [one for one in module.parameters() if one.requires_grad]
    sizes = [one.numel() for one in parameters]
    if sum(sizes) != len(x):
        text = f"found {sum(sizes)} parameters that train"
        raise InputError(f"module: {text}; allowed: {len(x)}, as many as the model has")
    with torch.no_grad():
        for parameter, part in zip(parameters, torch.from_numpy(x).split(sizes), strict=True):
            parameter.copy_(part.reshape(parameter.shape))
    return module


def fixed_sha256(module: nn.Module, kind: torch.dtype) -> str:
    """Hash of the numbers, in the type `kind`, that no training changes, be there none."""
    fixed = [one for one in module.parameters() if not one.requires_grad]
    fixed += module.buffers()
    found = hashlib.sha256()
    for one in fixed:
        numbers = one.detach().cpu().to(_type(one, kind)).resolve_conj().resolve_neg()
        found.update(numbers.contiguous().reshape(-1).view(torch.uint8).numpy())
    return found.hexdigest()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Torch's numbers from this seed, and afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


@contextmanager
def one_thread() -> Iterator[None]:
    """One thread of torch's own, and afterwards as many as before."""
    before = torch.get_num_threads()
    if before != 1:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if before != 1:
            torch.set_num_threads(before)


def tensor_of(array: Array, device: torch.device, kind: torch.dtype) -> Tensor:
    """A copy of an array on a device: real numbers of type `kind`, bytes as such, others as int64.

    A copy, for modules may write to what they are given, as nn.ReLU(inplace=True) does.
    """
    found = torch.from_numpy(np.array(array, order="C"))
    if found.is_floating_point():
        return found.to(device, kind)
    return found.to(device) if found.dtype == torch.uint8 else found.to(device).long()


def typed(module: nn.Module, device: torch.device, kind: torch.dtype) -> nn.Module:
    """The module on a device, its real numbers of type `kind` and complex ones as fine as that."""
    return module._apply(lambda one: one.to(device, _type(one, kind)))


def _type(numbers: Tensor, kind: torch.dtype) -> torch.dtype:
    """Of numbers in a module of type `kind`: complex ones are as fine, whole ones stay."""
    if numbers.is_complex():
        return torch.complex128 if kind == torch.float64 else torch.complex64
    return kind if numbers.is_floating_point() else numbers.dtype


def lengths(rows: Parts) -> Tensor:
    """Norms (..., m), float64, of rows whose parts are (..., m, some), to 64 roundings at most.

    By blocks in the type of the rows: squares of float32 numbers take 20 times as long in float64.
    """
    blocks = [block for part in rows for block in part.split(BLOCK, -1)]
    norms = [torch.linalg.vector_norm(one, dim=-1) for one in blocks]
    return torch.linalg.vector_norm(torch.stack(norms).double(), dim=0)


def only(sound: Tensor, factors: Tensor, rows: Parts) -> tuple[Tensor, Parts]:
    """Factors (..., m) and parts (..., m, some) of rows, 0 where they are not sound (..., m)."""
    parts = tuple(torch.where(sound.unsqueeze(-1), one, 0.0) for one in rows)
    return torch.where(sound, factors, 0.0), parts


def weighted(factors: Tensor, rows: Parts) -> Tensor:
    """Sums (..., dim) over m of rows whose parts are (..., m, some), times factors (..., m).

    Bits of narrow products depend on how many of them there are at once: not by a product.
    """
    sums = [
        (factors.unsqueeze(-1) * one).sum(-2)
        if one.shape[-1] < NARROW
        else (factors.unsqueeze(-2) @ one).squeeze(-2)
        for one in rows
    ]
    return torch.cat(sums, -1)


def filled_up(rows: Tensor, size: int) -> Tensor:
    """Rows (n, size, ...): those of each agent (n, m, ...), and again until they are so many."""
    m = rows.shape[1]
    return rows if m == size else rows[:, torch.arange(size, device=rows.device) % m]


def near(one: Tensor, other: Tensor) -> bool:
    """Whether vectors (n, dim) are the same but for roundings."""
    return bool((one - other).norm() <= NEAR * (one.norm() + other.norm()))


def works(ask: Callable[[], object]) -> bool:
    """Whether something neither fails nor warns, whatever filters of warnings the process has."""
    with seeded(0), warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            ask()
        except Exception:  # modules and their libraries have no exception in common
            return False
    return True


def same_in_groups(
    together: Callable[..., Tensor], arrays: tuple[Tensor, ...], sizes: tuple[int, ...]
) -> bool:
    """Whether rows of `together` have the same bits in groups of any of these sizes of rows."""
    found = []
    try:
        for n in sizes:  # with memory of their own: its alignment may change a bit
            groups = zip(*(one.split(n) for one in arrays), strict=True)
            rows = [together(*(one.clone() for one in group)) for group in groups]
            found.append(torch.cat(rows))
    except (RuntimeError, ValueError):
        return False
    return all(torch.equal(found[0], one) for one in found[1:])


def device_of(name: str) -> torch.device:
    """The device of that name; InputError where there is none."""
    if name == "cuda" and not torch.cuda.is_available():
        raise InputError("problem.device: found cuda, which torch does not find here; allowed: cpu")
    return torch.device(name)


def refuse_unfit(name: str, named: list[tuple[str, nn.Parameter]]) -> None:
    """InputError for a module without parameters, or of which two share their numbers."""
    if not named:
        text = "the module has no parameter that trains"
        raise InputError(f"problem.model: {name}: {text}; allowed: one at least")
    lazy = [one for one, parameter in named if nn.parameter.is_lazy(parameter)]
    if lazy:
        text = f"{lazy[0]} has no shape yet, in a lazy layer"
        allowed = "layers whose sizes are said; self.facts.shape is that of one input"
        raise InputError(f"problem.model: {name}: {text}; allowed: {allowed}")
    for one, parameter in named:
        if not parameter.is_floating_point():
            text = f"{one} holds {parameter.dtype}"
            allowed = "real numbers; complex ones as pairs, by torch.view_as_complex"
            raise InputError(f"problem.model: {name}: {text}; allowed: {allowed}")
    _refuse_shared(name, named)


def _refuse_shared(name: str, named: list[tuple[str, nn.Parameter]]) -> None:
    """InputError where a number is in two parameters; parts of one memory may lie side by side."""
    last, end = "", 0
    for low, size, one in sorted((p.data_ptr(), p.numel() * p.element_size(), one)
                                 for one, p in named if p.numel()):  # fmt: skip
        if low < end:
            text = f"found {last} and {one}, two parameters that share their numbers"
            allowed = "one nn.Parameter, used in both places"
            raise InputError(f"problem.model: {name}: {text}; allowed: {allowed}")
        last, end = one, low + size


def draws(layer: nn.Module) -> bool:
    """Whether a layer draws random numbers in training, and none while it is measured."""
    return isinstance(layer, RANDOM) or (isinstance(layer, DROPPING) and layer.dropout > 0.0)


def refuse_draws(name: str, ask: Callable[[], Any]) -> None:
    """InputError where `ask`, gradients and losses without a key, draws from torch's generator.

    Nothing seeds such numbers: no run could be had again, even where they seldom change a bit.
    """
    before = torch.get_rng_state()
    ask()
    if not torch.equal(before, torch.get_rng_state()):
        text = "it draws random numbers that no seed of the scenario's reaches"
        allowed = "layers of torch.nn that draw in training alone, as Dropout; they are seeded"
        raise InputError(f"problem.model: {name}: {text}; allowed: {allowed}")


def by_row(losses: Tensor) -> Tensor:
    """Losses (m,) of rows whose parts have losses (m, ...)."""
    return losses if losses.dim() < 2 else losses.flatten(1).mean(1)


def lone(rows: Rows) -> Rows:
    """The rows of one agent as those of n = 1."""
    key = None if rows.key is None else np.array([rows.key], np.uint64)
    return Rows(np.asarray(rows.inputs)[None], np.asarray(rows.labels)[None], key)
