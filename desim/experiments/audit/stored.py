"""What all audits have in common: their options, what they read of runs, and stored findings."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from desim.arrays import Array
from desim.columns import columns_of
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.pairs import unobserved
from desim.experiments.audit.verdict import RELATION, Finding
from desim.log.parquet import Tables
from desim.privacy.accounting.gaussian import check_delta
from desim.privacy.accounting.views import Adversary, require_seen, visible
from desim.runs import directory as place
from desim.runs.premises import terms_of
from desim.scenario.schema import Scenario
from desim.tabulated import card

Tell = Callable[[int, int], None]  # how many runs of how many are done


def terms(
    scenario: Scenario, view: str | None, delta: float | None, level: float,
    claims: Sequence[str | float], seed: int, others: Sequence[tuple[bool, str]] = (),
    of_sums: bool = False,
) -> tuple[str, float]:  # fmt: skip
    """View and delta of an audit, by default the scenario's.

    InputError for options of any audit that mean nothing, a scenario that none can test, and the
    lines of those `others` that are wrong. of_sums: whether it tests those of a trusted
    coordinator.
    """
    stated = terms_of(scenario)
    problems = [line for wrong, line in others if wrong]
    if text := scenario.algorithm.method.unaudited:
        problems.append(f"algorithm: found {scenario.algorithm.name}, but {text}; allowed: another")
    if seed < 0:
        problems.append(f"seed: {refusal(seed, 'a whole number, at least 0')}")
    privacy = scenario.privacy
    trust = (privacy and privacy.trust) or "local"
    if privacy is not None and not of_sums and privacy.neighbours != "replace-one":
        allowed = "replace-one, the relation that is tested; set privacy.relation"
        problems.append(f"privacy.relation: {refusal(privacy.relation, allowed)}")
    if trust != "local" and not of_sums:
        problems.append(f"privacy.trust: found {trust}; allowed in an audit: local")
    if of_sums and trust != "coordinator":
        problems.append(f"privacy.trust: found {trust}; allowed in an audit of sums: coordinator")
    if privacy is not None and privacy.noise and privacy.noise.correlated is not None:
        text = "found noise that remembers; allowed in an audit: noise that is drawn anew"
        problems.append(f"privacy.noise.correlated: {text}")
    if getattr(scenario.algorithm.parameters, "order", "fresh") != "fresh":
        text = "found cyclic, so that a record is in some rounds only"
        problems.append(f"algorithm.order: {text}; allowed in an audit: fresh")
    if not 0.0 < level < 0.5:
        problems.append(f"level: {refusal(level, '0 < level < 0.5')}")
    if not claims:
        problems.append("claims: found none; allowed: paper, rigorous, or an epsilon")
    names = ("paper", "rigorous")
    for claim in claims:
        if isinstance(claim, str) and claim not in names:
            problems.append(f"claim: {refusal(claim, 'paper, rigorous, or an epsilon', names)}")
        if not isinstance(claim, str) and not claim >= 0.0:
            problems.append(f"claim: {refusal(claim, 'an epsilon >= 0')}")
    if scenario.stop.targets:
        problems.append(
            "stop.metric: found a run that ends on what the data say, which no release accounts "
            "for; allowed in an audit: rounds, time"
        )
    if problems:
        raise InputError(problems)
    delta = stated.delta if delta is None else delta
    check_delta(delta)
    return stated.view if view is None else view, delta


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit said: a finding for each claim about the records of `agent`.

    view: as the adversary was let see; notes: what a reader of the verdicts has to know; title:
    what was played, in words; played: the same as JSON holds it; scores: `Scores` or `Guessable`;
    arrays: those of scores.npz; samples: scores on D and on D', or of second and of first records;
    relation: of the two data sets.
    """

    name: str
    view: str
    agent: int
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    title: str
    played: Mapping[str, Any]
    scores: Any
    arrays: Mapping[str, NDArray[Any]]
    samples: tuple[Array, Array]
    of: str
    relation: str = RELATION

    def _repr_html_(self) -> str:
        found = [(one.claim.name, one.verdict) for one in self.findings]
        return card(f"{self.name}, view {self.view}", [*found, *(("", one) for one in self.notes)])

    def write(self, folder: str | Path) -> None:
        """Store audit.json, scores.npz and the figure trade-off.png in a new or empty directory."""
        from desim.interface.plots.trade_off import plot_audit

        path = Path(folder)
        place.check_free(path, force=None)
        try:
            path.mkdir(parents=True, exist_ok=True)
            place.write_text(path / "audit.json", json.dumps(self.plain(), indent=2) + "\n")
            place.write_arrays(path / "scores.npz", self.arrays)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        plot_audit(self.findings, *self.samples, out=path / "trade-off.png", of=self.of)

    def plain(self) -> dict[str, Any]:
        """The audit as JSON holds it; infinities as the text "infinite"."""
        return {
            "name": self.name, "view": self.view, "relation": self.relation, "agent": self.agent,
            **self.played, "findings": [_plain(one) for one in self.findings],
            "notes": list(self.notes),
        }  # fmt: skip


def _plain(finding: Finding) -> dict[str, Any]:
    keys = ("parameter", "method", "claimed", "low")
    tests = [{key: _number(getattr(test, key)) for key in keys} for test in finding.tests]
    claim = {key: _number(item) for key, item in asdict(finding.claim).items()}
    return {"claim": claim, "level": finding.level, "verdict": finding.verdict, "tests": tests}


def _number(value: Any) -> Any:
    if isinstance(value, float) and np.isinf(value):
        return "infinite"
    return float(value) if isinstance(value, np.floating) else value


# What the view shows of the runs of an audit, which decides how they are scored.


def require_agent(agent: int | None, agents: int) -> None:
    """Raise InputError for an agent that there is not; None is any."""
    if agent is not None and not 0 <= agent < agents:
        raise InputError(f"agent: {refusal(agent, f'0 to {agents - 1}')}")


def require_other(agent: int, adversary: Adversary) -> None:
    """Raise InputError for an agent whose data the adversary knows."""
    if agent in adversary.agents:
        raise InputError(f"agent: found {agent}, whose data the adversary {adversary} knows")


def tables_of(simulation: Simulation) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Releases and events of one play."""
    tables = Tables()
    unobserved(simulation).play(tables)
    return tables.read("releases"), tables.read("events")


def shown(
    releases: pd.DataFrame, events: pd.DataFrame, adversary: Adversary, agent: int
) -> tuple[frozenset[int], bool, frozenset[int]]:
    """(Ids of the agent's releases that the view shows, whether these are all, who hides some).

    Who looks at links sees no release whole. InputError for a view that no such run has.
    """
    require_seen(adversary, bool((releases["seen_by"] == "coordinator").any()), len(releases))
    shows, owner = visible(columns_of(releases), adversary, columns_of(events)), releases["agent"]
    own = (owner == agent).to_numpy()
    ids = frozenset(releases.loc[own & shows, "release"].tolist())
    whole = bool(shows[own].all()) and adversary.kind != "direct"
    return ids, whole, frozenset(owner[~shows].tolist())
