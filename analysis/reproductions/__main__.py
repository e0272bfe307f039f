"""All of them: python -m analysis.reproductions [--sets N]; seconds of each are printed."""

from analysis.reproductions import (
    d_zoa_attack,
    d_zoa_fig1,
    d_zoa_fig2_3,
    d_zoa_fig4_5,
    d_zoa_fig6_7,
    ding_one_budget,
    fair_fig17_18_table1,
    fed_plt_fig2,
    fed_plt_fig3,
    fed_plt_table1,
    fed_plt_table2,
    fed_plt_table3,
    fed_plt_table4,
    ipp_admm_fig7_13,
    pr_admm_fig2_6,
    q_dpsgd_fig14_16,
    zcdp_nfl_fig1,
    zcdp_nfl_fig2,
    zcdp_nfl_fig3,
)

SCRIPTS = (
    fed_plt_table1,
    fed_plt_table2,
    fed_plt_table3,
    fed_plt_table4,
    fed_plt_fig2,
    fed_plt_fig3,
    zcdp_nfl_fig1,
    zcdp_nfl_fig2,
    zcdp_nfl_fig3,
    d_zoa_fig1,
    d_zoa_fig2_3,
    d_zoa_fig4_5,
    d_zoa_fig6_7,
    d_zoa_attack,
    pr_admm_fig2_6,
    ipp_admm_fig7_13,
    ding_one_budget,
    q_dpsgd_fig14_16,
    fair_fig17_18_table1,
)

if __name__ == "__main__":
    for script in SCRIPTS:
        print(f"\n{script.NAME}\n")
        script.main()
