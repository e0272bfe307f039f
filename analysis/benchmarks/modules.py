"""Torch modules that are timed, as a plug-in: about 10^4 and 10^5 parameters."""

from torch import nn

from analysis.benchmarks.peers.network import network
from desim.torch import TorchModel


class Perceptron(TorchModel):
    """784-13-10: 10345 parameters."""

    name = "perceptron"
    summary = "one hidden layer of 13"
    hidden = 13

    def module(self) -> nn.Module:
        """The network, made anew."""
        inner = self.hidden
        first = nn.Linear(784, inner)
        return nn.Sequential(nn.Flatten(), first, nn.ReLU(), nn.Linear(inner, self.facts.classes))


class Wide(Perceptron):
    """784-126-10: 100 180 parameters."""

    name = "wide"
    summary = "one hidden layer of 126"
    hidden = 126


class Convolution(TorchModel):
    """Two convolutions and two layers: 9606 parameters."""

    name = "convolution"
    summary = "two convolutions and two layers"

    def module(self) -> nn.Module:
        """The network, made anew."""
        return network(self.facts.classes)
