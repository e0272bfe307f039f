"""Runs that cannot go on: the log up to there stays readable, and the reason names the root."""

import numpy as np
import pytest
from cases import LOSSY, graph, merged, star
from laws import check_log
from mutant import mutant

import desim
from desim.engine import patience
from desim.engine.agents import graph as agents_graph
from desim.errors import Deadlock, Diverged, RunError

ENGINES = ["cohort", "agents"]
DROP = {"network": merged(LOSSY, {"link": {"loss": "3 %", "on_loss": "drop"}})}
TWICE = {"loss": "17 %", "on_loss": "resend", "limit": 1, "timeout": "20 ms"}
TIRED = {"network": merged(LOSSY, {"link": TWICE})}  # as many are lost, both times


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [star, graph])
def test_divergence_names_agent_round_time_and_key(make, engine, tmp_path):
    wild = {
        star: star(
            algorithm={"name": "fed-plt", "rho": 50.0, "local": {"epochs": 60, "step": 1e4}},
            problem={
                "data": {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5},
                "loss": "squared",
            },
        ),
        graph: graph(algorithm={"eta": 1e9, "rho": 1e-9}, stop={"rounds": 400}),
    }[make]
    wild["problem"].pop("clip", None)
    with pytest.raises(Diverged, match=r"agent \d+ is not finite in round \d+ at .* s; lower"):
        desim.run(wild, out=tmp_path / "run", overrides={"engine": engine})
    left = desim.open(tmp_path / "run")
    assert left.status == "failed"
    assert "not finite" in left.manifest["reason"]
    assert len(left.events)
    assert left.events.time.max() <= left.manifest["time"]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [star, graph])
def test_a_lost_message_is_named_as_the_root(make, engine, tmp_path):
    scenario = {**make(stop={"rounds": 500}), **TIRED}
    if make is graph:
        scenario["network"] = {"topology": {"regular": 3}, **TIRED["network"]}
    with pytest.raises(Deadlock, match=r"waits for the message of round \d+ from .* was lost"):
        desim.run(scenario, out=tmp_path / "run", overrides={"engine": engine})
    left = desim.open(tmp_path / "run")
    assert left.status == "failed"
    lost = left.events[left.events.kind == "lost"]
    assert len(lost) >= 1


def test_both_engines_name_the_same_root():
    reasons = set()
    for engine in ENGINES:
        with pytest.raises(Deadlock) as caught:
            desim.run({**star(stop={"rounds": 500}), **TIRED}, overrides={"engine": engine})
        reasons.add(str(caught.value))
    assert len(reasons) == 1


ROOTS = [  # losses that nobody waits for come first; agents compute after they have sent
    ({"name": "zcdp-subgradient", "step": 0.1}, {"quorum": 2}),
    ({"name": "ad-psgd", "alpha": 0.1}, "all"),
]


def test_engines_of_graphs_name_the_first_loss_that_somebody_waits_for(monkeypatch):
    link = {"latency": "10 ms", "loss": 0.4, "limit": 1, "timeout": "20 ms"}

    def reasons(algorithm, policy, seed):
        found = set()
        case = graph(algorithm=algorithm, policy=policy, seed=seed, stop={"rounds": 30})
        case = {
            **case,
            "algorithm": algorithm,
            "network": {"link": link, "topology": {"regular": 3}},
        }
        case.pop("privacy", None)
        for engine in ENGINES:
            with pytest.raises(Deadlock) as caught:
                desim.run(case, overrides={"engine": engine})
            found.add(str(caught.value))
        return found

    def check(which):
        for algorithm, policy in which:
            assert all(len(reasons(algorithm, policy, seed)) == 1 for seed in range(3))

    check(ROOTS)
    with monkeypatch.context() as patch:
        patch.setattr(agents_graph.Lost, "needed", lambda *terms: True)
        with pytest.raises(AssertionError):
            check(ROOTS[:1])
    wrong = mutant(patience, "wires.left[source]", "before[source]")
    monkeypatch.setattr(patience.Waits, "note_graph", wrong.Waits.note_graph)
    with pytest.raises(AssertionError):
        check(ROOTS[1:])


@pytest.mark.parametrize("engine", ENGINES)
def test_a_speed_of_zero_is_named_as_the_root(engine):
    stuck = graph(compute={"speed": {"normal": ["1 /s", 5]}})
    with pytest.raises(Deadlock, match=r"its speed is 0: change compute\.speed"):
        desim.run(stuck, overrides={"engine": engine})


@pytest.mark.parametrize("engine", ENGINES)
def test_a_deadline_goes_on_without_lost_messages(engine):
    done = desim.run(
        {**star(policy={"deadline": "300 ms"}, stop={"rounds": 40}), **DROP},
        overrides={"engine": engine},
    )
    assert done.status == "done"
    assert (done.events.kind == "lost").sum() > 5
    check_log(done)


