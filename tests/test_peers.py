"""The benchmark beside peers: contestants that are always there agree, and the page is kept."""

import json
import runpy
import subprocess
import sys

import numpy as np
import pytest

from analysis.benchmarks.peers import contest, environments, order, report
from analysis.benchmarks.peers.__main__ import problem

TRAIN_TEST = ("train", "test")
NAMES = [
    "desim, log stored",
    "desim, log discarded",
    "NumPy, all agents at once",
    "NumPy, agent by agent",
]


@pytest.mark.slow
def test_contestants_find_the_same_models(tmp_path, monkeypatch):
    few = {name: contest.CONTESTANTS[name]._replace(updates=8) for name in NAMES}
    monkeypatch.setattr(contest, "CONTESTANTS", few)
    rows = contest.held(problem(4, tmp_path), 4, NAMES, tmp_path, 2)
    assert [row.name for row in rows] == NAMES
    assert all(row.difference < contest.EQUAL and not row.remark for row in rows)
    assert all(0.0 < row.least <= row.median for row in rows)
    assert "desim" in rows[0].versions


def test_other_models_are_marked():
    row = contest._row(4, "NumPy", [[1.0, 0.5]], 1e-6, 2, {"numpy": "2"})
    assert (row.remark, row.least, row.processor) == ("OTHER ITERATES", 125_000.0, 62_500.0)


@pytest.mark.slow
def test_what_cannot_be_installed_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setitem(environments.NEEDS, "jax", environments.Needs(("x",), "2.0"))
    row, *_ = contest.held(problem(4, tmp_path), 4, ["JAX, jit and scan"], tmp_path, 1)
    assert row.remark == "skipped: needs Python 2.0, which is not on the path"
    assert "| skipped" in report._line(row, 1.0)


def test_a_worker_that_fails_tells_why():
    code = "import sys; print('no', file=sys.stderr)"
    process = subprocess.Popen(
        [sys.executable, "-c", code], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    with process, pytest.raises(environments.Unavailable, match="x failed: no"):
        contest._answer(process, "x")


def test_order_changes_nothing_here():
    assert order.played(1) == order.played(-1)


def test_the_section_replaces_itself(tmp_path, monkeypatch):
    row = contest.Row(10, "desim, log stored", 1.0, 1.5, 1.0, 1e-16, 2, "numpy 2")
    text = report.section([row], [order.Effect("desim", "a", "a")])
    assert "| 10 | desim, log stored | 1.00 | 1.50 | 1.00 | 1.00 | 1.0e-16 |" in text
    monkeypatch.setattr(report, "HOME", tmp_path)
    readme = tmp_path / "README.md"
    readme.write_text("# Page\n<!-- peers -->\nold\n<!-- /peers -->\nmore\n")
    report.write([row], [order.Effect("desim", "a", "a")])
    assert readme.read_text() == f"# Page\n<!-- peers -->\n{text}<!-- /peers -->\nmore\n"
    head, line = (tmp_path / "results" / "peers.csv").read_text().splitlines()
    assert head == ",".join(contest.Row._fields)
    assert line == '10,"desim, log stored",1,1.5,1,1e-16,2,numpy 2,'
    assert (tmp_path / "results" / "order.csv").read_text() == "name,first,second\ndesim,a,a\n"


@pytest.fixture
def networks():
    """The benchmark of networks; threads of torch are as they were afterwards."""
    networks = pytest.importorskip(
        "analysis.benchmarks.peers.networks", reason="torch is not installed", exc_type=ImportError
    )
    import torch

    before = torch.get_num_threads()
    yield networks
    torch.set_num_threads(before)


@pytest.mark.slow
def test_contestants_with_networks_say_their_seconds(tmp_path, networks, monkeypatch, capsys):
    draws, file = np.random.default_rng(0), tmp_path / "images.npz"
    some = {"x": draws.integers(0, 256, (80, 28, 28), np.uint8), "y": np.arange(80) % 10}
    np.savez(file, **{f"{key}_{part}": one for key, one in some.items() for part in TRAIN_TEST})
    monkeypatch.syspath_prepend(networks.HERE)
    for script in ("with_torch.py", "with_desim_model.py"):
        monkeypatch.setattr(sys, "argv", [script, str(file), "2", "2"])
        runpy.run_path(str(networks.HERE / script), run_name="__main__")
        said = capsys.readouterr().out.removeprefix("RESULT ")
        assert len(json.loads(said)["rounds"]) == 1
    monkeypatch.delitem(sys.modules, "network")


def test_a_contestant_is_a_process_whose_memory_is_watched(tmp_path, networks):
    script, python = tmp_path / "with_much.py", environments.interpreter("", tmp_path)
    script.write_text(
        "import sys, time\nheld = bytes(1) * (120 << 20)\ntime.sleep(0.6)\n"
        "print('RESULT {\"rounds\": ' + sys.argv[1] + '}')\n"
    )
    found = networks.played(python, str(script), ["[0.5]"])
    assert found["rounds"] == [0.5]
    assert 100 < found["memory"] < 200
    with pytest.raises(environments.Unavailable, match="No such file"):
        networks.played(python, "with_nothing.py", [])


def test_the_problem_has_both_labels_and_an_intercept(tmp_path):
    with np.load(problem(10, tmp_path)) as file:
        assert (file["A"][:, :, 0] == 1.0).all()
        assert all(set(labels) == {-1.0, 1.0} for labels in file["b"])
        assert 0.0 < file["gamma"].item() < 1.0
        assert json.dumps(file["epochs"].item()) == "10"
