"""Models are those of Flower's own simulation, and the page has what was measured."""

from pathlib import Path

import pandas as pd
import pytest

pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")

from analysis.fidelity import flower_models

PAGE = Path(__file__).parents[1] / "analysis" / "docs" / "howto" / "flower.md"
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]


def test_a_model_is_that_of_flowers_own_simulation(monkeypatch):
    monkeypatch.setattr(flower_models, "ROUNDS", 2)
    monkeypatch.setattr(flower_models, "NODES", 3)
    found = flower_models.row("FedAdam", "numpy", "classic")
    assert flower_models.failures(pd.DataFrame([found])) == []
    assert found["difference"] == 0.0
    assert found["another"] > 1e-3


def test_the_page_has_what_was_measured_of_all_twelve():
    text, table = PAGE.read_text("utf-8"), pd.read_csv(flower_models.RESULTS)
    assert len({*zip(table["strategy"], table["client"], table["interface"], strict=True)}) == 12
    assert flower_models.failures(table) == []
    for one in table.to_dict("records"):
        assert flower_models.line(one) in text
    for wrong in ({"difference": 2e-12}, {"same log twice": False}, {"another": 0.0}):
        twin = table.assign(**wrong)
        assert len(flower_models.failures(twin)) == 12
        assert flower_models.line(twin.to_dict("records")[0]) not in text
