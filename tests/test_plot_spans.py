"""Timelines: when who does what, how many do, and what of a run is shown."""

import numpy as np
import pandas as pd
import pytest
from mutant import mutant

import desim
from desim.errors import InputError
from desim.interface.plots import activity, timeline
from desim.interface.plots.activity import BUSY, LANES

ROWS = [  # time, kind, agent, peer, round, seconds
    (0.0, "activate", 0, -1, 1, 0.0),
    (0.0, "send", -1, 0, 1, 0.1),
    (1.0, "deliver", 0, -1, 1, 1.0),
    (3.0, "compute", 0, -1, 1, 2.0),
    (3.0, "send", 0, -1, 1, 0.5),
    (3.5, "down", 1, -1, 1, 0.0),
    (3.5, "abort", 1, -1, 1, 1.5),
    (4.5, "deliver", -1, 0, 1, 1.5),
    (4.5, "aggregate", -1, -1, 1, 4.5),
    (5.0, "up", 1, -1, 1, 0.0),
    (6.0, "compute", 0, -1, 2, 2.5),
    (7.0, "down", 1, -1, 2, 0.0),
]
EVENTS = pd.DataFrame(ROWS, columns=list(activity.COLUMNS))


class Story:
    """A run whose events are given."""

    name, directory, status, budget = "story", None, "done", None

    def __init__(self, events, end):
        self.events, self.manifest = events, {"time": end}
        self.store = self

    def table(self, name, columns=None):
        return self.events

    def require(self, what, *kinds):
        pass


def check_spans(module):
    found = module.spans(EVENTS, 8.0)
    told = {state: list(zip(*vars(one).values(), strict=True)) for state, one in found.items()}
    assert told == {
        "computes": [(0, 1.0, 3.0), (0, 3.5, 6.0)],
        "interrupted": [(1, 2.0, 3.5)],
        "message on its way": [(-1, 0.0, 1.0), (0, 3.0, 4.5)],
        "away": [(1, 3.5, 5.0), (1, 7.0, 8.0)],
    }


def check_numbers(module):
    """Overlapping spans of an agent count once, and bins hold means."""
    found = module.spans(EVENTS, 8.0)
    busy = module.united([found["computes"], found["message on its way"]])
    assert busy.of(0).tolist() == [[1.0, 6.0]]
    counts = module.occupied(busy, np.array([0.0, 2.0, 5.5, 6.5]))
    np.testing.assert_allclose(counts, [1.0, 1.0, 0.5])


def test_states_have_their_spans():
    check_spans(activity)


def test_numbers_in_a_state_are_means():
    check_numbers(activity)


@pytest.mark.parametrize(
    ("check", "right", "wrong"),
    [
        (check_spans, '"peer" if kind == "deliver"', '"peer" if kind == "send"'),
        (check_spans, ".shift(-1).fillna(end)", ".shift(-1).fillna(0.0)"),
        (check_spans, "time - rows", "time + rows"),
        (check_numbers, "> until[:-1]", "> end[order][:-1] - 9"),
        (check_numbers, "before * at - sums[before]", "before * at"),
        (check_numbers, ") / np.diff(edges)", ")"),
    ],
)
def test_wrong_spans_are_noticed(check, right, wrong):
    twin = mutant(activity, right, wrong)
    with pytest.raises(AssertionError):
        check(twin)


def test_few_agents_have_lanes(tmp_path):
    axes = timeline(Story(EVENTS, 8.0), out=tmp_path / "a.svg")
    assert [text.get_text() for text in axes.get_yticklabels()] == ["coordinator", "0", "1"]
    assert axes.get_xlim() == (0.0, 8.0)
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["computes", "interrupted", "message on its way", "away", "waits",
                     "a wait closes"]  # fmt: skip


def test_a_window_is_said(tmp_path):
    axes = timeline(Story(EVENTS, 8.0), rounds=(2, 2), agents=[0], out=tmp_path / "a.png")
    assert [line.get_xdata()[0] for line in axes.lines] == [3.5, 7.0]  # where it is cut
    np.testing.assert_allclose(axes.get_xlim(), [3.5 - 0.1225, 7.0 + 0.1225])
    assert axes.get_xlabel() == "virtual time (s), from 3.5 s to 7 s of 8 s"
    long = pd.concat([EVENTS.assign(time=EVENTS["time"] + 10.0 * k) for k in range(BUSY * 2)])
    shown = timeline(Story(long, 480.0), out=tmp_path / "b.png")
    assert 200.0 < shown.get_xlim()[1] < 260.0


def test_many_agents_are_counted(tmp_path):
    crowd = pd.concat([EVENTS.assign(agent=EVENTS["agent"] + 2 * k) for k in range(LANES)])
    crowd.loc[crowd["peer"] >= 0, "peer"] = 1
    axes = timeline(Story(crowd[crowd["agent"] >= 0], 8.0), out=tmp_path / "a.png")
    assert axes.get_ylabel() == "agents"
    assert axes.get_ylim() == (0.0, 2 * LANES)


def test_a_long_window_of_few_agents_is_counted_too(tmp_path, monkeypatch):
    monkeypatch.setattr(activity, "MAX_SPANS", 5)  # six spans
    axes = timeline(Story(EVENTS, 8.0), rounds=(1, 2), out=tmp_path / "a.svg")
    assert axes.get_ylabel() == "agents"
    alone = timeline(Story(EVENTS, 8.0), rounds=(1, 2), agents=[0], out=tmp_path / "b.svg")
    assert alone.get_ylabel() == "agent"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": (3, 9)}, "rounds: found '3-9'; allowed: first-last, of rounds up to 2"),
        ({"rounds": (2, 1)}, "rounds: found '2-1'"),
        ({"agents": [0, 7]}, "agents: found 7; allowed: 0 to 1"),
    ],
)
def test_what_is_not_there_is_not_drawn(options, message):
    with pytest.raises(InputError, match=message):
        timeline(Story(EVENTS, 8.0), **options)
    with pytest.raises(InputError, match="no events"):
        timeline(Story(EVENTS[:0], 0.0))


def test_agents_compute_as_long_as_the_log_says():
    """The spans of a run add up to its utilisation."""
    run = desim.run({
        "problem": {"agents": 4, "data": {"source": "synthetic", "kind": "classification",
                                          "rows": 5, "dim": 4}, "loss": "logistic"},
        "algorithm": {"name": "fed-plt", "rho": 1.0}, "network": "wifi",
        "stop": {"rounds": 3},
    })  # fmt: skip
    busy = activity.spans(run.events, run.manifest["time"])["computes"]
    total = [float(np.diff(busy.of(agent)).sum()) for agent in range(4)]
    np.testing.assert_allclose(total, run.utilisation()["computing"])
