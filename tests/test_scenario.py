"""Scenarios: a corpus of good and bad files, and what reading promises about every other file."""

import copy
import json
import math
import re
from collections import UserDict, UserList
from functools import cache
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from mutant import mutant

from desim.errors import InputError
from desim.numerics.distributions import CONSTANT, LOGNORMAL, UNIFORM, Distribution
from desim.problem.losses.regularizers import Regularizer
from desim.scenario import registry, schema
from desim.scenario.check import located, validated
from desim.scenario.checks import consistency
from desim.scenario.load import load, parse, read, resolved_yaml
from desim.scenario.tree import dumped, networks

CORPUS = Path(__file__).parent / "scenarios"
VALID = sorted((CORPUS / "valid").glob("*.yaml"))
INVALID = sorted((CORPUS / "invalid").glob("*.yaml"))
SMALL = {
    "problem": {
        "agents": 4,
        "data": {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 4},
        "loss": "logistic",
    },
    "algorithm": {"name": "fed-plt", "rho": 0.3},
    "stop": {"rounds": 3},
}


def small(**sections):
    """A small valid scenario as a dict, some of its sections replaced."""
    return {**copy.deepcopy(SMALL), **sections}


def names(path):
    return path.stem


def expected(path):
    """The parts of the message that line 1 of an invalid file states."""
    first = path.read_bytes().splitlines()[0].decode()
    assert first.startswith("# expect: ")
    return first.removeprefix("# expect: ").split("|")


def make(source, overrides=None):
    """Load, and build what only the data and the graph can tell to be wrong."""
    scenario = load(source, overrides)
    from desim.scenario.build import check

    check(scenario)


def message(source, overrides=None):
    """What is said about a scenario that cannot be loaded or built."""
    with pytest.raises(InputError) as error:
        make(source, overrides)
    return str(error.value)


def test_the_corpus_is_large_enough():
    assert len(INVALID) >= 60
    assert len(VALID) >= 12


@pytest.mark.parametrize("path", INVALID, ids=names)
def test_invalid_file_is_explained(path, capfd):
    told = message(path)
    assert [part for part in expected(path) if part not in told] == []
    assert "pydantic" not in told
    assert "Traceback" not in told
    assert capfd.readouterr() == ("", "")


def test_the_corpus_check_can_fail(tmp_path):
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text((CORPUS / "invalid" / "null.yaml").read_text().replace("null", "-1"))
    assert any(part not in message(wrong) for part in expected(wrong))
    with pytest.raises(pytest.fail.Exception):
        message(VALID[0])


@pytest.mark.parametrize(
    ("right", "wrong", "file"),
    [
        (
            "participation.value > agents",
            "participation.value > agents + 9",
            "participation-too-many",
        ),
        ("method.smooth_only and not loss.smooth", "False", "loss-nonsmooth"),
        ('kind == "box" and local', "False", "box-without-prox"),
        ('found != "all" and found not in known', "False", "policy-on-graph"),
    ],
)
def test_without_a_check_its_file_would_pass(right, wrong, file, monkeypatch):
    path = CORPUS / "invalid" / f"{file}.yaml"
    tree = parse(path.read_text(), "file")
    tree.data["name"] = "x"
    monkeypatch.setattr("desim.scenario.check.CHECKS", mutant(consistency, right, wrong).CHECKS)
    validated(tree, path.parent)


@pytest.mark.thin(3)
@pytest.mark.parametrize("path", VALID, ids=names)
def test_valid_file_loads_and_resolves_to_an_equal_scenario(path, tmp_path):
    scenario = load(path)
    resolved = tmp_path / "elsewhere.yaml"
    resolved.write_text(resolved_yaml(scenario))
    again = load(resolved)
    assert again == scenario
    assert resolved_yaml(again) == resolved_yaml(scenario)
    assert load(scenario.written()) == scenario


def test_scenarios_that_differ_are_not_equal():
    assert load(small()) != load(small(seed=1))
    assert load(small()) == load(small(seed=0))


