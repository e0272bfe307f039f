"""All of them: python -m analysis.reproductions [--sets N]; seconds of each are printed."""

from analysis.reproductions import (
    fed_plt_fig2,
    fed_plt_fig3,
    fed_plt_table2,
    fed_plt_table3,
    fed_plt_table4,
)

if __name__ == "__main__":
    for script in (fed_plt_table2, fed_plt_table3, fed_plt_table4, fed_plt_fig2, fed_plt_fig3):
        print(f"\n{script.NAME}\n")
        script.main()
