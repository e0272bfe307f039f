"""Random valid scenarios: every run ends, its log obeys the laws, and the engines agree."""

import tempfile
from pathlib import Path

import pytest
from cases import LOSSY, graph, star
from effort import examples
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from laws import check_log
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play, presences
from desim.engine.cohort import graph as graph_cohort
from desim.engine.cohort import star as star_cohort
from desim.errors import Deadlock
from desim.network.timeline import computations

# Durations from a small grid make events meet at one instant; drawn ones keep them apart.
LATENCY = st.sampled_from(["0 s", "10 ms", "20 ms", {"uniform": ["0 s", "30 ms"]}])
BANDWIDTH = st.sampled_from(["inf", "16 kbit/s", {"lognormal": ["50 kbit/s", 0.5]}])
JITTER = st.sampled_from(["none", "none", {"lognormal": 0.4}, {"exponential": 1.0}])
SPEED = st.sampled_from(
    ["inf", 100, 200, 1000, {"uniform": [50, 500]}, {"exponential": 300}, {"normal": [200, 150]}]
)
SECONDS = st.sampled_from(["10 ms", "20 ms", "40 ms", "70 ms", "200 ms"])


@st.composite
def links(draw):
    link = {"latency": draw(LATENCY), "bandwidth": draw(BANDWIDTH), "jitter": draw(JITTER)}
    if draw(st.booleans()):
        link |= {
            "loss": draw(st.sampled_from([0.02, 0.2])),
            "on_loss": draw(st.sampled_from(["resend", "drop"])),
            "timeout": draw(st.sampled_from(["2 ms", "10 ms", "20 ms"])),
            "limit": draw(st.integers(1, 6)),
        }
    return link


@st.composite
def devices(draw):
    slow = {"fraction": draw(st.sampled_from([0, 0.3])), "factor": draw(st.sampled_from([2, 3]))}
    return {"speed": draw(SPEED), "redraw": draw(st.sampled_from(["run", "round"])), "slow": slow}


@st.composite
def problems(draw, agents, losses, regularizers):
    loss = draw(st.sampled_from(losses))
    kind = "classification" if loss in ("logistic", "hinge") else "regression"
    dim = draw(st.integers(3, 5))
    data = {"source": "synthetic", "kind": kind, "rows": draw(st.integers(3, 6)), "dim": dim}
    problem = {
        "agents": agents,
        "data": data,
        "loss": loss,
        "average": draw(st.sampled_from(["mean", "sum"])),
        "regularizer": draw(st.sampled_from(regularizers)),
        "clip": 2.0,
    }
    if draw(st.booleans()):
        problem["sizes"] = [1 + i % 3 for i in range(agents)]
    return problem


def stops(metrics):
    return st.fixed_dictionaries(
        {"rounds": st.integers(1, 8)},
        optional={
            "time": st.sampled_from(["20 ms", "150 ms", "1 s"]),
            "metric": st.sampled_from([{metrics[0]: 1.0}, {metrics[0]: 0.2}]),
        },
    )


@st.composite
def stars(draw):
    agents = draw(st.integers(2, 6))
    local = draw(
        st.sampled_from(
            [
                {"epochs": 2},
                {"solver": "accelerated", "epochs": 3},
                {"solver": "noisy", "epochs": 2, "tau": 0.1},
                {"solver": "sgd", "epochs": 2, "batch": 2},
            ]
        )
    )
    some = draw(st.integers(1, agents))
    invited = st.lists(st.integers(0, agents - 1), max_size=agents, unique=True)
    schedule = st.lists(invited, min_size=1, max_size=4).filter(any)
    participation = draw(
        st.one_of(
            st.sampled_from(["all", {"bernoulli": 0.5}, {"uniform": some}]),
            st.builds(lambda sets: {"schedule": sets}, schedule),
        )
    )
    most = some if participation == {"uniform": some} else agents
    waiting = [{"deadline": draw(SECONDS)}] * 2
    waiting += [{kind: draw(st.integers(1, most))} for kind in ("quorum", "buffer")]
    late = draw(st.sampled_from([{}, {"late": "discard"}, {"late": "carry"}]))
    policy = draw(st.sampled_from(["all", "each", *({**one, **late} for one in waiting)]))
    link = draw(links())
    if policy == "all":
        link.pop("on_loss", None)
    return {
        "seed": draw(st.integers(0, 99)),
        "problem": draw(
            problems(
                agents,
                ["logistic", "squared", "huber"],
                [{"l2": 1.0}, {"l1": 0.2}, [{"l2": 1.0}, {"box": [-0.3, 0.4]}]],
            )
        ),
        "algorithm": {"name": "fed-plt", "rho": 0.2, "local": local},
        "participation": participation,
        "policy": policy,
        "network": {"link": link, "uplink": {"latency": draw(LATENCY)}},
        "compute": draw(devices()),
        "observe": {"metrics": ["loss", "gradient"], "every": draw(EVERY), "iterates": True},
        "stop": draw(stops(["gradient"])),
    }


