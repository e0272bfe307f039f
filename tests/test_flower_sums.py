"""What the page says that Flower's SecAgg+ costs is what was measured."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")

from analysis.benchmarks import flower_sums

PAGE = Path(__file__).parents[1] / "analysis" / "docs" / "howto" / "flower.md"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def line(row):
    """A row as the page has it."""
    numbers = f"{row.seconds:.2f} | {row.bytes:.2f} | {row.messages:.2f}"
    shares = f"{row.plain_averaged:.0%} | {row.secret_averaged:.0%}"
    broken = f"{row.broken} of {len(flower_sums.SEEDS)}"
    return f"| {row.network} | {row.dropout:.0%} | {numbers} | {shares} | {broken} |"


def test_the_page_has_what_was_measured():
    text, table = PAGE.read_text("utf-8"), pd.read_csv(flower_sums.RESULTS)
    cells = [(one, rate) for one in flower_sums.NETWORKS for rate in flower_sums.RATES]
    assert [*zip(table["network"], table["dropout"], strict=True)] == cells
    for row in table.itertuples():
        assert line(row) in text
    assert line(table.assign(seconds=table["seconds"] + 0.1).iloc[0]) not in text
