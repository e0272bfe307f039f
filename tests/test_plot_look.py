"""How figures may be told to look, what an axis leaves out, and which points a line may join."""

import numpy as np
import pytest
from mutant import mutant
from test_plot_bands import Seed
from test_plot_figures import Logged
from test_plots import ERROR, Course

from desim.errors import InputError
from desim.interface.plots import curves, epsilon, plot, staleness, style, timeline, tradeoff
from desim.problem import targets


def test_a_figure_looks_as_it_is_told_to(tmp_path):
    runs = [Course("one", error=ERROR), Course("two", error=ERROR[::-1])]
    axes = plot(runs, out=tmp_path / "a.png", title="Cost $1", size=(7.0, 2.5), ylim=(1e-2, None),
                log=True, labels=["A", "B"])  # fmt: skip
    assert axes.figure.get_size_inches().tolist() == [7.0, 2.5]
    assert axes.figure.get_suptitle() == r"Cost \$1"
    assert axes.get_ylim()[0] == 1e-2
    assert axes.get_yscale() == "log"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["A", "B"]
    assert plot(runs, out=tmp_path / "a.png", log=False).get_yscale() == "linear"
    shares = plot([Course(accuracy=[0.5, 0.9])], out=tmp_path / "a.png", log=True)
    assert shares.yaxis.get_major_formatter()(0.9, None) == "90 %"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"size": (0.1, 3.0)}, "width and height in inches, 1 to 60"),
        ({"ylim": (2.0, 1.0)}, "the first below the second"),
        ({"ylim": (None, None)}, "the first below the second"),
        ({"ylim": (0.0, 1.0), "log": True}, "numbers above 0"),
        ({"labels": ["a"]}, "found 1 labels; allowed: 2, one for each of one, two"),
        ({"labels": ["a", " "]}, "label: found ' ' as number 2; allowed: some text"),
        ({"band": "wide"}, "allowed: range, middle"),
    ],
)
def test_a_look_that_cannot_be_is_refused(tmp_path, asked, said):
    runs = [Course("one", error=ERROR), Course("two", error=ERROR[::-1])]
    with pytest.raises(InputError, match=said):
        plot(runs, out=tmp_path / "a.png", **asked)
    with pytest.raises(InputError, match="log: found no value above 0"):
        plot([Course(error=[0.0, 0.0])], out=tmp_path / "a.png", log=True)
    with pytest.raises(InputError, match="ylim: found with a figure that has none"):
        staleness([Logged(staleness=[0])], out=tmp_path / "a.png", ylim=(0, 1))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_the_caption_says_which_band_it_is(tmp_path):
    runs = [Seed(np.array(ERROR) * n) for n in range(1, 7)]
    said = {}
    for kind in ("quartiles", "interval", "seeds", "none", None):
        axes = plot(runs, out=tmp_path / "a.png", band=kind)
        said[kind] = axes.get_legend().get_title().get_text()
        assert len(axes.lines) == (7 if kind == "seeds" else 1)
    assert said == {
        "quartiles": "median and interquartile range of 6 seeds",
        "interval": "median of 6 seeds, its 95 % interval at each point",
        "seeds": "median of 6 seeds, and each seed",
        "none": "median of 6 seeds",
        None: "median and range of 6 seeds",
    }


@pytest.mark.slow
def test_how_curves_begin_is_left_out_where_it_hides_the_rest(tmp_path):
    quick = [0.2, *[0.9, 0.91] * 10]
    runs = [Course("quick", accuracy=quick), Course("slow", accuracy=[0.2, *[0.93, 0.94] * 10])]
    axes = plot(runs, out=tmp_path / "a.png")
    assert 0.89 < axes.get_ylim()[0] < 0.9
    assert axes.get_xlabel().endswith("cut below 89.8 %: the curves begin at 20 %")
    for other in ({"ylim": (0.0, 1.0)}, {"log": True}):
        whole = plot(runs, out=tmp_path / "a.png", **other)
        assert whole.get_ylim()[0] < 0.2
        assert "cut" not in whole.get_xlabel()
    assert plot(runs[:1], out=tmp_path / "a.png").get_ylim()[0] < 0.2