EVERY = st.sampled_from(["round", "30 ms"])
DEADLINE = {
    "name": "q-dpsgd-1", "alpha": 0.1, "mixing": 0.5, "bits": 6, "resolution": 0.05,
}  # fmt: skip


@st.composite
def graphs(draw):
    agents = draw(st.integers(3, 7))
    nfl = draw(st.booleans())
    algorithm = {"name": "zcdp-nfl", "rho": 0.3, "eta": {"initial": 0.1, "decay": "sqrt"}}
    if not nfl:
        algorithm = {**DEADLINE, "deadline": draw(SECONDS)}
    topology = draw(
        st.sampled_from(
            [
                *("ring", "complete", "path", "star", {"random_tree_plus": agents}),
                *({"erdos_renyi": 0.8}, {"regular": 2}, {"small_world": [2, 0.3]}),
            ]
        )
    )
    losses = ["logistic", "squared", "huber", *(["absolute", "hinge"] if nfl else [])]
    rough = {"elastic_net": {"l1": 0.2, "l2": 0.5}} if nfl else {"l2": 2.0}
    link = draw(links())
    link.pop("on_loss", None)  # everybody waits: a message that is dropped is refused
    return {
        "seed": draw(st.integers(0, 99)),
        "problem": draw(problems(agents, losses, ["none", {"l2": 1.0}, rough])),
        "algorithm": algorithm,
        "network": {"topology": topology, "link": link},
        "compute": draw(devices()),
        "privacy": {"noise": {"sigma": draw(st.sampled_from([0.0, 0.05])), "decay": 0.9}},
        "observe": {"metrics": ["consensus", "loss"], "every": draw(EVERY), "iterates": True},
        "stop": draw(stops(["consensus"])),
    }


