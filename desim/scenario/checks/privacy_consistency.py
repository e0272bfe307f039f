"""What the section `privacy` and the other sections owe each other; see consistency."""

import math

from desim.errors import InputError
from desim.fields import Local
from desim.methods.shared.declarations import Kind
from desim.privacy.accounting.views import read_view
from desim.scenario import registry
from desim.scenario.sections.algorithm import Algorithm
from desim.scenario.sections.observe_and_stop import Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found

LARGEST = 700.0  # e^700 is a number, and so is its square root's inverse
CLASSICAL = "{epsilon: ..., delta: ..., composition: ...}"
ALLOTTED = "{kind: ..., epsilon: ...}"


def noise_fits(algorithm: Algorithm, privacy: Privacy | None) -> Found:
    """Some methods are defined with some kinds of noise only."""
    noise = privacy.noise if privacy else None
    kinds = algorithm.method.noises
    if noise is None:
        return
    kind = noise.form
    if kind not in kinds and privacy and privacy.target and not noise.complete:
        yield from _untargetable(algorithm, kind)
    elif kind not in kinds:
        forms = {"schedule": "{phi: ..., growth: ...}", "classical": CLASSICAL}
        forms["allotted"] = ALLOTTED
        allowed = ", ".join(forms.get(one, f"{{kind: {one}, sigma: ...}}") for one in kinds)
        found = {**forms, "schedule": "{phi, growth}"}.get(kind, kind)
        text = f"found {found}; allowed with {algorithm.name}: {allowed or 'no noise'}"
        yield ("privacy", "noise"), text


def relation_fits(algorithm: Algorithm, privacy: Privacy | None) -> Found:
    """Of some methods it is not known what a record less changes."""
    if privacy is not None and privacy.relation not in algorithm.method.relations:
        allowed = f"allowed with {algorithm.name}: {', '.join(algorithm.method.relations)}"
        yield ("privacy", "relation"), f"found {privacy.relation}; {allowed}"


def _untargetable(algorithm: Algorithm, kind: str) -> Found:
    """A target gives gaussian noise, unless privacy.noise names a kind, and only an amount."""
    kinds = [one for one in algorithm.method.noises if one not in ("classical", "allotted")]
    if not algorithm.method.proportional:
        return  # told by target_plannable
    if kinds:
        allowed = f"privacy.noise.kind: {' | '.join(kinds)}"
        yield ("privacy", "target"), f"found with {kind} noise; allowed: {allowed}"
    else:
        text = f"found with {algorithm.name}, whose noise itself says what it promises"
        yield ("privacy", "target"), f"{text}; allowed: privacy.noise"


def noisy_is_noisy(algorithm: Algorithm, privacy: Privacy | None) -> Found:
    """A solver that adds noise needs to be told how much, be it 0."""
    local = getattr(algorithm.parameters, "local", None)
    if not isinstance(local, Local) or "noisy" not in local.solvers:
        return
    if "tau" not in local.model_fields_set and (privacy is None or privacy.noise is None):
        text = "found noisy without its noise"
        allowed = "tau: ..., or privacy.noise, or privacy.target"
        yield ("algorithm", "local", "solver"), f"{text}; allowed: {allowed}"


def schedule_fits(privacy: Privacy | None, stop: Stop) -> Found:
    """What the schedule {phi, growth} spends in a round grows for ever, but numbers end."""
    noise = privacy.noise if privacy else None
    if noise is None or noise.growth is None or stop.rounds is None:
        return
    phi = 1.0 if noise.phi is None else noise.phi
    most = (LARGEST - math.log(phi)) / -math.log(noise.growth) if noise.growth < 1 else math.inf
    if stop.rounds - 1 > most:
        text = f"found {noise.growth:g}: phi / growth^(n - 1) is beyond every number in round"
        allowed = f"at most {math.floor(most) + 1} rounds, or a growth nearer to 1"
        yield ("privacy", "noise", "growth"), f"{text} {stop.rounds}; allowed: {allowed}"


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
        given = "epsilon" if noise.form in ("classical", "allotted") else missing
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


def accountant_known(privacy: Privacy | None) -> Found:
    """An accountant is one of a plug-in."""
    if privacy is not None and privacy.accountant is not None:
        try:
            registry.accountant(privacy.accountant, "privacy.accountant")
        except InputError as error:
            place = ("privacy", "accountant")
            yield from ((place, text.partition(": ")[2]) for text in error.problems)


def view_fits(
    algorithm: Algorithm, kind: Kind, privacy: Privacy | None, agents: int | None
) -> Found:
    """A view names agents that exist, and a coordinator only where there is one."""
    if privacy is None:
        return
    if privacy.view == "coordinator" and kind != "coordinator":
        text = f"found coordinator, but {algorithm.name} has none"
        others = "neighbour:0, ..." if kind == "graph" else "final-model"
        yield ("privacy", "view"), f"{text}; allowed: eavesdropper, {others}"
    for agent in read_view(privacy.view).agents:
        if agents is not None and agent >= agents:
            yield ("privacy", "view"), f"found agent {agent}; allowed: 0 to {agents - 1}"
