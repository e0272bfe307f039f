"""Ding's methods at one budget: what is kept, what its words say, and what is measured."""

import numpy as np
import pytest
from cases import graph, merged
from mutant import mutant
from scipy.optimize import brentq

from analysis.reproductions import ding_one_budget, ding_one_budget_words, page
from analysis.reproductions.adult_admm import DELTA, calibrated, reached
from analysis.reproductions.ding_one_budget import EPSILONS, ETA, KINDS, SETS, settings
from desim.engine.world import Discard
from desim.experiments.audit.pairs import Transcript
from desim.interface.plots import save
from desim.privacy.accounting import prices
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.accounting.prices import epsilon_of_divergences
from desim.scenario.build import build
from desim.scenario.load import load

NAMES = [one.varied for one in settings(1.0)]


def kept():
    return page.read(page.RESULTS / f"{ding_one_budget.NAME}.csv", ("varied", "kind"))


def test_the_penalty_is_what_the_other_studies_tuned():
    for name, methods in (
        ("pr_admm_fig2_6", {"pr-admm"}), ("ipp_admm_fig7_13", {"pp-admm", "ipp-admm"})
    ):  # fmt: skip
        rows = page.read(page.RESULTS / f"{name}.csv", ("varied", "figure"))
        for row in rows:
            own = row["method"] in methods and row["variant"] == "corrected"
            if own and row["epsilon"] in EPSILONS:
                assert row["eta"] == ETA


def check_budget(rows):
    """Every setting once, for all kinds; all spend what was asked for, IPP-ADMM that at most."""
    found = [(row["epsilon"], row["varied"], row["kind"]) for row in rows]
    wanted = {(e, name, kind) for e in EPSILONS for name in NAMES for kind in KINDS}
    assert (len(found), set(found)) == (len(wanted), wanted)
    for row in rows:
        assert row["rigorous"] == pytest.approx(row["epsilon"], rel=1e-3)
        if row["varied"] == "IPP":  # a run may ask and send less
            assert 0.9 < row["spent"] / row["rigorous"] < 1.0 + 1e-5
        else:
            assert row["spent"] == pytest.approx(row["rigorous"], rel=1e-5)
        losses = np.array(row["losses"].split(), float)
        assert len(losses) == row["sets"] == SETS
        assert losses.mean() == pytest.approx(row["loss"], rel=1e-5)


def test_what_is_kept_has_one_budget():
    check_budget(kept())


@pytest.mark.parametrize(
    ("column", "factor"), [("spent", 1.01), ("rigorous", 0.9), ("loss", 1.001), ("epsilon", 2.0)]
)
def test_another_budget_is_noticed(column, factor):
    rows = kept()
    rows[4][column] *= factor
    with pytest.raises(AssertionError):
        check_budget(rows)


def made_up():
    """Constant noise has least loss, and every next setting .01 more."""
    rows = []
    for epsilon in EPSILONS:
        for kind in KINDS:
            for n, name in enumerate(NAMES):
                pairs = [0.4 + 0.01 * n + 0.001 * k * (n + 1) for k in range(5)]
                rows.append({
                    "epsilon": epsilon, "varied": name, "kind": kind, "rigorous": epsilon,
                    "spent": epsilon, "eta": 0.01, "sigma": 1.0, "sets": 5,
                    "test": 0.8, "test_se": 0.01, "loss": np.mean(pairs), "loss_se": 0.01,
                    "losses": " ".join(f"{one:.9g}" for one in pairs),
                })  # fmt: skip
    return rows


def check_words(module):
    """Nothing beats the first setting; PP beats the next one, IPP-ADMM."""
    told = module.claims(made_up())
    assert len(told) == 5 * len(EPSILONS) * len(KINDS)
    for said, found, verdict in told:
        if said.startswith("the schedule"):
            assert found.startswith("least PR, constant, most PR, threshold .1, by 0.06")
        wanted = "agrees" if said.startswith("the schedule") else "differs: the reverse"
        assert verdict.startswith(wanted)
    flat = [{**row, "losses": "0.4 0.41 0.42 0.4 0.41"} for row in made_up()]
    assert module.spread(flat[:5])[1].startswith("nothing to see")
    near = [flat[0], {**flat[0], "losses": "0.41 0.4 0.43 0.39 0.411"}]
    assert module.spread(near)[1].startswith("not told apart")
    wide = [{**row, "losses": f"0.4 0.5 0.{n} 0.3 0.4"} for n, row in enumerate(flat[:5], 3)]
    assert module.spread(wide)[1].startswith("not told apart")


