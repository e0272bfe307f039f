"""Links and devices as a scenario describes them; files of measurements are read here."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from desim import units
from desim.compute import NOTHING, Drawn, MeasuredSpeeds, Slowness, measured_speeds, speed_model
from desim.distributions import Distribution
from desim.errors import InputError
from desim.kernels.network import FAIR, FIFO, NONE, Links
from desim.kernels.phases import Calendar
from desim.kernels.speed import Speeds
from desim.network.churn import Churn, daily, renewal, state_traces, traced
from desim.network.latencies import Latencies, latencies, sites
from desim.network.links import Differing, LinkModel, make_links
from desim.network.traces import RateTraces, rate_traces
from desim.participation import (
    Bernoulli,
    Everybody,
    Participation,
    Schedule,
    UniformSubset,
    recorded,
)
from desim.scenario.measured_section import BandwidthTrace, SpeedTrace, lasting, scale
from desim.scenario.schema import Scenario

Array = NDArray[np.float64]
Int = NDArray[np.int64]
CONTENTION = {"none": NONE, "fifo": FIFO, "fair": FAIR}


class Conditions:
    """The network and the devices of `agents` agents."""

    def __init__(self, scenario: Scenario, agents: int) -> None:
        self.scenario, self.agents = scenario, agents
        self.read: dict[str, RateTraces] = {}  # by what a scenario writes: up and down may agree
        self.latencies: Latencies | None = None

    def speeds(self) -> Speeds:
        """How fast the agents compute."""
        compute = self.scenario.compute
        law, redraw = compute.speed, compute.redraw == "round"
        if isinstance(law, SpeedTrace):
            found = self._paces(law) if law.order == "time" else self._speeds(law)
            return speed_model(found, self._slowness(), redraw, self.agents, self.scenario.seed)
        drawn = Drawn(law) if law is not None else Drawn(compute.time or NOTHING, inverse=True)
        return speed_model(drawn, self._slowness(), redraw, self.agents, self.scenario.seed)

    def _slowness(self) -> Slowness:
        slow, spells = self.scenario.compute.slow, self.scenario.compute.spells
        if spells is None:
            return Slowness(slow.fraction, slow.factor)
        return Slowness(slow.fraction, slow.factor, spells.factor, spells.every, spells.lasting)

    def _speeds(self, trace: SpeedTrace) -> MeasuredSpeeds:
        per, rounds = trace.unit or "/s", self.scenario.stop.rounds
        durations = lasting(per)
        found = measured_speeds(
            trace.trace,
            trace.field,
            scale(per, units.seconds if durations else units.rate),
            durations,
            trace.median,
            shuffled=trace.assign == "random",
            in_turn=trace.order == "measured",
            loops=trace.end == "loop",
            where="compute.speed",
        )
        if trace.order == "measured" and trace.end == "error":
            lasts = f"{found.shortest} rounds"
            outlives(rounds is None or rounds > found.shortest, "compute.speed", lasts, "rounds")
        return found

    def _paces(self, trace: SpeedTrace) -> RateTraces:
        """Speeds over time."""
        found = rate_traces(
            trace.trace,
            trace.field,
            scale(trace.unit or "/s", units.rate),
            loops=trace.end == "loop",
            shuffled=trace.assign == "random",
            shifted=trace.offset == "random",
            where="compute.speed",
        )
        self._lasts(found, trace.end, "compute.speed")
        return found

    def participation(self) -> Participation:
        """Who is active in which round."""
        chosen, agents, seed = self.scenario.participation, self.agents, self.scenario.seed
        match chosen.kind:
            case "bernoulli":
                return Bernoulli(agents, chosen.value, seed)
            case "uniform":
                return UniformSubset(agents, chosen.value, seed)
            case "schedule":
                return Schedule([np.array(sorted(set(one)), np.int64) for one in chosen.value])
            case "trace":
                where, rounds = "participation.trace", self.scenario.stop.rounds
                sets = recorded(chosen.value, agents, where)
                ends = rounds is None or rounds > len(sets)
                outlives(ends and chosen.end == "error", where, f"{len(sets)} rounds", "rounds")
                return Schedule(sets, chosen.end == "loop")
        return Everybody(agents)

    def churn(self) -> Churn | None:
        """When agents are away, and what that costs them."""
        said, calendar = self.scenario.churn, self._calendar
        return None if said is None or calendar is None else Churn(calendar, said.memory == "lost")

    @cached_property
    def _calendar(self) -> Calendar | None:
        said, agents, seed = self.scenario.churn, self.agents, self.scenario.seed
        if said is None:
            return None
        if said.up is not None and said.down is not None:
            return renewal(said.up, said.down, agents, seed)
        if said.daily is not None:
            return daily(said.daily.up, said.daily.start, said.daily.day, agents, seed)
        assert said.trace is not None
        states = state_traces(
            said.trace,
            said.field or (),
            loops=said.end == "loop",
            shuffled=said.assign == "random",
            shifted=said.offset == "random",
            where="churn.trace",
        )
        self._lasts(states, str(said.end), "churn.trace")
        return traced(states, agents, seed)

    def _lasts(self, found: RateTraces, end: str, where: str) -> None:
        """Raise InputError if a trace may not end and does so before the run."""
        horizon = self.scenario.stop.time
        if end == "error":
            ends = horizon is None or horizon > found.shortest
            outlives(ends, where, f"{found.shortest:.6g} s", "time")

    def links(self, source: Int, target: Int, which: str = "link") -> Links:
        """The links source[e] -> target[e] (-1: coordinator); which: link, uplink or downlink."""
        star = which != "link"
        hops = ("uplink", "downlink") if not star and self.scenario.network.two_hops else (which,)
        models = [self._model(hop) for hop in hops]
        measured = self._measured(source, target, star)
        onward = models[1] if len(models) == 2 else None
        seed, others = self.scenario.seed, self._differing()
        made = make_links(models[0], source, target, seed, measured, others, onward)
        calendar, said = self._calendar, self.scenario.churn
        if calendar is None or said is None or said.messages == "queued":
            return made
        own = np.zeros_like(calendar.memory)  # questions about arrivals are ahead of the clock
        return made._replace(receivers=calendar._replace(memory=own))

    def _model(self, which: str) -> LinkModel:
        """What link, uplink or downlink say."""
        network, link = self.scenario.network, self.scenario.network.along(which)
        bandwidth = link.bandwidth
        return LinkModel(
            link.latency,
            bandwidth if isinstance(bandwidth, Distribution) else self._rates(bandwidth, which),
            link.jitter,
            link.losses,
            link.timeout,
            0 if link.on_loss == "drop" else link.limit,
            link.bursts,
            link.backoff,
            link.directions == "own",
            network.medium == "shared",
            CONTENTION[network.shared(which)],
        )

    def _differing(self) -> list[Differing]:
        """The links that the scenario sets apart; InputError for nodes that there are not."""
        found = []
        for index, one in enumerate(self.scenario.network.links):
            for key, nodes in (("sender", one.sender), ("receiver", one.receiver)):
                odd = [node for node in nodes or () if node >= self.agents]
                if odd:
                    text = f"network.links[{index}].{key}: found agent {odd[0]}"
                    raise InputError(f"{text}; allowed: 0 to {self.agents - 1}")
            found.append(Differing(one.sender, one.receiver, one.latency, one.bandwidth))
        return found

    def _rates(self, trace: BandwidthTrace, which: str) -> RateTraces:
        own = which != "link" and getattr(self.scenario.network, which).bandwidth is not None
        where = f"network.{which if own else 'link'}.bandwidth"
        written = repr(trace)
        if written not in self.read:
            self.read[written] = rate_traces(
                trace.trace,
                trace.field,
                scale(trace.unit, units.bits_per_second),
                loops=trace.end == "loop",
                shuffled=trace.assign == "random",
                shifted=trace.offset == "random",
                where=where,
            )
        self._lasts(self.read[written], trace.end, where)
        return self.read[written]

    def _measured(self, source: Int, target: Int, star: bool) -> Array | None:
        """Latencies (links,) s out of the matrix, None without one."""
        matrix = self.scenario.network.latency_matrix
        if matrix is None:
            return None
        if not len(source) or (matrix.coordinator is not None and not star):
            key, what = (".coordinator", "on a graph") if len(source) else ("", "with one agent")
            text = f"network.latency_matrix{key}: found {what}, which has none"
            raise InputError(f"{text}; allowed: leave it out")
        unit = None if matrix.unit is None else scale(matrix.unit, units.seconds)
        share = 0.5 if matrix.measured == "round-trip" else 1.0
        if self.latencies is None:  # the file is read once
            self.latencies = latencies(
                matrix.file, matrix.field, matrix.slice, unit, share, matrix.missing
            )
        found = self.latencies
        have, seed = len(found.seconds), self.scenario.seed
        at = sites(matrix.places, matrix.coordinator, star, self.agents, have, seed)
        return found.between(at[source], at[target])


def outlives(ends: bool, where: str, lasts: str, stop: str) -> None:
    """Raise InputError if a trace ends before the run does, or may do so."""
    if ends:
        text = f"the shortest trace lasts {lasts}, the run may last longer"
        raise InputError(f"{where}: {text}; allowed: end: loop, or hold, or stop.{stop} up to that")
