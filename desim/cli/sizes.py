"""How large the files of a run are going to be, told before it begins."""

from collections.abc import Iterator

import numpy as np

from desim.amounts import size
from desim.engine.play import Simulation
from desim.engine.world import Settings

ROW = 13.0  # bytes of an event in events.parquet, about: 11 to 14 were measured on large logs
NUMBER = 8  # bytes of a number in an npz file
TOLD, LARGE = 1e8, 1e9  # bytes from which on a size is told, and is a warning


def sizes(simulation: Simulation) -> Iterator[str]:
    """Lines about files of 100 MB and more; none where only the end of the run knows its rounds."""
    settings = simulation.settings
    if not np.isfinite(settings.rounds):
        return
    rounds, problem = settings.rounds, settings.problem
    log = ROW * rounds * events(simulation)
    if log >= TOLD:
        smaller = {"all": "log: messages or log: rounds is", "messages": "log: rounds is"}
        less = f"; {smaller[settings.log]} smaller" if settings.log in smaller else ""
        yield f"{_weight(log)}about {size(log)} of events at log: {settings.log}{less}"
    model = NUMBER * (rounds + 1) * problem.dim * (simulation.method.kind == "coordinator")
    if model >= TOLD:
        yield f"{_weight(model)}{size(model)} of model.npz, the model of every round"
    kept = NUMBER * (rounds + 1) * problem.agents * problem.dim * simulation.observation.iterates
    if kept >= TOLD:
        text = "all models of every round (observe.iterates: true)"
        yield f"{_weight(kept)}{size(kept)} of iterates.npz, {text}"


def _weight(amount: float) -> str:
    return "warning: " if amount >= LARGE else "size: "


def events(simulation: Simulation) -> float:
    """Rows of the event log in a round, about, as far as the method says what a round is."""
    settings, noise = simulation.settings, simulation.method.noise is not None
    if simulation.method.kind == "coordinator":
        called = _called(settings)
        # Called, and a message there; work, perhaps noise, and a message back; a collection.
        rows = {"all": called * (6 + noise) + 1, "messages": 4 * called + 1, "rounds": 1.0}
        return rows[settings.log]
    if settings.graph is None or settings.links is None or simulation.method.kind == "central":
        return 2.0 + noise
    agents, messages = settings.problem.agents, len(settings.links.ends[0])
    own = {"all": 2 + noise, "messages": 1, "rounds": 1}
    return agents * own[settings.log] + (2.0 * messages if settings.log != "rounds" else 0.0)


def _called(settings: Settings) -> float:
    """Agents that are called in a collection, about."""
    policy, active = settings.policy, float(settings.participation.least)
    if policy.kind == "each":
        return 1.0
    return min(policy.value, active) if policy.kind == "buffer" else active
