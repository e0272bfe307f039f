"""What the devices of a scenario take: watts, joules a byte, a radio with its tail, by agent."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.errors import InputError
from desim.numerics.distributions import CONSTANT, Distribution, draw
from desim.numerics.keys import Stream
from desim.scenario.schema import Scenario

LAWS = ("idle", "computing", "sending", "receiving", "radio", "tail", "lasts")  # by address
CAUSES = LAWS[:-1]


@dataclass(frozen=True)
class Power:
    """Arrays (agents,) by cause: W, of sending and receiving J for a byte; lasts: s of a tail.

    coordinator: W while idle and more while computing, None where it is not counted; computes,
    sends: whether the first two or the others are anything; shared: whether messages of agents,
    and those of a coordinator, share a line, so that logs do not say how long they took to leave.
    """

    rates: dict[str, Array]
    lasts: Array
    coordinator: tuple[float, float] | None
    computes: bool
    sends: bool
    shared: tuple[bool, bool] = (False, False)

    @property
    def causes(self) -> tuple[str, ...]:
        """Those that a scenario has power for."""
        first, last = CAUSES[:2], CAUSES[2:]
        return (*(first if self.computes else ()), *(last if self.sends else ()))


def power(scenario: Scenario, agents: int) -> Power | None:
    """The power of `agents` devices, by compute.power and network.power; None for neither.

    A device draws from each law once; lists have an entry for each agent, InputError else.
    """
    compute, network, seed = scenario.compute.power, scenario.network.power, scenario.seed
    if compute is None and network is None:
        return None
    laws: dict[str, tuple[str, Any]] = {}
    if compute is not None:
        laws |= {"idle": ("compute.power.idle", compute.idle)}
        laws |= {"computing": ("compute.power.computing", compute.computing)}
    if network is not None:
        after, same = network.tail_power, network.tail_power is None
        laws |= {"sending": ("network.power.sent", network.sent)}
        laws |= {"receiving": ("network.power.received", network.received)}
        laws |= {"radio": ("network.power.radio", network.radio)}
        laws |= {"tail": ("network.power.tail_power", after)} if not same else {}
        laws |= {"lasts": ("network.power.tail", network.tail)}
    none = ("", Distribution(CONSTANT, 0.0))
    drawn = {name: _drawn(laws.get(name, none), name, agents, seed) for name in LAWS}
    if "tail" not in laws:
        drawn["tail"] = drawn["radio"]
    of = None if compute is None else compute.coordinator
    own = None if of is None else (of.idle, of.computing)
    lasts = drawn.pop("lasts")
    star = scenario.kind == "coordinator"
    ways = ("uplink", "downlink") if star else ("link", "link")
    up, down = (scenario.network.shared(which) != "none" for which in ways)
    return Power(drawn, lasts, own, compute is not None, network is not None, (up, down))


def _drawn(said: tuple[str, Any], name: str, agents: int, seed: int) -> Array:
    """A value (agents,) for each agent, of a law and where it is written."""
    where, law = said
    if isinstance(law, Distribution):
        place = {"agent": np.arange(agents), "step": LAWS.index(name)}
        return np.asarray(draw(law, seed, Stream.POWER, **place))
    if len(law) != agents:
        text = f"found {len(law)} entries for {agents} agents"
        raise InputError(f"{where}: {text}; allowed: one for each agent")
    return np.array(law, float)
