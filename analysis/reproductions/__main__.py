"""Plays all of them, or those that are named: python -m analysis.reproductions [NAME...]."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from analysis.reproductions import (
    bucketing_table,
    choco_sgd_bits,
    d_zoa_attack,
    d_zoa_fig1,
    d_zoa_fig2_3,
    d_zoa_panels,
    ding_one_budget,
    dp_ftrl_epsilon,
    fair_fig17_18_table1,
    fed_plt_fig2,
    fed_plt_fig3,
    fed_plt_table1,
    fed_plt_table2,
    fed_plt_table3,
    fed_plt_table4,
    fedbuff_seconds,
    ipp_admm_fig7_13,
    muffliato_distance,
    page,
    pr_admm_fig2_6,
    q_dpsgd_fig14_16,
    zcdp_nfl_panels,
)

SCRIPTS = (
    fed_plt_table1, fed_plt_table2, fed_plt_table3, fed_plt_table4, fed_plt_fig2, fed_plt_fig3,
    *zcdp_nfl_panels.FIGURES, d_zoa_fig1, d_zoa_fig2_3, *d_zoa_panels.FIGURES, d_zoa_attack,
    pr_admm_fig2_6, ipp_admm_fig7_13, ding_one_budget, q_dpsgd_fig14_16, fair_fig17_18_table1,
    fedbuff_seconds,
    choco_sgd_bits,
    dp_ftrl_epsilon,
    muffliato_distance,
    bucketing_table,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Read the command line and play the studies, one after the other."""
    names = {script.NAME: script for script in SCRIPTS}
    parser = argparse.ArgumentParser(prog="python -m analysis.reproductions", description=__doc__)
    parser.add_argument(
        "names", nargs="*", choices=names, metavar="NAME", help=f"default: {', '.join(names)}"
    )
    parser.add_argument("--sets", type=int, help="data sets; default: those that the page has")
    parser.add_argument("--processes", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--out", type=Path, help="folder for CSV and figures; default: results/ and README.md, "
        "nothing is written for another number of data sets",
    )  # fmt: skip
    given = parser.parse_args(arguments)
    for name in given.names or names:
        print(f"\n{name}\n")
        page.carry_out(names[name], given.sets, given.processes, given.out)


if __name__ == "__main__":
    main()
