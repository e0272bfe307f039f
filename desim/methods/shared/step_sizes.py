"""Steps of gradient methods: the best one for given moduli, and the range in which it is stable."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.network.conditions.mixing import DENSE, greatest

if TYPE_CHECKING:
    from desim.network.conditions.topology import Graph


def auto_step(lo: Array, hi: Array, accelerated: Any) -> Array:
    """Steps (n,) that are best for moduli lo, hi (n,): 1/hi accelerated, else 2/(lo + hi).

    Where lo = 0 that would be 2/hi, the edge of the stable range: then 1/hi (Nesterov 2018, 2.1.5).
    """
    return np.where(accelerated | (lo <= 0.0), 1.0 / hi, 2.0 / (lo + hi))


def best_momentum(lo: Array, hi: Array) -> Array:
    """Momenta (n,) that belong to steps 1/hi, moduli lo, hi (n,) (Nesterov 2018, 2.2.22)."""
    return np.asarray((np.sqrt(hi) - np.sqrt(lo)) / (np.sqrt(hi) + np.sqrt(lo)))


def tied_momentum(lo: ArrayLike, gamma: ArrayLike) -> Array:
    """Momenta (n,) that belong to steps gamma on functions of strong convexity lo.

    A function whose smoothness is at most 1/gamma may be said to have 1/gamma. The scheme with this
    constant (Nesterov 2018, 2.2.22) steps by gamma, and has (1 - r)/(1 + r) with r = sqrt(gamma
    lo): `best_momentum` where gamma = 1/hi. From gamma lo = 1 on it is 0.
    """
    root = np.sqrt(np.minimum(np.multiply(lo, gamma), 1.0))
    return np.asarray((1.0 - root) / (1.0 + root))


def stable_step(hi: Array, beta: ArrayLike) -> Array:
    """The bound (n,) below which steps with momentum beta (n,) are stable on curvatures up to hi.

    r^2 - (1 + beta) a r + beta a with a = 1 - gamma hi has its roots inside the unit circle for
    gamma < 2 (1 + beta) / ((1 + 2 beta) hi): 2/hi without momentum.
    """
    beta = np.asarray(beta, float)
    return np.asarray(2.0 * (1.0 + beta) / ((1.0 + 2.0 * beta) * hi))


def linearised_bound(graph: "Graph", rho: float, hi: Array, eta: float) -> Array:
    """The bound (1,) on eta below which I/eta + rho (D + A) exceeds diag(smoothness hi) / 2.

    Linearised consensus ADMM with penalty rho on a graph of degrees D and adjacencies A gives g(w)
    + gamma+ + (I/eta + rho (D + A)) (w+ - w) = 0: a proximal method of multipliers with the
    gradient at the old point. Infinite where hi is, or where `eta` will do in any case.
    """
    if np.isinf(hi).any() or eta * hi.max() < 2.0:  # D + A is semidefinite
        return np.array([np.inf])
    if graph.agents <= DENSE:
        signless = 2.0 * np.diag(graph.degree) - graph.laplacian()
        least = float(np.linalg.eigvalsh(rho * signless - np.diag(0.5 * hi))[0])
    else:
        link = np.full(len(graph.source), -rho)
        least = -greatest(graph, 0.5 * hi - rho * graph.degree, link, 0.5 * float(hi.max()))
    return np.array([-1.0 / least if least < 0.0 else np.inf])


def beyond(key: str, gamma: ArrayLike, bound: Array, what: str) -> list[str]:
    """A warning that steps gamma (n,) are not below `bound` (n,), of agents where these differ.

    A bound of 0 is none: nothing is known of the smoothness.
    """
    steps = np.broadcast_to(np.asarray(gamma, float), bound.shape)
    bad = np.flatnonzero((steps >= bound) & (bound > 0.0))
    if not len(bad):
        return []
    i = int(bad[np.argmax(steps[bad] / bound[bad])])
    whose = "" if np.ptp(steps) == 0.0 == np.ptp(bound) else f" of agent {i}"
    text = f"{steps[i]:g}{whose} is not below {what} = {bound[i]:g}"
    return [f"{key}: {text}; it may diverge"]
