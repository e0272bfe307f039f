"""What the sections of a scenario owe each other: each check names the sections it compares.

A check is a generator of (place, message); its parameters are the sections it needs, and it runs
whenever these are right on their own.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any

from desim.errors import InputError
from desim.fields import Local
from desim.methods.shared.declarations import Kind, Method
from desim.privacy.accounting.views import read_view
from desim.problem.fairness import OF_CLIENTS
from desim.scenario import registry
from desim.scenario.checks import (
    attack_consistency,
    battery_consistency,
    link_consistency,
    tree_consistency,
    trust_consistency,
)
from desim.scenario.sections.algorithm import CHOICES, Algorithm, Participation, Policy
from desim.scenario.sections.battery import Battery
from desim.scenario.sections.data import Synthetic
from desim.scenario.sections.devices import Churn
from desim.scenario.sections.network import Network
from desim.scenario.sections.observe_and_stop import Observe, Stop
from desim.scenario.sections.privacy import Privacy
from desim.scenario.sections.problem import Problem
from desim.scenario.sections.tabular import OwnRows
from desim.scenario.tree import Found


def policy_fits(algorithm: Algorithm, policy: Policy, kind: Kind) -> Found:
    """A method goes on without some replies, or messages, only where its mathematics bears it."""
    method, name, found = algorithm.method, algorithm.name, policy.kind
    graph, known = kind == "graph", method.admitted(kind)
    if found != "all" and found not in known:
        buffered = f"; {found} is a coordinator's" if graph and found == "buffer" else ""
        once = "" if method.calls == 1 else f", as {name} calls agents for more than one thing"
        why = once if found == "adaptive" and "deadline" in known else buffered
        yield ("policy",), f"found {found}{why}; allowed with {name}: {', '.join(known)}"
    elif policy.at_most is not None and "deadline" not in known:
        text = f"found with {name}, which has no use for a wait that ends with fewer replies"
        yield ("policy", "at_most"), f"{text}; allowed: leave it out"


def weights_fit(algorithm: Algorithm, policy: Policy, kind: Kind) -> Found:
    """Replies are weighed by a coordinator whose mathematics bears it."""
    if policy.staleness is None:
        return
    why = "on a graph messages have the weights of the graph" if kind != "coordinator" else ""
    if why := why or algorithm.method.unweighable:
        text = f"found {policy.staleness.kind} with {algorithm.name}, but {why}"
        yield ("policy", "staleness"), f"{text}; allowed: no staleness"


def lateness_fits(policy: Policy, kind: Kind) -> Found:
    """On a graph an agent keeps the newest message of each neighbour, however late it came."""
    if kind == "graph" and policy.late == "discard" and policy.kind not in Policy.words:
        text = "found discard, but on a graph the newest message counts, however late"
        yield ("policy", "late"), f"{text}; allowed: carry"


def models_are_released(
    algorithm: Algorithm, observe: Observe, kind: Kind, churn: Churn | None
) -> Found:  # fmt: skip
    """Metrics of released models need a method that releases models, and one for each round."""
    if observe.models == "own":
        return
    place, name = ("observe", "models"), algorithm.name
    if kind == "coordinator":
        text = "found released with a coordinator, whose model is computed from replies"
        yield place, f"{text}; allowed: own"
    elif algorithm.method.shows() == "own":
        text = f"found released with {name}, which releases no model in every round"
        yield place, f"{text}; allowed: own"
    if observe.iterates:
        text = "found true with models: released, and iterates are models before noise"
        yield ("observe", "iterates"), f"{text}; allowed: false"
    if churn is not None and churn.memory == "lost":
        text = "found released with churn.memory: lost, whose lost rounds release nothing"
        yield place, f"{text}; allowed: own"


def participation_fits(algorithm: Algorithm, participation: Participation) -> Found:
    """Only methods made for it go on without some agents."""
    method = algorithm.method
    if participation.kind != "all" and not (method.kind == "coordinator" and method.partial):
        reason = f"{algorithm.name} needs every agent in every round"
        yield ("participation",), f"found {participation.kind}, but {reason}; allowed: all"


def invitations_fit(participation: Participation, agents: int | None) -> Found:
    """Somebody is active in some round, nobody twice, and no more agents than there are."""
    place, schedule = ("participation", participation.kind), participation.schedule
    if schedule is not None and not any(schedule):
        yield place, "found no agent at all; allowed: at least one"
    if participation.kind == "uniform" and agents is not None and participation.value > agents:
        text = f"found {participation.value} active of {agents} agents"
        yield place, f"{text}; allowed: at most {agents}, the agents"
    apart, each = participation.separation, participation.uniform or participation.invite
    if agents is not None and apart is not None and each is not None and each * apart > agents:
        text = f"found {apart} with {each} of {agents} agents a round, of which none is left after"
        text += f" {-(-agents // each)} rounds"
        allowed = f"1 to {agents // each}" if each <= agents else "fewer agents a round"
        yield ("participation", "separation"), f"{text}; allowed: {allowed}"
    for index, invited in enumerate(schedule or ()):
        if len(set(invited)) < len(invited):
            yield (*place, index), f"found {list(invited)}; allowed: each agent once"
        if agents is not None and max(invited, default=0) >= agents:
            text = f"found agent {max(invited)}; allowed: 0 to {agents - 1}"
            yield (*place, index), text


def replies_suffice(
    participation: Participation, policy: Policy, kind: Kind, agents: int | None
) -> Found:
    """No wait is for more than may come: replies to invitations, or messages of neighbours."""
    rounds = participation.schedule
    most = max(map(len, rounds)) if rounds else None
    invited = participation.uniform or participation.invite or most or agents
    what, from_whom = "replies", "invited agents"
    if kind == "graph" and agents is not None:
        invited, what, from_whom = agents - 1, "messages", "neighbours at most"
    wanted = {policy.kind: policy.value} if policy.kind in ("quorum", "buffer") else {}
    wanted |= {} if policy.at_least is None else {"at_least": policy.at_least}
    for key, number in wanted.items():
        if invited is not None and number > invited:
            text = f"found {number} {what} from {invited} {from_whom}"
            yield ("policy", key), f"{text}; allowed: 1 to {invited}"


def rounds_fit(algorithm: Algorithm, stop: Stop) -> Found:
    """A protocol of one round has no second one."""
    if algorithm.method.once and stop.rounds is not None and stop.rounds > 1:
        text = f"found {stop.rounds}, but {algorithm.name} is over after one round"
        yield ("stop", "rounds"), f"{text}; allowed: 1"


def loss_fits(problem: Problem, algorithm: Algorithm) -> Found:
    """Some methods need gradients that are Lipschitz."""
    name, method = algorithm.name, algorithm.method
    loss, here = problem.loss, ("problem", "loss")
    if method.smooth_only and not loss.smooth:
        text = f"found {loss.kind}, which is not smooth, but {name} needs a smooth loss"
        unsaid = f"; {loss.unsaid}" if loss.unsaid else ""
        yield here, f"{text}; allowed: logistic, squared, huber{unsaid}"
    data = problem.data
    if loss.classification and isinstance(data, Synthetic) and data.kind == "regression":
        text = f"found {loss.kind}, whose labels are -1 and 1, with data of kind regression"
        yield here, f"{text}; allowed: squared, absolute, huber"


def regularizer_fits(problem: Problem, algorithm: Algorithm) -> Found:
    """A box needs a prox, and only a coordinator with a prox can take a regulariser over."""
    name, method = algorithm.name, algorithm.method
    for penalty in problem.regularizer:
        here, kind = ("problem", "regularizer"), penalty.kind
        local = penalty.at == "agents" or not method.has_prox
        if kind == "box" and local:
            lack = f"{name} has none" if not method.has_prox else "at: agents has none"
            yield here, f"found box, which needs a prox, and {lack}; allowed: l2, l1, elastic_net"
        elif penalty.at == "coordinator" and not method.has_prox:
            text = f"found coordinator, but {name} has no prox there; allowed: agents"
            yield (*here, "at"), text
        elif kind in ("l1", "elastic_net") and local and method.smooth_only:
            lack = f"{name} needs smooth agents" + ("" if method.has_prox else " and has no prox")
            yield here, f"found {kind}, which is not smooth, but {lack}; allowed: l2"


def local_training_fits(problem: Problem, algorithm: Algorithm, agents: int | None) -> Found:
    """Exact solves need quadratics, and lists have one entry for each agent."""
    local, here = getattr(algorithm.parameters, "local", None), ("algorithm", "local")
    if not isinstance(local, Local):
        return
    quadratic = problem.loss.kind == "squared" and problem.clip is None
    if "exact" in local.solvers and not quadratic:
        found = f"{problem.loss.kind}{' with clip' if problem.clip else ''}"
        text = f"found exact with loss {found}; allowed: exact with loss squared, not clipped"
        yield (*here, "solver"), text
    for key in ("solver", "step", "momentum"):
        value = getattr(local, key)
        if isinstance(value, tuple) and agents not in (None, len(value)):
            text = f"found {len(value)} entries for {agents} agents"
            yield (*here, key), f"{text}; allowed: one for each agent"
    rows = problem.data.rows if isinstance(problem.data, Synthetic) else None
    if rows and not problem.sizes and local.batch and local.batch > rows:
        text = f"found {local.batch} of {rows} rows; allowed: at most {rows}"
        yield (*here, "batch"), text


def steps_fit(algorithm: Algorithm, policy: Policy, kind: Kind, engine: str) -> Found:
    """Agents of a graph that hear each other's later iterations are in different ones."""
    if kind != "graph" or engine not in ("cohort", "compiled"):
        return
    own = f"{algorithm.name} and " if policy.kind != "each" else ""
    if policy.kind == "each" or (algorithm.method.hears_later and policy.kind != "all"):
        text = f"found {engine} with {own}policy {policy.kind} on a graph"
        yield ("engine",), f"{text}; allowed with it: agents, auto"


