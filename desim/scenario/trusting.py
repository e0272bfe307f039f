"""What a scenario says of a trusted coordinator: its clip, its noise, and who is in a sum."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from desim.amounts import epsilon
from desim.engine.settings import Settings
from desim.engine.trusted import Quantile, Trust
from desim.errors import InputError, refusal
from desim.network.conditions.participation import Bernoulli, Everybody, Schedule, UniformSubset
from desim.network.timeline.messages import NONE
from desim.privacy.accounting.accountants import Account, account
from desim.privacy.accounting.noise_scale import least
from desim.privacy.accounting.trusted_sums import Terms, table_of_sums
from desim.privacy.correlated import factors
from desim.privacy.ledger.ledger import Mechanism
from desim.privacy.ledger.mechanisms import Gaussian
from desim.scenario.noise_target import AGREES, PLANNED
from desim.scenario.schema import Scenario
from desim.scenario.sections.privacy import Correlated, Secure


def trusted(scenario: Scenario, settings: Settings) -> Settings:
    """The settings with what a trusted coordinator does, as they are where none is trusted."""
    privacy = scenario.privacy
    if privacy is None or not privacy.trusted:
        return settings
    noise, clip = privacy.noise, privacy.clip
    assert noise is not None
    assert clip is not None
    relative = noise.sigma is None
    amount = noise.multiplier if relative else noise.sigma
    law, share = drawn(settings, vars(scenario.algorithm.method).get("forgetful", False))
    adaptive = None
    if clip.quantile is not None and clip.rate is not None and clip.noise is not None:
        adaptive = Quantile(clip.quantile, clip.rate, clip.noise)
    schedule: dict[str, Any] = {"period": noise.period or 1, "iteration": noise.iteration}
    added = Gaussian(1.0 if amount is None else amount, noise.decay or 1.0, **schedule)
    kind, factor = Trust, factor_of(scenario)
    if factor is not None:
        from desim.engine.correlating import Correlated

        kind = Correlated
    trust = kind(
        clip.start, added if amount != 0.0 else None, expected(settings), relative, adaptive, law,
        share, factor, scenario.participation.separation or 1,
    )  # fmt: skip
    if privacy.secure is not None:
        trust = unseen(privacy.secure, settings, trust)
    trust = _calibrated(scenario, settings, trust)
    if settings.budget is not None:  # whose end follows from who was in sums: that is no secret
        trust = replace(trust, law=Mechanism.SUM, share=np.nan)
        first = trust.of_each(1, settings.problem.agents)
        if problems := settings.budget.problems(first, settings.problem.rows):
            raise InputError(problems)
    if privacy.secure is not None:
        refuse_wrapping(privacy.secure, settings, trust)
    return replace(settings, trust=trust)


def _calibrated(scenario: Scenario, settings: Settings, trust: Trust) -> Trust:
    """With the noise that the target asks for; InputError where a stored one does not agree."""
    privacy = scenario.privacy
    if privacy is None or privacy.target is None or trust.noise is None:
        return trust
    target, one = privacy.target, trust.noise
    due = trust if target.calibrated else replace(trust, noise=replace(one, sigma=1.0))
    view, relation = str(privacy.view), privacy.neighbours

    def excess(scale: float) -> float:
        assert due.noise is not None
        tried = replace(due, noise=due.noise.times(float(np.exp(scale))))
        found = planned(settings, tried, target.delta, view, relation)
        worst = found.worst if found else np.inf
        return float(np.log(max(min(1e-300, 1e-9 * target.epsilon), worst) / target.epsilon))

    if planned(settings, due, target.delta, view, relation) is None:
        raise InputError(f"stop.rounds: found {settings.rounds:g}; allowed: at most {PLANNED}")
    factor = float(np.exp(least(excess, 0.0, 1.0)))
    amount = due.given[key := next(iter(due.given))] * factor
    if target.calibrated and abs(factor - 1.0) > AGREES:
        allowed = f"{amount:.9g}, which privacy.target gives, or neither it nor calibrated"
        raise InputError(f"privacy.noise.{key}: {refusal(due.given[key], allowed)}")
    if due.adaptive is not None and not amount < 2.0 * due.adaptive.noise:
        text = refusal(
            due.adaptive.noise, f"above {0.5 * amount:.6g}, half of what the target asks"
        )
        raise InputError(f"privacy.clip.noise: {text}")
    return trust if target.calibrated else replace(due, noise=replace(one, sigma=amount))


def planned(
    settings: Settings, trust: Trust, delta: float, view: str, relation: str
) -> Account | None:
    """The account of all planned sums, for an agent that is in all that it may be in.

    None where nothing says how many there are.
    """
    if not settings.rounds <= PLANNED:
        return None
    terms, agents = list(terms_of(trust, int(settings.rounds))), settings.problem.agents
    table, rows = table_of_sums(terms, 1, agents), settings.problem.rows
    return account(table, rows=rows, delta=delta, view=view, relation=relation)


def factor_of(scenario: Scenario) -> factors.Factor | None:
    """How noise is correlated over rounds, None where it is not."""
    rounds, noise = scenario.stop.rounds, None
    if scenario.privacy is not None:
        noise = scenario.privacy.noise
    if noise is None or noise.correlated is None or rounds is None:
        return None
    return factor_said(noise.correlated, rounds, scenario.participation.separation or 1)


def factor_said(said: Correlated, rounds: int, apart: int) -> factors.Factor:
    """The one of a kind, for contributions that are so many rounds apart at least."""
    measure: factors.Measure = said.measure or "mean"
    match said.kind:
        case "tree":
            return factors.tree(rounds, said.value)
        case "root":
            return factors.root(rounds, said.value)
        case "banded":
            return factors.banded(rounds, said.value, measure)
    times = factors.most_times(rounds, apart)
    return factors.buffered(rounds, said.value, times, apart, measure)


def unseen(secure: Secure, settings: Settings, trust: Trust) -> Trust:
    """What agents do that trust nobody; InputError where so many bits or shares do not do."""
    from desim.engine.secure_sum import Secure as Unseen
    from desim.privacy.sums.lattice import Lattice, finest
    from desim.privacy.sums.protocol import Protocol, Works

    who, agents = settings.participation, settings.problem.agents
    most = who.count if isinstance(who, UniformSubset) else agents
    planned = (1.0 - secure.tolerate) * trust.number
    works = Works(secure.agree, secure.expand / 8.0, secure.share)
    protocol = Protocol(secure.protocol, secure.neighbours, secure.threshold, works=works)
    bare = Lattice(settings.problem.dim, trust.clip, 1.0, 0.0, secure.bits)
    if secure.granularity is None and finest(bare, most, secure.overflow) is None:
        text = f"found {secure.bits}, which a sum of {most} agents exceeds whatever the granularity"
        raise InputError(f"privacy.secure.bits: {text}; allowed: more bits")
    shared = protocol.degree(most) + 1
    if secure.threshold > shared:
        text = f"found {secure.threshold:g}, but secrets are shared among {shared}"
        raise InputError(f"privacy.secure.threshold: {text}; allowed: at most {shared}")
    if shared < 2:
        text = "found secure-sum of one agent, of whose secrets nobody else holds a share"
        raise InputError(f"privacy.trust: {text}; allowed: two agents in a sum, or more")
    least = protocol.least(most)
    fixed = isinstance(who, Everybody | UniformSubset)
    if fixed and (here := settings.policy.number(most)) < least:
        text = f"found {here:g}, too few for the {least} shares that make a secret known"
        raise InputError(f"policy.quorum: {text}; allowed: {least} or more, or a lower threshold")
    if (secure.neighbours or 0) >= most:
        text = f"found {secure.neighbours}, but there are {most - 1} others in a sum"
        raise InputError(f"privacy.secure.neighbours: {text}; allowed: fewer, or protocol: secagg")
    found = Unseen(
        trust.clip, trust.noise, trust.number, trust.relative, protocol=protocol,
        bits=secure.bits, noising=secure.noise, planned=planned, most=most, risk=secure.overflow,
        gamma=secure.granularity, dim=settings.problem.dim,
    )  # fmt: skip
    return found


def refuse_wrapping(secure: Secure, settings: Settings, trust: Any) -> None:
    """InputError where sums wrap around too often, or no draw knows so many levels."""
    from desim.privacy.sums.lattice import LARGEST, overflow

    most, lattice = trust.most, trust.lattice(settings.problem.dim)
    likely = overflow(lattice, most) if lattice.gamma < np.inf else 1.0
    if likely > secure.overflow * (1.0 + 1e-9):
        text = f"found {secure.bits}, with which a sum of {most} agents wraps around with a "
        text += f"probability of up to {likely:.2g} in a round"
        more = "more bits, or a larger granularity" if secure.granularity else "more bits"
        raise InputError(f"privacy.secure.bits: {text}; allowed: {more}")
    if lattice.deviation > LARGEST[secure.noise]:
        text = f"found noise of {lattice.deviation:.3g} levels from an agent"
        most_levels = f"at most {LARGEST[secure.noise]:.3g} with {secure.noise}"
        raise InputError(f"privacy.secure.bits: {text}; allowed: fewer bits, for {most_levels}")


def expected(settings: Settings) -> float:
    """How many replies a sum holds, as far as is known beforehand."""
    who, policy = settings.participation, settings.policy
    invited = float(who.least)
    if isinstance(who, Schedule):
        invited = float(np.mean([len(some) for some in who.sets]))
    return float(policy.number(invited))


def drawn(settings: Settings, forgetful: bool) -> tuple[Mechanism, float]:
    """How agents come to be in a sum, where a theorem knows it, and the share of them, else nan.

    What others add may not follow from who was invited, now or earlier: so of a fixed number, where
    another one is in instead of an agent, nobody keeps anything between calls (forgetful).
    """
    who, policy, codecs = settings.participation, settings.policy, settings.codecs
    forgetful &= codecs.up.memory == "none" and not codecs.down.lossy
    waits = policy.kind == "all" or (policy.kind == "deadline" and in_time_or_not(settings))
    waits &= forgetful or settings.churn is None or not settings.churn.forgets
    if waits and isinstance(who, Bernoulli) and who.p < 1.0:
        return Mechanism.POISSON_SUM, who.p
    if waits and forgetful and isinstance(who, UniformSubset) and who.count < who.agents:
        return Mechanism.SUBSET_SUM, who.count / who.agents
    return Mechanism.SUM, np.nan


def in_time_or_not(settings: Settings) -> bool:
    """Whether it follows from an agent and its round alone if its reply makes a deadline.

    Not so where a wait goes on until some are in, where messages share a line, and where anything
    changes over time: when a round begins follows from who was in earlier ones.
    """
    policy, sides = settings.policy, [settings.uplinks, settings.downlinks]
    steady = settings.churn is None and settings.speeds.steady
    for one in (links for links in sides if links is not None):
        shared, changes = one.contention != NONE or one.lines.size, one.loss[0] != one.loss[1]
        steady &= not (shared or changes or one.plays.size) and one.transport.ideal
    return steady and policy.late == "discard" and policy.at_least == 0


def terms_of(trust: Trust, rounds: int) -> Iterator[Terms]:
    """The terms of the sums of so many rounds that an agent may be in; the most costly ones.

    Of noise that is correlated those of one release that tells as much.
    """
    if trust.factor is not None:
        every = [trust.at_most()]
    else:
        every = [trust.terms(k, trust.clip) for k in range(1, rounds + 1)]
    if len(every) > 1 and trust.apart > 1:
        every = sorted(every, key=lambda row: row[3])[: factors.most_times(rounds, trust.apart)]
    for mechanism, _, sensitivity, scale, sampling in every:
        yield mechanism, sensitivity, scale, sampling


def sums_of(simulation: Any) -> list[str]:
    """What a trusted coordinator does and what all planned rounds will cost, a line each."""
    trust, origin = simulation.settings.trust, simulation.origin
    if trust is None or origin is None:
        return []
    privacy, dim = origin.scenario.privacy, simulation.settings.problem.dim
    deviation, clip = trust.deviation(1, trust.clip), trust.clip
    multiplier = trust.multiplier(1) if trust.relative else deviation / clip
    text = f"{trust.says} {clip:.6g}{', at first' if trust.adaptive else ''}, adds noise of "
    text += f"{deviation:.6g} (multiplier {multiplier:.6g}) to each of the {dim} "
    text += f"numbers of a sum, and divides by {trust.number:.6g}"
    lines = [text]
    found = planned(simulation.settings, trust, privacy.delta, privacy.view, privacy.neighbours)
    if privacy.budget is not None and (found is None or not found.worst <= privacy.budget):
        return [*lines, f"privacy: at most epsilon {privacy.budget:g}, privacy.budget"]
    if found is None:
        return [*lines, "privacy: no number of rounds is planned, so that epsilon is not known yet"]
    where = ""
    if privacy.secure is not None:
        where = f" where sums hold {math.ceil(trust.planned)} shares of noise or more"
    lines.append(f"privacy: at most epsilon {epsilon(found.worst)}{where} ({found.terms})")
    return lines + [f"warning: {flag}" for flag in found.flags if flag.startswith(("inf", "no "))]
