"""What acts on data is a release: of which models metrics are, and what bounds epsilon before."""

import numpy as np
import pytest
from cases import CASES, graph, merged
from mutant import mutant

import desim
from desim.engine import observer
from desim.engine.world import Discard
from desim.errors import InputError
from desim.experiments.audit.pairs import Transcript
from desim.privacy.accounting.gaussian import epsilon_of
from desim.runs import allowance, joint
from desim.runs.privacy import statement
from desim.scenario.build import build

SEEN = {"metrics": ["consensus"], "iterates": False, "models": "released"}
AS_RELEASED = (
    "nfl", "dp-nfl", "p-admm", "pr-admm", "pp-admm", "subgradient", "dsgd", "sdm-dsgd", "push-sum",
    "gradient-tracking", "choco", "muffliato", "decor",
)  # fmt: skip


class Values(Discard):
    """The values of metrics, in their order."""

    def __init__(self):
        self.found = []

    def append(self, name, columns):
        if name == "metrics":
            self.found += np.asarray(columns["value"]).tolist()


def both_sides(case, folder, **observe):
    """Metrics on two data sets that differ in the rows of agent 0, by all that was released."""
    found = [values for values, _ in replayed(case, folder, **{**SEEN, **observe})]
    assert len(found[0]) == 4
    return found


def replayed(case, folder, told=True, **observe):
    """Metrics and outcomes of a play, and of its replay on other rows of agent 0.

    told: whether the replay is told what the play has released.
    """
    found, first = [], None
    for side in range(2):
        rng = np.random.default_rng(0)
        A = rng.normal(size=(6, 6, 3))
        A /= 1.01 * np.linalg.norm(A, axis=2, keepdims=True)
        A[0] *= 1.0 - 1.5 * side
        np.savez(folder / f"{side}.npz", A=A, b=np.sign(rng.normal(size=(6, 6))))
        given = {**CASES[case], "engine": "cohort", "stop": {"rounds": 3}}
        known = {
            key: one for key, one in given["problem"].items() if key in ("loss", "clip", "row_norm")
        }
        data = {"source": "npz", "file": str(folder / f"{side}.npz")}
        given["problem"] = {**known, "data": data}
        simulation = build(desim.load(merged(given, {"observe": observe})))
        values, transcript = Values(), Transcript(first if told else None)
        outcome = simulation.play(values, listeners=[transcript])
        assert outcome.status == "done"
        first = first or transcript
        found.append((values.found, outcome))
    return found


@pytest.mark.thin(2)
@pytest.mark.parametrize("case", ["plt-noisy", "fedavg-noisy", "dp-admm-noise", "feddyn-noisy"])
def test_a_coordinator_s_model_follows_from_releases(case, tmp_path):
    (_, one), (_, other) = replayed(case, tmp_path, metrics=[], iterates=False)
    assert np.array_equal(one.model, other.model)
    (_, one), (_, other) = replayed(case, tmp_path, told=False, metrics=[], iterates=False)
    assert not np.array_equal(one.model, other.model)


@pytest.mark.thin(4)
@pytest.mark.parametrize("case", AS_RELEASED)
def test_metrics_of_released_models_follow_from_releases(case, tmp_path):
    one, other = both_sides(case, tmp_path)
    assert one == other


def test_metrics_of_models_before_their_noise_do_not(tmp_path, monkeypatch):
    one, other = both_sides("nfl", tmp_path, models="own")
    assert one != other
    bare = mutant(observer, "who[same], round_, noisy[same]", "who[same], round_, value[same]")
    monkeypatch.setattr("desim.engine.play.ReleasedObserver", bare.ReleasedObserver)
    monkeypatch.setattr("desim.engine.releasing.ReleasedObserver", bare.ReleasedObserver)
    one, other = both_sides("nfl", tmp_path)
    assert one != other
    from desim.methods.q_dpsgd_2 import QDPSGD2

    with pytest.raises(InputError, match="q-dpsgd-2, which releases no model in every round"):
        both_sides("q2sgd-printed", tmp_path)
    monkeypatch.setattr(QDPSGD2, "shown", "released", raising=False)
    one, other = both_sides("q2sgd-printed", tmp_path)
    assert one != other


def test_both_engines_show_the_same_released_models():
    given = graph(observe={**SEEN, "metrics": ["consensus", "error"]}, stop={"rounds": 5})
    runs = [desim.run({**given, "engine": engine}) for engine in ("cohort", "agents")]
    assert runs[0].metrics.equals(runs[1].metrics)
    bare = desim.run(merged(given, {"observe": {"models": "own"}}))
    assert len(bare.metrics) == len(runs[0].metrics)
    assert not bare.metrics["value"].equals(runs[0].metrics["value"])
    assert bare.releases.equals(runs[0].releases)


