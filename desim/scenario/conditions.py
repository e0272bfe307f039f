"""Links and devices as a scenario describes them; files of measurements are read here."""

from functools import cached_property
from typing import Any

import numpy as np

from desim import units
from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions import devices, links, participation
from desim.network.conditions.choosing import CHOOSERS, Available, Chooser, Losses
from desim.network.conditions.devices import Traces, rate_traces
from desim.network.conditions.links import Latencies
from desim.network.conditions.participation import Participation
from desim.network.conditions.policy import Policy
from desim.network.conditions.topology import Graph
from desim.network.timeline.computations import (
    AT_ONCE,
    DRAWN,
    IN_TURN,
    OVER_TIME,
    Calendar,
    Intake,
    Speeds,
)
from desim.network.timeline.messages import FAIR, FIFO, NONE, Links
from desim.network.timeline.waiting_rule import FIXED, MEDIAN, QUANTILE, UNWEIGHED
from desim.numerics.distributions import Distribution
from desim.numerics.keys import seed_word
from desim.scenario.schema import Scenario
from desim.scenario.sections.algorithm import DEFAULTS
from desim.scenario.sections.devices import MeasuredSpeed, SpeedTrace, Timing
from desim.scenario.sections.links import Link
from desim.scenario.sections.trace_files import (
    BandwidthTrace,
    LatencyTrace,
    format_of,
    lasting,
    scale,
)

ORDERS = {"random": DRAWN, "measured": IN_TURN, "time": OVER_TIME}
BACK = {"link": "link", "uplink": "downlink", "downlink": "uplink"}
CONTENTION = {"none": NONE, "fifo": FIFO, "fair": FAIR}


