"""A start imports what it needs and nothing else, and what is kept between runs is the same."""

import os
import subprocess
import sys
from ast import literal_eval
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
from mutant import mutant

import desim
from desim.fields import Strict
from desim.interface.cli import main
from desim.interface.cli.commands import warmup as words
from desim.interface.cli.progress import RunBar, announced
from desim.numerics import plain
from desim.numerics import watched as compiling
from desim.numerics.cache import keep, stored_arrays
from desim.numerics.later import Later
from desim.problem.data import sources as bundled_module
from desim.problem.data.sources import bundled
from desim.runs.warmup import Warmth, shipped
from desim.scenario import own, registry
from desim.scenario.sections.problem import Loss
from desim.scenario.tree import networks

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"

HEAVY = (
    "networkx", "sklearn", "scipy.stats", "scipy.optimize",
    "clarabel", "pandas", "pyarrow.dataset", "matplotlib",
)  # fmt: skip


class Section(Strict):
    """A section of a scenario."""

    rho: float = 1.0
    """how far
    a step goes"""
    eta: float = 2.0
    name: str = ""
    """text of the last"""


class Wider(Section):
    """The same with one more key."""

    phi: float
    """a key of its own"""


def said_after(parts, look, **own):
    """What `look` prints in one fresh process after each of the parts of its code."""
    code = "import sys\n" + "".join(f"{part}\nprint('@', {look})\n" for part in parts)
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, env={**os.environ, **own},
    )  # fmt: skip
    return [line[2:] for line in done.stdout.splitlines() if line.startswith("@ ")]


def command(*words):
    """Code that gives desim this command."""
    return (
        f"from desim.interface.cli import main\ntry: main({list(words)})\nexcept SystemExit: pass"
    )


@pytest.mark.slow
def test_a_run_imports_only_what_it_needs(tmp_path):
    heavy = f"[one for one in {HEAVY} if one in sys.modules]"
    first, again = (str(tmp_path / name) for name in "ab")
    run = f"import desim\ndesim.run('scenarios/quickstart.yaml', out={again!r})"
    desim.run("quickstart", out=first)  # whatever is kept between runs is there from now on
    parts = [run, command("show", first), "import scipy.stats"]
    *quiet, more = said_after(parts, heavy)
    assert quiet == ["[]", "[]"]
    assert "scipy.stats" in more


@pytest.mark.slow
def test_a_summary_needs_no_compiler_and_a_check_no_tables(tmp_path):
    # the second is imported with the first compiled code
    look = "[one for one in ('numba', 'numba.np.arraymath', 'pyarrow') if one in sys.modules]"
    place = str(tmp_path / "run")
    bundled("breast_cancer")  # which whoever reads it first imports much for

    def found(*parts):
        return said_after(parts, look, DESIM_COMPILE="later")

    checked, run = found(command("check", "quickstart"), command("run", "quickstart", "-o", place))
    assert checked == "['numba']"
    assert run in ("['numba', 'pyarrow']", "['numba', 'numba.np.arraymath', 'pyarrow']")
    shown = found(command("show", place), "import numba")
    assert shown == ["['pyarrow']", "['numba', 'pyarrow']"]


def test_names_that_are_known_without_looking_are_those_of_the_classes():
    assert set(own.LOSSES) == {*Loss.words, *Loss.alternatives()}
    given = {name: {name: {"hidden": 2}} if name == "mlp" else name for name in own.LOSSES}
    made = {name: Loss.model_validate(one).made() for name, one in given.items()}
    assert set(own.LAYERED) == {name for name, one in made.items() if not one.linear}
    known = [set(registry.get(name).relations) for name in own.METHODS]
    assert all(set(own.RELATIONS) <= one for one in known)
    assert not all("add-or-remove-one" in one for one in known)


@pytest.mark.slow
def test_engines_and_libraries_come_when_they_are_asked_for():
    engines = "[one for one in sys.modules if one.startswith('desim.engine.') or one == 'simpy']"
    parts = [
        "from desim.numerics.later import sparse",
        "import desim\ndesim.load('scenarios/quickstart.yaml')",
        "import desim.engine.agents.graph",
        "sparse.eye_array(2)",
    ]
    there = said_after(parts, f"('scipy.sparse' in sys.modules, {engines})")
    libraries, found = zip(*map(literal_eval, there), strict=True)
    assert (libraries[0], libraries[-1]) == (False, True)
    assert found[1] == ["desim.engine.signals"]  # what listeners of plug-ins are, and no engine
    assert "desim.engine.agents.graph" in found[2]
    with pytest.raises(AttributeError, match="nothing"):
        Later("math").nothing  # noqa: B018
    assert not hasattr(Later("math"), "__array__")


def test_a_warmup_of_nothing_says_only_what_was_skipped(capsys):
    with pytest.raises(SystemExit) as end:
        main(["warmup", "nofile.yaml"])
    told = capsys.readouterr().out.splitlines()
    assert (end.value.code, told[0], len(told)) == (1, "skipped 1: nofile", 2)
    assert "nofile.yaml" in told[1]


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "wine", "iris", "diabetes"])
def test_bundled_tables_are_the_same_from_the_cache(name, tmp_path, monkeypatch):
    monkeypatch.setenv("DESIM_CACHE_DIR", str(tmp_path))
    fresh, again = bundled(name), bundled(name)
    assert len(list(tmp_path.rglob("*.npz"))) == 1
    assert fresh.A.tobytes() == again.A.tobytes()
    assert fresh.labels.tobytes() == again.labels.tobytes()
    assert (fresh.names, fresh.called) == (again.names, again.called)
    assert all(type(one) is str for one in (*again.names, *again.called))


