"""Spoiled files, runs, plug-ins and command lines are taken, or refused in words."""

from collections import Counter

import pytest

import desim
from analysis import fuzz_files
from analysis.fuzz_subjects import as_yaml, subjects
from desim.privacy.accounting import accountants


@pytest.fixture(scope="module")
def ready(tmp_path_factory):
    """Two stored runs."""
    folder = tmp_path_factory.mktemp("ready")
    fuzz_files.store(folder)
    return folder


def outcomes(count, ready):
    """How many inputs came to what, and what is wrong; time is not looked at."""
    found = list(fuzz_files.fuzz(count, 5, ready))
    return Counter(one for one, _ in found), [text for one, text in found if one == "fault"]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", list(subjects()))
def test_what_is_not_spoiled_works(name, tmp_path):
    files, scenario = subjects()[name]
    for file, raw in files.items():
        (tmp_path / file).write_bytes(raw)
    if name == "study":
        assert desim.study(tmp_path / "study.yaml", tmp_path / "out", workers=0).complete
        return
    (tmp_path / "scenario.yaml").write_bytes(as_yaml(scenario))
    assert desim.run(tmp_path / "scenario.yaml").status == "done"


@pytest.mark.slow
def test_what_is_spoiled_is_refused_in_words(ready):
    found, faults = outcomes(60, ready)
    assert faults == []
    assert found["refused"] > 15
    assert found["taken"] > 5


def test_a_fault_is_found(ready, monkeypatch):
    monkeypatch.setattr(fuzz_files.build, "check", lambda loaded: 1 // 0)
    monkeypatch.setattr(accountants, "account", lambda *a, **k: 1 // 0)
    _, faults = outcomes(30, ready)
    assert faults
    assert any("ZeroDivisionError" in text for text in faults)
