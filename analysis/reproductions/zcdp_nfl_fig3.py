"""Figure 3 of zCDP-NFL: ridge regression, learning curves and privacy-accuracy trade-off.

python -m analysis.reproductions.zcdp_nfl_fig3 [--sets N]
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.reproductions import page, zcdp_nfl_panels, zcdp_nfl_words
from analysis.reproductions.monte_carlo import MonteCarlo
from analysis.reproductions.zcdp_nfl_methods import PLANS, Plan
from analysis.reproductions.zcdp_nfl_study import study as play
from desim.plots import Axes

NAME = "zcdp_nfl_fig3"
PLAN = PLANS[NAME]
SAYINGS = (
    zcdp_nfl_words.EXACT,
    zcdp_nfl_words.UNNAMED,
    zcdp_nfl_words.CLASSICAL,
    zcdp_nfl_words.same_cost,
)


def study(monte_carlo: MonteCarlo, sets: int, plan: Plan = PLAN) -> list[dict[str, Any]]:
    """Rows of learning curves and trade-offs, both ways of tuning."""
    return play(monte_carlo, sets, plan)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the paper says of the figure and what is left of it, and the errors."""
    return zcdp_nfl_words.markdown(rows, SAYINGS)


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Curves and trade-off, above with the paper's tuning, below tuned."""
    return zcdp_nfl_panels.draw(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    page.carry_out(sys.modules[__name__], arguments)


if __name__ == "__main__":
    main()
