"""Ctrl-C at any moment, however often: what a run directory holds agrees, and a run goes on."""

import gc
import signal
import sys
import threading
from contextlib import contextmanager, suppress
from inspect import CO_GENERATOR

import numpy as np
import pytest
from cases import graph, star
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant
from test_resume import quick_flushes, unlike

import desim
from desim.engine import observer, play, world
from desim.runs import directory, interruption
from desim.runs import recording as runs
from desim.runs.replay import first_difference

# What a press between an open and its `with` leaves open is the collector's, and one that falls
# into a destructor is Python's to lose: both are said here, and not in whatever test comes next.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)
OBSERVED = {"metrics": ["error"], "iterates": True}
KINDS = {
    "compiled": star(stop={"rounds": 30}, observe=OBSERVED | {"iterates": False}),
    "instants": star(stop={"rounds": 20}, observe={"metrics": ["error"], "every": "2 ms"}),
    "cohort": star(stop={"rounds": 12}, observe=OBSERVED, engine="cohort"),
    "agents": star(stop={"rounds": 6}, observe=OBSERVED, engine="agents"),
    "graph": graph(stop={"rounds": 25}, observe=OBSERVED, engine="cohort"),
    "scouted": graph(stop={"rounds": 12, "metric": {"error": 1e-9}}, observe=OBSERVED),
    "own clocks": graph(stop={"rounds": 4}, observe=OBSERVED, engine="agents"),
    "unmeasured": graph(stop={"rounds": 25}, observe={"metrics": [], "iterates": False}),
}
EVEN = {  # much happens at the same time
    "compute": {"speed": 1000},
    "network": {"link": {"latency": "10 ms", "bandwidth": "1 Mbit/s"}},
    "observe": OBSERVED,
}
RING = EVEN | {"network": {**EVEN["network"], "topology": {"regular": 3}}}
KINDS |= {
    "even": {**graph(stop={"rounds": 12}, engine="cohort"), **RING},
    "even clocks": {**graph(stop={"rounds": 4}, engine="agents"), **RING},
    "even agents": {**star(stop={"rounds": 4}, engine="agents"), **EVEN},
}
ROWS = {kind: 300 if kind in ("graph", "unmeasured") else 150 for kind in KINDS}  # until a flush


def hangs(*_):
    """A run that waits for what Ctrl-C has taken away never ends by itself."""
    raise AssertionError("nothing happens any more")


@pytest.fixture(autouse=True)
def keyboard(monkeypatch):
    """SIGINT as in a terminal, looked for at every step; whoever hangs fails."""
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    late = signal.signal(signal.SIGALRM, hangs)
    signal.alarm(240)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, late)
    signal.signal(signal.SIGINT, before)
    gc.collect()


@contextmanager
def pressing(at):
    """Ctrl-C at calls and returns of these numbers; yields what counts them, up to the last.

    Not inside the locks of threading, which are Python's to lose, but right after them; nor where
    Python does not look for signals, before a call of C and at a yield.
    """
    seen, left = [0], sorted(at)

    def press(frame, event, argument):
        seen[0] += 1
        deaf = event == "c_call" or (event == "return" and frame.f_code.co_flags & CO_GENERATOR)
        deaf = deaf or frame.f_code.co_filename == threading.__file__
        if left and seen[0] >= left[0] and not deaf:
            left.pop(0)
            if not left:
                sys.setprofile(None)
            signal.raise_signal(signal.SIGINT)

    before = sys.getprofile()
    sys.setprofile(press)
    try:
        yield seen
    finally:
        sys.setprofile(before)


@pytest.fixture(scope="module")
def wholes(tmp_path_factory):
    """wholes(kind): the run that nobody interrupts, and how many calls and returns it is."""
    known = {}

    def whole(kind):
        if kind not in known:
            folder = tmp_path_factory.mktemp("whole")
            with pytest.MonkeyPatch.context() as patch, quick_flushes(patch, ROWS[kind]):
                desim.run(KINDS[kind], out=folder / "first")  # what is loaded once is no call
                with pressing(()) as seen:
                    run = desim.run(KINDS[kind], out=folder / "run")
            known[kind] = run, seen[0]
        return known[kind]

    return whole


def interrupted(kind, folder, at):
    """The run in a folder with Ctrl-C `at` these moments; None where none has begun."""
    with (
        pytest.MonkeyPatch.context() as patch,
        quick_flushes(patch, ROWS[kind]),
        suppress(KeyboardInterrupt),
    ):
        with pressing(at):
            desim.run(KINDS[kind], out=folder)
    sys.setprofile(None)  # where the last one fell into the end of what presses
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.set_wakeup_fd(-1) == -1
    return desim.open(folder) if (folder / "manifest.json").exists() else None


def check(run, whole, measured):
    """Its tables are how the whole run's begin; its manifest says of them what they hold."""
    for name in ("events", "metrics", "releases"):
        ours, theirs = getattr(run, name), getattr(whole, name)
        assert first_difference(ours, theirs, name, whole=False) is None
    known = run.manifest
    if run.status == "interrupted":  # as after a kill
        assert not {"time", "rounds", "counts"} & set(known)
        return
    events, rounds = run.events, known["rounds"]
    assert rounds == done_by(measured, known["time"])
    assert events["time"].max() <= known["time"] or events.empty
    told = {kind: known["counts"][kind] for kind in events["kind"].unique()}
    assert told == events["kind"].value_counts()[list(told)].to_dict()
    for name in ("iterates", "model"):
        ours, theirs = getattr(run, name), getattr(whole, name)
        if ours is not None:
            assert len(ours) in {rounds + 1, rounds and rounds + 1}  # none before the first
            assert np.array_equal(ours, theirs[: len(ours)]) or not len(ours)
            assert len(ours) == rounds + 1 or (len(ours), rounds) == (0, 0)


