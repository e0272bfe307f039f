"""A job sees the same on every engine and no time, so that nobody tells again what looked at it."""

import numpy as np
import pytest
from cases import graph, star
from test_engines import differences

import desim
from desim.engine.at_work import Rounds
from desim.engine.world import World
from desim.errors import InputError, RunError

GRAPH = """
from desim.methods.dsgd import DSGD
from desim.problem.kernels.gradients import gradient

class Peeking(DSGD):
    name = "peeking"
    keep = None

    def agents(self, us):
        self.us = us
        us.x = self.settings.initial("x0")[us.who]
        for k in us.rounds():
            def job(rows, x):
                g = gradient(rows.who, x, self.problem.data)
                {looks}
                return g * (1.0 + float(seen))
            g = yield us.compute(job, us.x, work=self.problem.rows[us.who])
            us.x = us.x - 0.05 * g
            us.report(us.x)
            us.send(us.x)
            heard = yield us.gather()
            us.x = 0.5 * us.x + 0.5 * us.sum(heard) / us.degree[:, None]
"""
STAR = """
import numpy as np
from desim.methods.fedavg import FedAvg
from desim.problem.kernels.gradients import gradient

class Peeking(FedAvg):
    name = "peeking"

    def compiled(self):
        return None

    def coordinator(self, hub):
        self.hub, model = hub, self.settings.initial("x0").mean(0)
        hub.start(x=self.settings.initial("x0"))
        hub.publish(model)
        while hub.open:
            def job(us, y):
                x = y - 0.05 * gradient(us.who, y, self.problem.data)
                {looks}
                us.x = x * (1.0 + float(seen))
                return us.x
            hub.call(hub.invite(), job, model, work=self.problem.rows.astype(float))
            replies = yield hub.collect()
            model = replies.payload.mean(0)
            {tells}
            hub.publish(model)
"""
ON_GRAPHS = {
    "rows.clock": "seen = rows.clock[0]",
    "rows.x": "seen = rows.x[0, 0]",
    "rows.send": "seen = rows.send(x)",
    "rows.x = ...": "rows.x, seen = x, 0",
    "us.clock": "seen = us.clock[0]",
    "us.live": "seen = us.live[0]",
    "us.speed": "seen = us.speed()[0]",
    "us.capacity": "seen = us.capacity(0.1)[0]",
    "us.x = ...": "us.x, seen = x, 0",
    "us.report": "seen = us.report(x) or 0",
    "us.send": "seen = us.send(x) or 0",
    "us.release": "seen = us.release(x, None)[0, 0]",
    "us.perturbation": "seen = us.perturbation(2, None)[0, 0]",
    "us.above": "seen = us.above(x[:, 0], None)[0]",
    "us.compute": "seen = len(us.compute(job, x, work=1))",
    "self.us.clock": "seen = self.us.clock[0]",
    "late": "seen = us.clock[0] if rows.round[0] > 3 else 0",
    "asked for": "seen = getattr(us, 'clock', [0])[0]",
}
ON_STARS = {
    "us.clock": "seen = us.clock[0]",
    "us.now": "seen = us.now",
    "us.speed": "seen = us.speed()[0]",
    "hub.now": "seen = hub.now",
    "self.hub.now": "seen = self.hub.now",
    "hub.open": "seen = hub.open",
    "hub.invite": "seen = len(hub.invite())",
    "hub.station": "seen = hub.station.now",
    "hub.calls": "seen = hub.calls.due[0]",
    "hub.world": "seen = hub.world.now",
    "hub.call": "seen = hub.call(us.who, job, y, work=0 * y) or 0",
    "hub.tell": "seen = hub.tell(us.who, job, y[0]) or 0",
    "hub.publish": "seen = hub.publish(y[0]) or 0",
    "late": "seen = hub.now if us.round[0] > 3 else 0",
}
PURE = "seen = rows.who[0] * 0 + us.round[0] * 0 + us.noise_seed * 0 + us.degree[0] * 0"
PURE_STAR = (
    "seen = us.who[0] * 0 + us.round[0] * 0 + us.x[0, 0] * 0 + hub.round * 0 + hub.agents * 0"
)


def peeking(folder, text, looks, tells="pass", **changes):
    """A scenario whose method's job looks at something."""
    (folder / "peeking.py").write_text(text.replace("{looks}", looks).replace("{tells}", tells))
    made = graph(**changes) if "def agents" in text else star(**changes)
    made.pop("privacy", None)
    made["problem"].pop("clip", None)
    own = {"name": "peeking", "alpha": 0.1} if text.count("def agents") else {"name": "peeking"}
    return {**made, "algorithm": own, "plugins": [str(folder / "peeking.py")]}


def told(folder, scenario, engine):
    """What is said when the engine plays it."""
    with pytest.raises((RunError, InputError)) as error:
        desim.run(scenario, overrides={"engine": engine})
    return str(error.value)


@pytest.mark.thin(3)
@pytest.mark.parametrize("looks", ON_GRAPHS)
def test_a_job_of_a_graph_looks_at_nothing_else(looks, tmp_path):
    scenario = peeking(tmp_path, GRAPH, ON_GRAPHS[looks])
    cohort, agents = (told(tmp_path, scenario, engine) for engine in ("cohort", "agents"))
    assert cohort == agents
    assert "found in a job, which has no time of its own; allowed: its own us.who" in cohort
    assert "peeking.py, line" in cohort


