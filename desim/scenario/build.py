"""From a checked scenario to a simulation that is ready to be played; data are read here."""

from dataclasses import replace
from typing import Any, Literal

import numpy as np

from desim.engine.inviting import terms_of
from desim.engine.play import Observation, Simulation
from desim.engine.settings import Settings
from desim.errors import InputError, refusal
from desim.methods.shared.method import Ingredients
from desim.network.conditions.choosing import Chooser
from desim.network.conditions.topology import from_edges
from desim.numerics.cache import cache_home
from desim.privacy.ledger.budget import Budget
from desim.privacy.ledger.mechanisms import Noise
from desim.problem.fairness import MEASURES, lacking
from desim.problem.losses.modelled import ModelLoss
from desim.problem.models.checked import said
from desim.problem.models.model import Rows
from desim.problem.optimum import centralised_optimum
from desim.problem.problem import Problem
from desim.scenario import choosing, endings, listening
from desim.scenario.blame import explained
from desim.scenario.calibration import calibrated, noise_of, try_accountant, warnings
from desim.scenario.check import located, unfit_for
from desim.scenario.checks.codec import biased, codecs
from desim.scenario.checks.endless import endless, refuse_endless
from desim.scenario.checks.links import meddling
from desim.scenario.conditions import Conditions
from desim.scenario.layout import Layout
from desim.scenario.observing import heavy, sampled
from desim.scenario.origin import Origin
from desim.scenario.pace import refuse_too_large, settled, uncertain
from desim.scenario.problem_read import initial, read_problem
from desim.scenario.schema import Scenario
from desim.scenario.waiting import policy_of

NUMBERS = 1 << 19  # of models in one job: what a processor's cache holds
SOME = 32  # agents in one job at least, however large their models
Engine = Literal["compiled", "cohort", "agents"]


def build(scenario: Scenario, problem: Problem | None = None) -> Simulation:
    """Read the data, draw network and devices, make the method; InputError if they do not fit.

    problem: that of the scenario, where it is known already.
    """
    try:
        with explained(scenario), np.errstate(all="ignore"):  # what goes wrong is told in words
            return _build(scenario, problem)
    except InputError as error:
        raise located(scenario, error) from None


def _build(scenario: Scenario, known: Problem | None) -> Simulation:
    layout = Layout(scenario) if scenario.kind == "graph" else None
    problem, merged = known, list[str]()
    if problem is None:
        problem, merged = read_problem(scenario, None if layout is None else layout.agents)
    noise = noise_of(scenario)
    _check(scenario, problem, noise)
    refuse_too_large(scenario, problem)
    scenario = settled(scenario, problem)
    settings = _settings(scenario, problem, layout)
    made = _made(scenario, scenario.algorithm.method, settings, noise)
    made.warnings += [
        *warnings(scenario, problem.rows),
        *merged,
        *_identical(scenario, problem),
        *biased(settings.codecs),
    ]
    made.warnings += [*endless(settings), *uncertain(scenario), *choosing.warnings(scenario)]
    made.warnings += [*endings.warnings(scenario), *listening.warnings(scenario)]
    settings = _planned(made, settings)
    try_accountant(scenario, made.planned(1), problem.rows)
    engine, why = _engine(scenario, made)
    observation = _observation(scenario, problem)
    if scenario.kind == "coordinator":
        made.warnings += heavy(observation, settings)
    origin = Origin(scenario, _fitted, read_problem)
    listeners = tuple(one.one for one in scenario.listeners)
    return Simulation(made, settings, observation, engine, why, origin=origin, listeners=listeners)