SMALL = graph(
    problem={
        "agents": 4, "clip": 1.0, "loss": "logistic",
        "data": {"source": "synthetic", "kind": "classification", "rows": 12, "dim": 3,
                 "test": "30 %"},
    },
    algorithm={"name": "dsgd", "alpha": 0.1},
    network={"topology": "complete"},
    privacy={"noise": {"sigma": 2.0}},
    observe={"metrics": ["accuracy", "loss"], "iterates": False},
    stop={"rounds": 30},
    engine="cohort",
)  # fmt: skip
NFL = {"algorithm": {"name": "zcdp-nfl", "rho": 1.0, "eta": 0.3}}
BY_ACCURACY = {"stop": {"rounds": 30, "metric": {"accuracy": 0.82}}}


def all_rounds(run, times):
    """Epsilon of so many rounds like the first one, by hand."""
    first = run.releases[(run.releases["agent"] == 0) & (run.releases["round"] == 1)].iloc[0]
    mu = np.sqrt(times) * first["sensitivity"] / first["scale"]
    return pytest.approx(float(epsilon_of(mu, 1e-5)), rel=1e-12)


def test_a_target_on_released_models_costs_all_rounds_that_were_allowed(monkeypatch):
    run = desim.run(merged(SMALL, BY_ACCURACY))
    done = run.manifest["rounds"]
    assert run.manifest["reason"].startswith("stop.metric")
    assert done < 30
    account = run.account()
    assert account.worst == all_rounds(run, 30)
    assert account.curve.groupby("agent").epsilon.agg(lambda one: one.iloc[-2])[0] == all_rounds(
        run, done
    )
    assert account.curve.groupby("agent").epsilon.last()[0] == all_rounds(run, 30)
    (told,) = [one for one in account.flags if "which holds before the run" in one]
    assert told.startswith("stop.metric ends it by accuracy: epsilon is that of all 30 rounds")
    assert joint.joint([run, run])[0].epsilon == all_rounds(run, 30)
    assert statement(run).table["rigorous epsilon"].max() == all_rounds(run, 30)
    wrong = mutant(allowance, "planned = replayed(might.rows)", "planned = happened")
    monkeypatch.setattr("desim.runs.run.bounded", wrong.bounded)
    assert run.account().worst != all_rounds(run, 30)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"stop": {"rounds": 30, "metric": {"loss": 3.2}}}, "loss, which is computed from private"),
        ({**NFL, **BY_ACCURACY}, "accuracy, of models before their noise"),
        ({"stop": {"time": "9 s", "metric": {"accuracy": 0.82}}}, "nothing bounds beforehand"),
    ],
)
def test_an_end_that_no_release_decides_has_no_epsilon(changes, why):
    run = desim.run(merged(SMALL, changes))
    assert run.manifest["reason"].startswith("stop.metric")
    account = run.account()
    assert np.isinf(account.final).all()
    told = [one for one in run.manifest["warnings"] if one.startswith("stop.metric")]
    assert (told == []) == ("beforehand" in why)
    assert all(one.endswith("epsilon is infinite") for one in told)
    assert account.method == "no bound"
    assert account.flags[0].startswith("infinite: ")
    assert why in account.flags[0]
    assert "what happened came to" in account.flags[0]
    assert np.isinf(run.epsilon()["epsilon"].iloc[-1])
    assert not run.epsilon().attrs["risk"].exact
    (found, *_) = joint.joint([run, run])
    assert np.isinf(found.epsilon)
    assert any(why in one for one in found.flags)


def test_an_end_by_the_accuracy_of_released_models_has_one():
    given = merged(SMALL, {**NFL, **BY_ACCURACY, "observe": {"models": "released"}})
    run = desim.run(given)
    assert run.manifest["reason"].startswith("stop.metric")
    assert np.isfinite(run.account().worst)
    assert run.account().worst == pytest.approx(
        desim.run(merged(given, {"stop": {"rounds": 30}})).account().worst, rel=1e-12
    )


def test_what_may_be_released_is_never_less_than_what_was(monkeypatch):
    """A plan that forgets half of the rounds is noticed."""
    from desim.methods.dsgd import DSGD

    monkeypatch.setattr(DSGD, "most", lambda self, rounds: [(self.planned(1), 1)])
    run = desim.run(merged(SMALL, BY_ACCURACY))
    assert np.isinf(run.account().worst)
    assert "more was released than was foreseen" in run.account().flags[0]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"observe": {"models": "released", "iterates": True}}, "observe.iterates: found true"),
        ({"algorithm": {"name": "d-zoa", "rho": 1.0}, "observe": {"models": "released"}},
         "observe.models: found released with d-zoa, which releases no model"),
    ],
)  # fmt: skip
def test_released_models_that_there_are_not_are_refused(changes, said):
    with pytest.raises(InputError, match=said):
        desim.load(merged(SMALL, changes))
