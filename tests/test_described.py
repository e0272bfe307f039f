"""Every column of every table of a run is described, and nothing else is."""

import pytest
from mutant import mutant

import desim
from desim.experiments.studies.answers import ecdf
from desim.experiments.studies.trials import trials
from desim.log import column_meanings
from desim.log.schemas import FIELDS
from desim.network.timeline.record import Kind
from desim.scenario.sections.observe_and_stop import METRICS

SCENARIO = {
    "name": "small",
    "problem": {
        "agents": 3,
        "data": {
            "source": "synthetic",
            "kind": "classification",
            "rows": 8,
            "dim": 4,
            "test": "own",
        },
        "loss": "logistic",
        "regularizer": {"l2": 0.1},
    },
    "algorithm": {"name": "fed-plt", "rho": 1.0},
    "network": {"link": {"latency": "10 ms", "loss": "20 %"}},
    "privacy": {"noise": {"kind": "gaussian", "sigma": 0.1}, "delta": 1e-5},
    "observe": {"metrics": ["error", "loss", "client_accuracy", "client_loss"]},
    "stop": {"rounds": 3},
}
SCENARIO["algorithm"]["local"] = {"solver": "noisy", "epochs": 2}
SCENARIO["problem"]["clip"] = 1.0
SCENARIO["compute"] = {"power": {"idle": "1 W"}}
SCENARIO["battery"] = {"capacity": "1 Wh"}


@pytest.fixture(scope="module")
def run():
    return desim.run(SCENARIO)


@pytest.fixture(scope="module")
def frames(run):
    clock = desim.clock_errors(run, run)
    both = desim.compare({"one": [run], "two": [run]}, {"error": 0.9}, profile=True)
    return {
        "ert": both.ert,
        "profile": both.profile,
        "ecdf": ecdf(trials({"one": [run], "two": [run]}, {"error": [0.9]})),
        "clock_messages": clock.messages,
        "clock_computations": clock.computations,
        "clock_rounds": clock.rounds,
        "events": run.events,
        "metrics": run.metrics,
        "releases": run.releases,
        "curve": run.curve("error"),
        "delivered": run.delivered(),
        "epsilon": run.epsilon(),
        "pairwise": run.pairwise(over_time=True),
        "critical_path": run.critical_path(),
        "waits": run.waits(),
        "utilisation": run.utilisation(),
        "energy": run.energy(),
        "charge": run.charge(),
        "clients": run.clients(),
        "fairness": run.fairness(),
        "links": run.links(),
        "staleness": run.staleness(),
        "participation": run.participation(),
    }


def check_complete(module, frames):
    """Each column of a frame has a meaning, each meaning a column."""
    for name, frame in frames.items():
        assert list(module.COLUMNS[name]) == list(frame), name
        assert len(frame), name


def test_every_column_is_described(frames):
    check_complete(column_meanings, frames)
    assert column_meanings.ROWS.keys() == column_meanings.COLUMNS.keys()
    assert column_meanings.ROWS.keys() == {*frames, "comparison", "runs", "summary", "comparisons"}
    stored = {table: list(fields) for table, fields in FIELDS.items()}
    assert {table: list(column_meanings.COLUMNS[table]) for table in stored} == stored


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('"seq": ("", "number', '"sec": ("", "number'),
        ('"scale": ("", "of the', '"s": ("", "of the'),
    ],
)
def test_a_column_without_description_is_noticed(frames, right, wrong):
    with pytest.raises(AssertionError):
        check_complete(mutant(column_meanings, right, wrong), frames)


def test_kinds_and_metrics_are_those_of_the_log():
    assert list(column_meanings.KINDS) == [kind.name.lower() for kind in Kind]
    assert list(column_meanings.METRICS) == list(METRICS)


def test_frames_carry_their_description(frames):
    about = frames["waits"].attrs
    assert about["units"] == {"time": "s", "waited": "s"}
    assert about["columns"]["waited"] == "how long"
    assert about["row"].startswith("one wait")
    assert frames["epsilon"].attrs["view"] == "eavesdropper"
    assert frames["epsilon"].attrs["units"] == {"time": "s"}
    assert frames["releases"].attrs["units"] == {"time": "s", "sampling": "fraction of rows"}


def test_a_part_of_a_table_describes_that_part(run):
    part = run.store.table("events", ["time", "kind"])
    assert list(part.attrs["columns"]) == ["time", "kind"]


def test_tables_of_a_study_are_described():
    made = desim.study({"base": SCENARIO, "grid": {"algorithm.rho": [1.0, 2.0]}}, workers=0)
    for name in ("summary", "comparisons"):
        assert list(made.tables[name]) == list(made.tables[name].attrs["columns"]), name
    assert made.runs.attrs["columns"].keys() <= set(made.runs)
