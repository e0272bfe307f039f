"""Torch modules whose operations and memory are known by hand."""

from torch import nn

from desim.torch import TorchModel


class Reader(TorchModel):
    """A recurrent layer over a row of numbers, and a last one."""

    name = "timed-reader"
    summary = "a recurrent layer"

    def module(self):
        return Sequence(nn.LSTM(1, 4, batch_first=True), nn.Linear(4, self.facts.classes))


class Pairs(TorchModel):
    """A layer that torch counts nothing of."""

    name = "timed-pairs"
    summary = "a bilinear layer"

    def module(self):
        return Squared(nn.Bilinear(*self.facts.shape, *self.facts.shape, self.facts.classes))


class Sequence(nn.Module):
    """What the recurrent layer says at last."""

    def __init__(self, layer, last):
        super().__init__()
        self.layer, self.last = layer, last

    def forward(self, rows):
        return self.last(self.layer(rows.unsqueeze(-1))[0][:, -1])


class Squared(nn.Module):
    """A bilinear layer of the rows with themselves."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, rows):
        return self.layer(rows, rows)


class Perceptron(TorchModel):
    """One hidden layer of 13 units on a row of numbers."""

    name = "timed-perceptron"
    summary = "one hidden layer"

    def module(self):
        (features,) = self.facts.shape
        last = nn.Linear(13, self.facts.classes)
        return nn.Sequential(nn.Linear(features, 13), nn.ReLU(), last)
