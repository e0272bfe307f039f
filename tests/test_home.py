"""At home in Python: calls that complete, progress in a notebook, figures side by side."""

import inspect
import sys
from types import ModuleType, SimpleNamespace
from typing import Unpack, get_origin

import numpy as np
import pytest
from cases import star
from mutant import mutant

import desim
from desim import pace
from desim.errors import InputError
from desim.interface import plots

jedi = pytest.importorskip("jedi")  # which comes with what plays notebooks
NOT_CALLED = {"KINDS", "METRICS", "Scenario", "__version__"}


def vague(call):
    """Parameters of a call that an editor cannot say anything of."""
    found = inspect.signature(call).parameters.values()
    return [
        one.name for one in found
        if one.name != "self" and (one.annotation is one.empty or one.kind is one.VAR_POSITIONAL
        or (one.kind is one.VAR_KEYWORD and get_origin(one.annotation) is not Unpack))
    ]  # fmt: skip


def test_every_public_call_says_what_it_takes():
    calls = [getattr(desim, name) for name in desim.__all__ if name not in NOT_CALLED]
    errors = [one for one in calls if isinstance(one, type) and issubclass(one, Exception)]
    assert len(calls) - len(errors) > 20
    assert [vague(one) for one in calls if one not in errors] == [[]] * (len(calls) - len(errors))
    assert vague(lambda *given, **more: None) == ["given", "more"]


def test_an_editor_completes_calls_and_what_they_return():
    source = "import desim\nrun = desim.run("
    names = {one.name for one in jedi.Script(source + "'a')\nrun.").complete()}
    assert {"epsilon", "metrics", "time_to"} <= names
    assert jedi.Script("import desim\ndesim.ru('a').").complete() == []


class Display:
    """IPython's `display` in a notebook, and the texts of its line."""

    def __init__(self):
        self.texts = []

    def __call__(self, shown, raw, display_id):
        self.texts.append(shown["text/plain"])
        return SimpleNamespace(update=lambda shown, raw: self.texts.append(shown["text/plain"]))


def notebook(monkeypatch):
    """A process with the kernel of a notebook; what it shows."""
    python, shown = ModuleType("IPython"), Display()
    python.get_ipython = lambda: SimpleNamespace(kernel=None)
    monkeypatch.setitem(sys.modules, "IPython", python)
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=shown))
    return shown.texts


def check_notebook(module, texts):
    """A line after a second, written over, and empty in the end."""
    now = SimpleNamespace(round=4, rounds=8, time=2.0, horizon=None, metric=None)
    with module.seen("name", None) as told:
        told(now)
        assert texts == []
        told.began -= 2.0
        told(now)
        assert texts == ["name: round 4/8, 2 s"]
        told(now)
    assert texts == ["name: round 4/8, 2 s", "name: round 4/8, 2 s", ""]
    with module.seen("name", print) as told:
        assert told is print


def test_a_notebook_has_one_line_of_progress(monkeypatch):
    with pace.seen("name", None) as told:
        assert told is None
    check_notebook(pace, notebook(monkeypatch))
    for right, wrong in ((">= SOON", ">= 0.0"), ('line.show("")', "pass")):
        with pytest.raises(AssertionError):
            check_notebook(mutant(pace, right, wrong), notebook(monkeypatch))


def test_a_run_shows_itself_in_a_notebook(monkeypatch):
    monkeypatch.setattr(pace, "SOON", 0.0)
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    texts = notebook(monkeypatch)
    desim.run(star(engine="cohort", name="shown", stop={"rounds": 3}))
    assert texts[0].startswith("shown: round ")
    assert texts[-1] == ""


def test_a_study_a_tuner_and_a_resumed_run_show_themselves_in_a_notebook(monkeypatch, tmp_path):
    monkeypatch.setattr(pace, "SOON", 0.0)
    monkeypatch.setattr("desim.engine.world.REPORT_SECONDS", 0.0)
    base = star(engine="cohort", name="shown", stop={"rounds": 2})
    texts = notebook(monkeypatch)
    desim.study({"name": "seeds", "base": base, "grid": {"seed": [1, 2]}}, workers=0)
    assert [text.partition(",")[0] for text in texts] == ["seeds: run 1/2", "seeds: run 2/2", ""]
    texts.clear()
    tune = {"vary": {"algorithm.rho": [0.5, 0.6]}, "until": {"error": 1e9}, "sampler": "grid",
            "seeds": [1], "fresh": 1, "runs": 2}  # fmt: skip
    desim.tune({"name": "rhos", "base": base, "tune": tune}, workers=0)
    assert texts[0].startswith("rhos: candidates 1 to 2, run 1/2")
    assert texts[-1] == ""
    desim.run(base, tmp_path / "run")
    texts.clear()
    desim.resume(tmp_path / "run", {"stop.rounds": 3})
    assert texts[0].startswith("shown: round ")
    assert texts[-1] == ""
    line = pace.RunsLine("name", Display())
    line(3, 4, 2)
    assert line.display.texts == ["name: run 3/4, 2 failed"]
    wrong = mutant(pace, "{done}/{total}", "{total}/{done}").RunsLine("name", Display())
    wrong.began -= 2.0
    wrong(3, 4, 2)
    assert wrong.display.texts != line.display.texts


def test_a_figure_with_several_abscissae_is_its_figures_side_by_side(tmp_path):
    runs = [
        desim.run(star(engine="cohort", policy=one, stop={"rounds": 4})) for one in ("all", "each")
    ]
    figure = desim.plot(runs, ("time", "bytes"), out=tmp_path / "both.svg")
    assert (tmp_path / "both.svg").stat().st_size > 1000
    assert [axes.get_xlabel().split(" (")[0] for axes in figure.axes] == [
        "virtual time",
        "data delivered",
    ]
    for x, axes in zip(("time", "bytes"), figure.axes, strict=True):
        alone = desim.plot(runs, x, out=tmp_path / "one.svg")
        drawn, expected = (
            [np.asarray(one.get_data()) for one in some.lines] for some in (axes, alone)
        )
        assert all(np.array_equal(*pair) for pair in zip(drawn, expected, strict=True))
    assert desim.plot(runs, "time", out=tmp_path / "one.svg").figure is not figure
    with pytest.raises(InputError, match="allowed: one x or more"):
        desim.plot(runs, ())
    twin = mutant(plots, "for name, place in zip(x,", "for name, place in zip(x[::-1],")
    wrong = twin.plot(runs, ("time", "bytes"))
    assert wrong.axes[0].get_xlabel() != figure.axes[0].get_xlabel()
