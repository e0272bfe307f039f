"""Studies on measured networks: every contestant can be played, and a passage is what it says."""

import gc

import numpy as np
import pytest

from analysis.reproductions import page
from analysis.reproductions.monte_carlo import simulations
from analysis.studies import admm_on_real_networks as admm
from analysis.studies import curves
from analysis.studies import quantised_on_phones as phones


@pytest.fixture
def data(shared, monkeypatch):
    """The folder of measurements, where the scenarios look for it."""
    monkeypatch.setenv("DESIM_DATA", str(shared / "data"))
    return shared / "data"


@pytest.mark.slow
def test_every_way_of_waiting_can_be_played_everywhere(data, tmp_path):
    for name, place in admm.places(data, tmp_path).items():
        short, ends = place._replace(seconds=1.5, brief=1.5), {}
        for way in admm.WAYS:
            point = admm.Point(0.1, 0.5)
            [made] = simulations(admm.case(short, way, point), [1])
            engines = {"all": "compiled", "deadline": "cohort", "each": "agents"}
            assert made.engine == engines[way]
            assert made.problem.agents == 28
            values = admm.reach(short)(made)
            assert values.shape == (2 + curves.POINTS,)
            ends[way] = values[-1]
            assert 0.0 < values[-1] < values[2]
        assert ends["each"] < ends["all"], name


def test_a_backbone_delays_by_the_speed_of_light(data, tmp_path):
    place = admm.places(data, tmp_path)["backbone"]
    [made] = simulations(admm.case(place, "all", admm.Point(0.1)), [1])
    links = made.settings.links
    assert links.ends.shape == (2, 2 * 41)
    assert 0.0003 < links.wires[0].min() < links.wires[0].max() < 0.01


@pytest.mark.slow
def test_every_contestant_on_phones_can_be_played(data):
    sent = []
    for one in phones.CONTESTANTS:
        assert len(phones.points(one)) == 8
        [made] = simulations(phones.case(one, phones.points(one)[2], 1.0), [1])
        values = phones.REACH(made)
        assert np.isfinite(values[2])
        assert np.isnan(values[-1])
        bits = made.method.parameters
        sent.append((one.bits, made.problem.dim, getattr(bits, "bits", None)))
        del made, bits
        gc.collect(1)  # else all of them are there together
    assert sent[2:] == [(s, 39760, s) for s in (16, 8, 4, 3)]


class Played:
    """A simulation that plays given tables."""

    def __init__(self, time, value, sends, status="done", ends=10.0):
        self.tables, self.status, self.time = (time, value, sends), status, ends

    def play(self, sink):
        time, value, sends = self.tables
        sink.append("metrics", {"time": time, "value": value, "agent": [-1] * len(time)})
        codes = np.full(len(sends), int(curves.Kind.SEND), np.int8)
        kind = type("W", (), {"codes": codes})
        sink.append("events", {"kind": kind, "time": sends, "bytes": [500] * len(sends)})
        return self


def test_a_passage_is_the_first_time_and_the_bytes_until_then():
    time, sends = [0.0, 2.0, 4.0, 6.0, 10.0], [1.0, 4.0, 5.0]
    falls = curves.passage(Played(time, [1, 0.5, 0.1, 0.2, 0.05], sends), target=0.1, seconds=10.0)
    assert falls[:2].tolist() == [4.0, 1.0]
    assert falls[2 + 12 * 3] == 0.5  # at 3 s
    rises = curves.passage(
        Played(time, [0, 0.5, 0.8, 0.9, 0.7], sends), target=0.85, seconds=10.0, rises=True
    )
    assert rises[:2].tolist() == [6.0, 1.5]
    never = curves.passage(
        Played([0.0, 2.0], [1.0, 9.0], sends, "failed", 3.0), target=0.1, seconds=10.0
    )
    assert np.isinf(never[[0, 1, -1]]).all()
    assert np.isnan(curves.passage(Played([0.0], [1.0], [], ends=5.0), 0.1, 10.0)[-1])
    assert never[2 + 12 * 2] == 9.0


def test_tables_and_figures_of_given_numbers(tmp_path):
    rng = np.random.default_rng(1)
    values = np.exp(rng.normal(size=(12, 2 + curves.POINTS)))
    found = {("x", way): values * (1 + n) for n, way in enumerate(admm.WAYS)}
    made = list(admm.rows(dict.fromkeys(found, admm.Point(0.1, 0.2)), found))
    assert [row["seconds_ratio"] for row in made] == [1.0, 2.0, 3.0]
    found[("x", "each")] = np.full_like(values, np.inf)
    made = list(admm.rows(dict.fromkeys(found, admm.Point(0.1)), found))
    assert made[2]["reached"] == 0
    assert made[2]["seconds"] == np.inf
    chosen = dict.fromkeys(phones.CONTESTANTS, phones.Point(1.0, 0.5))
    rows = list(phones.rows(chosen, dict.fromkeys(chosen, values)))
    assert len(rows) == len(phones.CONTESTANTS)
    lines = dict.fromkeys(("a", "b"), values)
    curves.draw([curves.Panel("one", 3.0, lines)] * 2, tmp_path / "x.svg", "error", 1e-3)
    assert (tmp_path / "x.svg").stat().st_size > 5000
    page.write_csv(tmp_path, "x", rows)
    assert (tmp_path / "x.csv").read_text().count("\n") == 1 + 6