def test_a_curve_that_another_hides_is_seen_and_said(tmp_path):
    runs = [Course(name, error=ERROR) for name in ("one", "two", "three")]
    axes = plot(runs, out=tmp_path / "a.png")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == [
        "one", "two (the same as one)", "three (the same as one)",
    ]  # fmt: skip
    assert [line.is_dashed() for line in axes.lines] == [False, True, True]


class Written(Course):
    """A run of a scenario, with a price."""

    def __init__(self, name, price, policy="all", local=None, **sections):
        super().__init__(name, error=[1.0, price])
        algorithm = {"name": "fed-plt", "local": local or {"solver": "gradient"}}
        self.tree = {"name": name, "seed": 1, "policy": policy, "algorithm": algorithm, **sections}
        self.manifest, self.price, self.alike = {"seed": id(self)}, price, name + policy

    @property
    def scenario(self):
        return self

    def written(self):
        return self.tree

    def epsilon(self):
        frame = super().epsilon()
        attrs = frame.attrs
        frame = frame.assign(epsilon=frame["epsilon"] * self.price)
        frame.attrs = attrs
        return frame


def check_families(module):
    """Joined: other noise, in the section privacy or in the steps. Apart: all else."""

    def row(run):
        return type("Row", (), {"group": type("Group", (), {"runs": [run], "label": run.name})})

    noisy = [{"solver": "noisy", "tau": tau, "epochs": 5, "step": 1} for tau in (0.1, 0.2)]
    runs = [
        Written("a", 1.0, local=noisy[0]), Written("b", 2.0, local=noisy[1]),
        Written("c", 3.0, local={"step": 1, "epochs": 5, "solver": "gradient"}),
        Written("d", 1.0, policy="each", local=noisy[0]),
        Written("e", 1.0, local={**noisy[0], "epochs": 6}),
        Written("f", 1.0, privacy={"noise": {"sigma": 1.0}}), Written("g", 2.0),
        Course("h"), Course("i"),
    ]  # fmt: skip
    found = module.families([row(run) for run in runs])
    names = ["".join(one.group.label for one in rows) for rows in found.values()]
    assert names == ["abc", "d", "e", "fg", "h", "i"]


def test_only_noise_is_joined():
    check_families(curves)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ('("name", "seed", "privacy")', '("name", "seed")'),
        ('("name", "seed", "privacy")', '("name", "seed", "privacy", "policy")'),
        ('SILENT if solver == "noisy" else solver', "solver"),
        ('LOCAL = ("solver", "tau")', 'LOCAL = ("solver",)'),
        ('f"row {number}"', '"row"'),
        ("sort_keys=True", "sort_keys=False"),
    ],
)
def test_what_is_wrongly_joined_is_noticed(right, wrong):
    twin = mutant(curves, right, wrong)
    with pytest.raises(AssertionError):
        check_families(twin)


def test_policies_are_not_joined_by_one_line(tmp_path):
    prices = (0.1, 0.2, 0.3)
    runs = [
        Written(f"{policy} {price}", price, policy, {"solver": "noisy", "tau": 1 / price})
        for price in prices
        for policy in ("all", "each")
    ]
    axes = tradeoff(runs, metric="error", out=tmp_path / "a.png")
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    np.testing.assert_allclose([line.get_xdata() for line in lines], [np.array(prices) * 99] * 2)
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert [word.endswith(end) for word, end in zip(words, ("all", "each"), strict=True)]
    named = tradeoff(runs, metric="error", out=tmp_path / "a.png", labels=["A", "B"])
    assert [text.get_text() for text in named.get_legend().get_texts()] == ["A", "B"]


def test_fresh_replies_are_one_bar_of_one_round(tmp_path):
    axes = staleness([Logged(staleness=[0, 0, 0])], out=tmp_path / "a.png")
    assert not [one for one in axes.get_yticklabels() if "." in one.get_text()]
    assert [patch.get_width() for patch in axes.patches] == [0.8]
    ticks = [tick for tick in axes.get_xticks() if axes.get_xlim()[0] <= tick <= axes.get_xlim()[1]]
    assert ticks == [0, 1, 2, 3, 4]
    two = [Logged("a", staleness=[0]), Logged("b", staleness=[0])]
    both = staleness(two, out=tmp_path / "b.png")
    assert all(float(tick).is_integer() for tick in both.get_xticks())
    assert both.get_xlim() == (-0.6, 4.6)


