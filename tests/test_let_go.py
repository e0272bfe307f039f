"""A play that is over keeps no memory, whether or not garbage is collected."""

import gc
import weakref

import pytest
from cases import graph, star
from mutant import mutant

from desim.engine import play
from desim.engine.world import Discard, World
from desim.runs.recording import prepare
from desim.scenario.load import loaded

ENGINES = [(star, "agents"), (star, "cohort"), (star, "compiled"), (graph, "agents"),
           (graph, "cohort")]  # fmt: skip


def kept(monkeypatch, module, make, engine):
    """How many bytes of logs and ledgers are still held when a play is over."""
    worlds, usual = [], World.__post_init__

    def noted(self):
        usual(self)
        worlds.append(weakref.ref(self))

    simulation = prepare(loaded(make(engine=engine))).simulation
    monkeypatch.setattr(World, "__post_init__", noted)
    gc.disable()
    try:
        module.Simulation.play(simulation, Discard())
        alive = [world for one in worlds if (world := one()) is not None]
        return sum(
            part.nbytes for world in alive for log in (world.log, world.ledger) for part in log.rows
        )
    finally:
        gc.enable()


@pytest.mark.parametrize(("make", "engine"), ENGINES)
def test_logs_go_with_their_play(monkeypatch, make, engine):
    assert kept(monkeypatch, play, make, engine) < 1000


def test_logs_that_stay_are_noticed(monkeypatch):
    wrong = mutant(play, "rows.let_go()", "pass")
    assert kept(monkeypatch, wrong, star, "agents") > 100_000
