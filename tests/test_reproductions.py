"""The reproductions of papers: small versions run, what they keep is read, rates are rates."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from mutant import mutant

import desim
from analysis.reproductions import __main__ as everything
from analysis.reproductions import (
    fed_plt_fig2,
    fed_plt_fig3,
    fed_plt_table2,
    fed_plt_table3,
    fed_plt_table4,
    monte_carlo,
    page,
    tuning,
    zcdp_nfl_panels,
)
from analysis.reproductions.monte_carlo import MonteCarlo
from desim.engine.compiled import otherwise
from desim.interface.plots import save
from desim.numerics.jit import set_threads

FED_PLT = (fed_plt_table2, fed_plt_table3, fed_plt_table4, fed_plt_fig2, fed_plt_fig3)
SCRIPTS = (*FED_PLT, *zcdp_nfl_panels.FIGURES)
EVERY = everything.SCRIPTS
SCENARIOS = sorted(monte_carlo.SCENARIOS.glob("*.yaml"))


@pytest.fixture
def alone():
    set_threads(1)
    with MonteCarlo(processes=1) as here:
        yield here
    set_threads(None)


WORDS = {
    "workclass": 3, "education": 4, "marital-status": 3, "occupation": 4, "relationship": 3,
    "race": 2, "native-country": 3,
}  # fmt: skip
FEW = {"problem.data.train": 200, "problem.data.test": {"rows": 40}}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with as little as scenarios on real data can do with."""
    folder, random = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    columns = {name: random.integers(k, size=300).astype(str) for name, k in WORDS.items()}
    columns["workclass"][:9] = "?"
    for name in ("age", "fnlwgt", "education-num", "capital-gain"):
        columns[name] = random.integers(1, 90, size=300)
    columns["sex"] = np.where(random.random(300) < 0.5, "Male", "Female")
    columns["income"] = np.where(columns["age"] + random.normal(0, 9, 300) > 40, ">50K", "<=50K")
    columns["split"] = np.full(300, "train")
    pd.DataFrame(columns).to_csv(folder / "adult.csv.gz", index=False)
    images = random.integers(0, 256, (300, 28, 28)).astype(np.uint8)
    labels = np.arange(300, dtype=np.uint8) % 10
    np.savez(
        folder / "mnist.npz",
        x_train=images[:240], y_train=labels[:240], x_test=images[240:], y_test=labels[240:],
    )  # fmt: skip
    return folder


@pytest.mark.thin(3)
@pytest.mark.parametrize("file", SCENARIOS, ids=lambda file: file.stem)
def test_the_scenarios_of_papers_run(file, data, monkeypatch):
    monkeypatch.setenv("DESIM_DATA", str(data))
    written = file.read_text()
    rounds = 1 if written.endswith("stop: {rounds: 1}\n") else 3
    few = FEW if "DESIM_DATA" in written else {}
    done = desim.run(file, overrides={"stop": {"rounds": rounds}, **few})
    assert (done.status, done.name) == ("done", file.stem)
    head = "# yaml-language-server: $schema=../scenario.schema.json\n"
    assert file.read_text().startswith(head)


def check_tail(module):
    """A geometric sequence has its own rate; a slow one is measured over its second half."""
    fast, slow = 0.5 ** np.arange(60.0), 0.99 ** np.arange(200.0)
    assert module.tail(fast) == pytest.approx(np.full(26, 0.5))
    bent = np.concatenate([slow, slow[-1] * 0.9 ** np.arange(1.0, 200.0)])
    assert module.tail(bent) == pytest.approx(np.full(199, 0.9))
    assert module.tail(np.array([1.0, np.inf, 2.0])).tolist() == [np.inf]


def test_the_tail_of_a_run_has_its_rate():
    check_tail(monte_carlo)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("e[1:] / e[:-1]", "e[:-1] / e[1:]"),
        ("e[1:] > WINDOW[1]", "e[1:] > WINDOW[0]"),
        ("np.asarray(ratio[len(ratio) // 2 :])", "np.asarray(ratio)"),
        ("np.isfinite(e).all()", "True"),
    ],
)
def test_a_wrong_tail_is_noticed(right, wrong):
    with pytest.raises(AssertionError), np.errstate(invalid="ignore"):
        check_tail(mutant(monte_carlo, right, wrong))


