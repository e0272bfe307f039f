"""Where the vertices of a graph are drawn: distances on paper as near as can be to those wanted."""

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from desim.arrays import Array

STEPS = 300


def spread(ends: NDArray[np.int64], lengths: Array, n: int) -> Array:
    """Places (n, 2) of vertices whose edges ends (m, 2) are to be `lengths` (m,) > 0 long.

    Vertices far from each other are as far as the shortest path between them is long, as well as a
    plane can do it: stress majorisation (Gansner, Koren, North 2004) from a circle on. The same
    graph is always drawn the same way.
    """
    angle = 2.0 * np.pi * np.arange(n) / n
    graph = csr_array((lengths, (ends[:, 0], ends[:, 1])), shape=(n, n))
    wanted = shortest_path(graph, directed=False)
    apart = ~np.isfinite(wanted)
    wanted[apart] = 1.5 * wanted[~apart].max()
    weight = np.where(wanted > 0.0, wanted, np.inf) ** -2.0
    total = weight.sum(axis=1, keepdims=True)
    place = 0.5 * wanted.max() * np.stack([np.sin(angle), np.cos(angle)], axis=1)
    for _ in range(STEPS):
        apart_by = place[:, None] - place[None]
        distance = np.sqrt((apart_by**2).sum(axis=2))
        np.fill_diagonal(distance, 1.0)
        pull = weight * wanted / np.maximum(distance, 1e-9 * wanted.max())
        moved = (pull.sum(axis=1, keepdims=True) * place - pull @ place) + weight @ place
        place = moved / total
        place = place - place.mean(axis=0)
    return np.asarray(place)
