"""What batteries owe the rest of a scenario."""

from desim.methods.shared.declarations import Kind
from desim.scenario.checks.link_consistency import meddling
from desim.scenario.sections.algorithm import Policy
from desim.scenario.sections.battery import Battery
from desim.scenario.sections.devices import STATELESS, Churn, Compute
from desim.scenario.sections.network import Network
from desim.scenario.tree import Found


def something_empties_it(battery: Battery | None, compute: Compute, network: Network) -> Found:
    """A battery is emptied by what devices take."""
    if battery is None:
        return
    if compute.power is None and network.power is None:
        text = "found a section without power, so that nothing empties it"
        yield ("battery",), f"{text}; allowed: with compute.power or network.power"


def batteries_are_felt(
    battery: Battery | None, network: Network, churn: Churn | None, kind: Kind, policy: Policy,
    engine: str,
) -> Found:  # fmt: skip
    """Agents leave as by churn, and what they take is known when they do."""
    if battery is None:
        return
    if churn is not None and churn.messages == "lost" and network.power is not None:
        text = "found lost with battery and network.power: what a message takes before its agent "
        text += "is empty would depend on whether it arrives afterwards"
        yield ("churn", "messages"), f"{text}; allowed with them: queued"
    why = meddling(kind, policy, STATELESS) if churn is None else ""
    if why and engine not in ("agents", "auto"):
        why = why.replace("churn", "batteries")
        yield ("engine",), f"found {engine}, but {why}; allowed with batteries: agents, auto"