def spent(*agents):
    """A run whose agents have spent so much at 1, 2, 3 s."""
    import pandas as pd

    run = Logged()
    rows = [(t, n, t * one) for t in (1.0, 2.0, 3.0) for n, one in enumerate(agents)]
    frame = pd.DataFrame(rows, columns=["time", "agent", "epsilon"])
    frame.attrs = {"view": "v", "relation": "r", "delta": 1e-5, "method": "m", "flags": ()}
    run.epsilon, run.budget = lambda: frame, None
    return run


def test_agents_that_spend_alike_are_counted(tmp_path):
    axes = epsilon(spent(1.0, 2.0, 2.0, 1.0, 1.0), out=tmp_path / "a.png")
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["2 agents alike, who spend most", "median agent"]
    assert [text.get_text() for text in axes.texts] == ["3 agents", "2 agents"]
    assert len(axes.lines) == 3
    alike = epsilon(spent(1.0, 1.0, 1.0), out=tmp_path / "b.png")
    assert [text.get_text() for text in alike.get_legend().get_texts()] == ["all 3 agents alike"]
    assert len(alike.lines) == 1


def test_a_cut_timeline_says_so_at_its_ends(tmp_path):
    import desim

    run = desim.run({
        "problem": {"agents": 2, "data": {"source": "synthetic", "kind": "regression", "rows": 4,
                             "dim": 2},
                    "loss": "squared", "regularizer": {"l2": 1.0}},
        "algorithm": {"name": "fed-plt", "rho": 1.0}, "network": "wifi", "stop": {"rounds": 6},
    })  # fmt: skip
    whole = timeline(run, out=tmp_path / "a.png")
    assert not any("cut" in text.get_text() for text in whole.texts)
    axes = timeline(run, rounds=(2, 3), out=tmp_path / "b.png")
    said = [text.get_text() for text in axes.texts]
    assert said[0] == "cut: begins before"
    assert said[1].startswith("cut: goes on to ")
    assert " of " in axes.get_xlabel()
    assert [patch.get_hatch() for patch in axes.patches] == ["//////"] * 2
    first = timeline(run, rounds=(1, 3), out=tmp_path / "c.png")
    assert [text.get_text()[:12] for text in first.texts] == ["cut: goes on"]


def test_one_rule_says_which_metric_is_first():
    both = [{"loss", "error", "accuracy"}, {"error", "loss", "zeal"}]
    assert style.ranked(both) == ["error", "loss", "accuracy", "zeal"]
    assert style.ranked([{"error", "accuracy", "loss"}])[0] == "accuracy"


def check_improved(module):
    """A target is what a run came to that ended better than it began, no better moment of it."""
    assert module.improved(np.array([1.0, 0.2, 0.5]), False) == 0.5
    assert module.improved(np.array([0.5, 0.9, np.nan, 0.8]), True) == 0.8
    assert module.best(np.array([1.0, 0.2, np.nan, 0.5]), False) == 0.2
    assert module.best(np.array([0.5, 0.9, np.inf, 0.8]), True) == 0.9
    for value in ([10.0, 9.4, 23.0], [1.0], [1.0, 0.1, np.nan], [0.0, 0.0]):
        assert module.improved(np.array(value), False) is None


def test_rising_curves_propose_no_target():
    check_improved(targets)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("sign * value[-1] < sign", "sign * value[-1] <= sign"), ("-1.0 if rising", "1.0 if rising"),
     ("float(value[-1])", "float(value[1])"), ("value[np.isfinite(value)]", "value")],
)  # fmt: skip
def test_wrong_proposals_are_noticed(right, wrong):
    twin = mutant(targets, right, wrong)
    with pytest.raises(AssertionError):
        check_improved(twin)
