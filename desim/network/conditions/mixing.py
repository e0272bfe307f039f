"""Mixing matrices, how agents average what they hear, as weights of the links of a graph.

A matrix (agents, agents) is never made of more than DENSE agents, nor decomposed: the few of its
eigenvalues that are needed come from `greatest`. Up to there LAPACK has them in some ten ms, and
rows are summed as a matrix's are, so that small runs keep the bits that they always had. Beyond, a
default kappa differs from LAPACK's by what CLOSE says, and Metropolis' w_ii in the last place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions.topology import Graph
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.numerics.later import Later, sparse

dense: Any = Later("scipy.linalg")
solvers: Any = Later("scipy.sparse.linalg")
orders: Any = Later("scipy.sparse.csgraph")

# The greatest eigenvalue of a symmetric matrix on a graph.

DENSE = 512  # agents up to which matrices are dense
CLOSE = 1e-7  # residual, of the eigenvalue: this is wrong by the square of that, over the gap to
# the next (1e-4 of it in a random graph of 10^5 agents), and by no more than that in any case
STEPS = 3000  # of Lanczos, a matrix product and ten sums each
LOOKS = 25  # steps between two looks at the residual
NARROW = 1e9  # operations of an elimination that is done at once
ABOVE = 1e-12  # of the largest entry: what the shift is above the bound
START = 1 << 21  # step of the start vector's address


def greatest(
    graph: Graph, diagonal: Array, link: Array, bound: float, centred: bool = False
) -> float:
    """The greatest eigenvalue, at most `bound`, of the matrix with these entries.

    diagonal (agents,), link (links,): of i's link from j, the same as of j's from i. centred: only
    of vectors whose sum is 0, which the matrix keeps. The same bits in every run: the start vector
    is fixed, and sums have their order. Lanczos is slow where eigenvalues crowd, as they do along
    paths, in rings and grids: but there is little to eliminate in these. So the eigenvalues of the
    inverse of bound - matrix are searched, far apart, if its band is narrow, or after STEPS.
    """
    found = None
    A = sparse.csr_array((link, graph.source, graph.incoming), shape=(graph.agents,) * 2)
    order = orders.reverse_cuthill_mckee(A, symmetric_mode=True)
    place = np.empty(graph.agents, np.int64)
    place[order] = np.arange(graph.agents)
    width = float(np.abs(place[graph.target] - place[graph.source]).max(initial=0))
    if graph.agents * width**2 > NARROW:
        found = _lanczos(lambda v: diagonal * v + A @ v, graph.agents, centred)
    if found is None:
        shift = bound + ABOVE * float(max(np.abs(diagonal).max(), np.abs(link).max()))
        below = sparse.csc_array(sparse.diags_array(shift - diagonal) - A)
        factors = solvers.splu(
            below, "MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True}
        )
        inverse = _lanczos(factors.solve, graph.agents, centred, last=True)
        found = shift - 1.0 / cast(float, inverse)
    return found


def _lanczos(
    product: Callable[[Array], Array], n: int, centred: bool, last: bool = False
) -> float | None:
    """The greatest eigenvalue of a symmetric operator on n numbers, None if STEPS do not find it.

    Without reorthogonalisation, which would take most of the time: what then comes twice is right.
    last: return what there is after STEPS.
    """

    def straight(v: Array) -> Array:
        return v - np.add.reduce(v) / n if centred else v

    v = straight(keys.uniforms(0, Stream.LINK, agent=np.arange(n), step=START)[:, 0] - 0.5)
    before, v = np.zeros(n), v / np.sqrt(np.add.reduce(v * v))
    own, beside = list[float](), [0.0]
    for step in range(1, STEPS + 1):
        w = straight(product(v)) - beside[-1] * before
        own.append(float(np.add.reduce(v * w)))
        w -= own[-1] * v
        beside.append(float(np.sqrt(np.add.reduce(w * w))))
        through = beside[-1] <= CLOSE * abs(own[0])  # few eigenvalues differ, and all are found
        if step % LOOKS == 0 or through or step == STEPS:
            value, vector = dense.eigh_tridiagonal(
                own, beside[1:-1], select="i", select_range=(step - 1, step - 1)
            )
            if beside[-1] * abs(vector[-1, 0]) <= CLOSE * abs(value[0]) or (last and step == STEPS):
                return float(value[0])
        before, v = v, straight(w / beside[-1])
    return None


# Weights on a graph.

Matrix = NDArray[np.float64]


@dataclass(frozen=True)
class Mixing:
    """W of a graph: own (agents,), w_ii, and link (links,), w_ij of i's link from j.

    most: the greatest eigenvalue of I - W, where it is known.
    """

    graph: Graph
    own: Array
    link: Array
    most: float | None = None

    @property
    def matrix(self) -> Matrix:
        """W (agents, agents), rows and columns of which sum to 1."""
        W = np.zeros((self.graph.agents,) * 2)
        W[self.graph.target, self.graph.source] = self.link
        np.fill_diagonal(W, self.own)
        return W

    def diagonal(self) -> Array:
        """The weights (agents,) that agents give themselves."""
        return self.own

    def heard_by(self, who: Int) -> tuple[Array, Array]:
        """Weights (n, 1) of agents who (n,) for themselves, and (links,) for what they hear."""
        return self.own[who][:, None], self.link[self.graph.into(who)]

    @cached_property
    def least(self) -> float:
        """The least eigenvalue of a symmetric W."""
        if self.graph.agents <= DENSE:
            return float(np.linalg.eigvalsh(self.matrix)[0])
        if self.most is not None:
            return 1.0 - self.most
        return 1.0 - _most(self.graph, self.link)

    @cached_property
    def second(self) -> float:
        """The largest size of an eigenvalue of a symmetric W but one, 1."""
        if self.graph.agents <= DENSE:
            return second_size(self.matrix)
        slow = greatest(self.graph, self.own - 1.0, self.link, 0.0, centred=True)
        return max(1.0 + slow, -self.least)


def _most(graph: Graph, link: Array) -> float:
    """The greatest eigenvalue of the Laplacian of weights link (links,), by sums of ends at most.

    Its rows sum to 0: it is what is sought of vectors whose sum is 0.
    """
    sums = _row_sums(graph, link)
    bound = float((sums[graph.target] + sums[graph.source]).max())
    return greatest(graph, sums, -link, bound, centred=True)


def mixing_weights(graph: Graph, kind: str | None, kappa: float | None) -> Mixing:
    """Weights that agents of `graph` give what they hear, and themselves, so that sums are 1.

    kind: laplacian (default), I - L / kappa with kappa by default the Laplacian's top eigenvalue,
    or metropolis, w_ij = 1 / (1 + max(d_i, d_j)). InputError where they do not fit.
    """
    degree, links, most = graph.degree, len(graph.source), None
    if not links:
        return Mixing(graph, np.ones(graph.agents), np.empty(0), 0.0)
    if not graph.symmetric:
        kappa = _directed(graph, kind, kappa)
    elif kind == "metropolis":
        if kappa:
            text = "found with mixing metropolis; allowed: with laplacian"
            raise InputError(f"algorithm.kappa: {text}")
        link = 1.0 / (1.0 + np.maximum(degree[graph.target], degree[graph.source]))
        return Mixing(graph, 1.0 - _row_sums(graph, link), link)
    elif not kappa:
        small, most = graph.agents <= DENSE, 1.0
        values = np.linalg.eigvalsh(graph.laplacian()) if small else [_most(graph, np.ones(links))]
        kappa = float(values[-1])
    return Mixing(graph, 1.0 - degree / kappa, np.full(links, 1.0 / kappa), most)


def _row_sums(graph: Graph, link: Array) -> Array:
    """Sums (agents,) of the weights link (links,) of what agents hear."""
    if graph.agents > DENSE:
        return np.bincount(graph.target, link, graph.agents).astype(float)
    W = Mixing(graph, np.zeros(graph.agents), link).matrix
    return np.asarray(np.add.reduce(W, axis=1))


def mixing_matrix(
    graph: Graph | None, agents: int, kind: str | None, kappa: float | None
) -> Matrix:
    """Return W (agents, agents), rows and columns of which sum to 1: 11'/N where there is no graph.

    kind: laplacian (default), I - L / kappa with kappa by default the Laplacian's top eigenvalue,
    or metropolis, w_ij = 1 / (1 + max(d_i, d_j)). InputError where they do not fit.
    """
    if graph is not None:
        return mixing_weights(graph, kind, kappa).matrix
    if kind or kappa:
        key = "mixing" if kind else "kappa"
        raise InputError(f"algorithm.{key}: found on a star; allowed: on a graph of agents")
    return np.full((agents, agents), 1.0 / agents)


def _directed(graph: Graph, kind: str | None, kappa: float | None) -> float:
    """Kappa of I - L / kappa, by default 1 + the largest degree, where that keeps the mean of all.

    The columns of L = D - A sum to 0 like its rows if everybody is heard by as many as it hears.
    """
    odd = graph.unbalanced()
    if len(odd):
        i, hears = int(odd[0]), int(graph.degree[odd[0]])
        hearers = int(np.diff(graph.outgoing)[i])
        reason = f"agent {i} hears {hears} and is heard by {hearers}, so that averages drift"
        allowed = "as many links into every agent as out of it, or push-sum"
        raise InputError(f"network.topology.directed: {reason}; allowed: {allowed}")
    if kind == "metropolis":
        raise InputError("algorithm.weights: found metropolis, directed; allowed: laplacian")
    return kappa or 1.0 + float(graph.degree.max())


def against_themselves(W: Matrix | Mixing, graph: Graph, kappa: float | None) -> list[str]:
    """A warning where W (agents, agents) gives agents of `graph` a negative weight w_ii."""
    least = float(W.diagonal().min())
    if least >= 0.0:
        return []
    return [
        f"algorithm.kappa: {kappa or 'the default'} gives an agent the weight {least:.3g} for "
        f"itself; allowed without this warning: at least the largest degree, {graph.degree.max()}, "
        "or weights: metropolis"
    ]


def least_of(W: Matrix | Mixing) -> float:
    """The least eigenvalue of a symmetric W."""
    return W.least if isinstance(W, Mixing) else float(np.linalg.eigvalsh(W)[0])


def second_size(W: Matrix | Mixing) -> float:
    """The largest size of an eigenvalue of a symmetric W but one."""
    if isinstance(W, Mixing):
        return W.second
    return float(np.sort(np.abs(np.linalg.eigvalsh(W)))[-2])


def dual_bound(W: Matrix | Mixing) -> float:
    """Return what the sum of dual steps between two mixings must stay below where f is flat.

    x+ = W (x - b y), y+ = y + (I - W)(x - b y) is stable for 0 < b < 2 (1 + w) / (1 - w) at the
    eigenvalue w < 1 of W; steps on f shorten what enters as b, which makes up for no w above 0.
    """
    least = min(least_of(W), 0.0)
    return max(2.0 * (1.0 + least) / (1.0 - least), 0.0)
