"""The README does what it says: its commands print what it shows, its method is FedAvg's text."""

import dataclasses
import inspect
import re
import textwrap
from pathlib import Path

import pages
import pytest

from desim.methods.fedavg import FedAvg

README = (Path(__file__).resolve().parents[1] / "README.md").read_text("utf-8")


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


def test_its_method_is_the_text_of_fedavg():
    _, block = blocks("python")
    written = textwrap.dedent(inspect.getsource(FedAvg.coordinator))
    assert block.text.strip() == written.strip()


def test_its_two_commands_are_those_that_ci_runs():
    found = [line for line in README.splitlines() if line.startswith("python3 -m venv ")]
    assert [line.split(" && ")[-1].split("/")[-1] for line in found] == [
        "quickstart.yaml", "python -m pytest -n auto",
    ]  # fmt: skip


def test_it_is_short_and_its_links_lead_somewhere():
    assert len(README.split()) <= 1000
    home = Path(__file__).resolve().parents[1]
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", README)
    assert [link for link in links if "://" not in link and not (home / link).exists()] == []


@pytest.mark.parametrize("word", ["plays", "played", "true from", "waited for    "])
def test_words_that_need_to_be_explained_are_gone(word):
    assert word not in README
