"""What may be public: a run as one view sees it, with the epsilon that holds, and nothing else."""

import hashlib
import json
import re

import numpy as np
import pandas as pd
import pytest
from cases import CASES, graph, local, merged, star
from mutant import mutant

import desim
from desim.errors import InputError
from desim.interface.cli import main
from desim.runs.exports import public
from desim.runs.privacy import statement

SEED = 987654321987654321  # nobody tries that many
NOISY = star(
    **local(solver="noisy", epochs=2, tau=0.5, step=0.05),
    seed=SEED,
    problem={"clip": 1.0},
    engine="cohort",
    stop={"rounds": 4},
)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return desim.run(NOISY, out=tmp_path_factory.mktemp("runs") / "noisy")


def files(folder):
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def told(folder):
    return json.loads((folder / "manifest.json").read_text("utf-8"))


def secrets(run):
    """Texts that must be in no public file."""
    digests = [run.manifest["problem_sha256"], run.manifest["scenario_sha256"]]
    digests += [one["sha256"] for one in run.manifest["files"].values()]
    return [str(SEED), *digests, str(run.directory), *run.manifest["warnings"]]


def check_silent(run, folder):
    whole = b"\n".join(files(folder).values()).decode("utf-8", "replace")
    for secret in secrets(run):
        assert secret not in whole
    assert not re.search(r"accuracy|loss:|problem_sha|wall_seconds", "".join(
        text.decode() for name, text in files(folder).items() if name.endswith(".csv")
    ))  # fmt: skip


@pytest.mark.parametrize("view", ["eavesdropper", "coordinator", "final-model", "neighbour:2"])
def test_what_a_view_may_see_and_nothing_else(run, view, tmp_path):
    said = []
    folder = desim.export(run, "public", tmp_path / "out", view=view, tell=said.append)
    found, row = told(folder), statement(run, view=view).table.iloc[0]
    stated = found["statement"]["views"]
    assert [one["view"] for one in stated] == [view]
    assert stated[0]["epsilon"] == row["rigorous epsilon"] < np.inf
    assert stated[0]["advantage"] == row["risk"].advantage
    assert "paper epsilon" not in stated[0]
    check_silent(run, folder)
    rows = pd.read_csv(folder / "releases.csv")
    whole = run.releases
    kept = whole if view == "eavesdropper" else whole[whole["delivered"] > 0]
    kept = kept[kept["agent"] != 2] if view == "neighbour:2" else kept
    assert rows["sensitivity"].tolist() == kept["sensitivity"].tolist()
    assert "release" not in rows
    events = folder / "events.csv"
    assert events.exists() == (view != "final-model")
    if events.exists():
        seen = pd.read_csv(events)
        assert not {"release", "seq"} & set(seen)
        who = {"coordinator": {-1}, "neighbour:2": {2}}.get(view)
        assert who is None or set(seen["agent"]) == who
        assert len(seen)
    np.testing.assert_array_equal(np.load(folder / "model.npz")["model"], run.model[-1])
    listed = {name: one["sha256"] for name, one in found["files"].items()}
    for name, sha in listed.items():
        assert hashlib.sha256((folder / name).read_bytes()).hexdigest() == sha
    assert {*listed, "manifest.json", "README.md"} == files(folder).keys()
    assert any("all metrics" in text for text in said)
    assert f"view {view}, replace-one" in (folder / "README.md").read_text("utf-8")


def test_a_file_that_holds_a_digest_is_noticed(run, tmp_path):
    folder = desim.export(run, "public", tmp_path / "out")
    check_silent(run, folder)
    (folder / "scenario.yaml").write_text(f"seed: {SEED}\n")
    with pytest.raises(AssertionError):
        check_silent(run, folder)


def test_the_scenario_loads_again_under_another_seed(run, tmp_path):
    folder = desim.export(run, "public", tmp_path / "out")
    again = desim.load(folder / "scenario.yaml")
    assert again.seed == 0
    assert again.written() == {**run.scenario.written(), "seed": 0}


def test_names_of_folders_stay_at_home(tmp_path):
    place = tmp_path / "secret-clinic"
    place.mkdir()
    rng = np.random.default_rng(0)
    np.savez(place / "rows.npz", A=rng.standard_normal((6, 8, 5)), b=np.ones((6, 8)))
    data = {"source": "npz", "file": str(place / "rows.npz")}
    scenario = merged(NOISY, {"problem": {"data": data}})
    scenario["problem"].pop("agents")
    folder = desim.export(desim.run(scenario, out=tmp_path / "run"), "public")
    text = b"".join(files(folder).values())
    assert b"secret-clinic" not in text
    assert b"rows.npz" in text


