"""Functional mechanism and fair classification: reference values, and twins with equal draws."""

from types import SimpleNamespace

import naive.functional
import numpy as np
import pytest
from cases import allotted
from mutant import mutant
from naive import bounds

import desim
from desim.methods import coefficients, functional_mechanism
from desim.numerics import keys
from desim.numerics.keys import Stream
from desim.privacy.accounting.gaussian import mu_of
from desim.privacy.papers import functional

TOLERANCE = 1e-10
D, AGENTS, SEED = 3, 3, 29


def gap(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return np.max(np.abs(found - expected))


# Reference values ------------------------------------------------------------------------------


def written(folder, X, y, z, agents, **changes):
    """A scenario whose rows are dealt to the agents in order."""
    table = "\n".join(
        ",".join(map(repr, [*x, int(label), "f" if group else "m"]))
        for x, label, group in zip(X.tolist(), y, z, strict=True)
    )
    (folder / "rows.csv").write_text("u,v,w,y,sex\n" + table.replace("'", ""))
    data = {"source": "csv", "file": str(folder / "rows.csv"), "label": "y"}
    scenario = {
        "problem": {
            "agents": agents,
            "data": {**data, "protected": {"column": "sex", "value": "f"}},
            "partition": "contiguous",
            "loss": "logistic",
            "average": "sum",
        },
        "algorithm": {"name": "functional-mechanism"},
        "stop": {"rounds": 1},
        "observe": {"metrics": []},
        "seed": SEED,
    }
    scenario["problem"].update(changes.pop("problem", {}))
    return {**scenario, **changes}


REFERENCES = {
    "w_plain": {"name": "functional-mechanism"},
    "w_abs": {"name": "pflr", "penalty": "printed", "zbar": 0.6},
    "w_exact_abs_penalty": {"name": "pflr", "zbar": 0.6},
}


def reference_gap(golden, folder, name, agents=1, **changes):
    at = golden("dissertation")["functional"]
    X, y, z = (np.array(at[key]) for key in ("X", "y", "z"))
    scenario = written(folder, X, y, z, agents, algorithm={**REFERENCES[name], **changes})
    return gap(desim.run(scenario).model[-1], at[name])


@pytest.mark.parametrize("agents", [1, 4])
@pytest.mark.parametrize("name", REFERENCES)
def test_models_without_noise_are_the_reference(golden, tmp_path, name, agents):
    assert reference_gap(golden, tmp_path, name, agents) < TOLERANCE


def test_another_penalty_is_not_the_reference(golden, tmp_path):
    assert reference_gap(golden, tmp_path, "w_abs", penalty="shifted") > 0.1
    assert reference_gap(golden, tmp_path, "w_exact_abs_penalty", alpha=2.0) < TOLERANCE  # c.w = 0
    assert reference_gap(golden, tmp_path, "w_exact_abs_penalty", alpha=0.01) > 0.1


def test_coefficients_and_trimming_are_the_reference(golden):
    at = golden("dissertation")["functional"]
    X, y, z = (np.array(at[key]) for key in ("X", "y", "z"))
    problem = SimpleNamespace(A=X, b=2 * y - 1, start=[0, len(X)], protected=z, scale=np.ones(1))
    a, M, c = functional_mechanism.coefficients(problem, 0, "ball", "exact", 1.0, None)
    for found, name in ((a, "a"), (M, "M"), (c, "c_signed")):
        assert gap(found, at[name]) < TOLERANCE
    a_abs, *_ = functional_mechanism.coefficients(problem, 0, "ball", "printed", 1.0, None)
    assert gap(a_abs, at["a_abs"]) < TOLERANCE
    indefinite = np.array(at["M_indefinite"])
    assert gap(coefficients.minimiser(a, indefinite), at["w_indefinite_trimmed"]) < TOLERANCE
    wrong = mutant(coefficients, "values > RANK", "values > -9e9 + 0.0 * RANK")
    assert gap(wrong.minimiser(a, indefinite), at["w_indefinite_trimmed"]) > 0.01
    assert not coefficients.minimiser(a, -M).any()


def test_sensitivities_and_deviations_are_the_reference(golden):
    at = golden("dissertation")["functional"]
    for d in (3, 12, 13):
        for key, reach in (("", 0.5), ("_fair", 1.5)):
            printed, ball = at["sens_printed"][str(d)], at["sens_ball"][str(d)]
            assert functional.printed_l1(d, reach) == pytest.approx(printed["l1" + key], abs=1e-12)
            assert functional.printed_l2(d, reach) == pytest.approx(printed["l2" + key], abs=1e-12)
            assert functional.l1("ball", d, reach) == pytest.approx(ball["l1" + key], abs=1e-12)
            assert functional.l2("ball", d, reach) == pytest.approx(ball["l2" + key], abs=1e-12)
            assert functional.l1("box", d, reach) == pytest.approx(printed["l1" + key], abs=1e-12)
        assert functional.printed_l1(d, 1.5) == bounds.lemma_22(d)
        assert functional.printed_l2(d, 1.5) == bounds.lemma_24(d)
    assert functional.l2("box", 12, 0.5) == pytest.approx(5.408, abs=5e-4)  # unordered pairs
    for place, sigma in at["sigma_extended"].items():
        epsilon, delta = map(float, place.split("|"))
        assert functional.theorem_19(epsilon, delta, 1.0) == pytest.approx(sigma, abs=1e-9)


# Twins -----------------------------------------------------------------------------------------

BALL = {
    "d1": D / 4 + D**0.5,
    "fair1": D / 4 + 2 * 1.1 * D**0.5,
    "fair2": 2 * (1.1**2 + 1 / 32) ** 0.5,
}
PUBLIC = {"zbar": 0.4}
TWINS = {  # algorithm, noise, penalty of the twin, scales of the noise: rest, special, covariance
    "laplace": (
        {"name": "functional-mechanism"}, allotted("laplace", 2.0), "none", (BALL["d1"] / 2,),
    ),
    "sigma": ({"name": "functional-mechanism", "domain": "box"}, {"sigma": 0.7}, "none", (0.7,)),
    "gaussian": (
        {"name": "functional-mechanism"}, allotted("gaussian", 2.0), "none",
        (1.125**0.5 / mu_of(2.0, 1e-3),),
    ),
    "extended": (
        {"name": "functional-mechanism", "sensitivity": "printed"}, allotted("gaussian", 2.0),
        "none",
        (functional.theorem_19(2.0, 1e-3, (D**2 / 16 + D) ** 0.5),),
    ),
    "pflr": (
        {"name": "pflr", **PUBLIC, "share": 0.2}, allotted("laplace", 2.0), "exact",
        (BALL["d1"] / 1.6, None, 2 * 0.6 * D**0.5 / 0.4),
    ),
    "pflr-star": (
        {"name": "pflr", **PUBLIC, "penalty": "shifted"}, allotted("laplace", 2.0), "shifted",
        (BALL["d1"] / 2,),
    ),
    "pflr-rows": (
        {"name": "pflr", "penalty": "shifted-rows"}, allotted("laplace", 2.0), "rows",
        (BALL["d1"] / 2,),
    ),
    "pdfc": (
        {"name": "pdfc", **PUBLIC, "penalty": "printed", "x_s": "v"}, allotted("laplace", 0.5, 2.0),
        "rows", (BALL["fair1"] / 2, BALL["fair1"] / 0.5),
    ),
    "pdfc-left": (
        {"name": "pdfc", "zbar": 0.4, "penalty": "printed", "sensitivity": "printed", "x_s": "v"},
        {"epsilon": 2.0, "epsilon_s": 0.5}, "rows",
        ((D**2 / 4 + 3 * D) / 2.75, (D**2 / 4 + 3 * D) / 0.5),
    ),
    "adfc": (
        {"name": "adfc", **PUBLIC, "penalty": "printed", "x_s": "v"},
        allotted("gaussian", 0.5, 2.0), "rows",
        (BALL["fair2"] / mu_of(2.0, 1e-3), BALL["fair2"] / mu_of(0.5, 1e-3)),
    ),
}  # fmt: skip


def twin_gap(folder, name, twin=naive.functional, alpha=1.0, engine="cohort"):
    """Largest difference of the model from that of the twin with the same draws."""
    algorithm, noise, penalty, scales = TWINS[name]
    rng = np.random.default_rng(7)
    X = rng.normal(size=(24, D)) * 0.6
    y, z = rng.integers(0, 2, 24), rng.integers(0, 2, 24)
    if algorithm["name"] == "pflr":
        algorithm = {**algorithm, "alpha": alpha}
    scenario = written(
        folder, X, y, z, AGENTS, algorithm=algorithm, privacy={"noise": noise}, engine=engine,
        problem={"regularizer": {"l2": 0.8}, "average": "mean"},
    )  # fmt: skip
    size = twin.size(D, penalty == "exact")
    gaussian = noise.keys() & {"delta", "delta_s", "sigma"}
    draw = keys.normals if gaussian else keys.laplaces
    draws = draw(SEED, Stream.NOISE, agent=np.arange(AGENTS), round=1, size=size)
    b = np.full(size, scales[0])
    if len(scales) == 2:
        b[[1, 4, 6, 7]] = scales[1]  # v, uv, vv, vw
    if len(scales) == 3:
        b[-D:] = scales[2]
    agents = [(X[i : i + 8], y[i : i + 8], z[i : i + 8], 1 / 8) for i in (0, 8, 16)]
    how = {"domain": algorithm.get("domain", "ball"), "zbar": algorithm.get("zbar")}
    model = twin.release(
        agents, draws * b / 8, d=D, alpha=alpha, ridge=0.8, penalty=penalty, **how
    )  # fmt: skip
    return gap(desim.run(scenario).model[-1], model)


@pytest.mark.parametrize("name", TWINS)
def test_models_with_noise_are_those_of_the_twin(tmp_path, name):
    assert twin_gap(tmp_path, name) < TOLERANCE
    if name in ("pflr", "pflr-star"):
        assert twin_gap(tmp_path, name, alpha=0.3, engine="agents") < TOLERANCE


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("laplace", "norm > 1.0", "norm > 9.0"),
        ("sigma", "min(max(v, -1.0), 1.0)", "v"),
        ("gaussian", "0.125", "0.25"),
        ("pdfc", "abs(z[h] - centre)", "(z[h] - centre)"),
        ("pflr", "np.argmin(value)", "np.argmax(value)"),
        ("pflr-star", "np.abs(c)", "c"),
        ("adfc", "v[place] / 2\n            M[i, j]", "v[place]\n            M[i, j]"),
    ],
)
def test_a_wrong_twin_is_noticed(tmp_path, name, right, wrong):
    assert twin_gap(tmp_path, name, mutant(naive.functional, right, wrong)) > 1e-4


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_without_replies_in_time_the_model_stays(tmp_path, engine):
    random = np.random.default_rng(3)
    X, y = random.random((12, D)), np.tile([-1, 1], 6)
    scenario = written(tmp_path, X, y, np.tile([0, 1, 1], 4), AGENTS, policy={"deadline": "1 ms"})
    run = desim.run({**scenario, "engine": engine})
    assert (run.status, run.model.tolist()) == ("done", [[0.0] * D] * 2)
