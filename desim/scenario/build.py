"""From a checked scenario to a simulation that is ready to be played; data are read here.

Steps, noise that a target asks for, and features whose scaling is estimated are functions of the
rows. A simulation on neighbouring data has those of its own rows, as a run of them would have.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int
from desim.engine.inviting import terms_of
from desim.engine.play import Observation, Simulation
from desim.engine.settings import Settings
from desim.errors import InputError, refusal
from desim.log.event_log import Outcome
from desim.methods.shared.declarations import Ingredients
from desim.network.conditions.choosing import Chooser
from desim.network.conditions.topology import (
    Changing,
    Contacts,
    Edges,
    Graph,
    Listed,
    Redrawn,
    from_edges,
    generate,
    read_graphml,
    recorded,
    switched,
)
from desim.network.timeline.computations import Calendar
from desim.network.timeline.messages import Links
from desim.numerics import keys
from desim.numerics.cache import cache_home
from desim.numerics.keys import Stream
from desim.privacy.ledger.budget import Budget
from desim.privacy.ledger.mechanisms import Noise
from desim.problem.data.table import Draw, scaling
from desim.problem.fairness import MEASURES, OF_CLIENTS, lacking
from desim.problem.losses.model_loss import ModelLoss
from desim.problem.models.checked import said
from desim.problem.models.user_model import Rows
from desim.problem.optimum import centralised_optimum
from desim.problem.problem import Problem
from desim.scenario import disclosures, harm
from desim.scenario.batteries import batteries
from desim.scenario.branching import branched, in_turn
from desim.scenario.chaining import chained, remembers, useless
from desim.scenario.check import explained, located, unfit_for
from desim.scenario.checks.endless import endless, refuse_endless
from desim.scenario.checks.link_consistency import biased, meddling
from desim.scenario.conditions import Conditions, outlives, policy_of
from desim.scenario.noise_target import (
    calibrated,
    noise_of,
    refuse_too_large,
    settled,
    try_accountant,
    uncertain,
    warnings,
)
from desim.scenario.problem_read import initial, read_problem
from desim.scenario.schema import Scenario
from desim.scenario.trusting import trusted
from desim.scenario.watts import power

# Which engine plays a scenario, and why: the event loop, a round at a time, or compiled rounds.


Engine = Literal["compiled", "cohort", "agents"]
NOISED = "none", "gaussian", "clipped-gaussian"  # how compiled replies may be


def engine_of(scenario: Scenario, method: Any) -> tuple[Engine, str]:
    """Choose the engine and say why."""
    if scenario.hears_later:
        return "agents", "agents that do not wait for all hear each other's later iterations"
    if why := meddling(scenario.kind, scenario.policy, scenario.leaving):
        return "agents", why
    if scenario.engine == "agents":
        return "agents", "the scenario asks for it"
    sides = ("link",) if scenario.kind == "graph" else ("uplink", "downlink")
    if any(scenario.network.shared(which) != "none" for which in sides):
        return "agents", "messages that share bandwidth hold each other up"
    if scenario.engine == "cohort":
        return "cohort", "the scenario asks for it"
    why = _uncompiled(scenario, method)
    if scenario.engine == "compiled" and why:
        raise InputError(f"engine: found compiled, but {why}; allowed: cohort, agents or auto")
    if why:
        return "cohort", "all durations are known when they begin"
    return "compiled", "all durations are known when they begin"


def _uncompiled(scenario: Scenario, method: Any) -> str:
    """Why no engine without Python inside a round can run this; empty if one can."""
    name = scenario.algorithm.method.name
    if method.kind == "graph":
        if scenario.observe.models == "released" and type(method).shows() == "next":
            return "models are observed with their noise"
        from desim.engine.compiled.graph import uncompiled

        if remembers(method.noise):
            return "noise that is correlated over rounds is drawn in Python"
        why = disclosures.inside(scenario) or harm.compiled_not(scenario)
        why = why or uncompiled(method.agents, method.settings)
        return why and f"{name} with these settings has no compiled rounds: {why}"
    if differs := type(method).overrides():
        return f"{name} has a function {differs} of its own"
    rounds = method.compiled() if method.kind == "coordinator" else None
    if rounds is None:
        return f"{name} with these settings has no compiled rounds"
    settings = method.settings
    if settings.tree is not None:
        return "edges of a tree play rounds of their own"
    if text := disclosures.inside(scenario) or harm.compiled_not(scenario):
        return text
    if isinstance(settings.participation, Chooser):
        key = scenario.participation.kind  # choose, or uniform with a separation
        return f"whom participation.{key} invites is decided in Python, by what came before"
    if any(one.lossy for one in settings.codecs) and hasattr(rounds.formulas, "messages"):
        return "messages of two parts are coded in Python"
    noise = (rounds.terms or rounds.local.terms).mechanism.name.lower().replace("_", "-")
    if not rounds.local.noisy and noise not in NOISED:
        return f"noise that is {noise} is drawn in Python"
    if settings.budget is not None:
        return "who may go on within privacy.budget is decided in Python"
    if settings.trust is not None:
        return "what a trusted coordinator sums up is clipped and noised in Python"
    if settings.churn is not None and settings.horizon == np.inf and settings.policy.kind != "all":
        if np.isfinite(settings.churn.longest).any():
            return "without stop.time, agents may turn out never to be done"
    return ""


# The graph of agents by `network.topology`: one for the run, or one for every round.

WHERE = "network.topology"


class Layout:
    """Who can talk to whom; agents: how many that takes, None where it does not say."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario, self.topology = scenario, scenario.network.topology
        self.directed, value = bool(self.topology.directed), self.topology.value
        self.edges: Edges | None = None
        self.contacts: Contacts | None = None
        self.agents: int | None = None
        match self.topology.kind:
            case "graph":
                self.agents, self.edges = read_graphml(value)
                return
            case "grid":
                self.agents = value[0] * value[1]
            case "contacts":
                self.contacts = recorded(value, f"{WHERE}.contacts")
                self.edges = self.contacts.edges
            case "switching":
                self.edges = [pair for edges in value for pair in edges]
                if isinstance(self.topology.every, float):
                    self.contacts = switched(value, self.topology.every, self.directed)
            case "edges":
                self.edges = [*value]
        if self.edges is not None:
            least = max((end for pair in self.edges for end in pair), default=-1) + 1
            self.agents = max(least, scenario.problem.agents or 0)

    def laid(self, agents: int, conditions: Conditions) -> tuple[Graph, Links, Changing | None]:
        """Graph and links of `agents` agents, of the first round where they change by rounds.

        InputError where they are disconnected, all rounds together, or do not fit the agents.
        """
        topology, edges = self.topology, self.edges
        drawn = topology.kind, topology.value, agents, self.scenario.seed
        turns: Listed | Redrawn = Redrawn(*drawn)
        if topology.redraw != "round":
            laid = generate(*drawn) if edges is None else edges
            graph = from_edges(agents, laid, WHERE, self.directed)
            if not topology.per_round:
                links = conditions.on(graph)
                if self.contacts is not None:
                    end, horizon = topology.end, self.scenario.stop.time
                    outlives(end, horizon, self.contacts.lap, f"{WHERE}.contacts", "time")
                    links = self.contacts.along(links)
                return graph, links, None
            turns = self._listed(agents)
        changing = Changing(turns, conditions.on)
        return *changing.at(1), changing

    def _listed(self, agents: int) -> Listed:
        """The graphs of rounds, in turn."""
        turns: Sequence[Edges] = [[*edges] for edges in self.topology.switching or ()]
        lasting = self.topology.lasting
        if self.contacts is not None:
            assert self.topology.round is not None
            turns, lasting = self.contacts.slots(self.topology.round), 1
            outlives(self.topology.end, self.scenario.stop.rounds, len(turns), f"{WHERE}.contacts")
        make = partial(from_edges, agents, where=WHERE, directed=self.directed, connected=False)
        return Listed([make(edges=edges) for edges in turns], lasting)


