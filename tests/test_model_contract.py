"""The contract of models: right ones keep it, and each law finds the model that breaks it."""

from pathlib import Path

import numpy as np
import pytest

from desim.errors import InputError
from desim.experiments import contract
from desim.experiments.contract import model_laws as laws
from desim.experiments.contract.stage import BrokenError, ModelStage, findings
from desim.interface.cli import main
from desim.scenario import registry
from desim.scenario.load import load

FILE = Path(__file__).parent / "plugins" / "numpy_models.py"
SCENARIO = {
    "problem": {
        "agents": 3,
        "data": {"source": "synthetic", "kind": "classification", "rows": 9, "dim": 4},
        "model": "numpy-scores",
    },
    "plugins": [str(FILE)],
    "algorithm": {"name": "dsgd", "alpha": 0.1},
    "network": {"topology": "ring"},
    "stop": {"rounds": 2},
}


def bench(folder, *changes):
    """The model of FILE with changes (right, wrong)."""
    text = FILE.read_text()
    for right, wrong in changes:
        assert right in text
        text = text.replace(right, wrong)
    file = folder / f"mine{len([*folder.iterdir()])}.py"  # of one name, Python keeps old bytecode
    file.write_text(text)
    registry.load_plugin(file)
    return ModelStage(registry.plugged().models["numpy-scores"], folder)


def test_a_model_keeps_the_contract(capsys):
    with pytest.raises(SystemExit) as left:
        main(["check", "--contract", str(FILE)])
    said = capsys.readouterr().out.splitlines()
    assert (left.value.code, said[0]) == (0, "numpy-scores: model (numpy_models.py, line 8)")
    assert [line.split()[1] for line in said[1:-1]] == [law for law, _ in laws.LAWS]
    assert said[-1] == f"  {len(laws.LAWS) - 1} kept, 1 skipped"  # it says that threads wait


def test_a_scenario_lends_its_rows_and_its_model():
    found = list(contract.model("numpy-scores", load(SCENARIO)))
    assert {one.outcome for one in found if one.law != "threads"} == {"kept"}
    assert "8 parameters" in found[0].about  # 4 features, 2 classes


PARAMETER = ("    def initial(self, seed):", "    count = 0\n\n    def initial(self, seed):")
ODDS = "        a, odds = self.odds(x, rows)\n"
BREAKS = [
    (laws.starts, [PARAMETER, ("        return np.zeros(", "        self.count += 1\n        "
                               "return 0.1 * self.count + np.zeros(")]),
    (laws.finite, [("        return -np.log(", "        return x.any() * np.inf - np.log(")]),
    (laws.derivative, [(" -= 1.0", " -= 0.9")]),
    (laws.derivative, [("return -np.log(", "return -2.0 * np.log(")]),
    (laws.examples, [("    def predict", "    def gradient(self, x, rows):\n        return 1.01 * "
                      "super().gradient(x, rows)\n\n    def predict")]),
    (laws.clips, [("    def predict", "    def clipped(self, x, rows, clip):\n        return "
                   "super().clipped(x, rows, 1.001 * clip)\n\n    def predict")]),
    (laws.clips, [("    def predict", "    def clipped(self, x, rows, clip):\n        return "
                   "super().clipped(x, rows, clip) * (1.0 + 1e-6)\n\n    def predict")]),
    (laws.rows, [("        odds = np.exp(a", "        a = a - a[0]\n        odds = np.exp(a")]),
    (laws.state, [PARAMETER, (ODDS, f"{ODDS}        self.count += len(a) == 9\n"
                              "        a = a + self.count\n")]),
    (laws.together, [("    def predict", "    def gradients(self, x, rows, clip):\n        found = "
                      "super().gradients(x, rows, clip)\n        return found * (1 + 1e-6 * len(x))"
                      "\n\n    def predict")]),
    (laws.random, [(ODDS, f"{ODDS}        a = a + np.random.rand() * (rows.key is not None)\n")]),
    (laws.random, [("        odds = self.odds(x, rows)[1]\n", "        odds = self.odds(x, rows)[1]"
                    "\n        odds = odds * (1 - 1e-5 * (rows.key is None))\n")]),
    (laws.predicts, [("argmax(1)", "argmax()")]),
    (laws.learns, [("return (a[:", "return -(a[:")]),
    (laws.learns, [("    def predict", "    def gradients(self, x, rows, clip):\n        return "
                    "super().gradients(x, rows, clip) * (len(x) == 1)\n\n    def predict")]),
]  # fmt: skip


@pytest.mark.parametrize(("law", "changes"), BREAKS, ids=lambda one: getattr(one, "__name__", ""))
def test_each_law_finds_a_model_that_breaks_it(law, changes, tmp_path):
    with pytest.raises((BrokenError, InputError)):
        law(bench(tmp_path, *changes))
    law(bench(tmp_path))


def test_threads_that_meet_are_noticed(tmp_path):
    meeting = "        self.seen = x.copy()\n        time.sleep(0.01)\n        x = self.seen\n"
    broken = bench(
        tmp_path,
        ("import numpy as np\n", "import time\n\nimport numpy as np\n"),
        ("    summary", "    threads = True\n    summary"),
        (
            "        a, odds = self.odds(x, rows)\n",
            f"{meeting}        a, odds = self.odds(x, rows)\n",
        ),
    )
    with pytest.raises(BrokenError, match=r"called by four threads .*; allowed: `threads = False`"):
        laws.threads(broken)


def test_a_model_that_cannot_clip_is_not_asked_to(tmp_path):
    text = FILE.read_text().replace("def example_gradients", "def gradient").replace(
        "reshape(len(a), -1)", "sum(0).ravel()"
    )  # fmt: skip
    (tmp_path / "mine.py").write_text(text)
    registry.load_plugin(tmp_path / "mine.py")
    found = {one.law: one for one in contract.model("numpy-scores")}
    assert (found["examples"].outcome, found["clips"].outcome) == ("skipped", "skipped")
    assert "problem.clip cannot be used" in found["clips"].about
    assert found["learns"].outcome == "kept"


def test_rows_of_another_shape_are_stated_by_the_class(tmp_path):
    square = ("rows.inputs.reshape(len(rows.inputs), -1)", "rows.inputs[:, 0, :]")
    found = next(findings(laws.LAWS, bench(tmp_path, square)))
    assert found.outcome == "broken"
    assert "tried on generated rows of shape (6,) with 3 classes: `example = (shape" in found.about
    stated = ("    summary", "    example = ((1, 5), 4)\n    summary")
    whole = ("int(np.prod(self.facts.shape))", "5")
    found = list(findings(laws.LAWS, bench(tmp_path, square, stated, whole)))
    assert {one.outcome for one in found if one.law != "threads"} == {"kept"}


def test_a_model_that_nobody_brings_is_unknown():
    with pytest.raises(InputError, match=r"model: found 'nobodys'; allowed: "):
        contract.model("nobodys")


def test_a_scenario_whose_agents_are_values_of_a_column_lends_its_rows(tmp_path):
    np.savez(tmp_path / "rows.npz", A=np.eye(12, 4), b=np.arange(12) % 2, user=np.arange(12) // 4)
    problem = {
        "data": {"source": "arrays", "file": "rows.npz"}, "partition": {"by": "user"},
        "model": "numpy-scores",
    }  # fmt: skip
    given = load({**SCENARIO, "problem": problem}, folder=tmp_path)
    found = list(contract.model("numpy-scores", given))
    assert {one.outcome for one in found if one.law != "threads"} == {"kept"}
