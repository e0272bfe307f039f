"""Waiting for messages: all, within a deadline, silence; the same bits on both engines."""

from pathlib import Path

import numpy as np
import pytest
from cases import LOSSY, graph, merged
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play
from desim.engine.cohort import graph as graph_cohort
from desim.errors import InputError

PLUGIN = str(Path(__file__).parent / "plugins" / "gossip.py")


def gossip(**parameters):
    scenario = graph(
        algorithm={"name": "hearsay", **parameters},
        problem={"clip": None},
        privacy=None,
        stop={"rounds": 15},
    )
    del scenario["privacy"], scenario["problem"]["clip"]
    return {**scenario, "plugins": [PLUGIN]}


CASES = {
    "all": gossip(),
    "within": gossip(wait=0.08),
    "within-short": gossip(wait=0.02),
    "silent": gossip(quiet="odd"),
    "silent-small": gossip(quiet="small"),
    "silent-within": gossip(quiet="odd", wait=0.08),
    "within-lossy": merged(
        gossip(wait=0.1), {"network": merged(LOSSY, {"link": {"on_loss": "drop"}})}
    ),
    "within-time": merged(gossip(wait=0.05), {"stop": {"time": "1.1 s"}}),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CASES)
def test_both_engines_hear_the_same(name):
    cohort, agents = (
        desim.run(CASES[name], overrides={"engine": engine}) for engine in ("cohort", "agents")
    )
    assert differences(cohort, agents) == []
    check_log(cohort)


def test_a_deadline_is_kept_and_missed():
    done = desim.run(CASES["within"])
    gathers = done.events[done.events.kind == "aggregate"]
    assert gathers.seconds.max() == pytest.approx(0.08, abs=1e-12)
    assert gathers.seconds.min() < 0.08
    assert gathers.value.min() < 3 == gathers.value.max()


def test_silence_costs_a_bit_and_leaves_the_last_value():
    done = desim.run(CASES["silent"])
    sends = done.events[done.events.kind == "send"]
    assert sorted(sends.bytes.unique()) == [1, 32]
    null = sends[sends.bytes == 1]
    assert ((null.agent + null["round"]) % 3 == 0).all()
    assert set(done.releases.agent * 100 + done.releases["round"]) == {
        100 * i + k for i in range(8) for k in range(1, 16) if (i + k) % 3
    }


def test_a_late_message_is_used_when_it_is_the_newest(monkeypatch):
    late = gossip(wait=0.03)
    right = desim.run(late, overrides={"engine": "agents"})
    broken = mutant(graph_cohort, "(number > self.number)", "(number == self.count)")
    monkeypatch.setitem(play.ENGINES, ("graph", "cohort"), broken.play)
    assert differences(desim.run(late, overrides={"engine": "cohort"}), right)


def test_a_plugin_is_validated_like_any_method():
    with pytest.raises(InputError, match=r"algorithm\.wiat: .*did you mean 'wait'"):
        desim.load({**gossip(), "algorithm": {"name": "hearsay", "wiat": 1}})
    raising = str(Path(__file__).parent / "plugins" / "raises.py")
    with pytest.raises(InputError, match="raised ZeroDivisionError"):
        desim.load({**gossip(), "plugins": [raising]})
    assert np.isfinite(desim.run(CASES["all"]).state["x"]).all()
