"""`desim audit --one-run`: one run on canaries, to contradict what is claimed for a scenario."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.canaries import Canaries, planted
from desim.experiments.audit.canaries import canaries as placed
from desim.experiments.audit.canary_scores import Game, Reading, Tell, play_once
from desim.experiments.audit.candidates import longest_row
from desim.experiments.audit.claims import Ground, claims_of
from desim.experiments.audit.one_run import judge_one_run
from desim.experiments.audit.reading import require_agent, require_other, shown, tables_of
from desim.experiments.audit.stored import Audit, terms
from desim.privacy.accounting.views import Adversary, adversary
from desim.scenario.blame import explained
from desim.scenario.build import build
from desim.scenario.load import loaded
from desim.scenario.schema import Scenario

LEAST, USUAL = 10, 500  # canaries
NEVER = "`not refuted` is no proof: one run says less than many, and canaries that overlap say less"
KNOWN = (
    "batches are those of the scenario's seed: claims that count on secret batches are not tested"
)
REAL = "the audit is of the mechanism in real numbers; noise in doubles leaks more (Mironov 2012)"


def audit_one_run(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    canaries: int | None = None,
    claims: Sequence[str | float] = ("paper", "rigorous"),
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    seed: int = 0,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute claims about a scenario by one run whose data hold canaries.

    canaries: how many rows of the agent hold one of two opposite records by a coin, by default all,
    500 at most; each costs a play of reference data. claims: paper, rigorous, or an epsilon; view
    and delta: by default the scenario's; agent: by default the one whose releases cost most; level:
    probability of a false alarm for a claim; seed: of coins and noise. InputError for what cannot
    be audited.
    """
    of = loaded(scenario, overrides)
    few = canaries is not None and canaries < LEAST
    others = [(few, f"canaries: {refusal(canaries, f'{LEAST} to the rows of the agent')}")]
    view, delta = terms(of, view, delta, level, claims, seed, others)
    with explained(of):
        simulation = build(of)
        who = adversary(view, simulation.problem.agents)
        agent = _agent(simulation, agent, who)
        slots = min(USUAL, int(simulation.problem.rows[agent])) if canaries is None else canaries
        most = longest_row(simulation.problem, simulation.method.parameters)
        records = placed(simulation.problem, agent, slots, seed, most)
        game, ground = _staged(simulation, records, who, delta)
        testable, untestable = claims_of(claims, ground)
        guessable = play_once(game, seed=seed, tell=tell)
    scores, coins = guessable.scores, guessable.coins
    findings = tuple(judge_one_run(claim, scores, coins, level) for claim in testable)
    notes = (*untestable, *([KNOWN] if ground.sampled else []), REAL, NEVER)
    return Audit(
        name=of.name, view=ground.view, agent=agent, findings=findings, notes=notes,
        title=f"agent {agent}, {slots} canaries, seen by {ground.view}; one run",
        played={"seed": seed, "runs": 1, "canaries": slots}, scores=guessable,
        arrays={"scores": scores, "coins": coins}, samples=(scores[~coins], scores[coins]),
        of="canaries",
    )  # fmt: skip


def _agent(simulation: Simulation, agent: int | None, who: Adversary) -> int:
    """The agent whose rows hold the canaries: by default whose releases cost most."""
    agents = simulation.problem.agents
    require_agent(agent, agents)
    if agent is None:
        releases, _ = tables_of(simulation)
        cost = np.zeros(agents)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = (releases["sensitivity"] / releases["scale"]).to_numpy(float) ** 2
        np.add.at(cost, releases["agent"], np.nan_to_num(each, nan=0.0, posinf=0.0))
        cost[list(who.agents)] = -1.0
        agent = int(np.argmax(cost))
    require_other(agent, who)
    if simulation.problem.rows[agent] < LEAST:
        rows, most = int(simulation.problem.rows[agent]), int(simulation.problem.rows.max())
        allowed = f"an agent with {LEAST} rows or more, for as many canaries"
        where = "agent" if most >= LEAST else "problem.data"
        raise InputError(f"{where}: agent {agent} has {rows} rows; allowed: {allowed}")
    return agent


def _staged(
    simulation: Simulation, of: Canaries, who: Adversary, delta: float
) -> tuple[Game, Ground]:
    """The game, and what claims are about: releases of a play on reference data."""
    reference = planted(simulation, of, np.ones(len(of), bool))
    releases, events = tables_of(reference)
    ids, whole, _ = shown(releases, events, who, of.agent)
    if not ids:
        raise InputError(f"view: {who} sees no release of agent {of.agent}")
    reading: Reading = "model" if who.kind == "final-model" else "all" if whole else "some"
    ground = Ground(reference, releases, events, of.agent, str(who), delta)
    return Game(simulation, of, reading, ids), ground
