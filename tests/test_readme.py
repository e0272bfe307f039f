"""README, CONTRIBUTING and the page on design do what they say, and stay short."""

import dataclasses
import inspect
import re
from pathlib import Path

import pages
import pytest

from desim.methods.fedavg import FedAvg

HOME = Path(__file__).resolve().parents[1]
README = (HOME / "README.md").read_text("utf-8")
CONTRIBUTING = (HOME / "CONTRIBUTING.md").read_text("utf-8")
DESIGN = (HOME / "analysis/docs/design.md").read_text("utf-8")


def blocks(language):
    return [block for block in pages.blocks(README) if block.language == language]


def test_its_commands_print_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert len(blocks("console")) == 2
    for block in blocks("console"):
        pages.console(block, {})


def test_its_session_of_python_gives_what_it_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pages.python(blocks("python")[0], {})
    assert (tmp_path / "accuracy.png").is_file()
    wrong = dataclasses.replace(
        block := blocks("python")[0], text=block.text.replace("6.731", "6.7")
    )
    with pytest.raises(pages.Wrong):
        pages.python(wrong, {})


def test_the_method_that_the_page_on_design_shows_is_the_text_of_fedavg():
    (block,) = pages.blocks(DESIGN)
    assert block.text.strip() == inspect.getsource(FedAvg.coordinator).strip()


def test_the_listener_that_contributing_shows_is_all_that_it_takes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    shown = CONTRIBUTING[CONTRIBUTING.index("**`sent.py`**") :]
    assert pages.mistake(shown, tmp_path) == ""
    assert pages.mistake(shown.replace("messages 800", "messages 799"), tmp_path) != ""


def test_its_two_commands_are_those_that_ci_runs():
    found = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert [line.split(" && ")[-1].split("/")[-1] for line in found] == [
        "quickstart.yaml", "python -m pytest -n auto",
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), [(README, 750), (CONTRIBUTING, 950)])
def test_both_are_short_and_their_links_lead_somewhere(text, words):
    assert len(text.split()) <= words
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    assert [link for link in links if "://" not in link and not (HOME / link).exists()] == []


@pytest.mark.parametrize("word", ["plays", "played", "true from", "waited for    "])
def test_words_that_need_to_be_explained_are_gone(word):
    assert word not in README
