"""What the section `codec` and the other sections owe each other, and what engines make of it."""

from typing import TYPE_CHECKING

from desim.methods.shared.declarations import Kind
from desim.network.conditions.codec import LOSSY, Codecs
from desim.scenario.sections.algorithm import Algorithm, Policy
from desim.scenario.sections.codec import Codec, spelled
from desim.scenario.sections.devices import Churn
from desim.scenario.sections.network import Network
from desim.scenario.tree import Found

if TYPE_CHECKING:
    from desim.scenario.schema import Scenario


def codec_fits(algorithm: Algorithm, codec: Codec, kind: Kind) -> Found:
    """A method says with which codecs it works, and why not with others."""
    method, written = algorithm.method, spelled(codec.up.kind)
    if written != "none" and kind != method.kind:
        text = f"found {written} with {algorithm.name} on a graph, where its duals need the whole"
        yield ("codec",), f"{text}; allowed there: none"
    elif written != "none" and written not in method.codecs:
        yield ("codec",), _refused(algorithm, written)


def downlink_fits(
    algorithm: Algorithm, codec: Codec, kind: Kind, policy: Policy, network: Network,
    churn: Churn | None,
) -> Found:  # fmt: skip
    """A coordinator's models may be rounded; more where both ends know what was sent before."""
    method, down, place = algorithm.method, spelled(codec.down.kind), ("codec", "downlink")
    if codec.word or down == "none":
        return
    if kind != "coordinator":
        text = f"found {down}, but {algorithm.name} has no coordinator here; allowed: none"
        yield place, text
    elif down not in method.codecs:
        yield place, _refused(algorithm, down)
    elif down in LOSSY and method.messages != "changes":
        reason = "differences of what it sends are of use only where replies are changes of it"
        yield (
            place,
            f"found {down}, but {reason}; allowed with {algorithm.name}: none, float32, float16",
        )
    elif down in LOSSY and policy.kind != "all" and (policy.late or "discard") == "discard":
        reason = f"with policy {policy.kind} a call may be void, and both ends know it differently"
        yield place, f"found {down}, but {reason}; allowed: none, float32, float16"
    elif down in LOSSY and _dropped(network, kind, churn):
        reason = "an agent may miss a call for good, and both ends know it differently"
        yield place, f"found {down}, but with on_loss: drop {reason}; allowed: on_loss: resend"
    elif down in LOSSY and churn is not None and churn.memory == "lost":
        reason = "an agent that has lost its memory has lost what differences are added to"
        yield place, f"found {down}, but {reason}; allowed: none, float32, float16"


def _dropped(network: Network, kind: Kind, churn: Churn | None) -> bool:
    """Whether calls may be lost that nobody sends again."""
    absent = churn is not None and churn.messages == "lost"
    for which in network.sides(kind):
        link = network.along(which)
        lossy = absent or (max(link.losses) > 0 and not network.by_tcp(which))
        if which != "uplink" and lossy and link.on_loss == "drop":
            return True
    return False


def memory_fits(algorithm: Algorithm, codec: Codec, churn: Churn | None) -> Found:
    """Differences to what a receiver knows mean nothing to an agent that has forgotten it."""
    known = algorithm.method.messages == "models"
    if churn and churn.memory == "lost" and codec.up.codec(known).memory == "known":
        reason = "an agent that has lost its memory does not know what the receiver has"
        yield (
            ("codec",),
            f"found {spelled(codec.up.kind)}, but {reason}; allowed: churn.memory: kept",
        )


def _refused(algorithm: Algorithm, kind: str) -> str:
    """Why a method's messages are not coded so, and how they may be."""
    method = algorithm.method
    allowed = ", ".join(["none", *method.codecs])
    return f"found {kind}, but {method.uncoded}; allowed with {algorithm.name}: {allowed}"


def codecs(scenario: "Scenario") -> Codecs:
    """As engines use them."""
    section, method = scenario.codec, scenario.algorithm.method
    up = section.up.codec(known=method.messages == "models")
    return Codecs(up, section.down.codec(known=True))


def biased(codecs: Codecs) -> list[str]:
    """A warning where what top-k leaves out is lost for good."""
    if codecs.up.kind != "top-k" or codecs.up.memory != "none":
        return []
    lost = "what top-k leaves out is lost for good, and a limit may be far from the optimum"
    return [f"codec.error_feedback: {lost} without it"]
