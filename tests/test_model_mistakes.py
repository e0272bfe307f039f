"""What whoever writes a model does wrong first, and the one sentence that desim says."""

import sys
from pathlib import Path

import pytest

import desim
from desim.errors import DesimError, InputError, RunError
from desim.interface.cli import main
from desim.runs.premises import names

FILE = Path(__file__).parent / "plugins" / "numpy_models.py"
SCENARIO = {
    "seed": 1,
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4},
    },
    "algorithm": {
        "name": "fedavg",
        "local": {"solver": "sgd", "batch": 3, "epochs": 2, "step": 0.1},
    },
    "network": {"link": {"latency": "10 ms"}},
    "observe": {"metrics": ["loss"]},
    "stop": {"rounds": 3},
}
ODDS = "        a, odds = self.odds(x, rows)\n"
START = "np.zeros(int(np.prod(self.facts.shape)) * self.facts.classes)"
FLAT = "reshape(len(a), -1)"
PURE = "its gradient is another one when it is asked for twice; allowed: a function of x and rows"
TESTED = {"problem.data.test": "20 %", "observe.metrics": ["accuracy"]}

TORCH = """
import torch
from torch import nn

from desim.torch import TorchModel


class Net(TorchModel):
    name = "net"
    summary = "a small network"

    def module(self):
        return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, self.facts.classes))
"""
NET = "nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, self.facts.classes))"
NORMED = "nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 2))"
DRAWING = """
class Drawing(nn.Linear):
    def forward(self, inputs):
        return nn.functional.dropout(super().forward(inputs), 0.5, self.training)


class Net("""
LAST = f"{NET}\n"


def losing(how):
    """The change by which the module has losses of its own."""
    return [(LAST, f"{LAST}\n    def losses(self, outputs, labels):\n        return {how}\n")]


def played(folder, text, overrides=None, name="numpy-scores"):
    """A run of the model in this text."""
    (folder / "mine.py").write_text(text)
    problem = {**SCENARIO["problem"], "model": name}
    scenario = {**SCENARIO, "plugins": [str(folder / "mine.py")], "problem": problem}
    return desim.run(scenario, overrides=overrides)


def changed(text, changes):
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    return text


def told(error):
    """The one line that an error says."""
    assert len(str(error.value).splitlines()) == 1, error.value
    return str(error.value)


def test_the_model_has_no_mistake(tmp_path):
    assert played(tmp_path, FILE.read_text(), TESTED).status == "done"


FUNCTIONS = {
    "start_square": (
        [(START, f"{START}.reshape(4, 2)")],
        r"initial: found float64 of shape \(4, 2\); allowed: a float array \(dim,\)",
    ),
    "start_whole": (
        [(START, START[:-1] + ", int)")],
        "initial: found int64 of shape .8,.; allowed",
    ),
    "start_infinite": (
        [(START, "np.full(8, np.inf)")],
        "initial: found numbers that are not finite",
    ),
    "loss_mean": (
        [("rows.labels])", "rows.labels]).mean()")],
        r"loss: found float64 of shape \(\); allowed: numbers of shape \(8,\)",
    ),
    "loss_nothing": ([("return -np.log", "-np.log")], "loss: found object of shape"),
    "loss_not_a_number": (
        [("return -np.log", "return np.nan * np.log")],
        "loss: found numbers that are not finite at the start; allowed: finite",
    ),
    "gradient_not_a_number": (
        [("return (a[", "return np.nan * (a[")],
        "gradient: found numbers that are not finite at the start",
    ),
    "gradient_of_the_sum": (
        [(FLAT, "sum(0).ravel()")],
        r"example_gradients: found .* \(8,\); allowed: numbers of shape \(3, 8\)",
    ),
    "gradient_turned": (
        [(FLAT, f"{FLAT}.T")],
        r"example_gradients: found float64 of shape \(8, 3\)",
    ),
    "gradient_missing": (
        [("def example_gradients", "def nothing")],
        "gradient: Scores has no example_gradients; allowed: a model that defines",
    ),
    "gradient_zero": (
        [("return (a[", "return 0.0 * (a[")],
        "its loss is not zero, but all of its gradient is; allowed: a loss that can",
    ),
    "counts": (
        [(ODDS, f"{ODDS}        self.n = getattr(self, 'n', 0) + 1\n        a = a * self.n\n")],
        PURE,
    ),
    "draws": (
        [(ODDS, f"{ODDS}        a = a + np.random.rand()\n")],
        f"{PURE} alone: no state between calls, random numbers from rows.key",
    ),
    "writes": (
        [(ODDS, f"{ODDS}        x[:] = 0.0\n")],
        "gradient: .*, raised ValueError: assignment",
    ),
    "mixes": (
        [("        odds = np.exp(a", "        a = a - a[-1]\n        odds = np.exp(a")],
        "the loss of a row is .* alone and .* beside others; allowed: rows that do",
    ),
    "mixes_gradients": (
        [("        return (a[", "        a = a - a.mean(0)\n        return (a[")],
        "the gradient of a row is another one alone than beside others; allowed: rows that do",
    ),
    "raises": (
        [("        odds = np.exp(a", "        a = a[:, :3]\n        odds = np.exp(a")],
        "loss: .*py, line .*, raised ValueError: cannot reshape",
    ),
}


