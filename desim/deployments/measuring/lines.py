"""Latency, rate, jitter and losses of lines, as far as the messages on them tell these apart."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.deployments.measuring.fitted_laws import (
    IDEAL,
    WAYS,
    Fit,
    Law,
    Sent,
    by_tcp,
    cost,
    fitted,
)
from desim.deployments.measuring.misfit_profiles import (
    LEVEL,
    NO_RATE,
    Interval,
    Measured,
    Profile,
    Telling,
    pairs_of,
    profiled,
    starts,
    telling,
)
from desim.deployments.measuring.samples import Samples
from desim.numerics.later import special
from desim.scenario.sections.links import Tcp

if TYPE_CHECKING:
    import pandas as pd

MIN_MESSAGES = 5  # messages of which anything is told
ALIKE = 1.2  # times the smallest size that the largest one must be, to tell a rate
FASTER = 2.0 ** np.arange(0.0, 3.1, 0.25)  # times the rate that lossy messages seem to have
EARLIEST = 0.05  # quantile of lossy messages that have taken little more than the latency
WIDE = 1.2  # times the lower end of a rate's interval that its upper end is, and it is not told
MIN_DIFFERENCE = (
    0.05  # by how much a message must differ between pairs to tell them apart, at least
)
LOSSY_FLOOR = 0.01  # relative error of a law of which a quantile of replays is taken
QUIET = 0.01  # sigma of a jitter that is left out
FLOOR = 1e-3  # of a message: what no clock tells
LITTLE, ROUGH = 0.02, 0.4  # by which directions differ that are told as one; with losses
BETTER = 0.8  # of the residuals of one law for all: what laws for each must leave, to be told
MEASURED, LIMIT, LOGGED = "measured", "limit", "logged"
BEST, OTHERS = "of these the one that fits best", "of these the rate of all lines together"


@dataclass(frozen=True)
class Line:
    """What a group of lines is: `latency` s and `rate` bit/s, and which ones fit as well.

    latencies, rates: 95 % intervals, several where pairs far apart fit; errors: a quarter of the
    logarithms' width, which is a relative standard error where the interval is one. how: measured;
    logged, where the rate is that of the log's own sending times; or limit, where the messages do
    not bound it from above (rate inf), and `least` bit/s bounds it from below. pairs: (latency,
    rate) that fit equally well; telling: which message would tell them apart, None where there is
    none that matters; chosen: by which rule these are the line's. jitter: sigma of a lognormal
    factor on the latency, with its interval; left: the median relative residual; late: its 95th
    percentile; average: its mean; sizes: bytes, smallest and largest.
    """

    name: str
    messages: int
    sizes: tuple[int, int]
    latency: float
    rate: float
    errors: tuple[float, float]
    how: str
    jitter: float
    left: float
    late: float
    r2: float
    average: float
    least: float = 0.0
    latencies: tuple[Interval, ...] = ()
    rates: tuple[Interval, ...] = ()
    pairs: tuple[tuple[float, float], ...] = ()
    telling: Telling | None = None
    chosen: str = ""
    jitters: Interval = (0.0, 0.0)

    @property
    def identified(self) -> bool:
        """Whether the messages tell the rate, as far as messages of any size would notice."""
        return self.how == LOGGED or (self.how == MEASURED and self.telling is None)

    def may_be(self, rate: float) -> bool:
        """Whether a rate bit/s fits the messages."""
        return any(low <= rate <= high for low, high in self.rates)


@dataclass(frozen=True)
class Lines:
    """The lines of a network: all alike or both directions (pooled), and device by device.

    pooled: link, or uplink and downlink; each: (device, towards it) -> its line; differ: whether
    the devices are told apart; law: of transport that is told; loss: share of attempts lost, with
    its interval; packets: whether these were packets, not messages.
    """

    pooled: tuple[Line, ...]
    each: dict[tuple[int, bool], Line]
    differ: bool
    law: Law
    loss: float
    interval: tuple[float, float]
    lost: int
    attempts: int
    timeout: float | None
    packets: bool = False

    @property
    def shown(self) -> list[Line]:
        """Those that are reported."""
        return [*self.pooled, *(self.each.values() if self.differ else ())]

    @property
    def jitter(self) -> float:
        """Of lines that are told one by one: the median of theirs."""
        return float(np.median([one.jitter for one in self.each.values()]))


def lines_of(samples: Samples, apart: bool | None = None) -> Lines | None:
    """What the messages tell of the lines; None where there are too few.

    apart: whether devices are told apart; None: where that explains the messages much better, and
    no packet is lost. Of several laws of transport the one that leaves least is told.
    """
    table = samples.messages
    first = table[(table["attempts"] == 1.0) & (table["seconds"] > 0.0) & (table["bytes"] > 0)]
    first = first[np.isfinite(first["seconds"])]
    if len(first) < MIN_MESSAGES:
        return None
    forward = _lawful(first, samples)
    floor = samples.floor
    pooled = tuple(_pooled(first, samples.star, forward, floor))
    tried = not forward.lossy if apart is None else apart
    each = _each(first, samples.star, forward, floor) if tried else {}
    each = {key: _by_others(one, first, key, forward, pooled) for key, one in each.items()}
    differ = bool(each) and (apart or _better(each, pooled))
    packets = samples.packets > 0 and forward is not IDEAL
    lost = samples.packets_lost if packets else samples.lost
    many = samples.packets if packets else max(int(table["attempts"].sum()), lost)
    share, interval = loss_share(lost, many)
    waited = float(np.median(samples.timeouts)) if len(samples.timeouts) else None
    return Lines(
        pooled, each, bool(differ), forward, share, interval, lost, many, waited, packets
    )  # fmt: skip


def _lawful(table: "pd.DataFrame", samples: Samples) -> Law:
    """The law of transport that leaves least.

    What is known of how messages were sent, which comes first, has to be beaten clearly, by the
    mean: most messages find a window that is wide, and all laws say the same of these.
    """
    own, loss = samples.tcp, samples.packets_lost / max(samples.packets, 1)
    ways = WAYS if own is None else (own.connection,)
    known = np.isfinite(table["begin"]).all()
    tcp = list(by_tcp(own or Tcp(), loss, ways)) if known else []
    laws = [IDEAL, *tcp] if own is None else [*tcp, IDEAL]
    parts = _directions(table) if samples.star else []
    if not parts or not all(_wide(rows) for _, rows in parts):
        parts = [("link", table)]
    if len(laws) == 1 or not _wide(parts[0][1]):
        return laws[0]
    left = [sum(_left(_measured(rows, one, samples.floor)) for _, rows in parts) for one in laws]
    best = int(np.argmin(left[1:])) + 1
    return laws[best if left[best] < BETTER * left[0] else 0]


def _left(measured: Measured) -> float:
    """What a law leaves of messages, by a few lines of each kind where none is lost."""
    few = measured if measured.law.lossy else measured.thin
    share = len(measured.seconds) / len(few.seconds)
    return share * float(np.sum(np.abs(_pairs(few)[0].residuals) + FLOOR))


def _directions(table: "pd.DataFrame") -> list[tuple[str, "pd.DataFrame"]]:
    """Messages to a coordinator and from it, where there are enough."""
    parts = {"uplink": table[table["receiver"] < 0], "downlink": table[table["sender"] < 0]}
    return [(name, rows) for name, rows in parts.items() if len(rows) >= MIN_MESSAGES]


def _wide(table: "pd.DataFrame") -> bool:
    """Whether sizes differ by so much that they may tell a rate."""
    return bool(len(table) and table["bytes"].max() >= ALIKE * table["bytes"].min())


def _pooled(table: "pd.DataFrame", star: bool, law: Law, floor: float) -> Iterator[Line]:
    """Both directions of a star, as one where they do not differ, or only together tell a rate."""
    if not star:
        yield line_of("link", table, law, floor)
        return
    found = [line_of(name, rows, law, floor) for name, rows in _directions(table)]
    if len(found) == 2 and not _same(found[0], found[1], ROUGH if law.lossy else LITTLE):
        both = None
        if not all(one.identified for one in found):
            both = line_of("link", table, law, floor)
        if both is None or not both.identified or not all(one.may_be(both.rate) for one in found):
            yield from found
            return
        yield both
        return
    yield line_of("link", table, law, floor)


def _same(one: Line, other: Line, little: float) -> bool:
    """Whether two lines differ by no more than their errors, or by a share that is little."""
    if one.how != other.how:
        return False
    pairs = ((one.latency, other.latency), (one.rate, other.rate))
    for (first, second), *errors in zip(pairs, one.errors, other.errors, strict=True):
        if not (np.isfinite(first) and np.isfinite(second)):
            continue
        apart = abs(np.log(max(first, 1e-12) / max(second, 1e-12)))
        if apart > max(3.0 * float(np.hypot(errors[0], errors[1])), little):
            return False
    return True


def _each(
    table: "pd.DataFrame", star: bool, law: Law, floor: float
) -> dict[tuple[int, bool], Line]:
    """The lines from each device (and of a star to it); {} where one has too few messages."""
    found: dict[tuple[int, bool], Line] = {}
    sides = {False: table[table["sender"] >= 0]}
    if star:
        sides[True] = table[table["sender"] < 0]
    for towards, rows in sides.items():
        for device, own in rows.groupby("receiver" if towards else "sender"):
            if len(own) < MIN_MESSAGES:
                return {}
            who = int(str(device))
            name = f"agent {who} {'down' if towards else 'up'}"
            found[who, towards] = line_of(name, own, law, floor)
    return found


def _better(each: dict[tuple[int, bool], Line], pooled: tuple[Line, ...]) -> bool:
    """Whether lines of their own leave much less."""
    if len({who for who, _ in each}) < 2:
        return False
    weights = [one.messages for one in each.values()]
    own = float(np.average([one.left for one in each.values()], weights=weights))
    all_ = float(np.average([one.left for one in pooled], weights=[one.messages for one in pooled]))
    return own < BETTER * all_ and all_ > QUIET / 2


def _by_others(
    one: Line, table: "pd.DataFrame", key: tuple[int, bool], law: Law, pooled: Sequence[Line]
) -> Line:
    """A line whose own messages do not tell its rate: with that of all lines, where this fits."""
    who, towards = key
    usual = pooled[-1] if towards else pooled[0]
    if one.identified or not usual.identified or not one.may_be(usual.rate):
        return one
    rows = table[table["receiver" if towards else "sender"] == who]
    ends = rows["sender" if towards else "receiver"]
    measured = _measured(rows if usual.name == "link" else rows[ends < 0], law, 0.0)
    fit = fitted(
        lambda at: measured.model(np.array([at[0], usual.rate])), measured.seconds,
        np.array([usual.latency]), measured.sent.line,
    )  # fmt: skip
    values = float(fit.values[0]), usual.rate
    return replace(
        one, latency=values[0], rate=usual.rate, how=MEASURED, left=fit.left,
        average=float(np.mean(np.abs(fit.residuals))), r2=fit.r2,
        late=float(np.quantile(np.abs(fit.residuals), 0.95)), chosen=OTHERS,
    )  # fmt: skip


def _measured(table: "pd.DataFrame", law: Law, floor: float) -> Measured:
    """The messages of a table as a law takes them."""
    bits, seconds = 8.0 * table["bytes"].to_numpy(float), table["seconds"].to_numpy(float)
    ends = table[["sender", "receiver", "source"]].astype(np.int64)
    group = ends.groupby(list(ends)).ngroup()
    line: NDArray[np.int64] = group.to_numpy(np.int64)  # type: ignore[assignment]
    sent = Sent(table["begin"].to_numpy(float), bits, line)
    return Measured(law, sent, seconds, max(floor, LOSSY_FLOOR) if law.lossy else floor)


def _pairs(measured: Measured) -> list[Fit]:
    """Pairs of latency and rate that fit messages, the best first."""
    law = measured.law
    if not law.lossy:
        return pairs_of(measured, starts(measured.thin))
    # what is lost makes slow, and hides a rate behind several minima
    bits, seconds = measured.sent.bits, measured.seconds
    rate = _start(bits, seconds)[1]
    tried = [np.array([np.quantile(seconds, EARLIEST), rate * one]) for one in FASTER]
    start = min(tried, key=lambda one: cost(measured.model(one), seconds, law.quantile))
    return [measured.fit(start)]


def line_of(name: str, table: "pd.DataFrame", law: Law, floor: float = FLOOR) -> Line:
    """What messages on lines of one kind tell of them; floor: relative error of law and clocks."""
    sizes = int(table["bytes"].min()), int(table["bytes"].max())
    if not _wide(table):
        return _untold(name, _measured(table, law, floor), table, sizes)
    measured = _measured(table, law, floor)
    profile = profiled(measured, _pairs(measured))
    if np.isinf(profile.rates[-1][1]):
        return _untold(name, measured, table, sizes, profile)
    return _line(name, sizes, profile.best, _rivals(measured, profile), profile=profile)


def _rivals(measured: Measured, profile: Profile) -> Telling | None:
    """The message that would tell the pairs apart that fit, None where none would, or one does."""
    rates = profile.rates
    if len(rates) == 1 and rates[0][1] < WIDE * rates[0][0]:
        return None
    pairs = [*(one.values for one in profile.pairs), *profile.corners]
    return telling(measured.law, pairs, max(MIN_DIFFERENCE, 3.0 * profile.best.left))


def _start(bits: Array, seconds: Array) -> Array:
    """Where to begin: a line through the medians of the small half and of the large one."""
    small = bits <= np.median(bits)
    small = small if not small.all() else bits < bits.max()
    low, high = np.median(seconds[small]), np.median(seconds[~small])
    few, many = np.median(bits[small]), np.median(bits[~small])
    rate = (many - few) / max(high - low, 1e-3 * high)
    return np.array([max(low - few / rate, 0.05 * low), rate])


def _untold(
    name: str, measured: Measured, table: "pd.DataFrame", sizes: tuple[int, int],
    profile: Profile | None = None,
) -> Line:  # fmt: skip
    """A line whose messages do not bound its rate: by the log's sending times, or as a limit."""
    law, sent, seconds = measured.law, measured.sent, measured.seconds
    sending, bits = table["sending"].to_numpy(float), sent.bits
    logged = bool(
        np.isfinite(sending).all() and (sending > 0.0).all() and (sending < seconds).all()
    )
    rest = seconds - sending if logged else seconds
    fit = fitted(lambda at: np.full(len(rest), at[0]), rest, np.array([np.median(rest)]), sent.line)
    if logged:
        latency, start = float(fit.values[0]), np.array([np.median(bits / sending)])
        own = fitted(
            lambda at: law.seconds(latency, at[0], sent) - latency, sending, start, sent.line
        )
        return _logged(name, sizes, fit, own)
    least = float(np.median(bits) / np.median(seconds))
    if profile is None:
        return _line(name, sizes, fit, None, np.inf, LIMIT, least)
    fit = fitted(
        lambda at: law.seconds(float(at[0]), NO_RATE, sent), seconds,
        profile.corners[-1][:1], sent.line,
    )  # fmt: skip
    found = _rivals(measured, profile)
    return _line(name, sizes, fit, found, np.inf, LIMIT, profile.rates[0][0], profile)


