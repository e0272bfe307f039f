"""Links and devices as a scenario describes them; files of measurements are read here."""

from functools import cached_property

import numpy as np

from desim import units
from desim.arrays import Array, Int
from desim.errors import InputError
from desim.network.conditions.devices import (
    NO_TIME,
    NOTHING,
    Churn,
    daily,
    law_times,
    measured_speeds,
    renewal,
    speed_model,
    state_traces,
    traced,
)
from desim.network.conditions.links import (
    OF_IDEAL,
    Latencies,
    concerned,
    connected,
    latencies,
    law,
    lined,
    make_links,
    sites,
)
from desim.network.conditions.participation import (
    Bernoulli,
    Everybody,
    Participation,
    Schedule,
    UniformSubset,
    recorded,
)
from desim.network.conditions.traces import Traces, rate_traces
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
from desim.numerics.distributions import Distribution
from desim.numerics.keys import seed_word
from desim.scenario.choosers import chooser
from desim.scenario.schema import Scenario
from desim.scenario.sections.devices import Churn as ChurnSection
from desim.scenario.sections.devices import MeasuredSpeed, Timing
from desim.scenario.sections.links import Link
from desim.scenario.sections.measured import BandwidthTrace, SpeedTrace, lasting, scale
from desim.scenario.sections.network import AccessLine, Behind

ORDERS = {"random": DRAWN, "measured": IN_TURN, "time": OVER_TIME}
BACK = {"link": "link", "uplink": "downlink", "downlink": "uplink"}
CONTENTION = {"none": NONE, "fifo": FIFO, "fair": FAIR}