# What observing a coordinator's rounds costs, where it will take longer than the training.

HEAVY = 1e10  # numbers read: some ten seconds
TIMES = 10  # what the training reads, in one step of those whose replies are awaited


def sampled(scenario: Scenario, problem: Problem) -> Int | None:
    """Which test rows are measured, ascending; None for all. InputError where that has no meaning.

    They are a function of the seed and of how many there are.
    """
    size, tested = scenario.observe.sample, problem.test_A
    if size is None:
        return None
    wanted = [*scenario.observe.metrics, *scenario.stop.targets]
    named = [name for name in wanted if name == "accuracy" or name in MEASURES]
    if not named:
        text = f"found {size} without a metric of test rows"
        raise InputError(f"observe.sample: {text}; allowed: with accuracy, or leave it out")
    if tested is None or size >= len(tested):
        return None
    found = keys.subset(scenario.seed, Stream.DATA, len(tested), size, round=Draw.MEASURED)
    few = problem.tested_on(found)
    for name in named:
        if name in MEASURES and (text := lacking(name, few)):
            raise InputError(f"observe.sample: found {size} rows, of which {text}; allowed: more")
    return np.asarray(found)


def heavy(observation: Observation, settings: Settings) -> list[str]:
    """A warning where metrics of every round read far more numbers than the training does."""
    if observation.every or settings.rounds == float("inf"):
        return []
    problem, policy, rounds = settings.problem, settings.policy, settings.rounds
    awaited = policy.number(problem.agents)
    trained = rounds * awaited / problem.agents * problem.A.size
    costs = {
        name: rounds * _numbers(name, problem, observation.sample) for name in observation.metrics
    }
    if observation.iterates:
        costs["iterates"] = rounds * problem.agents * problem.dim
    dear = [name for name, cost in costs.items() if cost > max(HEAVY, TIMES * trained)]
    if not dear:
        return []
    total = sum(costs[name] for name in dear)
    cures = ["set observe.every to a duration such as 10 s"] if dear != ["iterates"] else []
    cures += ["leave observe.iterates out"] if "iterates" in dear else []
    return [
        f"observe: {', '.join(dear)} of each of {rounds:g} rounds take {total:.1g} numbers, the "
        f"training {trained:.1g} in each local step; {' and '.join(cures)}"
    ]


