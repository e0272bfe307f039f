"""The protected group in the data, and how decisions about the two groups are measured."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from cases import fair, merged, star
from mutant import mutant
from sections import made

import desim
from desim.errors import InputError
from desim.experiments.audit.neighbours import neighbours
from desim.problem import fairness
from desim.scenario.build import build
from desim.scenario.load import load
from desim.scenario.sections.tabular import Protected

PEOPLE = """age,sex,pay,job,split,sick
30,F,1.5,clerk,a,no
40,M,1.75,,a,yes
50,F,1.25,cook,a,yes
60,M,2.5,cook,a,no
35,F,1.0,clerk,b,yes
45,M,1.0,clerk,b,no
"""
SPLIT = {"test": {"column": "split", "value": "b"}, "encode": "one-hot"}


def people(folder, group, **keys):
    (folder / "people.csv").write_text(PEOPLE)
    source = {"source": "csv", "file": str(folder / "people.csv"), "label": "sick", "agents": 1}
    return made(**source, protected=group, partition="contiguous", **{**SPLIT, **keys})


def test_a_value_chooses_the_group_and_its_column_is_no_feature(tmp_path):
    shards = people(tmp_path, {"column": "sex", "value": "F"}, exclude=["job"])
    assert shards.protected.tolist() == [1, 0, 1, 0]
    assert shards.test_protected.tolist() == [1, 0]
    assert shards.names == ("age", "pay")
    named = people(tmp_path, {"column": "sex", "value": ["M"]}, features=["age", "sex"])
    assert named.protected.tolist() == [0, 1, 0, 1]
    assert named.names == ("age", "sex=F", "sex=M")


def test_a_number_chooses_the_group(tmp_path):
    old = people(tmp_path, {"column": "age", "above": 40}, exclude=["job", "sex"])
    assert old.protected.tolist() == [0, 0, 1, 1]
    exact = people(tmp_path, {"column": "age", "value": [30, 60.0, "35"]}, features=["pay"])
    assert exact.protected.tolist() == [1, 0, 0, 1]


def test_groups_go_where_their_rows_go(tmp_path):
    (tmp_path / "people.csv").write_text(
        "a,g,y\n" + "\n".join(f"{n},{n % 3},{n % 2}" for n in range(30))
    )
    shards = made(
        source="csv", file=str(tmp_path / "people.csv"), label="y", agents=4, seed=3,
        protected={"column": "g", "value": 2}, test=0.3,
    )  # fmt: skip
    assert np.array_equal(shards.protected, shards.A[:, 0] % 3 == 2)
    assert np.array_equal(shards.test_protected, shards.test_A[:, 0] % 3 == 2)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"column": "sexx", "value": "F"}, "found no column 'sexx' in the data; did you mean"),
        ({"column": "sex", "value": "D"}, "value: found 'D', in no row; allowed: F, M"),
        ({"column": "sex", "value": ["F", "M"]}, "found only the protected group among the tr"),
        ({"column": "pay", "above": 1.6}, "found only everybody else among the test rows"),
        ({"column": "job", "value": "cook"}, "row 2, column 'job': the value is missing"),
        ({"column": "sex", "above": 2}, "above: column 'sex' holds 'F' in row 1"),
    ],
)
def test_a_group_that_is_none_is_refused(tmp_path, group, message):
    with pytest.raises(InputError) as raised:
        people(tmp_path, group, features=["age"])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ("sex", "found 'sex'; allowed: {column"),
        ({"column": "sex"}, "found neither of value and above"),
        ({"column": "sex", "value": 1, "above": 2}, "found both of value and above"),
        ({"column": "sex", "value": True}, "found true; allowed: text or a number"),
    ],
)
def test_a_group_is_one_rule_about_one_column(group, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Protected.model_validate(group)


# Measures ----------------------------------------------------------------------------------------

A = np.array([[1.0], [2.0], [-1.0], [3.0], [-2.0], [0.0], [-4.0], [-5.0]])
B = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, -1.0, 1.0])
Z = np.array([1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0])
BY_HAND = {  # decisions + + - | + - + - -; right + - - | + + - + -
    "positive_rate": 4 / 8,
    "positive_rate_protected": 2 / 3,
    "positive_rate_others": 2 / 5,
    "risk_difference": 2 / 3 - 2 / 5,
    "accuracy_protected": 1 / 3,
    "accuracy_others": 3 / 5,
}


def check_measures(module):
    loss = SimpleNamespace(classification=True, name="logistic")
    problem = SimpleNamespace(
        A=A, dim=1, test_A=A, test_b=B, test_protected=Z, loss=loss, names=("x",)
    )
    found = {name: module.measure(name, problem, np.ones(1)) for name in module.MEASURES}
    assert found == pytest.approx(BY_HAND)
    flipped = module.measure("risk_difference", problem, -np.ones(1))
    assert flipped == pytest.approx(abs(1 / 3 - 4 / 5))


def test_measures_are_those_counted_by_hand():
    check_measures(fairness)


@pytest.mark.parametrize(
    ("right", "wrong"), [("A @ x >= 0.0", "A @ x > 0.0"), ("group > 0.0", "group < 1.0")]
)
def test_wrong_measures_are_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_measures(mutant(fairness, right, wrong))


OBSERVED = {"observe": {"metrics": ["accuracy", *BY_HAND]}}


def test_any_method_is_measured_by_group():
    data = {**fair("pflr")["problem"]["data"], "test": 0.4}
    run = desim.run(star(problem={"data": data}, **OBSERVED))
    last = run.metrics[run.metrics["round"] == 12].set_index("metric").value
    problem = build(load(star(problem={"data": data}))).problem
    share = problem.test_protected.mean()
    groups = last.accuracy_protected, last.accuracy_others
    assert last.accuracy == pytest.approx(share * groups[0] + (1 - share) * groups[1])
    rates = last.positive_rate_protected, last.positive_rate_others
    assert last.risk_difference == pytest.approx(abs(rates[0] - rates[1]))
    assert last.positive_rate == pytest.approx(share * rates[0] + (1 - share) * rates[1])


def test_a_target_on_a_groups_accuracy_is_a_lower_bound():
    data = {**fair("pflr")["problem"]["data"], "test": 0.4}
    aim = {"accuracy_protected": 0.6}
    run = desim.run(star(problem={"data": data}, **OBSERVED, stop={"rounds": 50, "metric": aim}))
    assert run.manifest["reason"].startswith("stop.metric")
    assert run.curve("accuracy_protected").value.iloc[-1] >= 0.6
    assert run.time_to("accuracy_protected", 0.6) == run.manifest["time"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data": {"test": 0.0}}, "risk_difference needs test rows; set problem.data.test"),
        ({"data": {"test": 0.4, "protected": None}}, "needs two groups; set problem.data.protect"),
        (
            {"data": {"kind": "regression", "test": 0.4}, "loss": "squared"},
            "no meaning for squared",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(changes, message):
    data = {**fair("pflr")["problem"]["data"], **changes["data"]}
    data = {key: value for key, value in data.items() if value is not None}
    scenario = star(problem={"data": data, "loss": changes.get("loss", "logistic")})
    with pytest.raises(InputError) as raised:
        build(load(merged(scenario, {"observe": {"metrics": ["risk_difference"]}})))
    assert message in str(raised.value)


def test_a_neighbour_may_change_its_group():
    simulation = build(load(fair("pflr")))
    z = simulation.problem.protected
    record = np.ones(4), 1.0, 1.0 - z[12]
    pair = neighbours(simulation, 1, 0, record)
    assert np.flatnonzero(pair.second.problem.protected != z).tolist() == [12]
    kept = neighbours(simulation, 1, 0, record[:2]).second
    assert np.array_equal(kept.problem.protected, z)
    assert pair.second.problem.digest() != kept.problem.digest()
