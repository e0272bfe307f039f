"""Curves over seeds: which runs are one curve, its median and band, and what is thinned out."""

import numpy as np
import pytest
from mutant import mutant
from test_plots import ERROR, Course, drawn

from desim.errors import InputError
from desim.interface.plots import drawable, plot
from desim.interface.plots import drawable as drawable_module


class Seed(Course):
    """A run of a family."""

    def __init__(self, values, family="one", status="done", unit=1.0, name="one"):
        super().__init__(name, unit, error=values)
        self.alike, self.status = family, status
        self.manifest = {"seed": id(self)}


def check_band(module):
    """Values hold until the next; three seeds: least, middle and largest; half of the ends."""
    times = np.array([0.0, 1.0, 2.0]), np.array([0.0, 2.0, 4.0]), np.array([0.0, 1.5, 3.0])
    values = [np.array(one) for one in ([4.0, 3.0, 1.0], [4.0, 5.0, 9.0], [4.0, np.nan, 2.0])]
    at, low, middle, high = module.band(list(zip(times, values, strict=True)), rising=False)
    assert at.tolist() == [0.0, 1.0, 1.5, 2.0, 3.0]  # 3 s: half of the seeds have ended
    assert low.tolist() == [4.0, 3.0, 3.0, 1.0, 1.0]
    assert middle.tolist() == [4.0, 4.0, 4.0, 5.0, 2.0]
    np.testing.assert_array_equal(high, [4.0, 4.0, np.nan, np.nan, 5.0])


def test_a_band_is_that_of_values_held():
    check_band(drawable_module)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('side="right"', 'side="left"'),
        ("(len(where) - 1) // 2", "-1"),
        ("-np.inf if rising else np.inf", "0.0"),
        ("n - 1 - lowest", "n - 2 - lowest"),
    ],
)
def test_a_wrong_band_is_noticed(right, wrong):
    twin = mutant(drawable_module, right, wrong)
    with pytest.raises(AssertionError):
        check_band(twin)


def test_a_diverged_seed_is_the_worst_of_both_kinds_of_metric():
    courses = [(np.array([0.0]), np.array([value])) for value in (0.9, 0.5, np.nan)]
    assert drawable_module.band(courses, rising=True)[2].tolist() == [0.5]
    assert drawable_module.band(courses, rising=False)[2].tolist() == [0.9]


def test_many_seeds_have_a_band_of_their_middle():
    courses = [(np.array([0.0]), np.array([float(n)])) for n in range(21)]
    _, low, middle, high = drawable_module.band(courses, rising=True)
    assert [low[0], middle[0], high[0]] == [2.0, 10.0, 18.0]
    assert drawable_module.behind(21) == "median and middle 80 % of 21 seeds"
    assert drawable_module.behind(10) == "median and range of 10 seeds"


def test_runs_that_differ_in_their_seeds_are_one_curve(tmp_path):
    runs = [Seed(ERROR), Seed(ERROR, "two", name="two"), Seed(np.array(ERROR) * 3.0)]
    axes = plot(runs, out=tmp_path / "a.png")
    assert len(axes.lines) == 2
    np.testing.assert_allclose(drawn(axes)[0][:, 1], 2.0 * np.array(ERROR))
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert labels == ["one: median and range of 2 seeds", "two: one seed"]
    unknown = [Seed(ERROR, None), Seed(ERROR, None)]
    assert len(plot(unknown, out=tmp_path / "b.png").lines) == 2


def test_labels_make_groups_of_their_own(tmp_path):
    runs = {
        "fast": [Seed(ERROR), Seed(ERROR, "two")],
        "_$low": [Seed([1.0, 2.0], "three"), Seed(ERROR, "three")],
    }
    axes = plot(runs, out=tmp_path / "a.png")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["fast", r" _\$low"]
    assert axes.get_legend().get_title().get_text() == "median and range of 2 seeds"
    with pytest.raises(InputError, match="no run to plot"):
        plot({"none": []})


