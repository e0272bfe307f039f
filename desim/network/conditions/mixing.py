"""Mixing matrices: how agents average what they hear, on a graph or through a coordinator."""

import numpy as np
from numpy.typing import NDArray

from desim.errors import InputError
from desim.network.conditions.topology import Graph

Matrix = NDArray[np.float64]


def mixing_matrix(
    graph: Graph | None, agents: int, kind: str | None, kappa: float | None
) -> Matrix:
    """Return W (agents, agents), rows and columns of which sum to 1: 11'/N where there is no graph.

    kind: laplacian (default), I - L / kappa with kappa by default the Laplacian's top eigenvalue,
    or metropolis, w_ij = 1 / (1 + max(d_i, d_j)). InputError where they do not fit.
    """
    if graph is None:
        if kind or kappa:
            key = "mixing" if kind else "kappa"
            raise InputError(f"algorithm.{key}: found on a star; allowed: on a graph of agents")
        return np.full((agents, agents), 1.0 / agents)
    if not len(graph.source):
        return np.eye(agents)
    if not graph.symmetric:
        return _directed(graph, kind, kappa)
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


def _directed(graph: Graph, kind: str | None, kappa: float | None) -> Matrix:
    """I - L / kappa, kappa by default 1 + the largest degree, where W keeps the mean of all.

    The columns of L = D - A sum to 0 like its rows if everybody is heard by as many as it hears.
    """
    odd = graph.unbalanced()
    if len(odd):
        i, hears = int(odd[0]), int(graph.degree[odd[0]])
        told = int(np.diff(graph.outgoing)[i])
        reason = f"agent {i} hears {hears} and is heard by {told}, so that averages drift"
        allowed = "as many links into every agent as out of it, or push-sum"
        raise InputError(f"network.topology.directed: {reason}; allowed: {allowed}")
    if kind == "metropolis":
        raise InputError("algorithm.weights: found metropolis, directed; allowed: laplacian")
    return np.eye(graph.agents) - graph.laplacian() / (kappa or 1.0 + float(graph.degree.max()))


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
