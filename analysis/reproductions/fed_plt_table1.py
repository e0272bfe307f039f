"""Table I of Fed-PLT: what six methods store and send, counted in runs, and whether some may miss.

python -m analysis.reproductions fed_plt_table1

An array of the agents is state where a run goes on differently once it is spoilt: when a round
begins, when a second call goes out in it, or when agents that have replied hear the news.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

import numpy as np

import desim
from analysis.reproductions import page
from analysis.reproductions.monte_carlo import SCENARIOS, Case, MonteCarlo, simulations
from desim.engine.world import Discard
from desim.errors import InputError

NAME, SETS = "fed_plt_table1", 1
ROUNDS, SPOILT = 6, 3
FLOAT = 8  # bytes
BRIEF = {"stop": {"rounds": ROUNDS}, "engine": "cohort"}
HALF = {"uniform": 5}
MOMENTS = ("a round begins", "a second call goes out", "news are heard")


class Method(NamedTuple):
    """A row: its scenario, and what the paper says: models of an agent and of the coordinator."""

    file: str
    agent: int
    centre: int
    partial: bool
    changes: Mapping[str, Any] = {}


METHODS = {
    "fed-plt": Method("fed-plt", 2, 1, True, {"algorithm.send": "increments"}),
    "fed-plt, send: z": Method("fed-plt", 2, 1, True),
    "fed-pd": Method("fed-plt-versus-fed-pd", 2, 1, False),
    "fedlin": Method("fed-plt-versus-fedlin", 2, 1, False),
    "tamuna": Method("fed-plt-versus-tamuna", 2, 1, True),
    "led": Method("fed-plt-versus-led", 2, 1, False),
    "5gcs": Method("fed-plt-versus-5gcs", 1, 3, True),
}


class Spoiler:
    """The hub of a coordinator; one array of the agents is spoilt at one moment of round SPOILT."""

    def __init__(self, hub: Any, moment: str = "", name: str = "") -> None:
        self.hub, self.moment, self.name, self.calls = hub, moment, name, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.hub, name)

    @property
    def open(self) -> bool:
        """Whether another round may begin."""
        self.calls = 0
        self._spoil(MOMENTS[0])
        return bool(self.hub.open)

    def call(self, *given: Any, **more: Any) -> None:
        """Ask agents to run a job."""
        self.calls += 1
        if self.calls == 2:
            self._spoil(MOMENTS[1])
        self.hub.call(*given, **more)

    def tell(self, *given: Any) -> None:
        """Let agents hear the news."""
        self._spoil(MOMENTS[2])
        self.hub.tell(*given)

    def _spoil(self, moment: str) -> None:
        state = self.hub.world.state
        if (moment, SPOILT) == (self.moment, self.hub.round):
            state[self.name] = state[self.name] + 1.0


def played(method: Method, moment: str = "", name: str = "") -> tuple[Any, Spoiler]:
    """Models (rounds + 1, dim) of a short run in which an array is spoilt, and its hub."""
    made = next(simulations(Case(method.file, {**BRIEF, **method.changes}), [1]))
    hubs: list[Spoiler] = []

    def coordinator(hub: Any) -> Any:
        hubs.append(Spoiler(hub, moment, name))
        return type(made.method).coordinator(cast(Any, made.method), hubs[0])

    cast(Any, made.method).coordinator = coordinator
    watched = replace(made, observation=replace(made.observation, metrics=(), iterates=True))
    return watched.play(Discard()).model, hubs[0]


def stored(method: Method) -> tuple[int, str, float]:
    """Models that an agent needs at one moment, which arrays and when, and the coordinator's."""
    usual, hub = played(method)
    arrays = list(hub.hub.world.state)
    most, where = 0, ""
    for moment in MOMENTS:
        needed = [n for n in arrays if not np.array_equal(played(method, moment, n)[0], usual)]
        if len(needed) > most:
            most, where = len(needed), f"{', '.join(needed)} when {moment}"
    own = _numbers(hub.hub.remembered()["own"]) // usual.shape[1]
    return most, where, own


