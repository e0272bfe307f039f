"""Latency, rate, jitter and losses of lines, as far as the messages on them tell these apart."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.compiling.later import special
from desim.measuring.laws import IDEAL, WAYS, Law, Sent, by_tcp
from desim.measuring.robust import Fit, cost, fitted
from desim.measuring.samples import Samples
from desim.scenario.sections.transport import Tcp

if TYPE_CHECKING:
    import pandas as pd

LEAST = 5  # messages of which anything is told
ALIKE = 1.2  # times the smallest size that the largest one must be, to tell a rate
FASTER = 2.0 ** np.arange(0.0, 3.1, 0.25)  # times the rate that lossy messages seem to have
EARLIEST = 0.05  # quantile of lossy messages that have taken little more than the latency
UNTOLD = 0.5  # relative standard error from which on a rate is not told
QUIET = 0.01  # sigma of a jitter that is left out
FLOOR = 1e-3  # of a message: what no clock tells
LITTLE, ROUGH = 0.02, 0.4  # by which directions differ that are told as one; with losses
BETTER = 0.8  # of the residuals of one law for all: what laws for each must leave, to be told
LEVEL = 0.95
MEASURED, LIMIT, LOGGED = "measured", "limit", "logged"


@dataclass(frozen=True)
class Line:
    """What a group of lines is: `latency` s and `rate` bit/s with relative standard errors.

    how: measured; logged, where the rate is that of the log's own sending times; or limit, where
    sizes do not tell it from the latency, which is then all that a message takes (rate inf), and
    `least` bit/s the slowest rate that is possible. jitter: sigma of a lognormal factor on the
    latency; left: the median relative residual; late: its 95th percentile; average: its mean;
    sizes: bytes, smallest and largest.
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
    if len(first) < LEAST:
        return None
    forward, pooled = _lawful(first, samples)
    tried = not forward.lossy if apart is None else apart
    each = _each(first, samples.star, forward) if tried else {}
    differ = bool(each) and (apart or _better(each, pooled))
    packets = samples.packets > 0 and forward is not IDEAL
    lost = samples.packets_lost if packets else samples.lost
    many = samples.packets if packets else max(int(table["attempts"].sum()), lost)
    share, interval = loss_share(lost, many)
    waited = float(np.median(samples.timeouts)) if len(samples.timeouts) else None
    return Lines(
        pooled, each, bool(differ), forward, share, interval, lost, many, waited, packets
    )  # fmt: skip


def _lawful(table: "pd.DataFrame", samples: Samples) -> tuple[Law, tuple[Line, ...]]:
    """The law of transport that leaves least, and the lines by it.

    What is known of how messages were sent, which comes first, has to be beaten clearly, by the
    mean: most messages find a window that is wide, and all laws say the same of these.
    """
    own, loss = samples.tcp, samples.packets_lost / max(samples.packets, 1)
    ways = WAYS if own is None else (own.connection,)
    known = np.isfinite(table["begin"]).all()
    tcp = list(by_tcp(own or Tcp(), loss, ways)) if known else []
    laws = [IDEAL, *tcp] if own is None else [*tcp, IDEAL]
    found = {one.name: (one, tuple(_pooled(table, samples.star, one))) for one in laws}
    left = {
        name: sum(one.average * one.messages for one in lines) + FLOOR * len(table)
        for name, (_, lines) in found.items()
    }
    usual, *others = left
    best = min(others, key=lambda name: left[name], default=usual)
    return found[best if left[best] < BETTER * left[usual] else usual]


def _pooled(table: "pd.DataFrame", star: bool, law: Law) -> Iterator[Line]:
    """Both directions of a star, as one where they do not differ, or only together tell a rate."""
    if not star:
        yield line_of("link", table, law)
        return
    parts = {"uplink": table[table["receiver"] < 0], "downlink": table[table["sender"] < 0]}
    found = [line_of(name, rows, law) for name, rows in parts.items() if len(rows) >= LEAST]
    both = line_of("link", table, law)
    if len(found) < 2 or _same(found[0], found[1], ROUGH if law.lossy else LITTLE):
        yield both
    elif both.how == MEASURED and any(one.how != MEASURED for one in found):
        yield both
    else:
        yield from found


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


def _each(table: "pd.DataFrame", star: bool, law: Law) -> dict[tuple[int, bool], Line]:
    """The lines from each device (and of a star to it); {} where one has too few messages."""
    found: dict[tuple[int, bool], Line] = {}
    sides = {False: table[table["sender"] >= 0]}
    if star:
        sides[True] = table[table["sender"] < 0]
    for towards, rows in sides.items():
        for device, own in rows.groupby("receiver" if towards else "sender"):
            if len(own) < LEAST:
                return {}
            who = int(str(device))
            found[who, towards] = line_of(f"agent {who} {'down' if towards else 'up'}", own, law)
    return found