@pytest.mark.parametrize("mistake", FUNCTIONS)
def test_a_function_that_is_wrong_is_named(mistake, tmp_path):
    changes, says = FUNCTIONS[mistake]
    with pytest.raises(InputError, match=says) as error:
        played(tmp_path, changed(FILE.read_text(), changes))
    assert told(error).startswith("problem.model: numpy-scores: ")


KEYS = {
    "loss": ({"problem.loss": "logistic"}, "found loss beside model, .*; allowed: one of the two"),
    "unknown": ({"problem.model": "numpy-score"}, "found name: .*; did you mean 'numpy-scores'"),
    "parameter": ({"problem.model": {"name": "numpy-scores", "width": 3}}, "width: unknown key"),
    "zeroth": (
        {
            "algorithm": {
                "name": "d-zoa",
                "rho": 1.0,
                "inner": 3,
                "samples": 2,
                "u1": 0.1,
                "step": 0.1,
            },
            "network": {"topology": "ring"},
        },
        "found float32, but d-zoa takes differences of close values; allowed: float64",
    ),
    "exact": (
        {"algorithm": {"name": "fed-plt", "rho": 1.0, "local": {"solver": "exact"}}},
        "solver: found exact .*; allowed",
    ),
    "auto": (
        {"algorithm.local.step": "auto"},
        "found auto, but the smoothness of model is not known; allowed: a number > 0",
    ),
    "error": (
        {"observe.metrics": ["error"]},
        "found error with a model, which has no unique optimum; allowed: loss",
    ),
    "row_norm": ({"problem.row_norm": 1.0}, "found a bound on rows with a model, .*problem.clip"),
    "device": (
        {"problem.device": "cuda"},
        "found cuda with model numpy-scores, which does not compute there; allowed: cpu",
    ),
    "precision": ({"problem.precision": "float16"}, "found 'float16'; allowed: float64, float32"),
    "untested": ({"observe.metrics": ["accuracy"]}, "found accuracy without test rows; allowed"),
}


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_does_not_fit_a_model_is_named(key, tmp_path):
    overrides, says = KEYS[key]
    with pytest.raises(InputError, match=says) as error:
        played(tmp_path, FILE.read_text(), overrides)
    told(error)


LACKS = {
    "clip": (
        [("def example_gradients", "def gradient"), (FLAT, "sum(0).ravel()")],
        {"problem.clip": 1.0},
        "found a clip with model numpy-scores, .*; allowed: no clip, or",
    ),
    "predict": (
        [("def predict", "def nothing")],
        TESTED,
        "found accuracy with model numpy-scores, which has no predict; allowed: loss, or",
    ),
    "one_word": (
        [("argmax(1)", "argmax()")],
        TESTED,
        r"predict: found int64 of shape \(\); allowed: numbers of shape \(7,\)",
    ),
}


@pytest.mark.parametrize("what", LACKS)
def test_what_a_model_lacks_is_named_where_it_is_asked_for(what, tmp_path):
    changes, overrides, says = LACKS[what]
    text = changed(FILE.read_text(), changes)
    with pytest.raises(InputError, match=says) as error:
        played(tmp_path, text, overrides)
    told(error)
    assert played(tmp_path, text).status == "done"


