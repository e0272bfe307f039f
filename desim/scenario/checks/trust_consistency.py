"""What a trusted coordinator owes the rest of a scenario."""

from typing import Any

from desim.fields import Local
from desim.methods.shared.declarations import Kind
from desim.privacy.accounting.views import MODELS, read_view
from desim.privacy.ledger.mechanisms import CLIPS
from desim.scenario import registry
from desim.scenario.sections.algorithm import Algorithm, Participation, Policy
from desim.scenario.sections.devices import Churn
from desim.scenario.sections.links import Codec
from desim.scenario.sections.observe_and_stop import Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.tree import Found


def clip_fits(algorithm: Algorithm, privacy: Privacy | None, kind: Kind) -> Found:
    """Who is not trusted shortens nothing, and noise in units of what it is shortened to is its."""
    if privacy is None or privacy.trusted:
        return
    if privacy.clip is not None:
        text = "found without trust: coordinator, so that nobody shortens what agents change"
        yield ("privacy", "clip"), f"{text}; allowed: with it, or problem.clip of gradients"
    chained = kind == "graph" and vars(algorithm.method).get("chained", False)
    for key in () if privacy.noise is None else ("multiplier", "correlated"):
        if getattr(privacy.noise, key) is not None and not (chained and key == "correlated"):
            text = "found without trust: coordinator, of whose sum it is the noise"
            if kind == "graph" and key == "correlated":
                text = f"found with {algorithm.name}, not one release in each round, all alike"
                names = [one for one in registry.names() if vars(registry.get(one)).get("chained")]
                text += f"; allowed: with {', '.join(names)}, or"
                yield ("privacy", "noise", key), f"{text} sigma alone"
                continue
            yield ("privacy", "noise", key), f"{text}; allowed: sigma"


def rounds_of_records_are_known(
    algorithm: Algorithm, privacy: Privacy | None, kind: Kind, churn: Churn | None, stop: Stop
) -> Found:  # fmt: skip
    """On a graph: noise of rounds that depends on that of others, or records in some of them.

    Both are counted together, for a planned number of rounds of which none is left out.
    """
    noise = None if privacy is None or privacy.trusted or kind != "graph" else privacy.noise
    if privacy is None or noise is None:
        return
    cyclic = getattr(algorithm.parameters, "order", "fresh") == "cyclic"
    cyclic &= vars(algorithm.method).get("chained", False)
    if noise.correlated is None and not cyclic:
        return
    place: tuple[str, ...] = ("privacy", "noise", "correlated")
    what = "found"
    if noise.correlated is None:
        place, what = ("algorithm", "order"), "found cyclic"
    if noise.form != "gaussian" or (noise.decay or 1.0) != 1.0 or noise.iteration is not None:
        text = f"{what} with noise that is no Gaussian, or another one in each round"
        yield place, f"{text}; allowed: {{kind: gaussian, sigma: ...}}"
    if stop.rounds is None:
        text = f"{what} without stop.rounds, so that nobody knows how many releases are one"
        yield place, f"{text}; allowed: stop: {{rounds: ...}}"
    if privacy.budget is not None:
        text = f"{what} with privacy.budget, which counts what each release costs by itself"
        yield place, f"{text}; allowed: privacy.target, or stop.rounds"
    if churn is not None and churn.memory == "lost":
        text = f"{what} with churn.memory: lost, after which rounds are left out"
        yield place, f"{text}; allowed: kept"


def trust_fits(algorithm: Algorithm, privacy: Privacy | None, kind: Kind) -> Found:
    """A method whose program asks for nothing but sums of replies."""
    if privacy is None or not privacy.trusted:
        return
    place, name = ("privacy", "trust"), algorithm.name
    if kind != "coordinator":
        yield place, f"found {privacy.trust}, but {name} has none here; allowed: local"
        return
    needs = algorithm.method.totals()
    if needs is False:
        known = ", ".join(one for one in registry.names() if registry.get(one).totals())
        text = f"found {privacy.trust} with {name}, whose coordinator reads single replies"
        yield place, f"{text}; allowed: local, or {known}"
    for key, value in ({} if isinstance(needs, bool) else needs).items():
        if (found := getattr(algorithm.parameters, key)) != value:
            text = (
                f"found {found} with privacy.trust: {privacy.trust}, which has the sum of replies"
            )
            yield ("algorithm", key), f"{text}; allowed: {value}"
    local: Any = getattr(algorithm.parameters, "local", None)
    if isinstance(local, Local) and "noisy" in local.solvers:
        text = f"found noisy with privacy.trust: {privacy.trust}, where agents add no noise"
        yield ("algorithm", "local", "solver"), f"{text}; allowed: gradient, sgd, accelerated"


