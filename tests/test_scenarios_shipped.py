"""What ships with desim: scenarios run, networks fit all methods, the schema is current."""

import json
from pathlib import Path

import jsonschema
import pytest

import desim
from desim.scenario import definitions, registry
from desim.scenario.load import read
from desim.scenario.schema import json_schema
from desim.scenario.study_file import study_schema
from desim.scenario.tree import networks

FOLDER = Path(__file__).resolve().parents[1] / "scenarios"
SHIPPED = sorted(FOLDER.glob("*.yaml"))
NETWORKS = list(networks())


@pytest.mark.parametrize("file", SHIPPED, ids=lambda file: file.stem)
def test_every_scenario_runs(file):
    done = desim.run(file, overrides={"stop": {"rounds": 10}})
    assert done.status == "done"
    assert done.name == file.stem
    assert file.read_text().startswith("# yaml-language-server: $schema=scenario.schema.json\n")


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_fits_every_method(name):
    plt = desim.run(FOLDER / "quickstart.yaml", overrides={"network": name, "stop.rounds": 4})
    changes = {"network": {"include": name, "topology": "ring"}, "stop.rounds": 4}
    nfl = desim.run(FOLDER / "networked-admm.yaml", overrides=changes)
    assert plt.manifest["time"] > 0
    assert nfl.manifest["time"] > 0
    assert len(NETWORKS) >= 6


def test_the_quickstart_learns():
    done = desim.run(FOLDER / "quickstart.yaml")
    assert done.time_to("accuracy", 0.93) < done.manifest["time"]
    assert done.metrics.query("metric == 'accuracy' and round == 0").value.item() < 0.7


def test_the_schema_file_is_the_schema(monkeypatch):
    monkeypatch.setattr(registry, "_plugged", registry.Known(*({} for _ in registry.Known._fields)))
    kept = json.loads((FOLDER / "scenario.schema.json").read_text())
    assert kept == json.loads(json.dumps(json_schema()))


def inlined(node, defs, names):
    """The same with what `names` of `defs` say in place of references to them."""
    if isinstance(node, list):
        return [inlined(one, defs, names) for one in node]
    if not isinstance(node, dict):
        return node
    found = {key: inlined(one, defs, names) for key, one in node.items() if key != "$ref"}
    name = node.get("$ref", "").rpartition("/")[2]
    if name in names:
        return inlined(defs[name], defs, names) | found
    return found | ({"$ref": node["$ref"]} if name else {})


def test_what_a_schema_says_once_it_says_of_every_key(monkeypatch):
    """And shipped scenarios, some of them spoilt, are valid by it as by one that repeats all."""
    short = json_schema()
    monkeypatch.setattr(definitions, "once", lambda schema: schema)
    whole = json_schema()
    names = short["$defs"].keys() - whole["$defs"].keys()
    assert {"TimeLaw", "WattsLaw", "Bandwidth"} <= names
    again = inlined(short, short["$defs"], names)
    assert {**again, "$defs": {n: o for n, o in again["$defs"].items() if n not in names}} == whole
    assert len(json.dumps(short)) < 0.75 * len(json.dumps(whole))
    checks = [jsonschema.Draft202012Validator(one) for one in (short, whole)]
    for file in SHIPPED[:4]:
        tree = {**read(file).data, "name": "a"}
        spoilt = {**tree, "compute": {"speed": {"uniform": ["1 /s"]}}}
        spoilt["network"] = {"link": {"latency": "20 m"}}
        for data, right in ((tree, True), (spoilt, False)):
            assert [one.is_valid(data) for one in checks] == [right, right]


def test_studies_keep_to_their_schema():
    kept = json.loads((FOLDER / "study.schema.json").read_text())
    assert kept == json.loads(json.dumps(study_schema()))
    check = jsonschema.Draft202012Validator(kept)
    files = [path for path in (FOLDER / "studies").glob("*.yaml") if "base" in read(path).data]
    assert len(files) > 4
    for path in files:
        assert path.read_text().startswith("# yaml-language-server: $schema=../study.schema.json\n")
        tree = read(path).data
        check.validate(tree)
        for wrong in ({"grids": {}}, {"compare": {"level": 0.9, "epsilon": {"sight": "x"}}}):
            assert not check.is_valid({**tree, **wrong})
