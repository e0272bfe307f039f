"""A scenario in another world: times factors, with another network, as a user would write it."""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from desim import units
from desim.errors import InputError
from desim.network.conditions.devices import law_times
from desim.network.conditions.links import UNITS
from desim.numerics.distributions import Distribution
from desim.readers import matrices
from desim.scenario.load import load, read
from desim.scenario.schema import Scenario
from desim.scenario.sections.devices import UNIT, Compute, MeasuredSpeed, SpeedTrace
from desim.scenario.sections.links import BurstLoss, Link, LinkChange, LinkOf, LossLaw
from desim.scenario.sections.network import Behind, LatencyMatrix, Level, Network
from desim.scenario.sections.trace_files import (
    BandwidthTrace,
    LatencyTrace,
    LossTrace,
    lasting,
    scale,
)
from desim.scenario.tree import from_python, include_network

INPUTS = ("latency", "bandwidth", "speed", "loss", "behind", "overhead")  # what is multiplied
INTAKE = ("reply", "number")
OF_DEVICES = {"speed", "overhead"}
TRANSPORTS = ("ideal", "tcp", "cubic", "reno", "bbr")
Factors = Mapping[str, float]


def scaled(scenario: Scenario, factors: Factors) -> Scenario:
    """`scenario` with every latency, bandwidth, speed, loss, .. times its factor (default 1).

    Latencies and bandwidths of links, of both directions, of single links, of levels of a tree, of
    matrices and of traces, latencies of access lines, too; speeds by law, measured, or as times;
    probabilities of loss end at 1; behind: bandwidths of access lines; overhead: fixed costs of
    computations, and what the coordinator's work takes.
    """
    network, compute = scenario.network, scenario.compute
    own = {name: one for name, one in factors.items() if one != 1.0}
    if own.keys() - OF_DEVICES:
        network = _network(network, own)
    if "speed" in own:
        compute = _compute(compute, own["speed"])
    if "overhead" in own:
        compute = _fixed(compute, own["overhead"])
    return scenario.model_copy(update={"network": network, "compute": compute})


def transported(scenario: Scenario, transport: str) -> Scenario:
    """`scenario` with this law of transport on every link; checked.

    transport: ideal; tcp, with what the scenario says of it, if anything; or its congestion control
    besides: cubic, reno, bbr.
    """
    data = scenario.written()
    network = data["network"]
    places = network, *network.get("levels", ())  # with what clients have, those of edges
    links = [one.get(side, {}) for one in places for side in ("uplink", "downlink")]
    links += network.get("links", ())
    whole = [one["link"] for one in places]
    for one in (*whole, *(one for one in links if "transport" in one)):
        one["transport"] = _carried_by(transport, one.get("transport"))
    return load(data).model_copy(update={"source": scenario.source})


def _carried_by(transport: str, said: object) -> Any:
    """What a link says of its transport under another one."""
    if transport == "ideal":
        return transport
    own = dict(said["tcp"]) if isinstance(said, Mapping) and "tcp" in said else {}
    return {"tcp": own if transport == "tcp" else {**own, "congestion": transport}}


def moved(scenario: Scenario) -> tuple[str, ...]:
    """The inputs that a factor changes at all: not a loss of 0, or a bandwidth that is infinite."""
    central = scenario.kind == "central"
    inputs = [name for name in INPUTS if name in OF_DEVICES or not central]
    return tuple(name for name in inputs if scaled(scenario, {name: 0.5}) != scenario)


def _network(network: Network, factors: Factors) -> Network:
    changes: dict[str, Any] = {
        "link": _link(network.link, factors),
        "uplink": _link(network.uplink, factors),
        "downlink": _link(network.downlink, factors),
        "links": tuple(_link(one, factors) for one in network.links),
    }
    if network.levels is not None:
        changes["levels"] = tuple(_level(one, factors) for one in network.levels)
    if network.behind is not None:
        changes["behind"] = _behind(network.behind, factors)
    if network.latency_matrix is not None and "latency" in factors:
        changes["latency_matrix"] = _matrix(network.latency_matrix, factors["latency"])
    return network.model_copy(update=changes)


def _level(level: Level, factors: Factors) -> Level:
    sides = ("link", "uplink", "downlink")
    return level.model_copy(update={one: _link(getattr(level, one), factors) for one in sides})


def _behind(behind: Behind, factors: Factors) -> Behind:
    sides = {
        side: line.model_copy(update={
            "bandwidth": law_times(line.bandwidth, factors.get("behind", 1.0)),
            "latency": law_times(line.latency, factors.get("latency", 1.0)),
        })
        for side in ("uplink", "downlink")
        if (line := getattr(behind, side))
    }  # fmt: skip
    return behind.model_copy(update=sides)


def _link(link: Link | LinkChange | LinkOf, factors: Factors) -> Any:
    change: Mapping[str, Any] = {"latency": _latency, "bandwidth": _bandwidth, "loss": _loss}
    found = {
        name: change[name](law, factor)
        for name, factor in factors.items()
        if name in change and (law := getattr(link, name, None)) is not None
    }
    return link.model_copy(update=found) if found else link


