"""A convolutional network for grey images of 28 x 28, as a plug-in; it needs torch."""

from torch import nn

from desim.model import Count, Strict
from desim.torch import TorchModel


class Parameters(Strict):
    """channels: of the first convolution; the second has twice as many."""

    channels: Count = 8
    """of the first convolution"""


class Convolution(TorchModel):
    """Two convolutions and two layers: 9606 parameters with 8 channels and 10 classes."""

    name = "convolution"
    summary = "two convolutions and two layers, for images of 28 x 28"
    Parameters = Parameters

    def module(self) -> nn.Module:
        """The network, made anew."""
        few, many = self.parameters.channels, 2 * self.parameters.channels
        return nn.Sequential(
            nn.Conv2d(1, few, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(few, many, 3, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(25 * many, 20),
            nn.ReLU(),
            nn.Linear(20, self.facts.classes),
        )
