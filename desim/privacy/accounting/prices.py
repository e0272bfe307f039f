"""What each release costs under a neighbouring relation, in the currency in which it adds up best.

A Gaussian release is paid in mu^2 of Gaussian DP, which is exact; all others in what their Renyi
divergences are made of. A mechanism that is not known here is refused, never guessed.

Divergences add up over releases. Laplace: Mironov (2017, Prop. 6); pure DP: Bun and Steinke (2016,
Prop. 1.4); zCDP is alpha rho by definition; batches: the pair of `gaussian`.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import Columns, Words
from desim.errors import InputError, chosen, refusal
from desim.numerics.later import special
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.ledger.terms import MECHANISMS, Mechanism

# Renyi divergences of what is not Gaussian, a column for each of ORDERS; and their epsilon.

COARSE = (96.0, 128.0, 192.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0)
ORDERS: Array = np.concatenate([np.arange(11, 110) / 10, np.arange(11.0, 65.0), COARSE])
REACH = 100.0  # of order times ratio: batches are priced as known ones beyond


def laplace(ratio: Array) -> Array:
    """Divergences (n, orders) of Laplace noise, ratio (n,) = L1 sensitivity / b."""
    e = np.asarray(ratio, float)[:, None]
    inner = (ORDERS - 1.0) / (2.0 * ORDERS - 1.0) * np.expm1(-(2.0 * ORDERS - 1.0) * e)
    return np.asarray(e + np.log1p(inner) / (ORDERS - 1.0))


def pure(epsilon: Array) -> Array:
    """Divergences (n, orders) of anything that is (epsilon, 0)-DP, epsilon (n,)."""
    e = np.asarray(epsilon, float)[:, None]
    return np.asarray(np.minimum(e, 0.5 * ORDERS * e * e))


def concentrated(rho: Array, xi: Array) -> Array:
    """Divergences (n, orders) of (xi, rho)-zCDP, both (n,)."""
    return np.asarray(np.asarray(xi)[:, None] + np.asarray(rho)[:, None] * ORDERS)


@lru_cache(maxsize=65536)
def sampled_gaussian(ratio: float, share: float) -> Array:
    """Divergences (orders,) of Gaussian noise on a secret batch, drawn without replacement.

    ratio: replace-one sensitivity of the batch's value / standard deviation; share: batch / rows.
    Those of the pair that `gaussian` proves to dominate, with r = 1 - share + share e^(ratio z -
    ratio^2 / 2): e^((a - 1) D) - 1 is the integral of phi(z) (r^a - 1) (1 - r^(1 - a)) over z >
    ratio / 2. A known batch bounds them at the largest orders.
    """
    known = 0.5 * ORDERS * ratio * ratio
    orders = ORDERS[ORDERS * ratio <= REACH]
    if share >= 1.0 or not len(orders):
        return np.asarray(known)
    width = min(2.0, 3.0 / ratio)
    panels = int(np.ceil((orders[-1] * ratio + 14.0) / width))
    node, weight = np.polynomial.legendre.leggauss(20)
    middle = 0.5 * ratio + width * (np.arange(panels) + 0.5)
    z = (middle[:, None] + 0.5 * width * node).ravel()
    heavy = np.log(0.5 * width * np.tile(weight, panels) / np.sqrt(2.0 * np.pi)) - 0.5 * z * z
    whole = ratio * z - 0.5 * ratio**2
    loss = np.log1p(share * np.expm1(np.minimum(whole, 30.0)))
    loss = np.where(whole < 30.0, loss, np.logaddexp(np.log1p(-share), np.log(share) + whole))
    steep = np.outer(orders, loss)
    grows = steep + np.log(-np.expm1(-steep)) + np.log(-np.expm1(loss - steep))
    excess = heavy + grows
    top = excess.max(axis=1)
    log_excess = top + np.log(np.exp(excess - top[:, None]).sum(axis=1))
    found = known.copy()
    found[: len(orders)] = np.logaddexp(0.0, log_excess) / (orders - 1.0)
    return np.asarray(np.minimum(found, known))


def epsilon_of_divergences(total: Array, delta: float) -> Array:
    """Epsilon (...) from divergences (..., orders) (Canonne, Kamath and Steinke 2020, Prop. 12).

    Zero where the total variation, at most sqrt(1 - exp(-divergence)), is below delta.
    """
    check_delta(delta)
    offset = np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    epsilon = np.maximum((total + offset).min(axis=-1), 0.0)
    return np.asarray(np.where(-np.expm1(-total[..., 0]) < delta * delta, 0.0, epsilon))


RELATIONS = ("replace-one", "add-or-remove-one", "agent")
# Their sensitivities hold a rounding, a range or a change of volume, of which a removed record does
# not spare one half.
WHOLE = [
    Mechanism.DISCRETE_GAUSSIAN, Mechanism.OBJECTIVE_PERTURBATION, Mechanism.SPARSE_VECTOR,
    Mechanism.OBJECTIVE_LAPLACE,
]  # fmt: skip
CURVATURE = 1e-8  # xi of objective perturbation as printed; `at_every_order` needs none


class Prices(NamedTuple):
    """Costs of releases, arrays (n,); what does not apply is 0, and mu2 inf is no privacy at all.

    mu2: mu^2 of Gaussian DP; rho, xi: zCDP; laplace: L1 sensitivity / b; pure: epsilon; ratio,
    batch, rows: of a Gaussian on a secret batch, replace-one sensitivity / standard deviation.
    """

    mu2: Array
    rho: Array
    xi: Array
    laplace: Array
    pure: Array
    ratio: Array
    batch: NDArray[np.int64]
    rows: NDArray[np.int64]

    @property
    def share(self) -> Array:
        """Batches over rows, 0 where neither was needed."""
        return np.asarray(self.batch / np.maximum(self.rows, 1))

    @property
    def foreign(self) -> NDArray[np.bool_]:
        """Which releases are of other mechanisms than Gaussian ones."""
        return np.asarray((self.rho + self.xi + self.laplace + self.pure) > 0.0)

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """Which releases mu^2 says everything about."""
        return np.asarray(~self.foreign & (self.ratio == 0.0))

    def take(self, where: Any) -> "Prices":
        """The costs of the releases `where`."""
        return Prices(*(column[where] for column in self))

    def divergences(self) -> Array:
        """Renyi divergences (n, orders) of each release; one that repeats the last is copied."""
        changed = np.any([np.diff(column) != 0 for column in self], axis=0)
        kind = np.concatenate([[0], np.cumsum(changed)])[: len(self.mu2)]
        first = np.concatenate([[0], 1 + np.flatnonzero(changed)])[: len(self.mu2)]
        return np.asarray(self.take(first)._divergences()[kind])

    def _divergences(self) -> Array:
        total = concentrated(self.rho + 0.5 * self.mu2, self.xi)
        for where, price, column in (
            (self.laplace > 0.0, laplace, self.laplace),
            (self.pure > 0.0, pure, self.pure),
        ):
            if where.any():
                total[where] += price(column[where])
        secret = self.ratio > 0.0
        if secret.any():
            terms = np.column_stack([self.ratio, self.batch, self.rows])[secret]
            kinds, kind = np.unique(terms, axis=0, return_inverse=True)
            table = [sampled_gaussian(z, b / n) for z, b, n in kinds.tolist()]
            total[secret] += np.array(table)[kind]
        return total


def prices(
    releases: Columns,
    rows: NDArray[np.int64] | None,
    relation: str = "replace-one",
    amplification: bool = True,
) -> Prices:
    """Price every row of the releases table; rows (agents,) are the records of each agent.

    amplification: whether a Gaussian on part of the rows is charged as one on a secret uniform
    batch, which only `replace-one` knows how to. InputError for what has no meaning, or for `rows`
    that are needed and not known.
    """
    chosen("relation", relation, RELATIONS)
    code = _codes(releases["mechanism"])
    scale = _amounts(releases, "scale")
    fraction = np.asarray(releases["sampling"], float)
    part = (fraction > 0.0) & (fraction < 1.0)
    amplified = amplification and relation == "replace-one"
    needed = relation == "agent" or bool(part.any() and amplified)
    group, batch, owned = _group(releases, np.where(part, fraction, 1.0), rows, relation, needed)
    if relation == "add-or-remove-one":
        group = np.where(np.isin(code, WHOLE), 1.0, group)
    group = np.where(code == Mechanism.CLIPPED_GAUSSIAN, 1.0, group)  # of all rows as of one
    ratio = _ratio(_amounts(releases, "sensitivity") * group, scale, code)
    lost = np.isinf(ratio)
    ratio = np.where(lost, 0.0, ratio)
    secret = part & (code == Mechanism.GAUSSIAN) & (batch < owned) & amplified
    paid = {name: np.where(code == number, ratio, 0.0) for number, name in enumerate(MECHANISMS)}
    objective, discrete = paid["objective-perturbation"], paid["discrete-gaussian"]
    xi = np.zeros_like(objective)
    if objective.any():
        xi = np.where(objective > 0.0, CURVATURE * _group_factor(group), 0.0)
    with np.errstate(over="ignore"):
        exact = np.where(secret, 0.0, paid["gaussian"]) + paid["noisy-gradient"]
        mu2 = (exact + paid["clipped-gaussian"]) ** 2
        rho = 0.5 * (objective**2 + discrete**2)
    return Prices(
        np.where(lost, np.inf, mu2),
        rho,
        xi,
        paid["laplace"],
        paid["sparse-vector"] + paid["l2-laplace"] + paid["objective-laplace"],
        np.where(secret, ratio, 0.0),
        batch,
        owned,
    )


def _group_factor(group: Array) -> Array:
    """Return k (1 + ... + 1/k): groups of k multiply xi by it (Bun and Steinke 2016, Prop. 1.9)."""
    k = np.maximum(group, 1.0)
    return np.asarray(k * (special.psi(k + 1.0) + np.euler_gamma))


def _codes(mechanism: Words) -> NDArray[np.int64]:
    used = np.unique(mechanism.codes).tolist()
    found = [mechanism.words[code] if code >= 0 else None for code in used]
    unknown = [word for word in found if word not in MECHANISMS]
    if unknown:
        odd = next((word for word in unknown if word is not None), None)
        raise InputError(f"releases: mechanism: {refusal(odd, ', '.join(MECHANISMS), MECHANISMS)}")
    code = np.zeros(len(mechanism.words), np.int64)
    code[used] = [MECHANISMS.index(str(word)) for word in found]
    return np.asarray(code[mechanism.codes])


def _amounts(releases: Mapping[str, Any], column: str) -> Array:
    amount = np.asarray(releases[column], float)
    if not (amount >= 0.0).all():
        wrong = amount[~(amount >= 0.0)][0]
        raise InputError(f"releases: {column}: {refusal(float(wrong), 'a number >= 0, or inf')}")
    return amount


def _group(
    releases: Mapping[str, Any], share: Array, rows: NDArray[np.int64] | None, relation: str,
    needed: bool,
) -> tuple[Array, NDArray[np.int64], NDArray[np.int64]]:  # fmt: skip
    """Factor (n,) on the replace-one sensitivity, rows drawn (n,) and rows owned (n,).

    One record removed moves a value half as far as one replaced, if contributions lie in a ball
    around 0; an agent's records are replaced one after the other.
    """
    n = len(share)
    batch = owned = np.zeros(n, np.int64)
    if needed and rows is None:
        raise InputError("rows: this run does not say how many records each agent has")
    if needed and rows is not None:
        owned = rows[releases["agent"]]
        batch = np.clip(np.rint(share * owned), 1, None).astype(np.int64)
    if relation == "agent":
        return batch.astype(float), batch, owned
    return np.full(n, 0.5 if relation == "add-or-remove-one" else 1.0), batch, owned


def _ratio(sensitivity: Array, scale: Array, code: NDArray[np.int64]) -> Array:
    """Sensitivity over scale (n,), inf for no privacy and 0 for a value that no record moves."""
    bare = (code == Mechanism.NONE) | (scale == 0.0) | np.isinf(sensitivity)
    with np.errstate(over="ignore"):
        ratio = sensitivity / np.where(bare, 1.0, scale)
    ratio = np.where(bare, np.inf, ratio)
    ratio = np.where(sensitivity == 0.0, 0.0, ratio)
    return np.where(code == Mechanism.REUSED, np.inf, ratio)
