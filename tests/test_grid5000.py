"""The page about Grid'5000 says what its table does, and the table is what the data give."""

import os
import re
from pathlib import Path

import pandas as pd
import pytest

from analysis.fidelity import grid5000

PAGE = Path(grid5000.__file__).with_suffix(".md")


def unsaid(text, table):
    """Lines of the table, and errors in words, that a text does not have."""
    wanted = grid5000.markdown(table).splitlines()
    found = grid5000.verdict(table)
    for group, named in (("same optimiser", "clients with SGD"), ("all", "all")):
        for what, word in (("seconds", "seconds"), ("kJ", "joules")):
            errors = (100 * found[f"{group} {what} {how}"] for how in ("median", "max"))
            cells = " | ".join(f"{one:.1f} %" for one in errors)
            wanted.append(f"{word}, {named} | {cells}")
    plain = text.replace(" (seven)", "")
    return [line for line in wanted if line not in plain]


def test_the_page_has_the_table_and_every_cell():
    table, text = pd.read_csv(grid5000.RESULTS), PAGE.read_text("utf-8")
    assert len(table) == 12
    assert table["runs"].tolist() == 12 * [5]
    assert unsaid(text, table) == []
    assert len(unsaid(text, table.assign(**{"kJ error": 1.1 * table["kJ error"]}))) > 5


def test_seconds_and_joules_are_as_near_as_they_are_said_to_be():
    found = grid5000.verdict(pd.read_csv(grid5000.RESULTS))
    assert found["all kJ median"] <= 0.02
    assert found["all kJ max"] <= 0.1
    assert found["same optimiser seconds median"] <= 0.01
    assert found["same optimiser seconds max"] <= 0.03


def test_the_table_is_what_the_data_give():
    folder = os.environ.get("DESIM_GRID5000")
    if not folder:
        pytest.skip("DESIM_GRID5000 names no copy of FL-G5K-EnergyConsumption")
    data = grid5000.read(Path(folder))
    table = grid5000.predicted(data, grid5000.calibrated(data))
    stored = pd.read_csv(grid5000.RESULTS)
    pd.testing.assert_frame_equal(table.round(6), stored, rtol=1e-5)
    assert re.search(r"fedavg \| 1 ", PAGE.read_text("utf-8"))
