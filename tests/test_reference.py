"""The reference says everything: each key, algorithm, column, command, with examples that load."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from docutils.utils.math import MathError
from pydantic import TypeAdapter

import desim
from analysis.docs import generate
from analysis.docs.generate import algorithms, examples, keys, methods, scenario, worked, written
from analysis.docs.generate.types import phrase, schema_of
from analysis.docs.mathml import drawn
from analysis.reproductions.__main__ import SCRIPTS
from desim.engine.at_work import OWNED
from desim.fields import Strict
from desim.log.column_meanings import COLUMNS, KINDS
from desim.scenario import registry
from desim.scenario.schema import Scenario
from desim.scenario.sections.data import SOURCES

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "analysis" / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
NAMES = registry.OWN
ALGORITHMS = "reference/algorithms/index"
SECTIONS = {**scenario.places(), Scenario: "top"}
SECTIONS |= {registry.get(name).Parameters: name for name in NAMES}
KEYS = [(one, key) for one in SECTIONS for key in one.keys() if key != "parameters"]


def expanded(path):
    return path.read_text("utf-8")


def stale(path, text):
    """Whether parts of a page differ from what the code says of itself."""
    return generate.completed(path.relative_to(DOCS).with_suffix("").as_posix(), text) != text


def test_the_parts_of_pages_are_what_the_code_says():
    """`python -m analysis.docs.generate` writes them anew."""
    assert [path.name for path in PAGES if stale(path, path.read_text("utf-8"))] == []
    page = REFERENCE / "scenario.md"
    assert stale(page, page.read_text("utf-8").replace("**`seed`**", "**`sead`**"))


def lacking(page, words):
    return [word for word in words if f"`{word}`" not in page]


def properties(schema):
    """The keys of a JSON Schema, all levels together."""
    if isinstance(schema, list):
        return set().union(*map(properties, schema))
    if not isinstance(schema, dict):
        return set()
    own = set(schema.get("properties", {}))
    return own.union(*map(properties, schema.values()))


@pytest.mark.slow
def test_every_key_of_the_schema_is_in_the_reference():
    files = [REFERENCE / "scenario.md", *(REFERENCE / "algorithms").glob("*.md")]
    page = "\n".join(map(expanded, files))
    laws = set(re.findall(r"`\{(\w+): ", expanded(REFERENCE / "scenario.md")))
    schema = json.loads((ROOT / "scenarios" / "scenario.schema.json").read_text())  # no plug-ins
    wanted = properties(schema) - {"include", "name"} - laws
    assert len(wanted) > 150
    assert lacking(page, wanted) == []
    assert lacking(page.replace("**`latency`**", "").replace("`latency`", ""), wanted) != []


@pytest.mark.parametrize("owner", SECTIONS, ids=lambda one: SECTIONS[one])
def test_every_example_is_a_value_of_its_key(owner, tmp_path):
    registry.load_plugin(model(tmp_path / "plugin.py"))
    for key in owner.keys():
        if key in ("parameters", "problem", "algorithm", "network"):
            continue
        field, example = owner.model_fields[owner.attribute(key)], examples.example(owner, key)
        if "folder" in phrase(schema_of(field)) and "file" not in phrase(schema_of(field)):
            (tmp_path / str(example)).mkdir(exist_ok=True)
        places(example, tmp_path)
        check(field, example, tmp_path)
        with pytest.raises(ValueError, match=r"allowed|found|valid"):
            check(field, object(), tmp_path)


def model(path):
    """A plug-in with the model and the listener that examples name."""
    path.write_text(
        "from desim.model import Model\nfrom desim.signals import Listener\n\n\n"
        "class Meter(Listener):\n    name = 'energy-meter'\n    summary = 'an example'\n"
        "    def rows(self, table, columns): ...\n\n\n"
        "class Own(Model):\n"
        "    name = 'my-network'\n    summary = 'an example'\n"
        "    def initial(self, seed): ...\n    def loss(self, x, rows): ...\n"
    )
    return path


def places(example, folder):
    """Make the files that an example names."""
    for one in example.values() if isinstance(example, dict) else np.ravel(example).tolist():
        if isinstance(one, dict):
            places(one, folder)
        elif isinstance(one, str) and re.fullmatch(r"[\w/.${}-]+\.\w{2,8}(\.gz)?", one):
            path = folder / one
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()


def check(field, value, folder):
    kind = field.rebuild_annotation()
    TypeAdapter(kind).validate_python(value, context={"folder": folder})


def test_every_key_says_what_it_is():
    silent = [f"{SECTIONS[one]}.{key}" for one, key in KEYS if not one.about(key)]
    assert [name for name in silent if not name.endswith((".source", "x.name"))] == []


def test_every_algorithm_has_a_page_with_its_equations():
    found = {path.stem for path in (REFERENCE / "algorithms").glob("*.md")} - {"index"}
    assert found == set(NAMES)
    for name in NAMES:
        page = expanded(REFERENCE / "algorithms" / f"{name}.md")
        given = registry.get(name).Parameters.keys()
        assert lacking(page, given) == []
        for heading in ("Equations", "What is released", "Parameters", "A scenario", "The code"):
            assert f"\n## {heading}\n" in page
        assert page.count("```python\n") >= 1
    index = expanded(REFERENCE / "algorithms" / "index.md")
    assert [name for name in NAMES if f"]({name}.md)" not in index] == []


def test_the_page_of_what_there_is_names_every_command():
    page = (ROOT / "analysis" / "docs" / "what-there-is.md").read_text("utf-8")
    folder = ROOT / "desim" / "interface" / "cli" / "commands"
    names = {path.stem for path in folder.glob("*.py")} - {"__init__", "schema", "warmup"}
    assert len(names) > 20
    assert [name for name in sorted(names) if not re.search(rf"`(desim )?{name}\b", page)] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_page_names_what_there_is(name):
    said = algorithms.front()[name]
    assert (ROOT / "tests" / "naive" / f"{said['twin']}.py").is_file()
    tests = [ROOT / "tests" / f"{one}.py" for one in said["tests"]]
    assert any(f"naive.{said['twin']}" in one.read_text() for one in tests)
    assert set(said.get("reproductions", ())) <= {script.NAME for script in SCRIPTS}


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", NAMES)
def test_the_scenario_of_a_page_runs(name, tmp_path):
    if "people.csv" in (text := worked.scenario_text(name, algorithms.front()[name]["scenario"])):
        people(tmp_path / "people.csv")
    (tmp_path / "small.yaml").write_text(text)
    run = desim.run(tmp_path / "small.yaml")
    assert run.status == "done"
    assert np.isfinite(run.curve(run.observed[0])["value"]).all()
    noisy = "noise: " in text or "solver: noisy" in text
    assert (run.releases["scale"] > 0.0).any() == noisy


def people(path):
    draw = np.random.default_rng(3)
    rows = ["income,age,group,hired"]
    for _ in range(60):
        income, age = draw.normal(size=2)
        group, hired = draw.choice(["a", "b"]), draw.integers(2)
        rows.append(f"{income:.3f},{age:.3f},{group},{hired}")
    path.write_text("\n".join(rows) + "\n")


def test_what_a_page_says_of_needs_is_what_the_scenario_admits():
    for name in NAMES:
        said = dict(methods.needs(registry.get(name)))
        base = worked.scenario_of(name, algorithms.front()[name]["scenario"])
        if base["problem"]["data"]["source"] == "csv":
            continue
        rough = {**base["problem"], "loss": "hinge"}
        admits = accepted({**base, "problem": rough})
        assert admits == ("nonsmooth" in said["losses"]), name


def accepted(section):
    try:
        desim.load(section)
    except desim.InputError:
        return False
    return True


def test_every_column_kind_command_and_source_is_there():
    page = expanded(REFERENCE / "run-directory.md")
    assert lacking(page, [column for table in COLUMNS.values() for column in table]) == []
    assert lacking(page, KINDS) == []
    commands = expanded(REFERENCE / "commands.md")
    from desim.interface.cli import COMMANDS

    assert [one for one in COMMANDS if f"## desim {one}\n" not in commands] == []
    names = expanded(REFERENCE / "names.md")
    assert lacking(names, SOURCES) == []
    python = expanded(REFERENCE / "python.md")
    assert [
        one for one in desim.__all__ if one[0] != "_" and f"### desim.{one}\n" not in python
    ] == []


def test_what_pages_name_exists():
    """Files of the project, and test functions `file::function`."""
    named = 0
    for path in PAGES:
        text = expanded(path)
        for file in re.findall(r"`((?:tests|analysis|desim|scenarios)/[\w/.-]+)`", text):
            assert (ROOT / file).exists(), f"{path.name}: {file}"
            named += 1
        for file, function in re.findall(r"`(tests/\w+\.py)::(\w+)`", text):
            assert f"def {function}(" in (ROOT / file).read_text(), f"{path.name}: {function}"
            named += 1
    assert named > 150


INLINE = re.compile(r"(?<![$\\])\$(?!\$)([^$`]*?)(?<!\\)\$(?!\$)")
BLOCK = re.compile(r"^\$\$\n(.*?)\n\$\$$", re.DOTALL | re.MULTILINE)


def formulas(text):
    """Formulas of a page, displayed and within lines; ValueError where one reads as a list."""
    text = re.sub(r"^```.*?^```$|(`+)[^`]+\1", "", text, flags=re.DOTALL | re.MULTILINE)
    inline = INLINE.findall(BLOCK.sub("", text))
    if any(re.search(r"\n\s*(?:[-+*]|\d+[.)])\s", one) for one in inline):
        raise ValueError("a line of a formula begins like an item of a list")
    return BLOCK.findall(text), inline


def test_every_formula_is_drawn():
    drawn_ = 0
    for path in PAGES:
        blocks, inline = formulas(path.read_text("utf-8"))
        for text in (*blocks, *inline):
            drawn_ += "<math" in drawn(text, text in blocks)
    assert drawn_ > 500
    with pytest.raises(MathError):
        drawn(r"\operatornamed{x}")
    with pytest.raises(ValueError, match="list"):
        formulas("$a\n+ b$")


MYST = re.compile(r"^```\{|^:{3,}|^% |^\([\w-]+\)=$|(?:^|[ (])\{[a-z]+\}`\w|\{\{", re.MULTILINE)


def test_every_part_is_on_a_page_and_pages_read_without_sphinx():
    texts = [path.read_text("utf-8") for path in PAGES]
    used = {one for text in texts for one, _ in generate.PART.findall(text)}
    assert used == {*generate.PARTS, *generate.OF_ALGORITHMS}
    outside_code = [re.sub(r"^```\w.*?^```$", "", text, flags=re.DOTALL | re.M) for text in texts]
    assert [MYST.findall(text) for text in outside_code if MYST.search(text)] == []
    for wrong in ("```{figure} x\n", ":::{card}\n", "% test: exit 2\n", "(key-top)=\n", "{{n}}"):
        assert MYST.search(wrong)


def test_every_page_is_in_the_side_bar():
    tree = generate.side_bar((DOCS / "index.md").read_text("utf-8"))
    pages = {path.relative_to(DOCS).with_suffix("").as_posix() for path in PAGES} - {"index"}
    listed = set(re.findall(r"<([\w/-]+)>", tree))
    assert listed == {one for one in pages if "/algorithms/" not in one} | {ALGORITHMS}
    assert set(re.findall(r"<([\w/-]+)>", tree.replace("tutorial", ""))) != listed


def test_values_are_written_as_yaml_reads_them():
    from ruamel.yaml import YAML

    for value in ({"a": [1, 2.5, True]}, ";", {"uniform": ["10 ms", "30 ms"]}, 1e-5, "50 %"):
        assert YAML(typ="safe").load(keys.flow(value)) == value
    assert issubclass(SOURCES["csv"], Strict)
    assert int(written.algorithms()) == len(NAMES)


def test_of_us_the_verbs_of_a_program_are_listed_and_no_others():
    """What engines ask of it is public to them alone."""
    page = expanded(REFERENCE / "python.md")
    about = re.search(r"### desim.engine.us.Cohort\n(.*?)\n### ", page, re.DOTALL)[1]
    told = re.findall(r"^#### (\w+)$", about, re.MULTILINE)
    assert {"arrived", "send", "gather", "release", "above", "report", "noise_seed"} <= {*told}
    engines = {name for name in told if name in "begin_anew served depart yielded computed".split()}
    assert (engines, {*told} <= {*OWNED, "noise_seed"}) == (set(), True)
