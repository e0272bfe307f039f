"""Losses of plug-ins are those that desim would compute itself: their twins give the same bits."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from cases import D_ZOA, graph, star
from mutant import mutant
from test_engines import differences

import desim
from desim.errors import DesimError, InputError
from desim.experiments.contract import loss_laws
from desim.experiments.contract.stage import BrokenError
from desim.losses.plugged import PluggedLoss, ScalarLoss, plugged
from desim.problem.losses import scalar as losses
from desim.problem.losses.regularizers import Regularizer
from desim.problem.problem import Problem
from desim.scenario import registry
from desim.scenario.load import load

PLUGIN = Path(__file__).parent / "plugins" / "losses.py"
OWN = {"squared": "twin", "logistic": "margin", "absolute": "pinball"}
CUTS = [0.03, 0.3, 0.8, 2.5, np.inf]


def regression(**changes):
    data = {"source": "synthetic", "kind": "regression", "rows": 8, "dim": 5}
    algorithm = {"name": "fed-plt", "rho": 0.5, "local": {"epochs": 4, "step": 0.05}}
    return star(problem={"data": data, "loss": "squared", **changes}, algorithm=algorithm)


def both(scenario, **overrides):
    """A run with desim's loss and one with its twin of the plug-in."""
    other = {**scenario, "plugins": [str(PLUGIN)]}
    other["problem"] = {**scenario["problem"], "loss": OWN[scenario["problem"]["loss"]]}
    return desim.run(scenario, overrides=overrides), desim.run(other, overrides=overrides)


@pytest.mark.parametrize("engine", ["compiled", "cohort", "agents"])
def test_the_twin_of_a_loss_gives_the_same_bits_on_every_engine(engine):
    assert differences(*both(regression(), engine=engine)) == []


def test_clipped_gradients_of_a_twin_give_the_same_bits():
    one, other = both(graph(observe={"metrics": ["loss"], "iterates": True}))
    assert one.iterates.tobytes() == other.iterates.tobytes()
    assert one.releases.equals(other.releases)


def test_the_twin_of_the_logistic_loss_has_its_optimum():
    one, other = both(star())
    np.testing.assert_allclose(other.iterates, one.iterates, rtol=1e-12, atol=1e-14)
    errors = [run.metrics[run.metrics.metric == "error"].value.to_numpy() for run in (one, other)]
    np.testing.assert_allclose(errors[1], errors[0], rtol=1e-9)


def test_methods_that_take_values_alone_take_those_of_a_plugin():
    one, other = both(graph(algorithm=D_ZOA, observe={"metrics": [], "iterates": True}))
    np.testing.assert_allclose(other.iterates, one.iterates, rtol=1e-7, atol=1e-9)


def check_kernels(module, name, own):
    """Clipped values, slopes and bends of a plug-in's loss against desim's closed forms."""
    registry.load_plugin(PLUGIN)
    made = plugged(registry.plugged().losses[own])
    u = np.linspace(-6.0, 6.0, 241) + 1e-3 * np.pi
    labels = (-1.0, 1.0) if name == "logistic" else (-0.4, 1.3)
    for b in labels:
        for cut in CUTS:
            rest = np.full(len(u), b), np.full(len(u), cut)
            for kernel in ("values_into", "slopes_into", "bends_into"):
                found, known = np.empty(len(u)), np.empty(len(u))
                getattr(module, kernel)(made.code, u, rest[0], made.knee, rest[1], found)
                code = losses.CODES[name]
                getattr(losses, kernel)(code, u, rest[0], 1.0, rest[1], known)
                np.testing.assert_allclose(found, known, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("name", "own"), [("squared", "twin"), ("logistic", "margin")])
def test_clipping_a_loss_of_a_plugin_is_what_it_is_for_the_twin(name, own):
    check_kernels(losses, name, own)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("side * c * (u - far)", "c * (u - far)"),
        ("if abs(call(SLOPE, knee, u, b)) > c else", "if c < 0.0 else"),
        ("call(SLOPE, knee, u, b)))", "call(VALUE, knee, u, b)))"),
    ],
)
def test_wrong_clipping_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_kernels(mutant(losses, right, wrong), "squared", "twin")


