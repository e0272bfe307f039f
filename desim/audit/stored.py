"""What audits by many runs and by one have in common: options, and how findings are stored."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array
from desim.audit.verdict import Finding
from desim.errors import InputError, refusal
from desim.runs import directory as place
from desim.scenario.schema import Scenario


def problems_of(
    scenario: Scenario, level: float, claims: Sequence[str | float], seed: int
) -> list[str]:
    """What is wrong with options of any audit, and with a scenario that none can test."""
    problems = []
    if seed < 0:
        problems.append(f"seed: {refusal(seed, 'a whole number, at least 0')}")
    given = scenario.privacy
    if given is not None and given.relation != "replace-one":
        allowed = "replace-one, the relation that is tested; set privacy.relation"
        problems.append(f"privacy.relation: {refusal(given.relation, allowed)}")
    if not 0.0 < level < 0.5:
        problems.append(f"level: {refusal(level, '0 < level < 0.5')}")
    if not claims:
        problems.append("claims: found none; allowed: paper, rigorous, or an epsilon")
    for claim in claims:
        if isinstance(claim, str) and claim not in ("paper", "rigorous"):
            allowed = "paper, rigorous, or an epsilon"
            problems.append(f"claim: {refusal(claim, allowed, ('paper', 'rigorous'))}")
        if not isinstance(claim, str) and not claim >= 0.0:
            problems.append(f"claim: {refusal(claim, 'an epsilon >= 0')}")
    if scenario.stop.targets:
        problems.append(
            "stop.metric: found a run that ends on what the data say, which no release accounts "
            "for; allowed in an audit: rounds, time"
        )
    return problems


def write_audit(
    path: Path, told: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]],
    findings: Sequence[Finding], old: Array, new: Array, of: str = "runs",
) -> None:  # fmt: skip
    """Store audit.json, scores.npz and the figure trade-off.png in a new or empty directory."""
    from desim.plots.audit import plot_audit

    place.check_free(path, force=False)
    try:
        path.mkdir(parents=True, exist_ok=True)
        place.write_text(path / "audit.json", json.dumps(told, indent=2) + "\n")
        place.write_arrays(path / "scores.npz", arrays)
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror})") from None
    plot_audit(findings, old, new, out=path / "trade-off.png", of=of)


def findings_told(findings: Sequence[Finding]) -> list[dict[str, Any]]:
    """Findings as JSON holds them; infinities as the text "infinite"."""
    return [
        {
            "claim": {key: _number(item) for key, item in asdict(one.claim).items()},
            "level": one.level,
            "verdict": one.verdict,
            "tests": [
                {
                    "parameter": test.parameter,
                    "method": test.method,
                    "claimed": _number(test.claimed),
                    "low": _number(test.low),
                }
                for test in one.tests
            ],
        }
        for one in findings
    ]


def _number(value: Any) -> Any:
    if isinstance(value, float) and np.isinf(value):
        return "infinite"
    return float(value) if isinstance(value, np.floating) else value
