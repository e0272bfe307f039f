"""A sink that keeps nothing: rows are only counted, and counts and times are those of kept rows."""

import pytest
from cases import LOSSY, graph, merged, star

import desim
from desim.engine.world import Discard
from desim.log import event_log as log
from desim.scenario.build import build

TWICE = {"loss": "17 %", "on_loss": "resend", "limit": 1, "timeout": "20 ms"}
SCENARIOS = {
    "star": star(network=LOSSY),
    "graph": graph(network=LOSSY),
    "time": graph(network=LOSSY, stop={"time": "2 s"}),
    "stuck": star(stop={"rounds": 500}, network=merged(LOSSY, {"link": TWICE})),
}


class Kept:
    """A sink that counts what it is given."""

    def __init__(self):
        self.rows = dict.fromkeys(("events", "releases", "metrics"), 0)

    def append(self, name, columns):
        self.rows[name] += len(next(iter(columns.values())))


def told(made, sink):
    """What a play says of itself, but for how long it took."""
    played = made.play(sink)
    counts = {key: value for key, value in played.counts.items() if key != "play_seconds"}
    return counts, played.status, played.reason, played.time, played.rounds


def made_of(name):
    return build(desim.load(SCENARIOS[name]))


@pytest.mark.parametrize("name", SCENARIOS)
@pytest.mark.parametrize("size", [64, 1 << 15])
def test_counts_are_those_of_kept_rows(monkeypatch, name, size):
    monkeypatch.setattr(log, "FLUSH_ROWS", size)
    kept, made = Kept(), made_of(name)
    counts, *_ = first = told(made, kept)
    assert told(made, Discard()) == first
    assert first[1] == ("failed" if name == "stuck" else "done")
    assert kept.rows["events"] > 64
    kinds = {key: counts[key] for key in counts if not key.endswith("bytes")}
    assert sum(kinds.values()) - counts["in_flight"] == kept.rows["events"]


def test_rows_counted_too_early_are_noticed(monkeypatch):
    made = made_of("time")
    first = told(made, Kept())
    drop = log.EventLog.drop
    early = lambda self, frontier, *how: drop(self, 2.0 * frontier, *how)  # noqa: E731
    monkeypatch.setattr(log.EventLog, "drop", early)
    assert told(made, Discard()) != first


def test_a_subclass_keeps_metrics():
    class Metrics(Discard):
        def append(self, name, columns):
            seen.append(name)

    seen = []
    made_of("star").play(Metrics())
    assert set(seen) == {"metrics"}
