"""The table of a run: the paper's epsilon beside the rigorous one, never without its terms."""

import json
import shutil
from collections import Counter

import numpy as np
import pytest
from cases import CASES, deadline, graph, local, merged, star
from mutant import mutant
from naive.bounds import theorem_11
from stores import ChangedTable

import desim
from desim.columns import columns_of, rows_of
from desim.errors import InputError
from desim.interface.cli import main
from desim.interface.cli.commands.privacy import lines
from desim.privacy.papers import fed_plt, q_dpsgd
from desim.runs import privacy
from desim.runs.directory import read_manifest, write_manifest
from desim.runs.privacy import CAVEATS, statement
from desim.scenario.build import check

START = float(np.sqrt(2 * 0.3**2 / 0.5))


def fed_plt_run(init=START, clip=1.0, **changes):
    """Fed-PLT as in Proposition 4: L = 2, 20 rows, lambda = .5, tau = .3, 50 rounds of 10 steps."""
    keys = local(solver="noisy", epochs=10, tau=0.3, step=0.1)
    keys["algorithm"] |= {"rho": 1.0, "init": {"normal": init} if init else "zeros"}
    data = {"source": "synthetic", "kind": "classification", "rows": 20, "dim": 3}
    problem = {"agents": 2, "data": data, "regularizer": {"l2": 1.0, "at": "agents"}}
    problem["row_norm"] = 8.0
    problem |= {"clip": clip} if clip else {}
    rest = {"observe": {"metrics": [], "iterates": False}, "stop": {"rounds": 50}}
    return desim.run(merged(star(**keys, problem=problem, **rest), changes))


@pytest.fixture(scope="module")
def plt():
    return fed_plt_run()


def row(found, view="eavesdropper"):
    return found.table.set_index("view").loc[view]


def test_fed_plt_says_both_numbers(plt):
    found = statement(plt)
    assert list(found.table["view"]) == ["eavesdropper", "coordinator", "final-model"]
    for view in found.table["view"]:
        assert row(found, view)["paper epsilon"] == pytest.approx(3.421, abs=5e-4)
        assert row(found, view)["rigorous epsilon"] == pytest.approx(7.143, abs=5e-4)
        assert row(found, view)["method"] == "exact GDP"
        uncovered = any("does not cover this view" in flag for flag in row(found, view)["flags"])
        assert uncovered == (view != "final-model")
    assert found.claim.bound.verdict == "unproved"
    assert found.claim.unmet == ()
    assert found.tuned == ()


def test_a_claim_that_forgets_the_local_steps_is_noticed(plt):
    inputs, rows = plt.manifest["privacy"]["claim"], columns_of(plt.releases)
    right = fed_plt.last_model(inputs, rows, 1e-5)[0].max()
    assert right == pytest.approx(3.421, abs=5e-4)
    twin = mutant(fed_plt, 'rounds * inputs["epochs"]', "rounds")
    assert twin.last_model(inputs, rows, 1e-5)[0].max() < 0.95 * right
    twice = columns_of(plt.releases.loc[plt.releases.index.repeat(2)])
    assert fed_plt.last_model(inputs, twice, 1e-5)[0].max() == right


@pytest.mark.parametrize(
    ("changes", "unmet"),
    [
        ({"init": None}, "x_{i,0} is not drawn"),
        ({"clip": None}, "not clipped"),
        ({"participation": {"bernoulli": 0.5}}, "not every agent took part"),
        ({"algorithm": {"local": {"step": 1.9}}}, "not below 2 /"),
    ],
)
def test_conditions_that_a_run_does_not_meet_are_said(changes, unmet):
    found = statement(fed_plt_run(**changes, stop={"rounds": 3}))
    assert sum(unmet in text for text in found.claim.unmet) == 1
    unclipped = "clipped" in unmet
    assert np.isinf(found.claim.worst) == unclipped
    assert np.isinf(row(found)["rigorous epsilon"]) == unclipped
    assert any("unclipped" in flag for flag in row(found)["flags"]) == unclipped


def test_zcdp_nfl_says_the_corollary_and_the_exact_value():
    run = desim.run(
        graph(
            problem={
                "agents": 4, "clip": 1.0,
                "data": {"source": "synthetic", "kind": "regression", "rows": 50, "dim": 3},
            },
            algorithm={"name": "zcdp-nfl", "rho": 1.0, "eta": 0.5},
            network={"topology": "complete"},
            privacy={"noise": {"phi": 1e-3, "growth": 0.99}},
            observe={"metrics": [], "iterates": False},
            stop={"rounds": 200},
        )
    )  # fmt: skip
    found = statement(run)
    assert row(found)["paper epsilon"] == pytest.approx(6.068483, abs=1e-6)
    assert row(found)["rigorous epsilon"] == pytest.approx(5.052409756, abs=1e-6)
    assert found.claim.unmet == ()
    assert "coordinator" not in set(found.table["view"])
    other = statement(run, delta=1e-3, view="neighbour:2", relation="agent")
    assert len(other.table) == 1
    assert tuple(other.table.iloc[0][["view", "relation", "delta"]]) == (
        "neighbour:2", "agent", 1e-3,
    )  # fmt: skip
    assert np.isnan(other.table.iloc[0]["paper epsilon"])