def _numbers(name: str, problem: Problem, sample: Int | None) -> int:
    """How many numbers one value of a metric reads; an error is kept up reply by reply."""
    if name == "error":
        return 0
    if name == "consensus":
        return problem.agents * problem.dim
    if name in ("loss", "gradient"):
        return int(problem.A.size)
    tested = problem.test_A if sample is None else problem.tested_on(sample).test_A
    return 0 if tested is None else int(tested.size)


# The origin of a simulation: what of it follows from the data, and is new for other data.

ESTIMATED = ("standard", "minmax", "max", "unit-ball")  # scales that come from the training rows


@dataclass(frozen=True)
class Origin:
    """A scenario, and features before preparation, by row, that take the place of its own."""

    scenario: Scenario
    raw: Mapping[int, Array] = field(default_factory=dict)

    @property
    def estimated(self) -> bool:
        """Whether every row takes part in how the others are scaled."""
        return getattr(self.scenario.problem.data, "scale", "none") in ESTIMATED

    def method(self, kind: Any, settings: Settings) -> Any:
        """The method of class `kind` on the problem of `settings`, with the noise due to it.

        InputError where a run of this problem would be refused.
        """
        scenario = self._uncalibrated()
        noise = noise_of(scenario)
        _check(scenario, settings.problem, noise)
        return _method(scenario, kind, settings, noise)

    def prepared(self, problem: Problem, place: int, features: Array) -> tuple["Origin", Problem]:
        """Itself and the problem, with other features (features,) of the row `place` from 0.

        features: as the data at hand would be prepared; what they were before that replaces the row
        in the data, and all rows are prepared anew.
        """
        replaced = dict(self.raw)
        section: Any = self.scenario.problem.data

        def change(rows: NDArray[Any], order: NDArray[np.int64]) -> Array:
            raw = np.array(rows, float)
            for one, known in replaced.items():
                raw[order[one]] = known
            shift, width = scaling(raw, section.scale)
            own = features[1:] if section.intercept else features
            replaced[place] = shift + own * np.where(np.isfinite(width), width, 0.0)
            raw[order[place]] = replaced[place]
            return raw

        nodes = problem.agents if self.scenario.kind == "graph" else None
        anew = read_problem(self.scenario, nodes, change, problem.loss)[0]
        return replace(self, raw=replaced), replace(problem, A=anew.A, test_A=anew.test_A)

    def _uncalibrated(self) -> Scenario:
        """The scenario whose target sets the noise, though the noise of its own data is stored."""
        privacy = self.scenario.privacy
        if privacy is None or privacy.target is None or not privacy.target.calibrated:
            return self.scenario
        target = privacy.target.model_copy(update={"calibrated": False})
        uncalibrated = privacy.model_copy(update={"target": target})
        return self.scenario.model_copy(update={"privacy": uncalibrated})


