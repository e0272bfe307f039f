"""What an audit tests: the rigorous epsilon of the releases, the paper's own, or a given number."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from desim.engine.play import Simulation
from desim.experiments.audit.verdict import Claim
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.papers.theorems import claim_of

RELATION = "replace-one"  # of every pair that is played
CURVES = ("fed-plt/adp", "zcdp-nfl/corollary")  # epsilons that state rho-zCDP, or an RDP line


@dataclass(frozen=True)
class Ground:
    """One play of the simulation whose claims are tested: its tables, and for whom they are made.

    claims are about `agent`, at `delta`, for `view`.
    """

    simulation: Simulation
    releases: pd.DataFrame
    events: pd.DataFrame
    agent: int
    view: str
    delta: float

    @property
    def agent_releases(self) -> pd.DataFrame:
        """The releases of the agent."""
        return self.releases[self.releases["agent"] == self.agent]

    @property
    def sampled(self) -> bool:
        """Whether some of the agent's releases are of batches."""
        return bool((self.agent_releases["sampling"] < 1.0).any())


def claims_of(names: Sequence[str | float], ground: Ground) -> tuple[list[Claim], list[str]]:
    """The claims of these names that can be tested, and why the others cannot."""
    every = [claimed(name, ground) for name in names]
    claims = [one for one in every if isinstance(one, Claim)]
    return claims, [one for one in every if isinstance(one, str)]


def claimed(name: str | float, ground: Ground) -> Claim | str:
    """The claim `name` (paper, rigorous, or an epsilon), or why it cannot be tested."""
    if name == "rigorous":
        return rigorous(ground)
    if name == "paper":
        return paper(ground)
    return Claim("given", float(name), ground.delta, about="as it was given")


def rigorous(ground: Ground) -> Claim:
    """What desim says of the releases, known batches included; mu too where it is exact."""
    replay = account(
        ground.releases,
        rows=ground.simulation.problem.rows,
        delta=ground.delta,
        view=ground.view,
        relation=RELATION,
        events=ground.events,
        amplification=False,
    )
    epsilon = float(replay.final[ground.agent])
    exact = replay.method == "exact GDP" and np.isfinite(epsilon)
    about = "; ".join([replay.method, *replay.flags])
    mu = mu_of(epsilon, ground.delta) if exact else None
    return Claim("rigorous", epsilon, ground.delta, mu=mu, about=about)


def paper(ground: Ground) -> Claim | str:
    """What the method's paper says, zCDP too where its epsilon comes from that; or why not."""
    method = ground.simulation.method
    if (inputs := method.claimed()) is None:
        return "the paper claims nothing about this method and noise"
    said = claim_of(inputs, ground.releases, ground.delta, method.bounds)
    bound = said.bound
    if ground.sampled:
        return f"{bound.theorem} counts on secret batches, which the game does not draw anew"
    epsilon = float(said.epsilon[ground.agent])
    about = [f"{bound.paper}, {bound.theorem}: {said.method}"]
    if not bound.covers(ground.view):
        about.append(f"covers {bound.view}, not this view")
    about += [f"needs what this run does not meet: {text}" for text in said.unmet]
    curve = np.isfinite(epsilon) and bound.name in CURVES
    rho = zcdp_of(epsilon, ground.delta) if curve else None
    return Claim("paper", epsilon, ground.delta, rho=rho, about="; ".join(about))


def zcdp_of(epsilon: float, delta: float) -> float:
    """The rho whose epsilon is rho + 2 sqrt(rho ln(1/delta)) (Bun, Steinke 2016, Prop. 1.3)."""
    odds = np.log(1.0 / delta)
    return float((np.sqrt(odds + epsilon) - np.sqrt(odds)) ** 2)