def check_failed(drawable):
    """A seed that failed is the worst from its last measurement on; one that was stopped is out."""
    ends = [("done", ERROR), ("failed", [1.0, 0.05]), ("stopped", [1.0]), ("done", ERROR)]
    runs = [Seed(values, status=status) for status, values in [*ends, ("failed", [])]]
    runs[-1].curves = {}
    (row,) = drawable(runs, "time", "error").rows
    at, low, middle, high = drawable_module.band(row.courses, rising=False)
    assert (len(row.courses), row.failed) == (4, 2)
    assert at.tolist() == [0.0, 1.0, np.nextafter(1.0, 2.0), 2.0, 3.0]
    assert middle.tolist()[:2] == [1.0, 0.1]  # of 1, 1, 1, worst; of .05, .1, .1, worst
    assert np.isnan(middle[2:]).all()  # of .1, .1, worst, worst
    assert np.isnan(high).all()
    assert low.tolist() == [1.0, 0.05, 0.1, 0.01, 0.001]


def test_seeds_that_failed_count_as_the_worst(tmp_path):
    check_failed(drawable.drawable)
    runs = [Seed(ERROR), Seed(ERROR), Seed([1.0, 1e9], status="failed")]
    runs.append(Seed([1.0], status="stopped"))
    axes = plot(runs, out=tmp_path / "a.png")
    assert drawn(axes)[0][0, 1] == 1.0
    legend = axes.get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["one (1 failed, 1 stopped)"]
    assert legend.get_title().get_text() == "median and range of 3 seeds, failed seeds as the worst"
    alone = plot([Seed([1.0, 1e9], status="failed")], out=tmp_path / "b.png")
    assert [text.get_text() for text in alone.get_legend().get_texts()] == ["one (failed)"]


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(*courses, *lost), len(lost)", "courses, len(lost)"),
        ("np.append(value, [np.nan, np.nan])", "np.append(value, value[[-1, -1]])"),
        ("np.array([0.0, until]), np.full(2, np.nan)", "np.array([0.0, until]), np.zeros(2)"),
    ],
)
def test_seeds_that_failed_and_vanish_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_failed(mutant(drawable, right, wrong).drawable)


def test_a_band_that_a_failed_seed_ends_goes_to_the_edge(tmp_path):
    runs = [Seed(ERROR), Seed(np.array(ERROR) * 2.0), Seed(np.array(ERROR) * 1.5)]
    axes = plot([*runs, Seed([1.0, 0.5], status="failed")], out=tmp_path / "a.png")
    tops = [one.get_datalim(axes.transData).y1 for one in axes.collections]
    assert max(tops) == pytest.approx(axes.get_ylim()[1])
    whole = plot(runs, out=tmp_path / "a.png")
    tops = [one.get_datalim(whole.transData).y1 for one in whole.collections]
    assert max(tops) < 0.99 * whole.get_ylim()[1]


def test_without_a_median_there_is_no_curve(tmp_path):
    nothing = Seed([], status="failed")
    nothing.curves = {}
    with pytest.raises(InputError, match="half of the seeds failed before there was a median"):
        plot([Seed(ERROR), nothing], metric="error", out=tmp_path / "a.png")
    assert not list(tmp_path.iterdir())


def test_a_failed_seed_that_cannot_be_read_is_not_the_worst(tmp_path):
    class Torn(Seed):
        @property
        def metrics(self):
            raise InputError("metrics.parquet is not the file that the run has left")

    with pytest.raises(InputError, match="not the file"):
        plot([Seed(ERROR), Torn([1.0], status="failed")], metric="error", out=tmp_path / "a.png")


def check_thinned(module):
    """What stays of a long curve has its ends, its spikes, and few points."""
    where = np.arange(100_000.0)
    value = np.sin(where / 3e4)
    value[[777, 55_555]] = [50.0, -50.0]
    value[60_000:60_010] = np.nan
    at, kept = module.thinned(where, value)
    assert len(at) <= 4 * module.BINS
    assert {0.0, 777.0, 55_555.0, 99_999.0} <= set(at)
    assert np.array_equal(kept, value[at.astype(int)], equal_nan=True)
    assert (np.diff(at) > 0.0).all()


def test_a_long_curve_keeps_what_can_be_seen():
    check_thinned(drawable_module)


@pytest.mark.parametrize("right", ["known.idxmin(), ", ", known.idxmax()"])
def test_a_spike_that_is_lost_is_noticed(right):
    twin = mutant(drawable_module, right, "")
    with pytest.raises(AssertionError):
        check_thinned(twin)
