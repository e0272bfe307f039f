"""What a method needs and admits, in words, from what its class declares."""

from collections.abc import Iterator

from analysis.docs.generate.markdown import code, escaped
from desim.methods.shared.declarations import RULES, Method
from desim.scenario.sections.algorithm import Participation

KINDS = {
    "coordinator": "a coordinator and agents: `network.topology: star`, the default",
    "graph": "agents on a graph: any other `network.topology`",
    "central": "one agent that holds all rows; no network",
}
MODELS = {
    "linear": "linear models: logistic, squared, absolute, Huber, hinge",
    "convex": "linear models, and softmax regression",
    "any": "linear models, softmax regression and networks with a hidden layer",
}
WITHOUT = {"schedule": "{phi, growth}", "classical": "{epsilon, delta, composition}"}
ALLOTTED = "{kind, epsilon, ...} of one release"


def needs(method: type[Method]) -> Iterator[tuple[str, str]]:
    """Rows of a table: what, and what it says."""
    kind = KINDS[method.kind] + (", or on a graph among peers" if method.peers else "")
    yield "runs as", kind
    smooth = "smooth losses only" if method.smooth_only else "smooth and nonsmooth losses"
    yield "losses", f"{smooth}; {MODELS[method.models]}"
    yield "regulariser", _regulariser(method)
    if method.kind != "central":
        yield "waiting", ", ".join(map(code, method.admitted(method.kind)))
    if method.kind != "central":
        yield "codecs", _codecs(method)
    if method.kind == "coordinator":
        yield "participation", _participation(method)
    yield "noise", _noises(method)
    if method.noises and "allotted" not in method.noises:
        yield "target", _target(method)
    if method.kind == "graph":
        yield "graphs that change", "yes" if method.changing else f"no: {escaped(method.keeping)}"
        yield (
            "directed graphs",
            "yes, where everybody hears as many as hear it" if method.directed else "no",
        )
    if method.kind != "central":
        yield "memory lost in an absence", _forgetting(method)
    if method.once:
        yield "rounds", "one, then the run is over"
    if method.timed:
        yield "iterates and time", "speeds decide what agents compute: it cannot be retimed"


def promises(method: type[Method]) -> str:
    """What all methods are tested for."""
    return (
        "what holds for every method: both engines equal in every bit, no dependence on threads, "
        "batches and observers, no noise equal to none, every draw of noise in the ledger, "
        "resumed runs equal to whole ones"
    )


def _regulariser(method: type[Method]) -> str:
    if method.has_prox:
        return "the smooth part at the agents, l1 and box by a prox"
    return "the smooth part at the agents; " + (
        "no l1, no box" if method.smooth_only else "l1 by its subgradient there, no box"
    )


def _codecs(method: type[Method]) -> str:
    allowed = ", ".join(map(code, ("none", *method.codecs)))
    return allowed if len(method.codecs) == 5 else f"{allowed}: {escaped(method.uncoded)}"


def _participation(method: type[Method]) -> str:
    if not getattr(method, "partial", True):
        return code("all")
    return ", ".join(map(code, (*Participation.words, *Participation.alternatives())))


def _noises(method: type[Method]) -> str:
    if not method.noises:
        return "none"
    shown = []
    for one in method.noises:
        shown.append(code(WITHOUT.get(one, ALLOTTED if one == "allotted" else f"kind: {one}")))
    return ", ".join(shown)


def _target(method: type[Method]) -> str:
    if not method.proportional:
        return "cannot calibrate it: part of the cost does not fall with noise"
    return "calibrates it to the planned rounds"


def _forgetting(method: type[Method]) -> str:
    if not method.restarts:
        return "refused: an agent cannot begin anew"
    policies = ", ".join(code(one) for one in RULES if one in method.restarts)
    cost = f"; {escaped(method.forgetting)}" if method.forgetting else ""
    return f"with {policies}{cost}"
