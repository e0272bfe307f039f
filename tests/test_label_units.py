"""Labels of runs name the unit of a duration or a rate, as resolved scenarios hold it."""

from types import SimpleNamespace

import pytest
from mutant import mutant
from study_scenes import BASE

from desim.runs.reading import series
from desim.scenario.load import load


def named(module, key, values):
    """Labels of runs that differ in one key, whose scenarios are resolved from text."""
    some = [load({**BASE}, overrides={key: value}) for value in values]
    runs = [SimpleNamespace(name="small", scenario=one, directory=None) for one in some]
    return [text.removeprefix("small: ") for text in module.labels([[run] for run in runs])]


UNLIKE = [
    ("network.link.latency", ["3 ms", 0.28], ["latency 3 ms", "latency 280 ms"]),
    ("network.link.bandwidth", ["1 Mbit/s", 2e9], ["bandwidth 1 Mbit/s", "bandwidth 2 Gbit/s"]),
    ("network.link.timeout", ["1 s", "20 min"], ["timeout 1 s", "timeout 20 min"]),
    ("compute.speed", ["50 /s", "2 /ms"], ["speed 50 /s", "speed 2000 /s"]),
    ("policy.deadline", ["10 ms", 2], ["deadline 10 ms", "deadline 2 s"]),
    ("stop.time", ["50 s", 300], ["time 50 s", "time 300 s"]),
    ("algorithm.rho", [1, 2.5], ["rho 1", "rho 2.5"]),
]


@pytest.mark.parametrize(("key", "values", "told"), UNLIKE)
def test_a_label_has_units(key, values, told):
    assert named(series, key, values) == told


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("{value * factor:.6g} {name}", "{value:.6g} {name}"),
        ('UNITS.get(place[0], {}).get(place[-1], "")', '""'),
    ],
)
def test_a_label_in_a_wrong_unit_is_noticed(right, wrong):
    key, values, told = UNLIKE[0]
    assert named(mutant(series, right, wrong), key, values) != told
