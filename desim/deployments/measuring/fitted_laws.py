"""How fast devices compute: by a run's log, by a stopwatch on this machine, or by scores."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.deployments.measuring.samples import Samples, csv_rows, nothing_sent
from desim.engine.opening import opening
from desim.engine.play import BLIND, Simulation
from desim.engine.world import Discard, World
from desim.errors import InputError, refusal, spelling
from desim.network.conditions.links import joined
from desim.network.timeline.carried_in_turn import all_carried
from desim.network.timeline.messages import Links
from desim.numerics.environment import environment
from desim.numerics.jit import one_thread
from desim.numerics.later import optimize, pd
from desim.numerics.plain import at_once, when
from desim.runs.interruption import preparing
from desim.scenario.build import build
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario
from desim.scenario.sections.links import Link, Tcp

# Forward laws: how long messages take by a latency and a rate, in turn on a line; and their fit.


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


MIN_COMPUTATIONS = 3  # computations of which anything is told
ALIKE = 1.2  # times the least work that the most must be, to tell a fixed cost
UNTOLD = 0.5  # relative standard error from which on a fixed cost is not told
TINY = 1e-3  # of a computation: a fixed cost below is none
VARIES = 0.05  # a spread within a device that is told
STEADY = 0.02  # a spread that is left out
FAR = 2.0  # times the spread within devices that the one between them must be, to tell them apart


@dataclass(frozen=True)
class Devices:
    """Gradients of one row per second, and what a computation costs besides.

    speeds (agents,): of each device, 1/s, nan where it is not known; speed, error: their median,
    with its relative standard error; spread: sigma of the logarithms between devices; within: of
    one device's computations; overhead s, its relative error, and whether the work tells it; left,
    late, r2 (of logarithms): how well that fits; work: the least and the most; measured: speeds
    (n,) of each.
    """

    speeds: Array
    speed: float
    error: float
    spread: float
    within: float
    overhead: float
    overhead_error: float
    identified: bool
    computations: int
    left: float
    late: float
    r2: float
    work: tuple[float, float]
    measured: tuple[Array, ...]

    @property
    def varies(self) -> bool:
        """Whether the speed of a device changes from computation to computation."""
        return self.within > VARIES

    @property
    def sigma(self) -> float:
        """Of the logarithm of a law of all speeds: between devices and within them."""
        return float(np.hypot(self.spread * self.differ, self.within * self.varies))

    @property
    def differ(self) -> bool:
        """Whether devices are told apart: they differ by more than their own computations do."""
        each = max(1.0, self.computations / max(1, int(np.isfinite(self.speeds).sum())))
        return self.spread > max(STEADY, FAR * self.within / float(np.sqrt(each)))


def like(one: Devices, share: Array) -> Devices:
    """Devices that are `share` (n,) times as fast as one, in their fixed costs, too.

    Of these the median's is told, as all have the same.
    """
    speeds = one.speed * share
    middle = float(np.median(share))
    spread = float(np.std(np.log(share)))
    return replace(
        one, speeds=speeds, speed=one.speed * middle, spread=spread, within=0.0,
        overhead=one.overhead / middle, measured=tuple(speeds[:, None]),
    )  # fmt: skip


def devices_of(samples: Samples) -> Devices | None:
    """What the computations tell of the devices; None where there are too few."""
    table = samples.computations
    table = table[(table["seconds"] > 0.0) & (table["work"] > 0.0)]
    if len(table) < MIN_COMPUTATIONS:
        return None
    work, seconds = (table[name].to_numpy(float) for name in ("work", "seconds"))
    who = table["agent"].to_numpy(np.int64)
    fixed = _fixed(work, seconds, who)
    overhead = fixed.seconds
    rest = np.maximum(seconds - overhead, 1e-3 * seconds)
    pace = work / rest
    speeds = np.full(int(who.max()) + 1, np.nan)
    for one in np.unique(who):
        speeds[one] = np.median(pace[who == one])
    if len(fixed.speeds) == len(np.unique(who)):
        speeds[np.unique(who)] = fixed.speeds
    known = speeds[np.isfinite(speeds)]
    said = overhead + work / speeds[who]
    spread = TO_DEVIATION * float(np.median(np.abs(np.log(known / np.median(known)))))
    spread = max(spread, float(np.std(np.log(known))) if len(known) < 5 else 0.0)
    off = np.abs(np.log(seconds / said))
    within = TO_DEVIATION * float(np.median(off))
    r2 = 1.0 - np.mean(off**2) / max(float(np.var(np.log(seconds))), 1e-300)
    share = 1.2533 * np.hypot(spread / np.sqrt(len(known)), within / np.sqrt(len(pace)))
    if overhead:  # its error is that of every speed
        share = np.hypot(1.2533 * spread / np.sqrt(len(known)), np.median(fixed.errors))
    return Devices(
        speeds, float(np.median(known)), float(share), spread, within, overhead, fixed.error,
        fixed.identified, len(table), float(np.median(off)), float(np.quantile(off, 0.95)),
        float(r2), (float(work.min()), float(work.max())),
        tuple(pace[who == one] for one in range(len(speeds))),
    )  # fmt: skip


@dataclass(frozen=True)
class Fixed:
    """A fixed cost s, its relative error, whether the work tells it; speeds 1/s beside it.

    speeds, errors (k,): of each device, or (1,) of all as one; (0,) where no cost is told.
    """

    seconds: float
    error: float
    identified: bool
    speeds: Array = field(default_factory=lambda: np.empty(0))
    errors: Array = field(default_factory=lambda: np.empty(0))


def _fixed(work: Array, seconds: Array, who: NDArray[np.int64]) -> Fixed:
    """The fixed cost: by the works of each device, where these differ; else by those of all."""
    names, place = np.unique(who, return_inverse=True)
    wide = [work[who == one].max() >= ALIKE * work[who == one].min() for one in names]
    if not any(wide) and work.max() < ALIKE * work.min():
        return Fixed(0.0, np.inf, False)
    several = all(wide)
    place = place if several else np.zeros(len(work), np.int64)
    count = len(names) if several else 1
    begin = np.array([np.median((work / seconds)[place == one]) for one in range(count)]) * 1.2
    start = np.concatenate([[0.2 * float(seconds.min())], begin])
    fit = fitted(
        lambda at: at[0] + work / at[1:][place], seconds, start,
        None if several else who, whole=True,
    )  # fmt: skip
    error, none = float(fit.errors[0]), bool(fit.values[0] < TINY * float(np.median(seconds)))
    if error > UNTOLD or none:
        return Fixed(0.0, error, none)
    return Fixed(float(fit.values[0]), error, True, fit.values[1:], fit.errors[1:])


# `desim calibrate --here`: how fast this machine takes a method's local steps once compiled.

JOBS, MAX_ROUNDS = 120, 400  # jobs that are timed, and rounds that are played for them at most
WARM = 10  # of them that are not
ALLOWED = "later or at-once, as what is timed is compiled code"


@dataclass(frozen=True)
class Timed(Simulation):
    """A simulation whose agents' jobs are timed: seconds of each, and whose it was."""

    took: list[tuple[Int, float]] = field(default_factory=list, kw_only=True)

    def _world(self, *about: Any, **more: Any) -> World:
        world = super()._world(*about, **more)
        work = world.work

        def timed(job: Any, us: Any, *inputs: Array) -> Array:
            begin = perf_counter()
            result = work(job, us, *inputs)
            if getattr(us, "_terms", us) is not None:  # news asks for no reply
                self.took.append((us.who, perf_counter() - begin))
            return result

        world.work = timed  # type: ignore[method-assign]
        return world