def done_by(whole, end):
    """The rounds that everybody has done by then, off the tables."""
    log = whole.events
    if whole.scenario.kind == "coordinator":
        over = log[(log["kind"] == "aggregate") & (log["agent"] < 0)].groupby("round")["time"].max()
        return int((over <= end).sum())
    rows = whole.metrics[(whole.metrics["agent"] < 0) & (whole.metrics["time"] <= end)]
    return int(rows["round"].max()) if len(rows) else 0


def check_anywhere(kind, share, more, wholes, folder):
    whole, calls = wholes(kind)
    first = 1 + int(share * (calls - 1))
    found = interrupted(kind, folder, {first, *(first + gap for gap in more)})
    if found is not None:
        check(found, whole, wholes("graph")[0] if kind == "unmeasured" else whole)
        assert unlike(desim.resume(folder), whole) == []


GAPS = st.lists(st.integers(1, 3000) | st.integers(1, 20), max_size=3)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(12), deadline=None)
@given(share=st.floats(0.0, 1.0), more=GAPS, pause=st.sampled_from([0.0, 0.5]))
def test_ctrl_c_at_any_moment(kind, share, more, pause, wholes, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(interruption, "PAUSE", pause)
        check_anywhere(kind, share, more, wholes, tmp_path_factory.mktemp("a") / "run")


READING = {
    "load": lambda: desim.load(KINDS["scouted"]),
    "written": desim.load(KINDS["scouted"]).written,
}


@pytest.mark.parametrize("what", READING)
def test_ctrl_c_while_a_scenario_is_read_or_written_is_no_error_of_it(what):
    with pressing(()) as seen:
        READING[what]()
    for at in range(1, seen[0], max(seen[0] // 300, 1)):
        with suppress(KeyboardInterrupt), pressing({at}):  # in a destructor it is lost
            READING[what]()


def locked_after(place, folder):
    """At how many moments Ctrl-C leaves a directory locked that nobody writes to any more."""

    def claimed(name):
        with place.claim(folder / name, {"name": "a", "status": "running"}):
            pass

    claimed("first")
    with pressing(()) as seen:
        claimed("whole")
    left = 0
    for at in range(1, seen[0] + 1):
        with suppress(KeyboardInterrupt), pressing({at}):
            claimed(str(at))
        left += place.busy(folder / str(at))
    return left


def test_no_directory_stays_locked_whenever_ctrl_c_comes(tmp_path):
    assert locked_after(directory, tmp_path) == 0


def test_a_lock_that_is_not_collected_is_noticed(tmp_path):
    assert locked_after(mutant(directory, "gc.collect()", "pass"), tmp_path)


TWINS = [
    ("instants", observer, "self.rounds - later", "self.rounds", play, "RoundObserver"),
    ("graph", observer, "if time > end]", "if False]", play, "ClockObserver"),
    ("unmeasured", observer, "if at >= frontier", "if False", play, "ClockObserver"),
    ("even", world, "if whole else math.nextafter(frontier, -math.inf)", "", play, "World"),
    ("agents", interruption, "raise AtOnce", "raise KeyboardInterrupt", runs, "Interruption"),
]


@pytest.mark.parametrize(("kind", "module", "right", "wrong", "where", "name"), TWINS)
def test_a_manifest_that_says_more_than_there_is_is_noticed(
    kind, module, right, wrong, where, name, wholes, tmp_path, monkeypatch
):
    wholes(kind)
    monkeypatch.setattr(interruption, "PAUSE", 0.0)
    twin = mutant(module, right, wrong)
    monkeypatch.setattr(where, name, getattr(twin, name))
    for constant in ("PAUSE", "REPORT_SECONDS"):
        if hasattr(twin, constant):
            monkeypatch.setattr(twin, constant, 0.0)
    more = 50 if module is interruption else 0
    with pytest.raises(AssertionError):
        check_everywhere(kind, more, wholes, tmp_path)


def check_everywhere(kind, more, wholes, folder):
    """At up to 480 moments, evenly spread whenever it ends: a wrong twin soon tells."""
    for step in range(480):
        again = [1 + step % more] if more else []
        share = 0.02 + 0.96 * (step * 0.6180339887 % 1.0)
        check_anywhere(kind, share, again, wholes, folder / str(step))


def stopped_while_shown(number, folder):
    """Ctrl-C while the end of a run is shown: at its row of the network's round `number`."""
    left = [number]

    def shown(self, instant, round_, news, show=observer.ClockObserver._show):
        if left == [round_]:
            left.clear()
            raise KeyboardInterrupt
        show(self, instant, round_, news)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observer.ClockObserver, "_show", shown)
        with suppress(KeyboardInterrupt):
            desim.run(KINDS["even clocks"], out=folder)
    return desim.open(folder)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_run_that_is_stopped_while_its_end_is_shown_has_done_what_it_says(
    number, wholes, tmp_path, monkeypatch
):
    whole, _ = wholes("even clocks")
    check(stopped_while_shown(number, tmp_path / "run"), whole, whole)
    twin = mutant(observer, "self._over_at[round_] = float", "at = float")
    monkeypatch.setattr(observer.ClockObserver, "_advance", twin.ClockObserver._advance)
    with pytest.raises(AssertionError):
        check(stopped_while_shown(number, tmp_path / "twin"), whole, whole)
