"""Theorems that plug-ins bring: their epsilon beside desim's, without the plug-in, and refused."""

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from cases import graph
from mutant import mutant

import desim
from desim.errors import InputError
from desim.interface.cli.commands.privacy import lines
from desim.runs import premises, privacy
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import load

FILE = Path(__file__).parent / "plugins" / "theorem.py"
SMALL = graph(algorithm={"name": "proved"}, problem={"clip": 1.0}, stop={"rounds": 3})
NAME = "proved/theorem-1"


@pytest.fixture
def stored(tmp_path):
    """A run by a plug-in with a theorem, and the plug-in's file."""
    file = shutil.copy(FILE, tmp_path / "theorem.py")
    desim.run({**SMALL, "plugins": [str(file)]}, out=tmp_path / "run")
    return tmp_path / "run", Path(file)


@pytest.fixture
def unknown(stored):
    """The run, where nobody knows its plug-in."""
    folder, file = stored
    file.rename(file.with_name("elsewhere.py"))
    del registry._plugged.methods["proved"]
    return folder, file.with_name("elsewhere.py")


def check_theorem(module, folder):
    """rho + 2 sqrt(rho ln(1/delta)) of twice the sum of (sensitivity / deviation)^2 / 2."""
    run = desim.open(folder)
    found = module.statement(run)
    rows = run.releases.drop_duplicates(["agent", "release"])
    rho = ((rows["sensitivity"] / rows["scale"]) ** 2).groupby(rows["agent"]).sum()
    expected = rho + 2 * np.sqrt(rho * np.log(1e5))
    assert found.claim is not None
    assert found.claim.epsilon == pytest.approx(expected.to_numpy(), rel=1e-12)
    assert found.table["paper epsilon"].tolist() == [found.claim.worst] * len(found.table)
    text = "\n".join(lines("run", found))
    for said in ("by Theorem 1 (Nobody 2026)", "verdict  loose: the conv", "unmet    the moon is"):
        assert said in text


def test_the_theorem_of_a_plug_in_stands_beside_what_holds(stored):
    check_theorem(privacy, stored[0])


def test_a_dispatch_without_plug_ins_is_noticed(stored):
    with pytest.raises(AssertionError):
        check_theorem(mutant(privacy, "delta, method.bounds)", "delta)"), stored[0])


def test_without_the_plug_in_desims_own_account_stands(stored, unknown):
    folder, file = unknown
    found = privacy.statement(desim.open(folder), 1e-5, "eavesdropper", "replace-one")
    assert found.claim is None
    assert f"{NAME} is in plug-in proved, which is not there; give it by --plugin" in "\n".join(
        lines("run", found)
    )
    own = found.table["rigorous epsilon"].iloc[0]
    registry.load_plugin(file)
    again = privacy.statement(desim.open(folder), 1e-5, "eavesdropper", "replace-one")
    assert again.table["rigorous epsilon"].iloc[0] == own > 0.0
    assert again.claim is not None


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ('given["times"] * rho', 'given["twice"] * rho', "KeyError: 'twice'"),
        ('given["times"] * rho', "np.ones(99)", "ValueError"),
        ('given["times"] * rho', "np.nan * rho", "allowed: epsilons >= 0"),
        ("rows = once(releases)", "1 / 0", "ZeroDivisionError"),
        ('"proved/theorem-1", "Nobody', '"proved/theorem-2", "Nobody', "did you mean"),
    ],
)
def test_a_formula_from_which_nothing_follows_is_told_in_a_line(unknown, right, wrong, said):
    folder, file = unknown
    file.write_text(file.read_text().replace(right, wrong))
    registry.load_plugin(file)
    found = privacy.statement(desim.open(folder), 1e-5, "eavesdropper", "replace-one")
    assert found.claim is None
    assert found.silence.startswith(f"{NAME} of plug-in proved says nothing: ")
    assert said in found.silence
    assert len(found.silence.splitlines()) == 1
    assert found.table["rigorous epsilon"].iloc[0] > 0.0


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "times=np.float64(2.0)",
            "times='much'",
            f"inputs of {NAME}: times: found 'much'; allowed:",
        ),
        (
            "return inputs(",
            "return {1, 2} or inputs(",
            "proved: claim_inputs: found {1, 2}; allowed",
        ),
        (
            "return inputs(",
            "return dict(times={2.0}) or inputs(",
            "claim_inputs: times: found {2.0}; a",
        ),
        (
            "return inputs(",
            "return dict(times=np.inf) or inputs(",
            "claim_inputs: times: found inf; al",
        ),
        (f'inputs("{NAME}"', 'inputs("dsgd/lemma"', "claim: theorem: found 'dsgd/lemma'; allowed"),
    ],
)
def test_inputs_that_cannot_be_stored_are_refused_before_the_run(tmp_path, right, wrong, said):
    file = tmp_path / "theorem.py"
    file.write_text(FILE.read_text().replace(right, wrong))
    with pytest.raises(InputError, match=re.escape(said)):
        desim.run({**SMALL, "plugins": [str(file)]}, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_storage_that_takes_everything_is_noticed(tmp_path):
    file = tmp_path / "theorem.py"
    file.write_text(
        FILE.read_text().replace("return inputs(", "return dict(times={2.0}) or inputs(")
    )
    scenario = load({**SMALL, "plugins": [str(file)]})
    twin = mutant(premises, "json.dumps({key: value}, allow_nan=False)", "pass")
    with pytest.raises(InputError, match="theorem: found null"):
        twin.premises(scenario, build(scenario))


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        (
            "bounds = (",
            "bounds = 3 or (",
            "Proved.bounds: found 3; allowed: a tuple of desim.method",
        ),
        ("    Bound(", "    print() or 3 or Bound(", "Proved.bounds: found (3,); allowed: a tuple"),
        (NAME, "zcdp-nfl/corollary", "'zcdp-nfl/corollary' is a name that desim uses itself"),
        ('DP", summed_up', 'DP", None', f"{NAME}: formula: found null; allowed: a function of"),
    ],
)
def test_what_is_no_theorem_is_refused_with_the_plug_in(tmp_path, right, wrong, said):
    file = tmp_path / "theorem.py"
    file.write_text(FILE.read_text().replace(right, wrong))
    with pytest.raises(InputError, match=re.escape(said)):
        registry.load_plugin(file)
