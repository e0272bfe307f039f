"""Mixing matrices: how agents average what they hear, on a graph or through a coordinator."""

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.network.topology import Graph

Matrix = NDArray[np.float64]


def mixing_matrix(
    graph: Graph | None, agents: int, kind: str | None, kappa: float | None
) -> Matrix:
    """Return W (agents, agents), symmetric with rows that sum to 1: 11'/N where there is no graph.

    kind: laplacian (default), I - L / kappa with kappa by default the Laplacian's top eigenvalue,
    or metropolis, w_ij = 1 / (1 + max(d_i, d_j)). InputError where they do not fit.
    """
    if graph is None:
        if kind or kappa:
            key = "mixing" if kind else "kappa"
            raise InputError(f"algorithm.{key}: found on a star; allowed: on a graph of agents")
        return np.full((agents, agents), 1.0 / agents)
    if kind == "metropolis" and kappa:
        raise InputError("algorithm.kappa: found with mixing metropolis; allowed: with laplacian")
    if kind != "metropolis":
        laplacian = graph.laplacian()
        return np.eye(agents) - laplacian / (kappa or float(np.linalg.eigvalsh(laplacian)[-1]))
    W, degree = np.zeros((agents, agents)), graph.degree
    W[graph.target, graph.source] = 1.0 / (
        1.0 + np.maximum(degree[graph.target], degree[graph.source])
    )
    np.fill_diagonal(W, 1.0 - np.add.reduce(W, axis=1))
    return W


def against_themselves(W: Matrix, graph: Graph, kappa: float | None) -> list[str]:
    """A warning where W (agents, agents) gives agents of `graph` a negative weight w_ii."""
    least = float(W.diagonal().min())
    if least >= 0.0:
        return []
    return [
        f"algorithm.kappa: {kappa or 'the default'} gives an agent the weight {least:.3g} for "
        f"itself; allowed without this warning: at least the largest degree, {graph.degree.max()}, "
        "or weights: metropolis"
    ]


def dual_bound(W: Matrix) -> float:
    """Return what the sum of dual steps between two mixings must stay below where f is flat.

    x+ = W (x - b y), y+ = y + (I - W)(x - b y) is stable for 0 < b < 2 (1 + w) / (1 - w) at the
    eigenvalue w < 1 of W; steps on f shorten what enters as b, which makes up for no w above 0.
    """
    least = min(float(np.linalg.eigvalsh(W)[0]), 0.0)
    return max(2.0 * (1.0 + least) / (1.0 - least), 0.0)