def test_another_version_of_the_tables_is_read_anew(tmp_path, monkeypatch):
    monkeypatch.setenv("DESIM_CACHE_DIR", str(tmp_path))
    stale = {"A": np.ones((1, 1)), "labels": np.ones(1), "names": ["a"], "called": ["b"]}
    keep(tmp_path / "tables" / "iris-0.1.npz", stale)

    def check(module):
        assert module.bundled("iris").A.shape == (150, 4)

    check(bundled_module)
    careless = mutant(bundled_module, "{version('scikit-learn')}", "0.1")
    with pytest.raises(AssertionError):
        check(careless)


def test_a_damaged_file_is_none(tmp_path):
    path = tmp_path / "kept" / "x.npz"
    assert stored_arrays(path) is None
    keep(path, {"x": np.arange(3)})
    assert stored_arrays(path)["x"].tolist() == [0, 1, 2]
    path.write_bytes(path.read_bytes()[:40])
    assert stored_arrays(path) is None
    assert [one.name for one in path.parent.iterdir()] == ["x.npz"]


def test_docstrings_of_keys_are_read_when_asked_for():
    assert Section.about("rho") == "how far\na step goes"
    assert (Section.about("eta"), Section.about("name")) == ("", "text of the last")
    assert (Wider.about("phi"), Wider.about("name")) == ("a key of its own", "text of the last")
    properties = Wider.model_json_schema()["properties"]
    told = {key: form.get("description") for key, form in properties.items()}
    assert told == {
        "rho": "how far\na step goes", "eta": None, "name": "text of the last",
        "phi": "a key of its own",
    }  # fmt: skip


@pytest.fixture
def kernels():
    """A fresh function of a plugin, which numba compiles and never keeps."""
    from numba import njit

    inner = njit(lambda x: x + 1)
    return njit(lambda x: inner(x) * 2)


def check_watch(module, kernels):
    begun = []
    with module.watched(begun.append) as compilation:
        assert (begun, compilation.functions, compilation.seconds) == ([], 0, 0.0)
        assert kernels(1) == 4
        first = compilation.seconds
        assert kernels(2) == 6
    assert (begun, compilation.functions) == ([1, 2], 2)
    assert compilation.seconds == first > 0.0


def test_compilation_is_noticed_once_for_nested_functions(kernels):
    check_watch(compiling, kernels)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("self._begin(self.functions)", "self._begin(1)"), ("self.functions += 1", "")],
)
def test_a_careless_watch_is_noticed(right, wrong, kernels):
    with pytest.raises(AssertionError):
        check_watch(mutant(compiling, right, wrong), lambda x: (kernels(x), kernels(float(x)))[0])


def test_warmup_plays_what_it_can_and_says_what_it_cannot(tmp_path, capsys):
    bad = tmp_path / "bad.yaml"
    bad.write_text("problem: {}\n")
    with pytest.raises(SystemExit) as left:
        main(["warmup", str(SCENARIOS / "quickstart.yaml"), str(bad)])
    said = capsys.readouterr().out.splitlines()
    assert left.value.code == 1
    assert said[0].startswith("1 scenarios ready: ")
    assert said[1] == "skipped 1: bad"
    assert "bad.yaml" in said[2]


def test_what_ships_is_warmed_up():
    names = {file.stem for file in shipped()}
    assert {"quickstart", "asynchronous", "networked-admm", "fed-plt"} <= names
    assert not names & set(networks())


def test_a_first_run_says_that_it_compiles_and_a_second_is_silent(kernels, capsys):
    for expected in (2, 0):
        with announced():
            kernels(1)
        assert len(capsys.readouterr().err.splitlines()) == expected


def test_what_plain_python_took_is_said_where_nothing_is_compiled(monkeypatch, capsys):
    monkeypatch.setattr(plain, "seconds", 5.0)
    for spent, lines in ((0.4, 0), (2.0, 1)):
        with announced():
            monkeypatch.setattr(plain, "seconds", plain.seconds + spent)
        told = capsys.readouterr().err.splitlines()
        assert len(told) == lines
    assert told[0].startswith("kernels took 2.0 s as plain Python")


def test_what_is_compiled_is_a_number_that_moves(kernels, monkeypatch):
    shown = []
    bar = RunBar("quickstart", lambda text, share: shown.append((text, share)))
    bar.engine = "agents"
    bar.compiling(40)
    bar.compiling(200)
    assert shown == [
        ("quickstart: compiling function 40 of about 130", 40 / 130),
        ("quickstart: compiling function 200", 1.0),
    ]
    seen = []
    with announced(seen.append):
        kernels(1)
    assert seen == [1, 2]


def test_a_warmup_counts_functions(monkeypatch, kernels):
    shown = []

    @contextmanager
    def bar(text):
        yield lambda text, share: shown.append((text, share))

    def played(files, tell):
        for file in files:
            tell(file)
            kernels(1 if file == "a" else 1.0)
        return Warmth(2, {}, 4, 1.0)

    monkeypatch.setattr(words, "moving_bar", bar)
    monkeypatch.setattr("desim.runs.warmup.warm_up", played)
    words.warm(["a", "b"])
    assert shown[0] == ("warmup: scenario 1 of 2, 1 functions compiled", 0.0)
    assert shown[-1] == ("warmup: scenario 2 of 2, 4 functions compiled", 0.5)