def test_infinite_is_refused_unless_it_is_meant(tmp_path):
    run = desim.run(CASES["plt-all"], out=tmp_path / "bare")
    with pytest.raises(InputError, match=r"is infinite: released without noise .*--anyway"):
        desim.export(run, "public")
    assert not (tmp_path / "bare" / "public").exists()
    folder = desim.export(run, "public", anyway=True)
    assert told(folder)["statement"]["views"][0]["epsilon"] == "infinite"
    assert "Epsilon infinite" in (folder / "README.md").read_text("utf-8")


def test_models_that_hold_what_was_not_sent_are_left_out(run, tmp_path):
    on_graph = desim.run(
        graph(privacy={"noise": {"sigma": 5.0, "decay": 1.0}}, stop={"rounds": 2}, engine="cohort"),
        out=tmp_path / "graph",
    )
    folder = desim.export(on_graph, "public")
    assert not (folder / "model.npz").exists()
    assert any("there is no coordinator" in text for text in told(folder)["left out"])
    direct = desim.export(run, "public", tmp_path / "direct", view="direct:1")
    assert not (direct / "model.npz").exists()
    assert any("this view's epsilon" in text for text in told(direct)["left out"])


def test_a_small_seed_is_no_secret(run, tmp_path):
    small = desim.run(merged(NOISY, {"seed": 7}), out=tmp_path / "small")
    for one, guessed in ((run, False), (small, True)):
        folder = desim.export(one, "public", tmp_path / f"out{guessed}")
        flags = told(folder)["statement"]["views"][0]["flags"]
        assert (public.GUESSED in flags) == guessed
        assert (public.GUESSED in (folder / "README.md").read_text("utf-8")) == guessed


def test_only_an_export_is_replaced(run, tmp_path):
    folder = desim.export(run, "public", tmp_path / "out")
    desim.export(run, "public", folder, view="final-model")
    assert not (folder / "events.csv").exists()
    (folder / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match=r"holds notes\.txt; allowed: an empty folder"):
        desim.export(run, "public", folder)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="is a file"):
        desim.export(run, "public", tmp_path / "file")
    with pytest.raises(InputError, match="allowed: an empty folder"):
        desim.export(run, "public", run.directory)
    assert run.manifest["status"] == desim.open(run.directory).status


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--to", "csv", "--view", "coordinator"], "allowed with --to public"),
        (["--to", "public", "--agents", "2"], "allowed with --to perfetto"),
        (["--to", "public", "--view", "nobody"], "view: found 'nobody'"),
        (["--to", "public", "--delta", "2"], "delta: found 2.0"),
    ],
)
def test_bad_words_are_refused(run, words, said, capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", str(run.directory), *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err


def test_a_run_that_has_not_ended_is_refused(run, tmp_path):
    import shutil

    folder = tmp_path / "killed"
    shutil.copytree(run.directory, folder, ignore=shutil.ignore_patterns("public"))
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "status": "running"}))
    with pytest.raises(InputError, match="allowed: a run that has ended"):
        desim.export(desim.open(folder), "public")


def test_numbers_of_a_claim_stay_at_home(tmp_path):
    """A step that rows decide is an input of the claim: refused, and never in what is public."""
    run = desim.run(merged(NOISY, {"algorithm": {"local": {"step": "auto"}}}))
    gamma = np.atleast_1d(run.manifest["privacy"]["claim"]["gamma"]).tolist()
    assert "algorithm.local.step" in run.manifest["privacy"]["tuned"][0]
    with pytest.raises(InputError, match=r"algorithm\.local\.step: auto"):
        public.write_public(run, tmp_path / "out")
    public.write_public(run, tmp_path / "out", anyway=True)

    def leaks():
        whole = b"".join(files(tmp_path / "out").values()).decode("utf-8", "replace")
        return "fed-plt/adp" in whole or any(str(one) in whole for one in gamma)

    assert not leaks()
    twin = mutant(public, '"statement": said,', '"statement": said | run.manifest["privacy"],')
    twin.write_public(run, tmp_path / "out", anyway=True)
    assert leaks()
