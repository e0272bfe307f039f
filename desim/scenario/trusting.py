"""What a scenario says of a trusted coordinator: its clip, its noise, and who is in a sum."""

from dataclasses import replace
from typing import Any

import numpy as np

from desim.engine.settings import Settings
from desim.engine.trusted import Quantile, Trust
from desim.network.conditions.participation import Bernoulli, Schedule, UniformSubset
from desim.privacy.ledger.mechanisms import Gaussian, Mechanism
from desim.scenario.schema import Scenario


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
    return replace(settings, trust=trust)


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
