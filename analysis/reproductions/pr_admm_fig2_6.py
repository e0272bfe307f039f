"""Figures 2 to 6 of Ding's dissertation: PR-ADMM and what it is compared with, on Adult.

DESIM_DATA=folder/with/adult.csv.gz python -m analysis.reproductions pr_admm_fig2_6 [--sets N]
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from analysis.reproductions import adult_admm, adult_words
from analysis.reproductions.adult_admm import BASELINES, DELTA, ETA, Setting, baselines
from analysis.reproductions.adult_words import beaten, preferred
from analysis.reproductions.monte_carlo import MonteCarlo, reported
from analysis.reproductions.page import chosen
from desim.interface.plots import Axes
from desim.privacy.papers.pr_admm import iteration_sum, lemma_10, periodic_sum

NAME, SETS, FILE = "pr_admm_fig2_6", 5, "pr-admm"
EPSILONS = (0.1, 0.5, 1.0, 5.0, 10.0)
T, ROWS, DEGREE = 50, 8000, 2
PER, ITER = {"decay": 0.925, "period": 1}, {"iteration": 0.015}
LABELS = {
    "admm": "Non-private", "pr-admm per": "PR-ADMM (Per)", "pr-admm iter": "PR-ADMM (Iter)",
    "dvp": "DVP", "m-admm": "M-ADMM", "r-admm": "R-ADMM",
}  # fmt: skip
VARIED = {
    "Fig. 2a": "T_p", "Fig. 2b": "U", "Fig. 2c": "R_P", "Fig. 3a": "U", "Fig. 3b": "R_T",
    "Lemma 10": "noise as it is printed, without 1/n",
}  # fmt: skip


def by_theorem(epsilon: float, schedule: Mapping[str, Any], rows: int = ROWS) -> float:
    """Sigma for which Theorem 2 or 3 says epsilon, its Lemma 10 divided by `rows` (1: printed)."""
    gain = np.log(1.0 / DELTA)
    rho = (np.sqrt(gain + epsilon) - np.sqrt(gain)) ** 2
    if "iteration" in schedule:
        total = iteration_sum(schedule["iteration"], T)
    else:
        total = periodic_sum(schedule["decay"], schedule["period"], T) - 1.0
    return float(lemma_10(1.0, ETA, DEGREE) / rows * np.sqrt(total / (2.0 * rho)))


def wary(
    figure: str, variant: str, varied: str, schedule: Mapping[str, Any], U: float | None,
    epsilon: float = 10.0,
) -> Setting:  # fmt: skip
    """PR-ADMM with one schedule and threshold; corrected: its noise is found, eta is tuned."""
    sigma = by_theorem(epsilon, schedule) if variant == "printed" else float("nan")
    parameters = {"eta": ETA, "U": U}
    return Setting(figure, variant, "pr-admm", epsilon, parameters, schedule, sigma, varied)


def varied(variant: str) -> list[Setting]:
    """Figures 2 and 3: epsilon = 10, one parameter at a time."""
    U_per, U_iter = (0.1, 1.0) if variant == "printed" else (None, None)
    bounds = (0.01, 0.1, 1.0, 10.0, 100.0, None)
    found = [
        wary("Fig. 2a", variant, f"{p}", {**PER, "period": p}, U_per) for p in (1, 2, 5, 10, 25, 50)
    ]
    found += [wary("Fig. 2b", variant, f"{U}".lower(), PER, U) for U in bounds]
    found += [
        wary("Fig. 2c", variant, f"{R}", {**PER, "decay": R}, U_per)
        for R in (0.8, 0.85, 0.9, 0.925, 0.95, 0.98)
    ]
    found += [wary("Fig. 3a", variant, f"{U}".lower(), ITER, U) for U in bounds]
    found += [
        wary("Fig. 3b", variant, f"{R}", {"iteration": R}, U_iter)
        for R in (0.0005, 0.002, 0.015, 0.1, 1.0)
    ]
    return found


def compared(variant: str, epsilons: Sequence[float] = EPSILONS) -> list[Setting]:
    """Figures 4 to 6: all methods; the baselines' noise always holds."""
    U_per, U_iter = (0.1, 1.0) if variant == "printed" else (None, None)
    found = [Setting("Fig. 5", variant, "admm", np.inf, {"eta": ETA}, {}, 0.0)]
    for epsilon in epsilons:
        found += [
            wary("Fig. 5", variant, "per", PER, U_per, epsilon),
            wary("Fig. 5", variant, "iter", ITER, U_iter, epsilon),
        ]
        found += baselines("Fig. 5", variant, epsilon)
    return found


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each setting."""
    bare = wary("Lemma 10", "printed", "per", PER, 0.1)
    settings = [replace(bare, sigma=by_theorem(10.0, PER, 1)), *varied("printed")]
    settings += compared("printed")
    right = adult_admm.tuned(monte_carlo, FILE, compared("corrected"))
    eta = {s.varied: s.parameters["eta"] for s in right if s.epsilon == 10.0 and s.varied}
    for one in varied("corrected"):
        own = eta["iter" if "iteration" in one.schedule else "per"]
        settings.append(replace(one, parameters={**one.parameters, "eta": own}))
    return adult_admm.study(monte_carlo, FILE, [*settings, *right], reported(sets))


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What the paper says, what is found, and whether that agrees."""
    told = [
        preferred(rows, figure, paper, 10.0)
        for figure, paper in (
            ("Fig. 2a", "1"), ("Fig. 2b", "0.1"), ("Fig. 2c", "0.925"), ("Fig. 3a", "1.0"),
            ("Fig. 3b", "0.015"),
        )
    ]  # fmt: skip
    for variant in ("printed", "corrected"):
        mine = chosen(rows, figure="Fig. 5", variant=variant, epsilon=10.0)
        ours = [row for row in mine if row["method"] == "pr-admm"]
        others = [row for row in mine if row["method"] in BASELINES]
        plain = chosen(rows, figure="Fig. 5", variant=variant, method="admm")[0]["loss"]
        ends = max(row["loss"] for row in ours), min(row["loss"] for row in others)
        found = f"{ends[0]:.4f} against {ends[1]:.4f} of the best baseline and {plain:.4f}"
        said = f"Fig. 4: both PR-ADMM have less loss than all private ones ({variant})"
        told.append((said, found, beaten(ours, others)))
    return told


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the paper says and what is left of it; then all numbers."""
    return adult_words.markdown(rows, verdicts(rows), VARIED, "Fig. 5", LABELS)


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Figures 4 and 5, as printed and corrected."""
    return adult_words.draw(rows, "Fig. 5", 10.0, LABELS)
