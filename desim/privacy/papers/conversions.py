"""From zCDP or an RDP curve, or by classical composition, to epsilon, in the ways of the papers.

Classical are, of Dwork and Roth 2014, one release (Theorem A.1), basic (3.16) and advanced
composition (3.20, whose delta' and the sum of the releases' deltas have one half of delta each).
"""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array
from desim.columns import Columns
from desim.numerics.later import Later, optimize
from desim.privacy.ledger.mechanisms import Classical, Noise
from desim.privacy.papers.claims import Inputs, inputs, once, ratios, unclipped

if TYPE_CHECKING:
    from desim.privacy.accounting import gaussian
    from desim.problem.problem import Problem
else:
    gaussian = Later("desim.privacy.accounting.gaussian")


def simple(rho: ArrayLike, delta: float) -> Array:
    """Epsilon rho + 2 sqrt(rho ln(1/delta)) of rho-zCDP, shaped as `rho` (Bun, Steinke 2016, 1.3).

    It is also the least value over orders alpha > 1 of rho alpha + ln(1/delta) / (alpha - 1).
    """
    gaussian.check_delta(delta)
    rho = np.asarray(rho, float)
    return np.asarray(rho + 2.0 * np.sqrt(rho * np.log(1.0 / delta)))


def own_order(c: ArrayLike, delta: float) -> Array:
    """Epsilon c alpha + ln(1/delta) / (alpha - 1) at alpha = 2 ln(1/delta) / epsilon + 1.

    The order of Ding 2021, Theorems 11 and 15: half of epsilon is the curve, half the conversion.
    """
    gaussian.check_delta(delta)
    c = np.asarray(c, float)
    with np.errstate(invalid="ignore"):
        epsilon = c + np.sqrt(c * c + 4.0 * c * np.log(1.0 / delta))
    return np.asarray(epsilon)


# Classical (epsilon, delta) accounting of Gaussian releases: sound below 1, and very loose.

STEEP = "epsilon of a round is not below 1, where the classical deviation is no bound"


def classical(ratio: ArrayLike, delta: ArrayLike) -> Array:
    """Epsilon of a release of sensitivity / deviation `ratio`; a bound only where it is below 1."""
    return np.asarray(np.asarray(ratio) * np.sqrt(2.0 * np.log(1.25 / np.asarray(delta))))


def basic(ratio: ArrayLike, delta: float) -> float:
    """Epsilon of all releases (n,): the sum of theirs at delta / n."""
    gaussian.check_delta(delta)
    ratio = np.asarray(ratio, float)
    return float(np.sum(classical(ratio, delta / max(len(ratio), 1))))


def advanced(ratio: ArrayLike, delta: float) -> float:
    """Epsilon sqrt(2 ln(2/delta) sum e^2) + sum e (exp(e) - 1), e of n releases at delta / 2n."""
    gaussian.check_delta(delta)
    ratio = np.asarray(ratio, float)
    each = classical(ratio, delta / (2.0 * max(len(ratio), 1)))
    with np.errstate(over="ignore"):
        linear = float(np.sum(each * np.expm1(each)))
    return float(np.sqrt(2.0 * np.log(2.0 / delta) * np.sum(each**2)) + linear)


def composed(inputs: Inputs, releases: Columns, delta: float) -> tuple[Array, list[str]]:
    """Epsilon by the composition that the theorem is named after."""
    rows, total = once(releases), advanced if "advanced" in inputs["theorem"] else basic
    ratio, epsilon = ratios(rows), np.zeros(inputs["agents"])
    for agent in np.unique(rows["agent"]).tolist():
        epsilon[agent] = total(ratio[rows["agent"] == agent], delta)
    steep = bool((classical(ratio, inputs["delta_of_a_round"]) >= 1.0).any())
    return epsilon, [STEEP] * steep


def per_round(epsilon: float, delta: float, rounds: int, composition: str) -> tuple[float, float]:
    """Epsilon and delta of each of `rounds` releases that together cost `epsilon` and `delta`.

    composition: basic, advanced, or none, where every release has them whole.
    """
    gaussian.check_delta(delta)
    if composition == "none":
        return epsilon, delta
    if composition == "basic":
        return epsilon / rounds, delta / rounds

    def excess(each: float) -> float:
        spread = np.sqrt(2.0 * rounds * np.log(2.0 / delta)) * each
        return float(spread + rounds * each * np.expm1(each) - epsilon)

    top = epsilon / np.sqrt(2.0 * rounds * np.log(2.0 / delta))
    return float(optimize.brentq(excess, 0.0, top, xtol=1e-15 * top)), delta / (2.0 * rounds)


def composed_inputs(noise: Noise | None, problem: "Problem") -> Inputs | None:
    """Inputs of the composition that the noise was shared out by, or of basic composition."""
    if not isinstance(noise, Classical):
        return None
    rule = "advanced" if noise.composition == "advanced" else "basic"
    theorem, unmet = f"dp-nfl/{rule}", unclipped(problem)
    return inputs(theorem, problem.agents, unmet, delta_of_a_round=noise.delta)
