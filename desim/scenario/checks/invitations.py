"""What choices that remember owe the other sections; see consistency."""

from desim.methods.shared.declarations import Method
from desim.scenario import registry
from desim.scenario.sections.algorithm import CHOICES, Algorithm, Participation
from desim.scenario.sections.devices import Churn
from desim.scenario.sections.observe_and_stop import Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found

TIMED = ("fastest", "oort", "tiers")  # choices that read reply times
BARE = "losses: {clip: ..., sigma: ...}"


def choice_leaves_out(participation: Participation, agents: int | None) -> Found:
    """Who invites everybody chooses nobody; candidates are agents; a tier has some."""
    said, place = participation, "participation"
    if said.choose is None or agents is None:
        return
    if said.invite is not None and said.invite >= agents:
        text = f"found {said.invite} of {agents} agents, which leaves nothing to choose"
        most = f"1 to {agents - 1}" if agents > 1 else "more agents"
        yield (place, "invite"), f"{text}; allowed: {most}, or participation: all"
    if said.candidates is not None and said.candidates > agents:
        text = f"found {said.candidates} of {agents} agents"
        yield (place, "candidates"), f"{text}; allowed: {said.invite} to {agents}"
    if said.tiers is not None and not 2 <= said.tiers <= agents:
        text = f"found {said.tiers} tiers of {agents} agents"
        yield (place, "tiers"), f"{text}; allowed: 2 to {agents}"
    elif said.tiers is not None and said.invite is not None:
        size = -(-agents // said.tiers)
        if said.invite > size:
            text = f"found {said.invite} of a tier, which has {size} of {agents} agents"
            yield (place, "invite"), f"{text}; allowed: 1 to {size}"


def candidates_suffice(participation: Participation) -> Found:
    """Of fewer candidates than invitations none can be chosen."""
    said = participation
    if said.candidates is not None and said.invite is not None and said.candidates < said.invite:
        text = f"found {said.candidates} candidates for {said.invite} invitations"
        yield ("participation", "candidates"), f"{text}; allowed: at least {said.invite}"


def exploration_falls(participation: Participation) -> Found:
    """Exploration falls to its least, not from below it."""
    first, least = participation.exploration, participation.exploration_least
    if first is not None and least is not None and least > first:
        text = f"found {least:g}, above exploration, {first:g}"
        yield ("participation", "exploration_least"), f"{text}; allowed: at most {first:g}"


def availability_known(participation: Participation, churn: Churn | None) -> Found:
    """Without churn everybody is up."""
    if participation.of_those_up and churn is None:
        key = "choose" if participation.choose == "available" else "available"
        found = "available" if key == "choose" else "true"
        text = f"found {found} without churn, so that everybody is up all the time"
        yield ("participation", key), f"{text}; allowed: with a section churn"


def profiling_ends(participation: Participation, stop: Stop) -> Found:
    """Who is profiled in all rounds is never chosen."""
    profile = participation.profile
    if profile is not None and stop.rounds is not None and profile > stop.rounds:
        text = f"found {profile} rounds of a run of {stop.rounds}"
        yield ("participation", "profile"), f"{text}; allowed: 1 to {stop.rounds}"


def credits_suffice(participation: Participation, stop: Stop) -> Found:
    """A round without credits left has no tier to draw."""
    credits, profile = participation.credits, participation.profile or 0
    if credits is None:
        return
    if stop.rounds is None:
        text = "found credits without stop.rounds, so that they may not last"
        yield ("participation", "credits"), f"{text}; allowed: stop: {{rounds: ...}}"
    elif sum(credits) < stop.rounds - profile:
        text = f"found {sum(credits)} credits for {stop.rounds - profile} rounds after profiling"
        yield ("participation", "credits"), f"{text}; allowed: at least as many"


def times_compare(algorithm: Algorithm, participation: Participation) -> Found:
    """The time to the latest reply says something of the next one where all calls are alike."""
    if participation.choose in TIMED and algorithm.method.calls > 1:
        text = f"found {participation.choose}, which goes by how long the latest reply took, but "
        text += f"{algorithm.name} calls agents for more than one thing"
        others = ", ".join(name for name in CHOICES if name not in TIMED)
        yield ("participation", "choose"), f"{text}; allowed: {others}"


def losses_priced(
    algorithm: Algorithm, participation: Participation, privacy: Privacy | None
) -> Found:
    """A budget needs noise, a target plans no losses, and a bound a model that was sent."""
    said, method = participation, algorithm.method
    if not said.power:
        return
    choice = ("participation", "choose")
    if said.losses is None and privacy is not None and privacy.budget is not None:
        text = f"found {said.choose} with privacy.budget, but losses without noise cost infinity"
        yield choice, f"{text}; allowed: {BARE}, or a choice that reads no losses"
    if privacy is not None and privacy.target is not None:
        text = f"found {said.choose} with privacy.target, which does not plan what losses cost"
        yield choice, f"{text}; allowed: privacy.noise, or a choice that reads no losses"
    if said.losses is not None and not _sent(method):
        text = f"found noise with {algorithm.name}, whose agents train the model at which losses "
        text += "are taken: what one row moves there is not known"
        known = ", ".join(name for name in registry.names() if _sent(registry.get(name)))
        yield ("participation", "losses"), f"{text}; allowed: no losses, or with {known}"


def _sent(method: type[Method]) -> bool:
    """Whether the class itself says that agents keep the model they were sent: none inherits it."""
    return bool(vars(method).get("sent_model", False))