def metrics_fit(problem: Problem, observe: Observe) -> Found:
    """Accuracy is a share of test rows whose label is right, of a client of its own test rows."""
    here, data, model = ("observe", "metrics"), problem.data, problem.model
    shares = [name for name in observe.metrics if name in SHARES]
    if shares and model is not None and model.of.labels == "numbers":
        text = f"found {shares[0]} with model {model.name}, whose labels are numbers"
        yield here, f"{text}; allowed with labels that are classes"
    elif shares and not (problem.loss.classification or problem.loss.layered or model):
        text = f"found {shares[0]} with loss {problem.loss.kind}, which classifies nothing"
        yield here, f"{text}; allowed with logistic, hinge, softmax and mlp"
    elif "accuracy" in shares and not getattr(data, "tested", True):
        text = "found accuracy without test rows"
        yield here, f"{text}; allowed: accuracy with problem.data.test above 0"
    own = [name for name in observe.metrics if name in OF_CLIENTS]
    if own and not isinstance(getattr(data, "test", None), OwnRows):
        text = f"found {own[0]} without test rows of clients"
        yield here, f"{text}; allowed with problem.data.test: own, or {{own: share}}"
    if own and observe.sample is not None:
        text = f"found {observe.sample} with {own[0]}, of all of clients' test rows"
        yield ("observe", "sample"), f"{text}; allowed: leave it out"


