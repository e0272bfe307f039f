"""One door for methods: what they import, how `us` and `hub` are typed, what comes in with it."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import desim.method

ROOT = Path(__file__).resolve().parents[1]
PLUGINS = sorted(
    [
        *(ROOT / "tests" / "plugins").glob("*.py"),
        *(ROOT / "analysis").rglob("plugin_example/**/*.py"),
    ]
)
BESIDE = {
    "desim.model",
    "desim.signals",
    "desim.torch",
    "desim.jax",
    "desim.losses.plugged",
    "desim.privacy.accounting.plugged",
}  # doors of models, losses and accountants


def behind(text):
    """Modules of desim besides the door that a method's text imports."""
    found = re.findall(r"^\s*(?:from|import) (desim[\w.]*)", text, re.M)
    return {name for name in found if name not in {"desim", "desim.method"} | BESIDE}


def untyped(text):
    """Arguments `us` and `hub` of functions whose types say nothing."""
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg)]
    named = [node for node in nodes if node.arg in ("us", "hub")]
    return [n.arg for n in named if not n.annotation or ast.unparse(n.annotation) == "Any"]


@pytest.mark.slow
def test_the_door_brings_no_engine_and_no_heavy_library():
    heavy = "('desim.engine', 'simpy', 'pandas', 'pyarrow', 'matplotlib', 'networkx', 'ruamel')"
    said = f"\nprint([one for one in {heavy} if one in sys.modules])\n"
    code = f"import sys, desim.method{said}import desim.engine.us, simpy{said}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["[]", "['desim.engine', 'simpy']"]


def test_all_that_the_door_names_is_there_and_no_more():
    assert all(hasattr(desim.method, name) for name in desim.method.__all__)
    public = {name for name in vars(desim.method) if not name.startswith("_")}
    assert public - {"Any", "TYPE_CHECKING", "names_of"} <= set(desim.method.__all__)
    assert not hasattr(desim.method, "engine")


@pytest.mark.parametrize("path", PLUGINS, ids=lambda path: path.stem)
def test_plug_ins_need_the_door_alone(path):
    assert behind(path.read_text("utf-8")) == set()
    assert untyped(path.read_text("utf-8")) == []


METHODS = sorted((ROOT / "desim" / "methods").rglob("*.py"))


@pytest.mark.parametrize("path", METHODS, ids=lambda path: path.stem)
def test_methods_of_desim_say_what_us_and_hub_are(path):
    assert untyped(path.read_text("utf-8")) == []


def test_examples_of_the_docs_need_the_door_alone():
    blocks = re.compile(r"^\*\*`\w+\.py`\*\*\n\n```python\n(.*?)```", re.S | re.M)
    pages = [*(ROOT / "analysis" / "docs").rglob("*.md")]
    texts = [text for page in pages for text in blocks.findall(page.read_text("utf-8"))]
    methods = [text for text in texts if "(Method):" in text]
    assert len(methods) >= 3
    assert [behind(text) for text in methods] == [set()] * len(methods)


@pytest.mark.parametrize("name", ["pairwise_gossip", "reptile"])
def test_the_page_of_a_newcomer_shows_the_files(name):
    page = (ROOT / "analysis" / "docs" / "howto" / "afternoon.md").read_text("utf-8")
    path = ROOT / "analysis" / "plugin_example" / "src" / "desim_example" / f"{name}.py"
    assert f"**`{name}.py`**\n\n```python\n{path.read_text('utf-8')}```" in page


def test_another_door_and_an_unknown_us_are_noticed():
    assert behind("from desim.problem.kernels.gradients import gradient\n") == {
        "desim.problem.kernels.gradients"
    }
    assert untyped("def f(self, us, hub: Any, who): ...") == ["us", "hub"]
    assert untyped("def f(self, us: Us, hub: Hub): ...") == []