class Conditions:
    """The network and the devices of `agents` agents."""

    def __init__(self, scenario: Scenario, agents: int) -> None:
        self.scenario, self.agents = scenario, agents
        self.read: dict[str, Traces] = {}  # by what a scenario writes: up and down may agree
        self.latencies: Latencies | None = None

    def speeds(self) -> Speeds:
        """How fast the agents compute."""
        compute, law, order = self.scenario.compute, self.scenario.compute.speed, DRAWN
        found: Distribution | Traces = NOTHING
        if isinstance(law, Distribution):
            found = law_times(law, 1.0 / self._each) if self._each != 1.0 else law
        elif isinstance(law, tuple):
            found = self._listed(law)
        elif isinstance(law, MeasuredSpeed):
            found = self._scaled(law.measured)
        elif isinstance(law, SpeedTrace):
            order = ORDERS[law.order]
            found = self._paces(law) if order == OVER_TIME else self._measured_speeds(law)
        elif compute.time is not None:
            found = compute.time
        slow, spells = compute.slow, compute.spells
        laws = (spells.factor, spells.every, spells.lasting) if spells else None
        return speed_model(
            found,
            self.agents,
            self.scenario.seed,
            inverse=law is None,
            redraw=compute.redraw == "round",
            order=order,
            slow=(slow.fraction, slow.factor),
            spells=laws or (1.0, NOTHING, NOTHING),
            overhead=compute.overhead or NO_TIME,
        )

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
        """This machine's speed, which `scenario.pace` has measured, for devices."""
        assert timing.rate is not None
        scores = timing.factor
        if isinstance(scores, Distribution):
            return law_times(scores, timing.rate)
        where, unit = "compute.speed.measured.factor", timing.rate / scores.reference
        way = scores.assign == "random"
        return measured_speeds(
            scores.trace, scores.field, unit, False, None, where=where,
            loops=True, shuffled=way, shifted=False,
        )  # fmt: skip

    def _measured_speeds(self, trace: SpeedTrace) -> Traces:
        """Speeds, or durations, without times."""
        per, rounds, where = trace.unit or "/s", self.scenario.stop.rounds, "compute.speed"
        durations = lasting(per)
        unit = scale(per, units.seconds if durations else units.speed)
        unit, median = unit if durations else unit / self._each, trace.median
        found = measured_speeds(
            trace.trace,
            trace.field,
            unit,
            durations,
            None if median is None else median / self._each,
            where=where,
            **_ways(trace),
        )
        if trace.order == "measured":
            outlives(trace.end, rounds, found.shortest, where)
        return found

    def _paces(self, trace: SpeedTrace) -> Traces:
        """Speeds over time."""
        unit, where = scale(trace.unit or "/s", units.speed) / self._each, "compute.speed"
        found = rate_traces(trace.trace, trace.field, unit, where=where, **_ways(trace))
        return self._lasts(found, trace.end, where)

    def participation(self) -> Participation:
        """Who is active in which round."""
        chosen, agents, seed = self.scenario.participation, self.agents, self.scenario.seed
        match chosen.kind:
            case "choose":
                return chooser(self.scenario, agents, self.speeds)
            case "bernoulli":
                return Bernoulli(agents, chosen.value, seed)
            case "uniform":
                return UniformSubset(agents, chosen.value, seed)
            case "schedule":
                return Schedule([np.array(sorted(set(one)), np.int64) for one in chosen.value])
            case "trace":
                where, rounds = "participation.trace", self.scenario.stop.rounds
                sets = recorded(chosen.value, agents, where)
                outlives(chosen.end, rounds, len(sets), where)
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
        where = "churn.trace"
        states = state_traces(said.trace, said.field or (), where=where, **_ways(said))
        return traced(self._lasts(states, str(said.end), where), agents, seed)

    def _lasts(self, found: Traces, end: str, where: str) -> Traces:
        """The same; InputError if a trace may not end and does so before the run."""
        outlives(end, self.scenario.stop.time, found.shortest, where, "time")
        return found

    def links(self, source: Int, target: Int, which: str = "link", returning: bool = True) -> Links:
        """The links source[e] -> target[e] (-1: coordinator); which: link, uplink or downlink.

        returning: with connections, where the scenario has them, whose ACKs take the way back.
        """
        star = which != "link"
        hops = ("uplink", "downlink") if not star and self.scenario.network.two_hops else (which,)
        network, along = self.scenario.network, [self.scenario.network.along(hop) for hop in hops]
        made = make_links(
            along[0],
            source,
            target,
            self.scenario.seed,
            traces=self._rates(along[0].bandwidth, hops[0]),
            measured=self._measured(source, target, star),
            others=network.links,
            onward=along[1] if len(along) == 2 else None,
            once=network.medium == "shared",
            contention=CONTENTION[network.shared(hops[0])],
        )
        laws = self._laws(made, along[0])
        if returning and any(law != OF_IDEAL for law in laws):
            back = self.links(target, source, BACK[which], returning=False)
            made = connected(made, laws, back)
        if network.behind is not None and star:
            made = lined(made, *self._lines(network.behind, which))
        calendar, said = self._calendar, self.scenario.churn
        if calendar is None or said is None or said.messages == "queued":
            return made
        own = np.zeros_like(calendar.memory)  # questions about arrivals are ahead of the clock
        return made._replace(receivers=calendar._replace(memory=own))

    def _lines(self, behind: Behind, which: str) -> tuple[Int, AccessLine, int]:
        """Which line each agent is behind (-1: none), what lines are like, and the seed."""
        found = [behind.line_of(i, self.agents) for i in range(self.agents)]
        line = behind.uplink if which == "uplink" else behind.downlink
        return np.array([-1 if k is None else k for k in found]), line, self.scenario.seed

    def _laws(self, links: Links, link: Link) -> list[tuple[float, ...]]:
        """What carries messages on each of the links."""
        network, topology = self.scenario.network, self.scenario.network.topology
        anew = topology.per_round or topology.redraw == "round"
        found = [law(link.transport.tcp, anew)] * links.ends.shape[1]
        for other in network.links:
            if other.transport is not None:
                own = law(other.transport.tcp, anew)
                for e in np.flatnonzero(concerned(other, *links.ends)).tolist():
                    found[e] = own
        return found

    def _rates(self, given: Distribution | BandwidthTrace, which: str) -> Traces | None:
        """What stands for a bandwidth that was measured."""
        if isinstance(given, Distribution):
            return None
        own = which != "link" and getattr(self.scenario.network, which).bandwidth is not None
        where, written = f"network.{which if own else 'link'}.bandwidth", repr(given)
        if written not in self.read:
            unit = scale(given.unit, units.bits_per_second)
            self.read[written] = rate_traces(
                given.trace, given.field, unit, where=where, **_ways(given)
            )
        return self._lasts(self.read[written], given.end, where)

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


def _ways(trace: BandwidthTrace | SpeedTrace | ChurnSection) -> dict[str, bool]:
    """How agents play traces, as `Traces` takes it."""
    loops, shuffled = trace.end == "loop", trace.assign == "random"
    return {"loops": loops, "shuffled": shuffled, "shifted": trace.offset == "random"}


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
