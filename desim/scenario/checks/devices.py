"""What devices that slow down, leave and forget ask of a method and an engine."""

from desim.methods.shared.method import Kind
from desim.scenario.sections.devices import Churn, Compute
from desim.scenario.sections.measured import SpeedTrace
from desim.scenario.sections.method import Algorithm, Policy
from desim.scenario.sections.network import Network
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found


def churn_fits(churn: Churn | None, engine: str) -> Found:
    """Agents that leave in the middle of a computation need the engine of processes."""
    if churn is not None and engine not in ("agents", "auto"):
        yield ("engine",), f"found {engine} with churn; allowed with churn: agents, auto"


def messages_fit(kind: Kind, network: Network, churn: Churn | None) -> Found:
    """Whether a message is missed is known when it is sent only if nothing holds it up."""
    if churn is None or churn.messages == "queued":
        return
    shared = network.shared("link" if kind == "graph" else "downlink")
    if shared != "none":
        text = f"found lost with contention {shared}, where messages arrive when others let them"
        yield ("churn", "messages"), f"{text}; allowed with it: queued"


def memory_fits(
    algorithm: Algorithm, policy: Policy, kind: Kind, churn: Churn | None, privacy: Privacy | None
) -> Found:
    """An agent that begins anew must not leave the others with what only it could undo."""
    if churn is None or churn.memory == "kept":
        return
    method, name, here = algorithm.method, algorithm.name, ("churn", "memory")
    admitted = method.restarts
    if policy.kind not in admitted and (kind == "graph" or not admitted):
        reason = method.forgetting or "nothing is known of an agent of it that begins anew"
        with_ = f"; with {name}: policy {', '.join(admitted)}" if admitted else ""
        yield here, f"found lost with {name}: {reason}; allowed: kept{with_}"
    elif privacy is not None and privacy.budget is not None:
        yield here, "found lost with privacy.budget, which an agent must not forget; allowed: kept"


def paces_fit(algorithm: Algorithm, compute: Compute) -> Found:
    """A number of samples that fits a deadline is planned from the speed of a round."""
    if not algorithm.method.timed:
        return
    timed = isinstance(compute.speed, SpeedTrace) and compute.speed.order == "time"
    if timed or compute.spells is not None:
        key = "speed" if timed else "spells"
        text = f"found a speed that changes in time, but {algorithm.name} plans its samples by it"
        yield ("compute", key), f"{text}; allowed: a speed that holds for a round"