# The building itself, and the checks that need the data.

NUMBERS = 1 << 19  # of models in one job: what a processor's cache holds
SOME = 32  # agents in one job at least, however large their models


class Unsettled(Simulation):
    """A simulation whose agents have batteries, before it is known when these are empty."""

    def play(self, *_: Any, **more: Any) -> Outcome:
        """InputError: nobody knows yet who is up."""
        text = "found a section, and nothing but runs of their own look for when it is empty"
        raise InputError(f"battery: {text}; allowed: desim run, study or tune, or none")


def build(
    scenario: Scenario, problem: Problem | None = None, turns: Calendar | None = None
) -> Simulation:
    """Read the data, draw network and devices, make the method; InputError if they do not fit.

    problem: that of the scenario, where it is known already; turns: when agents are up, where more
    than `churn` decides that; a scenario with batteries is not played without it.
    """
    try:
        with explained(scenario), np.errstate(all="ignore"):  # what goes wrong is told in words
            return _build(scenario, problem, turns)
    except InputError as error:
        raise located(scenario, error) from None


def _build(scenario: Scenario, known: Problem | None, turns: Calendar | None) -> Simulation:
    layout = Layout(scenario) if scenario.kind == "graph" else None
    problem, merged = known, list[str]()
    if problem is None:
        problem, merged = read_problem(scenario, None if layout is None else layout.agents)
    noise = noise_of(scenario)
    _check(scenario, problem, noise)
    refuse_too_large(scenario, problem)
    scenario = settled(scenario, problem)
    settings = _settings(scenario, problem, layout, turns)
    settings = branched(scenario, harm.harmed(scenario, trusted(scenario, settings)))
    settings = harm.heard(scenario, settings)
    method = _method(scenario, scenario.algorithm.method, settings, noise)
    method.warnings += [
        *warnings(scenario, problem.rows),
        *merged,
        *_identical(scenario, problem),
        *biased(settings.codecs),
    ]
    method.warnings += [*endless(settings), *uncertain(scenario), *disclosures.of_losses(scenario)]
    method.warnings += [*disclosures.of_endings(scenario), *disclosures.of_listeners(scenario)]
    method.warnings += [*harm.unborne(scenario, settings), *harm.uncounted(scenario)]
    settings = replace(_planned(method, settings), hung=(*settings.hung, *method.hung))
    settings = in_turn(scenario, settings, method)
    try_accountant(scenario, method.planned(1), problem.rows)
    engine, why = engine_of(scenario, method)
    observation = _observation(scenario, problem)
    if scenario.kind == "coordinator":
        method.warnings += heavy(observation, settings)
    listeners = (
        *harm.listening(scenario, problem.agents), *(one.one for one in scenario.listeners)
    )  # fmt: skip
    kind = Unsettled if scenario.battery is not None and turns is None else Simulation
    return kind(
        method, settings, observation, engine, why, origin=Origin(scenario), listeners=listeners
    )


