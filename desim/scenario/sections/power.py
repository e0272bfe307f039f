"""The keys `compute.power` and `network.power`: what devices take, in watts and joules a byte."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import model_validator

from desim import units
from desim.errors import refusal
from desim.fields import DurationDist, PerByteDist, Power, Strict, Text, WattsDist
from desim.numerics.distributions import Distribution
from desim.scenario.sections.links import law_or_list

# Laws by device: one value, a distribution, or a list with one entry for each agent.

Law = Distribution | tuple[float, ...]


WattsLaw = Annotated[Law, *law_or_list(WattsDist, units.watts)]
ByteLaw = Annotated[Law, *law_or_list(PerByteDist, units.joules_a_byte)]
TimeLaw = Annotated[Law, *law_or_list(DurationDist, units.seconds)]


def takes(law: Law | None) -> bool:
    """Whether a law is that of anything but nothing."""
    return law is not None and any(law)


# Devices whose watts somebody has measured, and who.

DEVICES = {
    "jetson-agx-xavier": (
        {"idle": "6.95 W", "computing": "16.6 W"},
        "training ResNet18 on CIFAR-10: Nguyen, FL-G5K-EnergyConsumption (GitHub, 2024), as fitted "
        "in analysis/fidelity/grid5000.md",
    ),
}


MAPPING = "{idle: 2 W, computing: 5 W}"


class Watts(Strict):
    """What a coordinator takes."""

    examples = {"idle": "20 W", "computing": "60 W"}

    idle: Power = 0.0
    """as long as the run lasts"""
    computing: Power = 0.0
    """more than that while it takes replies in: compute.coordinator"""


class ComputePower(Strict):
    """What devices take, in watts: a value, a law that each draws from, a list, or a device's name.

    run.energy() and `desim energy` say what that comes to in joules; no run depends on it.
    """

    examples = {
        "named": "jetson-agx-xavier",
        "idle": {"uniform": ["1 W", "3 W"]},
        "computing": ["5 W", "9 W"],
        "coordinator": {"idle": "20 W"},
    }

    named: Text | None = None
    """a device that somebody has measured, from which come the watts that are not written:
    jetson-agx-xavier"""
    idle: WattsLaw = "0 W"  # type: ignore[assignment]
    """as long as a device is up, whatever it does"""
    computing: WattsLaw = "0 W"  # type: ignore[assignment]
    """more than that while it computes"""
    coordinator: Watts | None = None
    """the coordinator's: {idle: 20 W, computing: 60 W}; default: not counted"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; a device's name alone, or its watts where none are written."""
        found = super().mapping({"named": data} if isinstance(data, str) else data)
        if found.get("named") is None:
            return found
        if found["named"] not in DEVICES:
            allowed = f"{', '.join(DEVICES)}, or watts as a mapping: {MAPPING}"
            raise ValueError(f"named: {refusal(found['named'], allowed, DEVICES)}")
        return {**DEVICES[found["named"]][0], **found}

    @model_validator(mode="after")
    def _takes_something(self) -> "ComputePower":
        of = self.coordinator or Watts()
        if not (takes(self.idle) or takes(self.computing) or of.idle or of.computing):
            raise ValueError("found no watts; allowed: idle, computing, or leave it out")
        return self


class NetworkPower(Strict):
    """What messages take of an agent's device: joules a byte, and watts while its radio is on.

    A radio is on while a message leaves, or comes in, as long as that took to leave, and then for
    its tail: mobile networks keep it in a connected state for seconds.
    """

    examples = {"sent": "4 uJ/B", "received": "1 uJ/B", "radio": "1.2 W", "tail": "10 s"}

    sent: ByteLaw = "0 J/B"  # type: ignore[assignment]
    """for each byte that leaves, of repeated and lost messages, too"""
    received: ByteLaw = "0 J/B"  # type: ignore[assignment]
    """for each byte that arrives"""
    radio: WattsLaw = "0 W"  # type: ignore[assignment]
    """while messages leave or come in, however many at a time"""
    tail: TimeLaw = "0 s"  # type: ignore[assignment]
    """for how long the radio is on after a message, until the next one or until its agent leaves"""
    tail_power: WattsLaw | None = None
    """watts in the tail; default: those of radio"""

    @model_validator(mode="after")
    def _takes_something(self) -> "NetworkPower":
        tail = self.radio if self.tail_power is None else self.tail_power
        if takes(self.tail) and not takes(tail):
            raise ValueError("tail: found without watts; allowed: with radio or tail_power")
        if self.tail_power is not None and not takes(self.tail):
            raise ValueError("tail_power: found without tail; allowed: with tail")
        if not any(map(takes, (self.sent, self.received, self.radio, self.tail))):
            raise ValueError("found no power; allowed: sent, received, radio, or leave it out")
        return self
