"""What ships with desim: scenarios run, networks fit all methods, the schema is current."""

import json
from pathlib import Path

import jsonschema
import pytest

import desim
from desim.scenario import registry
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
