"""`desim.tune`: the same end however it is played, honest tables, and what is refused."""

import json
import os
import signal
import time

import numpy as np
import pandas as pd
import pytest
from forked import forked
from mutant import mutant
from study_scenes import BASE, STUDY
from tuner_scenes import TUNER, VARY, private, tuner

import desim
from desim.amounts import amount
from desim.errors import InputError
from desim.experiments.studies.cases import key_of
from desim.experiments.tuning import search as book_module
from desim.experiments.tuning.sampling import Random, size
from desim.experiments.tuning.search import front, until
from desim.experiments.tuning.tune import explained, table
from desim.runs import processes
from desim.scenario.load import resolved_yaml
from desim.scenario.varied import Range, vary


@pytest.fixture(scope="module")
def found():
    return desim.tune(TUNER, workers=0)


def same(one, other):
    """Whether two tuners ended alike, but for the wall clock."""
    for name in ("candidates", "fresh", "sensitivity"):
        pd.testing.assert_frame_equal(one.tables[name], other.tables[name])
    mine, theirs = (found.runs.drop(columns="wall") for found in (one, other))
    pd.testing.assert_frame_equal(mine, theirs)
    assert one.asked == other.asked


def test_the_best_is_the_least_of_all_on_the_same_seeds(found):
    grid = {**VARY, "seed": "0..3"}
    whole = desim.study({**STUDY, "grid": grid, "compare": {"targets": {"error": 0.1}}}, workers=0)
    medians = whole.runs.groupby("case")["time to error 0.1"].median()
    table = found.candidates
    best = table[table["status"] == "best"].iloc[0]
    assert best["time"] == medians.min()
    assert len(found.runs) < 24 + 4
    case = whole.plan.cases[int(medians.idxmin())]
    assert found.values == dict(case.values)


def test_dropped_candidates_are_worse_and_were_played_less(found):
    table = found.candidates
    dropped = table[table["status"] == "dropped"]
    assert len(dropped)
    assert (dropped["time ratio"] > 1.0).all()
    assert (dropped["seeds"] == dropped["decided"]).all()
    early = dropped[dropped["seeds"] < 3]
    assert early["reason"].str.contains("beyond 4 times the best on").all()
    level = table[table["status"].isin(["best", "within noise"])]
    assert (level["seeds"] == 4).all()
    assert (level["time ratio"] >= 1.0).all()


def test_a_ratio_is_seed_by_seed_beside_the_best_one(found):
    """As its head and its note say: not the ratio of the medians that stand beside it."""
    shown, rows = table(found), found.runs.set_index(["case", "seed"])["time to error 0.1"]
    column = shown.head.index("time / best's, same seeds")
    assert any(
        "ratios are seed by seed, over those that the best met" in one for one in shown.notes
    )
    numbers = found.candidates.set_index("label")["candidate"]
    best = rows.loc[found.best[0].number]

    def check(of):
        for row in shown.rows:
            own = rows.loc[numbers[row[0]]]
            both = own.index.intersection(best.index).intersection(range(4))
            expected = of(own[both], best[both]) if len(both) else np.nan
            assert row[column] == ("" if np.isnan(expected) else amount(expected))

    check(lambda own, other: float((own / other).median()))
    with pytest.raises(AssertionError):
        check(lambda own, other: own.median() / other.median())


def test_what_is_best_of_many_is_played_on_seeds_that_chose_nothing(found):
    fresh = found.fresh
    assert list(fresh["label"]) == [fresh["label"][0], "base"]
    assert list(fresh["seeds"]) == [2, 2]
    seeds = set(found.runs.loc[found.runs["case"] == -1, "seed"])
    assert seeds == {4, 5}
    again = [desim.run(desim.load(BASE, {**found.values, "seed": seed})) for seed in (4, 5)]
    assert fresh["fresh"][0] == np.median([run.time_to("error", 0.1) for run in again])
    assert "so this is optimistic" in found.text()
    assert "which no epsilon here pays for" in found.text()


