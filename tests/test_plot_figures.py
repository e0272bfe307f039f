"""Figures other than curves: the numbers in them, and what is said where there are none."""

import numpy as np
import pandas as pd
import pytest
from mutant import mutant
from test_plots import ERROR, Course

from desim.errors import InputError
from desim.interface.plots import (
    bars,
    network,
    network_map,
    profiles,
    staleness,
    tradeoff,
    utilisation,
)
from desim.interface.plots import curves as epsilon_module
from desim.interface.plots.network_map import AGENTS


class Logged(Course):
    """A run with given tables."""

    budget = 4.0
    manifest = {"time": 10.0, "seed": 0}

    def __init__(self, name="one", **tables):
        super().__init__(name, error=ERROR)
        self.tables = tables

    def utilisation(self):
        return self.tables["utilisation"]

    def links(self):
        return self.tables["links"]

    def staleness(self):
        return pd.DataFrame({"staleness": self.tables["staleness"]})


def busy(n):
    computing = np.arange(n) % 5 * 2.0
    parts = {"agent": range(n), "computing": computing, "aborted": 0.0, "away": 0.0}
    return pd.DataFrame({**parts, "idle": 10.0 - computing})


def test_utilisation_is_a_share_of_the_time(tmp_path):
    axes = utilisation(Logged(utilisation=busy(4)), out=tmp_path / "a.png")
    widths = [patch.get_width() for patch in axes.patches]
    np.testing.assert_allclose(widths, [0, 20, 40, 60, 100, 80, 60, 40])
    many = utilisation(Logged(utilisation=busy(100)), out=tmp_path / "b.png")
    assert many.get_xlabel() == "agents, the busiest first"
    crowd = utilisation(Logged(utilisation=busy(5000)), out=tmp_path / "c.svg")
    assert (tmp_path / "c.svg").stat().st_size < 200_000
    first = crowd.collections[0].get_paths()[0].get_extents()
    np.testing.assert_allclose([first.x1, first.y1], [5000, 80])
    with pytest.raises(InputError, match="no virtual time has passed in run one"):
        utilisation(Logged(utilisation=busy(0)))


def test_staleness_is_counted(tmp_path):
    axes = staleness([Logged(staleness=[0, 0, 1, 3])], out=tmp_path / "a.png")
    assert [patch.get_height() for patch in axes.patches] == [50.0, 25.0, 0.0, 25.0]
    assert axes.get_legend().get_texts()[0].get_text() == "one: mean 1"
    wide = staleness([Logged(staleness=[0, 400])], out=tmp_path / "b.png")
    assert wide.get_ylabel() == "share of what was used (6 rounds together)"
    two = [Logged("old", staleness=[0, 2]), Logged("new", staleness=[0, 0])]
    both = staleness(two, out=tmp_path / "c.png")
    assert both.lines[0].get_ydata().tolist() == [0.0, 50.0, 50.0, 100.0, 100.0]
    with pytest.raises(InputError, match="nothing was used in run one"):
        staleness([Logged(staleness=[])])


def star(n):
    rows = [(-1, i, 1, 0.01 * i) for i in range(n)] + [(i, -1, 1, 0.02) for i in range(n)]
    return pd.DataFrame(rows, columns=["source", "target", "delivered", "on_the_way"])


def test_a_star_is_as_wide_as_its_calls_and_replies_are_long(tmp_path):
    axes = network(Logged(links=star(5)), out=tmp_path / "a.png")
    places = axes.collections[-1].get_offsets()
    np.testing.assert_allclose(np.hypot(*places.T), [20, 30, 40, 50, 60])
    crowd = network(Logged(links=star(AGENTS + 1)), out=tmp_path / "b.png")
    assert crowd.get_ylabel() == "links at most so slow (%)"
    with pytest.raises(InputError, match="no message arrived in run one"):
        network(Logged(links=star(2).assign(delivered=0)))


def check_spread(module):
    """A square whose sides s are to be 1 and diagonals 2: 4 (s - 1)^2 + (s sqrt 2 - 2)^2 / 2."""
    ends = np.array([[0, 1], [1, 2], [2, 3], [0, 3]])
    place = module.spread(ends, np.ones(4), 4)
    sides = [float(np.hypot(*(place[a] - place[b]))) for a, b in ends]
    np.testing.assert_allclose(sides, 0.8 + 0.2 * np.sqrt(2.0), rtol=1e-6)
    path = module.spread(ends[:3], np.array([1.0, 2.0, 4.0]), 4)
    assert np.hypot(*(path[0] - path[3])) == pytest.approx(7.0, rel=5e-3)


def test_distances_on_paper_are_those_of_the_graph():
    check_spread(network_map)


@pytest.mark.parametrize(
    ("right", "wrong"), [("** -2.0", "** -1.0"), ("weight * wanted", "wanted")]
)
def test_a_wrong_layout_is_noticed(right, wrong):
    twin = mutant(network_map, right, wrong)
    with pytest.raises(AssertionError):
        check_spread(twin)


