"""Torch modules as models: linear layers, convolutions, dropout, and what must be refused."""

import torch
from torch import nn

from desim.model import Count, Strict
from desim.torch import TorchModel


class Width(Strict):
    hidden: Count = 6


class Layers(TorchModel):
    name = "layers"
    summary = "one hidden layer"
    Parameters = Width

    def module(self):
        inner = self.parameters.hidden
        first = nn.Linear(self.facts.shape[0], inner)
        return nn.Sequential(first, nn.Tanh(), nn.Linear(inner, self.facts.classes))


class Convolution(TorchModel):
    name = "convolution"
    summary = "a convolution of the digits"

    def module(self):
        parts = nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten()
        return nn.Sequential(*parts, nn.Linear(144, self.facts.classes))


class Dropping(TorchModel):
    name = "dropping"
    summary = "with dropout"

    def module(self):
        return nn.Sequential(nn.Linear(64, 8), nn.Dropout(0.5), nn.Linear(8, self.facts.classes))


class Regression(TorchModel):
    name = "regression"
    summary = "squared errors of a linear model"
    labels = "numbers"

    def module(self):
        return nn.Linear(self.facts.shape[0], 1)


class Branching(TorchModel):
    name = "branching"
    summary = "asks for values, which vmap does not take"

    def module(self):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = nn.Linear(64, 10)

            def forward(self, x):
                scores = self.inner(x)
                return scores if float(scores.detach().abs().max()) > -1.0 else 2.0 * scores

        return Net()


class Tied(TorchModel):
    name = "tied"
    summary = "one parameter in two places"

    def module(self):
        net = nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64), nn.Linear(64, 10))
        net[2].weight = net[0].weight
        return net


class Sharing(TorchModel):
    name = "sharing"
    summary = "two parameters that share their numbers"

    def module(self):
        net = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10))
        net[1].weight = nn.Parameter(net[0].weight.data)
        return net


class Normalised(TorchModel):
    name = "normalised"
    summary = "batch normalisation"

    def module(self):
        return nn.Sequential(nn.BatchNorm1d(64), nn.Linear(64, self.facts.classes))


class Frozen(Normalised):
    name = "frozen"
    summary = "batch normalisation with averages that stay"
    frozen = True


class Masked(TorchModel):
    name = "masked"
    summary = "a constant buffer"

    def module(self):
        net = nn.Linear(64, self.facts.classes)
        net.register_buffer("mask", torch.ones(3))
        return net
