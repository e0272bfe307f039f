"""The first look at a torch module: what makes it no function of its parameters and rows."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from desim.arrays import Array
from desim.errors import InputError
from desim.problem.models.model import Rows
from desim.problem.models.torch_parts import refuse_draws, seeded, typed

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
    before, kept = (model.gradient(x, rows), model.loss(x, rows)), [one.clone() for one in own]
    with torch.no_grad():
        for one in own:
            one.add_(1.0)
    after = model.gradient(x, rows), model.loss(x, rows)
    with torch.no_grad():
        for one, old in zip(own, kept, strict=True):
            one.copy_(old)
    if not all(np.array_equal(a, b, equal_nan=True) for a, b in zip(before, after, strict=True)):
        text = "a copy of the module computes with numbers of the first one, as where a lambda or "
        text += "a hook names the module that it is in"
        raise _refusal(model, text, "methods of the module, whose copies have their own")


def _refuse_meeting(model: Any, x: Array, rows: Rows) -> None:
    """InputError where the gradient of two rows is not the sum of both's: they meet in training."""
    if len(rows.labels) < 2:
        return
    one, other, both = (model.gradient(x, rows.part(*part)) for part in ((0, 1), (1, 2), (0, 2)))
    most = float(np.linalg.norm(one) + np.linalg.norm(other))
    if float(np.linalg.norm(both - one - other)) > NEAR * most:
        text = "the gradients of two rows alone do not add up to that of both"
        allowed = "rows that do not mix in training, as batch normalisation mixes them"
        raise _refusal(model, text, allowed)
