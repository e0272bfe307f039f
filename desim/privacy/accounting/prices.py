"""What each release costs under a neighbouring relation, in the currency in which it adds up best.

A Gaussian release is paid in mu^2 of Gaussian DP, which is exact; all others in what their Renyi
divergences are made of. A mechanism that is not known here is refused, never guessed.

Divergences add up over releases. Laplace: Mironov (2017, Prop. 6); pure DP: Bun and Steinke (2016,
Prop. 1.4); zCDP is alpha rho by definition; batches: the pair of `gaussian`.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import Columns, Words
from desim.errors import InputError, chosen, refusal
from desim.numerics.later import special
from desim.privacy.accounting.gaussian import Kind, check_delta, epsilon_of
from desim.privacy.ledger.mechanisms import MECHANISMS, Mechanism

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


def concentrated(rho: Array, xi: Array, ceiled: Array | None = None) -> Array:
    """Divergences (n, orders) of (xi, rho)-zCDP, both (n,).

    ceiled (n,): zCDP that is known at whole orders; divergences never fall as orders grow.
    """
    found = np.asarray(xi)[:, None] + np.asarray(rho)[:, None] * ORDERS
    if ceiled is None or not ceiled.any():
        return np.asarray(found)
    return np.asarray(found + ceiled[:, None] * np.ceil(ORDERS))


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
    most = 0.5 * ratio + orders[-1] * ratio + 14.0
    z, heavy = _nodes(0.5 * ratio, most, min(2.0, 3.0 / ratio))
    loss = _mixed(ratio * z - 0.5 * ratio**2, share)
    steep = np.outer(orders, loss)
    grows = steep + np.log(-np.expm1(-steep)) + np.log(-np.expm1(loss - steep))
    log_excess = _log_sum(heavy + grows)
    found = known.copy()
    found[: len(orders)] = np.logaddexp(0.0, log_excess) / (orders - 1.0)
    return np.asarray(np.minimum(found, known))


@lru_cache(maxsize=65536)
def poisson_gaussian(ratio: float, share: float) -> Array:
    """Divergences (orders,) of a Gaussian sum that an agent is in with probability `share`.

    ratio: what it adds / standard deviation. E r^a under N(0, 1), r as in `sampled_gaussian`: the
    divergence of the sums with it from those without, never below that of these from those
    (Mironov, Talwar and Zhang 2019, Thm 5); less 1 it is the mean of r^a - 1 - a (r - 1) >= 0.
    """
    known = 0.5 * ORDERS * ratio * ratio
    orders = ORDERS[ORDERS * ratio <= REACH]
    if share >= 1.0 or not len(orders):
        return np.asarray(known)
    z, heavy = _nodes(-14.0, orders[-1] * ratio + 14.0, min(2.0, 3.0 / ratio))
    loss = _mixed(ratio * z - 0.5 * ratio**2, share)
    steep = np.outer(orders, loss)
    with np.errstate(divide="ignore"):
        grows = np.where(
            steep < 30.0,
            np.log(
                np.maximum(
                    np.expm1(np.minimum(steep, 30.0)) - orders[:, None] * np.expm1(loss), 0.0
                )
            ),
            steep,
        )
    log_excess = _log_sum(heavy + grows)
    found = known.copy()
    found[: len(orders)] = np.logaddexp(0.0, log_excess) / (orders - 1.0)
    return np.asarray(np.minimum(found, known))


def _nodes(low: float, high: float, width: float) -> tuple[Array, Array]:
    """Points z (n,) of panels of that width from `low` to `high`, and logs of weight and phi(z)."""
    panels = int(np.ceil((high - low) / width))
    node, weight = np.polynomial.legendre.leggauss(20)
    middle = low + width * (np.arange(panels) + 0.5)
    z = (middle[:, None] + 0.5 * width * node).ravel()
    return z, np.log(0.5 * width * np.tile(weight, panels) / np.sqrt(2.0 * np.pi)) - 0.5 * z * z


def _mixed(whole: Array, share: float) -> Array:
    """Log of 1 - share + share e^whole (n,)."""
    loss = np.log1p(share * np.expm1(np.minimum(whole, 30.0)))
    return np.where(whole < 30.0, loss, np.logaddexp(np.log1p(-share), np.log(share) + whole))


def _log_sum(rows: Array) -> Array:
    """Log of the sums of e^rows (n, points); of nothing a number that is as good as -inf."""
    top = np.maximum(rows.max(axis=1), -1e300)
    return np.asarray(top + np.log(np.maximum(np.exp(rows - top[:, None]).sum(axis=1), 1e-300)))


def epsilon_of_divergences(total: Array, delta: float) -> Array:
    """Epsilon (...) from divergences (..., orders) (Canonne, Kamath and Steinke 2020, Prop. 12).

    Zero where the total variation, at most sqrt(1 - exp(-divergence)), is below delta.
    """
    check_delta(delta)
    offset = np.log1p(-1.0 / ORDERS) - np.log(delta * ORDERS) / (ORDERS - 1.0)
    epsilon = np.maximum((total + offset).min(axis=-1), 0.0)
    return np.asarray(np.where(-np.expm1(-total[..., 0]) < delta * delta, 0.0, epsilon))


RELATIONS = ("replace-one", "add-or-remove-one", "agent")
OF_SUMS = (*RELATIONS, "add-or-remove-agent")  # the last is about what agents add to a sum alone
OF_AGENTS = OF_SUMS[2:]  # of which the unit is an agent, of the others a record
CORRELATED = (Mechanism.TOEPLITZ_SUM, Mechanism.TREE_SUM)
SECURE = (Mechanism.LATTICE_SUM, Mechanism.SKELLAM_SUM)
SUMS = (Mechanism.SUM, Mechanism.POISSON_SUM, Mechanism.SUBSET_SUM, *CORRELATED, *SECURE)
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
    batch, rows: of a Gaussian on a secret batch, replace-one sensitivity / standard deviation, and
    poisson: the same of a sum that an agent is in with probability batch / rows; ceiled: zCDP that
    is known at whole orders alone.
    """

    mu2: Array
    rho: Array
    xi: Array
    laplace: Array
    pure: Array
    ratio: Array
    batch: Array
    rows: Array
    poisson: Array
    ceiled: Array

    @property
    def share(self) -> Array:
        """Batches over rows, 0 where neither was needed."""
        return np.asarray(self.batch / np.maximum(self.rows, 1))

    @property
    def foreign(self) -> NDArray[np.bool_]:
        """Which releases are of other mechanisms than Gaussian ones."""
        return np.asarray((self.rho + self.xi + self.laplace + self.pure + self.ceiled) > 0.0)

    @property
    def gaussian(self) -> NDArray[np.bool_]:
        """Which releases mu^2 says everything about."""
        return np.asarray(~self.foreign & (self.sampled == 0.0))

    @property
    def sampled(self) -> Array:
        """Ratio or poisson, whichever there is."""
        return np.asarray(self.ratio + self.poisson)

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
        total = concentrated(self.rho + 0.5 * self.mu2, self.xi, self.ceiled)
        for where, price, column in (
            (self.laplace > 0.0, laplace, self.laplace),
            (self.pure > 0.0, pure, self.pure),
        ):
            if where.any():
                total[where] += price(column[where])
        for secret, law in ((self.ratio, sampled_gaussian), (self.poisson, poisson_gaussian)):
            if not (where := secret > 0.0).any():
                continue
            terms = np.column_stack([secret, self.batch, self.rows])[where]
            kinds, kind = np.unique(terms, axis=0, return_inverse=True)
            table = [law(z, b / n) for z, b, n in kinds.tolist()]
            total[where] += np.array(table)[kind]
        return total


