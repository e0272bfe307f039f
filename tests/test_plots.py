"""Figures: the numbers that are drawn, their units and scales; how they look is seen by eye."""

from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
import pytest
from mutant import mutant

from desim import amounts
from desim.errors import InputError
from desim.interface import plots
from desim.interface.plots import drawable, plot, style
from desim.runs.reading import series
from desim.runs.store import Memory


class Course:
    """A run with given curves; every message has 500 B and arrives at 1, 2, 3, ... s."""

    directory = None
    status = "done"
    store = Memory(None, {})
    manifest = {"seed": 0}
    alike = None
    algorithm = "fed-plt"
    terms = {"method": "RDP", "flags": ()}

    def __init__(self, name="one", unit=1.0, **curves):
        self.name = name
        self.curves = curves
        self.unit = unit

    @property
    def scenario(self):
        raise InputError("no scenario")

    @property
    def metrics(self):
        return pd.DataFrame({"metric": list(self.curves)})

    def curve(self, metric):
        if metric not in self.curves:
            raise InputError(f"metric {metric!r} is not in run {self.name}")
        values = np.asarray(self.curves[metric], float)
        rounds = np.arange(len(values))
        return pd.DataFrame({"time": rounds * self.unit, "round": rounds, "value": values})

    def delivered(self):
        return pd.DataFrame({"time": np.arange(1.0, 100.0), "bytes": 500})

    def epsilon(self):
        """Two agents release at 1, 2, ... s; agent 1 spends half as much as agent 0."""
        time = np.repeat(np.arange(1.0, 100.0), 2)
        share = np.tile([1.0, 0.5], 99)
        frame = pd.DataFrame({"time": time, "agent": 1 * (share < 1.0), "epsilon": time * share})
        frame.attrs = {"view": "eavesdropper", "relation": "agent", "delta": 1e-5} | self.terms
        return frame


ERROR = [1.0, 0.1, 0.01, 0.001]


def drawn(axes):
    return [line.get_xydata() for line in axes.lines]


@pytest.mark.thin(2)
@pytest.mark.parametrize("suffix", ["png", "pdf", "svg"])
def test_a_figure_is_a_file(tmp_path, suffix):
    path = tmp_path / f"figure.{suffix}"
    plot([Course(error=ERROR)], out=path)
    start = {"png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml"}[suffix]
    assert path.read_bytes().startswith(start)


def check_bytes(folder):
    """What arrived until a row was true, arrivals of that instant included, in kB."""
    axes = plot([Course(error=ERROR)], x="bytes", out=folder / "a.png")
    np.testing.assert_allclose(drawn(axes)[0][:, 0], [0.0, 0.5, 1.0, 1.5])
    assert axes.get_xlabel() == "data delivered (kB)"


def test_bytes_are_those_that_arrived(tmp_path):
    check_bytes(tmp_path)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("home", "module", "name", "right", "wrong"),
    [
        (drawable, series, "delivered", 'side="right"', 'side="left"'),
        (drawable, series, "delivered", "np.cumsum(", "np.asarray("),
        (style, amounts, "best_unit", "float(1 / WORTH[name])", "float(WORTH[name])"),
    ],
)
def test_wrong_bytes_are_noticed(tmp_path, monkeypatch, home, module, name, right, wrong):
    monkeypatch.setattr(home, name, getattr(mutant(module, right, wrong), name))
    with pytest.raises(AssertionError):
        check_bytes(tmp_path)


def check_epsilon(folder):
    """What the agent that spends most has spent until a row was true, and in which terms."""
    axes = plot([Course(error=ERROR)], x="epsilon", out=folder / "a.png")
    np.testing.assert_allclose(drawn(axes)[0][:, 0], [0.0, 1.0, 2.0, 3.0])
    assert axes.get_xlabel().endswith("\n$\\delta$ = 1e-05; eavesdropper; agent; RDP")


def test_epsilon_is_that_of_the_agent_that_spends_most(tmp_path):
    check_epsilon(tmp_path)


@pytest.mark.thin(2)
@pytest.mark.parametrize(
    ("home", "module", "name", "right", "wrong"),
    [
        (drawable, drawable, "course", "np.maximum.accumulate(", "np.asarray("),
        (drawable, series, "Meter", 'side="right"', 'side="left"'),
        (drawable, drawable, "terms", '("view", "relation", "method")', '("view", "method")'),
    ],
)
def test_a_wrong_epsilon_is_noticed(tmp_path, monkeypatch, home, module, name, right, wrong):
    monkeypatch.setattr(home, name, getattr(mutant(module, right, wrong), name))
    with pytest.raises(AssertionError):
        check_epsilon(tmp_path)


def test_epsilons_about_different_things_share_no_axis(tmp_path):
    one, other = Course("one", error=ERROR), Course("other", error=ERROR)
    plot([one, other], x="epsilon", out=tmp_path / "a.png")
    other.terms = {**other.terms, "delta": 1e-3}
    with pytest.raises(InputError, match="about different things"):
        plot([one, other], x="epsilon", out=tmp_path / "b.png")