def _numbers(tree: Any) -> int:
    """How many numbers a coordinator remembers; counters of a word or two are left out."""
    if isinstance(tree, Mapping):
        return sum(map(_numbers, tree.values()))
    return int(np.size(tree)) if np.size(tree) > 1 else 0


def messages(method: Method, participation: Any) -> tuple[float, float]:
    """Vectors that are sent up and down for each invitation of an agent."""
    changes = {**BRIEF, **method.changes, "participation": participation}
    run = desim.run(SCENARIOS / f"{method.file}.yaml", overrides=changes)
    sends = run.events.query("kind == 'send'")
    invited = run.scenario.problem.agents if participation == "all" else participation["uniform"]
    size = sends.bytes / (FLOAT * run.model.shape[1] * invited * ROUNDS)
    return float(size[sends.agent >= 0].sum()), float(size[sends.agent < 0].sum())


def cohorts(method: Method) -> str:
    """Whether a run with half of the agents is refused, warned of, or neither."""
    changes = {**BRIEF, **method.changes, "participation": HALF}
    try:
        made = next(simulations(Case(method.file, changes), [1]))
    except InputError:
        return "refused"
    warned = any(text.startswith("participation") for text in made.method.warnings)
    return "warned of" if warned else "yes"


def study(monte_carlo: MonteCarlo, sets: int) -> list[dict[str, Any]]:
    """One row for each method."""
    rows = []
    for name, method in METHODS.items():
        agent, arrays, centre = stored(method)
        half = cohorts(method)
        up, down = messages(method, "all")
        low = messages(method, HALF) if half == "yes" else (np.nan, np.nan)
        rows.append(
            {
                "method": name, "paper_agent": method.agent, "paper_centre": method.centre,
                "agent": agent, "arrays": arrays, "centre": centre, "up": up, "down": down,
                "half_up": low[0], "half_down": low[1], "paper_half": str(method.partial),
                "half": half, "sets": sets,
            }
        )  # fmt: skip
    return rows


def formula(agent: float, centre: float) -> str:
    """Models of N agents and a coordinator, the latter in vectors (ten agents were counted)."""
    many, rest = divmod(int(centre), 10)
    total = int(agent) + many
    return f"{'' if total == 1 else total}N + {rest}"


def verdict(row: Mapping[str, Any]) -> str:
    """Whether storage and cohorts are as the paper's table has them."""
    ours, paper = (row["agent"], row["centre"]), (row["paper_agent"], row["paper_centre"])
    gap = int(10 * (ours[0] - paper[0]) + ours[1] - paper[1])
    many = f"{abs(gap)} vector{'' if abs(gap) == 1 else 's'} {'fewer' if gap < 0 else 'more'}"
    storage = "agrees" if gap == 0 else f"differs: {many} (N = 10)"
    said = (str(row["paper_half"]) == "True") == (row["half"] == "yes")
    return f"{storage}; cohorts {'agree' if said else 'differ'}"


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table beside the paper's."""
    lines = []
    for row in rows:
        half = "-"
        if not np.isnan(row["half_up"]):
            half = f"{row['half_up']:.2g} and {row['half_down']:.2g}"
        lines.append(
            (
                row["method"], formula(row["paper_agent"], row["paper_centre"]),
                formula(row["agent"], row["centre"]), row["arrays"],
                f"{row['up']:.2g} and {row['down']:.2g}", half,
                "yes" if str(row["paper_half"]) == "True" else "no", row["half"], verdict(row),
            )
        )  # fmt: skip
    head = (
        "method", "paper: models stored", "ours", "an agent's", "vectors up and down, all",
        "half", "paper: cohorts", "ours", "verdict",
    )  # fmt: skip
    return page.table(head, lines)