def test_the_best_is_a_scenario_that_runs(found, tmp_path):
    (tmp_path / "best.yaml").write_text(found.yaml())
    loaded = desim.load(tmp_path / "best.yaml")
    assert loaded.algorithm.parameters.rho == found.values["algorithm.rho"]
    assert loaded.seed == BASE["seed"]


def test_nothing_is_played_twice_and_what_is_stored_is_the_end(found, tmp_path):
    first = desim.tune(TUNER, tmp_path / "t", workers=0)
    same(first, found)
    again = desim.tune(TUNER, tmp_path / "t", workers=0)
    same(again, found)
    stored = len(list((tmp_path / "t" / "runs").iterdir()))
    assert (first.counts, again.counts) == ({"played": stored}, {"stored": stored})
    stored = pd.read_parquet(tmp_path / "t" / "candidates.parquet")
    assert list(stored["status"]) == list(found.candidates["status"])
    assert (tmp_path / "t" / "best.yaml").read_text() == found.yaml()
    assert {run.status for run in desim.experiments.studies.folder.opened([tmp_path / "t"])} == {
        "done"
    }


def test_a_tuner_that_was_interrupted_ends_like_one_that_was_not(found, tmp_path):
    def stop(done, total, what):
        if "candidates 4" in what:
            raise KeyboardInterrupt

    early = desim.tune(TUNER, tmp_path / "t", workers=0, progress=stop)
    assert not early.complete
    assert "stopped early" in early.text()
    assert not (tmp_path / "t" / "best.yaml").exists()
    whole = desim.tune(TUNER, tmp_path / "t", workers=0)
    same(whole, found)
    assert 9 <= whole.counts["stored"] < whole.asked


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "cmaes", "grid"])
def test_samplers_propose_the_same_candidates_again(sampler):
    pytest.importorskip("optuna")
    small = tuner(sampler=sampler, seeds=[0], runs=6, fresh=0, seed=3, batch=2, cap=False)
    if sampler == "cmaes":
        pytest.importorskip("cmaes")
        rho = {"log_uniform": [0.3, 3]}
        small["tune"]["vary"] = {**VARY, "algorithm.rho": rho}
    one, other = (desim.tune(small, workers=0) for _ in range(2))
    same(one, other)
    assert len(set(one.candidates["label"])) == len(one.candidates) == 6


def test_several_goals_have_a_front():
    several = tuner(least=["time", "rounds"], sampler="grid", fresh=0, until={"error": 1e-2})
    several["set"] = {"compute.speed": "50 /s", "stop.rounds": 30}
    found = desim.tune(several, workers=0)
    table = found.candidates
    first = table[table["status"] == "front"]
    assert list(first["label"]) == ["rho 3, epochs 1", "rho 3, epochs 2"]
    assert [one.label for one in found.best] == list(first["label"])
    points = table[["time", "rounds"]].to_numpy()
    for row in first[["time", "rounds"]].to_numpy():
        beats = (points <= row).all(axis=1) & (points < row).any(axis=1)
        assert not beats.any()
    assert front(np.array([[1.0, 2.0, 2.0, np.inf], [2.0, 1.0, 2.0, 0.0]])).tolist() == [
        True, True, False, False,
    ]  # fmt: skip


def test_limits_are_kept():
    found = desim.tune(tuner(limits={"rounds": 2}, fresh=0, sampler="grid"), workers=0)
    table = found.candidates
    over = table[table["status"] == "infeasible"]
    assert len(over)
    assert over["reason"].str.contains("limit on rounds|not met").all()
    best = found.runs[found.runs["case"] == found.best[0].number]
    assert (best["rounds to error 0.1"] <= 2).sum() > 2