def test_zcdp_nfl_with_a_step_that_varies_is_summed():
    run = desim.run(CASES["nfl-absolute"])
    found = statement(run)
    assert len(found.claim.unmet) == 1
    assert "eta varies" in found.claim.unmet[0]
    assert row(found)["paper epsilon"] > row(found)["rigorous epsilon"]


def test_q_dpsgd_1_says_theorem_11_of_the_batches_that_fitted():
    run = desim.run(deadline(privacy={"noise": {"sigma": 12.0, "decay": 0.9}}))
    found = statement(run)
    computed = run.events[run.events["kind"] == "compute"]
    computed = computed[computed["round"] < computed["round"].max()]  # the last is not told of
    for agent, own in computed.groupby("agent"):
        sigma = 12.0 * 0.9 ** ((own["round"].to_numpy() - 1) / 2) / 4.0
        claimed = theorem_11(own["value"].to_numpy(), 9, sigma, 1e-5)
        assert found.claim.epsilon[agent] == pytest.approx(claimed, rel=1e-9)
    sound = 'rows["scale"] * by_agent(inputs, "rows")[agent]'
    wrong = mutant(q_dpsgd, sound, 'rows["scale"] * 9.0**0.5')
    place = run.manifest["privacy"]["claim"], columns_of(run.releases), 1e-5
    assert q_dpsgd.theorem_11(*place)[0].max() == found.claim.worst
    assert wrong.theorem_11(*place)[0].max() > 1.1 * found.claim.worst
    assert found.claim.bound.verdict == "wrong"
    assert any("batches are known" in flag for flag in row(found)["flags"])


def test_what_is_least_is_said_where_sampling_does_not_help():
    found = statement(desim.run(CASES["qsgd"]))
    assert row(found)["method"] == "exact GDP"
    assert not any("batches are known" in flag for flag in row(found)["flags"])


def test_without_noise_nothing_is_claimed_and_nothing_holds():
    found = statement(desim.run(star()))
    assert found.claim is None
    assert "Proposition 4" in found.silence
    assert np.isnan(row(found)["paper epsilon"])
    assert np.isinf(row(found)["rigorous epsilon"])
    assert any(flag.startswith("infinite: released without noise") for flag in row(found)["flags"])
    assert any("algorithm.local.step: auto" in text for text in found.tuned)


def plain_table(found):
    """The table as text, every number to its last bit."""
    return found.table.map(repr).to_csv(), found.claim.epsilon.tolist(), found.claim.unmet


@pytest.fixture
def moved(tmp_path):
    """Statement of a run on a file of rows, and the run's directory, elsewhere and without them."""
    arrays = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(arrays, A=rng.standard_normal((6, 8, 5)), b=np.sign(rng.standard_normal((6, 8))))
    keys = local(solver="noisy", epochs=3, tau=0.05, step=0.1)
    scenario = star(**keys, problem={"data": {"source": "npz", "file": str(arrays)}, "clip": 1.0})
    found = statement(desim.run(scenario, out=tmp_path / "run"))
    arrays.unlink()
    return found, shutil.move(tmp_path / "run", tmp_path / "elsewhere")


def test_a_run_without_its_data_has_both_numbers(moved):
    before, folder = moved
    after = statement(desim.open(folder))
    assert plain_table(after) == plain_table(before)
    assert 0.0 < row(after)["rigorous epsilon"] < np.inf
    stored = 'run.manifest.get("privacy", {}).get("claim")'
    twin = mutant(privacy, stored, "check(run.scenario).method.claim_inputs()")
    twin.check = check
    with pytest.raises(InputError, match=r"problem\.data\.file"):
        twin.statement(desim.open(folder))


def test_a_run_of_an_older_version_says_what_it_lacks(moved):
    before, folder = moved
    manifest = read_manifest(folder)
    del manifest["privacy"]
    write_manifest(folder, manifest)
    after = statement(desim.open(folder))
    assert after.claim is None
    assert "Proposition 4" in after.silence
    assert "numbers that this run has not stored" in after.silence
    assert row(after)["rigorous epsilon"] == row(before)["rigorous epsilon"]