def _logged(name: str, sizes: tuple[int, int], fit: Fit, own: Fit) -> Line:
    """A line whose rate is that of the log's sending times: `own`."""
    line = _line(name, sizes, fit, None, float(own.values[0]), LOGGED)
    pair = float(fit.errors[0]), float(own.errors[0])
    latencies, rates = (
        ((value * float(np.exp(-2.0 * error)), value * float(np.exp(2.0 * error))),)
        for value, error in zip((line.latency, line.rate), pair, strict=True)
    )
    return replace(line, errors=pair, latencies=latencies, rates=rates)


def _line(
    name: str, sizes: tuple[int, int], fit: Fit, missing: Telling | None, rate: float | None = None,
    how: str = MEASURED, least: float = 0.0, profile: Profile | None = None,
) -> Line:  # fmt: skip
    late = float(np.quantile(np.abs(fit.residuals), 0.95))
    jitter = fit.spread if fit.spread >= QUIET else 0.0
    rate = float(fit.values[1]) if rate is None else rate
    latencies = profile.latencies if profile else ((0.0, float(fit.values[0])),)
    rates = profile.rates if profile else ((least, np.inf),)
    pairs = (
        [(float(a), float(b)) for a, b in (one.values for one in profile.pairs)] if profile else []
    )
    wide = float(np.exp(1.96 * fit.doubt))
    return Line(
        name, len(fit.residuals), sizes, float(fit.values[0]), rate,
        (_quarter(latencies), 0.0 if np.isinf(rate) else _quarter(rates)), how, jitter, fit.left,
        late, fit.r2, float(np.mean(np.abs(fit.residuals))), least, latencies, rates, tuple(pairs),
        missing, BEST if missing and how == MEASURED else "", (jitter / wide, jitter * wide),
    )  # fmt: skip


def _quarter(intervals: Sequence[Interval]) -> float:
    """A quarter of the width of all on a logarithmic scale; inf where they are not bounded."""
    low, high = intervals[0][0], intervals[-1][1]
    return float(np.log(high / low) / 4.0) if 0.0 < low and high < np.inf else float(np.inf)


def loss_share(lost: int, attempts: int) -> tuple[float, tuple[float, float]]:
    """The share of attempts that were lost, and its exact interval (Clopper, Pearson 1934)."""
    if not attempts:
        return 0.0, (0.0, 1.0)
    half = (1.0 - LEVEL) / 2.0
    low = float(special.betaincinv(lost, attempts - lost + 1, half)) if lost else 0.0
    few = lost < attempts
    high = float(special.betaincinv(lost + 1, attempts - lost, 1.0 - half)) if few else 1.0
    return lost / attempts, (low, high)