def test_a_run_that_diverges_says_so(tmp_path):
    with pytest.raises(RunError, match=r"diverged: .* not finite in round \d+ .*lower algorithm"):
        played(tmp_path, FILE.read_text(), {"algorithm.local.step": 1e30})


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_a_library_that_is_absent_is_named_with_its_extra(library, tmp_path, monkeypatch):
    for name in [*sys.modules]:
        doors = (f"desim.{library}", f"desim.problem.models.{library}")
        if name.startswith(doors):  # the library's own parts stay: they cannot be loaded twice
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(
        InputError, match=rf"found no {library} here; allowed: pip install"
    ) as error:
        played(tmp_path, f"from desim.{library} import *\n{FILE.read_text()}")
    assert "raised" not in told(error)


def test_the_command_line_says_the_same_and_ends_with_two(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(FILE.read_text().replace("return -np.log", "-np.log"))
    (tmp_path / "mine.yaml").write_text(
        "plugins: [mine.py]\n"
        "problem: {agents: 3, data: {source: synthetic, kind: classification, rows: 9, dim: 4}, "
        "model: numpy-scores}\n"
        "algorithm: {name: dsgd, alpha: 0.1}\nnetwork: {topology: ring}\nstop: {rounds: 2}\n"
    )
    for command in ("run", "check"):
        with pytest.raises(SystemExit) as left:
            main([command, str(tmp_path / "mine.yaml")])
        assert left.value.code == 2
        assert "loss: found object of shape (); allowed: numbers" in capsys.readouterr().err


MODULES = {
    "no_function": (
        [(f"    def module(self):\n        return {NET}", "    module = nn.Linear(4, 2)")],
        "net: module: found a torch.nn.Module; allowed: def module",
    ),
    "made_of_nothing": (
        [("    def module", "    def __init__(self):\n        pass\n\n    def module")],
        r"net: __init__: found \(\); allowed: \(self, parameters, facts\), or none",
    ),
    "averages": (
        [(NET, NORMED)],
        "net: training changes 1.running_mean, .*; allowed: layers without",
    ),
    "shared": (
        [
            (NET, "shared()"),
            (
                "class Net",
                "def shared():\n    a, b = nn.Linear(4, 4), "
                "nn.Linear(4, 4)\n    b.weight = nn.Parameter(a.weight.data)\n    return "
                "nn.Sequential(a, b)\n\n\nclass Net",
            ),
        ],
        "found 0.weight and 1.weight, two parameters that share their numbers; allowed: one",
    ),
    "no_module": ([(NET, "len")], "net: module returned .*; allowed: a torch.nn.Mod"),
    "nothing": ([(NET, "nn.Flatten()")], "net: the module has no parameter that trains; allowed"),
    "width": (
        [(NET, "nn.Linear(7, 2)")],
        r"net: loss raised RuntimeError: mat1 .* \(the data have 2 classes, inputs of shape \(4,\)",
    ),
    "undeclared": (
        [(NET, "Drawing(4, 2)"), ("class Net(", DRAWING.lstrip())],
        "net: it draws random numbers that no seed of the scenario's reaches; allowed: layers of",
    ),
    "mean": (
        losing("nn.functional.cross_entropy(outputs, labels)"),
        r"net: loss: found float64 of shape \(\); allowed: numbers of shape \(8,\)",
    ),
    "counted": (
        losing("(outputs.argmax(1) != labels).float()"),
        "net: its loss is not zero, but all of its gradient is; allowed: a loss that can",
    ),
    "root": (
        losing("(outputs.sum(1) * 0.0).abs().sqrt()"),
        "net: gradient: found numbers that are not finite at the start; allowed: finite",
    ),
}


@pytest.mark.parametrize("mistake", MODULES)
def test_a_module_that_is_wrong_is_named(mistake, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")
    changes, says = MODULES[mistake]
    with pytest.raises(InputError, match=says) as error:
        played(tmp_path, changed(TORCH, changes), name="net")
    assert told(error).startswith("problem.model: net: ")


RIGHT = {
    "frozen": [(NET, NORMED), ("    summary", "    frozen = True\n    summary")],
    "constant": [
        (NET, "held()"),
        (
            "class Net",
            "def held():\n    made = nn.Linear(4, 2)\n    "
            "made.register_buffer('mask', torch.ones(3))\n    return made\n\n\nclass Net",
        ),
    ],
    "tied": [
        (NET, "tied()"),
        (
            "class Net",
            "def tied():\n    a, b = nn.Linear(4, 4), nn.Linear(4, 4)"
            "\n    b.weight = a.weight\n    return nn.Sequential(a, b)\n\n\nclass Net",
        ),
    ],
    "dropping": [("nn.Tanh()", "nn.Tanh(), nn.Dropout(0.5)")],
}


def test_a_class_without_a_module_is_named(tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")
    with pytest.raises(InputError, match=r"mine\.py: Net lacks module"):
        played(tmp_path, TORCH.replace("def module", "def network"), name="net")


@pytest.mark.parametrize("what", RIGHT)
def test_a_module_that_looks_wrong_and_is_not_trains(what, tmp_path):
    pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")
    assert played(tmp_path, changed(TORCH, RIGHT[what]), name="net").status == "done"


def test_a_graphics_card_that_is_not_there_is_named(tmp_path):
    torch = pytest.importorskip("torch", reason="torch is not installed: the extra desim[torch]")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(DesimError, match=r"device: found cuda, which torch .*; allowed: cpu"):
        played(tmp_path, TORCH, {"problem.device": "cuda"}, name="net")


def test_what_a_model_raises_is_told_with_its_line(tmp_path):
    text = FILE.read_text().replace(START, "self.facts.dim")
    line = 1 + text[: text.index("self.facts.dim")].count("\n")
    with pytest.raises(InputError, match=rf"mine\.py, line {line}, raised AttributeError: .*'dim'"):
        played(tmp_path, text)


def test_what_a_library_lacks_is_not_said_to_be_lacking_in_the_model(tmp_path):
    text = FILE.read_text().replace(
        ODDS, f"        raise NotImplementedError('no such kernel')\n{ODDS}", 1
    )
    with pytest.raises(InputError, match="raised NotImplementedError: no such kernel") as said:
        played(tmp_path, text)
    assert "a model that defines it" not in str(said.value)


def test_a_run_of_a_model_names_its_method_where_no_paper_claims(tmp_path):
    text = FILE.read_text()
    run = played(tmp_path, text)
    assert names(run) == ("fedavg", "")


ALONE = """
import numpy as np

from desim.method import Method, Strict
from desim.model import Model


class Guess(Model):
    name = "guess"
    summary = "a distance, of which nobody knows the derivative"

    def initial(self, seed):
        return np.full(self.facts.shape[0], 0.5)

    def loss(self, x, rows):
        return (rows.inputs @ x - rows.labels) ** 2


class Searching(Method):
    name = "searching"
    kind = "coordinator"
    summary = "a step that a job finds by itself"
    paper = "none"
    models = "any"
    noises = ()
    trains_itself = True

    class Parameters(Strict):
        pass

    def coordinator(self, hub):
        x0 = self.settings.initial("x0")
        state = hub.memory(x=x0.mean(axis=0))
        hub.start(x=x0)
        hub.publish(state.x)
        while hub.open:
            hub.call(hub.invite(), self.train, state.x, work=np.ones(hub.agents))
            replies = yield hub.collect()
            state.x = replies.payload.mean(axis=0)
            hub.publish(state.x)

    def train(self, us, x):
        near = [x, x + 0.1 / us.round[:, None], x - 0.1 / us.round[:, None]]
        losses = [self.problem.agent_values(one, us.who) for one in near]
        us.x = np.choose(np.argmin(losses, axis=0)[:, None], near)
        return us.x
"""


def searched(folder, text, **overrides):
    """A method that trains by itself, without a parameter init, on a model without gradients."""
    given = {"algorithm": {"name": "searching"}, **overrides}
    return played(folder, text, given, "guess")


def test_a_method_may_train_by_itself_and_begin_where_the_model_says(tmp_path):
    run = searched(tmp_path, ALONE)
    assert (run.model[0] == 0.5).all()
    assert not any("init" in text or "units" in text for text in run.manifest["warnings"])
    losses = run.curve("loss").value
    assert losses.iloc[-1] < losses.iloc[0]
    for more in ({}, {"observe.metrics": ["gradient"]}):
        text = ALONE if more else ALONE.replace("trains_itself = True", "trains_itself = False")
        with pytest.raises(InputError) as error:
            searched(tmp_path, text, **more)
        assert "problem.model: guess: gradient" in told(error)
    with pytest.raises(InputError) as error:
        searched(tmp_path, ALONE.replace(") ** 2", ") ** 2 + np.random.normal()"))
    assert "its loss is another one when it is asked for twice" in told(error)
