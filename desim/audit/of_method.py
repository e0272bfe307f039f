"""`desim audit`: a scenario is played thousands of times to contradict what is claimed for it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from desim.audit.claims import Ground, claimed
from desim.audit.evidence import DECIMALS
from desim.audit.game import Scores, Stage, Tell, play_game
from desim.audit.neighbours import Neighbours, neighbours, worst_pair
from desim.audit.pairs import unobserved
from desim.audit.reading import reading_of
from desim.audit.stored import findings_told, problems_of, write_audit
from desim.audit.verdict import Claim, Finding, judge
from desim.compiling.cores import cores
from desim.errors import InputError, refusal
from desim.log.parquet import Tables
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.views import adversary
from desim.runs.decided_by_rows import tuned
from desim.runs.premises import terms_of
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


@dataclass(frozen=True)
class Audit:
    """What the game said: the pair, the scores, and a finding for each claim.

    view: as the adversary was let see; notes: what a reader of the verdicts has to know.
    """

    name: str
    view: str
    agent: int
    row: int
    seed: int
    scores: Scores
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]

    def write(self, folder: str | Path) -> None:
        """Store audit.json, scores.npz and the figure trade-off.png in a new or empty directory."""
        old, new = self.scores.old, self.scores.new
        write_audit(Path(folder), self.told(), {"old": old, "new": new}, self.findings, old, new)

    def told(self) -> dict[str, Any]:
        """The audit as JSON holds it; infinities as the text "infinite"."""
        return {
            "name": self.name,
            "view": self.view,
            "relation": "replace-one",
            "agent": self.agent,
            "row": self.row,
            "seed": self.seed,
            "runs": [len(self.scores.old), len(self.scores.new)],
            "exact_likelihood": self.scores.exact,
            "findings": findings_told(self.findings),
            "notes": list(self.notes),
        }


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
    _check(of, runs, level, claims, seed, workers)
    view = terms_of(of).view if view is None else view
    delta = terms_of(of).delta if delta is None else delta
    check_delta(delta)
    with explained(of):
        pair, stage, ground = _staged(of, view, delta, agent, row)
        found = [claimed(name, ground) for name in claims]
        again = partial(_again, of.written(), str(of.folder), view, delta, agent, row)
        workers = min(workers, cores())
        scores = play_game(stage, runs, seed=seed, workers=workers, again=again, tell=tell)
    known = scores.exact and scores.as_declared
    findings = tuple(
        judge(claim, scores.old, scores.new, exact=known, level=level, ratio=scores.ratio)
        for claim in found
        if isinstance(claim, Claim)
    )
    notes = [text for text in found if isinstance(text, str)]
    notes += _reservations(scores, ground)
    public = bool(np.isfinite(ground.simulation.problem.row_norm))
    notes += [f"tuned on data, not charged: {text}" for text in tuned(of, public)]
    notes += [REAL, NEVER]
    return Audit(of.name, ground.view, pair.agent, pair.row, seed, scores, findings, tuple(notes))


def _check(
    scenario: Scenario, runs: int, level: float, claims: Sequence[str | float], seed: int,
    workers: int,
) -> None:  # fmt: skip
    problems = problems_of(scenario, level, claims, seed)
    if workers < 1:
        problems.append(f"workers: {refusal(workers, 'a whole number, at least 1')}")
    if runs < LEAST_RUNS:
        problems.append(f"runs: {refusal(runs, f'at least {LEAST_RUNS}')}")
    if problems:
        raise InputError(problems)


def _staged(
    scenario: Scenario, view: str, delta: float, agent: int | None, row: int | None
) -> tuple[Neighbours, Stage, Ground]:
    """The pair of simulations, what is read of each run, and what claims are about."""
    simulation = build(scenario)
    agents = simulation.problem.agents
    seen = adversary(view, agents)
    if agent is not None and not 0 <= agent < agents:
        raise InputError(f"agent: {refusal(agent, f'0 to {agents - 1}')}")
    if row is None:
        pair = worst_pair(simulation, agent)
    elif agent is None:
        raise InputError(f"row: found {row} without agent; allowed: both, agent alone, or neither")
    else:
        pair = neighbours(simulation, agent, row)
    if pair.agent in seen.agents:
        raise InputError(f"agent: found {pair.agent}, whose data the adversary {seen} knows")
    tables = Tables()
    unobserved(pair.first).play(tables)
    releases, events = tables.read("releases"), tables.read("events")
    words = partial(explained, scenario)
    stage = replace(reading_of(releases, events, seen, pair), explained=words)
    ground = Ground(pair.first, releases, events, pair.agent, str(seen), delta)
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


def _reservations(scores: Scores, ground: Ground) -> list[str]:
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
    return notes
