"""The tutorial notebook: played again, it says what is stored in it."""

from copy import deepcopy
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

pytestmark = pytest.mark.slow
NOTEBOOK = Path(__file__).resolve().parents[1] / "analysis" / "tutorial.ipynb"


def said(cell):
    """What a code cell has printed and shown as text; of a figure only that there is one."""
    found, before = [], None
    for output in cell.outputs:
        kind, before = (before, output.get("name")), output.get("name")
        if kind == ("stdout", "stdout"):  # one text may come in pieces
            found[-1] += output.text
        elif output.output_type == "stream" and output.name == "stdout":
            found.append(output.text)
        elif output.output_type in ("execute_result", "display_data"):
            figure = "image/png" in output.data
            text = "a figure" if figure else output.data["text/plain"]
            found += [text] if text else []  # a line of progress, which is empty in the end
        elif output.output_type == "error":
            found.append(f"{output.ename}: {output.evalue}")
    return found


def code(book):
    """Its code cells."""
    return [cell for cell in book.cells if cell.cell_type == "code"]


@pytest.fixture(scope="module")
def stored():
    """The notebook as it is kept."""
    return nbformat.read(NOTEBOOK, as_version=4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_is_stored_is_what_it_says_when_it_is_played(stored, tmp_path):
    book = deepcopy(stored)
    for cell in code(book):
        cell.outputs = []
    client = NotebookClient(book, timeout=300, kernel_name="python3")
    client.execute(cwd=str(tmp_path))
    played, kept = ([said(cell) for cell in code(one)] for one in (book, stored))
    assert played == kept
    assert [] in kept  # the first cell says nothing
    assert ["a figure"] in kept
    assert any("over a satellite" in text for texts in kept for text in texts)


def test_it_is_stored_as_it_was_played_from_top_to_bottom(stored):
    counts = [cell.execution_count for cell in code(stored)]
    assert counts == list(range(1, len(counts) + 1))
    assert NOTEBOOK.stat().st_size < 200_000
