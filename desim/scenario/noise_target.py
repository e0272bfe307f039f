"""What a scenario leaves open, once it is settled: speeds, work, and the noise of a target.

What is measured or counted is done once and written into what a run stores: a measured number is
another one each time, and a run, its replay, its resume and every host play that one.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from desim.amounts import size
from desim.arrays import Array
from desim.columns import Words
from desim.errors import InputError, refusal
from desim.numerics.distributions import Distribution, draw
from desim.numerics.keys import Stream
from desim.privacy.accounting.noise_scale import Target, factor, planned
from desim.privacy.accounting.plugged import answered
from desim.privacy.accounting.prices import OF_AGENTS, prices
from desim.privacy.ledger.ledger import MECHANISMS, Terms
from desim.privacy.ledger.mechanisms import (
    Allotted,
    Classical,
    DiscreteGaussian,
    DynamicZcdp,
    Gaussian,
    L2Laplace,
    Laplace,
    Noise,
)
from desim.privacy.papers.conversions import per_round
from desim.problem import step_costs
from desim.problem.problem import Problem
from desim.scenario import registry
from desim.scenario.schema import Scenario
from desim.scenario.sections.devices import MeasuredSpeed, Work
from desim.scenario.sections.privacy import ALLOTTED

# What is measured or counted.

UNSURE = 0.2  # a spread of what was timed that is worth a warning
MEMORY = 6  # sub-counter of the draws of memories, apart from those of speeds and overheads


def settled(scenario: Scenario, problem: Problem) -> Scenario:
    """The scenario with the speed measured here, and the operations counted, that it asks for."""
    changes: dict[str, object] = {}
    compute = scenario.compute
    if unmeasured(scenario) and isinstance(compute.speed, MeasuredSpeed):
        found = step_costs.speed_here(problem, step_costs.batch_of(scenario.algorithm.parameters))
        timing = compute.speed.measured.model_copy(update=found._asdict())
        changes["speed"] = MeasuredSpeed(measured=timing)
    if compute.work.word == "flops":
        changes["work"] = Work.of({"flops": _counted(problem)})
    if not changes:
        return scenario
    return scenario.model_copy(update={"compute": compute.model_copy(update=changes)})


def unmeasured(scenario: Scenario) -> bool:
    """Whether its speed is yet to be measured."""
    law = scenario.compute.speed
    return isinstance(law, MeasuredSpeed) and law.measured.rate is None


def require_measured(scenario: Scenario, what: str) -> None:
    """InputError for a speed that each of many runs would measure anew, beside the others."""
    if unmeasured(scenario):
        text = f"found measured without a rate, which every run of {what} would measure anew"
        cure = "{measured: {rate: ...}}, the one that desim check SCENARIO says"
        raise InputError(f"compute.speed: {text}; allowed: {cure}")


def uncertain(scenario: Scenario) -> list[str]:
    """A warning where the steps that were timed took very different times."""
    law = scenario.compute.speed
    spread = law.measured.spread if isinstance(law, MeasuredSpeed) else None
    if spread is None or spread <= UNSURE:
        return []
    text = f"the steps that were timed spread by {100.0 * spread:.2g} %, as beside other programs"
    return [f"compute.speed: {text}; measure again where there are none, or give the rate"]


def _counted(problem: Problem) -> float:
    found = step_costs.operations(problem)
    if not found:
        text = f"found flops with {problem.loss.name}, which does not count any"
        raise InputError(f"compute.work: {text}; allowed: {{flops: operations of one row}}")
    return found


def refuse_too_large(scenario: Scenario, problem: Problem) -> None:
    """InputError for the first agent whose memory a step does not fit."""
    if scenario.compute.memory is None:
        return
    have = _memories(scenario, problem.agents)
    batch = step_costs.batch_of(scenario.algorithm.parameters)
    need, rows = step_costs.memory(problem, batch), step_costs.step_rows(problem, batch)
    lacking = np.flatnonzero(need > have)
    if not len(lacking):
        return
    first = int(lacking[0])
    others = f"{len(lacking) - 1} other{'s have' if len(lacking) > 2 else ' has'} too little"
    more = f"; {others}" if len(lacking) > 1 else ""
    text = f"agent {first} has {size(have[first])}, and a step on {rows[first]} rows needs "
    text += f"{size(need[first])} ({problem.dim} parameters, {problem.precision}){more}"
    cures = f"at least {size(need.max())}, a smaller model, or smaller batches"
    raise InputError(f"compute.memory: {text}; allowed: {cures}")


def _memories(scenario: Scenario, agents: int) -> Array:
    """Bytes (agents,) that agents have."""
    law = scenario.compute.memory
    if isinstance(law, Distribution):
        who = np.arange(agents)
        return np.asarray(draw(law, scenario.seed, Stream.SPEED, agent=who, step=MEMORY))
    if law is None or len(law) != agents:
        text = f"found {0 if law is None else len(law)} entries for {agents} agents"
        raise InputError(f"compute.memory: {text}; allowed: one for each agent")
    return np.array(law)


Rows = NDArray[np.int64]
# The noise as written, or as its target says; and the accountant, asked once.

PLANNED = 1_000_000
AGREES = 1e-5  # relative, of a calibrated amount in a stored scenario


def noise_of(scenario: Scenario) -> Noise | None:
    """The method's noise, None for none; of deviation 1 (phi: 1) where a target sets it."""
    privacy = scenario.privacy
    written = None if privacy is None or privacy.trusted else privacy.noise
    if written is None:
        return None
    if written.form == "classical":
        return _classical(written, scenario.agent_rounds)
    if written.form == "allotted":
        return Allotted(**{key: getattr(written, key) for key in ALLOTTED})
    if written.scheduled:
        return DynamicZcdp(1.0 if written.phi is None else written.phi, written.growth or 1.0)
    sigma, decay = 1.0 if written.sigma is None else written.sigma, written.decay or 1.0
    schedule: dict[str, Any] = {"period": written.period or 1, "iteration": written.iteration}
    if sigma == 0.0:
        return None
    if written.kind == "discrete-gaussian":
        return DiscreteGaussian(sigma, decay, written.resolution or 1.0, **schedule)
    kinds: dict[str | None, Any] = {"laplace": Laplace, "l2-laplace": L2Laplace}
    return cast("Noise", kinds.get(written.kind, Gaussian)(sigma, decay, **schedule))


