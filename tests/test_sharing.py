"""Runs of a study that share a training have the bits and files of runs played one by one."""

import json
import os
from functools import partial
from itertools import product

import pandas as pd
import pytest
from cases import CASES, graph, star
from forked import forked
from mutant import mutant
from study_scenes import BASE, changed
from test_study_runs import NOISY

import desim
from desim.experiments.pool import Turns
from desim.experiments.studies import study as studies
from desim.experiments.studies import work
from desim.experiments.studies import work as jobs
from desim.experiments.studies.study import plan, study
from desim.runs import retime
from desim.runs.likeness import obstacles
from desim.runs.retime import examined

LINKS = [
    {"link": {"latency": "5 ms", "jitter": {"lognormal": 0.5}}},
    {"link": {"latency": "80 ms", "bandwidth": "50 kbit/s", "loss": "10 %"}},
    {"include": "satellite"},
    {"link": {"loss": "60 %", "limit": 1}},  # fails
]
SPEEDS = [100, {"lognormal": [300, 0.7]}]
MANY = changed(
    base={**BASE, "log": "messages"}, set=NOISY,
    grid={"network": LINKS, "compute.speed": SPEEDS, "seed": [0, 1]},
    compare={"targets": {"error": [0.5, 1e-9]}},
)  # fmt: skip
TAKEN = ("wall_seconds", "compile_seconds", "counts", "retimed")


@pytest.fixture(autouse=True)
def always(monkeypatch):
    """Every training is long enough to be shared, and to tell it always takes less."""
    monkeypatch.setattr(retime, "seconds", lambda run: 1.0)


def manifest(place):
    found = json.loads((place / "manifest.json").read_text())
    counts = {name: n for name, n in found["counts"].items() if name != "play_seconds"}
    return {name: found[name] for name in found if name not in TAKEN} | counts


def check_same(written, folder, workers=0):
    """The study with shared trainings is the one without, in this process; return it."""
    told = study(written, folder / "told", workers=workers)
    alone = study(written, folder / "alone", workers=0, share=False)
    assert not alone.shared
    pd.testing.assert_frame_equal(told.runs.drop(columns="wall"), alone.runs.drop(columns="wall"))
    for name in ("summary", "comparisons"):
        pd.testing.assert_frame_equal(told.tables[name], alone.tables[name])
    for place in (folder / "told" / "runs").iterdir():
        other = folder / "alone" / "runs" / place.name
        assert sorted(os.listdir(place)) == sorted(os.listdir(other))
        assert manifest(place) == manifest(other)
        for file in place.iterdir():
            assert (
                file.name == "manifest.json"
                or file.read_bytes() == (other / file.name).read_bytes()
            )
    return told


@pytest.mark.slow
def test_runs_that_share_a_training_have_the_files_of_runs_played_alone(tmp_path):
    made = check_same(MANY, tmp_path)
    first = {case.seeds: case for case in reversed(made.plan.cases)}[0, 1]
    roots = [made.plan.keys[first.number, seed] for seed in first.seeds]
    assert made.shared == dict.fromkeys(roots, 5)  # the first has no other network, one fails
    failed = made.runs[made.runs["status"] == "failed"]
    assert len(failed) == 4
    for key, one in made.results.items():
        retimed = made.run(key).manifest.get("retimed")
        assert retimed is None or retimed["run"] == one.root
        assert (retimed is None) == (key in roots or key in set(failed["run"]))


TWO = ["5 ms", "50 ms"]


def check_later_cases(base, folder, change, shared=False):
    """The study of one network, played before `change()`, shares nothing with that of two.

    shared: but they share what is played again.
    """
    links = [{"network.link.latency": some} for some in (TWO[:1], TWO)]
    first, both = ({"name": "s", "base": base, "grid": one} for one in links)
    study(first, folder / "told", workers=0)
    change()
    made = study(both, folder / "told", workers=0)
    alone = study(both, folder / "alone", workers=0, share=False)
    assert bool(made.shared) == shared
    for name, number in product(("state.npz", "metrics.parquet"), (0, 1) if shared else (1,)):
        places = (one.directory / "runs" / made.runs["run"][number] / name for one in (made, alone))
        assert next(places).read_bytes() == next(places).read_bytes()


def test_other_data_are_another_training(tmp_path):
    def write(sign):
        rows = [f"{sign * i % 7},{i % 5},{'yes' if i % 2 else 'no'}" for i in range(24)]
        (tmp_path / "d.csv").write_text("\n".join(["a,b,y", *rows]))

    data = {"source": "csv", "file": str(tmp_path / "d.csv"), "label": "y", "positive": "yes"}
    write(1)
    check_later_cases(star(problem={"data": data}), tmp_path, lambda: write(-1), shared=True)


def test_perhaps_another_plugin_and_other_libraries_are_another_training(tmp_path, monkeypatch):
    text = "from desim.methods.zcdp_nfl import ZcdpNfl\nclass Own(ZcdpNfl):\n    name = 'own'\n"
    (tmp_path / "own.py").write_text(text)
    own = {"name": "own", "rho": 0.4, "eta": 0.2}
    base = graph(plugins=[str(tmp_path / "own.py")], algorithm=own)
    check_later_cases(base, tmp_path / "plugin", lambda: None)
    found = retime.versions() | {"numpy": "1.0"}
    other = partial(monkeypatch.setattr, retime, "versions", lambda: found)
    check_later_cases(star(), tmp_path / "versions", other)


