"""Listeners hear the same on all engines, change what they say they do, and cost nobody else."""

from pathlib import Path

import cases
import numpy as np
import pytest

import desim
from desim.errors import InputError, RunError
from desim.experiments.contract.stage import Stage
from desim.methods.zcdp_nfl import ZcdpNfl
from desim.runs.replay import resume
from desim.scenario.build import build
from desim.scenario.load import load

PLUGIN = str(Path(__file__).parent / "plugins" / "listeners.py")
STARS = {
    "fed-plt": cases.star(),
    "fedavg": cases.star(algorithm={"name": "fedavg", "local": {"epochs": 3}}),
    "each": cases.star(algorithm={"name": "fedavg", "local": {"epochs": 3}}, policy="each"),
}
GRAPHS = {"zcdp-nfl": cases.graph(), "every 2 s": cases.graph(stop={"time": "2 s"})}
ALL = STARS | GRAPHS


def played(case, listeners, engine="auto", **changes):
    """A run of the case with these listeners."""
    return desim.run(
        {**case, "plugins": [PLUGIN], "listeners": listeners, "engine": engine} | changes
    )


def engines(case):
    """Engines that play the case with nobody inside its rounds."""
    return (
        ("agents", "cohort") if "topology" in case["network"] else ("agents", "cohort", "compiled")
    )


def integral(run, watts=4.0, each=1e-6):
    """Joules (agents,) from the stored log, an independent sum."""
    events = run.events
    own = events[events.agent >= 0]
    spent = own.seconds.where(own.kind == "compute", 0.0) * watts
    spent += own.bytes.where(own.kind == "send", 0) * each
    found = spent.groupby(own.agent).sum()
    return found.reindex(range(run.scenario.problem.agents), fill_value=0.0).to_numpy()


def same(one, other):
    """Whether two runs have equal events, metrics, releases and arrays, bit by bit."""
    tables = all(
        getattr(one, t).equals(getattr(other, t)) for t in ("events", "metrics", "releases")
    )
    return tables and np.array_equal(one.iterates, other.iterates, equal_nan=True)


@pytest.mark.parametrize("name", ALL)
def test_a_meter_sums_the_log_on_every_engine(name):
    case = ALL[name]
    for engine in engines(case):
        run = played(case, ["meter"], engine)
        joules = np.array(run.listeners["meter"]["joules"])
        np.testing.assert_allclose(joules, integral(run), rtol=1e-12)
        assert (joules > 0.0).all()


def test_a_meter_that_forgets_is_noticed(monkeypatch):
    monkeypatch.setattr("desim.engine.world.FLUSH_SECONDS", 0.0)
    run = played(STARS["fed-plt"], ["forgetful"], "cohort")
    assert not np.allclose(run.listeners["forgetful"]["joules"], integral(run))


@pytest.mark.parametrize("name", ALL)
def test_who_listens_changes_no_bit(name):
    alone = desim.run(ALL[name])
    for engine in engines(ALL[name])[:2]:
        assert same(alone, played(ALL[name], ["meter", "watch"], engine))


@pytest.mark.parametrize("name", ALL)
def test_an_attack_has_the_same_bits_on_every_engine(name):
    case = ALL[name]
    honest, one = desim.run(case), played(case, ["flip"], "cohort")
    assert same(one, played(case, ["flip"], "agents"))
    assert same(one, played(case, ["flip"]))
    assert not np.array_equal(honest.iterates, one.iterates)
    assert not same(one, played(case, [{"name": "flip", "agents": 1}], "cohort"))


def test_an_attack_that_hangs_on_batches_is_noticed():
    runs = [played(GRAPHS["zcdp-nfl"], ["by-place"], engine) for engine in ("cohort", "agents")]
    assert not same(*runs)


def test_listeners_are_asked_in_their_order():
    twice = played(STARS["fedavg"], ["flip", "watch"])
    assert same(twice, played(STARS["fedavg"], ["flip"]))
    assert list(twice.listeners) == ["flip", "watch"]


