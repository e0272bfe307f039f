"""Nothing that an epsilon rests on follows from rows: it is the same on every pair of neighbours.

Two data sets differ in one row of one agent, which is tiny in one and long in the other, so that
all that can be read off rows differs: norms, curvatures, means. Under the same past, which a replay
gives, the plan, the noise, the ledger, the messages, their sizes and times have to be the same.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from cases import CASES, graph, merged, one_each, star
from releases import claimed

import desim
from desim.errors import RunError
from desim.experiments.audit.pairs import Transcript, completed, unobserved
from desim.log.parquet import Tables
from desim.problem.problem import Problem
from desim.runs.premises import tuned
from desim.runs.privacy import statement
from desim.scenario import registry
from desim.scenario.build import build
from desim.scenario.load import load

PEEKING = str(Path(__file__).parent / "plugins" / "peeking.py")
AGENT, LONG, TINY = 2, 40.0, 0.05  # norms of the row where nothing bounds it
STEP = {"step": 0.3}
PLAN = ("mechanism", "view", "sensitivity", "scale", "sampling", "resolution", "basis")
FLAGGED = {  # what the statement flags where rows decide it, and numbers in their place
    "algorithm.local.step": {"local": STEP},
    "algorithm.local.momentum": {"local": {"momentum": 0.5}},
    "algorithm.step": STEP,
    "algorithm.momentum": {"momentum": 0.5},
}


def noisy(scenario):
    """Whether a scenario asks for noise."""
    privacy = scenario.get("privacy", {})
    drawn = "noise" in privacy and privacy["noise"].get("sigma", 1.0) > 0.0
    trained = "noisy" in scenario["algorithm"].get("local", {}).get("solver", "")
    return drawn or trained or "target" in privacy


def flagged(scenario):
    """What the statement of a run flags."""
    loaded = load(scenario)
    return tuned(loaded, np.isfinite(build(loaded).problem.row_norm))


def numbered(scenario):
    """The scenario with a number for every step that is flagged, and nothing measured."""
    scenario = merged(scenario, {"observe": {"metrics": []}})
    if "rounds" in scenario["stop"] and "budget" not in scenario.get("privacy", {}):
        scenario["stop"] = {**scenario["stop"], "rounds": min(scenario["stop"]["rounds"], 6)}
    for flag in flagged(scenario):
        scenario = merged(scenario, {"algorithm": FLAGGED.get(flag.split(":")[0], {})})
    return scenario


def with_row(problem, norm, longest):
    """The problem with another first row of AGENT, of that norm, of `longest` at most."""
    A, b, z = problem.A.copy(), problem.b.copy(), problem.protected
    place = int(problem.start[AGENT % problem.agents])
    intercept = bool((A[:, 0] == 1.0).all())
    A[place, intercept:] = 0.0
    A[place, -1] = np.sqrt(max(min(norm, longest) ** 2 - intercept, 0.0))
    if problem.loss.linear and not problem.loss.classification:
        b[place] = norm
    if z is not None:
        z = z.copy()
        z[place] = norm > 1.0
    return replace(problem, A=A, b=b, protected=z)


def neighbours(loaded):
    """Two problems that differ in one row, of which keys that bound rows are true."""
    simulation = build(loaded)
    bound = getattr(simulation.method.parameters, "norm", None) or np.inf
    longest = min(LONG, bound, simulation.problem.row_norm)
    return [with_row(simulation.problem, norm, longest) for norm in (TINY, LONG)]


def played(loaded, problem, recorded=None):
    """What a play shows besides values, as exact text by name; and its transcript.

    recorded: another play's transcript, which gives this one the same past.
    """
    simulation, tables, past = build(loaded, problem), Tables(), Transcript(recorded)
    method = simulation.method
    outcome = completed(unobserved(simulation).play(tables, listeners=[past]))
    seen = {"noise": repr(method.noise), "order": past.apart}
    seen["end"] = (outcome.status, outcome.time, outcome.rounds, outcome.reason)
    seen["start"] = np.array(getattr(method, "x0", None)).tolist()
    for k in range(1, outcome.rounds + 1):
        plan = method.planned(k)
        seen[f"plan of round {k}"] = plan and [
            np.array(getattr(plan, key)).tolist() for key in PLAN
        ]
    for name in ("releases", "events"):
        table = tables.read(name)
        seen |= {f"{name}.{key}": table[key].to_list() for key in table}
    claim = claimed(method, tables.read("releases"), 1e-5)
    seen["claim"] = claim and claim.epsilon.tolist()
    return {name: repr(value) for name, value in seen.items()}, past


def private(scenario):
    """Names of what differs between two plays with one past on neighbouring data."""
    loaded = load(scenario)
    first, second = neighbours(loaded)
    one, past = played(loaded, first)
    other, _ = played(loaded, second, past)
    return sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))


NOISY = [name for name in CASES if noisy(CASES[name])]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", one_each(NOISY))
def test_no_row_decides_a_number_that_epsilon_rests_on(name):
    assert private(numbered(CASES[name])) == []


STEPPED = [name for name in NOISY if name.startswith("gd") or "local" in CASES[name]["algorithm"]]


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", STEPPED)
def test_a_bound_on_rows_gives_public_steps(name):
    bounded = merged(CASES[name], {"problem": {"row_norm": {"clip": 1.5}}})
    mixed = name in ("plt-mixed-schedule", "5gcs-noisy")  # infinite
    assert mixed or "step" not in "".join(flagged(bounded))
    assert private(numbered(bounded)) == []


@pytest.mark.parametrize(
    "name", ["plt-noisy", "plt-calibrated", "plt-budget", "fedavg-noisy", "gd"]
)
def test_moduli_of_the_rows_at_hand_are_found_out(name, monkeypatch):
    monkeypatch.setattr(Problem, "public_moduli", property(lambda self: self.moduli))
    bounded = merged(CASES[name], {"problem": {"row_norm": {"clip": 40.0}}})
    assert "releases.sensitivity" in private(numbered(bounded))


def test_every_method_with_noise_is_looked_at():
    looked_at = {CASES[name]["algorithm"]["name"] for name in NOISY}
    assert looked_at == {name for name in registry.OWN if registry.get(name).noises}


@pytest.mark.thin(3)
@pytest.mark.parametrize(
    ("peek", "found"),
    {
        "nothing": "",
        "sensitivity": "releases.sensitivity",
        "scale": "releases.scale",
        "plan": "plan of round 1",
        "target": "noise",
        "bits": "events.bytes",
        "work": "events.time",
        "silence": "releases.agent",
    }.items(),
)
def test_a_method_that_looks_at_its_rows_is_found_out(peek, found):
    look = "plan" if peek == "target" else peek
    scenario = {**graph(), "plugins": [PEEKING], "algorithm": {"name": "peeking", "peek": look}}
    if peek == "target":
        scenario["privacy"] = {"noise": {}, "target": {"epsilon": 9, "delta": 1e-5}}
    differs = private(numbered(scenario))
    assert (found in differs) if found else differs == []


@pytest.mark.parametrize(
    ("name", "changes", "key"),
    [
        ("gd", {}, "algorithm.step"),
        ("gd", {"solver": "accelerated", "step": 0.3}, "algorithm.momentum"),
        ("gd", {"solver": "accelerated", "step": 0.3, "momentum": "from-step"}, None),
        ("gd", {"step": 0.3}, None),
        ("plt-noisy", {}, "algorithm.local.step"),
    ],
)
def test_steps_that_rows_decide_are_flagged(name, changes, key):
    scenario = merged(CASES[name], {"algorithm": changes, "observe": {"metrics": []}})
    assert [flag.split(":")[0] for flag in flagged(scenario)] == ([key] if key else [])


def test_a_step_that_rows_decide_moves_the_plan():
    scenario = merged(CASES["gd"], {"observe": {"metrics": []}})
    assert {"plan of round 1", "releases.sensitivity"} <= set(private(scenario))
    loaded = load(scenario)
    first, second = (build(loaded, one).method.planned(1) for one in neighbours(loaded))
    assert first.sensitivity[0] > 5.0 * second.sensitivity[0]


SOFTMAX = {"softmax": {"classes": 3}}


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ({}, ""),
        ({"partition": {"dirichlet": 0.5}}, "problem.partition: dirichlet deals rows by"),
        ({"partition": {"labels": 2}}, "problem.partition: labels deals rows by"),
        ({"loss": "softmax"}, "problem.loss: classes, and with them"),
        ({"loss": {"mlp": {"hidden": 2}}}, "problem.loss: classes, and with them"),
        ({"loss": {"mlp": {"hidden": 2, "classes": 3}}}, ""),
    ],
)
def test_what_labels_decide_is_flagged(problem, told):
    data = {"data": {"source": "sklearn", "name": "wine"}, "loss": SOFTMAX, **problem}
    method = {"name": "fedavg", "local": {"step": 0.1}}
    scenario = star(problem=data, algorithm=method, observe={"metrics": []})
    flags = list(flagged(scenario))
    assert [flag.startswith(told) for flag in flags] == ([True] if told else [])


def test_a_start_from_a_file_is_flagged(tmp_path):
    start = tmp_path / "start.npz"
    np.savez(start, x0=np.zeros((8, 4)))
    for init, told in (({"npz": str(start)}, ["algorithm.init"]), ({"normal": 1.0}, [])):
        scenario = merged(CASES["nfl"], {"algorithm": {"init": init}})
        assert [flag.split(":")[0] for flag in flagged(scenario)] == told


def test_a_run_that_failed_is_flagged():
    scenario = merged(CASES["subgradient"], {"algorithm": {"step": 1e100}})
    with pytest.raises(RunError) as failed:
        desim.run(scenario)
    assert statement(failed.value.run).tuned[-1].startswith("the run failed")
    assert statement(desim.run(CASES["subgradient"])).tuned == ()
