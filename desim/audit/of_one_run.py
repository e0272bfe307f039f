"""`desim audit --one-run`: one run on canaries, to contradict what is claimed for a scenario."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from desim.audit.canaries import Canaries, planted
from desim.audit.canaries import canaries as placed
from desim.audit.canary_scores import Game, Guessable, Reading, Tell, play_once
from desim.audit.candidates import longest_row
from desim.audit.claims import Ground, claimed
from desim.audit.one_run import judge_one_run
from desim.audit.pairs import unobserved
from desim.audit.stored import findings_told, problems_of, write_audit
from desim.audit.verdict import Claim, Finding
from desim.columns import columns_of
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.log.parquet import Tables
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.views import Adversary, adversary, require_seen, visible
from desim.runs.premises import terms_of
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


@dataclass(frozen=True)
class OneRunAudit:
    """What one run said: the scores of its canaries and their coins, and a finding for each claim.

    view: as the adversary was let see; notes: what a reader of the verdicts has to know.
    """

    name: str
    view: str
    agent: int
    seed: int
    guessable: Guessable
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    @property
    def canaries(self) -> int:
        """How many slots there were."""
        return len(self.guessable.coins)

    def write(self, folder: str | Path) -> None:
        """Store audit.json, scores.npz and trade-off.png in a new or empty directory."""
        scores, coins = self.guessable.scores, self.guessable.coins
        arrays = {"scores": scores, "coins": coins}
        old, new = scores[~coins], scores[coins]
        write_audit(Path(folder), self.told(), arrays, self.findings, old, new, of="canaries")

    def told(self) -> dict[str, Any]:
        """The audit as JSON holds it; infinities as the text "infinite"."""
        return {
            "name": self.name,
            "view": self.view,
            "relation": "replace-one",
            "agent": self.agent,
            "seed": self.seed,
            "runs": 1,
            "canaries": self.canaries,
            "findings": findings_told(self.findings),
            "notes": list(self.notes),
        }


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
) -> OneRunAudit:
    """Try to refute claims about a scenario by one run whose data hold canaries.

    canaries: how many rows of the agent hold one of two opposite records by a coin, by default all,
    500 at most; each costs a play of reference data. claims: paper, rigorous, or an epsilon; view
    and delta: by default the scenario's; agent: by default the one whose releases cost most; level:
    probability of a false alarm for a claim; seed: of coins and noise. InputError for what cannot
    be audited.
    """
    of = loaded(scenario, overrides)
    view = terms_of(of).view if view is None else view
    delta = terms_of(of).delta if delta is None else delta
    check_delta(delta)
    _check(of, level, claims, seed, canaries)
    with explained(of):
        simulation = build(of)
        who = adversary(view, simulation.problem.agents)
        agent = _agent(simulation, agent, who)
        slots = min(USUAL, int(simulation.problem.rows[agent])) if canaries is None else canaries
        most = longest_row(simulation.problem, simulation.method.parameters)
        records = placed(simulation.problem, agent, slots, seed, most)
        game, ground = _staged(simulation, records, who, delta)
        found = [claimed(name, ground) for name in claims]
        guessable = play_once(game, seed=seed, tell=tell)
    findings = tuple(
        judge_one_run(claim, guessable.scores, guessable.coins, level)
        for claim in found
        if isinstance(claim, Claim)
    )
    notes = [text for text in found if isinstance(text, str)]
    notes += [*([KNOWN] if ground.sampled else []), REAL, NEVER]
    return OneRunAudit(of.name, ground.view, agent, seed, guessable, findings, tuple(notes))


def _check(
    scenario: Scenario, level: float, claims: Sequence[str | float], seed: int, slots: int | None
) -> None:
    problems = problems_of(scenario, level, claims, seed)
    if slots is not None and slots < LEAST:
        problems.append(f"canaries: {refusal(slots, f'{LEAST} to the rows of the agent')}")
    if problems:
        raise InputError(problems)


def _agent(simulation: Simulation, agent: int | None, who: Adversary) -> int:
    """The agent whose rows hold the canaries: by default whose releases cost most."""
    agents = simulation.problem.agents
    if agent is not None and not 0 <= agent < agents:
        raise InputError(f"agent: {refusal(agent, f'0 to {agents - 1}')}")
    if agent is None:
        releases, _ = _tables(simulation)
        cost = np.zeros(agents)
        with np.errstate(divide="ignore", invalid="ignore"):
            each = (releases["sensitivity"] / releases["scale"]).to_numpy(float) ** 2
        np.add.at(cost, releases["agent"], np.nan_to_num(each, nan=0.0, posinf=0.0))
        cost[list(who.agents)] = -1.0
        agent = int(np.argmax(cost))
    if agent in who.agents:
        raise InputError(f"agent: found {agent}, whose data the adversary {who} knows")
    if simulation.problem.rows[agent] < LEAST:
        rows, most = int(simulation.problem.rows[agent]), int(simulation.problem.rows.max())
        allowed = f"an agent with {LEAST} rows or more, for as many canaries"
        where = "agent" if most >= LEAST else "problem.data"
        raise InputError(f"{where}: agent {agent} has {rows} rows; allowed: {allowed}")
    return agent


def _tables(simulation: Simulation) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Releases and events of one play."""
    tables = Tables()
    unobserved(simulation).play(tables)
    return tables.read("releases"), tables.read("events")


def _staged(
    simulation: Simulation, of: Canaries, seen: Adversary, delta: float
) -> tuple[Game, Ground]:
    """The game, and what claims are about: releases of a play on reference data."""
    reference = planted(simulation, of, np.ones(len(of), bool))
    releases, events = _tables(reference)
    own = (releases["agent"] == of.agent).to_numpy(bool)
    require_seen(seen, bool((releases["seen_by"] == "coordinator").any()), len(releases))
    shown = own & visible(columns_of(releases), seen, columns_of(events))
    if not shown.any():
        raise InputError(f"view: {seen} sees no release of agent {of.agent}")
    whole = bool((shown == own).all()) and seen.kind != "direct"
    reading: Reading = "model" if seen.kind == "final-model" else "all" if whole else "some"
    ids = frozenset(releases.loc[shown, "release"].tolist())
    ground = Ground(reference, releases, events, of.agent, str(seen), delta)
    return Game(simulation, of, reading, ids), ground