def _settings(
    scenario: Scenario, problem: Problem, layout: Layout | None, turns: Calendar | None
) -> Settings:
    """What engines play: the problem on the network and the devices, and when it ends."""
    conditions, stop = Conditions(scenario, problem.agents, turns), scenario.stop
    power(scenario, problem.agents)  # for afterwards: lists of another length are refused here
    batteries(scenario, problem.agents)
    return Settings(
        seed=scenario.seed,
        problem=problem,
        initial=initial(scenario, problem),
        **_wires(scenario, problem.agents, layout, conditions),
        speeds=conditions.speeds(),
        intake=conditions.intake(),
        codecs=scenario.codec.codecs(scenario.algorithm.method.messages == "models"),
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
        return {"graph": graph, "links": conditions.on(graph)}
    if agents < 2:
        raise InputError(f"problem.agents: {refusal(agents, 'at least 2, to make a graph')}")
    graph, links, changing = layout.laid(agents, conditions)
    return {"graph": graph, "links": links, "changing": changing}


def _method(scenario: Scenario, kind: Any, settings: Settings, noise: Noise | None) -> Any:
    """The method with the noise that the target asks for; InputError if no release is paid for."""

    def make(noise: Noise | None) -> Any:
        return kind(Ingredients(scenario.algorithm.parameters, settings, noise))

    noise = chained(scenario, settings, noise, make)
    method = calibrated(scenario, make, noise, settings.problem.rows)
    method.warnings += useless(scenario, method.noise)
    if settings.trust is None:
        _affordable(method, _planned(method, settings))
    else:
        method.coordinator = settings.trust.program(method.coordinator)
    return harm.clipping(scenario, method)


def _planned(method: Any, settings: Settings) -> Settings:
    """The settings, whose budget knows whether the method plans its releases beforehand."""
    if settings.budget is None:
        return settings
    return replace(settings, budget=replace(settings.budget, fixed=method.planned(1) is not None))


def check(scenario: Scenario) -> Simulation:
    """Build all but the optimum, which takes time; InputError as in `build`."""
    observe = scenario.observe.model_copy(
        update={"metrics": tuple(m for m in scenario.observe.metrics if m != "error")}
    )
    stop = scenario.stop.model_copy(
        update={"metric": tuple(t for t in scenario.stop.targets.items() if t[0] != "error")}
    )
    simulation = build(scenario.model_copy(update={"observe": observe, "stop": stop}))
    refuse_endless(scenario, simulation)
    return simulation


def _budget(scenario: Scenario) -> Budget | None:
    terms = scenario.privacy
    if terms is None or terms.budget is None:
        return None
    return Budget(terms.budget, terms.delta, terms.neighbours, terms.on_exhausted or "retire")


def _affordable(method: Any, settings: Settings) -> None:
    """Raise InputError if some agent's budget does not even allow the first release."""
    budget, first, rows = settings.budget, method.planned(1), settings.problem.rows
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
    if names := [name for name in metrics if name in OF_CLIENTS]:
        from desim.problem import own_tests

        lacks += [own_tests.lacking(name, problem) for name in names]
    found += [f"observe.metrics: {text}" for text in lacks if text]
    if found:
        raise InputError(found)
    if {"accuracy", *OF_CLIENTS}.intersection(metrics) and isinstance(problem.loss, ModelLoss):
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


def _observation(scenario: Scenario, problem: Problem) -> Observation:
    observe = scenario.observe
    wanted = {*observe.metrics, *scenario.stop.targets}
    optimum = centralised_optimum(problem, cache_home() / "optima").x if "error" in wanted else None
    every = 0.0 if observe.every == "round" else float(observe.every)
    sample, marks = sampled(scenario, problem), observe.checkpoints or ()
    noisy = observe.models == "released" and scenario.algorithm.method.shows() == "next"
    return Observation(observe.metrics, every, observe.iterates, optimum, sample, marks, noisy)
