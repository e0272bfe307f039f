"""A final epsilon by privacy loss distributions: sharper than Renyi divergences, for one agent.

It is too slow for a curve, and covers what has a dominating pair in one dimension: a Gaussian; a
Laplace vector, whose trade-off function is at least that of one coordinate with the whole L1
sensitivity (group composition of Dong, Roth and Su 2022, Thm 2.14, along the coordinates: for
Laplace noise it is attained); pure DP by randomised response.
"""

import numpy as np
from numpy.typing import NDArray

from desim.privacy.gaussian import epsilon_of
from desim.privacy.prices import Prices

Array = NDArray[np.float64]
DIFFERENT = 64  # distributions of different releases that are worth convolving
INTERVAL = 1e-4  # discretisation of the privacy loss, rounded up


def epsilon_pld(priced: Prices, delta: float) -> float:
    """Epsilon at `delta` of all releases priced; nan where no distribution is known.

    Not known: zCDP of vectors, batches; refused: more than 64 different mechanisms.
    """
    mu2 = float(priced.mu2.sum())
    if np.isinf(mu2) or priced.gaussian.all():
        return float(epsilon_of(np.sqrt(mu2), delta))
    laplace, often = np.unique(priced.laplace[priced.laplace > 0.0], return_counts=True)
    pure, repeated = np.unique(priced.pure[priced.pure > 0.0], return_counts=True)
    unknown = (priced.rho > 0.0) | (priced.ratio > 0.0)
    if unknown.any() or len(laplace) + len(pure) > DIFFERENT:
        return float("nan")
    from dp_accounting.pld import common
    from dp_accounting.pld import privacy_loss_distribution as loss

    parts = [
        loss.from_laplace_mechanism(
            1.0 / ratio, value_discretization_interval=INTERVAL
        ).self_compose(int(count))
        for ratio, count in zip(laplace, often, strict=True)
    ]
    parts += [
        loss.from_privacy_parameters(
            common.DifferentialPrivacyParameters(epsilon, 0.0),
            value_discretization_interval=INTERVAL,
        ).self_compose(int(count))
        for epsilon, count in zip(pure, repeated, strict=True)
    ]
    if mu2 > 0.0:
        # Standard deviation over the sensitivity of the relation at hand: never REPLACE_ONE, which
        # would double the sensitivity once more.
        parts.append(
            loss.from_gaussian_mechanism(1.0 / np.sqrt(mu2), value_discretization_interval=INTERVAL)
        )
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.compose(part)
    return float(whole.get_epsilon_for_delta(delta))
