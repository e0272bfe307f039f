"""The table of robust rules: who has which rows, what a cell is, verdicts that follow numbers."""

import numpy as np

from analysis.reproductions import bucketing_table as table
from analysis.reproductions import page

TEXTS = ("rule", "attack")


def stored():
    """Rows of the stored table."""
    return page.read(page.RESULTS / f"{table.NAME}.csv", TEXTS)


def test_the_page_says_what_the_table_holds():
    text = page.README.read_text("utf-8")
    rows = stored()
    assert table.markdown(rows) in text
    assert len(rows) == len(list(table.cells())) == 54
    other = [{**row, "accuracy": row["accuracy"] - 30.0} for row in rows]
    assert table.markdown(other) not in text


def test_honest_agents_have_rows_by_label_and_attackers_of_all(monkeypatch):
    rows = (table.HONEST + table.LIARS) * table.ROWS
    b = np.arange(rows) % 10.0
    images = np.arange(rows)[:, None].astype(float), b, np.zeros((20, 1)), np.zeros(20)
    monkeypatch.setattr(table, "images", lambda: images)
    found = table.dealt(3)
    assert found["A"].shape == (25, table.ROWS, 1)
    assert np.array_equal(found["A"][..., 0] % 10, found["b"])  # labels go with their rows
    assert sorted(found["A"].ravel()) == list(range(rows))
    kinds = [len(np.unique(labels)) for labels in found["b"]]
    assert max(kinds[: table.HONEST]) <= 3 < min(kinds[table.HONEST :])
    assert (np.diff(found["b"][: table.HONEST].ravel()) >= 0).all()


def test_a_cell_is_its_rule_and_attack(tmp_path):
    made = table.scenario(tmp_path / "x.npz", 1, {"krum": 5, "bucketing": 2}, "mimic")
    assert made["algorithm"]["aggregate"] == {"krum": 5, "bucketing": 2}
    assert made["attackers"] == {"agents": [20, 21, 22, 23, 24], "attack": "mimic"}
    assert "attackers" not in table.scenario(tmp_path / "x.npz", 1, {"mean": True}, None)


def test_a_gain_is_judged_by_its_sign_and_error():
    rows = stored()
    (krum,) = [one for one in table.gains(rows) if one[:2] == ("krum", "label-flip")]
    assert krum[-1] == "agrees in sign"
    turned = [{**row, "accuracy": -row["accuracy"]} for row in rows]
    (krum,) = [one for one in table.gains(turned) if one[:2] == ("krum", "label-flip")]
    assert krum[-1] == "differs in sign"
    wide = [{**row, "error": 50.0} for row in rows]
    assert {one[-1] for one in table.gains(wide)} == {"not told apart from 0"}
