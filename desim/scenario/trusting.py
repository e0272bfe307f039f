"""What a scenario says of a trusted coordinator: its clip, its noise, and who is in a sum."""

from dataclasses import replace
from typing import Any

import numpy as np

from desim.engine.settings import Settings
from desim.engine.trusted import Quantile, Trust
from desim.errors import InputError
from desim.network.conditions.participation import Bernoulli, Schedule, UniformSubset
from desim.privacy.ledger.mechanisms import Gaussian, Mechanism
from desim.scenario.schema import Scenario
from desim.scenario.sections.privacy import Secure


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
    law, share = drawn(settings)
    adaptive = None
    if clip.quantile is not None and clip.rate is not None and clip.noise is not None:
        adaptive = Quantile(clip.quantile, clip.rate, clip.noise)
    schedule: dict[str, Any] = {"period": noise.period or 1, "iteration": noise.iteration}
    added = Gaussian(1.0 if amount is None else amount, noise.decay or 1.0, **schedule)
    trust = Trust(
        clip.start, added if amount != 0.0 else None, expected(settings), relative, adaptive, law,
        share,
    )  # fmt: skip
    if privacy.secure is not None:
        trust = unseen(privacy.secure, settings, trust)
    return replace(settings, trust=trust)


def unseen(secure: Secure, settings: Settings, trust: Trust) -> Trust:
    """What agents do that trust nobody; InputError where so many bits or shares do not do."""
    from desim.engine.secure_sum import Secure as Unseen
    from desim.privacy.sums.lattice import LARGEST, overflow
    from desim.privacy.sums.protocol import Protocol, Works

    who, agents = settings.participation, settings.problem.agents
    most = who.count if isinstance(who, UniformSubset) else agents
    planned = (1.0 - secure.tolerate) * trust.number
    works = Works(secure.agree, secure.expand / 8.0, secure.share)
    protocol = Protocol(secure.protocol, secure.neighbours, secure.threshold, works=works)
    shared = protocol.degree(most) + 1
    if secure.threshold > shared:
        text = f"found {secure.threshold:g}, but secrets are shared among {shared}"
        raise InputError(f"privacy.secure.threshold: {text}; allowed: at most {shared}")
    found = Unseen(
        trust.clip, trust.noise, trust.number, trust.relative, protocol=protocol,
        bits=secure.bits, noising=secure.noise, planned=planned, most=most, risk=secure.overflow,
        gamma=secure.granularity,
    )  # fmt: skip
    lattice = found.lattice(settings.problem.dim)
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
    return found


def expected(settings: Settings) -> float:
    """How many replies a sum holds, as far as is known beforehand."""
    who, policy = settings.participation, settings.policy
    invited = float(who.least)
    if isinstance(who, Schedule):
        invited = float(np.mean([len(some) for some in who.sets]))
    return float(policy.number(invited))


def drawn(settings: Settings) -> tuple[Mechanism, float]:
    """How agents come to be in a sum, where a theorem knows it, and the share of them, else nan.

    Where a wait may end with some of those invited, who else is in a sum depends on whether an
    agent was invited; where it was invited to an earlier round, on more than one draw.
    """
    who, policy = settings.participation, settings.policy
    waits = policy.kind == "all" or (policy.kind == "deadline" and policy.late == "discard")
    if waits and isinstance(who, Bernoulli) and who.p < 1.0:
        return Mechanism.POISSON_SUM, who.p
    if waits and isinstance(who, UniformSubset) and who.count < who.agents:
        return Mechanism.SUBSET_SUM, who.count / who.agents
    return Mechanism.SUM, np.nan