def test_words_say_what_is_less():
    check_words(ding_one_budget_words)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("against(mine[IPP], mine[PP], where)", "against(mine[PP], mine[IPP], where)"),
        ("gap(worst, best)", "gap(best, worst)"),
        ("off + limit <= NOTHING", "off <= NOTHING"),
        ('name.startswith("PR")', 'name.startswith("PR, d")'),
    ],
)
def test_wrong_words_are_noticed(right, wrong):
    twin = mutant(ding_one_budget_words, right, wrong)
    with pytest.raises(AssertionError):
        check_words(twin)


def test_the_figure_has_all_but_constant_noise(tmp_path):
    axes = ding_one_budget_words.draw(kept())
    assert axes.get_legend_handles_labels()[1] == [n for n in NAMES if n != "PR, constant"]
    save(axes, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 1000


@pytest.fixture(scope="module")
def base():
    """Five agents on a ring with a few rows of norm 1 at most."""
    data = {"source": "synthetic", "kind": "classification", "rows": 40, "dim": 4}
    scenario = graph(
        problem={"agents": 5, "data": {**data, "normalize": "l2", "test": 0.2}, "clip": 1.0},
        network={"topology": "ring"},
        stop={"rounds": 8},
    )
    scenario = merged(scenario, {"problem": {"loss": "logistic"}, "algorithm": {
        "name": "pr-admm", "eta": 0.5}})  # fmt: skip
    return build(load(scenario))


def check_outcomes(module, base):
    """Losses are those of what the last release hid and gave out; the ledger has what was asked."""
    due = [calibrated(base, one) for one in module.settings(3.0)[:7:2]]
    found = np.reshape(module.outcomes(due, base), (len(due), -1))
    assert found[:, module.SPENT] == pytest.approx(np.full(4, 3.0), rel=1e-3)
    for one, (*losses, _) in zip(due, found, strict=True):
        seen = Transcript()
        made = one.made(base)
        made.play(Discard(), listeners=[seen])
        last = seen.releases[-1]
        assert last.who.tolist() == [0, 1, 2, 3, 4]
        mean = np.tile(last.output.mean(axis=0), (5, 1))
        for place, models in enumerate((last.value, last.output, mean)):
            wanted = reached(made.problem, models[None])
            assert losses[3 * place : 3 * place + 3] == pytest.approx(wanted, rel=1e-12)


def test_outcomes_are_of_models_kept_and_sent(base):
    check_outcomes(ding_one_budget, base)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('(state["x"], state["w"], mean)', '(state["w"], state["x"], mean)'),
        ('state["w"].mean(axis=0)', 'state["w"].max(axis=0)'),
        ("delta=DELTA).worst", "delta=1e-6).worst"),
    ],
)
def test_wrong_outcomes_are_noticed(base, right, wrong):
    twin = mutant(ding_one_budget, right, wrong)
    with pytest.raises(AssertionError):
        check_outcomes(twin, base)


@pytest.mark.parametrize(("epsilon", "more"), [(0.5, 1.110), (1.0, 1.101)])
def test_how_much_more_noise_objective_perturbation_needs_for_its_account(epsilon, more):
    mu = brentq(lambda one: float(epsilon_of(one, DELTA)) - epsilon, 1e-3, 9.0)
    spent = lambda rho: prices.concentrated(np.array([rho]), np.zeros(1))[0]  # noqa: E731
    rho = brentq(lambda one: float(epsilon_of_divergences(spent(one), DELTA)) - epsilon, 1e-5, 20.0)
    assert mu / np.sqrt(2.0 * rho) == pytest.approx(more, abs=1e-3)