def _classical(written: Any, rounds: int | None) -> Classical:
    """The classical Gaussian mechanism with its share of epsilon and delta in every round."""
    share = per_round(written.epsilon, written.delta, rounds or 1, written.composition)
    return Classical.of(*share, written.composition)


def calibrated(
    scenario: Scenario, make: Callable[[Noise | None], Any], noise: Noise | None, rows: Rows
) -> Any:
    """Make the method with the noise that the target asks for; make(noise) where there is none.

    rows (agents,): records of each agent. InputError where the method has no plan, where no noise
    is enough, or where a stored scenario does not agree with its own target.
    """
    privacy, rounds = scenario.privacy, scenario.agent_rounds
    method = make(noise)
    if privacy is None or privacy.target is None or noise is None or rounds is None:
        return method
    if rounds > PLANNED:
        allowed = f"at most {PLANNED} with privacy.target, whose noise is planned round by round"
        raise InputError(f"stop.rounds: {refusal(rounds, allowed)}")
    wanted = Target(privacy.target.epsilon, privacy.target.delta, privacy.neighbours)
    releases = planned(method.planned, rounds)
    if releases is None:
        raise InputError(
            f"privacy.target: {scenario.algorithm.name} does not say what it will release; "
            "allowed: privacy.noise.sigma"
        )
    due = noise.times(factor(releases, rows, wanted))
    if not privacy.target.calibrated:
        return make(due)
    for key, amount in due.given.items():
        found = noise.given[key]
        if abs(found - amount) > AGREES * amount:
            allowed = f"{amount:.9g}, which privacy.target gives, or neither it nor calibrated"
            raise InputError(f"privacy.noise.{key}: {refusal(found, allowed)}")
    return method


def completed(scenario: Scenario, noise: Any) -> Scenario:
    """The scenario with what its target has given written out: noise, or what has it, or None."""
    privacy = scenario.privacy
    if privacy is None or privacy.target is None or privacy.noise is None or noise is None:
        return scenario
    if privacy.target.calibrated:
        return scenario
    fixed = {
        "noise": privacy.noise.model_copy(update=noise.given),
        "target": privacy.target.model_copy(update={"calibrated": True}),
    }
    return scenario.model_copy(update={"privacy": privacy.model_copy(update=fixed)})


def warnings(scenario: Scenario, rows: Rows) -> list[str]:
    """Return what is worth a word though it is allowed: a delta that promises nothing."""
    privacy = scenario.privacy
    if privacy is None or (privacy.noise is None and privacy.budget is None):
        return []
    deltas = {"privacy.delta": privacy.delta}
    if privacy.target is not None:
        deltas["privacy.target.delta"] = privacy.target.delta
    most, units, one = int(rows.max(initial=1)), "rows", "a whole record"
    if privacy.trusted and privacy.neighbours in OF_AGENTS:
        most, units, one = len(rows), "agents", "all records of an agent"
    return [
        f"{key}: {delta:g} is not below 1/{units} = {1.0 / most:g}; with such a delta a mechanism "
        f"may publish {one}"
        for key, delta in deltas.items()
        if delta * most >= 1.0
    ]


def try_accountant(scenario: Scenario, first: Terms | None, rows: NDArray[np.int64]) -> None:
    """Raise InputError where the accountant has no answer to agent 0's first planned release.

    first: terms (agents,) of it, None where the method has no plan; rows (agents,): records.
    """
    terms = scenario.privacy
    if terms is None or terms.accountant is None or first is None:
        return
    chosen = registry.accountant(terms.accountant, "privacy.accountant")
    table: dict[str, Any] = {
        "agent": np.zeros(1, np.int64),
        "mechanism": Words(np.zeros(1, np.int8), [MECHANISMS[first.mechanism]]),
        "sensitivity": first.sensitivity[:1],
        "scale": first.scale[:1],
        "sampling": first.sampling[:1],
    }
    priced = prices(table, rows, terms.neighbours)
    if np.isinf(priced.mu2).any():
        return
    try:
        answered(chosen, priced, terms.delta)
    except InputError as error:
        text = f"privacy.accountant: {error}, asked for the first planned release of agent 0"
        raise InputError(text) from error.__cause__