def test_an_epsilon_beyond_its_limit_is_out_at_once():
    found = desim.tune(private(limits={"epsilon": 20}, sampler="grid", fresh=0), workers=0)
    table = found.candidates.set_index("candidate")
    met = found.runs[np.isfinite(found.runs["time to accuracy 0.7"])]
    over = set(met.loc[met["epsilon to accuracy 0.7"] > 20, "case"])
    assert over
    assert (table.loc[sorted(over), "status"] == "infeasible").all()
    assert table.loc[sorted(over), "reason"].str.contains("limit on epsilon").all()
    assert found.best
    assert found.best[0].number not in over


def test_a_cut_changes_nothing_before_it():
    scenario = desim.load(BASE)
    whole, cut = desim.run(scenario), desim.run(until(scenario, 0.15))
    assert cut.manifest["time"] <= 0.15
    rows = len(cut.metrics)
    assert 0 < rows < len(whole.metrics)
    pd.testing.assert_frame_equal(cut.metrics, whole.metrics.head(rows))
    assert until(scenario, np.inf) is scenario


def test_runs_that_cannot_win_are_cut_off_and_nobody_else_wins(found):
    capped = desim.tune(tuner(cap=1.2), workers=0)
    free = desim.tune(tuner(cap=False), workers=0)
    assert capped.values == free.values == found.values
    cut = capped.candidates["reason"].str.contains("beyond 1.2 times the best on")
    assert (capped.candidates.loc[cut, "status"] == "dropped").all()
    assert cut.any()
    table = capped.candidates
    left = table[table["status"].isin(["best", "within noise"])]["candidate"]
    for number in left:
        mine, other = (
            made.runs[made.runs["case"] == number].set_index("seed")["time to error 0.1"]
            for made in (capped, free)
        )
        assert mine.loc[:3].equals(other.loc[:3])
    assert capped.runs["time"].sum() < free.runs["time"].sum()


def test_random_candidates_depend_on_nothing_but_their_number():
    space = vary({"algorithm.rho": {"log_uniform": [0.01, 1]}, "policy": ["all", "each"]})
    one, other = Random(space, 3), Random(space, 3)
    assert one.ask(6) == other.ask(2) + other.ask(4)
    assert one.ask(200) != Random(space, 4).ask(200)
    rho = np.array([values["algorithm.rho"] for values in Random(space, 0).ask(400)])
    # log10 rho is uniform on [-2, 0]: of 400, 200 +- 5 sqrt(100) are below 0.1
    assert abs((rho < 0.1).sum() - 200) < 50


def test_ranges_keep_their_units():
    space = vary({"policy.deadline": {"log_uniform": ["500 ms", "20 s"]}})
    one = space["policy.deadline"]
    assert isinstance(one, Range)
    assert one.ends == ("500.0 ms", "20000.0 ms")
    assert one.at(0.0) == "500 ms"
    assert one.at(0.5) == "3162 ms"
    whole = vary({"participation.uniform": {"integer": [2, 4]}})["participation.uniform"]
    assert [whole.at(share) for share in (0.0, 0.3, 0.34, 0.99)] == [2, 2, 3, 4]
    assert size({"a": whole, "b": (1, 2)}) == 6


def test_what_a_key_explains_is_the_share_of_ranks():
    group = np.repeat([0, 1, 2], 10)
    assert explained(group + 0.0, group) == 1.0
    rng = np.random.default_rng(0)
    chance = [explained(rng.random(30), group) for _ in range(200)]
    assert np.mean(chance) < 0.06  # of 200 the mean of what is positive of a centred number
    assert np.isnan(explained(np.ones(30), group))


def meet_the_same_seeds(made):
    """Whether each run is of its candidate's values and its seed, and all begin with the first."""
    values = {row["candidate"]: row for row in made.candidates.to_dict("records")}
    for run in made.runs[made.runs["case"] >= 0].to_dict("records"):
        own = {key: values[run["case"]][key] for key in VARY}
        text = resolved_yaml(desim.load(BASE, {**own, "seed": run["seed"]}))
        assert run["run"] == key_of(text)
    assert set(made.runs.groupby("case")["seed"].min()) == {0}