def test_defaults_are_explicit_in_the_resolved_scenario():
    written = load(small()).written()
    absent = ("privacy", "battery", "attackers", "listeners")
    assert list(written) == [key for key in schema.SECTIONS if key not in absent]
    link = {"latency": 0.01, "bandwidth": 1e8, "jitter": "none", "loss": 0.0}
    link |= {"on_loss": "resend", "timeout": 1.0, "backoff": 1.0, "limit": 20, "transport": "ideal"}
    link["directions"] = "same"
    assert written["network"]["link"] == link
    assert written["network"]["topology"] == "star"
    assert written["compute"] == {
        "speed": 1000.0,
        "work": "rows",
        "redraw": "run",
        "slow": {"fraction": 0.0, "factor": 1.0},
    }
    assert written["problem"]["average"] == "mean"
    assert written["problem"]["regularizer"] == "none"
    assert written["observe"] == {
        "metrics": ["error"], "every": "round", "iterates": False, "models": "own"
    }  # fmt: skip
    assert (written["seed"], written["participation"], written["policy"]) == (0, "all", "all")
    assert (written["churn"], written["engine"]) == ("none", "auto")


@pytest.mark.parametrize(
    ("policy", "late"),
    [
        ("all", "discard"),
        ("each", "carry"),
        ({"deadline": "2 s"}, "discard"),
        ({"quorum": 2}, "discard"),
        ({"buffer": 2}, "carry"),
        ({"deadline": 2, "late": "carry"}, "carry"),
        ({"buffer": 2, "late": "discard"}, "discard"),
    ],
)
def test_the_fate_of_late_replies_follows_the_policy(policy, late):
    scenario = load(small(policy=policy))
    assert (scenario.policy.late or scenario.late) == late
    assert load(scenario.written()).policy.late == late


def test_values_are_in_si_units():
    link = {"latency": {"uniform": ["10 ms", "1 s"]}, "bandwidth": "1 MB/s", "loss": "5 %"}
    link["jitter"] = {"lognormal": 0.3}
    network = load(small(network={"link": link, "uplink": {"bandwidth": "inf"}})).network
    assert network.link.latency == Distribution(UNIFORM, 0.01, 1.0)
    assert network.down.bandwidth == Distribution(CONSTANT, 8e6)
    assert network.up.bandwidth == Distribution(CONSTANT, math.inf)
    assert network.up.jitter == Distribution(LOGNORMAL, 1.0, 0.3)
    assert network.up.loss == network.down.loss == 0.05


def test_every_error_of_a_file_is_told_at_once_in_its_order(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_text(
        "seed: -1\nproblem:\n  agents: 4\n  data:\n"
        "    source: synthetic\n    kind: classification\n"
        "    rows: 0\n    dim: 4\n  loss: logstic\nalgorithm: {name: fed-plt, rho: x}\n"
        "network:\n  link:\n    latency: 3 ms\n    loss: 2\nstop:\n  round: 3\n"
    )
    with pytest.raises(InputError) as error:
        load(path)
    places = [line.removeprefix(f"{path}:").split(": ")[:2] for line in error.value.problems]
    assert places == [
        ["1", "seed"],
        ["7", "problem.data.rows"],
        ["9", "problem.loss"],
        ["10", "algorithm.rho"],
        ["14", "network.link.loss"],
        ["16", "stop.round"],
    ]
    assert error.value.exit_code == 2


def test_one_wrong_section_does_not_hide_what_others_owe_each_other():
    told = message(small(seed=-1, participation={"uniform": 9}))
    assert "seed: found -1" in told
    assert "participation.uniform: found 9 active of 4 agents" in told


def test_a_dict_is_called_scenario():
    assert message(small(seed=-1)) == ("scenario: seed: found -1; allowed: a whole number >= 0")


def test_numpy_and_paths_are_welcome_in_a_dict():
    scenario = load(small(seed=np.int64(3), participation={"schedule": np.array([[0, 2]])}))
    assert scenario.seed == 3
    assert scenario.participation.schedule == ((0, 2),)


def test_the_source_dict_is_left_alone():
    source = small(network="wifi")
    before = copy.deepcopy(source)
    load(source, {"algorithm.rho": 1})
    assert source == before


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda folder: folder, "found a directory"),
        (lambda folder: folder / "quickstat.yaml", "no such file; did you mean 'quickstart.yaml'?"),
        (lambda folder: folder / ("x" * 5000), "cannot be read"),
        (lambda folder: str(folder / "a\0b"), "cannot be read"),
    ],
    ids=["directory", "missing", "long", "null"],
)
def test_what_is_no_file_is_refused(make, told, tmp_path):
    (tmp_path / "quickstart.yaml").touch()
    assert told in message(make(tmp_path))


