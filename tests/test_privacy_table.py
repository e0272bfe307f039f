"""The table of a run: the paper's epsilon beside the rigorous one, never without its terms."""

import json
from collections import Counter

import numpy as np
import pytest
from cases import CASES, deadline, graph, local, merged, star
from mutant import mutant
from stores import ChangedTable

import desim
from desim.algorithms import fed_plt_claim, q_dpsgd_claim
from desim.cli import main
from desim.cli.privacy import lines
from desim.columns import rows_of
from desim.privacy.bounds import q_dpsgd
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
    method, rows = check(plt.scenario).method, plt.releases
    right = method.claim(rows, 1e-5).worst
    assert right == pytest.approx(3.421, abs=5e-4)
    twin = mutant(fed_plt_claim, "rounds * local.local.epochs", "rounds")
    wrong = twin.claimed(method.local, method.parameters.init, rows, 1e-5)
    assert wrong.worst < 0.95 * right
    twice = plt.releases.loc[plt.releases.index.repeat(2)]
    assert method.claim(twice, 1e-5).worst == right


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
        claimed = q_dpsgd.theorem_11(own["value"].to_numpy(), 9, sigma, 1e-5)
        assert found.claim.epsilon[agent] == pytest.approx(claimed, rel=1e-9)
    sound = '(reach / (rows["scale"].to_numpy() * problem.rows[agent])) ** 2'
    wrong = mutant(q_dpsgd_claim, sound, sound.replace("problem.rows[agent]", "9.0**0.5"))
    problem = check(run.scenario).problem
    K = q_dpsgd_claim.lipschitz(problem, run.releases)
    place = problem, "q-dpsgd-1/theorem-11", run.releases, K, 1e-5
    assert q_dpsgd_claim.claimed(*place).worst == found.claim.worst
    assert wrong.claimed(*place).worst > 1.1 * found.claim.worst
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


def test_data_that_are_gone_leave_the_rigorous_number(tmp_path):
    arrays = tmp_path / "rows.npz"
    rng = np.random.default_rng(0)
    np.savez(arrays, A=rng.standard_normal((6, 8, 5)), b=np.sign(rng.standard_normal((6, 8))))
    keys = local(solver="noisy", epochs=3, tau=0.05)
    scenario = star(**keys, problem={"data": {"source": "npz", "file": str(arrays)}, "clip": 1.0})
    run = desim.run(scenario, out=tmp_path / "run")
    before = statement(run)
    arrays.unlink()
    after = statement(desim.open(tmp_path / "run"))
    assert after.claim is None
    assert "needs the scenario's files again" in after.silence
    assert row(after)["rigorous epsilon"] == row(before)["rigorous epsilon"] < np.inf


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
    whole, narrow = (lines("plt", found, columns) for columns in (None, width))
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
