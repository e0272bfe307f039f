"""What the sections of a scenario owe each other: each check names the sections it compares.

A check is a generator of (place, message); its parameters are the sections it needs, and it runs
whenever these are right on their own.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from desim.fields import Local
from desim.methods.shared.declarations import Kind
from desim.scenario.checks import codec_consistency as codec_consistency
from desim.scenario.checks import invitations
from desim.scenario.checks import link_consistency as link_consistency
from desim.scenario.checks import link_consistency as topology_consistency
from desim.scenario.checks import link_consistency as transport_consistency
from desim.scenario.checks import model_consistency as model_consistency
from desim.scenario.checks import privacy_consistency as privacy_consistency
from desim.scenario.sections.algorithm import Algorithm, Participation, Policy
from desim.scenario.sections.data import Synthetic
from desim.scenario.sections.devices import Churn
from desim.scenario.sections.observe_and_stop import Observe, Stop
from desim.scenario.sections.problem import Problem
from desim.scenario.tree import Found

Check = Callable[..., Any]


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
    """Accuracy is a share of test rows whose label is right."""
    if "accuracy" not in observe.metrics:
        return
    here, data = ("observe", "metrics"), problem.data
    model = problem.model
    if model is not None and model.of.labels == "numbers":
        text = f"found accuracy with model {model.name}, whose labels are numbers"
        yield here, f"{text}; allowed with labels that are classes"
    elif not (problem.loss.classification or problem.loss.layered or model):
        text = f"found accuracy with loss {problem.loss.kind}, which classifies nothing"
        yield here, f"{text}; allowed with logistic, hinge, softmax and mlp"
    elif not getattr(data, "tested", True):
        text = "found accuracy without test rows"
        yield here, f"{text}; allowed: accuracy with problem.data.test above 0"


def target_observed(observe: Observe, stop: Stop) -> Found:
    """A metric that is not measured cannot end a run."""
    for name in stop.targets:
        if name not in observe.metrics:
            text = f"found {name}, which is not measured; allowed: "
            text += ", ".join(observe.metrics) or "none (observe.metrics is empty)"
            yield ("stop", "metric", name), text


def _checks(module: Mapping[str, Any]) -> list[Check]:
    """Every generator of a module that is not its own business."""
    found = [one for name, one in module.items() if not name.startswith("_")]
    return [one for one in found if inspect.isgeneratorfunction(one)]


OTHERS = (
    invitations,
    link_consistency,
    topology_consistency,
    model_consistency,
    privacy_consistency,
    transport_consistency,
    codec_consistency,
)
CHECKS = tuple(one for module in (globals(), *map(vars, OTHERS)) for one in _checks(module))
