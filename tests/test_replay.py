"""A stored run played again: the same to the last bit, or the first row that is not."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from cases import CASES, graph, star

import desim
from desim.errors import InputError, RunError
from desim.interface.cli import main
from desim.runs.replay import first_difference


@pytest.fixture
def stored(tmp_path):
    desim.run(graph(), out=tmp_path / "run")
    return tmp_path / "run"


def call(capsys, *arguments):
    """Exit code, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as left:
        main([str(one) for one in arguments])
    return left.value.code, *capsys.readouterr()


@pytest.mark.parametrize("name", ["plt-each", "plt-deadline", "nfl-lossy", "gd-time", "nfl-target"])
def test_a_run_comes_out_again(tmp_path, name):
    desim.run(CASES[name], out=tmp_path / "run")
    found = desim.replay(desim.open(tmp_path / "run"))
    assert found.same
    assert found.whole
    assert found.lines() == []


def test_a_run_that_failed_fails_again(tmp_path):
    wild = star(algorithm={"name": "fed-plt", "rho": 0.5, "local": {"step": 1e6, "epochs": 9}})
    with pytest.raises(RunError):
        desim.run(wild, out=tmp_path / "run")
    assert desim.replay(desim.open(tmp_path / "run")).same


TAMPERED = [
    ("events", 100, "seconds", 0.125),
    ("events", 7, "agent", 3),
    ("metrics", 12, "value", 2.5),
    ("releases", 30, "scale", 0.5),
    ("releases", 30, "mechanism", "sorcery"),
]


@pytest.mark.thin(3)
@pytest.mark.parametrize(("table", "row", "column", "value"), TAMPERED)
def test_the_first_row_that_differs_is_told(stored, table, row, column, value, capsys):
    file = stored / f"{table}.parquet"
    frame = pd.read_parquet(file)
    true = frame[column].iloc[row]
    if isinstance(frame[column].dtype, pd.CategoricalDtype):
        frame[column] = frame[column].cat.add_categories([value])
    frame.loc[[row, row + 5], column] = value
    frame.to_parquet(file)
    found = desim.replay(desim.open(stored))
    assert found.differences.to_numpy().tolist() == [[table, row, column, value, true]]
    code, _, err = call(capsys, "replay", stored)
    assert code == 1
    assert err == f"{table}: row {row}, {column}: stored {value}, replayed {true}\n"


def test_arrays_are_compared_too(stored):
    with np.load(stored / "state.npz") as file:
        state = dict(file)
    state["x"][2, 1] += 1e-15
    np.savez(stored / "state.npz", **state)
    row = desim.replay(desim.open(stored)).differences.iloc[0]
    assert (row["table"], row["row"], row["column"]) == ("state x", 2 * 4 + 1, "entry")


def test_of_a_killed_run_the_beginning_counts(stored, capsys):
    manifest = json.loads((stored / "manifest.json").read_text())
    (stored / "manifest.json").write_text(json.dumps(manifest | {"status": "running"}))
    (stored / "parts").mkdir()
    frame = pd.read_parquet(stored / "events.parquet")
    frame.iloc[:50].to_parquet(stored / "parts" / "events-00000.parquet")
    (stored / "events.parquet").unlink()
    found = desim.replay(desim.open(stored))
    assert found.same
    assert not found.whole
    code, out, _ = call(capsys, "replay", stored)
    assert (code, out.split("(")[0]) == (0, "scenario: the same to the last bit ")


def test_rows_too_many_and_too_few():
    frame = pd.DataFrame({"time": [0.0, np.nan], "kind": pd.Categorical(["send", "lost"])})
    assert first_difference(frame, frame.copy(), "events") is None
    short = frame.iloc[:1]
    assert first_difference(frame, short, "events").replayed == "no row"
    assert first_difference(short, frame, "events").stored == "no row"
    assert first_difference(short, frame, "events", whole=False) is None
    assert first_difference(frame, short, "events", whole=False) is not None


def test_the_command_retime(tmp_path, monkeypatch, capsys):
    """Words and files of short runs, which need no machine code."""
    monkeypatch.setenv("DESIM_COMPILE", "never")
    monkeypatch.chdir(tmp_path)
    stored = tmp_path / "run"
    desim.run(graph(), out=stored)
    code, out, err = call(capsys, "retime", stored, "--network", "satellite")
    assert (code, err) == (0, "")
    assert "scenario: done" in out
    assert desim.open("runs/scenario-satellite").manifest["time"] > 1.0
    own = tmp_path / "mine.yaml"
    own.write_text("network: {link: {latency: 1 s}}\ncompute: {speed: 10 /s}\n")
    code, out, _ = call(capsys, "retime", stored, "--network", own, "--compute", own)
    assert code == 0
    new = desim.open("runs/scenario-mine").scenario
    assert (new.network.link.latency.a, new.compute.speed.a) == (1.0, 10.0)
    code, out, err = call(capsys, "retime", stored)
    assert (code, out) == (2, "")
    assert "neither --network nor --compute" in err
    shutil.rmtree(stored)
    code, _, err = call(capsys, "retime", stored, "--network", "wifi")
    assert (code, "not a run directory" in err) == (2, True)


@pytest.mark.slow
def test_a_directory_stands_for_the_run_in_it(stored, tmp_path):
    run = desim.open(stored)
    assert desim.replay(stored).same
    network = {"link": {"latency": "7 ms"}}
    again = [desim.retime(one, network) for one in (str(stored), run)]
    pd.testing.assert_frame_equal(again[0].events, again[1].events)
    for place, one in enumerate((stored, str(stored), run, [run], [stored], {"mine": stored})):
        assert len(desim.plot(one, out=tmp_path / f"{place}.svg").lines) == 1
        assert len(desim.compare(one).frame) == len(desim.compare([run]).frame)
        desim.report(one, tmp_path / f"{place}.html")
    assert desim.export(stored, "csv") == stored / "csv"


@pytest.mark.parametrize("name", ["replay", "retime", "plot", "compare"])
def test_what_is_no_run_is_refused(name, tmp_path):
    for wrong in (5, None, [5], tmp_path, [tmp_path]):
        with pytest.raises(InputError, match=r"allowed: a run, or|not a run directory"):
            getattr(desim, name)(wrong)
