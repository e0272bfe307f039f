"""The documentation builds without warnings, and every block in it does what the page says."""

import subprocess
import sys
from pathlib import Path

import pages
import pytest

DOCS = Path(__file__).resolve().parents[1] / "analysis" / "docs"
NOT_WRITTEN = {"_build", "generated"}
PAGES = sorted(
    path.relative_to(DOCS).as_posix()
    for path in DOCS.rglob("*.md")
    if not NOT_WRITTEN & set(path.relative_to(DOCS).parts)
)

NEEDING = {
    "howto/torch.md": "torch", "howto/track.md": "tensorboard", "howto/flower.md": "flwr",
}  # fmt: skip


def test_the_gallery_shows_every_figure():
    shown = (DOCS / "gallery.md").read_text("utf-8")
    drawn = [path.name for path in (DOCS.parent / "figures").glob("*.svg")]
    assert len(drawn) > 10
    assert [name for name in drawn if f"../figures/{name}" not in shown] == []


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty working directory, at a terminal of 100 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_block_does_what_the_page_says(page, desk):
    if needed := NEEDING.get(page):
        pytest.importorskip(needed, reason=f"the page is about {needed}, which is not installed")
    assert pages.mistake((DOCS / page).read_text("utf-8"), desk) == ""


# The tree of all pages beside each page, and the index of words for the search, are half of the
# work, and warn of nothing that the pages have not been warned of before.
BARE = """
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.cmd.build import main
StandaloneHTMLBuilder._get_local_toctree = lambda *_, **__: ""
StandaloneHTMLBuilder.search = False
raise SystemExit(main())
"""


@pytest.mark.slow
def test_the_docs_build_without_warnings(tmp_path):
    command = [sys.executable, "-c", BARE, "-q", "-W", "--keep-going", "-d", "trees"]
    done = subprocess.run(
        [*command, str(DOCS), "site"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert (tmp_path / "site" / "index.html").is_file()


SCENARIO = """
problem: {agents: 2, data: {source: synthetic, kind: regression, rows: 4, dim: 2}, loss: squared}
algorithm: {name: fedavg, local: {epochs: 2}}
stop: {rounds: 2}
"""
WRONG = {
    "a command that prints something else": "```console\n$ desim --version\ndesim 9.9\n```\n",
    "a command that prints what is not shown": "```console\n$ echo words\n```\n",
    "a command that fails": "```console\n$ false\n```\n",
    "a command that should fail": "<!-- test: exit 2 -->\n```console\n$ true\n```\n",
    "a session with another result": "```python\n>>> 1 + 1\n3\n```\n",
    "python that raises": "```python\n1 / 0\n```\n",
    "a key that is not there": "```yaml\nstop: {round: 3}\n```\n",
    "a scenario that is not valid": (
        "**`s.yaml`**\n\n```yaml\n" + SCENARIO.replace("fedavg", "fedavq") + "```\n"
    ),
    "a language that nobody plays": "```perl\nprint 1\n```\n",
    "a text that is not in the file": "<!-- test: in README.md -->\n```sh\nrm -rf /\n```\n",
}


@pytest.mark.parametrize("page", WRONG.values(), ids=WRONG.keys())
def test_a_wrong_page_is_found_out(page, desk):
    assert pages.mistake(page, desk).startswith("line ")


def test_a_right_page_passes(desk):
    page = (
        "# Page\n\n**`s.yaml`**\n\n```yaml\n" + SCENARIO + "```\n\n"
        "```console\n$ desim run s.yaml\ns: done\n...\n```\n\n"
        "<!-- test: onto s.yaml -->\n```yaml\nnetwork: {link: {latency: 20 ms}}\n```\n\n"
        "<!-- test: exit 2 -->\n```console\n$ desim check none.yaml\nnone.yaml: ...\n```\n\n"
        "```python\nimport desim\nrun = desim.open('runs/s')\n```\n\n"
        "```python\n>>> run.status\n'done'\n```\n"
    )
    assert [
        one.language for one in pages.blocks(page)
    ] == "yaml console yaml console python python".split()
    assert pages.mistake(page, desk) == ""
    assert (desk / "runs" / "s" / "events.parquet").is_file()


def test_progress_of_a_slow_machine_is_no_output():
    said = ["audit: reference for canary 2/20 (10%)\n", "tuner: 3 candidates: 1 best\n"]
    assert pages.lasting([*said, "candidates 1 to 10: run 3/10 (30%)\n"]) == said[1]
