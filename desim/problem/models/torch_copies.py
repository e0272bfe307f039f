"""The copies of a torch module: every thread has one that trains and one that is measured."""

import copy
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from desim.problem.models import torch_parts as parts_of


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
