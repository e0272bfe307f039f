"""What comes by an extra is asked for in words where it lacks, and nothing else needs it."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from study_scenes import BASE

import desim
from desim.errors import InputError, require

ROOT = Path(__file__).resolve().parents[1]
UNTESTED = ("mlflow",)  # twenty packages: where it is installed, tests/test_trackers.py reads it
ASKED = re.compile(r'(?<!\.)require\("[^"]+", "(\w+)", "(\w+)"\)')
WITHOUT = """
import json, sys
sys.modules |= dict.fromkeys(("perfetto", "distributed"))
from desim.interface.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        print("left with", end.code)
"""


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    """commands(words, ...): what desim says on both streams where no extra is installed."""
    folder = tmp_path_factory.mktemp("extras")
    for name in ("a", "b"):
        desim.run(BASE, folder / name)
    (folder / "s.yaml").write_text(json.dumps({"base": BASE, "grid": {"seed": [1, 2]}}))

    def commands(*lines):
        command = [sys.executable, "-c", WITHOUT, json.dumps([line.split() for line in lines])]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
        return done.stdout, done.stderr.splitlines()

    return commands


@pytest.mark.slow
def test_an_extra_that_lacks_is_named(commands):
    out, err = commands("export a --to perfetto", "study s.yaml --dask tcp://x:1")
    assert out == "left with 2\n" * 2
    assert err == [
        "export to perfetto: needs the package perfetto; pip install 'desim[perfetto]'",
        "--dask: needs the package distributed; pip install 'desim[dask]'",
    ]


@pytest.mark.slow
def test_all_else_goes_without_them(commands):
    lines = ["show a", "compare a b", "report a -o r.html", "export a --to csv", "privacy a"]
    out, _ = commands(*lines, "check quickstart", "study s.yaml --workers 0")
    assert (out.count("left with 0"), out.count("left with")) == (7, 7)


def names(folder):
    """(package, extra) pairs that the code below a folder asks for."""
    files = sorted(Path(folder).rglob("*.py"))
    return {pair for file in files for pair in ASKED.findall(file.read_text())}


def offered():
    """(package, extra) pairs that an installation of desim can have."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        (re.split(r"[<>=]", one)[0], extra)
        for extra, packages in project["optional-dependencies"].items()
        for one in packages
    }


def test_what_is_asked_for_is_offered_and_in_the_tests(tmp_path):
    asked = names(ROOT / "desim")
    assert len(asked) == 6
    assert asked <= offered() | {("mlflow", "mlflow")}  # which mlflow-skinny has
    tested = next(one for one, extra in offered() if extra == "test" and one.startswith("desim["))
    assert all(extra in tested for _, extra in asked if extra not in UNTESTED)
    (tmp_path / "wrong.py").write_text('require("x", "matplotlib", "figures")')
    assert not names(tmp_path) <= offered()


def test_what_is_installed_is_not_asked_for():
    require("numbers", "numpy", "none")
    with pytest.raises(
        InputError, match=r"x: needs the package nothing_; pip install 'desim\[y\]'"
    ):
        require("x", "nothing_", "y")