def _settings(scenario: Scenario, problem: Problem, layout: Layout | None) -> Settings:
    """What engines play: the problem on the network and the devices, and when it ends."""
    conditions, stop = Conditions(scenario, problem.agents), scenario.stop
    return Settings(
        seed=scenario.seed,
        problem=problem,
        initial=initial(scenario, problem),
        **_wires(scenario, problem.agents, layout, conditions),
        speeds=conditions.speeds(),
        intake=conditions.intake(),
        codecs=codecs(scenario),
        participation=conditions.participation(),
        policy=policy_of(scenario),
        rounds=np.inf if stop.rounds is None else stop.rounds,
        horizon=np.inf if stop.time is None else stop.time,
        targets=tuple(stop.targets.items()),
        churn=conditions.churn(),
        batch_limit=max(SOME, NUMBERS // problem.dim),
        budget=_budget(scenario),
        log=scenario.log,
        later=scenario.hears_later,
    )


def _wires(
    scenario: Scenario, agents: int, layout: Layout | None, conditions: Conditions
) -> dict[str, Any]:
    """Graph and links between agents, or links to and from a coordinator, as settings name them."""
    if scenario.kind == "coordinator":
        everybody, hub = np.arange(agents), np.full(agents, -1)
        up = conditions.links(everybody, hub, "uplink")
        return {"uplinks": up, "downlinks": conditions.links(hub, everybody, "downlink")}
    if layout is None:
        graph = from_edges(1, [], "network.topology")
        return {"graph": graph, "links": conditions.links(graph.source, graph.target)}
    if agents < 2:
        raise InputError(f"problem.agents: {refusal(agents, 'at least 2, to make a graph')}")
    graph, links, changing = layout.laid(agents, conditions)
    return {"graph": graph, "links": links, "changing": changing}


def _fitted(scenario: Scenario, kind: Any, settings: Settings) -> Any:
    """The method of class `kind` on other settings of the scenario; InputError as in `build`."""
    noise = noise_of(scenario)
    _check(scenario, settings.problem, noise)
    return _made(scenario, kind, settings, noise)


def _made(scenario: Scenario, kind: Any, settings: Settings, noise: Noise | None) -> Any:
    """The method with the noise that the target asks for; InputError if no release is paid for."""

    def make(noise: Noise | None) -> Any:
        return kind(Ingredients(scenario.algorithm.parameters, settings, noise))

    made = calibrated(scenario, make, noise, settings.problem.rows)
    _affordable(made, _planned(made, settings))
    return made


def _planned(made: Any, settings: Settings) -> Settings:
    """The settings, whose budget knows whether the method plans its releases beforehand."""
    if settings.budget is None:
        return settings
    return replace(settings, budget=replace(settings.budget, fixed=made.planned(1) is not None))


def check(scenario: Scenario) -> Simulation:
    """Build all but the optimum, which takes time; InputError as in `build`."""
    observe = scenario.observe.model_copy(
        update={"metrics": tuple(m for m in scenario.observe.metrics if m != "error")}
    )
    stop = scenario.stop.model_copy(
        update={"metric": tuple(t for t in scenario.stop.targets.items() if t[0] != "error")}
    )
    made = build(scenario.model_copy(update={"observe": observe, "stop": stop}))
    refuse_endless(scenario, made)
    return made


def _budget(scenario: Scenario) -> Budget | None:
    terms = scenario.privacy
    if terms is None or terms.budget is None:
        return None
    return Budget(terms.budget, terms.delta, terms.relation, terms.on_exhausted or "retire")


def _affordable(made: Any, settings: Settings) -> None:
    """Raise InputError if some agent's budget does not even allow the first release."""
    budget, first, rows = settings.budget, made.planned(1), settings.problem.rows
    losses = getattr(settings.participation, "losses", None)
    if budget is not None and first is not None:
        found = budget.problems(first, rows, losses and terms_of(losses, rows))
        if found:
            raise InputError(found)


def _check(scenario: Scenario, problem: Problem, noise: Noise | None) -> None:
    """Raise InputError for everything that only the data can tell to be impossible."""
    method, metrics = scenario.algorithm.method, scenario.observe.metrics
    found = [*method.problems(scenario.algorithm.parameters, problem, noise)]
    found += unfit_for(problem.agents, scenario)
    lacks = [lacking(name, problem) for name in metrics if name in MEASURES]
    if "accuracy" in metrics and (problem.test_A is None or not len(problem.test_A)):
        lacks.append("accuracy needs test rows; set problem.data.test")
    found += [f"observe.metrics: {text}" for text in lacks if text]
    if found:
        raise InputError(found)
    if "accuracy" in metrics and isinstance(problem.loss, ModelLoss):
        tested: Any = problem.test_A, problem.test_b
        said(problem.loss.model, problem.loss.start, Rows(*tested))


def _identical(scenario: Scenario, problem: Problem) -> list[str]:
    """A warning where all hidden units of a network start, and so stay, the same."""
    init = getattr(scenario.algorithm.parameters, "init", None)
    same = init is None or init.kind == "zeros" or (init.kind == "normal" and init.value == 0.0)
    own = init is None and isinstance(problem.loss, ModelLoss)  # it starts where the model says
    if problem.loss.convex or not same or own:
        return []
    still = "from zeros all hidden units stay equal"
    if init is None:
        name = scenario.algorithm.name
        return [f"problem.loss: {still}, and {name} has no parameter init: Init to start elsewhere"]
    return [f"algorithm.init: {still}; give {{normal: std}} or a file"]


def _engine(scenario: Scenario, made: Any) -> tuple[Engine, str]:
    """Choose the engine and say why."""
    if scenario.hears_later:
        return "agents", "agents that do not wait for all hear each other's later iterations"
    if why := meddling(scenario.kind, scenario.policy, scenario.churn):
        return "agents", why
    if scenario.engine == "agents":
        return "agents", "the scenario asks for it"
    sides = ("link",) if scenario.kind == "graph" else ("uplink", "downlink")
    if any(scenario.network.shared(which) != "none" for which in sides):
        return "agents", "messages that share bandwidth hold each other up"
    if scenario.engine == "cohort":
        return "cohort", "the scenario asks for it"
    why = _uncompiled(scenario, made)
    if scenario.engine == "compiled" and why:
        raise InputError(f"engine: found compiled, but {why}; allowed: cohort, agents or auto")
    if why:
        return "cohort", "all durations are known when they begin"
    return "compiled", "all durations are known when they begin"


def _uncompiled(scenario: Scenario, made: Any) -> str:
    """Why no engine without Python inside a round can run this; empty if one can."""
    name = scenario.algorithm.method.name
    if differs := type(made).overrides():
        return f"{name} has a function {differs} of its own"
    if made.kind != "coordinator" or made.compiled() is None:
        return f"{name} with these settings has no compiled rounds"
    settings = made.settings
    if text := listening.inside(scenario):
        return text
    if isinstance(settings.participation, Chooser):
        return "whom participation.choose invites is decided in Python, by what came before"
    if not settings.codecs.plain:
        return "messages of a codec are coded in Python"
    if settings.budget is not None:
        return "who may go on within privacy.budget is decided in Python"
    if settings.churn is not None and settings.horizon == np.inf and settings.policy.kind != "all":
        if np.isfinite(settings.churn.longest).any():
            return "without stop.time, agents may turn out never to be done"
    return ""


def _observation(scenario: Scenario, problem: Problem) -> Observation:
    observe = scenario.observe
    wanted = {*observe.metrics, *scenario.stop.targets}
    optimum = centralised_optimum(problem, cache_home() / "optima").x if "error" in wanted else None
    every = 0.0 if observe.every == "round" else float(observe.every)
    sample, marks = sampled(scenario, problem), observe.checkpoints or ()
    noisy = observe.models == "released" and scenario.algorithm.method.shows() == "next"
    return Observation(observe.metrics, every, observe.iterates, optimum, sample, marks, noisy)