def prices(
    releases: Columns,
    rows: NDArray[np.int64] | None,
    relation: str = "replace-one",
    amplification: bool = True,
) -> Prices:
    """Price every row of the releases table; rows (agents,) are the records of each agent.

    amplification: whether a Gaussian on part of the rows is charged as one on a secret uniform
    batch, which only `replace-one` knows how to; of a sum also where agents are replaced, or, drawn
    each by itself, left out. InputError for what has no meaning, or `rows` needed and not known.
    """
    chosen("relation", relation, OF_SUMS)
    code = _codes(releases["mechanism"])
    fraction, summed = np.asarray(releases["sampling"], float), np.isin(code, SUMS)
    drawn = (fraction > 0.0) & (fraction < 1.0)
    part = drawn & ~summed
    amplified = amplification and relation == "replace-one"
    needed = (relation in OF_AGENTS and not summed.all()) or bool(part.any() and amplified)
    group, batch, owned = _group(releases, np.where(part, fraction, 1.0), rows, relation, needed)
    if relation == "add-or-remove-one":
        group = np.where(np.isin(code, WHOLE), 1.0, group)
    left_out = relation == "add-or-remove-agent"
    group = np.where(code == Mechanism.CLIPPED_GAUSSIAN, 1.0, group)  # of all rows as of one
    if relation == "agent":  # in whatever rounds they are, one after the other
        group = np.where(code == Mechanism.CHAINED_GAUSSIAN, owned, group)
    group = np.where(summed, _group_of_sums(releases, summed, left_out), group)
    ratio = _ratio(_amounts(releases, "sensitivity") * group, _amounts(releases, "scale"), code)
    if left_out:  # its messages show whether it is there
        ratio = np.where(summed, ratio, np.inf)
    ratio = np.where(lost := np.isinf(ratio), 0.0, ratio)
    secret = part & (code == Mechanism.GAUSSIAN) & (batch < owned) & amplified
    subset = drawn & (code == Mechanism.SUBSET_SUM) & amplification
    subset &= relation in ("replace-one", "agent")
    poisson = drawn & (code == Mechanism.POISSON_SUM) & amplification & left_out
    drew = np.where(subset | poisson, fraction, batch.astype(float))
    of = np.where(subset | poisson, 1.0, owned.astype(float))
    paid = {name: np.where(code == number, ratio, 0.0) for number, name in enumerate(MECHANISMS)}
    objective = paid["objective-perturbation"]
    discrete = paid["discrete-gaussian"] + paid["lattice-sum"]
    xi = np.zeros_like(objective)
    if objective.any():
        xi = np.where(objective > 0.0, CURVATURE * _group_factor(group), 0.0)
    with np.errstate(over="ignore"):
        exact = np.where(secret, 0.0, paid["gaussian"]) + paid["noisy-gradient"]
        exact += np.where(summed & ~subset & ~poisson & ~np.isin(code, SECURE), ratio, 0.0)
        mu2 = (exact + paid["clipped-gaussian"] + paid["chained-gaussian"]) ** 2
        rho, ceiled = 0.5 * (objective**2 + discrete**2), 0.5 * paid["skellam-sum"] ** 2
    return Prices(
        np.where(lost, np.inf, mu2),
        rho,
        xi,
        paid["laplace"],
        paid["sparse-vector"] + paid["l2-laplace"] + paid["objective-laplace"],
        np.where(secret | subset, ratio, 0.0),
        drew,
        of,
        np.where(poisson, ratio, 0.0),
        ceiled,
    )