def played(scenario, engine):
    """The finished run, and the deadlock that ended it or None."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return desim.run(scenario, overrides={"engine": engine}), None
        except Deadlock as error:
            with pytest.raises(Deadlock):
                desim.run(scenario, out=Path(folder) / "a", overrides={"engine": engine})
            run = desim.open(Path(folder) / "a")
            for name in ("events", "metrics", "releases", "state", "iterates", "model"):
                getattr(run, name)
            return run, str(error)


def can_hang(scenario):
    """Whether a message can be lost for good or a speed can be 0."""
    lossy = "loss" in scenario["network"]["link"]
    return lossy or isinstance(scenario["compute"]["speed"], dict)


def check(scenario):
    """The run ends well, or names the root of a deadlock; the same in both engines."""
    runs, errors = zip(*(played(scenario, engine) for engine in ("cohort", "agents")), strict=True)
    for run, error in zip(runs, errors, strict=True):
        check_log(run)
        assert run.status == ("done" if error is None else "failed")
        if error is not None:
            assert can_hang(scenario)
            assert "was lost after" in error or "its speed is 0" in error, error
    assert errors[0] == errors[1], errors
    assert (found := differences(*runs)) == [], found


CAREFUL = settings(
    derandomize=True,
    max_examples=examples(30),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.parametrize("scenarios", [stars, graphs], ids=["star", "graph"])
def test_the_engines_agree_on_random_scenarios(scenarios):
    CAREFUL(given(scenarios())(check))()


UP = st.sampled_from(["50 ms", "400 ms", {"exponential": "80 ms"}, {"uniform": [0.02, 0.3]}])
CALENDARS = st.one_of(
    st.fixed_dictionaries({"up": UP, "down": st.sampled_from(["20 ms", {"exponential": 0.1}])}),
    st.fixed_dictionaries({"daily": st.fixed_dictionaries({"up": UP, "day": st.just("700 ms")})}),
)
CARRYING = st.sampled_from(
    ["all", "each", {"buffer": 2}, {"quorum": 2, "late": "carry"},
     {"deadline": "70 ms", "late": "carry"}]
)  # fmt: skip


def check_churn(scenario, policy, churn, missing, engines):
    """The run is the same on all these engines, whatever becomes of it."""
    agents, link = scenario["problem"]["agents"], {**scenario["network"]["link"]}
    if policy == "all":
        link.pop("on_loss", None)
    scenario = {
        **scenario, "policy": "all" if agents < 2 else policy, "participation": "all",
        "network": {**scenario["network"], "link": link},
        "churn": {**churn, "messages": missing}, "stop": {**scenario["stop"], "time": "2 s"},
    }  # fmt: skip
    runs, errors = zip(*(played(scenario, name) for name in engines), strict=True)
    assert [run.manifest["engine"] for run in runs] == list(engines)
    check_log(runs[0])
    assert len({*errors}) == 1, errors
    assert len({tuple(run.manifest["warnings"]) for run in runs}) == 1
    for run in runs[1:]:
        assert (found := differences(runs[0], run)) == [], found


ENGINES = ("agents", "cohort", "compiled")
AWAY = stars(), CARRYING, CALENDARS, st.sampled_from(["queued", "lost"])


@settings(CAREFUL, max_examples=examples(20))
@given(*AWAY)
def test_the_engines_agree_on_agents_that_come_and_go(scenario, policy, churn, missing):
    check_churn(scenario, policy, churn, missing, ENGINES)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("state[0], state[2] = left, turns", "state[0], state[2] = left + 0.001, turns"),
        ("np.array([asked, 0.0,", "np.array([asked + 0.01, 0.0,"),
    ],
)
def test_the_search_finds_absences_that_are_told_wrongly(monkeypatch, right, wrong):
    quick = settings(CAREFUL, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    broken = mutant(computations if "state" in right else presences, right, wrong)
    if "state" in right:
        monkeypatch.setattr(presences, "write_aborts", broken.write_aborts)
    else:
        monkeypatch.setattr(presences, "Presences", broken.Presences)
    with pytest.raises(AssertionError):
        quick(given(*AWAY, st.just(ENGINES[:2]))(check_churn))()


@settings(CAREFUL, max_examples=examples(20))
@given(st.one_of(stars(), graphs()), st.sampled_from(["20 ms", "100 ms", {"exponential": 0.2}]))
def test_runs_with_churn_end(scenario, up):
    """Given a time to stop: a computation longer than every time up never ends."""
    churn = {"up": up, "down": {"uniform": [0, 0.1]}}
    stop = {**scenario["stop"], "time": "2 s"}
    run, error = played({**scenario, "churn": churn, "stop": stop}, "agents")
    check_log(run)
    assert error is None or can_hang(scenario)


@pytest.mark.slow
def test_the_search_finds_wrong_engines(monkeypatch):
    quick = settings(CAREFUL, max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    for method, module, right, wrong, scenarios in (
        ("coordinator", star_cohort, "arrived = due <= close", "arrived = due < close", stars()),
        ("coordinator", star_cohort, "conclude(hub, end)", "conclude(hub, station.now)", stars()),
        (
            "graph",
            graph_cohort,
            '"clock"], request.seconds',
            '"clock"], 0.99 * request.seconds',
            graphs(),
        ),
        ("graph", graph_cohort, "self.sent = payload.copy()", "self.sent = -payload", graphs()),
    ):
        monkeypatch.setitem(play.ENGINES, (method, "cohort"), mutant(module, right, wrong).play)
        with pytest.raises(AssertionError):
            quick(given(scenarios)(check))()
        monkeypatch.undo()


DROP = {"link": {**LOSSY["link"], "on_loss": "drop"}}
TWICE = {"link": {**LOSSY["link"], "limit": 1, "loss": 0.4}}
TIES = {
    "latency": "20 ms", "bandwidth": "inf", "jitter": "none", "loss": 0.2, "timeout": "20 ms",
}  # fmt: skip
ONCE_WRONG = {
    "late replies of a buffer are discarded": star(
        policy={"buffer": 2, "late": "discard"}, stop={"rounds": 20}
    ),
    "a lost call does not interrupt": star(
        policy={"deadline": "30 ms"}, network=DROP, compute={"speed": 100}, stop={"rounds": 40}
    ),
    "a computation that ends as the next call comes": star(
        policy={"deadline": "40 ms"},
        network={"link": TIES, "uplink": {"latency": "10 ms"}},
        compute={"speed": 800},
        stop={"rounds": 40},
    ),
    "a call that was lost long ago": star(
        policy={"buffer": 2}, network=DROP, participation={"bernoulli": 0.5}, stop={"rounds": 40}
    ),
    "a speed of 0": star(compute={"speed": {"normal": [50, 100]}}),
    "a speed of 0 on a graph": graph(compute={"speed": {"normal": [50, 100]}}),
    "a quorum discards calls that would never end": star(
        seed=2, policy={"quorum": 5}, compute={"speed": {"normal": [150, 150]}, "redraw": "round"}
    ),
    "a target between rounds": graph(
        observe={"every": "30 ms"}, stop={"rounds": 30, "metric": {"error": 0.5}}
    ),
    "a deadlock between instants": graph(observe={"every": "30 ms"}, network=TWICE),
    "a deadlock of a coordinator between instants": star(observe={"every": "1 s"}, network=TWICE),
    "nobody ends a computation": graph(stop={"time": "1 ms"}),
    "nobody comes to the second round": graph(stop={"time": "40 ms"}, observe={"every": "30 ms"}),
    "a message under way at the end": graph(
        seed=1, network=TWICE, stop={"rounds": 3, "time": "240 ms"}
    ),
}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", ONCE_WRONG)
def test_scenarios_that_were_wrong_once(name):
    check(ONCE_WRONG[name])
