"""The study of a slow neighbour: its file, the steps that are chosen, what is told and drawn."""

import numpy as np
import pandas as pd
import pytest

import desim
from analysis.studies import slow_neighbour
from desim.experiments.studies.study import plan

WAYS = {"all": 5, "each": 3}


@pytest.fixture(scope="module")
def cases():
    """Those of the search."""
    return plan(slow_neighbour.FILE).cases


class Found:
    """A search whose summary is given: seconds to the target and final accuracies by case."""

    def __init__(self, cases, seconds, finals):
        self.plan = type("Plan", (), {"cases": cases})
        self.summary = pd.DataFrame(
            {"case": case.number, "measure": measure, "unit": unit, "value": value,
             "low": value, "high": value}
            for case, *values in zip(cases, seconds, finals, strict=True)
            for measure, unit, value in zip(
                ("time to accuracy 0.85", "final accuracy"), ("s", ""), values, strict=True)
        )  # fmt: skip


@pytest.mark.slow
def test_the_file_is_what_the_page_says(cases):
    assert len(cases) == 8 * 4 * 2
    policies = [case.values.get("policy", "all") for case in cases]
    assert {kind: policies.count(kind) / 8 for kind in policies} == WAYS
    assert {case.name for case in cases} >= set(slow_neighbour.FREE)


@pytest.mark.slow
def test_the_chosen_step_is_the_fastest_and_the_most_accurate_where_none_arrives(cases):
    mine = [c for c in cases if c.name == "AD-PSGD" and c.values["problem.partition"] == "iid"]
    steps = [case.values["algorithm.alpha"] for case in mine]

    def chosen(seconds, finals):
        [one] = slow_neighbour.best(Found(mine, seconds, finals)).values()
        return one["algorithm.alpha"]

    never = [np.inf] * 4
    assert chosen([9.0, 3.0, 5.0, np.inf], [0.1, 0.2, 0.9, 0.9]) == steps[1]
    assert chosen([9.0, 9.0, 5.0, np.inf], [0.1, 0.2, 0.9, 0.9]) == steps[2]
    assert chosen(never, [0.1, 0.2, 0.8, 0.4]) == steps[2]


@pytest.mark.slow
def test_a_contest_is_played_told_and_drawn(cases, tmp_path):
    dealt = next(iter(slow_neighbour.PARTITIONS.values()))
    found = Found(cases, [1.0] * 64, np.arange(64.0))
    some = {
        key: values
        for key, values in slow_neighbour.best(found).items()
        if key in (("dsgd", dealt), ("gossip", dealt))
    }
    study = slow_neighbour.contest(some, dealt, "1..2")
    study["set"] = {"stop.time": "600 ms"}
    made = {dealt: desim.study(study, tmp_path / "runs", workers=0)}
    assert len(made[dealt].plan.cases) == 2 * 3
    slow_neighbour.draw(made, tmp_path / "figure.svg")
    assert "dsgd" in (tmp_path / "figure.svg").read_text("utf-8")
