"""Figures 7 to 12 of Ding's dissertation: PP-ADMM, IPP-ADMM and what they are compared with.

DESIM_DATA=folder/with/adult.csv.gz python -m analysis.reproductions ipp_admm_fig7_13 [--sets N]
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
from analysis.reproductions.printed import Split, split, thresholds
from desim.interface.plots import Axes
from desim.privacy.papers.pp_admm import budget, deviation

NAME, SETS, FILE = "ipp_admm_fig7_13", 5, "ipp-admm"
EPSILONS = (0.5, 1.0, 2.0, 10.0)
PANELS = {1.0: "left", 2.0: "middle", 10.0: "right"}  # of Figure 12
T, ROWS, C, BETA, SHARE = 30, 7000, 15, 10**-3.5, 0.001
FINE = 1e-6  # corrected: beta, which costs a step of Newton's method and saves noise b_2
ASKING = 2.0  # corrected: epsilon_1 + epsilon_2 over epsilon, which costs little of it
LABELS = {
    "admm": "Non-private", "pp-admm": "PP-ADMM", "ipp-admm": "IPP-ADMM", "dvp": "DVP",
    "m-admm": "M-ADMM", "r-admm": "R-ADMM",
}  # fmt: skip
VARIED = {"Fig. 7": "splits", "Fig. 8": "beta", "Fig. 9": "C_loss", "Fig. 10": "alpha"}


def shared(parts: Split, sigma: float) -> float:
    """Part of what both noises spend that b_2 does, with the sigma_i2 of rho_i2 as printed."""
    return float(1.0 / (1.0 + 1.0 / (2.0 * parts.rho_2 * (ROWS * sigma) ** 2)))


def plausible(
    figure: str, variant: str, varied: str, epsilon: float, splits: float = SHARE,
    beta: float = BETA,
) -> Setting:  # fmt: skip
    """PP-ADMM, with the noise of Algorithm 2 or one that is to be found."""
    own = {"eta": ETA, "beta": beta, "norm": 1.0, "splits": splits}
    if variant == "corrected":
        return Setting(figure, variant, "pp-admm", epsilon, own, varied=varied)
    parts = split(budget(epsilon, DELTA), T, DELTA, splits)
    sigma = deviation(ROWS, parts.epsilon_3, DELTA)
    own["splits"] = shared(parts, sigma)
    return Setting(figure, variant, "pp-admm", epsilon, own, {}, sigma, varied)


def improved(
    figure: str, variant: str, varied: str, epsilon: float, C_loss: float = 2.0, alpha: float = 1e-3
) -> Setting:
    """IPP-ADMM, with half of the paper's rho for answers, or with noise that is to be found."""
    own: dict[str, Any] = {
        "eta": ETA, "beta": BETA, "norm": 1.0, "splits": SHARE, "c": C, "C_loss": C_loss,
        "alpha": alpha,
    }  # fmt: skip
    if variant == "corrected":
        own |= {"beta": FINE, "answers": ASKING * epsilon, "variant": "fresh"}
        return Setting(figure, variant, "ipp-admm", epsilon, own, varied=varied)
    half = 0.5 * budget(epsilon, DELTA)
    parts = split(half, C, DELTA, SHARE)
    sigma = deviation(ROWS, parts.epsilon_1, DELTA)  # line 6 has epsilon_1 for epsilon_3
    own |= {"answers": sum(thresholds(half, C)), "variant": "printed"}
    own["splits"] = shared(parts, sigma)
    return Setting(figure, variant, "ipp-admm", epsilon, own, {}, sigma, varied)


def varied(variant: str) -> list[Setting]:
    """Figures 7 to 10: epsilon = 1, one parameter at a time."""
    found = [
        plausible("Fig. 7", variant, f"{q:g}", 1.0, q, 1e-6) for q in (0.5, 0.1, 0.01, 0.001, 1e-4)
    ]
    found += [
        plausible("Fig. 8", variant, f"{e:g}", 1.0, SHARE, 10.0**e) for e in (-6, -5, -3.5, -2, -1)
    ]
    found += [
        improved("Fig. 9", variant, f"{C_loss:g}", 1.0, C_loss) for C_loss in (0.5, 1, 2, 4, 8)
    ]
    return found + [
        improved("Fig. 10", variant, f"{alpha:g}", 1.0, 2.0, alpha)
        for alpha in (1e-3, 1e-2, 0.1, 1.0, 10.0)
    ]


def compared(variant: str) -> list[Setting]:
    """Figures 11 and 12: all methods; the baselines' noise always holds."""
    found = [Setting("Fig. 11", variant, "admm", np.inf, {"eta": ETA}, {}, 0.0)]
    for epsilon in EPSILONS:
        beta = BETA if variant == "printed" else FINE
        found.append(plausible("Fig. 11", variant, "", epsilon, SHARE, beta))
        found.append(improved("Fig. 11", variant, "", epsilon))
        found += baselines("Fig. 11", variant, epsilon)
    return found


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each setting."""
    settings = [*varied("printed"), *compared("printed")]
    right = adult_admm.tuned(monte_carlo, FILE, compared("corrected"))
    own = [one for one in right if one.method in ("pp-admm", "ipp-admm") and one.epsilon == 1.0]
    eta = {one.method: one.parameters["eta"] for one in own}
    for one in varied("corrected"):
        settings.append(replace(one, parameters={**one.parameters, "eta": eta[one.method]}))
    return adult_admm.study(monte_carlo, FILE, [*settings, *right], reported(sets))


def verdicts(rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """What the paper says, what is found, and whether that agrees."""
    told = [
        preferred(rows, figure, paper, 1.0)
        for figure, paper in (
            ("Fig. 7", "0.001"), ("Fig. 8", "-3.5"), ("Fig. 9", "2"), ("Fig. 10", "0.001"),
        )
    ]  # fmt: skip
    for variant in ("printed", "corrected"):
        for epsilon in PANELS:
            mine = {
                str(row["method"]): row
                for row in chosen(rows, figure="Fig. 11", variant=variant, epsilon=epsilon)
            }
            pp, ipp, others = mine["pp-admm"], mine["ipp-admm"], [mine[name] for name in BASELINES]
            least = min(row["loss"] for row in others)
            found = f"PP {pp['loss']:.4f}, IPP {ipp['loss']:.4f}, best baseline {least:.4f}"
            where = f"({variant}, ε = {epsilon:g}: {PANELS[epsilon]})"
            said = f"Fig. 11, 12: both beat the baselines {where}"
            told.append((said, found, beaten([pp, ipp], others)))
            told.append((f"Fig. 11: IPP-ADMM beats PP-ADMM {where}", found, beaten([ipp], [pp])))
    return told


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """What the paper says and what is left of it; then all numbers."""
    return adult_words.markdown(rows, verdicts(rows), VARIED, "Fig. 11", LABELS)


def draw(rows: Sequence[Mapping[str, Any]]) -> Axes:
    """Figures 11 and 12, as printed and corrected."""
    return adult_words.draw(rows, "Fig. 11", 1.0, LABELS)