def _better(each: dict[tuple[int, bool], Line], pooled: tuple[Line, ...]) -> bool:
    """Whether lines of their own leave much less."""
    if len({who for who, _ in each}) < 2:
        return False
    weights = [one.messages for one in each.values()]
    own = float(np.average([one.left for one in each.values()], weights=weights))
    all_ = float(np.average([one.left for one in pooled], weights=[one.messages for one in pooled]))
    return own < BETTER * all_ and all_ > QUIET / 2


def line_of(name: str, table: "pd.DataFrame", law: Law) -> Line:
    """What messages on lines of one kind tell of them."""
    bits, seconds = 8.0 * table["bytes"].to_numpy(float), table["seconds"].to_numpy(float)
    sizes = int(bits.min() / 8), int(bits.max() / 8)
    ends = table[["sender", "receiver", "source"]].astype(np.int64)
    group = ends.groupby(list(ends)).ngroup()
    line: NDArray[np.int64] = group.to_numpy(np.int64)  # type: ignore[assignment]
    sent = Sent(table["begin"].to_numpy(float), bits, line)
    if bits.max() >= ALIKE * bits.min():
        start = _start(bits, seconds)

        def model(at: Array) -> Array:
            return law.seconds(float(at[0]), float(at[1]), sent)

        if law.lossy:  # what is lost makes slow, and hides a rate behind several minima
            starts = [np.array([np.quantile(seconds, EARLIEST), start[1] * one]) for one in FASTER]
            start = min(starts, key=lambda one: cost(model(one), seconds, law.quantile))
        fit = fitted(model, seconds, start, line, quantile=law.quantile)
        if fit.errors[1] <= UNTOLD:
            return _line(name, sizes, fit, float(fit.values[1]), (fit.errors[0], fit.errors[1]))
    return _untold(name, table, sent, sizes, law)


def _start(bits: Array, seconds: Array) -> Array:
    """Where to begin: a line through the medians of the small half and of the large one."""
    small = bits <= np.median(bits)
    small = small if not small.all() else bits < bits.max()
    low, high = np.median(seconds[small]), np.median(seconds[~small])
    few, many = np.median(bits[small]), np.median(bits[~small])
    rate = (many - few) / max(high - low, 1e-3 * high)
    return np.array([max(low - few / rate, 0.05 * low), rate])


def _untold(name: str, table: "pd.DataFrame", sent: Sent, sizes: tuple[int, int], law: Law) -> Line:
    """A line whose messages do not tell its rate: by the log's sending times, or as a limit."""
    seconds, sending = (table[key].to_numpy(float) for key in ("seconds", "sending"))
    bits, line = sent.bits, sent.line
    logged = bool(
        np.isfinite(sending).all() and (sending > 0.0).all() and (sending < seconds).all()
    )
    rest = seconds - sending if logged else seconds
    fit = fitted(lambda at: np.full(len(rest), at[0]), rest, np.array([np.median(rest)]), line)
    if logged:
        latency, start = float(fit.values[0]), np.array([np.median(bits / sending)])
        own = fitted(lambda at: law.seconds(latency, at[0], sent) - latency, sending, start, line)
        errors = fit.errors[0], own.errors[0]
        return _line(name, sizes, fit, float(own.values[0]), errors, LOGGED)
    least = float(np.median(bits) / np.median(seconds))
    return _line(name, sizes, fit, np.inf, (fit.errors[0], 0.0), LIMIT, least)


def _line(
    name: str, sizes: tuple[int, int], fit: Fit, rate: float, errors: tuple[float, float],
    how: str = MEASURED, least: float = 0.0,
) -> Line:  # fmt: skip
    late = float(np.quantile(np.abs(fit.residuals), 0.95))
    jitter = fit.spread if fit.spread >= QUIET else 0.0
    pair = float(errors[0]), float(errors[1])
    return Line(
        name, len(fit.residuals), sizes, float(fit.values[0]), rate, pair, how, jitter, fit.left,
        late, fit.r2, float(np.mean(np.abs(fit.residuals))), least,
    )  # fmt: skip


def loss_share(lost: int, attempts: int) -> tuple[float, tuple[float, float]]:
    """The share of attempts that were lost, and its exact interval (Clopper, Pearson 1934)."""
    if not attempts:
        return 0.0, (0.0, 1.0)
    half = (1.0 - LEVEL) / 2.0
    low = float(special.betaincinv(lost, attempts - lost + 1, half)) if lost else 0.0
    high = (
        float(special.betaincinv(lost + 1, attempts - lost, 1.0 - half)) if lost < attempts else 1.0
    )
    return lost / attempts, (low, high)