def _group_of_sums(releases: Columns, summed: Any, left_out: bool) -> Any:
    """What multiplies the sensitivity of sums (n,), of replacing: leaving moves a sum by half.

    Not where it is divided by weights of those in it: who leaves moves what others count for.
    """
    usual = 0.5 if left_out else 1.0
    if not (left_out and "release" in releases and np.any(summed)):
        return usual
    from desim.network.timeline.record import BESIDE, SUMMED  # with numba: half a second

    both = SUMMED | BESIDE
    return np.where(np.asarray(releases["release"]) >> 48 & both == both, 1.0, usual)


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
    if relation in OF_AGENTS:
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


# What an agent's releases come to: sums that add up over releases and over runs.


Counted = tuple[tuple[Kind, int], ...]
MANY = 64  # sizes that are told apart in a distribution; of more, so many an octave
SIZES_AN_OCTAVE = 32
MANY_PRICES = 512  # the same of divergences
FINE = 256
KIND_LIMIT = 256  # kinds of one agent that a distribution is computed for


class Tally(NamedTuple):
    """Releases in every currency in which they add up, each a bound; inf where it says nothing.

    mu2: of Gaussian releases, inf for no privacy at all; counted: other kinds, each with how many
    there are, None if one has no distribution (zCDP of vectors); known: mu^2 if all batches are
    known to everybody; pure: sum of pure epsilons; divergence (orders,): Renyi.
    """

    mu2: float
    counted: Counted | None = ()
    known: float = np.inf
    pure: float = np.inf
    divergence: Array = np.full(len(ORDERS), np.inf)

    @property
    def lost(self) -> bool:
        """Whether there is no privacy at all."""
        return bool(np.isinf(self.mu2))

    @property
    def exact(self) -> bool:
        """Whether mu2 says everything."""
        return self.counted == ()

    def plus(self, other: "Tally") -> "Tally":
        """Both together: what they spend adds up in every currency."""
        counted = None
        if self.counted is not None and other.counted is not None:
            counted = _added((*self.counted, *other.counted))
        mu2, _, known, pure, divergence = self
        return Tally(
            mu2 + other.mu2,
            counted,
            known + other.known,
            pure + other.pure,
            divergence + other.divergence,
        )

    def scaled(self, scale: float) -> "Tally":
        """The same releases with `scale` times the noise; no divergence is known of them."""
        counted = self.counted
        if counted is not None:
            counted = tuple((kind._replace(size=kind.size / scale), n) for kind, n in counted)
        return Tally(self.mu2 / scale**2, counted, self.known / scale**2, self.pure / scale)

    def parts(self) -> Counted | None:
        """All kinds, with mu2 in one of them; None if they are unknown or too many.

        Of very many sizes some are rounded up.
        """
        if self.counted is None:
            return None
        fewer: list[tuple[Kind, int]] = []
        for law in sorted({kind.law for kind, _ in self.counted}):
            own = [(kind, n) for kind, n in self.counted if kind.law == law]
            sizes = _fewer(np.array([kind.size for kind, _ in own]), MANY, SIZES_AN_OCTAVE).tolist()
            fewer += [(kind._replace(size=z), n) for (kind, n), z in zip(own, sizes, strict=True)]
        counted = _added(fewer)
        if len(counted) > KIND_LIMIT or self.mu2 == 0.0:
            return None if len(counted) > KIND_LIMIT else counted
        return (*counted, (Kind("gaussian", float(np.sqrt(self.mu2))), 1))

    def bound(self, delta: float) -> tuple[float, str]:
        """The least epsilon at `delta` that follows without a distribution of the loss; by what."""
        if self.exact:
            return float(epsilon_of(np.sqrt(self.mu2), delta)), "exact GDP"
        found = {
            "RDP": float(epsilon_of_divergences(self.divergence, delta)),
            "pure DP added up": self.pure,
            "GDP, batches known": float(epsilon_of(np.sqrt(self.known), delta)),
        }
        method = min(found, key=found.__getitem__)
        return found[method], method


