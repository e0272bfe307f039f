"""Which agent is which site: told by check, manifest, summary, figures and reports."""

import json

import pytest
from sections import made, written

import desim
from desim import agent_names
from desim.interface.cli import main
from desim.interface.plots import utilisation

TEXT = "age,city,sick\n" + "".join(
    f"{20 + 3 * k},{('Thun', 'Bern', 'Chur')[k % 3]},{('no', 'yes')[k // 3 % 2]}\n"
    for k in range(18)
)
SCENARIO = """name: sites
problem:
  data: {source: csv, file: table.csv, label: sick, scale: standard}
  partition: {by: city}
  loss: logistic
  regularizer: {l2: 0.1}
algorithm: {name: fedavg, local: {epochs: 2}}
compute: {speed: {uniform: [50, 500]}}
network: {link: {latency: {uniform: [5 ms, 50 ms]}}}
stop: {rounds: 3}
"""
NAMES = ["Bern", "Chur", "Thun"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("sites")
    (place / "table.csv").write_text(TEXT)
    (place / "s.yaml").write_text(SCENARIO)
    desim.run(place / "s.yaml", place / "run")
    return place


def test_sites_are_the_values_in_order_and_hold_their_rows(tmp_path):
    keys = {**written(tmp_path, TEXT), "partition": {"by": "city"}, "agents": 3}
    found = made(**keys)
    assert found.sites == tuple(NAMES)
    first = sorted(found.A[: found.start[1], 0].tolist())
    assert first == sorted(20.0 + 3 * k for k in range(18) if k % 3 == 1)


def test_the_manifest_and_the_summary_name_them(folder, capsys):
    assert json.loads((folder / "run" / "manifest.json").read_text())["sites"] == NAMES
    with pytest.raises(SystemExit):
        main(["show", str(folder / "run")])
    told = capsys.readouterr().out
    assert "0 Bern, 1 Chur, 2 Thun" in told
    assert any(f"agent {i} ({name})" in told for i, name in enumerate(NAMES))


def test_check_names_them(folder, capsys):
    with pytest.raises(SystemExit):
        main(["check", str(folder / "s.yaml")])
    assert "3 agents (0 Bern, 1 Chur, 2 Thun), 18 rows" in capsys.readouterr().out


def test_figures_and_reports_name_them(folder):
    run = desim.open(folder / "run")
    wanted = ["0 Bern", "1 Chur", "2 Thun"]
    assert [
        one.get_text() for one in utilisation(run, folder / "u.png").get_yticklabels()
    ] == wanted
    lanes = [one.get_text() for one in run.plot.timeline(out=folder / "t.png").get_yticklabels()]
    assert lanes == ["coordinator", *wanted]
    below = [one.get_text() for one in run.plot.network(out=folder / "n.png").texts]
    assert "0 Bern, 1 Chur, 2 Thun" in below
    assert "agent 1 (Chur)" in desim.report([run], folder / "r.html").read_text()


def test_agents_that_are_no_sites_have_numbers_alone(tmp_path):
    keys = {**written(tmp_path, TEXT), "agents": 3}
    assert made(**keys).sites == ()
    assert agent_names.agent_named({}, 2) == "agent 2"
    assert agent_names.numbered({"sites": "damaged"}, 2) == "2"
    assert agent_names.agent_named({"sites": NAMES}, -1) == "agent -1"
    assert agent_names.listed([f"s{i}" for i in range(20)]).endswith("11 s11, ... 20 in all")
    assert agent_names.numbered({"sites": ["x" * 40]}, 0) == "0 " + "x" * 21 + "..."
