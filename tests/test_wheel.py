"""The wheel and the sdist hold what they should, and the wheel works alone, from any folder."""

import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest
import trove_classifiers
from markdown_it import MarkdownIt
from packaging.metadata import Metadata

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "analysis" / "plugin_example"
BUILD = (
    "import os, sys; os.chdir(sys.argv.pop(1)); from hatchling.cli import hatchling; hatchling()"
)


def held(folder, pattern):
    """Files below a folder of the project, as the wheel names them."""
    files = [one for one in (ROOT / folder).rglob(pattern) if one.is_file()]
    files = [one for one in files if "__pycache__" not in one.parts]
    top = "desim/scenarios" if folder == "scenarios" else folder
    return {f"{top}/{file.relative_to(ROOT / folder).as_posix()}" for file in files}


def lacking(files):
    """What of desim's code and scenarios is not among `files`, or is there and is neither."""
    wanted = held("desim", "*") | held("scenarios", "*")
    return wanted ^ {one for one in files if ".dist-info/" not in one}


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The folder with this tree's sdist, the wheel made of that, and a wheel of a plug-in."""
    folder = tmp_path_factory.mktemp("dist")
    for project, kind in ((ROOT, "sdist"), (folder, "wheel"), (EXAMPLE, "wheel")):
        if project == folder:
            with tarfile.open(next(folder.glob("desim-*.tar.gz"))) as archive:
                archive.extractall(folder, filter="data")
            project = next(folder.glob("desim-*/"))
        command = [sys.executable, "-c", BUILD, str(project), "build", "-t", kind]
        done = subprocess.run([*command, "-d", folder], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def wheel(built):
    """The wheel."""
    return next(built.glob("desim-*.whl"))


def test_the_wheel_holds_the_code_and_the_scenarios(wheel):
    files = set(zipfile.ZipFile(wheel).namelist())
    assert lacking(files) == set()
    assert lacking(files - {"desim/scenarios/quickstart.yaml"}) == {
        "desim/scenarios/quickstart.yaml"
    }
    assert lacking(files | {"tests/cases.py"}) == {"tests/cases.py"}
    licence = next(one for one in files if one.endswith("licenses/LICENSE"))
    entry = licence.replace("licenses/LICENSE", "entry_points.txt")
    assert b"desim = desim.__main__:main" in zipfile.ZipFile(wheel).read(entry)
    assert sum(one.endswith("/quickstart.yaml") for one in files) == 1


def broken(text):
    """What of a package's metadata a registry refuses, or leads nowhere on its page."""
    found = Metadata.from_email(text, validate=True)  # or it raises
    assert found.description_content_type == "text/markdown"
    tree = MarkdownIt().parse(found.description)
    inner = [one for token in tree for one in token.children or ()]
    places = [one.attrGet("href") or one.attrGet("src") or "http" for one in inner]
    titles = sum(token.type == "heading_open" for token in tree)
    unknown = {one for one in found.classifiers if one not in trove_classifiers.classifiers}
    return [one for one in places if not one.startswith("http")], titles, unknown


def test_a_registry_can_show_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name = next(one for one in archive.namelist() if one.endswith("dist-info/METADATA"))
        text = archive.read(name).decode()
    links, titles, unknown = broken(text)
    assert (links, unknown) == ([], set())
    assert titles == (ROOT / "README.md").read_text("utf-8").count("\n## ") + 1
    page = (ROOT / "README.md").read_text("utf-8")
    assert len(broken(text.partition("\n\n")[0] + "\n\n" + page)[0]) > 9
    assert broken(text.replace("Typing :: Typed", "Typing :: Said"))[2] == {"Typing :: Said"}
    with pytest.raises(ExceptionGroup):
        broken(text.replace("Requires-Dist: numpy", "Requires-Dist: numpy="))


def test_the_sdist_holds_what_a_test_needs(built):
    with tarfile.open(next(built.glob("desim-*.tar.gz"))) as archive:
        files = {name.partition("/")[2] for name in archive.getnames()}
    wanted = "README.md CHANGELOG.md LICENSE tests/cases.py scenarios/papers/fed-plt.yaml"
    assert not [one for one in files if one.startswith(".ci") or "__pycache__" in one]
    assert files >= {
        *wanted.split(),
        "hatch_build.py",
        "desim/interface/cli/__init__.py",
        "analysis/reproductions/README.md",
    }


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """installed(program, argument, ...): one of a fresh environment that has both wheels.

    What desim needs comes from the environment of the tests, whose desim stays unseen.
    """
    home = tmp_path_factory.mktemp("fresh")
    venv.create(home / "env", with_pip=False, symlinks=True)
    python = next((home / "env").glob("*/python"))
    site = next((home / "env").glob("lib/*/site-packages"))
    (site / "needed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    command = ["--python", python, "install", "-q", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([sys.executable, "-m", "pip", *command, *built.glob("*.whl")], check=True)
    empty = {**os.environ, "NUMBA_DISABLE_JIT": "1", "DESIM_CACHE_DIR": str(home / "cache")}
    empty.pop("PYTHONPATH", None)

    def run(program, *arguments, folder):
        done = subprocess.run(
            [python.with_name(program), *arguments],
            cwd=folder, env=empty, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


SEVERAL = """
import sys
from desim.interface.cli import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as end:
        print("ended with", end.code)
"""


def test_a_fresh_environment_runs_what_is_shipped_by_name(installed, tmp_path):
    short = ("--set", "engine=cohort", "--set", "stop.rounds=1")
    code, out, _ = installed("desim", "run", "quickstart", *short, folder=tmp_path)
    assert (code, out.splitlines()[:2]) == (
        0, ["quickstart: done", "  stored in     runs/quickstart"],
    )  # fmt: skip
    asked = ("list scenarios", "study waiting --dry-run")
    _, out, err = installed("python", "-c", SEVERAL, *asked, folder=tmp_path)
    listed, planned, _ = out.split("ended with 0\n")
    assert ("  papers/fed-plt " in listed, "policy each: seeds 0 to 19" in planned) == (True, True)
    assert [one.name for one in tmp_path.iterdir()] == ["runs"], err


def test_an_installed_plug_in_is_known_by_its_names(installed, tmp_path):
    asked = ("list algorithms", "list losses", f"check {EXAMPLE / 'example.yaml'}")
    said = installed("python", "-c", SEVERAL, *asked, folder=tmp_path)
    algorithms, losses, checked, _ = said[1].split("ended with 0\n")
    assert ("  noisy-gossip " in algorithms, "  log-cosh " in losses) == (True, True)
    assert ("noisy-gossip, 8 agents" in checked, "log-cosh loss" in checked) == (True, True), said


def test_the_citation_is_of_this_version():
    cited = (ROOT / "CITATION.cff").read_text().splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert f"version: {project['version']}" in cited
    assert f"license: {project['license']}" in cited


def lowest():
    """What pip takes as constraints: each of desim's own dependencies in its lowest version."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    bounds = [re.match(r"([\w.-]+)[>=]=([\d.]+)", one) for one in project["dependencies"]]
    return [f"{bound[1]}=={bound[2]}" for bound in bounds if bound is not None]


PLAYED = """
import desim
run = desim.run("quickstart", "run", {"stop.rounds": 2, "engine": "cohort"})
desim.plot(run, out="curve.png")
desim.report("run", "report.html")
print(desim.replay("run").same, desim.compare("run").frame.shape[0] > 0)
"""


@pytest.mark.skipif(
    not os.environ.get("DESIM_LOWEST"),
    reason="installs the lowest versions from a package index: DESIM_LOWEST=1 asks for it",
)
def test_the_lowest_versions_will_do(wheel, tmp_path):
    constraints = lowest()
    assert len(constraints) == 19
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = next((tmp_path / "env").glob("*/python"))
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--only-binary=:all:"]
    done = subprocess.run(
        [*pip, *constraints, wheel, "pytest", "hypothesis"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "connection" in done.stderr.lower():
        pytest.skip("no package index can be reached")
    assert done.returncode == 0, done.stderr
    alone = {**os.environ, "DESIM_COMPILE": "never", "DESIM_CACHE_DIR": str(tmp_path / "cache")}
    alone.pop("PYTHONPATH", None)
    golden = "-m pytest -q -p no:cacheprovider -k fed_plt -W ignore -m".split()
    golden += ["not slow"]
    for arguments in (["-c", PLAYED], [*golden, str(ROOT / "tests" / "test_golden.py")]):
        played = subprocess.run(
            [python, *arguments], cwd=tmp_path, env=alone,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert played.returncode == 0, played.stdout[-3000:] + played.stderr[-3000:]
        assert "True True" in played.stdout or arguments[0] == "-m"