def target_observed(observe: Observe, stop: Stop) -> Found:
    """A metric that is not measured cannot end a run."""
    for name in stop.targets:
        if name not in observe.metrics:
            text = f"found {name}, which is not measured; allowed: "
            text += ", ".join(observe.metrics) or "none (observe.metrics is empty)"
            yield ("stop", "metric", name), text


# Choices that remember whom they invited.

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


def availability_known(
    participation: Participation, churn: Churn | None, battery: Battery | None
) -> Found:
    """Without churn, and batteries, everybody is up."""
    if participation.of_those_up and churn is None and battery is None:
        key = "choose" if participation.choose == "available" else "available"
        found = "available" if key == "choose" else "true"
        text = f"found {found} without churn, so that everybody is up all the time"
        yield ("participation", key), f"{text}; allowed: with a section churn, or battery"


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


# Softmax, mlp and models of users.

SHARES = ("accuracy", *(name for name in OF_CLIENTS if name != "client_loss"))
NETWORKS = ("mlp", "model")  # kinds of losses that are not convex
LINEAR = "logistic, squared, absolute, huber, hinge"


def models_fit(problem: Problem, algorithm: Algorithm) -> Found:
    """A method that minimises exactly needs a linear model, another one a convex loss."""
    loss, models, here = problem.loss, algorithm.method.models, ("problem", "loss")
    data = problem.data
    if loss.layered and models == "linear":
        text = f"found {loss.kind}, but {algorithm.name} is for linear models"
        yield here, f"{text}; allowed: {LINEAR}"
    elif loss.modelled and models == "linear" and not algorithm.method.values_only:
        text = f"found a model, but {algorithm.name} needs losses of one number a.x"
        yield ("problem", "model"), f"{text}; allowed: problem.loss with {LINEAR}"
    elif loss.kind in NETWORKS and models == "convex":
        text = f"found {loss.kind}, which is not convex, but {algorithm.name} needs a convex loss"
        yield here, f"{text}; allowed: softmax, {LINEAR}"
    if loss.layered and isinstance(data, Synthetic) and data.kind == "regression":
        text = f"found {loss.kind}, whose labels are classes, with data of kind regression"
        yield here, f"{text}; allowed: squared, absolute, huber"
    init = getattr(algorithm.parameters, "init", None)
    if init is not None and init.kind == "model" and not loss.modelled:
        text = "found model without problem.model"
        yield ("algorithm", "init"), f"{text}; allowed: zeros, {{normal: std}}, {{common: std}}"
    if loss.modelled and problem.row_norm is not None:
        text = "found a bound on rows with a model, of which nothing follows from it"
        yield ("problem", "row_norm"), f"{text}; allowed: problem.clip, which bounds gradients"
    if loss.modelled and algorithm.method.values_only and problem.precision != "float64":
        text = f"found {problem.precision}, but {algorithm.name} takes differences of close values"
        yield ("problem", "precision"), f"{text}; allowed: float64"
    if problem.augment and algorithm.method.values_only:
        text = f"found {problem.augment[0].kind}, but {algorithm.name} trains on values of rows"
        yield ("problem", "augment"), f"{text} as they are; allowed: none"
    if problem.device != "cpu" and not loss.modelled:
        text = f"found {problem.device} with loss {loss.kind}"
        yield ("problem", "device"), f"{text}; allowed: cpu (cuda with problem.model)"
    if not (loss.layered or loss.modelled) and problem.precision != "float64":
        text = f"found {problem.precision} with loss {loss.kind}"
        yield (
            ("problem", "precision"),
            f"{text}; allowed: float64 (softmax, mlp, models: float32 too)",
        )