def test_aliases_that_multiply_are_refused(monkeypatch):
    # To meet two million takes seconds.
    monkeypatch.setattr(import_module("desim.scenario.load"), "MAX_NODES", 20_000)
    lines = ["a0: &a0 [1, 2, 3, 4, 5, 6, 7, 8, 9]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 9)]
    with pytest.raises(InputError, match="too much text"):
        parse("\n".join(lines), "laughs")


def test_an_alias_is_one_value_in_two_places(tmp_path):
    path = tmp_path / "alias.yaml"
    text = (CORPUS / "valid" / "fed-plt-defaults.yaml").read_text()
    path.write_text(text + "network: {link: &l {latency: 3 ms}, uplink: *l}\n")
    assert load(path).network.up.latency == Distribution(CONSTANT, 0.003)


@pytest.mark.parametrize("name", networks())
def test_shipped_network_can_be_included_by_name(name):
    network = load(small(network=name)).network
    assert network.up.latency.a > 0


def test_six_networks_are_shipped():
    assert set(networks()) >= {"lan", "wifi", "4g", "satellite", "lossy", "stragglers"}


def test_a_network_file_is_searched_beside_the_scenario_first(tmp_path):
    (tmp_path / "networks").mkdir()
    own = "network: {link: {latency: 7 ms, loss: 1 %}}\ncompute: {speed: 5 /s, redraw: round}\n"
    (tmp_path / "networks" / "wifi.yaml").write_text(own)
    path = tmp_path / "mine.yaml"
    text = (CORPUS / "valid" / "fed-plt-defaults.yaml").read_text()
    path.write_text(text + "network: {include: wifi, link: {loss: 0}}\ncompute: {speed: 9 /s}\n")
    scenario = load(path)
    assert scenario.network.link.latency.a == 0.007
    assert scenario.network.link.loss == 0
    assert (scenario.compute.speed.a, scenario.compute.redraw) == (9.0, "round")


def test_an_error_in_a_network_file_names_that_file(tmp_path):
    (tmp_path / "mine.yaml").write_text("network:\n  link:\n    latency: 7 parsec\n")
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps(small(network="mine")))
    assert f"{tmp_path / 'mine.yaml'}:3: network.link.latency: found unit 'parsec'" in message(path)


def test_a_network_file_holds_nothing_else(tmp_path):
    (tmp_path / "mine.yaml").write_text("network: {include: wifi}\nseed: 3\n")
    path = tmp_path / "s.yaml"
    path.write_text(json.dumps(small(network="mine")))
    told = message(path)
    assert "mine.yaml:2: seed: unknown key in a network file" in told
    assert "mine.yaml:1: network.include: an included file includes no other" in told