NOTHING = Tally(0.0, (), 0.0, 0.0, np.zeros(len(ORDERS)))
LOST = Tally(np.inf)


def divergences(kind: Kind) -> Array:
    """Renyi divergences (orders,) of one release."""
    if kind.law == "batch":
        return sampled_gaussian(kind.size, kind.share)
    if kind.law in ("poisson", "poisson-back"):
        return poisson_gaussian(kind.size, kind.share)
    if kind.law == "gaussian":
        return np.asarray(0.5 * ORDERS * kind.size**2)
    price = laplace if kind.law == "laplace" else pure
    return np.asarray(price(np.array([kind.size]))[0])


SIZES = ("laplace", "pure", "ratio", "poisson")  # of what has a distribution and is not Gaussian


def distinct_prices(priced: Prices) -> tuple[Prices, NDArray[np.int64]]:
    """Different prices of what is not zCDP, and which of them each release (n,) pays."""
    code = np.zeros(len(priced.mu2), np.int64)
    sizes = {name: getattr(priced, name) for name in SIZES}
    sizes = {name: _fewer(size, MANY_PRICES, FINE) for name, size in sizes.items()}
    for column in (*sizes.values(), (priced.sampled > 0.0) * priced.share):
        if column.any():
            values, which = np.unique(column, return_inverse=True)
            code = code * len(values) + which
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    rest = priced._replace(**sizes).take(first)
    nothing = np.zeros(len(first))
    return rest._replace(mu2=nothing, rho=nothing, xi=nothing, ceiled=nothing), which


