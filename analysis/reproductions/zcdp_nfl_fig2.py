"""Figure 2 of zCDP-NFL: least absolute deviations, learning curves.

python -m analysis.reproductions.zcdp_nfl_fig2 [--sets N]
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

from analysis.reproductions import page, zcdp_nfl_panels, zcdp_nfl_words
from analysis.reproductions.monte_carlo import MonteCarlo
from analysis.reproductions.zcdp_nfl_methods import PLANS, Plan
from analysis.reproductions.zcdp_nfl_study import study as play
from desim.plots import Axes

NAME = "zcdp_nfl_fig2"
PLAN = PLANS[NAME]
SAYINGS = (zcdp_nfl_words.SUBGRADIENT, zcdp_nfl_words.CLASSICAL)


def study(monte_carlo: MonteCarlo, sets: int, plan: Plan = PLAN) -> list[dict[str, Any]]:
    """Rows of learning curves, both ways of tuning."""
    return play(monte_carlo, sets, plan)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the paper says of the figure and what is left of it, and the errors."""
    return zcdp_nfl_words.markdown(rows, SAYINGS)


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Curves, left with the paper's tuning, right tuned."""
    return zcdp_nfl_panels.draw(rows)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    page.carry_out(sys.modules[__name__], arguments)


if __name__ == "__main__":
    main()