def test_what_each_agent_has_spent(tmp_path):
    axes = epsilon_module.epsilon(Logged(), out=tmp_path / "a.png")
    ends = sorted(line.get_ydata()[-1] for line in axes.lines if len(line.get_ydata()) > 50)
    assert ends == [49.5, pytest.approx(74.25, abs=1.0), 99.0]
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["agent 0, who spends most", "median agent", "budget 4, eavesdropper"]
    assert "RDP" in axes.get_xlabel()
    endless = Logged()
    endless.terms = {"method": "RDP", "flags": ("infinite: released without noise",)}
    table = endless.epsilon().assign(epsilon=np.inf)
    endless.epsilon = lambda: table
    with pytest.raises(InputError, match="run one is infinite: released without noise"):
        epsilon_module.epsilon(endless)
    nothing = Logged()
    nothing.epsilon = lambda: table[:0]
    with pytest.raises(InputError, match="run one has released nothing"):
        epsilon_module.epsilon(nothing)


class Seed(Course):
    """A run of a family that meets an error of 0.01 after so many seconds, or never."""

    def __init__(self, family, after, status="done", algorithm="fed-plt", price=1.0):
        values = np.ones(12)
        values[after:] = 0.01
        super().__init__(family, error=values)
        self.alike, self.status, self.algorithm = family, status, algorithm
        self.manifest, self.price = {"seed": id(self)}, price
        self.known = {}

    @property
    def scenario(self):
        return self

    def written(self):
        return self.known

    def epsilon(self):
        frame = super().epsilon()
        attrs = frame.attrs
        frame = frame.assign(epsilon=frame["epsilon"] * self.price)
        frame.attrs = attrs
        return frame


def check_bars(module, folder):
    """Medians over seeds, those that never met it being infinite."""
    times = {"quick": (3, 4, 5), "split": (3, 4, 99), "slow": (6, 99, 99), "never": (99, 99)}
    runs = [Seed(name, after) for name, some in times.items() for after in some]
    axes = module.bars(runs, target=0.01, out=folder / "a.png")
    filled = [patch.get_width() for patch in axes.patches if not patch.get_hatch()]
    assert filled == [4.0, 4.0]
    words = [text.get_text() for text in axes.texts]
    assert words == ["4 s", "4 s; met in 2 of 3 seeds", "met in 1 of 3 seeds",
                     "not reached by 11 s"]  # fmt: skip


def test_bars_are_medians_and_never_is_said(tmp_path):
    check_bars(profiles, tmp_path)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(metric, value, target)", "(metric, value, 0.5 * target)"),
        ("else np.inf", "else where[-1]"),
    ],
)
def test_wrong_bars_are_noticed(tmp_path, right, wrong):
    twin = mutant(profiles, right, wrong)
    with pytest.raises(AssertionError):
        check_bars(twin, tmp_path)


def test_a_target_that_holds_at_once_takes_no_time(tmp_path):
    axes = bars([Course(error=ERROR)], target=2.0, out=tmp_path / "a.png")
    assert [text.get_text() for text in axes.texts] == ["0 s"]


def test_bars_need_a_target():
    with pytest.raises(InputError, match=r"the best that a run reached: 0\.001 to 0\.001"):
        bars([Course(error=ERROR), Course(error=[10.0, 9.0, 11.0])])
    with pytest.raises(InputError, match="no run ended better than it began"):
        bars([Course(error=[10.0, 9.0, 11.0])])


def test_privacy_has_its_price(tmp_path):
    runs = [Seed(str(price), 5, price=price) for price in (0.01, 0.1, np.inf)]
    for run in runs:
        run.known = {"algorithm": {"name": "fed-plt"}, "privacy": {"noise": run.price}}
    axes = tradeoff(runs, out=tmp_path / "a.png")
    assert axes.get_xscale() == "log"
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [0.99, 9.9])
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 0.01)
    assert axes.get_xticklabels()[-1].get_text() == "$\\infty$"
    with pytest.raises(InputError, match="no run has an epsilon that is finite"):
        tradeoff(runs[2:])


def test_bars_count_seeds_that_failed_as_never(tmp_path):
    runs = [Seed("one", 3), *(Seed("one", 99, "failed") for _ in range(2))]
    axes = bars(runs, target=0.01, out=tmp_path / "a.png")
    assert [text.get_text() for text in axes.texts] == ["met in 1 of 3 seeds"]


def test_the_price_says_how_many_seeds_are_in_no_mean(tmp_path):
    runs = [Seed("one", 3), Seed("one", 3), Seed("one", 3, "failed")]
    title = tradeoff(runs, out=tmp_path / "a.png").get_legend().get_title().get_text()
    assert title.endswith("\nwithout 1 that failed or diverged")


def test_what_lacks_a_metric_is_named_in_the_legend(tmp_path):
    from desim.interface.plots import plot

    empty = Course("empty")
    empty.status = "failed"
    axes = plot([Course(error=ERROR), empty, Course("other", loss=ERROR)], metric="error",
                out=tmp_path / "a.png")  # fmt: skip
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "one", "empty (failed): no error recorded", "other: no error recorded",
    ]  # fmt: skip
    assert len(axes.get_legend().get_texts()) == 3
    with pytest.raises(InputError, match="no metric is recorded"):
        plot([empty])