def test_a_search_finds_a_minimum():
    space = tuning.Space("none", {"a": (0.1, 10.0), "b": (0.1, 10.0)})
    distance = lambda one: np.log(one["a"] / 2.0) ** 2 + np.log(one["b"] / 0.5) ** 2  # noqa: E731
    point, score = tuning.search(space, lambda points: np.array([distance(p) for p in points]))
    assert score < 0.1
    assert distance(point) == score


def test_a_share_of_the_automatic_step_is_that(alone):
    case = tuning.SPACES["5gcs"].case({"tau": 0.2, "step": 0.5, "gamma tau N": 2.0}, {})
    half, whole = (
        next(monte_carlo.simulations(one, [3])).method
        for one in (case, monte_carlo.Case(case.file, case.overrides))
    )
    assert half.gamma == whole.gamma == pytest.approx(1.0)
    np.testing.assert_allclose(half.local.gamma, 0.5 * whole.local.gamma)


@pytest.mark.slow
def test_table_2(alone, monkeypatch):
    monkeypatch.setattr(tuning, "LINE", 2)
    monkeypatch.setattr(tuning, "BATCH", 2)
    monkeypatch.setattr(tuning, "TUNING", range(1001, 1002))
    monkeypatch.setattr(tuning, "ROUNDS", {"stop.rounds": 20})
    # Short runs of many methods on many rows: each method's rounds would be compiled, or be slow.
    monkeypatch.setattr(otherwise, "play", lambda *run: run[4](run[2], "cohort"))
    cells = [one for one in fed_plt_table2.CELLS if one.solver == "gradient"]
    rows = fed_plt_table2.study(alone, 2, cells)
    assert {(row["parameters"], row["method"]) for row in rows} == {
        (way, method) for way in ("nearest", "tuned") for method in fed_plt_table2.PAPER
    }
    plt = [row["ours"] for row in rows[:2]]
    assert plt == pytest.approx([0.53, 0.76], abs=0.1)
    assert fed_plt_table2.markdown(rows).count("\n| fed-plt |") == 4


def test_accelerated_steps_are_tuned_with_both_momenta(alone, monkeypatch):
    seen = []

    def found(monte_carlo, space, settings):
        seen.append(settings["algorithm.local.momentum"])
        return {"step": 0.2, "beta": 0.04}, {"auto": 0.6, "from-step": 0.5}[seen[-1]]

    monkeypatch.setattr(fed_plt_table2, "tuned", found)
    cell = fed_plt_table2.Cell("led", "accelerated", "all")
    chosen = fed_plt_table2.tuned_point(alone, cell)
    assert (seen, chosen.momentum) == (["auto", "from-step"], "from-step")
    assert str(chosen) == "step 0.2; beta 0.04; momentum from-step"
    made = next(monte_carlo.simulations(cell.case(chosen), [3]))
    lo, gamma = made.method.local.lo[0], made.method.local.gamma[0]
    root = np.sqrt(lo * gamma)
    assert made.method.local.plan.rates[1, 0] == pytest.approx((1 - root) / (1 + root))