def steps_here(source: Scenario | str | Path | Mapping[str, Any]) -> Samples:
    """Time this machine over the local steps of a scenario, its computations all of agent 0.

    Where the method says how many epochs there are, also with one and with four times as many, so
    that a fixed cost can be told. InputError for methods whose work is not known, and where
    nothing is ever compiled.
    """
    environment()
    if when() == "never":
        raise InputError(f"DESIM_COMPILE: {refusal('never', ALLOWED)}")
    scenario = loaded(source, None)
    found = [_timed(one) for one in _variants(scenario)]
    work, seconds = (np.concatenate(column) for column in zip(*found, strict=True))
    table = pd.DataFrame({"agent": 0, "work": work, "seconds": seconds})
    each = seconds / work
    spread = f"{each.min():.3g} s at best, {np.median(each):.3g} s in the median"
    notes = [f"a gradient of one row took {spread} of {len(each)} steps, with their fixed cost"]
    if (bits := _unseen(scenario)) is not None:
        from desim.deployments.measuring.secret_parts import in_words, secret_parts

        notes.append(in_words(secret_parts(bits)))
    return Samples(
        nothing_sent(), table, sources=(f"this machine, {scenario.name}",), notes=(*notes,)
    )


def _unseen(scenario: Scenario) -> int | None:
    """Bits of the numbers of a sum that nobody sees the parts of; None where agents have none."""
    privacy = scenario.privacy
    return privacy.secure.bits if privacy is not None and privacy.secure is not None else None


