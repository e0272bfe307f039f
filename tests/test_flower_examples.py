"""The table of Flower's own examples: what did not run says why, and what is missing is empty."""

import pytest

from analysis.fidelity.flower_examples import markdown, tabled


def test_a_row_says_what_was_measured_and_why_not():
    rows = [
        {
            "example": "a",
            "ran": "yes",
            "why": "",
            "bytes": 2e6,
            "difference": 1e-16,
            "replies": 0.5,
        },
        {"example": "b", "ran": "no", "why": "no model"},
    ]
    text = markdown(tabled(rows)).splitlines()
    assert len({line.count("|") for line in text}) == 1
    assert "| 2 | 1.0e-16 |" in text[2]
    assert "| 50 |" in text[2]
    assert "no: no model" in text[3]
    assert "nan" not in text[3].split("no model")[1]


def test_who_was_heard_is_a_share_of_who_was_asked():
    pytest.importorskip("flwr", reason="flwr is not installed: pip install 'desim[flower]'")
    from analysis.fidelity.flower_lockstep import Tape

    tape = Tape()
    assert tape.share() == 0.0
    tape.calls[0, "train"] = [(("train", 0, 1), "x"), (("train", 1, 2), "y")]
    tape.came = {"x", "of another"}
    assert tape.share() == 0.5