@pytest.mark.slow
def test_table_3(alone):
    rows = fed_plt_table3.study(alone, 2)
    rates = [row["ours"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    assert np.abs(np.subtract(rates, fed_plt_table3.PAPER)).max() < 0.1
    assert fed_plt_table3.markdown(rows).startswith("| active agents |")


@pytest.mark.slow
def test_table_4_has_the_square_root_law(alone, tmp_path):
    rows = fed_plt_table4.study(alone, 2)
    for key in ("ours_optimal", "ours_1_over_smoothness"):
        assert fed_plt_table4.slope(rows, key) == pytest.approx(0.5, abs=0.03)
    assert abs(fed_plt_table4.slope(rows, "paper") - 0.5) > 0.3
    page.write_csv(tmp_path, "table", rows)
    assert len(read(tmp_path / "table.csv")) == len(fed_plt_table4.PAPER)
    save(fed_plt_table4.draw(rows), tmp_path / "a.png")


def test_figure_2_is_best_near_its_middle(alone, tmp_path):
    rows = fed_plt_fig2.study(alone, 2, (0.1, 0.3, 1.0))
    assert fed_plt_fig2.best(rows, "gradient")["rho"] == 0.3
    (row,) = [line for line in fed_plt_fig2.markdown(rows).splitlines() if "0.531" in line]
    said, _, rate = row.split("|")[-2].strip().partition("; rate: ")
    assert said == "penalty: inside 0.25 to 0.35"
    assert rate.startswith(("agrees: ", "not told apart: "))  # two data sets tell little
    save(fed_plt_fig2.draw(rows), tmp_path / "a.png")


def test_figure_3_has_its_shape(alone, tmp_path):
    rows = fed_plt_fig3.study(alone, 2, (1, 8, 10, 30, 50, fed_plt_fig3.EXACT))
    told = [words for *_, words in fed_plt_fig3.claims(rows)]
    assert told[0].startswith(("not told apart from 10", "differs: 10 is"))
    assert all(words.startswith(("agrees", "not told apart")) for words in told[1:])
    save(fed_plt_fig3.draw(rows), tmp_path / "a.png")
    flat = [{**row, "above_50": 0.0, "above_50_se": 0.001} for row in rows]
    assert fed_plt_fig3.claims(flat)[1][3].startswith("differs: the reverse")
    sharp = [{**row, "above_10_se": 1e-9} for row in rows]
    assert "at the edge of the band" in fed_plt_fig3.claims(sharp)[0][3]


def read(path):
    """Rows of a CSV, numbers as numbers but where a column names a setting."""
    return page.read(Path(path), ("varied", "values", "figure"))


@pytest.mark.parametrize("script", EVERY, ids=lambda script: script.NAME)
def test_what_is_kept_is_on_the_page(script):
    rows = read(page.RESULTS / f"{script.NAME}.csv")
    if script in SCRIPTS:
        assert all(row["sets"] == monte_carlo.SETS for row in rows)
    text = page.README.read_text("utf-8")
    part = text.split(f"<!-- {script.NAME} -->\n")[1].split(f"\n<!-- /{script.NAME} -->")[0]
    assert part == script.markdown(rows)


def test_what_is_kept_is_within_the_bands():
    table_2 = read(page.RESULTS / "fed_plt_table2.csv")
    plt = [row for row in table_2 if row["method"] == "fed-plt" and row["parameters"] == "nearest"]
    bands = [fed_plt_table2.BANDS[row["cohort"]] for row in plt]
    assert len(plt) == 4
    assert all(abs(r["ours"] - r["paper"]) <= b for r, b in zip(plt, bands, strict=True))
    table_3 = read(page.RESULTS / "fed_plt_table3.csv")
    assert len(table_3) == 10
    assert all(abs(row["ours"] - row["paper"]) <= fed_plt_table3.BAND for row in table_3)


def empty(rows):
    return Figure().subplots()


def test_a_small_study_writes_nothing_unless_asked(alone, tmp_path, capsys, monkeypatch):
    before = page.README.read_bytes()
    everything.main(["fed_plt_table4", "--sets", "1", "--processes", "1"])
    assert page.README.read_bytes() == before
    assert "1 data sets" in capsys.readouterr().out
    one = page.Script("x", lambda _, sets: [{"sets": sets}], lambda rows: f"{rows}", empty)
    page.carry_out(one, 3, 1, tmp_path / "own")
    assert sorted(file.name for file in (tmp_path / "own").iterdir()) == ["x.csv", "x.svg"]
    monkeypatch.setattr(page, "RESULTS", tmp_path)
    monkeypatch.setattr(page, "update", lambda *part: print(*part))
    page.carry_out(one, None, 1)
    assert "x [{'sets': 100}]" in capsys.readouterr().out
    assert (tmp_path / "x.csv").read_text() == "sets\n100\n"
    with pytest.raises(SystemExit):
        everything.main(["fed_plt_table5"])


def test_a_page_has_one_place_for_each_part(tmp_path):
    kept = tmp_path / "page.md"
    kept.write_text("a\n<!-- x -->\nold\n<!-- /x -->\nb\n")
    page.update("x", "new", kept)
    assert kept.read_text() == "a\n<!-- x -->\nnew\n<!-- /x -->\nb\n"
    with pytest.raises(ValueError, match="found 0 parts"):
        page.update("y", "new", kept)
