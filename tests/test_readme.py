"""The README does what it says: its commands print what it shows, its method is FedAvg."""

import re
from pathlib import Path

import numpy as np
import pages
import pytest

import desim
from desim.algorithms.fedavg import FedAvg
from desim.scenario import registry

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")
SCENARIO = {
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "regression", "rows": 6, "dim": 3},
        "loss": "squared",
    },
    "algorithm": {"name": "fedavg", "local": {"epochs": 3}},
    "network": "wifi",
    "policy": {"quorum": 3},
    "observe": {"metrics": ["loss"]},
    "stop": {"rounds": 5},
}


def blocks(language):
    return [block for block in pages.blocks(README) if block.language == language]


def test_its_commands_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert len(blocks("console")) == 2
    for block in blocks("console"):
        pages.console(block, {})


def played(source, monkeypatch):
    """A run of FedAvg with the coordinator that `source` defines."""
    named = {}
    exec(source, named)
    own = type("Own", (FedAvg,), {**named, "name": "own", "compiled": lambda self: None})
    monkeypatch.setitem(registry._plugged.methods, "own", own)
    return desim.run({**SCENARIO, "algorithm": {**SCENARIO["algorithm"], "name": "own"}})


def test_its_method_is_fedavg_in_eight_lines(monkeypatch):
    (block,) = blocks("python")
    assert len(block.text.strip().splitlines()) == 1 + 8  # its head, and eight
    run, other = played(block.text, monkeypatch), desim.run(SCENARIO)
    assert np.allclose(run.model, other.model, rtol=1e-12, atol=0)
    assert run.events.time.equals(other.events.time)
    wrong = block.text.replace("own.x + replies", "replies")
    assert not np.allclose(played(wrong, monkeypatch).model, other.model)


def test_its_two_commands_are_those_that_ci_runs():
    found = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert [line.split(" && ")[-1].split("/")[-1] for line in found] == [
        "quickstart.yaml", "python -m pytest -n auto",
    ]  # fmt: skip


def test_it_is_short_and_its_links_lead_somewhere():
    assert len(README.split()) <= 950
    home = Path(__file__).resolve().parents[1]
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert [link for link in links if "://" not in link and not (home / link).exists()] == []


@pytest.mark.parametrize("word", ["plays", "played", "true from", "waited for    "])
def test_words_that_need_to_be_explained_are_gone(word):
    assert word not in README
