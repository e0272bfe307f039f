"""FedBuff's speed-up over synchronous and fully asynchronous averaging, in seconds and in updates.

Every method is tuned on data sets of its own, each at every concurrency; then all meet the same
data, starts, batches and durations. python -m analysis.reproductions fedbuff_seconds [--sets N]
"""

from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from analysis.reproductions import page, verdicts
from analysis.reproductions.monte_carlo import Case, MonteCarlo, mean_and_error, reported
from desim.engine.play import Simulation
from desim.engine.world import Discard
from desim.interface.plots import COLOURS, Axes, new_axes

NAME = "fedbuff_seconds"
SETS = 10
TUNING = range(1001, 1004)
CONCURRENCY = (50, 100, 200)  # agents that are at work at any time
MOST = CONCURRENCY[-1]
OVER = 1.3  # invited for each reply that a synchronous round takes
LOCAL = (0.1, 0.3, 1.0)  # steps of local training
POLYNOMIAL = {"staleness": {"polynomial": 0.5}}
SYNCHRONOUS, ASYNCHRONOUS = 3.3, 2.5  # the abstract's factors
BUFFERED = "FedBuff"
TICKS = (30, 50, 100, 200)  # s, of the figure
Row = dict[str, Any]


class Contestant(NamedTuple):
    """A method, its coordinator's key that is tuned, the values of this, and its policy."""

    algorithm: dict[str, Any]
    key: str
    values: tuple[float, ...]
    policy: Any
    concurrency: tuple[int, ...] = (MOST,)

    def case(self, agents: int, step: float, value: float) -> Case:
        """It at a concurrency, with a step of local training and a value of its key."""
        local = {"solver": "sgd", "epochs": 5, "batch": 4, "step": step}
        algorithm = {**self.algorithm, "local": local, self.key: value}
        policy = {"quorum": round(agents / OVER)} if self.policy == "over" else self.policy
        changes = {"problem.agents": agents, "algorithm": algorithm, "policy": policy}
        return Case("fedbuff", changes)


AVERAGING = {"name": "fedavg"}
MOMENTUM = {**AVERAGING, "server": {"momentum": 0.9}}
CONTESTANTS = {
    BUFFERED: Contestant(
        {"name": "fedbuff"}, "global_step", (2.0, 4.0, 8.0),
        {"buffer": 10, **POLYNOMIAL},
        CONCURRENCY,
    ),
    "FedAvgM, over-selected": Contestant(
        MOMENTUM, "global_step", (2.0, 4.0, 8.0, 16.0), "over", CONCURRENCY
    ),
    "FedAvgM, all": Contestant(MOMENTUM, "global_step", (2.0, 4.0, 8.0, 16.0), "all"),
    "FedAvg, over-selected": Contestant(
        AVERAGING, "global_step", (2.0, 4.0, 8.0, 16.0), "over"
    ),
    "FedAsync": Contestant(
        {"name": "fedasync"}, "alpha", (0.3, 0.6, 1.0), {"buffer": 1, **POLYNOMIAL}
    ),
}  # fmt: skip
PLACES = [(n, name) for name, one in CONTESTANTS.items() for n in one.concurrency]


def to_target(made: Simulation) -> tuple[float, float]:
    """Logarithms of the seconds and of the agents' computations until the target; inf if never."""
    done = made.play(Discard())
    if not done.reason.startswith("stop.metric"):
        return float("inf"), float("inf")
    return float(np.log(done.time)), float(np.log(done.counts["compute"]))


def tuned(monte_carlo: MonteCarlo) -> dict[tuple[int, str], tuple[float, float]]:
    """The steps (local, coordinator's) with the least mean logarithm of seconds, by place."""
    grid = {
        (n, name, step, value): CONTESTANTS[name].case(n, step, value)
        for n, name in PLACES
        for step, value in product(LOCAL, CONTESTANTS[name].values)
    }
    found = monte_carlo.values(grid, TUNING, to_target)
    best = {}
    for place in PLACES:
        mine = {key[2:]: float(found[key][:, 0].mean()) for key in grid if key[:2] == place}
        best[place] = min(mine, key=lambda key: mine[key])
    return best