def test_all_candidates_meet_the_same_seeds(monkeypatch):
    plainly = tuner(cap=False, fresh=0, vary={**VARY, "algorithm.rho": [3.0]})
    meet_the_same_seeds(desim.tune(plainly, workers=0))
    wrong = mutant(book_module, "seeded(unseeded, one.seed)",
                   "seeded(unseeded, one.seed + 10 * one.candidate.number)")  # fmt: skip
    monkeypatch.setattr("desim.experiments.tuning.tune.RunCache", wrong.RunCache)
    with pytest.raises(AssertionError):
        meet_the_same_seeds(desim.tune(plainly, workers=0))


def test_candidates_that_differ_in_delays_share_a_training(monkeypatch, tmp_path):
    monkeypatch.setattr("desim.runs.retime.WORTH", 0.0)
    delays = tuner(vary={"network.link.latency": ["5 ms", "10 ms", "40 ms"]}, batch=2, cap=False)
    apart = desim.tune(delays, workers=0, share=False)
    for out, told in ((None, 4), (tmp_path / "t", 10)):  # of 16, six seeds are trained
        shared = desim.tune(delays, out, workers=0)
        assert shared.counts["told"] >= told
        assert sum(shared.counts.values()) == apart.counts["played"]
        same(shared, apart)


REFUSED = [
    (tuner(until=None), "tune.until: missing; this key is required"),
    (tuner(vary=None), "tune.vary: missing; this key is required"),
    (tuner(vary={}), "tune.vary: found nothing to vary"),
    (tuner(until={"error": [1, 2]}), "tune.until: found {'error': [1, 2]}; allowed: one metric"),
    (tuner(until={"eror": 1}), "tune.until: found 'eror'"),
    (tuner(until={"accuracy": 1}), "tune.until: found 'accuracy'; allowed: error, loss"),
    (tuner(vary={"algorithm.rhoo": [1, 2]}), "algorithm.rhoo: unknown key; allowed: "),
    (tuner(vary={"algorithm.rhoo": [1, 2]}), "did you mean 'rho'?"),
    (tuner(vary={"algoritm.rho": [1, 2]}), "did you mean 'algorithm'?"),
    (tuner(vary={"algorithm.rho": {"uniform": [3, 1]}}), "algorithm.rho: uniform: found [3, 1]"),
    (tuner(vary={"algorithm.rho": {"uniformly": [1, 3]}}), "algorithm.rho: found"),
    (tuner(vary={"algorithm.rho": {"integer": [1.5, 3]}}), "algorithm.rho: integer: found"),
    (tuner(vary={"policy.deadline": {"uniform": ["1 s", "3 kB"]}}), "units of one kind"),
    (tuner(vary={"policy.deadline": {"uniform": ["3 s", "100 ms"]}}), "uniform: found"),
    (tuner(vary={"seed": [1, 2]}), "all candidates meet the same seeds"),
    (tuner(vary={"policy": ["all"], "policy.deadline": [1]}), "one inside the other"),
    (tuner(vary={"algorithm.rho": [1.0, -1.0, -2.0]}), "candidate rho -1: "),
    (tuner(vary={"algorithm.rho": [1.0, -1.0, -2.0]}), "algorithm.rho: found -2.0"),
    (tuner(seeds=[]), "tune.seeds: found no value"),
    (tuner(seeds="3..1"), "tune.seeds: found '3..1'"),
    (tuner(sampler="bayes"), "tune.sampler: found 'bayes'; allowed: random, grid, tpe"),
    (tuner(sampler="grid", vary={"algorithm.rho": {"uniform": [1, 2]}}), "found grid with a range"),
    (tuner(sampler="cmaes", least=["time", "bytes"]), "found cmaes, which looks for one"),
    (tuner(least="seconds"), "tune.least: found 'seconds'; allowed: time, bytes, rounds, joules"),
    (tuner(least=["time", "time"]), "each once"),
    (tuner(limits={"epsilon": 3}), "found epsilon in least or limits, and no privacy"),
    (tuner(least="epsilon"), "found epsilon in least or limits, and no privacy"),
    (tuner(limits={"bytes": "3 s"}), "tune.limits: bytes: found unit 's'"),
    (tuner(limits={"byte": 3}), "did you mean 'bytes'?"),
    (tuner(cap=0.5), "tune.cap: found 0.5"),
    (tuner(runs=0), "tune.runs: found 0"),
    ({**TUNER, "grid": {"seed": "0..3"}}, "found grid beside tune; allowed: tune.vary"),
    ({**TUNER, "compare": {"targets": {"error": 1}}}, "found compare.targets beside tune"),
    ({**TUNER, "set": {"algorithm.rho": 1}}, "found algorithm.rho in set, though tune varies it"),
    (STUDY, "tune: missing; allowed: a study file whose section tune"),
    (tuner(charge={"law": "geometric", "mean": 5}, runs=None), "tune: seeds: found '4 seeds'"),
    (tuner(charge={"law": "zipf", "mean": 5}), "tune.charge.law: found 'zipf'"),
    (tuner(charge={"law": "poisson", "mean": 1}), "tune.charge.mean: found 1"),
    (
        tuner(charge={"law": "poisson", "mean": 5}, runs=None, seeds=3, fresh=None, sampler="tpe"),
        "with charge random",
    ),
    (
        tuner(charge={"law": "geometric", "mean": 5}, runs=None, seeds=3, fresh=None, seed=None),
        "tune.charge: found the target error, which is computed from private rows",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "message"), REFUSED)