def model_given(problem: Problem) -> Found:
    """Keys that mean something for a model alone."""
    loss, data = problem.loss, problem.data
    if getattr(data, "classes", None) and not loss.modelled:
        text = f"found {getattr(data, 'classes', None)} with loss {loss.kind}"
        cure = f"problem.loss: {{{loss.kind}: {{classes: ...}}}}" if loss.layered else "no classes"
        yield ("problem", "data", "classes"), f"{text}; allowed: {cure} (classes with a model)"
    if problem.augment and not loss.modelled:
        text = f"found {problem.augment[0].kind} with loss {loss.kind}"
        yield ("problem", "augment"), f"{text}; allowed: none (others with problem.model)"


def steps_known(problem: Problem, algorithm: Algorithm) -> Found:
    """Nothing is known of a network's curvature, from which steps and momenta could come."""
    kind = problem.loss.kind
    if kind not in NETWORKS:
        return
    here: tuple[str, ...] = ("algorithm",)
    parameters: Any = algorithm.parameters
    if isinstance(getattr(parameters, "local", None), Local):
        here, parameters = ("algorithm", "local"), parameters.local
    step = getattr(parameters, "step", None)
    automatic = isinstance(step, str) and step in ("auto", "per-agent")
    if "exact" not in getattr(parameters, "solvers", ()) and automatic:
        text = f"found {parameters.step}, but the smoothness of {kind} is not known"
        yield (*here, "step"), f"{text}; allowed: a number > 0"
    fast = "accelerated" in (
        getattr(parameters, "solvers", ()) or (getattr(parameters, "solver", None),)
    )
    if fast and isinstance(getattr(parameters, "momentum", "auto"), str):
        text = f"found accelerated, whose momentum comes from moduli that {kind} does not have"
        yield (*here, "solver"), f"{text}; allowed: gradient, sgd, noisy, or a number for momentum"


