"""Table II of Fed-PLT: the rates of six methods with two local solvers, full and half cohorts.

python -m analysis.reproductions fed_plt_table2 [--sets N]

The paper does not give the baselines' parameters. They are compared twice: with their main
parameter where it comes nearest to the paper, everything else at its default; and tuned, every
method with the same number of trials. Both searches use other data sets than those reported.
Accelerated steps are tuned twice: with the momentum of the moduli, as the paper prints it, and with
the one that belongs to their size.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import (
    Case,
    MonteCarlo,
    checked_rates,
    mean_and_error,
    reported,
)
from analysis.reproductions.tuning import SPACES, Point, named, nearest, tuned
from desim.arrays import Array

NAME = "fed_plt_table2"
COHORTS: dict[str, Any] = {"all": "all", "half": {"uniform": 5}}
MOMENTUM = "momentum"
RULES = {"gradient": ("",), "accelerated": ("auto", "from-step")}
FED_PLT = {"gradient": {"rho": 0.3}, "accelerated": {"rho": 0.35}}
BANDS = {"all": 0.02, "half": 0.015}
BASELINE_BAND = 0.02
PAPER: dict[str, dict[tuple[str, str], float]] = {
    "fed-plt": {
        ("gradient", "all"): 0.531, ("gradient", "half"): 0.761,
        ("accelerated", "all"): 0.560, ("accelerated", "half"): 0.778,
    },
    "fed-pd": {("gradient", "all"): 0.756, ("accelerated", "all"): 0.740},
    "fedlin": {("gradient", "all"): 0.546, ("accelerated", "all"): 0.774},
    "tamuna": {
        ("gradient", "all"): 0.905, ("gradient", "half"): 0.960,
        ("accelerated", "all"): 0.901, ("accelerated", "half"): 0.958,
    },
    "led": {("gradient", "all"): 0.762, ("accelerated", "all"): 0.777},
    "5gcs": {
        ("gradient", "all"): 0.789, ("gradient", "half"): 0.897,
        ("accelerated", "all"): 0.789, ("accelerated", "half"): 0.894,
    },
}  # fmt: skip


class Cell(NamedTuple):
    """One number of the table."""

    method: str
    solver: str
    cohort: str

    @property
    def paper(self) -> float:
        """The paper's number."""
        return PAPER[self.method][self.solver, self.cohort]

    @property
    def settings(self) -> dict[str, Any]:
        """Overrides of the method's scenario."""
        return {
            "algorithm.local.solver": self.solver,
            "participation": COHORTS[self.cohort],
        }

    def case(self, chosen: "Chosen") -> Case:
        """The cell's case with these parameters."""
        tied = {f"algorithm.local.{MOMENTUM}": chosen.momentum} if chosen.momentum else {}
        return SPACES[self.method].case(chosen.point, {**self.settings, **tied})


class Chosen(NamedTuple):
    """Parameters of a cell, and the momentum of its accelerated steps; "": not said."""

    point: Point
    momentum: str = ""

    def __str__(self) -> str:
        return named(self.point) + (f"; {MOMENTUM} {self.momentum}" if self.momentum else "")


CELLS = [Cell(method, *place) for method, values in PAPER.items() for place in values]


def nearest_points(monte_carlo: MonteCarlo, cells: Sequence[Cell]) -> dict[Cell, Chosen]:
    """Fed-PLT's as it reproduces the paper; one for both cohorts of a baseline and solver."""
    points: dict[Cell, Chosen] = {}
    for method, solver in dict.fromkeys((cell.method, cell.solver) for cell in cells):
        mine = [cell for cell in cells if (cell.method, cell.solver) == (method, solver)]
        if method == "fed-plt":
            points |= dict.fromkeys(mine, Chosen(FED_PLT[solver]))
            continue
        settings, targets = [cell.settings for cell in mine], [cell.paper for cell in mine]
        point = nearest(monte_carlo, SPACES[method], settings, targets)
        points |= dict.fromkeys(mine, Chosen(point))
    return points


def tuned_point(monte_carlo: MonteCarlo, cell: Cell) -> Chosen:
    """The fastest of what one search for each momentum finds."""
    found = []
    for rule in RULES[cell.solver]:
        settings = cell.case(Chosen({}, rule)).overrides
        point, score = tuned(monte_carlo, SPACES[cell.method], settings)
        found.append((score, Chosen(point, rule)))
    return min(found, key=lambda one: one[0])[1]


def study(
    monte_carlo: MonteCarlo, sets: int, cells: Sequence[Cell] = CELLS
) -> list[dict[str, Any]]:
    """Two rows for each cell: nearest to the paper, and tuned."""
    chosen = {
        "nearest": nearest_points(monte_carlo, cells),
        "tuned": {cell: tuned_point(monte_carlo, cell) for cell in cells},
    }
    cases = {
        (way, cell): cell.case(one)
        for way, points in chosen.items()
        for cell, one in points.items()
    }
    found = monte_carlo.values(cases, reported(sets), checked_rates)
    return [
        _row(way, cell, chosen[way][cell], rates.T, sets) for (way, cell), rates in found.items()
    ]


def _row(way: str, cell: Cell, chosen: Chosen, found: Array, sets: int) -> dict[str, Any]:
    """A line of the CSV; found (3, sets): `checked_rates`."""
    band = BANDS[cell.cohort] if cell.method == "fed-plt" else BASELINE_BAND
    (ours, error), (geometric, _), (late, _) = map(mean_and_error, found)
    words = verdicts.rate(ours, error, cell.paper, band, sets)
    if way == "tuned":
        gap = ours - cell.paper
        words = f"{abs(gap):.3f} {'faster' if gap < 0.0 else 'slower'} than the paper's"
        words += f" ({verdicts.errors(gap, error)})"
    numbers = {"paper": cell.paper, "ours": ours, "standard_error": error}
    numbers |= {"geometric": geometric, "late": late, "sets": sets}
    return {
        "parameters": way,
        **cell._asdict(),
        "values": str(chosen),
        **numbers,
        "verdict": words,
    }


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """Two tables: beside the paper, and tuned."""
    head = ("method", "local solver", "cohort", "parameters", "paper", "ours", "SE", "verdict")
    parts = []
    for way in ("nearest", "tuned"):
        lines = [
            (
                row["method"], row["solver"], row["cohort"], row["values"], f"{row['paper']:.3f}",
                f"{row['ours']:.3f}", f"{row['standard_error']:.4f}", row["verdict"],
            )
            for row in rows
            if row["parameters"] == way
        ]  # fmt: skip
        parts.append(page.table(head, lines))
    return f"**Nearest to the paper.**\n\n{parts[0]}\n\n**Tuned.**\n\n{parts[1]}"
