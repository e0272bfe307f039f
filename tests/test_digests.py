"""Files of a run directory that are not the run's own: no number is made of them."""

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from cases import graph, star
from mutant import mutant

import desim
from desim.errors import InputError
from desim.interface.cli import main
from desim.runs import directory
from desim.runs import directory as place

NOISE = {"seed": 8, "privacy": {"noise": {"sigma": 0.5}}}
LITTLE = {"privacy": {"noise": {"sigma": 0.05}}}
TABLES = ("events", "metrics", "releases")


@pytest.fixture
def two(tmp_path):
    """Two runs that differ in their noise: of the first an epsilon is asked."""
    first = desim.run(graph(**LITTLE), out=tmp_path / "a")
    desim.run(graph(**NOISE), out=tmp_path / "b")
    return first.directory, tmp_path / "b"


def swap(name):
    def act(own, other):
        shutil.copyfile(other / name, own / name)

    return act


def cut(own, other):
    """Leave the last releases out, in a file that is whole."""
    table = pq.read_table(own / "releases.parquet")
    pq.write_table(table.slice(0, table.num_rows // 3), own / "releases.parquet")


def tear(own, other):
    file = own / "releases.parquet"
    file.write_bytes(file.read_bytes()[:-40])


def lose(own, other):
    (own / "releases.parquet").unlink()


def other_terms(own, other):
    """Another delta in the scenario is another statement."""
    file = own / "scenario.yaml"
    file.write_text(file.read_text("utf-8").replace("seed: ", "seed: 1"), "utf-8")


HARMS = {
    "swapped": (swap("releases.parquet"), r"releases\.parquet: is not the file that the run"),
    "cut": (cut, r"releases\.parquet: is not .* \(found \d+ rows, .*the manifest has \d+ rows"),
    "torn": (tear, r"releases\.parquet: is not the file .*, or damaged \(found \d+ bytes"),
    "lost": (lose, r"releases\.parquet is missing; desim resume makes it again"),
    "scenario": (other_terms, r"scenario\.yaml: has changed since the run"),
    "manifest": (swap("manifest.json"), r"(releases\.parquet: is not|scenario\.yaml: has ch)"),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("harm", HARMS)
def test_no_epsilon_is_made_of_files_of_others(harm, two):
    act, message = HARMS[harm]
    act(*two)
    with pytest.raises(InputError, match=message):
        desim.open(two[0]).epsilon()
    with pytest.raises(SystemExit, match="2"):
        main(["privacy", str(two[0])])


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", [f"{table}.parquet" for table in TABLES] + ["state.npz"])
def test_every_file_is_checked_before_it_is_played_with(name, two):
    swap(name)(*two)
    run = desim.open(two[0])
    with pytest.raises(InputError, match="is not the file that the run has left"):
        desim.retime(run, "satellite")
    assert not desim.replay(run).same  # it says where they differ
    with pytest.raises(InputError, match="is not the file that the run has left"):
        desim.resume(two[0])
    kind, _, suffix = name.partition(".")
    with pytest.raises(InputError, match="is not the file"):
        (run.store.table if suffix == "parquet" else run.store.arrays)(kind)
    (two[0] / name).unlink()
    assert desim.resume(two[0]).status == "done"
    assert desim.replay(desim.open(two[0])).same


def test_an_array_that_the_manifest_does_not_list_is_refused(two):
    shutil.copyfile(two[1] / "state.npz", two[0] / "model.npz")
    with pytest.raises(InputError, match=r"model\.npz: the manifest lists no such file"):
        desim.open(two[0]).store.arrays("model")


def test_a_file_that_changes_while_a_run_is_open_is_noticed(two):
    run = desim.open(two[0])
    assert run.epsilon().epsilon.max() > 0.0
    swap("releases.parquet")(*two)
    with pytest.raises(InputError, match="is not the file"):
        run.epsilon()


def test_the_manifest_lists_what_there_is(two):
    listed = json.loads((two[0] / "manifest.json").read_text())["files"]
    there = {path.name for path in two[0].iterdir()} - {"manifest.json"}
    assert set(listed) == there
    for table in TABLES:
        rows = pq.read_metadata(two[0] / f"{table}.parquet").num_rows
        assert listed[f"{table}.parquet"]["rows"] == rows
    for name, about in listed.items():
        assert about["sha256"] == directory.digest(two[0] / name)
        assert about["bytes"] == (two[0] / name).stat().st_size


def older(folder):
    """The run as a version without digests has left it."""
    file = folder / "manifest.json"
    manifest = json.loads(file.read_text())
    del manifest["files"]
    file.write_text(json.dumps(manifest))


def test_an_older_run_is_read_and_said_to_be_unchecked(two, capsys):
    before = desim.open(two[0]).epsilon()
    older(two[0])
    run = desim.open(two[0])
    after = run.epsilon()
    assert after.equals(before)
    assert "they cannot be checked" in after.attrs["flags"][-1]
    assert not any("checked" in flag for flag in before.attrs["flags"])
    with pytest.raises(SystemExit, match="0"):
        main(["show", str(two[0])])
    assert "they cannot be checked" in capsys.readouterr().out
    assert desim.resume(two[0]).status == "done"


@pytest.mark.parametrize("files", [None, 3, {"events.parquet": {}}, {"state.npz": {"sha256": 5}}])
def test_a_list_of_files_that_is_none_is_a_damaged_manifest(files, two):
    file = two[0] / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"files": files}))
    with pytest.raises(InputError, match="not a manifest of desim, or damaged"):
        desim.open(two[0])


def check_swapped(module, two, monkeypatch):
    monkeypatch.setattr("desim.runs.store.Digests", module.Digests)
    swap("releases.parquet")(*two)
    with pytest.raises(InputError):
        desim.open(two[0]).epsilon()


def test_a_swapped_table(two, monkeypatch):
    check_swapped(directory, two, monkeypatch)


def test_digests_that_are_not_compared_are_noticed(two, monkeypatch):
    wrong = mutant(directory, 'found != expected["sha256"]', "not found")
    with pytest.raises(pytest.fail.Exception):
        check_swapped(wrong, two, monkeypatch)


def test_arrays_of_an_earlier_end_do_not_stay(tmp_path, monkeypatch):
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    told = []

    def press(now):
        told.append(now)
        if len(told) == 3:
            raise KeyboardInterrupt

    desim.run(star(stop={"rounds": 400}), out=tmp_path / "a", progress=press)
    (tmp_path / "a" / "iterates.npz").write_bytes(b"left by somebody")
    whole = desim.run(star(stop={"rounds": 400}))
    assert np.array_equal(desim.resume(tmp_path / "a").iterates, whole.iterates)


def test_a_directory_with_the_beginning_of_a_manifest_is_free(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".manifest.json.partial").write_text("{")
    with pytest.raises(InputError, match="killed there before it began: run it again"):
        desim.resume(tmp_path / "a")
    assert place.next_free(tmp_path, "a") == tmp_path / "a"
    desim.run(star(), out=tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").iterdir()} <= set(place.FILES)
    (tmp_path / "a" / ".state.npz.partial").write_text("{")
    desim.run(star(), out=tmp_path / "a", force=True)
    assert {path.name for path in (tmp_path / "a").iterdir()} <= set(place.FILES)


def test_whatever_else_is_there_is_not_free(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / ".manifest.json.partial").write_text("{")
    (tmp_path / "a" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        desim.run(star(), out=tmp_path / "a")