def test_kinks_and_clips_have_no_optimum_but_are_learnt_from(monkeypatch):
    scenario = graph(problem={"loss": "pinball"}, plugins=[str(PLUGIN)])
    with pytest.raises(InputError, match="error with a plug-in's loss that is clipped"):
        load(scenario)
    del scenario["problem"]["clip"], scenario["privacy"]
    with pytest.raises(InputError, match="error with a plug-in's loss that has kinks"):
        load(scenario)
    with pytest.raises(InputError, match="pinball has no `curvature`: give its largest bend"):
        load(scenario)
    dsgd = {"algorithm": {"name": "dsgd", "alpha": 0.1}, "observe.metrics": ["loss"]}
    with pytest.raises(InputError, match=r"which is not smooth, .* pinball has no `curvature`"):
        load(scenario, dsgd)
    monkeypatch.setattr(registry.plugged().losses["pinball"], "curvature", np.inf, raising=False)
    with pytest.raises(InputError, match=r"not smooth.* allowed: logistic, squared, huber"):
        load(scenario, dsgd)
    done = desim.run(scenario, overrides={"observe.metrics": ["loss"], "stop.rounds": 40})
    loss = done.metrics[done.metrics.agent == -1].value.to_numpy()
    assert loss[-1] < 0.7 * loss[0]


def test_an_unknown_loss_is_told_with_those_of_plugins():
    with pytest.raises(InputError) as error:
        load({**regression(loss="twinn"), "plugins": [str(PLUGIN)]})
    assert "mlp: ...}, twin, margin, pinball" in str(error.value)
    assert str(error.value).endswith("did you mean 'twin'?")


BAD = "from desim.losses.plugged import ScalarLoss\nclass Bad(ScalarLoss):\n    name = 'bad'\n"
FUNCTIONS = "".join(
    f"    @staticmethod\n    def {one}(u, b):\n        return {{}}\n"
    for one in ("value", "slope", "bend")
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BAD, "Bad lacks summary, value, slope, bend"),
        (BAD.replace("'bad'", "'hinge'") + "    summary = ''\n" + FUNCTIONS.format(1, 1, 1),
         "defines 'hinge', a name that desim uses itself"),
        (BAD + "    summary = ''\n    curvature = 1.0\n"
         + FUNCTIONS.format("u", "open(u)", "u"),
         r"numba cannot compile Bad\.slope of a plug-in"),
        (BAD + "    summary = ''\n" + FUNCTIONS.format(1, 1, 1) + "class Worse(Bad):\n    pass\n",
         "Bad and Worse have the same name, 'bad'"),
        (BAD.replace("'bad'", "['bad']"), "Bad lacks a name that is text"),
        *[(f"{BAD}    summary = ''\n    {line}\n" + FUNCTIONS.format(1, 1, 1), message)
          for line, message in (
            ("curvature = None", "Bad.curvature: found null; allowed: a number"),
            ("curvature = 'x'", "Bad.curvature: found 'x'; allowed: a number"),
            ("curvature = -1.0", "Bad.curvature: found -1.0; allowed: a number above 0"),
            ("curvature = property(lambda self: 1.0)", "Bad.curvature: found <prop.*; allowed"),
            ("labels = []", r"Bad.labels: found \[\]; allowed: 'numbers', 'signs'"),
        )],
        (BAD + "    summary = ''\n" + FUNCTIONS.format(1, 1, 1) + "    value = 5\n",
         "Bad.value: found 5; allowed: a function"),
        (BAD + "    summary = ''\n    def value(self, u, b):\n        return u\n"
         "    slope = bend = staticmethod(lambda u, b: u)\n",
         r"Bad.value: found a function of \(self, u, b\); allowed: one of 2 arguments"),
        (BAD + "    summary, curvature = '', 1.0\n" + FUNCTIONS.format("unknown(u)", "u", "u"),
         r"numba cannot compile Bad\.value of a plug-in \(.*bad\.py\): NameError: name 'unknown'"),
        (BAD + "    summary, curvature = '', 1.0\n"
         + FUNCTIONS.replace("return", "import math; return")
         .format("u", "u", "u"),
         r"numba cannot compile Bad\.value of a plug-in .*IMPORT_NAME.*; allowed: numbers, math"),
    ],
)  # fmt: skip
def test_what_is_no_loss_is_refused(text, message, tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(InputError, match=message):
        desim.run({**regression(loss="bad"), "plugins": [str(tmp_path / "bad.py")]})


def test_a_loss_may_have_functions_of_another(tmp_path, monkeypatch):
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))
    body = "    summary = ''\n" + FUNCTIONS.format("u", "1.0", "0.0")
    text = BAD + body + "class Steep(Bad):\n    name = 'steep'\n"
    text += "Alias = Steep\n"
    (tmp_path / "two.py").write_text(text)
    assert registry.load_plugin(tmp_path / "two.py") == ["bad", "steep"]


