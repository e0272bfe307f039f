"""Messages of one call may have another size for each agent, on all engines."""

import shutil

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.errors import InputError, RunError

METHOD = '''
import numpy as np

from desim.method import Method, Strict


class Sized(Method):
    """Agents hear 64 bits each, agent i replies with 8 i more."""

    name = "sized"
    kind = "coordinator"
    summary = "replies of other sizes"
    paper = "none"
    Parameters = Strict
    policies = ("all", "deadline", "each")

    def coordinator(self, hub):
        x = np.zeros(self.problem.dim)
        hub.start(x=np.zeros((hub.agents, self.problem.dim)))
        hub.publish(x)
        work = np.ones(hub.agents)
        while hub.open:
            who = hub.invite()[::-1]  # sizes are in the order of who
            hub.call(who, self.reply, x, work=work, bits=BITS, reply_bits=8 * who + 64)
            yield hub.collect()
            hub.publish(x)

    def reply(self, us, x):
        return x
'''


def scenario(folder, agents=5, bits="64", **more):
    (folder / "sized.py").write_text(METHOD.replace("BITS", bits))
    return {
        "plugins": [str(folder / "sized.py")],
        "problem": {"data": {"source": "synthetic", "kind": "regression", "rows": 2 * agents,
                             "dim": 2}, "agents": agents, "loss": "squared"},
        "algorithm": {"name": "sized"},
        "network": "4g",
        "observe": {"metrics": []},
        "stop": {"rounds": 2},
        **more,
    }  # fmt: skip


def replies(run):
    """Bytes of each reply by agent, in round 1."""
    sent = run.events.query("kind == 'send' and agent >= 0 and round == 1")
    return sent.set_index("agent")["bytes"].sort_index().tolist()


def test_each_reply_has_its_size_on_both_engines(tmp_path):
    runs = [desim.run(scenario(tmp_path, engine=one)) for one in ("agents", "cohort")]
    assert replies(runs[0]) == [8 + i for i in range(5)]
    assert runs[0].events.equals(runs[1].events)


def test_more_sizes_than_a_round_has_exchanges(tmp_path):
    run = desim.run(scenario(tmp_path, agents=300, stop={"rounds": 1}))
    assert replies(run) == [8 + i for i in range(300)]


@pytest.mark.parametrize(
    ("bits", "text"),
    [
        ("np.full(3, 64)", "hub.call: bits: found .64, 64, 64.; allowed: a whole .* each agent"),
        ("-who", "hub.call: bits: found .*; allowed: a whole number >= 0"),
    ],
)
def test_sizes_that_are_none_are_refused(bits, text, tmp_path):
    with pytest.raises(RunError, match=text):
        desim.run(scenario(tmp_path, bits=bits))


def test_a_run_that_is_sent_with_its_plug_in_finds_it_beside_its_scenario(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    events = desim.run(scenario(tmp_path / "a"), tmp_path / "a" / "run").events
    shutil.move(tmp_path / "a" / "run", tmp_path / "b" / "run")
    gone = tmp_path / "a" / "sized.py"
    moved = gone.rename(tmp_path / "b" / "run" / "sized.py")
    again = desim.open(tmp_path / "b" / "run")
    assert again.scenario.plugins == (moved.resolve(),)
    assert desim.run(again.scenario).events.equals(events)
    moved.unlink()
    with pytest.raises(
        InputError, match=rf"plugins\[0\]: found '{str(gone)[:40]}.*, which does not exist in"
    ):
        desim.load(again.directory / "scenario.yaml")


def test_a_tree_takes_one_size_for_all():
    from desim.engine.tree.edges import ordered

    text = "found a tree, and a call of hub with a size for each agent; allowed: one for all"
    with pytest.raises(RunError, match=text):
        ordered(len, np.zeros(2), None, 1, {"reply_bits": np.full(3, 64)})
    assert ordered(len, np.zeros(2), None, 1, {"reply_bits": 64}).terms["reply_bits"] == 64


def test_sizes_in_another_order_are_noticed(tmp_path, monkeypatch):
    from desim.engine import hub

    twin = mutant(hub, "reply_bits, asked, self.agents", "reply_bits, who, self.agents")
    monkeypatch.setattr("desim.engine.cohort.star.Hub", twin.Hub)
    assert replies(desim.run(scenario(tmp_path, engine="cohort"))) == [12, 11, 10, 9, 8]
