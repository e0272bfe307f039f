"""What the section `privacy` and the other sections owe each other; see consistency."""

from collections.abc import Iterator

from desim.scenario.method_section import Algorithm
from desim.scenario.network_section import Network
from desim.scenario.observe_section import Stop
from desim.scenario.privacy_section import Privacy, agents_of
from desim.scenario.problem_section import Problem

Found = Iterator[tuple[tuple[str | int, ...], str]]
CLASSICAL = "{epsilon: ..., delta: ..., composition: ...}"


def noise_fits(algorithm: Algorithm, privacy: Privacy | None) -> Found:
    """Some methods are defined with some kinds of noise only."""
    noise = privacy.noise if privacy else None
    kinds = algorithm.method.noises
    if noise is None:
        return
    kind = noise.form
    if kind not in kinds:
        forms = {"schedule": "{phi: ..., growth: ...}", "classical": CLASSICAL}
        allowed = ", ".join(forms.get(one, f"{{kind: {one}, sigma: ...}}") for one in kinds)
        found = {"schedule": "{phi, growth}", "classical": CLASSICAL}.get(kind, kind)
        text = f"found {found}; allowed with {algorithm.name}: {allowed or 'no noise'}"
        yield ("privacy", "noise"), text


def noise_known(privacy: Privacy | None) -> Found:
    """Either the noise is given or a target calibrates it, and only one of the two."""
    noise, target = (privacy.noise, privacy.target) if privacy else (None, None)
    if noise is None:
        return
    missing = "phi" if noise.scheduled else "sigma"
    if not noise.complete and (target is None or target.calibrated):
        forms = "{kind, sigma, decay}, {phi, growth}, or privacy.target without calibrated"
        yield ("privacy", "noise"), f"found no {missing}; allowed: {forms}"
    elif noise.complete and target is not None and not target.calibrated:
        given = "epsilon" if noise.form == "classical" else missing
        text = f"found together with privacy.noise.{given}, which it would calibrate"
        yield ("privacy", "target"), f"{text}; allowed: one of them"


def target_plannable(algorithm: Algorithm, privacy: Privacy | None, stop: Stop) -> Found:
    """A target is spread over a number of rounds, and noise alone reaches it."""
    if privacy and privacy.target and not algorithm.method.proportional:
        text = f"found with {algorithm.name}, part of whose cost no noise lowers"
        yield ("privacy", "target"), f"{text}; allowed: privacy.noise"
    if privacy and privacy.target and stop.rounds is None:
        text = "found without stop.rounds, the rounds over which it is spread"
        yield ("privacy", "target"), f"{text}; allowed: stop: {{rounds: ...}}"


def composition_plannable(privacy: Privacy | None, stop: Stop) -> Found:
    """What the rounds may cost together is spread over a number of them."""
    noise = privacy.noise if privacy else None
    if noise and noise.composition in ("basic", "advanced") and stop.rounds is None:
        text = f"found {noise.composition} without stop.rounds, over which epsilon is spread"
        yield ("privacy", "noise", "composition"), f"{text}; allowed: stop: {{rounds: ...}}"


def view_fits(
    problem: Problem, algorithm: Algorithm, network: Network, privacy: Privacy | None
) -> Found:
    """A view names agents that exist, and a coordinator only where there is one."""
    if privacy is None:
        return
    kind = algorithm.method.kind_on(network.topology.kind)
    if privacy.view == "coordinator" and kind != "coordinator":
        text = f"found coordinator, but {algorithm.name} has none"
        others = "neighbour:0, ..." if kind == "graph" else "final-model"
        yield ("privacy", "view"), f"{text}; allowed: eavesdropper, {others}"
    for agent in agents_of(privacy.view):
        if problem.agents is not None and agent >= problem.agents:
            text = f"found agent {agent}; allowed: 0 to {problem.agents - 1}"
            yield ("privacy", "view"), text