@pytest.mark.slow
def test_on_two_processes_and_a_second_time_it_is_the_same(tmp_path):
    with forked():
        written = changed(grid={**MANY["grid"], "network": LINKS[:3]})
        made = check_same(written, tmp_path, workers=2)
        again = study(made.plan.study.written(), tmp_path / "told", workers=2)
    assert again.shared == made.shared
    pd.testing.assert_frame_equal(again.runs, made.runs)


@pytest.mark.thin(2)
@pytest.mark.parametrize("scenario", [graph(), star(observe={"every": "80 ms"})])
def test_graphs_and_metrics_by_time_share_too(scenario, tmp_path):
    written = {"name": "s", "base": scenario, "grid": {"network.link.latency": ["9 ms", "90 ms"]}}
    assert list(check_same(written, tmp_path).shared.values()) == [1]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('("network", "compute", "seed")', '("network", "compute", "seed", "algorithm")'),
        ("repr((shared, scenario.network.topology))", "repr(sorted(shared))"),
    ],
)
def test_families_that_are_too_large_are_noticed(right, wrong, tmp_path, monkeypatch):
    written = changed(grid={"algorithm.rho": [0.5, 1.0], "seed": [0]}, compare={})
    careless = mutant(retime, right, wrong)
    monkeypatch.setattr(studies, "training_of", careless.training_of)
    with pytest.raises(AssertionError):
        check_same(written, tmp_path)


def test_warnings_that_another_network_brings_are_told(tmp_path):
    links = [{"link": {"latency": "5 ms"}}, {"link": {"latency": "0 s", "bandwidth": "inf"}}]
    base = graph(network={"topology": "ring"})
    written = {"name": "s", "base": base, "grid": {"network": [{"topology": "ring", **one} for one
               in links]}, "set": {"compute.speed": "inf"}}  # fmt: skip
    made = check_same(written, tmp_path)
    found = [made.run(key).manifest["warnings"] for key in made.runs["run"]]
    assert len(found[1]) > len(found[0])
    assert not made.shared


REFUSED = [
    star(policy={"deadline": "120 ms"}),
    star(policy="each"),
    graph(policy={"deadline": "90 ms"}),
    star(stop={"time": "1 s"}),
    graph(stop={"metric": {"error": 5.0}}),
    star(churn={"up": "3 s", "down": "1 s"}),
    graph(observe={"iterates": False}),
    star(observe={"iterates": False, "every": "1 s"}),
]


@pytest.mark.parametrize("scenario", REFUSED)
def test_where_delays_may_change_models_everything_is_played(scenario, tmp_path):
    written = {"name": "s", "base": scenario, "grid": {"network.link.latency": ["9 ms", "90 ms"]}}
    assert [job.family for job in plan(written).jobs] == ["", ""]


def test_what_only_the_program_knows_is_played_too(tmp_path):
    """Nobody can say of ipp-admm before it is played that its agents decide by values."""
    written = {"name": "s", "base": CASES["ipp-admm"], "grid": {"compute.speed": [100, 300]}}
    assert len({job.family for job in plan(written).jobs}) == 1
    assert not check_same(written, tmp_path).shared


@pytest.mark.slow
def test_a_run_that_is_told_slower_than_played_is_the_last(tmp_path, monkeypatch):
    monkeypatch.setattr(retime, "seconds", lambda run: 2.0 if "retimed" in run.manifest else 1.0)
    assert list(study(MANY, tmp_path / "a", workers=0).shared.values()) == [1, 1]
    monkeypatch.setattr(retime, "seconds", lambda run: 0.9 * retime.WORTH)
    assert not study(MANY, tmp_path / "b", workers=0).shared


def test_a_study_says_who_shares(tmp_path):
    made = study(MANY, tmp_path, workers=0)
    roots = list(made.shared)
    assert made.text().splitlines()[2:4] == [
        f"  5 runs share the training of {key}, with the same bits" for key in roots
    ]


def test_nothing_is_kept_when_a_study_ends(tmp_path):
    study(MANY, tmp_path, workers=0)
    assert not work._roots


def check_turns(module):
    """Two processes: roots first, then one's own family, then what others have begun."""
    made = [
        jobs.Job(f"{kin}{n}", {}, n, "", None, "", family=kin) for kin in "ab" for n in range(3)
    ]
    made = jobs.families([*made[::2], *made[1::2], jobs.Job("c", {}, 0, "", None, "")])
    assert [job.key for job in made] == ["a0", "a2", "a1", "b1", "b0", "b2", "c"]
    waiting = module.Turns(made)
    assert [waiting.take("")[0].key for _ in range(3)] == ["a0", "b1", "c"]
    assert (waiting.take("a0"), len(waiting)) == (None, 4)
    waiting.heard("a0")
    assert [waiting.take(root)[0].key for root in ("a0", "b1")] == ["a2", "a1"]
    assert waiting.take("a0") is None
    waiting.heard("b1")
    assert [waiting.take(root)[0].key for root in ("", "b1")] == ["b0", "b2"]
    waiting.again(made[0], 1)
    assert waiting.take("b1") == (made[0], 1)
    assert not waiting


def test_who_shares_a_training_comes_after_who_has_it():
    check_turns(__import__("desim.experiments.pool", fromlist=["Turns"]))
    with pytest.raises(AssertionError):
        check_turns(mutant(__import__("desim.experiments.pool", fromlist=["Turns"]),
                           "job.root != job.key", "False"))  # fmt: skip
    stored = [jobs.Job("a1", {}, 0, "", None, "", family="a", root="a0")]
    assert Turns(stored).take("")[0].key == "a1"


def test_a_run_in_memory_is_told_after_another():
    made = study(MANY, workers=0)
    assert list(made.shared.values()) == [5, 5]
    root = desim.run(BASE)
    assert obstacles(root) == []
    assert examined(root) is examined(root)
