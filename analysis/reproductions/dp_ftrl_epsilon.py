"""DP-FTRL: accuracy against epsilon, beside DP-SGD with amplification and without.

Kairouz et al. 2021 (arXiv 2103.00039) in kind, on the digits of scenarios/papers/dp-ftrl.yaml.
Every method has the coordinator's step that is best on data sets of its own, at each epsilon; then
all meet the same data. python -m analysis.reproductions dp_ftrl_epsilon [--sets N]
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, cast

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import Case, MonteCarlo, mean_and_error, reported
from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.interface.plots import COLOURS

NAME = "dp_ftrl_epsilon"
SETS = 20
TUNING = range(1001, 1006)
EPSILONS = (1.0, 4.0, 16.0, 64.0)
AGENTS = 400
STEPS = (0.1, 0.3, 1.0, 3.0, 10.0)  # of the coordinator
LATE = 16  # rounds, the last of a run: one whole tree
AMPLIFIED, PLAIN = "DP-SGD, amplified", "DP-SGD, not amplified"
TREES, BANDS = "DP-FTRL, trees of 16", "bands"
METHODS = (AMPLIFIED, PLAIN, TREES, BANDS)
SETTINGS = {40: (10, 80), 8: (48, 192)}  # agents a round: rounds between two of one, and of a run
WHENS = {"end": "at the end", "late": f"mean of the last {LATE} rounds"}
Row = dict[str, Any]
Place = tuple[int, str, float]  # agents a round, method, epsilon


class Accuracies(Discard):
    """A sink that keeps the accuracy of the coordinator's model, by round."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of a table."""
        if name == "metrics":
            network = np.asarray(columns["agent"]) < 0
            self.values += np.asarray(columns["value"], float)[network].tolist()


def learnt(made: Simulation) -> tuple[float, float, float]:
    """Accuracy at the end and its mean over the LATE rounds; the multiplier of the noise."""
    found, trust = Accuracies(), made.settings.trust
    made.play(found)
    assert trust is not None
    return found.values[-1], float(np.mean(found.values[-LATE:])), trust.multiplier(1)


def case(invited: int, method: str, epsilon: float, step: float) -> Case:
    """A method that spends epsilon, with so many agents a round and a step of the coordinator."""
    separation, rounds = SETTINGS[invited]
    noise: Mapping[str, dict[str, Any]] = {
        AMPLIFIED: {"privacy.noise": {}},
        PLAIN: {"privacy.noise.correlated": {"root": 1}},  # one band: independent noise
        TREES: {"privacy.noise.correlated": {"tree": 16}},
        BANDS: {"privacy.noise.correlated": {"banded": separation}},
    }
    who: Any = {"uniform": invited, "separation": separation}
    if method == AMPLIFIED:
        who = {"bernoulli": invited / AGENTS}
    asked = {"participation": who, "stop.rounds": rounds, "privacy.target.epsilon": epsilon}
    return Case("dp-ftrl", {**asked, **noise[method], "algorithm.global_step": step})


def tuned(monte_carlo: MonteCarlo) -> dict[Place, float]:
    """The step with the best mean accuracy at the end, in each setting and at each epsilon."""
    places = [*product(SETTINGS, METHODS, EPSILONS)]
    grid = {(*place, step): case(*place, step) for place, step in product(places, STEPS)}
    found = monte_carlo.values(grid, TUNING, learnt)
    return {
        place: max(STEPS, key=lambda step: float(found[*place, step][:, 0].mean()))
        for place in places
    }


def study(monte_carlo: MonteCarlo, sets: int) -> list[Row]:
    """A row for each setting, method and epsilon."""
    best = tuned(monte_carlo)
    cases = {place: case(*place, step) for place, step in best.items()}
    found = monte_carlo.values(cases, reported(sets), learnt)
    return [row_of(found, place, step) for place, step in best.items()]


