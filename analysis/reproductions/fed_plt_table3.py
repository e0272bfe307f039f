"""Table III of Fed-PLT: its rate against the number of agents that take part in a round.

python -m analysis.reproductions fed_plt_table3 [--sets N]
"""

from collections.abc import Sequence
from typing import Any

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import Case, MonteCarlo, mean_and_error, reported

NAME = "fed_plt_table3"
BAND = 0.02
PAPER = (0.955, 0.907, 0.862, 0.815, 0.764, 0.719, 0.666, 0.617, 0.569, 0.531)


def case(active: int) -> Case:
    """Fed-PLT with `active` of ten agents, drawn uniformly, in each round."""
    return Case("fed-plt", {"participation": {"uniform": active}, "stop.rounds": 2000})


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each number of active agents."""
    cases = {active: case(active) for active in range(1, len(PAPER) + 1)}
    rows = []
    for active, rates in monte_carlo.values(cases, reported(sets)).items():
        ours, error = mean_and_error(rates)
        paper = PAPER[active - 1]
        words = verdicts.rate(ours, error, paper, BAND, sets)
        numbers = {"paper": paper, "ours": ours, "standard_error": error, "sets": sets}
        rows.append({"active": active, **numbers, "verdict": words})
    return rows


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The table beside the paper's."""
    lines = [
        (
            f"{row['active']:g}", f"{row['paper']:.3f}", f"{row['ours']:.3f}",
            f"{row['standard_error']:.4f}", row["verdict"],
        )
        for row in rows
    ]  # fmt: skip
    return page.table(("active agents", "paper", "ours", "standard error", "verdict"), lines)
