"""What softmax, mlp and models owe the other sections: methods, steps, metrics that fit."""

from typing import Any

from desim.fields import Local
from desim.scenario.sections.algorithm import Algorithm
from desim.scenario.sections.data import Synthetic
from desim.scenario.sections.observe_and_stop import Observe
from desim.scenario.sections.problem import Problem
from desim.scenario.tree import Found

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
    given: Any = algorithm.parameters
    if isinstance(getattr(given, "local", None), Local):
        here, given = ("algorithm", "local"), given.local
    step = getattr(given, "step", None)
    automatic = isinstance(step, str) and step in ("auto", "per-agent")
    if "exact" not in getattr(given, "solvers", ()) and automatic:
        text = f"found {given.step}, but the smoothness of {kind} is not known"
        yield (*here, "step"), f"{text}; allowed: a number > 0"
    fast = "accelerated" in (getattr(given, "solvers", ()) or (getattr(given, "solver", None),))
    if fast and isinstance(getattr(given, "momentum", "auto"), str):
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
