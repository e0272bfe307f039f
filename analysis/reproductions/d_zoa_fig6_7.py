"""Figures 6 and 7 of D-ZOA: learning curves and trade-offs with the ridge penalty.

Above, errors over the rounds; below, after the last one, against what the paper counts and against
an epsilon that holds. Where J is large D-ZOA is played on fewer data sets; the table says on which.
python -m analysis.reproductions.d_zoa_fig6_7 [--sets N]
"""

import sys
from collections.abc import Sequence

from analysis.reproductions import d_zoa_panels, d_zoa_study, page
from analysis.reproductions.monte_carlo import MonteCarlo

NAME = "d_zoa_fig6_7"
markdown, draw = d_zoa_panels.markdown, d_zoa_panels.draw


def study(monte_carlo: MonteCarlo, sets: int) -> list[d_zoa_study.Row]:
    """Rows of all panels."""
    return d_zoa_study.study(monte_carlo, sets, "ridge")


def main(arguments: Sequence[str] | None = None) -> None:
    """Play, print, draw and write."""
    page.carry_out(sys.modules[__name__], arguments)


if __name__ == "__main__":
    main()
