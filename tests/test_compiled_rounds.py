"""I1 for the compiled engine: its rounds are those of the cohort engine, to the last bit."""

import pytest
from cases import CASES, one_each
from mutant import mutant
from test_engines import differences

import desim
from desim.engine import play
from desim.engine.compiled import star as star_compiled
from desim.errors import InputError
from desim.scenario.build import check

METHODS = ("fed-plt", "fedavg", "fedprox", "fedbuff")
WITHOUT = (
    "plt-exact", "plt-softmax", "plt-budget", "plt-budget-stop", "fedavg-adam", "fedprox-yogi",
    "fedbuff-private", "fedbuff-budget",
)  # fmt: skip


def run(name, **overrides):
    return desim.run(CASES[name], overrides=overrides)


def chosen(name):
    """The engine that a case runs on by itself."""
    return check(desim.load(CASES[name])).engine


COMPILED = [
    name
    for name, case in CASES.items()
    if case["algorithm"]["name"] in METHODS and not {"churn", "codec"} & set(case)
    if name not in WITHOUT
]


@pytest.mark.parametrize("name", one_each(COMPILED))
def test_compiled_rounds_agree_to_the_last_bit(name):
    compiled, cohort = run(name), run(name, engine="cohort")
    assert compiled.manifest["engine"] == "compiled"
    assert differences(compiled, cohort) == []


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"policy": "each", "stop.rounds": 500},
        {"policy": {"buffer": 3}},
        {"problem.agents": 40, "stop.rounds": 200},
        {"observe": {"metrics": ["loss"]}, "stop.metric": {"loss": 1e9}},
        {"participation": "all", "policy": {"quorum": 3, "late": "carry"}},
    ],
    ids=str,
)
def test_many_rounds_in_one_call(changes):
    plain = {**CASES["plt-sgd-half"], "observe": {"metrics": []}}
    runs = [desim.run(plain, overrides={"engine": e, **changes}) for e in ("compiled", "cohort")]
    assert differences(*runs) == []


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("plt-deadline", 'policy.late == "discard"', 'policy.late != "discard"'),
        ("plt-sgd-half", "drawing.draw(first + k)", "drawing.draw(first)"),
        ("plt-all", "float(times[k]), first + k", "float(times[k]), first"),
        ("fedavg-weights", "tuple(policy.staleness)", "(0, 0.0, 0.0)"),
        ("plt-time", "settings.horizon, most)", "2.0 * settings.horizon, most)"),
        (
            "plt-all",
            "self.program.formulas, (int",
            "self.program.formulas._replace(weight=0.1), (int",
        ),
    ],
)
def test_wrong_compiled_rounds_are_noticed(monkeypatch, name, right, wrong):
    broken, changes = mutant(star_compiled, right, wrong), {}
    if "weight" in wrong:
        changes = {"problem.regularizer": {"l1": 0.5}}
    cohort = run(name, engine="cohort", **changes)
    monkeypatch.setitem(play.ENGINES, ("coordinator", "compiled"), broken.play)
    assert differences(run(name, engine="compiled", **changes), cohort)


@pytest.mark.parametrize("name", [*WITHOUT, "nfl-lossy", "choco-plain", "scaffold"])
def test_what_has_no_compiled_rounds_runs_without_them(name):
    assert chosen(name) in ("cohort", "agents")
    with pytest.raises(InputError, match=r"engine: found compiled.*allowed"):
        run(name, engine="compiled")