def sum_is_noised(privacy: Privacy | None) -> Found:
    """A sum is clipped, and has Gaussian noise, be it 0."""
    if privacy is None or not privacy.trusted:
        return
    noise, clip = privacy.noise, privacy.clip
    if clip is None:
        text = f"missing with trust: {privacy.trust}, so that nothing bounds what an agent adds"
        yield ("privacy", "clip"), f"{text}; allowed: a number > 0, or {{start, quantile, ...}}"
    if clip is not None and not CLIPS[0] <= clip.start <= CLIPS[1]:
        text = f"found {clip.start:g}, whose square is beyond what doubles hold"
        yield ("privacy", "clip"), f"{text}; allowed: {CLIPS[0]:g} to {CLIPS[1]:g}"
    if noise is None:
        text = f"missing with trust: {privacy.trust}"
        yield ("privacy", "noise"), f"{text}; allowed: {{multiplier: ...}}, {{sigma: ...}}"
        return
    if noise.form != "gaussian":
        text = f"found {noise.form} with trust: {privacy.trust}"
        yield ("privacy", "noise"), f"{text}; allowed: gaussian, with multiplier or sigma"
    if clip is None or clip.noise is None:
        return
    if noise.sigma is not None:
        text = "found sigma with a clip that follows a quantile, of which nobody knows the size"
        yield ("privacy", "noise", "sigma"), f"{text}; allowed: multiplier"
    if noise.multiplier is not None and not noise.multiplier < 2.0 * clip.noise:
        text = f"found {clip.noise:g} with multiplier {noise.multiplier:g}, which it would exceed"
        least = f"more than half of the multiplier, {0.5 * noise.multiplier:g}"
        yield ("privacy", "clip", "noise"), f"{text}; allowed: {least}"
    if (noise.decay or 1.0) != 1.0 or noise.iteration is not None:
        text = "found noise that changes from round to round with a clip that follows a quantile"
        yield ("privacy", "noise"), f"{text}; allowed: {{multiplier: ...}} alone"


def contributions_are_bounded(
    privacy: Privacy | None, participation: Participation, stop: Stop
) -> Found:  # fmt: skip
    """With noise that is correlated, what an agent's contributions tell depends on all of them."""
    noise = None if privacy is None else privacy.noise
    if privacy is None or noise is None or noise.correlated is None or not privacy.trusted:
        return
    place, bound = ("privacy", "noise", "correlated"), "nothing bounds"
    if stop.rounds is None:
        text = f"found without stop.rounds, so that {bound} how often an agent takes part"
        yield place, f"{text}; allowed: stop: {{rounds: ...}}"
    if participation.separation is None:
        text = f"found with {participation.kind} and no separation, so that {bound} how close "
        text += "contributions of an agent are"
        cure = "participation: {uniform: n, separation: rounds}, or with choose"
        yield place, f"{text}; allowed: {cure}"
    if privacy.clip is not None and privacy.clip.noise is not None:
        text = "found with a clip that follows a quantile, whose noise is another one every round"
        yield place, f"{text}; allowed: a clip that stays"
    if noise.correlated.kind == "workload":
        text = f"found workload with trust: {privacy.trust}, where all models are prefix sums"
        yield place, f"{text}; allowed: banded, buffered, root, tree"
    if noise.sigma is not None:
        text = f"found correlated and sigma with trust: {privacy.trust}"
        yield ("privacy", "noise"), f"{text}; allowed with correlated: multiplier"