class Conditions:
    """The network and the devices of `agents` agents.

    turns: when these are up, where more than `churn` decides that: see desim.runs.depletion.
    """

    def __init__(self, scenario: Scenario, agents: int, turns: Calendar | None = None) -> None:
        self.scenario, self.agents, self._turns = scenario, agents, turns
        self.traces: dict[str, Traces] = {}  # by what a scenario writes: up and down may agree

    def speeds(self) -> Speeds:
        """How fast the agents compute."""
        compute, law = self.scenario.compute, self.scenario.compute.speed
        order, slow, spells = DRAWN, compute.slow, compute.spells
        found: Distribution | Traces = devices.NOTHING
        if isinstance(law, Distribution):
            found = devices.law_times(law, 1.0 / self._each)
        elif isinstance(law, tuple):
            found = self._listed(law)
        elif isinstance(law, MeasuredSpeed):
            found = self._scaled(law.measured)
        elif isinstance(law, SpeedTrace):
            order, found = ORDERS[law.order], self._traced(law)
        elif compute.time is not None:
            found = compute.time
        return devices.speed_model(
            found, self.agents, self.scenario.seed, inverse=law is None, order=order,
            redraw=compute.redraw == "round", slow=(slow.fraction, slow.factor),
            spells=(spells.factor, spells.every, spells.lasting) if spells else devices.NO_SPELLS,
            overhead=compute.overhead or devices.NO_TIME,
        )  # fmt: skip

    def intake(self) -> Intake:
        """What the coordinator's work takes."""
        said = self.scenario.compute.coordinator
        if said is None:
            return AT_ONCE
        return Intake(seed_word(self.scenario.seed), said.reply[:], said.number.a)

    @property
    def _each(self) -> float:
        """What a speed counts of the gradient of one row: one, or so many operations."""
        return self.scenario.compute.work.flops or 1.0

    def _listed(self, speeds: tuple[float, ...]) -> Traces:
        """A speed for each agent in turn."""
        if len(speeds) != self.agents:
            text = f"found {len(speeds)} entries for {self.agents} agents"
            raise InputError(f"compute.speed: {text}; allowed: one for each agent")
        whole = np.array([speeds]) / self._each
        return Traces(whole, np.arange(len(speeds) + 1), loops=True, shuffled=False)

    def _scaled(self, timing: Timing) -> Distribution | Traces:
        """This machine's speed, which `noise_target.settled` has measured, for devices."""
        assert timing.rate is not None
        scores = timing.factor
        if isinstance(scores, Distribution):
            return devices.law_times(scores, timing.rate)
        where, unit = "compute.speed.measured.factor", timing.rate / scores.reference
        return devices.measured_speeds(
            scores.trace, scores.field, unit, False, None, where=where, **scores.ways
        )

    def _traced(self, trace: SpeedTrace) -> Traces:
        """Speeds over time; or speeds, or durations, without times."""
        unit, where, each = trace.meaning, "compute.speed", self._each
        file, fields, durations = trace.trace, trace.field, lasting(unit)
        one = scale(unit, units.seconds) if durations else scale(unit, units.speed) / each
        if trace.order == "time":
            rates = rate_traces(file, fields, one, where=where, **trace.ways)
            return self._lasts(rates, trace.end, where)
        median = None if trace.median is None else trace.median / each
        if trace.of_clients:
            from desim.network.conditions import trace_formats

            read = trace_formats.capacity_speeds
            return read(file, fields, one, median, where=where, **trace.ways)
        found = devices.measured_speeds(
            file, fields, one, durations, median, where=where, **trace.ways
        )
        if trace.order == "measured":
            outlives(trace.end, self.scenario.agent_rounds, found.shortest, where)
        return found

    def participation(self) -> Participation:
        """Who is active in which round."""
        said, agents, seed = self.scenario.participation, self.agents, self.scenario.seed
        match said.kind:
            case "choose":
                return self._chooser()
            case "bernoulli":
                return participation.Bernoulli(agents, seed, said.value)
            case "uniform":
                if said.separation is not None:
                    return Available(agents, said.value, seed, separation=said.separation)
                return participation.UniformSubset(agents, seed, said.value)
            case "schedule":
                sets = [np.array(sorted(set(one)), np.int64) for one in said.value]
                return participation.Schedule(agents, seed, sets)
            case "trace":
                where, rounds = "participation.trace", self.scenario.agent_rounds
                sets = participation.recorded(said.value, agents, where)
                outlives(said.end, rounds, len(sets), where)
                return participation.Schedule(agents, seed, sets, said.end == "loop")
        return participation.Everybody(agents)

    def _chooser(self) -> Chooser:
        """A choice that remembers, with the keys of its own, which have their names there."""
        said: Any = self.scenario.participation
        own = {key: getattr(said, key) for key in DEFAULTS[said.choose]}
        noise, losses = own.pop("losses", None), None
        if said.power:
            losses = Losses(said.power, *((noise.clip, noise.sigma) if noise else ()))
        if said.explore == "speed":
            speed = devices.fastest(self.speeds())  # those without bound: twice the largest
            most = speed[np.isfinite(speed)].max(initial=0.5)
            own["speed"] = np.where(np.isfinite(speed), speed, 2.0 * most)
        common = self.agents, said.invite, self.scenario.seed, said.of_those_up, losses
        own["separation"] = said.separation or 1
        return CHOOSERS[said.choose](*common, **own)

    def churn(self) -> devices.Churn | None:
        """When agents are away, and what that costs them."""
        said, calendar = self.scenario.churn, self._turns or self.calendar
        lost = said is not None and said.memory == "lost"
        return None if calendar is None else devices.Churn(calendar, lost)

    @cached_property
    def calendar(self) -> Calendar | None:
        """When agents are up by `churn`; None for always."""
        return self.calendar_from(0)

    def calendar_from(self, first: int) -> Calendar | None:
        """The same of nodes whose ids begin at `first`, for which it is asked."""
        said, seed, ids = self.scenario.churn, self.scenario.seed, first + self.agents
        if said is None:
            return None
        if said.up is not None and said.down is not None:
            return devices.renewal(said.up, said.down, ids, seed)
        if said.daily is not None:
            return devices.daily(said.daily.up, said.daily.start, said.daily.day, ids, seed)
        assert said.trace is not None
        where, read = "churn.trace", devices.state_traces
        if format_of(said.trace) == "FedScale":
            from desim.network.conditions import trace_formats

            read = trace_formats.behaviours
        states = read(said.trace, said.field or (), where=where, **said.ways)
        lasting_states = self._lasts(states, str(said.end), where)
        return devices.traced(lasting_states, self.agents, seed, first)

    def _lasts(self, found: Traces, end: str, where: str) -> Traces:
        """The same; InputError if a trace may not end and does so before the run."""
        outlives(end, self.scenario.stop.time, found.shortest, where, "time")
        return found

    def links(self, source: Int, target: Int, which: str = "link", returning: bool = True) -> Links:
        """The links source[e] -> target[e] (-1: coordinator); which: link, uplink or downlink.

        returning: with connections, where the scenario has them, whose ACKs take the way back.
        """
        network, seed, star = self.scenario.network, self.scenario.seed, which != "link"
        hops = ("uplink", "downlink") if not star and network.two_hops else (which,)
        first, *onward = [self._of_clients(network.along(hop), hop) for hop in hops]
        rates = self._rates(network.along(hops[0]), hops[0])
        found = links.make_links(
            first, source, target, seed, others=network.links, once=network.medium == "shared",
            traces=rates, onward=onward[0] if onward else None,
            measured=self._measured(source, target, star),
            contention=CONTENTION[network.shared(hops[0])],
        )  # fmt: skip
        laws = self._laws(found, first)
        if returning and any(law != links.OF_IDEAL for law in laws):
            back = self.links(target, source, BACK[which], returning=False)
            found = links.connected(found, laws, back)
        if (behind := network.behind) is not None and star:
            line = behind.uplink if which == "uplink" else behind.downlink
            found = links.lined(found, np.array(behind.lines(self.agents)), line, seed)
        calendar, said = self._turns or self.calendar, self.scenario.churn
        if calendar is None or said is None or said.messages == "queued":
            return found
        own = np.zeros_like(calendar.memory)  # questions about arrivals are ahead of the clock
        return found._replace(receivers=calendar._replace(memory=own))

    def on(self, graph: Graph) -> Links:
        """The links of a graph of agents."""
        return self.links(graph.source, graph.target)

    def _laws(self, drawn: Links, link: Link) -> list[tuple[float, ...]]:
        """What carries messages on each of the links."""
        network, topology = self.scenario.network, self.scenario.network.topology
        anew = topology.per_round or topology.redraw == "round"
        found = [links.law(link.transport.tcp, anew)] * drawn.ends.shape[1]
        for other in network.links:
            if other.transport is not None:
                for e in np.flatnonzero(links.concerned(other, *drawn.ends)).tolist():
                    found[e] = links.law(other.transport.tcp, anew)
        return found

    def _named(self, which: str, key: str) -> str:
        """Where a scenario writes a key of the link, uplink or downlink."""
        own = which != "link" and getattr(self.scenario.network, which, None)
        return f"network.{which if own and getattr(own, key) is not None else 'link'}.{key}"

    def _of_clients(self, link: Link, which: str) -> Link:
        """The link with what files have of clients in place of the files."""
        from desim.network.conditions import trace_formats

        found: dict[str, devices.PerClient] = {}
        rate, latency = link.bandwidth, link.latency
        if isinstance(rate, BandwidthTrace) and rate.of_clients:
            where = self._named(which, "bandwidth")
            unit = scale(rate.meaning, units.bits_per_second)
            values = trace_formats.bandwidths(rate.trace, rate.field, unit, where)
            found["bandwidth"] = devices.PerClient(values, rate.ways["shuffled"])
        if isinstance(latency, LatencyTrace):
            where = self._named(which, "latency")
            unit = scale(latency.unit, units.seconds)
            unit *= 0.5 if latency.measured == "round-trip" else 1.0
            values = trace_formats.latencies(latency.trace, latency.field, unit, where)
            found["latency"] = devices.PerClient(values, latency.ways["shuffled"])
        return link.model_copy(update=found) if found else link

    def _rates(self, link: Link, which: str) -> Traces | None:
        """What stands for a bandwidth that was measured over time."""
        law = link.bandwidth
        if isinstance(law, Distribution) or law.of_clients:
            return None
        where, written = self._named(which, "bandwidth"), repr(law)
        if written not in self.traces:
            read: Any = rate_traces
            if format_of(law.trace) == "Mahimahi":
                from desim.network.conditions import trace_formats

                read = trace_formats.deliveries
            unit = scale(law.meaning, units.bits_per_second)
            self.traces[written] = read(law.trace, law.field, unit, where=where, **law.ways)
        return self._lasts(self.traces[written], law.end, where)

    @cached_property
    def _latencies(self) -> Latencies:
        """The matrix, whose file is read once."""
        said: Any = self.scenario.network.latency_matrix
        unit = None if said.unit is None else scale(said.unit, units.seconds)
        share = 0.5 if said.measured == "round-trip" else 1.0
        return links.latencies(said.file, said.field, said.slice, unit, share, said.missing)

    def _measured(self, source: Int, target: Int, star: bool) -> Array | None:
        """Latencies (links,) s out of the matrix, None without one."""
        matrix = self.scenario.network.latency_matrix
        if matrix is None:
            return None
        if not len(source) or (matrix.coordinator is not None and not star):
            key, what = (".coordinator", "on a graph") if len(source) else ("", "with one agent")
            text = f"network.latency_matrix{key}: found {what}, which has none"
            raise InputError(f"{text}; allowed: leave it out")
        have, seed = len(self._latencies.seconds), self.scenario.seed
        at = links.sites(matrix.places, matrix.coordinator, star, self.agents, have, seed)
        return self._latencies.between(at[source], at[target])


