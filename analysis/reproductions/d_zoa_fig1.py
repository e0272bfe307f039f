"""Figure 1 of D-ZOA: its error against that of two methods that have all data in one place.

The paper gives no J and no parameter of the others: all take J = 20 differences, step and penalty
of the others are searched for on other data sets. An error is that of one model, ||w - w*||^2 /
||w*||^2: D-ZOA's is the mean over its agents.
python -m analysis.reproductions d_zoa_fig1 [--sets N]
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import numpy as np
from matplotlib.figure import Figure

from analysis.reproductions import page
from analysis.reproductions.d_zoa_setting import (
    AGENTS,
    D_ZOA,
    KEPT,
    REGULARIZERS,
    ROUNDS,
    ROWS,
    SEEDS,
    SIZE,
    kept,
)
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    mean_and_error,
    reported,
    simulations,
)
from analysis.reproductions.tuning import Point, Space, named, search
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.experiments.audit.neighbours import on
from desim.interface.plots import COLOURS, Axes

NAME = "d_zoa_fig1"
SAMPLES = 20
CENTRAL = {
    "OR-ZO": Space("d-zoa-versus-or-zo", {"step": (0.003, 3.0)}),
    "ZOO-ADMM": Space("d-zoa-versus-zoo-admm", {"rho": (0.1, 100.0), "step": (0.001, 0.3)}),
}


def gathered(made: Simulation) -> Simulation:
    """The simulation of one agent with the rows of five: those that D-ZOA has on the same seed.

    The mean over an agent's 20 rows, summed over the agents, is 1/20 of the sum over all rows.
    """
    apart = next(simulations(Case("d-zoa"), [made.settings.seed])).problem
    return on(made, replace(made.problem, A=apart.A, b=apart.b))


def kept_together(made: Simulation) -> tuple[float, ...]:
    """Errors of the one model on the rows of all agents."""
    return kept(gathered(made))


def case(name: str, regularizer: str, point: Point) -> Case:
    """A method with these parameters; where all data are in one place their losses are summed."""
    seen = {"observe": {"metrics": [], "iterates": True}}
    if name == D_ZOA:
        changes = {"problem.regularizer": REGULARIZERS[regularizer], "algorithm.samples": SAMPLES}
        return Case("d-zoa", {**changes, **seen})
    ((norm, weight),) = REGULARIZERS[regularizer].items()
    changes = {"problem.regularizer": {norm: ROWS * weight}}
    tuned = {f"algorithm.{key}": value for key, value in point.items()}
    return Case(CENTRAL[name].file, {**changes, **tuned, **seen})


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each regulariser, method and round."""
    rows = []
    for regularizer in REGULARIZERS:
        for name in (D_ZOA, *CENTRAL):
            point = {} if name == D_ZOA else _tuned(monte_carlo, name, regularizer)
            measure = kept if name == D_ZOA else kept_together
            found = monte_carlo.values({0: case(name, regularizer, point)}, reported(sets), measure)
            models = found[0] / (AGENTS if name == D_ZOA else 1)
            text = named(point) or "step 0.27"
            for place, round_ in enumerate(KEPT):
                error, spread = mean_and_error(models[:, place])
                about = {"regularizer": regularizer, "method": name, "parameters": text}
                numbers = {"round": round_, "error": error, "standard_error": spread, "sets": sets}
                rows.append({**about, **numbers})
    return rows


def _tuned(monte_carlo: MonteCarlo, name: str, regularizer: str) -> Point:
    """The point of least last error, a geometric mean over the data sets of tuning."""

    def score(points: Sequence[Point]) -> Array:
        cases = {n: case(name, regularizer, one) for n, one in enumerate(points)}
        found = monte_carlo.values(cases, SEEDS, kept_together)
        return np.array([np.log(np.minimum(found[n][:, -1], 1e6)).mean() for n in cases])

    return search(CENTRAL[name], score, SIZE)[0]


def markdown(rows: Sequence[dict[str, Any]]) -> str:
    """The last errors, and which rounds it takes to a hundredth of the initial error."""
    lines = []
    for regularizer in REGULARIZERS:
        for name in (D_ZOA, *CENTRAL):
            mine = [r for r in rows if (r["regularizer"], r["method"]) == (regularizer, name)]
            far = next((str(r["round"]) for r in mine if r["error"] <= 0.01), "-")
            end = mine[-1]
            numbers = (f"{end['error']:.2e}", f"{end['standard_error']:.0e}", far)
            lines.append((regularizer, name, end["parameters"], *numbers))
    head = ("regulariser", "method", "parameters", f"error at {ROUNDS}", "SE", "rounds to 0.01")
    return page.table(head, lines)


def draw(rows: Sequence[dict[str, Any]]) -> Axes:
    """Learning curves, a panel for each regulariser."""
    panels = Figure(figsize=(7.2, 3.0)).subplots(1, 2, sharey=True)
    for axes, regularizer in zip(panels, REGULARIZERS, strict=True):
        for name, colour, dash in zip((D_ZOA, *CENTRAL), COLOURS, ("-", "--", "-."), strict=False):
            mine = [r for r in rows if (r["regularizer"], r["method"]) == (regularizer, name)]
            x, y, e = (np.array([r[k] for r in mine]) for k in ("round", "error", "standard_error"))
            axes.fill_between(x, y - 2 * e, y + 2 * e, color=colour, alpha=0.15, linewidth=0.0)
            axes.semilogy(x, y, dash, color=colour, label=name)
        axes.set_title(regularizer, fontsize=9.5)
        axes.set_xlabel("iteration")
        axes.set_xlim(0, ROUNDS)
    panels[0].set_ylabel(r"$\|w - w^\star\|^2 \,/\, \|w^\star\|^2$")
    panels[1].legend(loc="lower left")
    return cast(Axes, panels[0])
