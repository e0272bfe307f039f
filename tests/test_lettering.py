"""Names of any length and script in figures: cut, told apart, and drawn without a warning."""

import warnings

import pytest
from matplotlib.image import imread
from test_plots import ERROR, Course

from desim.interface.plots import bars, plot
from desim.interface.plots.style import LONGEST, fitted, width, wrapped


def test_labels_are_cut_in_the_middle_and_stay_apart():
    assert fitted(["short", "a" * LONGEST]) == ["short", "a" * LONGEST]
    words = " ".join(["word"] * 30)
    assert fitted([words]) == [words]  # wraps
    (cut,) = fitted(["begin" + 90 * "x" + "end"])
    assert (cut[:6], cut[-4:], width(cut)) == ("beginx", "xend", LONGEST)
    side = 50 * "x"
    for labels in (
        [f"{side}{n}" for n in range(30)],
        [f"{n}{side}" for n in range(30)],
        [f"{side}{n}{side}" for n in range(30)],
        [f"{side}{n}" for n in range(2)] + [f"{n}{side}" for n in range(2)],
        [30 * "名" + str(n) for n in range(3)],
    ):
        found = fitted(labels)
        assert len(set(found)) == len(labels)
        assert max(map(width, found)) <= LONGEST
    assert len(set(fitted(2 * ["y" * 99]))) == 1
    assert wrapped(30 * "名", 30).count("\n") == 1
    mixed = wrapped(20 * "名" + " and so on", 44)
    assert max(map(width, mixed.split("\n"))) <= 44
    assert wrapped(" _ab cd", 4) == " _ab\ncd"


def drawn(axes, path):
    """The axes' height in inches; nothing is cut by the edge of the figure."""
    image = imread(path)
    for edge in (image[0], image[-1], image[:, 0], image[:, -1]):
        assert (edge == 1.0).all()
    return axes.get_position().height * axes.figure.get_figheight()


@pytest.mark.slow
def test_long_names_many_runs_and_other_scripts_are_drawn_quietly(tmp_path):
    names = ["x" * 100, "联邦学习" * 25, "短い名前", *("y" * 90 + str(n) for n in range(25))]
    runs = [Course(name, error=ERROR) for name in names]
    with warnings.catch_warnings(record=True) as noise:
        warnings.simplefilter("always")
        heights = [
            drawn(plot(runs[:n], out=tmp_path / f"{n}.png"), tmp_path / f"{n}.png")
            for n in (1, 3, len(runs))
        ]
        bars(runs[:3], target=1.0, out=tmp_path / "b.pdf")
    assert [str(one.message) for one in noise] == []
    assert min(heights) > 1.2


def test_a_number_and_its_percent_sign_stay_together():
    for columns in range(6, 40):
        lines = wrapped("band: 95 % over seeds", columns).splitlines()
        assert " ".join(lines) == "band: 95 % over seeds"
        assert not [line for line in lines if line.startswith("%")]