def _variants(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario on the engine that plays agents one by one, and with other numbers of epochs."""
    data = scenario.written()
    data |= {"engine": "agents", "log": "rounds", "stop": {"rounds": MAX_ROUNDS}}
    data["policy"] = "each" if scenario.kind == "coordinator" else "all"  # one by one
    data |= {"churn": "none", "participation": "all", "compute": {"speed": "inf"}}
    data |= {"observe": {"metrics": []}}
    if _unseen(scenario):  # sums of a round need all that are in it; training is the same
        del data["privacy"]
    if isinstance(data.get("privacy"), dict):
        data["privacy"] = {key: one for key, one in data["privacy"].items() if key != "budget"}
    data["network"] = {"topology": data["network"]["topology"]}
    yield loaded(data, None)
    local = data["algorithm"].get("local")
    epochs = local.get("epochs") if isinstance(local, dict) else None
    for number in (1, 4 * epochs) if isinstance(epochs, int) else ():
        try:
            yield loaded(data, {"algorithm.local.epochs": number})
        except InputError:
            return


def _timed(scenario: Scenario) -> tuple[Array, Array]:
    """Work and seconds (n,) of jobs."""
    with preparing():
        simulation = build(scenario)
    first = opening(simulation)
    if first is None:
        name = scenario.algorithm.name
        raise InputError(f"calibrate: {name} does not say how much work its first step is")
    alone = simulation.method.kind == "coordinator"
    each = 1 if alone else simulation.problem.agents
    rounds = int(np.clip(np.ceil(JOBS / each), 3, MAX_ROUNDS)) + WARM // each + 1
    settings = replace(simulation.settings, rounds=rounds, targets=())
    known = {one.name: getattr(simulation, one.name) for one in fields(simulation)}
    playing = Timed(**known | {"settings": settings, "observation": BLIND})
    with at_once(), one_thread():
        outcome = playing.play(Discard())
    work = dict(zip(first.who.tolist(), first.work.tolist(), strict=True))
    took = [
        (sum(work[int(one)] for one in who), seconds)
        for who, seconds in playing.took
        if all(int(one) in work for one in who)
    ][WARM:]
    if not took:
        raise InputError(f"calibrate: no step of an agent could be timed ({outcome.reason})")
    pairs = np.array(took)
    return pairs[:, 0], pairs[:, 1]


# Speeds of other devices, by their scores in a benchmark in which this machine has one, too.

USUAL = "CPU_F_AI_Score"  # of AI Benchmark: floats on the CPU, as kernels are


@dataclass(frozen=True)
class Scores:
    """Devices by name with their scores (n,) in one column of a table."""

    path: Path
    column: str
    names: tuple[str, ...]
    values: Array

    def of(self, reference: str) -> float:
        """A score: a number, or that of a device by name; InputError for neither."""
        try:
            value = float(reference)
        except ValueError:
            if reference in self.names:
                return float(self.values[self.names.index(reference)])
            near = spelling(reference, self.names)
            allowed = f"a score, or one of the {len(self.names)} devices of {self.path}"
            raise InputError(f"--reference: {refusal(reference, allowed)}{near}") from None
        if not (np.isfinite(value) and value > 0.0):
            raise InputError(f"--reference: {refusal(reference, 'a score > 0')}")
        return value


def scores(path: str | Path, column: str | None = None) -> Scores:
    """The scores in a csv whose first column names devices; InputError where there are none.

    column: which; default that of floats on the CPU.
    """
    file = Path(path)
    head, rows = csv_rows(file, blank=False)
    name = USUAL if column is None else column
    if name not in head[1:]:
        allowed = ", ".join(head[1:]) or "a head, then a row for each device"
        raise InputError(f"{file}: {refusal(name, allowed, head[1:])}")
    place, found = head.index(name), []
    for line, row in enumerate(rows, 2):
        text = row[place].strip() if place < len(row) else ""
        try:
            value = float(text)
        except ValueError:
            raise InputError(f"{file}, line {line}: {refusal(text, 'a number')}") from None
        if np.isfinite(value) and value > 0.0:  # devices without a score have 0
            found.append((row[0].strip(), value))
    if not found:
        raise InputError(f"{file}: found no score above 0 in {name}")
    names, values = zip(*found, strict=True)
    return Scores(file, name, tuple(names), np.array(values))
