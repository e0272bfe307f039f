"""Torch modules that are easy to compute wrongly, and modules that are no function of rows."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional

WIDTH, CLASSES = 6, 3


class Inner(nn.Module):
    """One hidden layer whose activation a subclass gives."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(WIDTH, 4), nn.Linear(4, CLASSES)

    def middle(self, inputs):
        return self.first(inputs).tanh()

    def forward(self, inputs):
        return self.last(self.middle(inputs))


class WritesInputs(Inner):
    def middle(self, inputs):
        inputs -= 0.5
        return super().middle(inputs)


class WritesLabels(nn.CrossEntropyLoss):
    def forward(self, outputs, labels):
        labels.remainder_(2)
        return super().forward(outputs, labels)


class Turned(Inner):
    """A buffer of complex numbers, as of rotary embeddings."""

    def __init__(self):
        super().__init__()
        self.register_buffer("turn", torch.polar(torch.ones(2), torch.tensor([0.5, 1.5])))

    def middle(self, inputs):
        turned = torch.view_as_complex(self.first(inputs).reshape(-1, 2, 2)) * self.turn
        return torch.view_as_real(turned).reshape(-1, 4)


class ComplexWeight(Turned):
    def __init__(self):
        super().__init__()
        turn = self.turn
        del self.turn
        self.turn = nn.Parameter(turn)


class Named(Inner):
    """A lambda that names the module, so that copies compute with the first one's layer."""

    def __init__(self):
        super().__init__()
        self.function = lambda inputs: self.first(inputs).tanh()

    def middle(self, inputs):
        return self.function(inputs)


class Hooked(Inner):
    """A hook that names the module, or one of its methods, whose copies have their own."""

    def __init__(self, method):
        super().__init__()
        self.factor = nn.Parameter(torch.ones(4))
        closure = lambda layer, inputs, outputs: outputs * self.factor  # noqa: E731
        self.first.register_forward_hook(self.hook if method else closure)

    def hook(self, layer, inputs, outputs):
        return outputs * self.factor


class Keeps(Inner):
    """Keeps its first layer's weights as they were when it was first measured."""

    kept = None

    def middle(self, inputs):
        if self.training:
            return super().middle(inputs)
        if self.kept is None:
            self.kept = self.first.weight.detach().clone()
        return functional.linear(inputs, self.kept, self.first.bias).tanh()


class Meets(Inner):
    """Takes the mean of the rows away while it trains."""

    def middle(self, inputs):
        return super().middle(inputs - inputs.mean(0) if self.training else inputs)


class Writes(Inner):
    """Shortens its own weights."""

    def middle(self, inputs):
        with torch.no_grad():
            self.first.weight.mul_(0.5)
        return super().middle(inputs)


class Undeclared(Inner):
    """Starts from numbers that no seed of torch's gives, in a layer that does not train."""

    def __init__(self):
        super().__init__()
        self.register_buffer("shift", torch.tensor(np.random.normal(size=4)))  # noqa: NPY002

    def middle(self, inputs):
        return super().middle(inputs) + self.shift


class Words(nn.Module):
    """The mean of embeddings."""

    def __init__(self, **how):
        super().__init__()
        self.table, self.last = nn.Embedding(10, 4, **how), nn.Linear(4, CLASSES)

    def forward(self, tokens):
        return self.last(self.table(tokens).mean(1))


class Beside(Inner):
    """Two layers' weights in one memory, side by side, as cuDNN has them, and none at all."""

    def __init__(self):
        super().__init__()
        flat = torch.linspace(-1.0, 1.0, 4 * WIDTH + 4 * CLASSES)
        self.first.weight = nn.Parameter(flat[: 4 * WIDTH].view(4, WIDTH))
        self.last.weight = nn.Parameter(flat[4 * WIDTH :].view(CLASSES, 4))
        self.one, self.two = nn.Parameter(torch.empty(0)), nn.Parameter(torch.empty(0))


class Asserts(Inner):
    """Fails where `vmap` looks at it, with an error that is not torch's."""

    def middle(self, inputs):
        if torch._C._functorch.is_functorch_wrapped_tensor(inputs):
            raise TypeError("no rows of this kind")
        return super().middle(inputs)
