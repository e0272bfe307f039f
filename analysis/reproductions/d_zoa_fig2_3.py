"""Figures 2 and 3 of D-ZOA: is an entry of the estimate g normally distributed?

Given the past: agent 2 of the run on data set 1, the first entry, DRAWS draws of the directions at
inner step t of round m. J is what (22) gives for epsilon = 0.15 and 0.95; the paper's is not said.
python -m analysis.reproductions d_zoa_fig2_3 [--sets N]
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure
from scipy.special import log_ndtr, ndtri
from scipy.stats import kurtosis

from analysis.reproductions import page
from analysis.reproductions.d_zoa_setting import Level, with_samples
from analysis.reproductions.monte_carlo import Case, MonteCarlo, simulations
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.interface.plots import COLOURS, Axes
from desim.methods.d_zoa import schedule
from desim.problem.kernels.zeroth import descend, estimates

NAME = "d_zoa_fig2_3"
SETS = 1
AGENT, ENTRY = 1, 0  # the paper's agent 2
DRAWS, MANY = 10_000, 10_000
PLACES = ((50, 100), (150, 50))  # round m and inner step t: Figures 2 and 3
LEVELS = (Level(0.15), Level(0.95))
FRESH = 10_000  # rounds from here on are addresses that the run does not use
BINS = np.linspace(-4.25, 4.25, 35)
SHARES = (np.arange(1, 400) - 0.5) / 399.0
CRITICAL = 1.029  # of the Anderson-Darling statistic at 1 % (Stephens 1974)


def draws(made: Simulation, m: int, t: int) -> Array:
    """Draws (DRAWS,) of an entry of g at step t of round m, given all that came before."""
    p, graph, seed = made.method.parameters, made.settings.graph, made.settings.seed
    assert graph is not None
    before = replace(made, settings=replace(made.settings, rounds=m - 1))
    played = before.play(Discard())
    assert played.iterates is not None
    x, dual = played.iterates[-1], played.state["dual"]
    near = graph.source[graph.target == AGENT]
    c = (dual[AGENT] - p.rho * (len(near) * x[AGENT] + x[near].sum(axis=0)))[None]
    here, J = np.array([AGENT]), made.method.samples[AGENT]
    q, data, dim = 2.0 * p.rho * len(near), made.problem.data, made.problem.dim
    at = descend(
        here, np.zeros_like(c), m, seed, data, steps=schedule(t - 1, dim, p.u1, p.step), samples=J,
        c=c, q=q,
    )  # fmt: skip
    many = np.full(DRAWS, AGENT)
    found = estimates(
        many, np.repeat(at, DRAWS, 0), FRESH + np.arange(DRAWS), seed, data, samples=J, step=t,
        u1=p.u1 / t, u2=p.u1 / (dim * t) ** 2, c=np.repeat(c, DRAWS, 0), q=q,
    )  # fmt: skip
    return np.asarray(found[:, ENTRY])


def anderson(z: Array) -> float:
    """Anderson and Darling's A^2 of standardised z (n,) against the normal distribution."""
    z, n = np.sort(z), len(z)
    weights = (2.0 * np.arange(1, n + 1) - 1.0) / n
    return float(-n - weights @ (log_ndtr(z) + log_ndtr(-z[::-1])))


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """Rows of three parts: moments, densities and quantiles, both standardised."""
    seen = {"observe": {"metrics": [], "iterates": True}}
    rows = []
    for level in LEVELS:
        made = with_samples(next(simulations(Case("d-zoa", seen), [1])), level, MANY)
        J = made.method.parameters.samples[AGENT]
        for m, t in PLACES:
            g = draws(made, m, t)
            z = (g - g.mean()) / g.std(ddof=1)
            where = {"m": m, "t": t, "epsilon": level.epsilon, "samples": J}
            density = np.histogram(z, BINS, density=True)[0]
            parts = {
                "excess kurtosis": [(0.0, float(kurtosis(z)))],
                "anderson": [(0.0, anderson(z))],
                "deviation": [(0.0, float(g.std(ddof=1)))],
                "density": list(zip(0.5 * (BINS[1:] + BINS[:-1]), density, strict=True)),
                "quantile": list(zip(ndtri(SHARES), np.quantile(z, SHARES), strict=True)),
            }
            rows += [
                {"part": part, **where, "x": float(x), "y": float(y)}
                for part, points in parts.items()
                for x, y in points
            ]
    return rows


def _one(rows: Sequence[dict[str, Any]], **wanted: Any) -> Array:
    """Pairs (n, 2) of the rows that have these values."""
    return np.array([(r["x"], r["y"]) for r in page.chosen(rows, **wanted)])


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """Moments and a test of normality, and what they say."""
    lines = []
    for m, t in PLACES:
        for level in LEVELS:
            where = {"m": m, "t": t, "epsilon": level.epsilon}
            J = next(r["samples"] for r in rows if r["epsilon"] == level.epsilon)
            bent, test, sd = (
                _one(rows, part=part, **where)[0, 1]
                for part in ("excess kurtosis", "anderson", "deviation")
            )
            told = "not normal" if test > CRITICAL else "nothing against it"
            numbers = (f"{sd:.3f}", f"{bent:.2f}", f"{test:.2f}", told)
            lines.append((f"{m}", f"{t}", f"{level.epsilon:g}", f"{J}", *numbers))
    error = np.sqrt(24.0 / DRAWS)
    head = ("m", "t", "epsilon", "J", "deviation of g", "excess kurtosis", "A²", "at 1 %")
    return (
        f"{page.table(head, lines)}\n\n{DRAWS} draws; standard error of a normal's kurtosis "
        f"{error:.2f}; A² is Anderson and Darling's, its 1 % point {CRITICAL}."
    )


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Histograms and QQ plots, a row of panels for each of the paper's figures."""
    panels = Figure(figsize=(7.2, 5.2)).subplots(2, 2, sharex="col", sharey="col")
    x = np.linspace(-4.25, 4.25, 200)
    for (m, t), (left, right) in zip(PLACES, panels, strict=True):
        left.plot(x, np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi), color="black", lw=0.8)
        right.axline((0.0, 0.0), slope=1.0, color="black", lw=0.8)
        for level, colour, marker in zip(LEVELS, COLOURS, ("o", "s"), strict=False):
            where = {"m": m, "t": t, "epsilon": level.epsilon}
            J = next(r["samples"] for r in rows if r["epsilon"] == level.epsilon)
            density = _one(rows, part="density", **where)
            left.stairs(density[:, 1], BINS, color=colour, lw=1.2)
            pairs = _one(rows, part="quantile", **where)
            right.plot(
                *pairs.T, marker, color=colour, markersize=2.2, mew=0.0,
                label=rf"$J = {J}$  ($\varepsilon = {level.epsilon:g}$)",
            )  # fmt: skip
        left.set_title(f"round {m}, inner step {t}", fontsize=9.5, loc="left")
        left.set_ylabel("density")
        left.set_ylim(0.0, 0.58)
        right.set_ylabel("entry of $g$, standardised")
    panels[0][0].plot([], [], color="black", lw=0.8, label="normal")
    panels[0][0].legend(loc="upper left")
    panels[0][1].legend(loc="upper left", markerscale=2.0)
    panels[1][0].set_xlabel("entry of $g$, standardised")
    panels[1][1].set_xlabel("normal quantile")
    return cast(Axes, panels[0][0])
