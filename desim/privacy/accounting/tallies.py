"""What an agent's releases come to: sums that add up over releases and over runs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.privacy.accounting import prices
from desim.privacy.accounting.gaussian import Kind, epsilon_of
from desim.privacy.accounting.prices import Prices

Counted = tuple[tuple[Kind, int], ...]
MANY = 64  # sizes that are told apart in a distribution; more are rounded up, to COARSE an octave
COARSE = 32
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
    divergence: Array = np.full(len(prices.ORDERS), np.inf)

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
            sizes = _fewer(np.array([kind.size for kind, _ in own]), MANY, COARSE).tolist()
            fewer += [(kind._replace(size=z), n) for (kind, n), z in zip(own, sizes, strict=True)]
        counted = _added(fewer)
        if len(counted) > KIND_LIMIT or self.mu2 == 0.0:
            return None if len(counted) > KIND_LIMIT else counted
        return (*counted, (Kind("gaussian", float(np.sqrt(self.mu2))), 1))

    def bound(self, delta: float) -> float:
        """The least epsilon at `delta` that follows without a distribution of the loss."""
        if self.exact:
            return float(epsilon_of(np.sqrt(self.mu2), delta))
        known = epsilon_of(np.sqrt(self.known), delta)
        divergent = prices.epsilon_of_divergences(self.divergence, delta)
        return min(float(known), self.pure, float(divergent))


NOTHING = Tally(0.0, (), 0.0, 0.0, np.zeros(len(prices.ORDERS)))
LOST = Tally(np.inf)


def divergences(kind: Kind) -> Array:
    """Renyi divergences (orders,) of one release."""
    if kind.law == "batch":
        return prices.sampled_gaussian(kind.size, kind.share)
    if kind.law == "gaussian":
        return np.asarray(0.5 * prices.ORDERS * kind.size**2)
    price = prices.laplace if kind.law == "laplace" else prices.pure
    return np.asarray(price(np.array([kind.size]))[0])


def distinct_prices(priced: Prices) -> tuple[Prices, NDArray[np.int64]]:
    """Different prices of what is not zCDP, and which of them each release (n,) pays."""
    code = np.zeros(len(priced.mu2), np.int64)
    sizes = {name: getattr(priced, name) for name in ("laplace", "pure", "ratio")}
    sizes = {name: _fewer(size, MANY_PRICES, FINE) for name, size in sizes.items()}
    for column in (*sizes.values(), (priced.ratio > 0.0) * priced.share):
        if column.any():
            values, which = np.unique(column, return_inverse=True)
            code = code * len(values) + which
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    rest = priced._replace(**sizes).take(first)
    nothing = np.zeros(len(first))
    return rest._replace(mu2=nothing, rho=nothing, xi=nothing), which


def tallies(priced: Prices, agent: NDArray[np.int64]) -> Mapping[int, Tally]:
    """Tallies by agent (n,) of the releases priced; of very many sizes some are rounded up."""
    kinds, which = distinct_prices(priced)
    table, named = kinds.divergences(), _kinds(kinds)
    code, number = np.unique(agent * max(len(table), 1) + which, return_counts=True)
    owner, kind = np.divmod(code, max(len(table), 1))
    zcdp, secret = priced.rho + priced.xi, priced.ratio**2
    impure = np.bincount(agent, (priced.mu2 + zcdp + priced.ratio) > 0.0) > 0.0
    mu2, rho, xi = (np.bincount(agent, one).astype(float) for one in priced[:3])
    known = np.bincount(agent, np.where(priced.foreign, np.inf, priced.mu2 + secret))
    pure = np.where(impure, np.inf, np.bincount(agent, priced.laplace + priced.pure))
    linear = prices.concentrated(rho + 0.5 * mu2, xi)
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
    laws = np.array(["laplace", "pure", "batch"])
    sizes = np.stack([priced.laplace, priced.pure, priced.ratio])
    law, size = laws[np.argmax(sizes > 0.0, axis=0)].tolist(), sizes.max(axis=0).tolist()
    share = np.where(priced.ratio > 0.0, priced.share, 1.0).tolist()
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
