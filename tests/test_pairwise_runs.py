"""`Run.pairwise`: of stored, stopped and resumed runs, and of programs of which nobody can say."""

import signal
from dataclasses import replace

import numpy as np
import pytest
from cases import CASES as ALL
from cases import merged
from dense_views import views_of
from test_pairwise import CASES, account, scenario

import desim
from desim.errors import InputError
from desim.methods.dsgd import DSGD
from desim.runs.pairwise import Pairs
from desim.runs.symbols import symbols_of
from desim.scenario.build import build
from desim.scenario.load import load

NAMES = ["agent", "observer", "mu", "epsilon", "local", "distance"]


def test_a_stored_run_is_read_as_it_was_played(tmp_path):
    given = scenario(**CASES["gossip each"])
    run = desim.run(given, out=tmp_path / "run")
    found, again = run.pairwise(), desim.open(tmp_path / "run").pairwise()
    assert found.equals(again)
    assert found.attrs == again.attrs
    assert [*found.columns] == NAMES
    assert len(found) == 30
    pairs = account(given)
    for row in found.itertuples():
        assert row.mu == pairs.towards((row.observer,))[row.agent]
    local = run.account().final
    np.testing.assert_allclose(found["local"], local[found["agent"]], rtol=1e-9)
    assert (found["epsilon"] <= found["local"]).all()


def test_levels_of_the_log_and_engines_make_no_difference():
    found = [
        desim.run(scenario(log=level, engine=engine)).pairwise()
        for level, engine in (("all", "agents"), ("rounds", "auto"), ("messages", "cohort"))
    ]
    assert all(np.allclose(one["mu"], found[0]["mu"], rtol=1e-12) for one in found)


def test_other_seeds_draw_other_executions():
    seeds = [desim.run(scenario(**CASES["deadline"]) | {"seed": seed}) for seed in (1, 2)]
    first, second = (run.pairwise()["mu"] for run in seeds)
    assert (first != second).any()


def test_several_put_together_what_they_have():
    run = desim.run(scenario())
    alone, both = run.pairwise(), run.pairwise(observers=[(4, 1), 3])
    assert set(both["observer"]) == {"[1, 4]", 3}
    views = views_of(build(load(scenario())))
    for row in both[both["observer"] == "[1, 4]"].itertuples():
        assert abs(row.mu / np.sqrt(views.mu2((1, 4), row.agent)) - 1.0) < 1e-8
        apart = alone[(alone["agent"] == row.agent) & alone["observer"].isin([1, 4])]["mu"]
        assert row.mu > apart.max()
    assert (both["mu"] <= desim.run(scenario()).pairwise()["mu"].max() * 1.5).all()


def test_a_stopped_run_tells_what_it_sent_and_a_resumed_one_all(tmp_path, monkeypatch):
    given = scenario(4, 30, engine="agents")
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)

    def press(now):
        if now.time > 0.5:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        stopped = desim.run(given, out=tmp_path / "run", progress=press)
    finally:
        signal.signal(signal.SIGINT, before)
    assert stopped.status == "stopped"
    some, whole = stopped.pairwise(), desim.run(given).pairwise()
    assert (some["mu"] < whole["mu"]).all()
    assert (some["local"] < whole["local"]).all()
    heard, end = stopped.events, stopped.manifest["time"]
    assert (symbols_of(build(load(given)))[1]["time"] <= end).sum() == (
        heard["kind"] == "deliver"
    ).sum()
    assert desim.resume(tmp_path / "run").pairwise().equals(whole)


class Leaky(DSGD):
    """Every second message is the gradient with a share of the noise that it was released with."""

    linear = True
    share = 0.5

    def agents(self, us):
        """A leak that no row of the ledger tells of."""
        samples = self.samples(us.who)
        us.x = self.x0[us.who]
        for k in us.rounds():
            g = yield us.compute(self.batch_gradient, us.x, samples, work=samples)
            noisy = us.release(g, self.terms(us.who, k, samples))
            us.send(noisy if k % 2 else g + self.share * (noisy - g), turn=k)
            yield us.gather()
            us.report(us.x)


class Barer(Leaky):
    """Without noise, and without a row that says so."""

    linear = True
    share = 0.0


@pytest.mark.parametrize("kind", [Leaky, Barer])
def test_what_leaks_beside_its_releases_costs_more_than_they_do(kind):
    simulation = build(load(scenario(4, 4)))
    method = kind.__new__(kind)
    vars(method).update(vars(simulation.method))
    leaks = replace(simulation, method=method, engine="cohort")
    pairs = Pairs(*symbols_of(leaks), "replace-one", simulation.problem.rows)
    found = pairs.towards((0,))[1] ** 2
    if kind is Barer:
        assert found == np.inf
    else:
        one = [(0.1 / 0.5) ** 2 / 0.95**k for k in range(4)]  # decay is of the variance
        assert abs(found / (one[0] + 4.0 * one[1] + one[2] + 4.0 * one[3]) - 1.0) < 1e-9
        assert abs(pairs.local[1] / sum(one) - 1.0) < 1e-9


REFUSED = {
    "fedavg-noisy": "a coordinator hears from all agents",
    "led-graph-noisy": "led is not linear in gradients and noise",
    "sdm-dsgd": "sdm-dsgd is not linear in gradients and noise",
    "nfl-laplace": "its noise is laplace, no Gaussian",
    "choco": "codecs, budgets and metrics that end a run are not replayed with symbols",
    "p-admm": "p-admm is not linear in gradients and noise",
}


@pytest.mark.parametrize("name", REFUSED)
def test_of_others_it_is_all_that_was_released(name):
    run = desim.run(merged(ALL[name], {"stop": {"rounds": 2}}))
    found = run.pairwise(1e-5)
    assert found.attrs["reason"].startswith(REFUSED[name])
    np.testing.assert_allclose(found["epsilon"], found["local"], rtol=1e-9)


BAD = [
    ({"observers": "0"}, "observers: found '0'; allowed: agents, or tuples of agents"),
    ({"observers": 3}, "observers: found 3; allowed: agents, or tuples"),
    ({"observers": []}, "observers: found .*; allowed: agents, or tuples"),
    ({"observers": [6]}, "observers: found 6; allowed: agents 0 to 5"),
    ({"observers": [-1]}, "observers: found -1; allowed: agents 0 to 5"),
    ({"observers": [True]}, "observers: found .*; allowed: agents 0 to 5"),
    ({"observers": [(0, 9)]}, r"observers: found .*; allowed: agents 0 to 5"),
    ({"observers": [()]}, "observers: found .*; allowed: agents 0 to 5"),
    ({"observers": [1.5]}, "observers: found 1.5; allowed: agents 0 to 5"),
    ({"relation": "add-one"}, "relation: found 'add-one'; allowed: .*replace-one"),
    ({"delta": 2.0}, "delta: found 2"),
    ({"delta": 0.0}, "delta: found 0"),
]


@pytest.mark.parametrize(("asked", "text"), BAD)
def test_bad_questions_are_refused_in_words(run, asked, text):
    with pytest.raises(InputError, match=text):
        run.pairwise(**asked)


@pytest.fixture(scope="module")
def run():
    """A run of two rounds."""
    return desim.run(scenario(rounds=2))