def optimum_exists(problem: Problem, observe: Observe) -> Found:
    """The metric error measures from the optimum: there has to be one, and that of what runs."""
    here, loss = ("observe", "metrics"), problem.loss
    if "error" not in observe.metrics:
        return
    allowed = "allowed: loss, accuracy, consensus, gradient"
    if loss.own is not None and (problem.clip is not None or not loss.smooth):
        why = "has kinks" if problem.clip is None else "is clipped"
        text = f"found error with a plug-in's loss that {why}, for which desim has no optimum"
        unsaid = f"; {loss.unsaid}" if loss.unsaid and problem.clip is None else ""
        yield here, f"{text}{unsaid}; {allowed}"
    if not (loss.layered or loss.modelled):
        return
    if loss.kind in NETWORKS:
        what = "a model" if loss.modelled else "loss mlp"
        text = f"found error with {what}, which has no unique optimum"
        yield here, f"{text}; {allowed}"
    elif problem.clip is not None:
        text = "found error with softmax and clip, whose clipped gradients no function has"
        yield here, f"{text}; {allowed}, or error without problem.clip"
    elif any(one.kind != "l2" for one in problem.regularizer):
        text = "found error with softmax and a regularizer other than l2, for which desim has no"
        yield here, f"{text} optimum; {allowed}, or error with l2"


# Noise, its target, its budget and the terms of all three.

MAX_EXPONENT = 700.0  # e^700 is a number, and so is its square root's inverse
CLASSICAL = "{epsilon: ..., delta: ..., composition: ...}"
ALLOTTED = "{kind: ..., epsilon: ...}"


def noise_fits(algorithm: Algorithm, privacy: Privacy | None) -> Found:
    """Some methods are defined with some kinds of noise only."""
    noise = privacy.noise if privacy else None
    kinds = algorithm.method.noises
    if noise is None or (privacy and privacy.trusted):
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
    if privacy is None or privacy.trusted:
        return
    if privacy.neighbours == "add-or-remove-agent":
        text = "found add-or-remove-one with unit agent, whose messages show whether it is there"
        yield ("privacy", "relation"), f"{text}; allowed: replace-one, or trust: coordinator"
    elif privacy.neighbours not in algorithm.method.relations:
        allowed = f"allowed with {algorithm.name}: {', '.join(algorithm.method.relations)}"
        yield ("privacy", "relation"), f"found {privacy.neighbours}; {allowed}"


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


def schedule_fits(privacy: Privacy | None, stop: Stop, network: Network) -> Found:
    """What the schedule {phi, growth} spends in a round grows for ever, but numbers end."""
    noise = privacy.noise if privacy else None
    if noise is None or noise.growth is None or noise.growth >= 1 or stop.rounds is None:
        return
    rounds, phi = stop.rounds * network.edge_rounds, 1.0 if noise.phi is None else noise.phi
    most = (MAX_EXPONENT - math.log(phi)) / -math.log(noise.growth)
    if rounds - 1 > most:
        text = f"found {noise.growth:g}: phi / growth^(n - 1) is beyond every number in round"
        allowed = f"at most {math.floor(most) + 1} rounds, or a growth nearer to 1"
        yield ("privacy", "noise", "growth"), f"{text} {rounds}; allowed: {allowed}"


def noise_known(privacy: Privacy | None) -> Found:
    """Either the noise is given or a target calibrates it, and only one of the two."""
    noise, target = (privacy.noise, privacy.target) if privacy else (None, None)
    if privacy is None or noise is None:
        return
    missing, forms = "phi" if noise.scheduled else "sigma", "{kind, sigma, decay}, {phi, growth}"
    if privacy.trusted and noise.sigma is None and not noise.scheduled:
        missing, forms = "multiplier", "{multiplier, ...}"
        forms += "" if noise.correlated else ", {sigma, ...}"
    if not noise.complete and (target is None or target.calibrated):
        forms += ", or privacy.target without calibrated"
        yield ("privacy", "noise"), f"found no {missing}; allowed: {forms}"
    elif noise.complete and target is not None and not target.calibrated:
        amount = "epsilon" if noise.form in ("classical", "allotted") else missing
        text = f"found together with privacy.noise.{amount}, which it would calibrate"
        yield ("privacy", "target"), f"{text}; allowed: one of them"


def target_plannable(algorithm: Algorithm, privacy: Privacy | None, stop: Stop) -> Found:
    """A target is spread over a number of rounds, and noise alone reaches it."""
    trusted = privacy is not None and privacy.trusted
    if privacy and privacy.target and not (trusted or algorithm.method.proportional):
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


Check = Callable[..., Found]
OTHERS = (
    link_consistency, trust_consistency, battery_consistency, attack_consistency, tree_consistency,
)  # fmt: skip
CHECKS: tuple[Check, ...] = tuple(
    one
    for module in (globals(), *map(vars, OTHERS))
    for name, one in module.items()
    if inspect.isgeneratorfunction(one) and not name.startswith("_")
)