def _bandwidth(law: Distribution | BandwidthTrace, factor: float) -> Distribution | BandwidthTrace:
    if isinstance(law, Distribution):
        return law_times(law, factor)
    unit = scale(law.meaning, units.bits_per_second) * factor
    return law.model_copy(update={"unit": f"{unit!r} bit/s"})


def _latency(law: Distribution | LatencyTrace, factor: float) -> Distribution | LatencyTrace:
    if isinstance(law, Distribution):
        return law_times(law, factor)
    return law.model_copy(update={"unit": f"{scale(law.unit, units.seconds) * factor!r} s"})


def _loss(law: LossLaw, factor: float) -> LossLaw:
    law = law.rate if isinstance(law, LossTrace) else law
    if not isinstance(law, BurstLoss):
        return min(1.0, law * factor)
    channel = law.gilbert_elliott
    shares = {key: min(1.0, getattr(channel, key) * factor) for key in ("loss_good", "loss_bad")}
    return law.model_copy(update={"gilbert_elliott": channel.model_copy(update=shares)})


def _matrix(matrix: LatencyMatrix, factor: float) -> LatencyMatrix:
    if matrix.unit is not None:
        unit = scale(matrix.unit, units.seconds)
    else:  # what the name of the array stands for; one that says none is refused
        names = _square(matrix.file) if matrix.field is None else (str(matrix.field),)
        known = (unit for name in names for end, unit in UNITS.items() if name.endswith(end))
        unit = next(known, 1.0)
    return matrix.model_copy(update={"unit": f"{unit * factor!r} s"})


@lru_cache(16)
def _square(file: str | Path) -> tuple[str, ...]:
    """Names of the square matrices of a file."""
    found = matrices(Path(file), "network.latency_matrix").items()
    return tuple(n for n, a in found if a.ndim in (2, 3) and a.shape[-1] == a.shape[-2])


def _compute(compute: Compute, factor: float) -> Compute:
    law = compute.speed
    if law is None:
        return compute.model_copy(
            update={"time": law_times(compute.time or Distribution(0, 0.0, 0.0), 1.0 / factor)}
        )
    if isinstance(law, Distribution):
        return compute.model_copy(update={"speed": law_times(law, factor)})
    if isinstance(law, tuple):
        return compute.model_copy(update={"speed": tuple(one * factor for one in law)})
    if isinstance(law, MeasuredSpeed):
        timing = law.measured
        rate = None if timing.rate is None else timing.rate * factor
        own = MeasuredSpeed(measured=timing.model_copy(update={"rate": rate}))
        return compute.model_copy(update={"speed": own})
    return compute.model_copy(update={"speed": _measured(law, factor)})


def _fixed(compute: Compute, factor: float) -> Compute:
    """With fixed costs times a factor."""
    found: dict[str, Any] = {}
    if compute.overhead is not None:
        found["overhead"] = law_times(compute.overhead, factor)
    if compute.coordinator is not None:
        own = {key: law_times(getattr(compute.coordinator, key), factor) for key in INTAKE}
        found["coordinator"] = compute.coordinator.model_copy(update=own)
    return compute.model_copy(update=found)


def _measured(trace: SpeedTrace, factor: float) -> SpeedTrace:
    if trace.median is not None:
        return trace.model_copy(update={"median": trace.median * factor})
    if lasting(trace.meaning):
        unit = f"{scale(trace.meaning, units.seconds) / factor!r} s"
    else:
        counted = trace.meaning.endswith(UNIT)
        unit = f"{scale(trace.meaning, units.speed) * factor!r} {UNIT if counted else '/s'}"
    return trace.model_copy(update={"unit": unit})


Section = Mapping[str, Any] | str | Path  # or a network file, by its name or path


def under(scenario: Scenario, network: Section | None, compute: Section | None) -> Scenario:
    """`scenario` with another section network or compute; InputError for another topology."""
    data = scenario.written()
    if network is not None:
        section = dict(network) if isinstance(network, Mapping) else {"include": str(network)}
        laid = _laid_out(data, section)
        if compute is None and "compute" in laid and not isinstance(network, Mapping):
            raise InputError(
                f"network: found {network}, whose section compute a stored scenario overrules; "
                f"allowed: compute {network} beside it, or the run's own devices as a mapping"
            )
        topology = laid["network"].get("topology", data["network"]["topology"])
        data["network"] = {**section, "topology": topology}
    if compute is not None:
        data["compute"] = compute
        if not isinstance(compute, Mapping):
            try:
                found = _laid_out(data, {"include": str(compute)})
            except InputError as error:  # it speaks of the section that a file is included in
                raise InputError(str(error).replace("network: ", "compute: ", 1)) from None
            if "compute" not in found:
                raise InputError(f"compute: {compute} has no section compute")
            data["compute"] = found["compute"]
    new = load(data)
    if new.network.topology != scenario.network.topology:
        text = "another topology is another training"
        raise InputError(f"network.topology: {text}; allowed: that of the run, or leave it out")
    return new


def _laid_out(data: dict[str, Any], network: dict[str, Any]) -> dict[str, Any]:
    """What a network that may include a file comes to: sections network and perhaps compute."""
    tree = from_python({"algorithm": data["algorithm"], "network": network})
    include_network(tree, Path(), read)
    found: dict[str, Any] = tree.data
    return found