def outlives(
    end: str | None, limit: float | None, lasts: float, where: str, stop: str = "rounds"
) -> None:
    """Raise InputError if a trace whose end is an error ends before the run does, or may do so.

    limit: of the run, in rounds or s (stop: time), None for none; lasts: of the shortest trace.
    """
    if end == "error" and (limit is None or limit > lasts):
        ends = f"{lasts} rounds" if stop == "rounds" else f"{lasts:.6g} s"
        text = f"the shortest trace lasts {ends}, the run may last longer"
        raise InputError(f"{where}: {text}; allowed: end: loop, or hold, or stop.{stop} up to that")


# The rule of waiting that a scenario's `policy` stands for, as engines take it.

LAWS = {"mad": MEDIAN, "quantile": QUANTILE}


def policy_of(scenario: Scenario) -> Policy:
    """Return the policy; a coordinator's `each` is a buffer of one reply."""
    policy, late = scenario.policy, scenario.policy.late or scenario.late
    kind: Any = policy.kind
    if kind == "each" and scenario.kind != "graph":
        return Policy("buffer", 1, late)
    law, value = (FIXED, 0.0, 0.0), policy.value
    if (of := policy.adaptive) is not None:
        law, value = (LAWS[of.kind], float(of.value), float(of.times)), 0.0
    return Policy(
        kind, value or 0.0, late, policy.at_least or 0,
        np.inf if policy.at_most is None else policy.at_most, law,
        policy.staleness.rule if policy.staleness else UNWEIGHED,
    )  # fmt: skip