def test_entry_points_bring_losses_and_methods(monkeypatch):
    def installed(load, value="mine.losses"):
        entry = SimpleNamespace(name="mine", value=value, load=load)
        monkeypatch.setattr(registry, "entry_points", lambda group: [entry])
        registry._installed.cache_clear()

    module = SimpleNamespace(__name__="mine.losses")
    body = {"__module__": "mine.losses", "name": "mine", "summary": "own"}
    functions = {one: staticmethod(lambda u, b: u) for one in ("value", "slope", "bend")}
    module.Mine = type("Mine", (ScalarLoss,), {**body, **functions})
    try:
        installed(lambda: module)
        assert registry.plugged().losses["mine"] is module.Mine
        installed(lambda: 1 / 0)
        with pytest.raises(InputError, match=r"plug-in mine \(mine.losses\): raised ZeroDivision"):
            registry.names()
    finally:
        monkeypatch.undo()
        registry._installed.cache_clear()


RAISES = """from desim.losses.plugged import ScalarLoss


class Picky(ScalarLoss):
    name = "picky"
    summary = "r^2, not for every label"
    curvature = 2.0

    @staticmethod
    def value(u, b):
        return (u - b) ** 2

    @staticmethod
    def slope(u, b):
        return 2.0 * (u - b)

    @staticmethod
    def bend(u, b):
        return 2.0
"""


def picky(folder, function):
    """A plug-in whose loss raises in a function for labels above 1, and the line where it does."""
    head, body = RAISES.split(f"    def {function}(u, b):\n")
    head += f"    def {function}(u, b):\n        if b > 1.0:\n"
    path = folder / f"picky_{function}.py"
    path.write_text(f"{head}            raise ValueError('too large')\n{body}")
    return str(path), head.count("\n") + 1


@pytest.fixture
def nothing_plugged(monkeypatch):
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))


def raises(folder, function, **overrides):
    """A run with such a loss, whose training data have labels above 1."""
    path, line = picky(folder, function)
    scenario = {**regression(loss="picky"), "plugins": [path]}
    with pytest.raises(DesimError) as error:
        desim.run(scenario, overrides={"observe.metrics": ["loss"], **overrides})
    assert f"plugins[0]: {path}, line {line}, raised ValueError: too large" in str(error.value)
    return error.value


@pytest.mark.parametrize("compiling", ["at-once", "never"])
@pytest.mark.parametrize("engine", ["compiled", "cohort", "agents"])
@pytest.mark.parametrize("function", ["value", "slope"])
def test_a_loss_that_raises_ends_the_run_in_words(
    function, engine, compiling, tmp_path, monkeypatch, nothing_plugged
):
    monkeypatch.setenv("DESIM_COMPILE", compiling)
    error = raises(tmp_path, function, engine=engine)
    assert "; at u = " in str(error)
    assert error.run.status == "failed"
    assert error.run.metrics.empty


def test_a_bend_that_raises_ends_the_search_for_the_optimum(tmp_path, nothing_plugged):
    raises(tmp_path, "bend", **{"observe.metrics": ["error"]})


def test_without_a_look_for_what_was_raised_the_run_is_wrong(
    tmp_path, monkeypatch, nothing_plugged
):
    monkeypatch.setattr(PluggedLoss, "verify", lambda self: None)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        raises(tmp_path, "value")


def test_a_loss_that_raises_in_a_kernel_of_several_threads_is_heard(tmp_path, nothing_plugged):
    registry.load_plugin(Path(picky(tmp_path, "value")[0]))
    rows, none = 1 << 15, Regularizer()
    b = np.zeros(rows)
    made = plugged(registry.plugged().losses["picky"])
    start = np.linspace(0, rows, 65).astype(int)
    problem = Problem(np.ones((rows, 32)), b, start, made, "mean", none, none)
    assert problem.objective(np.zeros(32)) == 0.0
    problem.b[-1] = 2.0
    with pytest.raises(ValueError, match="too large"):
        problem.objective(np.zeros(32))
    problem.b[-1] = 0.0
    assert problem.objective(np.zeros(32)) == 0.0


def test_the_contract_names_a_function_that_raises(tmp_path, nothing_plugged):
    path, line = picky(tmp_path, "slope")
    registry.load_plugin(Path(path))
    registry.load_plugin(PLUGIN)
    known = registry.plugged().losses
    with pytest.raises(BrokenError) as error:
        loss_laws.raises(loss_laws.LossStage(known["picky"]))
    text = f"Picky.slope raised ValueError: too large ({path}, line {line}); at u = "
    assert str(error.value).startswith(text)
    assert loss_laws.raises(loss_laws.LossStage(known["margin"])) == "of labels -1 and 1"