@pytest.mark.thin(3)
@pytest.mark.parametrize("looks", ON_STARS)
def test_a_job_of_a_coordinator_looks_at_nothing_else(looks, tmp_path):
    scenario = peeking(tmp_path, STAR, ON_STARS[looks])
    cohort, agents = (told(tmp_path, scenario, engine) for engine in ("cohort", "agents"))
    assert cohort == agents
    assert "found in a job, which has no time of its own; allowed: its own us.who" in cohort


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_nor_does_one_that_is_told_something(engine, tmp_path):
    tells = "hub.inform(replies.who, lambda us, y: 0.0 * y + hub.now, model)"
    scenario = peeking(tmp_path, STAR, "seen = 0", tells)
    assert "raised RuntimeError: hub.now: found in a job" in told(tmp_path, scenario, engine)


@pytest.mark.parametrize(("text", "looks"), [(GRAPH, PURE), (STAR, PURE_STAR)])
def test_what_a_job_may_look_at_is_the_same_on_every_engine(text, looks, tmp_path):
    scenario = peeking(tmp_path, text, looks)
    cohort, agents = (desim.run(scenario, overrides={"engine": e}) for e in ("cohort", "agents"))
    assert differences(cohort, agents) == []
    slow = {"link": {"latency": "0.3 s"}}
    new = desim.retime(cohort, slow)
    afresh = desim.run({**scenario, "network": {**scenario["network"], **slow}})
    assert np.array_equal(new.metrics.value, afresh.metrics.value)


@pytest.mark.parametrize(("text", "looks"), [(GRAPH, ON_GRAPHS["late"]), (STAR, ON_STARS["late"])])
def test_without_the_guard_a_wrong_tale_would_be_believed(text, looks, tmp_path, monkeypatch):
    """One job for all rounds looks at the clock from round 4 on: a play without jobs is blind."""
    for verb in ("us.compute(", "hub.call(hub.invite(), "):
        text = text.replace(f"{verb}job,", f"{verb}vars(self).setdefault('job', job),")
    scenario = peeking(tmp_path, text, looks)
    slow = {"link": {"latency": "0.3 s"}}
    with monkeypatch.context() as unguarded:
        unguarded.setattr(World, "work", lambda world, job, us, *inputs: job(us, *inputs))
        trained = desim.run(scenario)
        afresh = desim.run({**scenario, "network": {**scenario["network"], **slow}})
        believed = desim.retime(trained, slow)
        assert not np.array_equal(believed.metrics.value, afresh.metrics.value)
    with pytest.raises((RunError, InputError), match="found in a job, which has no time"):
        desim.run(scenario)


@pytest.mark.parametrize("looks", ["us.ended", "us.lasting"])
def test_a_program_that_looks_at_the_clock_another_way_is_not_told_again(looks, tmp_path):
    scenario = peeking(
        tmp_path, GRAPH.replace("us.report(us.x)", f"us.report(us.x); {looks}"), "seen = 0"
    )
    with pytest.raises(InputError, match="looks at the clock"):
        desim.retime(desim.run(scenario), {"link": {"latency": "0.3 s"}})


MEETS = [(GRAPH, "seen = (x * rows.round).sum() * 0"), (STAR, "seen = 1; y = y / us.round")]
BESIDE = [
    (GRAPH, "seen = (x * rows.round[:, None]).sum() * 0"),
    (STAR, "seen = 1; y = y / us.round[:, None]"),
]


def square(folder, text, looks):
    """As many agents as parameters, where (n,) would pass for a row (dim,)."""
    made = peeking(folder, text, looks)
    made["problem"]["data"] = {**made["problem"]["data"], "dim": 4}
    made["problem"]["agents"] = 4
    made["network"]["topology"] = "ring" if text is GRAPH else "star"
    return {**made, "stop": {"rounds": 3}}


@pytest.mark.parametrize(("text", "looks"), MEETS)
def test_rounds_of_agents_never_pass_for_a_row_of_numbers(text, looks, tmp_path, monkeypatch):
    scenario = square(tmp_path, text, looks)
    for engine in ("cohort", "agents"):
        text = told(tmp_path, scenario, engine)
        assert "us.round: found (" in text
        assert "allowed: us.round[:, None], or its numbers alone" in text
    monkeypatch.delattr(Rounds, "__array_ufunc__")
    assert desim.run(scenario, overrides={"engine": "cohort"}).status == "done"


@pytest.mark.parametrize(("text", "looks"), BESIDE)
def test_rounds_as_a_column_are_the_same_on_every_engine(text, looks, tmp_path):
    scenario = square(tmp_path, text, looks)
    cohort, agents = (desim.run(scenario, overrides={"engine": e}) for e in ("cohort", "agents"))
    assert differences(cohort, agents) == []


def test_rounds_are_numbers_for_all_else():
    rounds = np.array([3, 4]).view(Rounds)
    assert (rounds + 1).tolist() == [4, 5]
    assert type(rounds[:, None] * 2.0 * np.ones((2, 2))) is np.ndarray
    assert (rounds @ np.ones((2, 3))).tolist() == [7.0] * 3
    rows = np.ones((2, 2))
    for beside in (rounds, 0.1 / rounds, np.sqrt(rounds) + 1):
        with pytest.raises(ValueError, match="one for each agent, beside an array"):
            rows *= beside
