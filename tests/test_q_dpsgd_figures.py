"""The figures of Q-DPSGD: curves are what they say, sentences are judged, what is kept is shown."""

import csv
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant
from naive.bounds import theorem_11

from analysis.reproductions import page, q_dpsgd_fig14_16, q_dpsgd_study, q_dpsgd_words
from analysis.reproductions.monte_carlo import MonteCarlo, simulations
from analysis.reproductions.printed import theorem_15
from analysis.reproductions.q_dpsgd_study import DELTA, INSTANTS, ROUNDS, Curve
from desim.interface.plots import save
from desim.numerics.jit import set_threads

Q1, Q2, SDM, DSGD = "q-dpsgd-1", "q-dpsgd-2", "sdm-dsgd", "dsgd"


def read(path):
    """Rows of a CSV, numbers as numbers."""
    with Path(path).open(newline="", encoding="utf-8") as file:
        return [{key: number(one) for key, one in row.items()} for row in csv.DictReader(file)]


def number(text):
    """The number that a text is, or the text."""
    try:
        return float(text)
    except ValueError:
        return text


@pytest.fixture
def images(tmp_path, monkeypatch):
    """A folder with files of the names and shapes of the real ones, small and with a pattern."""
    random = np.random.default_rng(0)
    prototypes = random.integers(0, 256, (10, 28, 28))

    def made(n):
        y = np.arange(n) % 10
        x = prototypes[y] + random.integers(-40, 40, (n, 28, 28))
        return np.clip(x, 0, 255).astype(np.uint8), y.astype(np.uint8)

    for name in ("mnist", "fashion_mnist_12k_4k"):
        (x, y), (u, v) = made(200), made(60)
        np.savez(tmp_path / f"{name}.npz", x_train=x, y_train=y, x_test=u, y_test=v)
    monkeypatch.setenv("DESIM_DATA", str(tmp_path))
    monkeypatch.setattr(q_dpsgd_study, "RECORDS", 200)
    original = Curve.case

    def case(curve):
        found = original(curve)
        found.overrides["problem.data"]["test"] = {"rows": 50}
        return found

    monkeypatch.setattr(Curve, "case", case)


def test_noise_is_what_the_theorems_say():
    one, two = (Curve("Fig. 14", name, 1.0, "paper") for name in (Q1, Q2))
    said = theorem_11([20] * ROUNDS, 1000, one.sigma / 0.5, DELTA)
    assert said == pytest.approx(1.0, rel=1e-9)
    place = 0.5, np.prod(two.steps), 0.1, 39_760, DELTA
    said = theorem_15([20] * ROUNDS, 1000, two.sigma / 0.5, *place)
    assert said == pytest.approx(1.0, rel=1e-6)
    assert two.sigma > 100 * one.sigma
    assert Curve("Fig. 16 left", Q1, 1.0, "paper", agents=20).sigma == pytest.approx(2 * one.sigma)


def test_all_curves_of_a_figure_end_together():
    slow = Curve("Fig. 16 right", Q1, 1.0, "paper", batch=50)
    assert slow.deadline == 1.0
    assert slow.horizon == pytest.approx(ROUNDS * 1.5625)
    assert Curve("Fig. 14", Q1, 1.0, "paper").horizon == pytest.approx(ROUNDS * 0.9625)
    assert Curve("Fig. 14", DSGD, np.inf, "none").iterations < ROUNDS / 3


@pytest.mark.slow
def test_a_small_study(images, tmp_path):
    set_threads(1)
    curves = [
        Curve("Fig. 14", Q1, 5.0, "rigorous", rounds=24),
        Curve("Fig. 14", SDM, 5.0, "paper", rounds=24),
        Curve("Fig. 14", DSGD, np.inf, "none", rounds=24),
    ]
    with MonteCarlo(processes=1) as here:
        rows = q_dpsgd_fig14_16.study(here, 1, curves)
    set_threads(None)
    private, sparse, plain = rows
    assert private["rigorous"] == pytest.approx(5.0, rel=1e-3)
    assert np.isfinite(sparse["rigorous"])
    assert np.isinf(plain["rigorous"])
    assert all(row["loss_0"] == pytest.approx(plain["loss_0"], rel=1e-6) for row in rows)
    assert plain["loss_20"] < plain["loss_0"]
    page.write_csv(tmp_path, "rows", rows)
    assert len(read(tmp_path / "rows.csv")) == 3
    save(q_dpsgd_fig14_16.draw(rows), tmp_path / "a.png")


def test_the_corrected_form_is_the_fixed_one(images):
    case = Curve("Fig. 14", Q2, 5.0, "rigorous", rounds=10).case()
    assert next(simulations(case, [1])).method.parameters.fixed
    case = Curve("Fig. 14", Q2, 5.0, "paper", rounds=10).case()
    assert not next(simulations(case, [1])).method.parameters.fixed


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        (1.0, 2.0, "agrees (7.1 standard errors)"),
        (2.0, 1.0, "differs: the reverse (7.1 standard errors)"),
        (1.0, 1.1, "not told apart (0.7 standard errors)"),
    ],
)
def test_sentences_are_judged(one, other, words):
    pair = [{"loss_20": loss, "standard_error": 0.1, "sets": 3} for loss in (one, other)]
    assert q_dpsgd_words.lower(*pair)[1] == words
    right, wrong = 'one["loss_20"] - other["loss_20"]', 'other["loss_20"] - one["loss_20"]'
    reverse = mutant(q_dpsgd_words, right, wrong)
    assert (reverse.lower(*pair)[1] == words) == words.startswith("not told apart")


def test_what_was_played_once_says_so():
    once = {"loss_20": 2.3, "standard_error": float("nan"), "sets": 1}
    often = {"loss_20": 2.2, "standard_error": 0.01, "sets": 3}
    words = q_dpsgd_words.lower(often, once)[1]
    assert words == "agrees (7.1 standard errors), one of them played once"
    assert q_dpsgd_words.lower(once, once)[1] == "not judged: above, no standard error"


def test_what_is_kept_is_on_the_page():
    rows = read(page.RESULTS / f"{q_dpsgd_fig14_16.NAME}.csv")
    assert len(rows) == len(q_dpsgd_fig14_16.CURVES)
    sets = {row["method"]: row["sets"] for row in rows}
    assert sets == {Q1: q_dpsgd_fig14_16.SETS, Q2: 1, SDM: 3, DSGD: 3}
    assert all(np.isfinite(row[f"loss_{k}"]) for row in rows for k in range(INSTANTS))
    part = page.README.read_text("utf-8").split(f"<!-- {q_dpsgd_fig14_16.NAME} -->\n")[1]
    kept = part.split(f"\n<!-- /{q_dpsgd_fig14_16.NAME} -->")[0]
    assert kept == q_dpsgd_fig14_16.markdown(rows)
