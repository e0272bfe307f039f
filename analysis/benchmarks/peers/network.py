"""The network and the images that all contestants of `networks` train; imports no desim."""

from functools import lru_cache

import numpy as np
import torch
from torch import nn

STEPS, BATCH, STEP = 5, 32, 0.05  # local steps of a round, their rows, and their size


def network(classes: int = 10) -> nn.Module:
    """A convolutional network: 9606 parameters with 10 classes."""
    layers = nn.Linear(400, 20), nn.ReLU(), nn.Linear(20, classes)
    seen = nn.Conv2d(1, 8, 5, stride=2), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU()
    return nn.Sequential(*seen, nn.Flatten(), *layers)


@lru_cache
def images(file: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Training images (rows, 1, 28, 28) and labels (rows,) of an npz of Keras, once a process."""
    with np.load(file) as found:
        pixels = torch.from_numpy(found["x_train"]).float().unsqueeze(1) / 255.0
        return pixels, torch.from_numpy(found["y_train"]).long()


def trained(net: nn.Module, file: str, clients: int, place: int) -> int:
    """STEPS local steps of a client on batches of its own share; how many rows it has."""
    pixels, labels = images(file)
    share = len(pixels) // clients
    optimiser = torch.optim.SGD(net.parameters(), lr=STEP)
    for _ in range(STEPS):
        rows = place * share + torch.randperm(share)[:BATCH]
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(pixels[rows]), labels[rows]).backward()
        optimiser.step()
    return share
