"""Levels of the log: what is kept is what the whole log holds, and all else is counted exactly."""

import numpy as np
import pytest
from cases import LOSSY, graph, merged, star

import desim
from desim.engine.world import World
from desim.errors import InputError
from desim.log.event_log import EventLog
from desim.network.timeline.record import EVERYTHING, Kind
from desim.runs.reading.facts import facts

DROPPED = {
    "all": set(),
    "messages": {"activate", "compute", "release"},
    "rounds": {kind.name.lower() for kind in Kind} - {"aggregate", "deadline", "retire"},
}
SCENARIOS = {
    "star": star(network=LOSSY),
    "cohort": star(network=LOSSY, engine="cohort"),
    "each": star(network=LOSSY, policy="each", stop={"rounds": 60}),
    "graph": graph(network=LOSSY),
    "time": graph(network=LOSSY, stop={"time": "2 s"}),
    "agents": star(network=LOSSY, engine="agents"),
    "agents on a graph": graph(network=LOSSY, engine="agents"),
}


DROPPING = star(
    network=merged(LOSSY, {"link": {"on_loss": "drop"}}),
    policy={"deadline": "0.2 s", "late": "carry"},
    problem={"clip": 1.0},
)


def played(name, level, **changes):
    return desim.run(merged(SCENARIOS[name], {"log": level, **changes}))


def check_level(name, level, dropped):
    """A level's rows are those of the whole log without some kinds; its counts are the same."""
    whole, less = played(name, "all"), played(name, level)
    rows = whole.events[~whole.events["kind"].isin(dropped)].drop(columns="seq")
    kept = less.events
    assert kept["seq"].tolist() == list(range(len(rows)))
    for column in rows:
        np.testing.assert_array_equal(kept[column].to_numpy(), rows[column].to_numpy())
    counts = [{**run.manifest["counts"], "play_seconds": 0.0} for run in (whole, less)]
    assert counts[0] == counts[1]
    assert counts[0]["send"] > counts[0]["deliver"] > 0
    assert whole.metrics.equals(less.metrics)


@pytest.mark.thin(3)
@pytest.mark.parametrize("flush", [32, 1 << 16])
@pytest.mark.parametrize("level", ["messages", "rounds"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_level_leaves_rows_out_and_counts_them(monkeypatch, name, level, flush):
    monkeypatch.setattr("desim.log.event_log.FLUSH_ROWS", flush)
    check_level(name, level, DROPPED[level])


def test_rows_left_out_or_counted_wrongly_are_noticed(monkeypatch):
    with pytest.raises(AssertionError):
        check_level("graph", "messages", DROPPED["messages"] | {"lost"})
    fate = EventLog._fate

    def forgetful(self, frontier):
        self.rows.n[1] -= self.rows.n[1] > 0
        return fate(self, frontier)

    with monkeypatch.context() as patched:
        patched.setattr(EventLog, "_fate", forgetful)
        with pytest.raises(AssertionError):
            check_level("star", "messages", DROPPED["messages"])
    later = EventLog.later

    def miscounting(self, batch):
        lost = int(self.kinds != EVERYTHING)
        counts = tuple((kind, rows - lost, size) for kind, rows, size in batch.counts)
        later(self, batch._replace(counts=counts))

    monkeypatch.setattr(EventLog, "later", miscounting)
    with pytest.raises(AssertionError):
        check_level("graph", "rounds", DROPPED["rounds"])


def check_first_release(level):
    """Without noise the first release that arrives says all: epsilon is infinite from then on."""
    whole, less = (desim.run({**DROPPING, "log": one}) for one in ("all", level))
    arrived = whole.releases[whole.releases["delivered"] > 0].groupby("agent").head(1)
    lost = less.releases[less.releases["delivered"] == 0]
    first = less.releases[less.releases["delivered"] > 0]
    assert set(whole.releases["mechanism"]) == {"none"}
    assert first["release"].tolist() == arrived["release"].tolist()
    assert len(lost) == (whole.releases["delivered"] == 0).sum() > 0
    ends = [run.epsilon().groupby("agent")[["time", "epsilon"]].first() for run in (whole, less)]
    assert ends[0].equals(ends[1])


def test_of_releases_without_noise_the_first_that_arrives_is_kept():
    check_first_release("rounds")
    with pytest.raises(AssertionError):
        check_first_release("messages")


def test_every_release_with_noise_is_kept():
    noisy = {"privacy": {"noise": {"sigma": 0.3}}, "problem": {"clip": 1.0}}
    whole, less = (desim.run(graph(**noisy, log=level)) for level in ("all", "rounds"))
    assert set(whole.releases["mechanism"]) == {"gaussian"}
    assert whole.releases.equals(less.releases)
    assert whole.epsilon().equals(less.epsilon())


def test_who_needs_messages_says_so():
    less = played("star", "rounds")
    with pytest.raises(InputError, match=r"bytes: needs deliver events.*log: all or messages"):
        less.delivered()
    with pytest.raises(InputError, match="view direct:1: needs deliver events"):
        played("graph", "rounds").epsilon(view="direct:1")
    assert len(played("star", "messages").delivered()) > 0
    told = "\n".join(map(" ".join, facts(less)))
    assert f"{less.manifest['counts']['send']} sent" in told
    assert "not kept" in told


def test_a_level_has_a_name():
    with pytest.raises(InputError, match=r"log: found 'some'"):
        desim.load(star(log="some"))
    assert desim.load(star()).written()["log"] == "all"


def test_what_is_only_counted_takes_no_room(monkeypatch):
    """Buffers of whole rows stay as small as what is kept in a run that keeps little."""
    most = []
    hand_over = World._hand_over

    def watched(self, frontier, **how):
        most.append(int(self.log.rows.n[0]))
        hand_over(self, frontier, **how)

    monkeypatch.setattr(World, "_hand_over", watched)
    monkeypatch.setattr("desim.log.event_log.FLUSH_ROWS", 32)
    played("star", "rounds", engine="cohort")
    assert max(most) <= 2
    most.clear()
    played("star", "all", engine="cohort")
    assert max(most) > 20


@pytest.mark.parametrize(
    "question", ["critical_path", "utilisation", "staleness", "links", "waits"]
)
def test_what_was_not_kept_is_not_made_up(question):
    """A table of zeros would be an answer; an error says which level has one."""
    levels = {"links": ("rounds",), "waits": ("rounds",)}.get(question, ("rounds", "messages"))
    assert len(getattr(desim.run(star()), question)()) > 0
    for level in levels:
        with pytest.raises(InputError, match=r"needs .* allowed: a run with log: all"):
            getattr(desim.run(star(log=level)), question)()
