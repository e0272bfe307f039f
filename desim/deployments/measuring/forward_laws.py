"""Forward laws: how long messages take by a latency and a rate, in turn on a line; and their fit.

Residuals are of logarithms, as times are wrong by a share of themselves, and weighed by what the
jitter of a latency makes of them: log t = log f(theta) + s u, s = |d log f / d log theta_0| sigma.
The loss is nearly that of the median, so that late ones, and a jitter with median 1, bend nothing.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.network.conditions.links import joined
from desim.network.timeline.carried_in_turn import all_carried
from desim.network.timeline.messages import Links
from desim.numerics.later import optimize
from desim.scenario.sections.links import Link, Tcp

WAYS = ("kept", "new")  # what may become of a connection between two messages
REPLAYS = 9  # of messages whose packets may be lost
EARLY = 0.25  # quantile of replays that is then the law: most small messages lose nothing


@dataclass(frozen=True)
class Sent:
    """Messages (n,): when they were handed over, s; how large they are, bits; on which line."""

    begin: Array
    bits: Array
    line: NDArray[np.int64]


@dataclass(frozen=True)
class Law:
    """A transport by its name, as a scenario writes it, and its seconds.

    seconds(latency s, rate bit/s, sent, factor): of the messages, (n,), or (k, n) for k latencies
    and rates; factor: on the latency of messages, not on that of acknowledgements. quantile: of
    what is measured, that these seconds are.
    """

    name: str
    written: Any
    seconds: Callable[..., Array]
    quantile: float = 0.5

    @property
    def lossy(self) -> bool:
        """Whether packets may be lost, so that messages tell little one by one."""
        return self.quantile != 0.5


def ideal(latency: Any, rate: Any, sent: Sent, factor: float = 1.0) -> Array:
    """Seconds of messages that meet a latency s and a rate bit/s, and nothing else."""
    latency, rate = np.asarray(latency)[..., None] * factor, np.asarray(rate)[..., None]
    return np.asarray(latency + sent.bits / rate)


IDEAL = Law("ideal", "ideal", ideal)


def by_tcp(tcp: Tcp, loss: float = 0.0, ways: Sequence[str] = WAYS) -> Iterator[Law]:
    """TCP with the parameters of a scenario, its connections kept or new ones.

    loss: share of packets that are lost.
    """
    usual = Tcp()
    for way in ways:
        own = tcp.model_copy(update={"connection": way})
        unusual = {key: getattr(own, key) for key in ("congestion", "connection", "initial_window",
                "segment", "header", "idle_restart", "queue", "buffer")
                if getattr(own, key) != getattr(usual, key)}  # fmt: skip
        written = {"tcp": unusual} if unusual else "tcp"
        quantile = EARLY if loss else 0.5
        yield Law(f"tcp, connections {way}", written, Streams(own, loss), quantile)


class Streams:
    """Connections of TCP, each line's own, that carry messages in turn and lose packets."""

    def __init__(self, tcp: Tcp, loss: float = 0.0) -> None:
        self._tcp, self._link, self._loss = tcp, Link(loss=loss), loss
        self._links: dict[tuple[int, int], Links] = {}  # by how many there are, and their seed

    def __call__(self, latency: Any, rate: Any, sent: Sent, factor: float = 1.0) -> Array:
        """Seconds of the messages, each line's in order of time; lossy: a quantile of replays."""
        late, fast = np.broadcast_arrays(np.atleast_1d(latency), np.atleast_1d(rate))
        replays = [
            self._played(late, fast, sent, seed, factor)
            for seed in range(REPLAYS if self._loss else 1)
        ]
        found = replays[0]
        if self._loss:
            found = np.asarray(np.quantile(replays, EARLY, axis=0, method="nearest"))
        return found if np.ndim(latency) or np.ndim(rate) else found[0]

    def _played(self, latency: Array, rate: Array, sent: Sent, seed: int, factor: float) -> Array:
        links = self._drawn(int(sent.line.max()) + 1, seed)
        order = np.argsort(sent.begin, kind="stable")
        arrived = np.empty((len(latency), len(order)))
        bits, begin = sent.bits[order].astype(np.int64), sent.begin[order]
        all_carried(
            links, sent.line[order], begin, bits, latency.astype(float), rate.astype(float),
            factor, arrived,
        )  # fmt: skip
        out = np.empty_like(arrived)
        out[:, order] = arrived - begin
        return out

    def _drawn(self, number: int, seed: int) -> Links:
        """So many links, on which nothing depends on what they carried before."""
        if (number, seed) not in self._links:
            self._links[number, seed] = joined(self._link, self._tcp, number, seed)
        return self._links[number, seed]


# The fit: a median law by robust least squares, its standard errors, how well it fits.

TO_DEVIATION = 1.4826  # times a median of sizes: the standard deviation of a normal law
NARROW = 0.5  # residuals, in deviations, from which on the loss is linear
INSTANT = 1e-12  # s: a law of which a search tries nothing at all
FLOOR = 1e-4  # the least relative deviation of a measurement
FARTHEST = 300.0  # of logarithms: what fits nothing stays finite
MEDIAN_ERROR = 1.1664  # relative, of a median of sizes of normal numbers, times sqrt(n)
SHAKEN = 1e-4  # of a logarithm: a longer latency, to see what part of a message that is
PASSES = 4
TRIED = 1e-5  # of a logarithm: a step to either side
CLUSTERS = 6  # lines from which on errors are taken to be those of lines, not of messages
Model = Callable[[Array], Array]