def unseen_sum_fits(
    algorithm: Algorithm, privacy: Privacy | None, policy: Policy, codec: Codec
) -> Found:
    """Whole numbers of one round are added up, unweighed, each agent's noise alike in all rounds.

    Floats have no exact sums that masks cancel in.
    """
    if privacy is None or privacy.trust != "secure-sum":
        return
    noise, clip = privacy.noise, privacy.clip
    if getattr(algorithm.parameters, "reply", None) == "model":
        text = "found model with privacy.trust: secure-sum, which adds up what is sent as it is"
        yield ("algorithm", "reply"), f"{text}; allowed: share, change"
    if codec.up.kind != "none" or codec.down.kind != "none":
        text = "found one with privacy.trust: secure-sum, whose numbers are whole ones of their own"
        yield ("codec",), f"{text}; allowed: none, with privacy.secure.bits"
    if clip is not None and clip.noise is not None:
        text = "found one that follows a quantile, with trust: secure-sum, where nobody sees norms"
        yield ("privacy", "clip"), f"{text}; allowed: a number"
    if noise is not None and ((noise.decay or 1.0) != 1.0 or noise.iteration is not None):
        text = "found noise that changes from round to round with trust: secure-sum"
        yield ("privacy", "noise"), f"{text}; allowed: {{multiplier: ...}}, {{sigma: ...}}"
    if noise is not None and noise.correlated is not None:
        text = "found with trust: secure-sum, where each agent draws its share anew"
        yield ("privacy", "noise", "correlated"), f"{text}; allowed: with trust: coordinator"
    odd = policy.kind in ("buffer", "each", "adaptive")
    if odd or policy.late == "carry":
        found = policy.kind if odd else "late: carry"
        text = f"found {found} with privacy.trust: secure-sum, a round's masks and four exchanges"
        yield ("policy",), f"{text}; allowed: all, deadline, quorum, with late: discard"


def secure_sum_is_possible(privacy: Privacy | None) -> Found:
    """Neighbours on both sides of a circle, noise of somebody, and masks that end."""
    if privacy is None or privacy.secure is None:
        return
    secure, place = privacy.secure, ("privacy", "secure")
    if secure.neighbours is not None and secure.neighbours % 2:
        yield (*place, "neighbours"), f"found {secure.neighbours}; allowed: an even number"
    if secure.tolerate >= 1.0:
        text = "found 100 %, so that nobody is left to add noise"
        yield (*place, "tolerate"), f"{text}; allowed: less than 100 %"
    if secure.expand == 0.0:
        yield (*place, "expand"), "found 0, with which no mask is ever there; allowed: more"


def sum_is_charged(
    privacy: Privacy | None, participation: Participation, policy: Policy
) -> Found:  # fmt: skip
    """What no account of sums knows."""
    if privacy is None or not privacy.trusted:
        return
    yield from _budget_holds_late(privacy, policy)
    correlated = privacy.noise is not None and privacy.noise.correlated is not None
    if privacy.budget is not None and (correlated or privacy.target or privacy.secure is not None):
        text = f"found with trust: {privacy.trust}, and correlated noise, a target or sums that "
        text += "nobody sees the parts of"
        yield ("privacy", "budget"), f"{text}; allowed: none of these, or stop.rounds"
    masked = privacy.trust == "secure-sum"  # nobody sees single replies
    if privacy.target and not masked and read_view(privacy.view).kind not in MODELS:
        text = f"found {privacy.view} with privacy.target, to which changes are shown without noise"
        yield ("privacy", "view"), f"{text}; allowed: {', '.join(MODELS[:2])}, ..."
    if participation.power:
        text = f"found {participation.choose} with privacy.trust: {privacy.trust}, so that models "
        text += "tell of losses by who was invited"
        yield ("participation", "choose"), f"{text}; allowed: a choice that reads no losses"


def _budget_holds_late(privacy: Privacy, policy: Policy) -> Found:
    """A budget pays when it calls: in a later sum a reply costs what that one does, or more."""
    noise = privacy.noise
    if privacy.budget is None or noise is None or policy.late != "carry":
        return
    if (noise.decay or 1.0) != 1.0 or noise.iteration is not None:
        text = f"found with trust: {privacy.trust}, replies that are carried to later sums, and "
        text += "noise that changes from round to round"
        yield ("privacy", "budget"), f"{text}; allowed: late: discard, or noise that stays"