@pytest.mark.parametrize(
    ("key", "value", "read"),
    [
        ("algorithm.rho", 0.7, lambda s: s.algorithm.parameters.rho == 0.7),
        ("algorithm.rho", "0.7", lambda s: s.algorithm.parameters.rho == 0.7),
        ("policy.deadline", "2 s", lambda s: s.policy.deadline == 2),
        ("participation", "{bernoulli: 0.5}", lambda s: s.participation.value == 0.5),
        ("participation.uniform", 2, lambda s: s.participation.kind == "uniform"),
        ("network.link.loss", "5 %", lambda s: s.network.link.loss == 0.05),
        ("network", "lan", lambda s: s.network.link.bandwidth.a == 1e9),
        ("name", "other", lambda s: s.name == "other"),
        ("participation", None, lambda s: s.participation.kind == "all"),
        ("network", "null", lambda s: s.network.link.latency.a != 0.003),
    ],
)
def test_an_override_replaces_a_key(key, value, read):
    source = small(participation={"bernoulli": 0.9}, network="wifi")
    assert read(load(source, {key: value}))


def test_an_override_keeps_what_an_include_says():
    link = load(small(network="wifi"), {"network.link.loss": 0}).network.link
    assert (link.loss, link.latency.a) == (0.0, 0.003)


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("algorithm.rhu", 1, "override algorithm.rhu: unknown key"),
        ("algorithm.rho", "-1", "override algorithm.rho: found -1"),
        ("algorithm..rho", 1, "override: found 'algorithm..rho'"),
        ("seed", "[", "override seed:1: not YAML 1.2"),
        ("seed", "!x 3", "found the tag !x"),
        ("seed", " ", "override seed: found nothing; allowed: a value, or null to leave"),
        ("algorithm.rho", None, "override algorithm.rho: missing"),
        (
            "algorithm.rhu",
            "null",
            "override algorithm.rhu: null leaves out what is written; found 'rhu'",
        ),
        ("privacy.noise", None, "found 'noise'; allowed: none, as nothing is written there"),
        ("seed", "[null]", "seed[0]: found nothing (null)"),
    ],
)
def test_a_wrong_override_is_named(key, value, told):
    assert told in message(small(), {key: value})


def test_the_regulariser_is_placed_where_it_can_act():
    both = small()
    net = {"elastic_net": {"l1": 3, "l2": 4}}
    both["problem"]["regularizer"] = [{"l2": 2}, net, {"box": [-1, "inf"]}]
    problem = load(both).problem
    assert problem.regularizers(has_prox=True) == (
        Regularizer(l2=2),
        Regularizer(l1=3, l2=4, lower=-1),
    )
    assert problem.regularizers(has_prox=False)[1] == Regularizer()
    both["problem"]["regularizer"] = {"l2": 2, "at": "coordinator"}
    assert load(both).problem.regularizers(has_prox=True) == (Regularizer(), Regularizer(l2=2))


def test_a_later_error_gets_its_line(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text((CORPUS / "valid" / "zcdp-nfl-edges.yaml").read_text())
    told = located(load(path), InputError(["network.topology.edges: disconnected", "no key"]))
    assert told.problems[0].startswith(f"{path}:8: network.topology.edges: disconnected")
    assert told.problems[1] == "no key"


def test_json_schema_describes_every_key():
    described = schema.json_schema()
    text = json.dumps(described)
    assert set(described["properties"]) == set(schema.SECTIONS)
    assert '"null"' not in text
    assert "(word)" not in text
    for name in described["$defs"]:
        assert f'"#/$defs/{name}"' in text
    options = described["properties"]["algorithm"]["oneOf"]
    assert [one["properties"]["name"]["const"] for one in options] == list(registry.names())
    assert [one["required"][0] for one in options] == ["name"] * len(options)
    link = described["$defs"]["Link"]["properties"]
    assert all("description" in key for key in link.values())
    law = described["$defs"][link["latency"]["$ref"].rpartition("/")[2]]
    time = described["$defs"][law["anyOf"][0]["$ref"].rpartition("/")[2]]
    pattern = time["anyOf"][1]["pattern"]
    assert re.search(pattern, "20 ms")
    assert not re.search(pattern, "20 m")
    assert not re.search(pattern, "-3 ms")


def problems(read, *arguments):
    """What `read` refuses; nothing if it accepts. Any other exception is a failure."""
    try:
        read(*arguments)
    except InputError as error:
        return error.problems
    return []


def places(data, way=()):
    """Every place in nested dicts and lists."""
    yield way
    items = data.items() if isinstance(data, dict) else enumerate(data)
    for key, below in items:
        if isinstance(below, dict | list):
            yield from places(below, (*way, key))
        else:
            yield (*way, key)


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8),
    st.just({}), st.just([]), st.just({"x": [None]}), st.just(10**400), st.just({3: 4}),
)  # fmt: skip


