"""The study of how many runs a tuner needs: its page tells its numbers, its races are fair."""

import numpy as np
from scipy import stats

from analysis.reproductions import page
from analysis.studies import tuning
from analysis.studies.tuned_scenarios import SCENARIOS
from analysis.studies.unpaired import unpaired_worse
from desim.experiments.tuning.candidates import planned
from desim.experiments.tuning.search import worse


def test_the_page_tells_the_stored_numbers():
    rows = page.read(tuning.RESULTS / "tuning.csv", ["scenario", "sampler"])
    races = page.read(tuning.RESULTS / "tuning_races.csv", ["scenario"])
    text = tuning.PAGE.read_text("utf-8")
    assert tuning.found_table(rows) in text
    assert tuning.race_table(races) in text
    assert max(row["share"] for row in rows) <= tuning.SHARE


def test_scenarios_have_grids_of_the_sizes_that_are_told():
    sizes = {name: planned(tuning.tuner(name)).size for name in SCENARIOS}
    assert sizes == {"phones": 336, "digits": 450, "private": 300}


def test_unpaired_ranks_are_those_of_the_library():
    rng = np.random.default_rng(3)
    for shift in (0.0, 0.5, 3.0):
        values = rng.normal(size=(4, 9)) + shift * np.arange(4)[:, None]
        p = stats.kruskal(*values).pvalue
        found = unpaired_worse(values, 0.05)
        assert found.any() <= (p <= 0.05)
        assert not found[0].any() or shift == 0.0
    apart = np.stack([np.arange(9.0), np.arange(9.0) + 20])
    assert unpaired_worse(apart, 0.01).tolist() == [[False, False], [True, False]]


def test_a_race_ends_when_who_must_be_out_is_out():
    seeds = np.exp(np.random.default_rng(0).normal(size=40))
    values = np.stack([level * seeds for level in (1.0, 1.001, 2.0, 3.0)])
    must = np.array([False, False, True, True])
    common = tuning.raced(values, must, 0, worse)
    mixed = np.stack([np.roll(row, 7 * i) for i, row in enumerate(values)])
    own = tuning.raced(mixed, must, 0, unpaired_worse)
    assert common < own
    assert tuning.raced(values, must, 3, worse) == np.inf  # the best is out
    assert tuning.noise(values, 0) < 1e-20
    assert 0.5 < tuning.noise(mixed, 0) < 2.0