@dataclass(frozen=True)
class Fit:
    """Parameters (k,) with their relative standard errors (k,), and what they leave.

    residuals (n,): log(measured / law), of deviations scale (n,); spread: sigma of a jitter on the
    first parameter; left: the median |residual|; r2: share of the variance of log(measured) that
    the law explains; doubt: relative standard error of spread.
    """

    values: Array
    errors: Array
    residuals: Array
    spread: float
    left: float
    r2: float
    scale: Array
    doubt: float


def fitted(
    model: Model,
    measured: Array,
    start: Array,
    clusters: NDArray[np.int64] | None = None,
    whole: bool = False,
    quantile: float = 0.5,
    jittered: Model | None = None,
) -> Fit:
    """Fit model(theta) (n,) to measured (n,), all > 0, from theta (k,) > 0 on.

    clusters (n,): measurements of one line are not independent; whole: what varies is all of a
    measurement, not its first parameter's part; quantile: of measurements, that the model is;
    jittered: the model where what varies is longer by `SHAKEN`; None: that is the first parameter.
    """
    theta, scale = np.log(start), np.ones(len(measured))
    target = np.log(measured)

    def off(at: Array) -> Array:
        return np.asarray(
            np.log(np.maximum(model(np.exp(np.clip(at, -FARTHEST, FARTHEST))), INSTANT)) - target
        )

    def weighed(at: Array, by: Array) -> Array:
        away = off(at)
        return np.asarray(away * weights(away, quantile) / by)

    spread = FLOOR
    for turn in range(PASSES):
        loss = NARROW if turn else 1.0
        size = max(_deviation(off(theta) / scale), FLOOR)
        found = optimize.least_squares(
            lambda at, by=scale * size: weighed(at, by), theta, loss="soft_l1", f_scale=loss,
            x_scale="jac", max_nfev=200,
        )  # fmt: skip
        theta = found.x
        steep = slopes(off, theta)
        share = np.ones(len(measured)) if whole else np.abs(steep[:, 0])
        if jittered is not None:
            at = np.exp(np.clip(theta, -FARTHEST, FARTHEST))
            share = np.abs(np.log(jittered(at) / np.maximum(model(at), INSTANT))) / SHAKEN
        spread, scale = _scales(off(theta), share)
    residuals = -off(theta)
    by = weights(-residuals, quantile) / scale
    errors = _errors(residuals * by, steep * by[:, None], clusters)
    explained = 1.0 - float(np.mean(residuals**2)) / max(float(np.var(target)), 1e-300)
    left = float(np.median(np.abs(residuals)))
    doubt = MEDIAN_ERROR / float(np.sqrt(max((share >= np.median(share)).sum(), 1)))
    values = np.exp(np.clip(theta, -FARTHEST, FARTHEST))
    return Fit(values, errors, residuals, spread, left, float(explained), scale, doubt)


def cost(model: Array, measured: Array, quantile: float) -> float:
    """Mean deviation of logarithms of measured (n,) from a quantile (n,), which minimises it."""
    away = np.log(model / measured)
    return float(np.mean(np.abs(away * weights(away, quantile))))


def weights(away: Array, quantile: float) -> Array:
    """What log(model / measured) (n,) is multiplied by: late measurements, early ones; 1 for .5."""
    return np.where(away < 0.0, 2.0 * quantile, 2.0 * (1.0 - quantile))


def _deviation(values: Array) -> float:
    return float(TO_DEVIATION * np.median(np.abs(values)))


def slopes(off: Model, theta: Array) -> Array:
    """Slopes d off / d theta (n, k), by the flatter of the differences to either side.

    A law in pieces may jump beside theta, and a jump is no slope.
    """
    here, columns = off(theta), []
    for unit in np.eye(len(theta)):
        one, other = ((off(theta + step * unit) - here) / step for step in (TRIED, -TRIED))
        columns.append(np.where(np.abs(one) <= np.abs(other), one, other))
    return np.stack(columns, axis=1)


def _scales(residuals: Array, share: Array) -> tuple[float, Array]:
    """Sigma of the jitter, and the deviation (n,) of each residual, of which `share` is latency."""
    much = share >= np.median(share)
    spread = _deviation(residuals[much] / np.maximum(share[much], 1e-3))
    rest = _deviation(residuals[~much]) if (~much).sum() >= 5 else 0.0
    floor = max(FLOOR, min(rest, _deviation(residuals)) * 0.3)
    return spread, np.maximum(share * spread, floor)


def pulls(u: Array) -> tuple[Array, Array]:
    """Slope and curvature (n,) of the loss of residuals u (n,)."""
    steep = 1.0 + (u / NARROW) ** 2
    return u / np.sqrt(steep), steep**-1.5


def _errors(u: Array, slopes: Array, clusters: NDArray[np.int64] | None) -> Array:
    """Standard errors (k,) of log theta by the sandwich of an M-estimator."""
    pull, stiff = pulls(u)
    bread = (slopes * stiff[:, None]).T @ slopes
    scores = slopes * pull[:, None]
    if clusters is not None and len(np.unique(clusters)) >= CLUSTERS:
        names, place = np.unique(clusters, return_inverse=True)
        sums = np.zeros((len(names), slopes.shape[1]))
        np.add.at(sums, place, scores)
        scores = sums * np.sqrt(len(names) / (len(names) - 1.0))
    try:
        inverse = np.linalg.inv(bread)
    except np.linalg.LinAlgError:
        return np.full(slopes.shape[1], np.inf)
    return np.asarray(np.sqrt(np.maximum(np.diag(inverse @ (scores.T @ scores) @ inverse), 0.0)))