def study(monte_carlo: MonteCarlo, sets: int) -> list[Row]:
    """A row for each method and concurrency, with paired differences from FedBuff's."""
    best = tuned(monte_carlo)
    cases = {(n, name): CONTESTANTS[name].case(n, *best[n, name]) for n, name in PLACES}
    found = monte_carlo.values(cases, reported(sets), to_target)
    rows = []
    for n, name in PLACES:
        own, base = found[n, name], found[n, BUFFERED]
        row: Row = {"agents": n, "method": name, "sets": sets}
        row["step"], row["server_step"] = best[n, name]
        for column, what in enumerate(("seconds", "updates")):
            row[what] = float(np.exp(own[:, column].mean()))
            gap, error = mean_and_error(own[:, column] - base[:, column])
            row[f"log_ratio_{what}"], row[f"error_{what}"] = gap, error
        rows.append(row)
    grown = found[MOST, OTHER] - found[MOST, BUFFERED]
    grown -= found[CONCURRENCY[0], OTHER] - found[CONCURRENCY[0], BUFFERED]
    for row in rows:
        row["growth"], row["error_growth"] = mean_and_error(grown[:, 0])
    return rows


OTHER = "FedAvgM, over-selected"
WHATS = {"seconds": "seconds", "updates": "agents' updates"}


def judged(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """(what is claimed, ours, verdict), of the largest concurrency but for the last."""
    found = []
    for name, factor, printed in (
        (OTHER, SYNCHRONOUS, "3.3 times as efficient as synchronous FL"),
        ("FedAsync", ASYNCHRONOUS, "up to 2.5 times as efficient as asynchronous FL"),
    ):
        (row,) = page.chosen(rows, agents=MOST, method=name)
        for what, words in WHATS.items():
            gap, error = row[f"log_ratio_{what}"], row[f"error_{what}"]
            claim = f"fewer {words} than {name}"
            ours = interval(gap, error, row["sets"])
            found.append((claim, ours, verdicts.below(-gap, error, row["sets"])))
            over = np.log(factor) - gap
            found.append((f"{printed}, in {words}", ours, beyond(over, error, row["sets"])))
    gap, error = rows[0]["growth"], rows[0]["error_growth"]
    ours, told = interval(gap, error, rows[0]["sets"]), verdicts.below(-gap, error, rows[0]["sets"])
    ends = f"{CONCURRENCY[0]} to {MOST}"
    found.append((f"the factor over {OTHER} in seconds grows, from {ends} agents", ours, told))
    return found


def beyond(over: float, error: float, sets: float) -> str:
    """Whether a factor is told apart from the printed one; over: logarithm of printed / ours."""
    told = verdicts.errors(over, error)
    if abs(over) <= verdicts.sure(sets) * error:
        return f"not told apart ({told})"
    return f"differs: {'smaller' if over > 0.0 else 'larger'} here ({told})"


def interval(gap: float, error: float, sets: float) -> str:
    """A factor with its 95 % interval, from the logarithm and its standard error."""
    reach = verdicts.sure(sets) * error
    low, middle, high = np.exp([gap - reach, gap, gap + reach])
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def markdown(rows: Sequence[Row]) -> str:
    """The verdicts, and what they rest on."""
    head = "claimed", "ours (95 % interval)", "verdict"
    more = (
        "agents", "method", "local step", "server's step", "seconds", "updates",
        "seconds over FedBuff's", "updates over FedBuff's",
    )  # fmt: skip
    lines = []
    for row in sorted(rows, key=lambda row: (-row["agents"], row["seconds"])):
        ratios = ["", ""]
        if row["method"] != BUFFERED:
            ratios = [
                interval(row[f"log_ratio_{what}"], row[f"error_{what}"], row["sets"])
                for what in WHATS
            ]
        steps = f"{row['step']:g}", f"{row['server_step']:g}"
        numbers = f"{row['seconds']:.1f}", f"{row['updates']:.0f}"
        lines.append((f"{row['agents']:g}", row["method"], *steps, *numbers, *ratios))
    return f"{page.table(head, judged(rows))}\n\n{page.table(more, lines)}"


def draw(rows: Sequence[Row]) -> Axes:
    """Seconds to the target against concurrency."""
    axes = new_axes(interactive=False)
    for place, name in enumerate(CONTESTANTS):
        mine = sorted(page.chosen(rows, method=name), key=lambda row: row["agents"])
        x, y = ([row[key] for row in mine] for key in ("agents", "seconds"))
        axes.loglog(x, y, "o-", color=COLOURS[place % len(COLOURS)], label=name, markersize=4.0)
    axes.set_xticks(CONCURRENCY, [f"{n}" for n in CONCURRENCY])
    axes.set_yticks(TICKS, [f"{s}" for s in TICKS])
    axes.minorticks_off()
    axes.set_xlabel("agents at work at any time")
    axes.set_ylabel("seconds to 93 % accuracy")
    axes.legend(loc="upper left")
    return axes