def row_of(found: Mapping[Place, Array], place: Place, step: float) -> Row:
    """What is kept of one place, and how far DP-FTRL is above it, paired by data set.

    found (sets, 3): what is `learnt` at each place.
    """
    invited, method, epsilon = place
    own, base = found[place], found[invited, TREES, epsilon]
    row: Row = {"invited": invited, "method": method, "epsilon": epsilon, "step": step}
    row |= {"sets": len(own), "multiplier": float(own[0, 2])}
    for column, when in enumerate(WHENS):
        row[when], row[f"{when}_se"] = mean_and_error(own[:, column])
        above = mean_and_error(base[:, column] - own[:, column])
        row[f"{when}_above"], row[f"{when}_above_se"] = above
    return row


CLAIMS = (  # what is said, the rival, whether DP-FTRL is to be above it (1) or below, and where
    ("DP-FTRL is above DP-SGD without amplification, at every epsilon", PLAIN, 1.0, EPSILONS),
    ("amplified DP-SGD is above DP-FTRL where epsilon is small", AMPLIFIED, -1.0, EPSILONS[:2]),
    ("DP-FTRL is above amplified DP-SGD where epsilon is large", AMPLIFIED, 1.0, EPSILONS[2:]),
    ("bands are above trees (Choquette-Choo et al. 2023)", BANDS, -1.0, EPSILONS),
)


def claims(rows: Sequence[Row]) -> Iterator[tuple[str, ...]]:
    """What is claimed, agents a round, epsilon; then of each of WHENS difference and verdict."""
    for words, rival, sign, epsilons in CLAIMS:
        for invited, epsilon in product(SETTINGS, epsilons):
            (row,) = page.chosen(rows, invited=invited, method=rival, epsilon=epsilon)
            told: list[str] = []
            for when in WHENS:
                above, error = sign * row[f"{when}_above"], row[f"{when}_above_se"]
                told += [f"{above:+.3f} ± {error:.3f}", verdicts.below(-above, error, row["sets"])]
            yield words, f"{invited}", f"{epsilon:g}", *told


def markdown(rows: Sequence[Row]) -> str:
    """Accuracies at the end, then what is claimed of them."""
    head = ("agents a round", "method", *(f"epsilon {one:g}" for one in EPSILONS))
    lines = []
    for invited, method in product(SETTINGS, METHODS):
        line = [f"{invited}", method]
        for epsilon in EPSILONS:
            (row,) = page.chosen(rows, invited=invited, method=method, epsilon=epsilon)
            numbers = f"{row['end']:.3f} ± {row['end_se']:.3f}"
            line.append(f"{numbers} (z {row['multiplier']:.3g}, step {row['step']:g})")
        lines.append(line)
    said = ["claimed", "agents a round", "epsilon"]
    said += [one for when in WHENS.values() for one in (f"ours, {when}", "verdict")]
    return f"{page.table(said, claims(rows))}\n\n{page.table(head, lines)}"


def draw(rows: Sequence[Row]) -> Axes:
    """Accuracy at the end against epsilon, with two standard errors: a panel for each setting."""
    panels = Figure(figsize=(7.2, 3.2)).subplots(1, len(SETTINGS), sharey=True)
    for axes, invited in zip(panels, SETTINGS, strict=True):
        for place, method in enumerate(METHODS):
            mine = page.chosen(rows, invited=invited, method=method)
            mine.sort(key=lambda row: row["epsilon"])
            x, y = ([row[key] for row in mine] for key in ("epsilon", "end"))
            axes.errorbar(
                x, y, [2.0 * row["end_se"] for row in mine], fmt="os^D"[place] + "-",
                color=COLOURS[place], label=method, markersize=4.0, capsize=2.0,
            )  # fmt: skip
        axes.set_xscale("log", base=2)
        axes.set_xticks(EPSILONS, [f"{one:g}" for one in EPSILONS])
        axes.minorticks_off()
        axes.set_xlabel(r"$\varepsilon$ of an agent, $\delta = 10^{-5}$")
        axes.set_title(f"{invited} agents a round", fontsize=9.5)
    panels[0].set_ylabel("accuracy at the end")
    panels[0].legend(loc="lower right")
    return cast(Axes, panels[0])