def test_watching_hears_each_message_and_release():
    run = played(GRAPHS["zcdp-nfl"], ["watch"])
    heard = run.listeners["watch"]
    assert heard["releases"] == len(run.releases)
    assert heard["messages"] == 8 * run.manifest["rounds"]


def test_a_stopped_run_goes_on_with_what_its_listeners_hear(tmp_path):
    case = cases.star(stop={"rounds": 40})
    whole = played(case, ["meter", "flip"])
    assert not (tmp_path / "run" / "checkpoint.npz").exists()
    desim.run({**case, "plugins": [PLUGIN], "listeners": ["meter", "flip"], "stop": {"rounds": 15}},
              out=tmp_path / "run")  # fmt: skip
    longer = resume(tmp_path / "run", {"stop.rounds": 40})
    assert longer.listeners == whole.listeners
    assert longer.events.equals(whole.events)


def test_other_seconds_and_real_processes_refuse_who_changes_messages(tmp_path):
    run = played(STARS["fedavg"], ["flip"])
    with pytest.raises(InputError, match="listeners: flip may change what is computed"):
        desim.retime(run, network={"link": {"latency": "5 ms"}})
    with pytest.raises(InputError, match="listeners: found one that changes messages"):
        desim.deploy({**STARS["fedavg"], "plugins": [PLUGIN], "listeners": ["flip"]})


def test_another_network_is_metered_anew():
    run = played(STARS["fedavg"], ["meter"])
    other = desim.retime(run, network={"link": {"latency": "5 ms", "bandwidth": "1 Mbit/s"}})
    np.testing.assert_allclose(other.listeners["meter"]["joules"], integral(other), rtol=1e-12)
    assert other.listeners["meter"]["until"] < run.listeners["meter"]["until"]


@pytest.mark.parametrize(
    ("listeners", "engine", "text"),
    [
        (["metre"], "auto", "did you mean 'meter'"),
        (["meter", "meter"], "auto", "found meter twice; allowed: once"),
        ([{"name": "meter", "watts": -1}], "auto", "watts"),
        ([{"name": "watch", "loud": 1}], "auto", "loud"),
        ([3], "auto", "allowed: its name, or {name: ..., its parameters}"),
        ([{"watts": 1}], "auto", "found no name"),
        (["flip"], "compiled", "listeners: flip hears what happens inside rounds"),
    ],
)
def test_what_is_no_listener_is_refused_in_words(listeners, engine, text):
    with pytest.raises(InputError, match=text):
        build(
            load(
                {**STARS["fed-plt"], "plugins": [PLUGIN], "listeners": listeners, "engine": engine}
            )
        )


def test_an_epsilon_beside_changed_messages_says_what_it_counts():
    warned = played(GRAPHS["zcdp-nfl"], ["flip"]).manifest["warnings"]
    assert any("not what a listener adds to its messages" in text for text in warned)
    assert not any(
        "listener" in text for text in desim.run(GRAPHS["zcdp-nfl"]).manifest["warnings"]
    )


@pytest.mark.parametrize("where", ["releasing", "sending"])
@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_who_hears_what_has_no_noise_yet_changes_nothing(where, engine):
    case = GRAPHS["zcdp-nfl"]
    with pytest.raises(RunError, match=f"listeners: noiseless: {where}: found other numbers"):
        played(case, [{"name": "noiseless", "where": where}], engine)
    alone = played(case, [{"name": "noiseless", "where": "nowhere"}], engine)
    assert same(alone, desim.run(case))


def test_an_account_of_changed_messages_says_what_it_counts(tmp_path):
    case = GRAPHS["zcdp-nfl"] | {"plugins": [PLUGIN]}
    flags = desim.run({**case, "listeners": ["flip"]}, out=tmp_path / "run").account().flags
    assert any("not what a listener adds to its messages" in text for text in flags)
    assert any("listener" in text for text in desim.open(tmp_path / "run").account().flags)
    assert not any(
        "listener" in text for text in desim.run({**case, "listeners": ["meter"]}).account().flags
    )


