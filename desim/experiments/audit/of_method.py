"""`desim audit`: a scenario is played thousands of times to contradict what is claimed for it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import InputError, refusal
from desim.experiments.audit.game import Scores, Stage, Tell, play_game
from desim.experiments.audit.neighbours import Neighbours, neighbours, worst_pair
from desim.experiments.audit.stored import (
    Audit,
    reading_of,
    require_agent,
    require_other,
    tables_of,
    terms,
)
from desim.experiments.audit.verdict import DECIMALS, Ground, claims_of, judge
from desim.numerics.cores import cores
from desim.privacy.accounting.views import adversary
from desim.runs.premises import tuned
from desim.scenario.blame import explained
from desim.scenario.build import build
from desim.scenario.load import load, loaded
from desim.scenario.schema import Scenario

LEAST_RUNS = 20
REAL = (
    f"scores are rounded to 1e-{DECIMALS}: the audit is of the mechanism in real numbers; noise in "
    "doubles leaks more (Mironov 2012)"
)
NEVER = "`not refuted` is no proof: another record, score or number of runs may still refute"


def audit(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    runs: int = 1000,
    claims: Sequence[str | float] = ("paper", "rigorous"),
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    row: int | None = None,
    seed: int = 0,
    workers: int = 1,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute claims about a scenario by simulating `runs` runs on each of two data sets.

    claims: paper, rigorous, or an epsilon; view and delta: by default the scenario's; agent: by
    default the one whose releases cost most; row: the record that is replaced by its opposite, by
    default a worst pair of records is searched; level: probability of a false alarm for a claim;
    seed: of the noise of all runs. InputError for what cannot be audited.
    """
    of = loaded(scenario, overrides)
    others = (
        (workers < 1, f"workers: {refusal(workers, 'a whole number, at least 1')}"),
        (runs < LEAST_RUNS, f"runs: {refusal(runs, f'at least {LEAST_RUNS}')}"),
    )
    view, delta = terms(of, view, delta, level, claims, seed, others)
    with explained(of):
        pair, stage, ground = _staged(of, view, delta, agent, row)
        testable, untestable = claims_of(claims, ground)
        again = partial(_again, of.written(), str(of.folder), view, delta, agent, row)
        workers = min(workers, cores())
        scores = play_game(stage, runs, seed=seed, workers=workers, again=again, tell=tell)
    old, new, exact = scores.old, scores.new, scores.exact and scores.as_declared
    findings = tuple(
        judge(claim, old, new, exact=exact, level=level, ratio=scores.ratio) for claim in testable
    )
    notes = (*untestable, *_reservations(of, scores, ground), REAL, NEVER)
    who = f"agent {pair.agent}, record {pair.row} replaced, seen by {ground.view}"
    sizes = [len(old), len(new)]
    played = {"row": pair.row, "seed": seed, "runs": sizes, "exact_likelihood": scores.exact}
    return Audit(
        name=of.name, view=ground.view, agent=pair.agent, findings=findings, notes=notes,
        title=f"{who}; {sizes[0]} + {sizes[1]} runs", played=played, scores=scores,
        arrays={"old": old, "new": new}, samples=(old, new), of="runs",
    )  # fmt: skip


def _staged(
    scenario: Scenario, view: str, delta: float, agent: int | None, row: int | None
) -> tuple[Neighbours, Stage, Ground]:
    """The pair of simulations, what is read of each run, and what claims are about."""
    simulation = build(scenario)
    agents = simulation.problem.agents
    who = adversary(view, agents)
    require_agent(agent, agents)
    if row is None:
        pair = worst_pair(simulation, agent)
    elif agent is None:
        raise InputError(f"row: found {row} without agent; allowed: both, agent alone, or neither")
    else:
        pair = neighbours(simulation, agent, row)
    require_other(pair.agent, who)
    releases, events = tables_of(pair.first)
    words = partial(explained, scenario)
    stage = replace(reading_of(releases, events, who, pair), explained=words)
    ground = Ground(pair.first, releases, events, pair.agent, str(who), delta)
    return pair, stage, ground


def _again(
    written: Mapping[str, Any], folder: str, view: str, delta: float, agent: int | None,
    row: int | None,
) -> Stage:  # fmt: skip
    """The same stage in another process, where relative names count from the same folder."""
    os.chdir(folder)
    scenario = load(written)
    with explained(scenario):
        return _staged(scenario, view, delta, agent, row)[1]


def _reservations(of: Scenario, scores: Scores, ground: Ground) -> list[str]:
    """What speaks against reading too much into the scores."""
    runs = len(scores.old) + len(scores.new)
    notes = [
        f"in {number} of {runs} runs the ratio is infinite: {what}" for what, number in scores.apart
    ]
    if not np.isnan(scores.noise) and not scores.as_declared:
        notes.append(
            f"the noise that was drawn is {scores.noise:.4g} times what the ledger declares: "
            "likelihood ratios are not exact, the hockey-stick and the mean bound are left out"
        )
    if ground.sampled:
        notes.append(
            "batches are those of the scenario's seed in every run: only claims that do not count "
            "on secret batches can be tested"
        )
    public = bool(np.isfinite(ground.simulation.problem.row_norm))
    return [*notes, *(f"tuned on data, not charged: {text}" for text in tuned(of, public))]