def test_inputs_from_which_nothing_follows_are_refused(moved):
    folder = moved[1]
    manifest = read_manifest(folder)
    for claim, text in (({"theorem": "fed-plt/adb"}, "fed-plt/adp"), ({}, "theorem: found")):
        write_manifest(folder, manifest | {"privacy": {"claim": claim}})
        with pytest.raises(InputError, match=text):
            statement(desim.open(folder))
    less = {k: v for k, v in manifest["privacy"]["claim"].items() if k != "tau"}
    write_manifest(folder, manifest | {"privacy": {"claim": less}})
    with pytest.raises(InputError, match=r"inputs of fed-plt/adp: .*tau"):
        statement(desim.open(folder))


@pytest.fixture
def call(capsys):
    """call(argument, ...): exit code, standard output and standard error of desim privacy."""

    def call(*arguments):
        with pytest.raises(SystemExit) as end:
            main(["privacy", *map(str, arguments)])
        captured = capsys.readouterr()
        return end.value.code, captured.out, captured.err

    return call


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for name in ("plt-noisy", "plt-all", "nfl"):
        desim.run(CASES[name], out=folder / name)
    return folder


def test_the_command_prints_terms_claim_and_caveats(stored, call):
    code, out, err = call(stored / "plt-noisy", "--delta", "1e-4")
    assert (code, err) == (0, "")
    lines = out.splitlines()
    account = desim.open(stored / "plt-noisy").epsilon(delta=1e-4, view="eavesdropper")
    spent = account.groupby("agent")["epsilon"].max()  # of a tie the lowest is named
    assert lines[0].endswith(
        f": epsilon {spent.max():.4g}, advantage 0.999+ of agent {spent.idxmax()}, which spends "
        "most (view eavesdropper, replace-one, delta 0.0001, exact GDP)"
    )
    heads = ["view", "relation", "delta", "paper epsilon", "rigorous epsilon", "method"]
    assert [head for head in heads if head in lines[1]] == heads
    for line, view in zip(lines[2:5], ("eavesdropper", "coordinator", "final-model"), strict=True):
        assert line.split()[:3] == [view, "replace-one", "0.0001"]
        assert line.endswith("exact GDP")
        assert ("(another view)" in line) == (view != "final-model")
    (paper,) = [line for line in lines if line.startswith("  paper ")]
    for said in ("Proposition 4", "last local model alone", "replace-one", "delta 0.0001", "RDP"):
        assert said in paper
    assert "  verdict  unproved:" in out
    for caveat in CAVEATS:
        assert out.count(caveat) == 1
    assert len(set(lines)) == len(lines)


@pytest.mark.parametrize("width", [50, 72, 100, 200])
def test_a_narrow_terminal_shows_all_of_it(stored, width):
    found = statement(desim.open(stored / "plt-noisy"))
    whole, narrow = (lines("plt", found, columns) for columns in (float("inf"), width))
    assert max(map(len, whole)) > 150
    assert max(map(len, narrow)) <= width

    def words(some):
        return Counter(" ".join(some).split())

    assert not words(whole) - words(narrow)
    assert (narrow[1:5] == whole[1:5]) == (width == 200)


def test_the_command_prints_infinity_with_its_reason(stored, call):
    code, out, _ = call(stored / "plt-all", "--view", "eavesdropper")
    assert code == 0
    assert out.splitlines()[2].split()[3:5] == ["none", "infinite"]
    assert "infinite: released without noise" in out
    assert "nan" not in out
    assert " inf " not in out


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("plt-noisy", ["--delta", "0"], "delta: found 0.0; allowed: 0 < delta < 1"),
        ("plt-noisy", ["--view", "neighbour"], "view: found 'neighbour'"),
        ("plt-noisy", ["--view", "neighbour:6"], "allowed: agents 0 to 5"),
        ("plt-noisy", ["--relation", "replace"], "relation"),
        ("nfl", ["--view", "coordinator"], "no coordinator"),
        ("nowhere", [], "not a run directory"),
    ],
)
def test_bad_terms_are_refused(stored, call, name, arguments, expected):
    code, out, err = call(stored / name, *arguments)
    assert (code, out) == (2, "")
    assert expected in err
    assert "Traceback" not in err
    assert "InputError" not in err  # what was given is blamed, not the theorem that reads it


def without_rows(found):
    """No row of a table, as columns or as a frame."""
    return found.iloc[:0] if hasattr(found, "iloc") else rows_of(found, slice(0, 0))


def test_a_run_without_releases_costs_nothing(stored, call, tmp_path):
    run = desim.open(stored / "nfl")
    run.store = ChangedTable(run.store, "releases", without_rows)
    found = statement(run)
    assert (found.table["rigorous epsilon"] == 0.0).all()
    assert found.claim.worst == 0.0
    assert json.dumps(found.table["flags"].tolist())
