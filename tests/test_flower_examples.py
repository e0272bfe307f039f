"""Flower's own examples: the page has what was measured, and names those that did not run."""

from pathlib import Path

import pytest

from analysis.fidelity import flower_examples
from analysis.fidelity.flower_examples import markdown, read, stored, tabled

PAGE = Path(flower_examples.__file__).with_name("flower_examples.md")


def test_the_page_has_what_was_measured_and_names_what_did_not_run():
    text, table = PAGE.read_text("utf-8"), read()
    assert table["example"].tolist() == [one.name for one in flower_examples.CASES]
    rows = markdown(table).splitlines()
    assert len(rows) == 2 + (table["ran"] == "yes").sum()
    assert all(f"{line}\n" in text for line in rows)
    assert not all(line in text for line in markdown(table.assign(bytes=7.0)).splitlines())
    lines = [one for one in text.splitlines() if one.startswith("|") and one not in rows]
    for row in table[table["ran"] != "yes"].itertuples():
        assert row.why
        assert any(row.example in line for line in lines)


def test_a_row_takes_the_place_of_the_one_before(monkeypatch, tmp_path):
    monkeypatch.setattr(flower_examples, "RESULTS", tmp_path / "rows.csv")
    row = {"ran": "yes", "why": "", "bytes": 2e6, "difference": 1e-16, "replies": 0.5}
    stored({**row, "example": "opacus", "bytes": 3.0})
    stored({"example": "quickstart-numpy", "ran": "no", "why": "no model"})
    table = stored({**row, "example": "opacus"})
    assert table["example"].tolist() == ["quickstart-numpy", "opacus"]
    assert read().equals(table)
    text = markdown(table).splitlines()
    assert len(text) == 3
    assert len({line.count("|") for line in text}) == 1
    assert "| 2,000,000 | 1.0e-16 |" in text[2]
    assert "| 50% |" in text[2]
    assert "nan" not in text[2]
    assert tabled([]).columns.tolist() == table.columns.tolist()


def test_who_was_heard_is_a_share_of_who_was_asked():
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")
    from analysis.fidelity.flower_lockstep import Tape

    tape = Tape()
    assert tape.share() == 0.0
    tape.calls[0, "train"] = [(("train", 0, 1), "x"), (("train", 1, 2), "y")]
    tape.came = {"x", "of another"}
    assert tape.share() == 0.5