@pytest.mark.parametrize("where", ["payload", "who", "scale", "kind"])
@pytest.mark.parametrize("name", ["zcdp-nfl", "fedavg"])
def test_nobody_writes_to_what_it_is_shown(name, where):
    with pytest.raises(RunError, match=r"listeners\.py, line .* read-only"):
        played(ALL[name], [{"name": "scribbler", "where": where}])


@pytest.mark.parametrize("name", ALL)
def test_what_is_shown_stays_and_what_is_returned_is_copied(name):
    for engine in engines(ALL[name])[:2]:
        kept = played(ALL[name], [{"name": "scribbler", "where": "nowhere"}], engine)
        assert kept.listeners["scribbler"]["moved"] == 0
        pair = [played(ALL[name], [one], engine) for one in ("flip", "buffer")]
        assert same(*pair)


@pytest.mark.parametrize("name", ["zcdp-nfl", "fedavg"])
@pytest.mark.parametrize("where", ["nothing", "number", "narrow"])
def test_what_cannot_be_sent_is_said_in_words(name, where):
    with pytest.raises(RunError, match=r"listeners: odd: sending returns: found .* allowed: num"):
        played(ALL[name], [{"name": "odd", "where": where}])


def test_what_a_listener_says_in_the_end_is_what_a_manifest_holds(tmp_path):
    run = desim.run(
        {**STARS["fedavg"], "plugins": [PLUGIN], "listeners": [{"name": "odd", "where": "numpy"}]},
        out=tmp_path / "run",
    )
    assert run.listeners == {"odd": {"sum": 2.0, "all": [0, 1, 2]}}
    assert desim.open(tmp_path / "run").listeners == run.listeners


@pytest.mark.parametrize(
    ("where", "text"), [("ended", "odd: ended returns: found"), ("raises", "no sum")]
)
def test_a_run_whose_listener_fails_in_the_end_has_come_so_far(where, text):
    with pytest.raises(RunError, match=text) as failure:
        played(STARS["fedavg"], [{"name": "odd", "where": where}])
    run = failure.value.run
    assert run.status == "failed"
    assert run.manifest["rounds"] == 12
    assert run.manifest["counts"]["send"] == (run.events.kind == "send").sum()
    assert run.model.shape == (13, 5)


@pytest.mark.parametrize("name", ["zcdp-nfl", "fedavg"])
def test_columns_are_of_one_kind_whoever_hands_them_over(name, monkeypatch):
    monkeypatch.setattr("desim.engine.world.FLUSH_SECONDS", 0.0)
    run = played(ALL[name], ["columns"], "cohort")
    other = desim.retime(run, network={"link": {"latency": "5 ms"}})
    kinds = run.listeners["columns"]["kinds"]
    assert other.listeners["columns"]["kinds"] == kinds
    assert {kind.split()[-1] for kind in kinds} == {"ndarray", "Words"}


def test_changed_numbers_of_messages_are_found_where_ends_of_links_count():
    case = cases.graph(policy={"deadline": "0.3 s"})
    for engine in ("cohort", "agents"):
        assert played(case, ["watch"], engine).status == "done"
        with pytest.raises(RunError, match="listeners: a neighbour's models are numbered -1"):
            played(case, ["flip"], engine)


def test_a_replay_holds_what_listeners_say_against_what_they_said(tmp_path):
    plugin = tmp_path / "own.py"
    plugin.write_text(Path(PLUGIN).read_text())
    case = STARS["fedavg"] | {"plugins": [str(plugin)], "listeners": ["meter"]}
    desim.run(case, out=tmp_path / "run")
    assert desim.replay(tmp_path / "run").same
    plugin.write_text(plugin.read_text().replace('"compute": self', '"compute": 2.0 * self'))
    again = desim.replay(tmp_path / "run")
    assert not again.same
    assert again.lines()[0].startswith("listeners: row 0, meter joules 0: stored ")


def test_laws_of_an_algorithm_are_tried_with_nobody_who_changes_messages():
    case = GRAPHS["zcdp-nfl"] | {"plugins": [PLUGIN], "listeners": ["flip"]}
    assert load(case).listeners
    assert not Stage(ZcdpNfl, load(case)).scenario.listeners