def test_churn_delays_and_changes_no_iterate():
    for make in (star, graph):
        calm = desim.run(make())
        churn = {"up": {"exponential": "300 ms"}, "down": {"exponential": "200 ms"}}
        rough = desim.run({**make(), "churn": churn})
        assert rough.manifest["engine"] == ("compiled" if make is star else "agents")
        kinds = rough.events.kind.value_counts()
        assert kinds["abort"] > 3
        assert abs(kinds["down"] - kinds["up"]) <= 8
        assert rough.manifest["time"] > calm.manifest["time"]
        assert rough.iterates.tobytes() == calm.iterates.tobytes()
        check_log(rough)


def test_an_interrupted_computation_is_lost_and_begun_again():
    churn = {"up": {"exponential": "300 ms"}, "down": {"exponential": "200 ms"}}
    events = desim.run({**graph(), "churn": churn}).events
    for agent, own in events.groupby("agent"):
        if agent < 0:
            continue
        up = True
        for _, row in own.iterrows():
            if row.kind in ("down", "up"):
                assert up == (row.kind == "down")
                up = row.kind == "up"
            if row.kind == "compute":
                assert up
    aborted = events[events.kind == "abort"]
    assert (aborted.seconds > 0).all()
    downs = events[events.kind == "down"]
    assert np.isin(aborted.time, downs.time).all()


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("make", [star, graph])
def test_time_that_stands_still_is_an_error_not_an_endless_run(monkeypatch, make, engine):
    monkeypatch.setattr("desim.engine.patience.STANDSTILL", 50)
    still = {  # a loss would take time
        "network": {"link": {"latency": "0 s", "bandwidth": "inf", "loss": 1e-12}},
        "compute": {"speed": "inf"},
        "stop": {"time": "1 s"},
    }
    if make is graph:
        still["network"]["topology"] = "ring"
    with pytest.raises(RunError, match=r"time stands still at 0 s"):
        desim.run({**make(), **still}, overrides={"engine": engine})
    counted = desim.run({**make(), **still, "stop": {"rounds": 60}}, overrides={"engine": engine})
    assert counted.manifest["time"] == 0.0


@pytest.mark.parametrize("engine", ENGINES)
def test_a_diverged_graph_run_keeps_what_happened_before(engine, tmp_path):
    wild = graph(algorithm={"eta": 1e9, "rho": 1e-9}, stop={"rounds": 400})
    wild["problem"].pop("clip")
    with pytest.raises(Diverged):
        desim.run(wild, out=tmp_path / "run", overrides={"engine": engine})
    left = desim.open(tmp_path / "run")
    computed = left.events[left.events.kind == "compute"].groupby("agent").time.max()
    assert len(computed) == 8
    assert left.manifest["time"] - computed.min() < 1.0
    assert len(left.events) == len(whole_log(wild, left.manifest["time"]))


def whole_log(scenario, until):
    """The log of the agent engine, which meets everything in the order of time."""
    with pytest.raises(Diverged) as caught:
        desim.run(scenario, overrides={"engine": "agents"})
    events = caught.value.run.events
    return events[events.time <= until]


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_an_agent_whose_reply_is_lost_is_called_again(engine):
    """With `late: carry` a deadline gives up what is lost for good, not what is only late."""
    drop = {"link": {"latency": "20 ms", "loss": "20 %", "on_loss": "drop"}}
    run = desim.run(
        star(
            network=drop, policy={"deadline": "1 s", "late": "carry"}, engine=engine,
            compute={"speed": 200}, stop={"rounds": 200},
        )
    )  # fmt: skip
    calls = run.events[(run.events.kind == "send") & (run.events.agent == -1)]
    assert calls.groupby("peer")["round"].max().min() > 190
    assert run.curve("error").value.iloc[-1] < 1e-12


@pytest.mark.parametrize(
    ("make", "engine"),
    [(star, "agents"), (star, "cohort"), (star, "compiled"), (graph, "agents"), (graph, "cohort")],
)
def test_observations_without_end_are_refused_where_they_begin(make, engine):
    scenario = make(engine=engine, observe={"metrics": ["error"], "every": "1e-9 s"})
    with pytest.raises(RunError, match=r"observe\.every: found 1e-09 s, more than 1000000"):
        desim.run(scenario)


@pytest.mark.parametrize("engine", ["agents", "cohort", "compiled"])
def test_a_target_that_holds_at_an_instant_is_one_row(engine):
    scenario = star(
        engine=engine,
        observe={"metrics": ["error"], "every": "10 ms"},
        stop={"rounds": 9, "metric": {"error": 1e9}},
    )
    found = desim.run(scenario).metrics
    assert list(found["time"]) == [0.0]