def test_an_infinite_epsilon_has_no_place_on_an_axis(tmp_path):
    course = Course(error=ERROR)
    endless = course.epsilon()
    endless.loc[3, "epsilon"] = np.inf
    endless.attrs["flags"] = ("optimistic", "infinite: released without noise (agent 0)")
    course.epsilon = lambda: endless
    with pytest.raises(InputError, match="run one is infinite: released without noise"):
        plot([course], x="epsilon", out=tmp_path / "a.png")


@pytest.mark.parametrize(
    ("unit", "label", "last"),
    [(1e-4, "µs", 300), (0.1, "ms", 300), (10.0, "s", 30), (600.0, "min", 30), (36000, "h", 30)],
)
@pytest.mark.thin(3)
def test_time_is_shown_in_the_unit_that_reads_best(tmp_path, unit, label, last):
    axes = plot([Course(error=ERROR, unit=unit)], out=tmp_path / "a.png")
    assert axes.get_xlabel() == f"virtual time ({label})"
    assert drawn(axes)[0][-1, 0] == pytest.approx(last)


def test_rounds_are_whole_and_have_no_unit(tmp_path):
    axes = plot([Course(error=ERROR, unit=0.01)], x="round", out=tmp_path / "a.png")
    assert axes.get_xlabel() == "round"
    assert drawn(axes)[0][:, 0].tolist() == [0, 1, 2, 3]
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_errors_are_logarithmic_and_accuracies_in_percent(tmp_path):
    error = plot([Course(error=ERROR)], out=tmp_path / "a.png")
    accuracy = plot([Course(accuracy=[0.5, 0.9])], out=tmp_path / "b.png")
    flat = plot([Course(error=[1.0, 0.9])], out=tmp_path / "c.png")
    nought = plot([Course(error=[0.0, 0.0])], out=tmp_path / "d.png")
    scales = [axes.get_yscale() for axes in (error, accuracy, flat, nought)]
    assert scales == ["log", "linear", "linear", "linear"]
    assert accuracy.yaxis.get_major_formatter()(0.925, None) == "92.5 %"
    assert "error" in error.get_ylabel()


def test_a_curve_that_diverges_leaves_the_figure(tmp_path):
    wild = [1.0, 1e50, 1e272, np.inf, np.nan]
    axes = plot([Course(error=wild)], out=tmp_path / "a.png")
    assert np.isfinite(drawn(axes)[0][:, 1]).tolist() == [True, True, False, False, False]
    plot([Course(error=[np.nan, np.inf])], out=tmp_path / "b.png")


def test_accuracy_is_the_first_choice_among_shared_metrics(tmp_path):
    both = Course(error=ERROR, accuracy=[0.5, 0.6])
    assert plots.shared_metric([both]) == "accuracy"
    assert plots.shared_metric([both, Course(error=ERROR, loss=ERROR)]) == "error"
    with pytest.raises(InputError, match="no metric in common"):
        plots.shared_metric([both, Course(loss=ERROR)])


def test_runs_are_told_apart(tmp_path):
    runs = [Course(str(n), error=np.array(ERROR) * (1 + n)) for n in range(9)]
    axes = plot(runs, out=tmp_path / "a.png")
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == 9
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list("012345678")
    assert plot(runs[:1], out=tmp_path / "b.png").get_legend() is None


def test_runs_of_one_name_go_by_their_directories(tmp_path):
    runs = [Course("same", error=ERROR), Course("same", error=ERROR[::-1])]
    runs[0].directory, runs[1].directory = Path("runs/a"), Path("runs/b")
    axes = plot(runs, out=tmp_path / "a.png")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["runs/a", "runs/b"]


def test_long_labels_wrap(tmp_path):
    label = " ".join(["word"] * 30)
    axes = plot({label: [Course(error=ERROR)], "b": [Course(error=[2.0])]}, out=tmp_path / "a.png")
    text, short = (one.get_text() for one in axes.get_legend().get_texts())
    assert text.split() == label.split()
    assert max(map(len, text.split("\n"))) < 70
    assert short == "b"


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        ([], {}, "no run to plot"),
        ([Course(error=ERROR)], {"x": "tim"}, "did you mean 'time'"),
        ([Course(error=ERROR)], {"out": "a.pgn"}, "did you mean 'png'"),
        ([Course(error=ERROR)], {"out": f"{__file__}/where.png"}, "cannot be written"),
    ],
)
def test_what_cannot_be_plotted_is_bad_input(tmp_path, monkeypatch, runs, options, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        plot(runs, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_figure_leaves_no_trace_in_matplotlib(tmp_path):
    from matplotlib import pyplot

    before = dict(matplotlib.rcParams)
    plot([Course(error=ERROR)], out=tmp_path / "a.png")
    assert dict(matplotlib.rcParams) == before
    assert pyplot.get_fignums() == []


def test_a_figure_that_comes_to_nothing_is_none_of_pyplot_s():
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    with pytest.raises(InputError, match="no value above 0"):
        plot([Course(share=[-1.0, -2.0])], log=True)
    assert pyplot.get_fignums() == []


def test_without_a_file_the_figure_belongs_to_pyplot(monkeypatch):
    from matplotlib import pyplot

    pyplot.switch_backend("agg")
    axes = plot([Course(error=ERROR)])
    assert pyplot.get_fignums() == [axes.figure.number]
    pyplot.close("all")