@cache
def written_in(path):
    return load(path).written()


@settings(max_examples=examples(75), deadline=None)
@given(st.data())
def test_any_damage_to_a_scenario_is_accepted_or_explained(data):
    written = copy.deepcopy(written_in(data.draw(st.sampled_from(VALID))))
    *way, last = data.draw(st.sampled_from([way for way in places(written) if way]))
    node = written
    for key in way:
        node = node[key]
    node[last] = data.draw(JUNK)
    assert all(line.startswith("scenario: ") for line in problems(load, written))


@settings(max_examples=examples(150), deadline=None)
@given(st.one_of(st.text(max_size=60), st.text("{}[]:,-&*!|>#\n 'a1.e%@`?", max_size=40)))
def test_any_text_is_yaml_or_explained(text):
    assert all(line.startswith("text") for line in problems(parse, text, "text"))


def test_a_text_that_is_read_again_is_as_it_was_written(tmp_path):
    text = "a: &shared {b: [1, 2]}\nc: *shared\n"
    first = parse(text, "one")
    first.data["a"]["b"].append(3)
    first.marks.clear()
    assert first.data["c"] == {"b": [1, 2]}
    assert parse(text, "one").data == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}
    assert parse(text, "two").marks[("a", "b")] == "two:1"
    file = tmp_path / "s.yaml"
    for number in (1, 2):
        file.write_text(f"a: {number}\n")
        assert read(file).data == {"a": number}


def test_sections_that_are_equal_and_not_the_same_have_their_own_text():
    texts = [dumped({"seed": {"a": one, "b": [2]}}) for one in (1, 1.0, True, "1", 1)]
    wanted = ("1", "1.0", "true", "'1'", "1")
    assert [text.splitlines()[2].strip() for text in texts] == [f"a: {one}" for one in wanted]


def test_a_network_is_measured_by_its_loss_unless_told_otherwise():
    data = {"source": "synthetic", "kind": "classification", "rows": 5, "dim": 4}
    problem = {"agents": 4, "data": data, "loss": {"mlp": {"hidden": 3}}}
    local = {"epochs": 2, "step": 0.1}
    scenario = {"problem": problem, "algorithm": {"name": "fedavg", "local": local}}
    scenario["stop"] = {"rounds": 2}
    assert load(scenario).observe.metrics == ("loss",)
    assert load({**scenario, "observe": {"every": "1 s"}}).observe.metrics == ("loss",)
    told = load({**scenario, "observe": {"metrics": ["consensus"]}})
    assert told.observe.metrics == ("consensus",)
    linear = {**scenario, "problem": {**problem, "loss": "logistic"}}
    assert load(linear).observe.metrics == ("error",)


class Lines(UserList):
    """A list of another library, as OmegaConf has them."""


def test_mappings_and_lists_of_other_libraries_are_read():
    tree = load(SMALL).written()
    other = UserDict(
        {key: UserDict(part) if isinstance(part, dict) else part for key, part in tree.items()}
    )
    other["participation"] = UserDict({"schedule": Lines([Lines([0]), Lines([1])])})
    assert (
        load(other).participation
        == load({**tree, "participation": {"schedule": [[0], [1]]}}).participation
    )


def test_what_is_no_scenario_is_refused_in_words():
    for source in (None, 3, [], b"x"):
        with pytest.raises(InputError, match="allowed: a file, the name of a scenario, a mapping"):
            load(source)
    with pytest.raises(InputError, match="overrides: found 'a=b'; allowed: a mapping"):
        load(SMALL, "a=b")
