"""Torch modules whose operations and memory are known by hand."""

from torch import nn

from desim.torch import TorchModel


class Perceptron(TorchModel):
    """One hidden layer of 13 units on a row of numbers."""

    name = "timed-perceptron"
    summary = "one hidden layer"

    def module(self):
        (features,) = self.facts.shape
        last = nn.Linear(13, self.facts.classes)
        return nn.Sequential(nn.Linear(features, 13), nn.ReLU(), last)