def tallies(priced: Prices, agent: NDArray[np.int64]) -> Mapping[int, Tally]:
    """Tallies by agent (n,) of the releases priced; of very many sizes some are rounded up."""
    kinds, which = distinct_prices(priced)
    table, named = kinds.divergences(), _kinds(kinds)
    code, number = np.unique(agent * max(len(table), 1) + which, return_counts=True)
    owner, kind = np.divmod(code, max(len(table), 1))
    zcdp, secret = priced.rho + priced.xi + priced.ceiled, priced.sampled**2
    impure = np.bincount(agent, (priced.mu2 + zcdp + priced.sampled) > 0.0) > 0.0
    mu2, rho, xi = (np.bincount(agent, one).astype(float) for one in priced[:3])
    known = np.bincount(agent, np.where(priced.foreign, np.inf, priced.mu2 + secret))
    pure = np.where(impure, np.inf, np.bincount(agent, priced.laplace + priced.pure))
    linear = concentrated(rho + 0.5 * mu2, xi, np.bincount(agent, priced.ceiled).astype(float))
    unknown, found = np.bincount(agent, zcdp) > 0.0, {}
    for first, end in pairwise(np.flatnonzero(np.diff(owner, prepend=-1, append=-1)).tolist()):
        i, own, times = int(owner[first]), kind[first:end], number[first:end]
        pairs = zip((named[k] for k in own.tolist()), times.tolist(), strict=True)
        counted = None if unknown[i] else tuple((one, n) for one, n in pairs if one is not None)
        total = linear[i] + times @ table[own]
        found[i] = Tally(float(mu2[i]), counted, float(known[i]), float(pure[i]), total)
    return found


def _kinds(priced: Prices) -> list[Kind | None]:
    """The kind of each price, None where it is nothing; no release is of two."""
    laws = np.array(["laplace", "pure", "batch", "poisson"])
    sizes = np.stack([getattr(priced, name) for name in SIZES])
    law, size = laws[np.argmax(sizes > 0.0, axis=0)].tolist(), sizes.max(axis=0).tolist()
    share = np.where(priced.sampled > 0.0, priced.share, 1.0).tolist()
    return [Kind(*one) if one[1] > 0.0 else None for one in zip(law, size, share, strict=True)]


def _added(counted: Sequence[tuple[Kind, int]]) -> Counted:
    """Each kind once."""
    number: Counter[Kind] = Counter()
    for kind, n in counted:
        number[kind] += n
    return tuple(sorted(number.items()))


def _fewer(size: Array, many: int, octave: int) -> Array:
    """Sizes (n,); if they are more than `many`, each rounded up to one of so many in an octave."""
    some = size > 0.0
    if not some.any() or len(np.unique(size[some])) <= many:
        return size
    up = np.ceil(octave * np.log2(np.where(some, size, 1.0))) / octave
    return np.where(some, np.exp2(up) * (1.0 + 1e-12), 0.0)


def dearest(some: Sequence[Tally]) -> Tally:
    """One that is no less than any of them in any currency: for who may be any of the agents."""
    mu2, counted, known, pure, divergence = zip(*(some or [NOTHING]), strict=True)
    most = np.max(divergence, axis=0)
    return Tally(max(mu2), _dearest_kinds(set(counted)), max(known), max(pure), most)


def _dearest_kinds(some: set[Counted | None]) -> Counted | None:
    """Kinds whose largest are no less than the largest of any, the next ones than the next ...

    Profiles grow with size and share.
    """
    if len(some) == 1 or None in some:
        return None if None in some else next(iter(some))
    found = []
    for law in sorted({kind.law for counted in some for kind, _ in counted or ()}):
        own = [[(kind, n) for kind, n in one or () if kind.law == law] for one in some]
        most = np.zeros(max(sum(n for _, n in one) for one in own))
        for one in own:
            sizes = np.repeat([kind.size for kind, _ in one], [n for _, n in one])
            most[: len(sizes)] = np.maximum(most[: len(sizes)], np.sort(sizes)[::-1])
        share = max(kind.share for one in own for kind, _ in one)
        sizes, number = np.unique(most, return_counts=True)
        pairs = zip(sizes.tolist(), number.tolist(), strict=True)
        found += [(Kind(law, size, share), n) for size, n in pairs]
    return tuple(found)