def test_mistakes_are_told_before_anything_is_played(wrong, message, tmp_path):
    with pytest.raises(InputError) as told:
        desim.tune(wrong, tmp_path / "t", workers=0)
    assert message in str(told.value)
    assert not (tmp_path / "t").exists()


def test_a_study_says_who_plays_a_tuner_s_file():
    with pytest.raises(InputError, match="desim tune plays this one"):
        desim.study(TUNER)


def test_samplers_that_are_not_installed_are_refused_in_words(monkeypatch):
    monkeypatch.setattr("desim.errors.find_spec", lambda name: None)
    with pytest.raises(
        InputError, match=r"sampler: needs the package optuna; pip install 'desim\[tune"
    ):
        desim.tune(tuner(sampler="tpe"))


def test_values_that_fit_alone_and_not_together_are_told():
    space = {"participation.uniform": [4, 2], "policy": ["all", {"quorum": 3}]}
    made = desim.tune(tuner(vary=space, sampler="grid", fresh=0, seeds=[1]), workers=0)
    table = made.candidates.set_index("label")
    invalid = table[table["status"] == "invalid"]
    assert list(invalid.index) == ["uniform 2, policy {quorum: 3}"]
    assert "quorum" in invalid["reason"].iloc[0]
    assert made.asked == 3


@pytest.fixture(scope="module")
def quick_processes():
    with forked():
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("quick_processes")
def test_workers_change_nothing(tmp_path):
    small = tuner(vary={"algorithm.local.epochs": [1, 2, 5]}, seeds="0..2", fresh=1, batch=2)
    same(desim.tune(small, tmp_path, workers=2), desim.tune(small, workers=0))


def _played(path):
    desim.tune(TUNER, path, workers=0)


@pytest.mark.slow
@pytest.mark.usefixtures("quick_processes")
def test_a_tuner_that_was_killed_goes_on(found, tmp_path):
    several = processes.multiprocessing.get_context("spawn")
    process = several.Process(target=_played, args=(tmp_path / "t",))
    process.start()
    runs = tmp_path / "t" / "runs"
    while process.is_alive() and not (runs.exists() and len(list(runs.iterdir())) > 7):
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.join()
    assert not (tmp_path / "t" / "best.yaml").exists()
    whole = desim.tune(TUNER, tmp_path / "t", workers=0)
    same(whole, found)
    assert whole.counts["stored"] >= 7
    assert json.loads((tmp_path / "t" / "study.json").read_text())["runs"]
