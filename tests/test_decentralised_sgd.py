"""dsgd, sdm-dsgd, q-dpsgd-2: reference values, naive twins on random problems, both engines.

Every comparison has a wrong twin.
"""

import naive.dsgd
import naive.q_dpsgd_1
import naive.q_dpsgd_2
import numpy as np
import pytest
from cases import NETWORK, merged
from mutant import mutant
from test_against_naive import EDGES, INSTANT, SEED, TOLERANCE, Rows, drawn, gap, samples_in
from test_naive_golden import mlp_gradient

import desim
from desim.numerics import discrete_gaussian, keys
from desim.numerics.keys import Stream

ENGINES = ("cohort", "agents")
SLOW = {"network": NETWORK, "compute": {"speed": {"uniform": [10, 160]}, "redraw": "round"}}
PLAYS = {**INSTANT, "engine": "cohort"}, {**SLOW, "engine": "agents"}

# Reference values, dither, masks and batches being given ---------------------------------------


def reference_gap(twins, g, trace):
    """Largest difference of x from the reference's; twins: (naive.dsgd, naive.q_dpsgd_2)."""
    sgd, quantised = twins
    X, Y = np.array(g["X"]), np.array(g["Y"])
    clipped, start = mlp_gradient(X, Y, g["K"]), (g["x0"], g["W"])
    every = [[range(8)] * 4] * 3
    if trace == "dsgd_fullbatch_noclip":
        x = sgd.dsgd(mlp_gradient(X, Y, np.inf), *start, every, alpha=g["alpha"])
    elif trace == "sdm_theta0_6_c0_3_noise0":
        x = sgd.sdm_dsgd(clipped, *start, g["S"], g["mask"], alpha=g["alpha"], theta=0.6, c=0.3)
    else:
        x, _ = quantised.q_dpsgd_2(
            clipped, *start, g["S"], g["u"], alpha=g["alpha"], mixing=g["eps"], bits=g["s"],
            resolution=g["eta"], fixed=trace == "q2fix_sigma0",
        )  # fmt: skip
    return gap(x[1:], g[trace])


TRACES = ("dsgd_fullbatch_noclip", "sdm_theta0_6_c0_3_noise0", "q2_sigma0", "q2fix_sigma0")


@pytest.mark.parametrize("trace", TRACES)
def test_the_twins_equal_their_reference(golden, trace):
    twins = naive.dsgd, naive.q_dpsgd_2
    assert reference_gap(twins, golden("dissertation")["dpsgd"], trace) < TOLERANCE


@pytest.mark.parametrize(
    ("trace", "right", "wrong"),
    [
        ("dsgd_fullbatch_noclip", "(x[i] if j == i else heard[j])", "heard[i]"),
        ("sdm_theta0_6_c0_3_noise0", "(y - x[t]) / c", "(y - x[t])"),
        ("sdm_theta0_6_c0_3_noise0", "(1 - theta) * x[t] + ", ""),
        ("q2_sigma0", "z if fixed else x[t]", "z"),
        ("q2fix_sigma0", "gradient(i, own[i]", "gradient(i, x[t][i]"),
        ("q2fix_sigma0", "* own[i]\n", "* x[t][i]\n"),
    ],
)
def test_a_wrong_twin_is_noticed(golden, trace, right, wrong):
    sgd, quantised = naive.dsgd, naive.q_dpsgd_2
    if trace.startswith("q2"):
        quantised = mutant(quantised, right, wrong)
    else:
        sgd = mutant(sgd, right, wrong)
    g = golden("dissertation")["dpsgd"]
    assert reference_gap((sgd, quantised), g, trace) > 1e-3


# desim against the twins -----------------------------------------------------------------------

BASE = {
    "name": "dsgd", "loss": "logistic", "average": "mean", "clip": np.inf, "l2": 0.5, "sigma": 0.0,
    "alpha": 0.3, "kappa": None, "rounds": 8, "keys": {},
}  # fmt: skip
SDM = {"name": "sdm-dsgd", "theta": 0.5, "c": 0.4}
Q2 = {"name": "q-dpsgd-2", "mixing": 0.6, "bits": 5, "resolution": 0.1}
CASES = {
    "dsgd": {},
    "dsgd-batches": {"batch": 1, "sigma": 0.2, "clip": 0.5, "average": "sum", "init": True},
    "dsgd-half": {"loss": "squared", "number": "float16", "kappa": 5.0, "alpha": 0.05},
    "sdm": SDM,
    "sdm-noise": {**SDM, "batch": 1, "sigma": 0.2, "clip": 0.5, "number": "float16", "init": True},
    "sdm-huber": {**SDM, "loss": {"huber": 0.5}, "c": 1.0, "alpha": 0.1},
    "q2": Q2,
    "q2-noise": {**Q2, "sigma": 0.3, "clip": 0.5, "init": True},
    "q2-fixed": {**Q2, "fixed": True, "sigma": 0.2, "average": "sum", "bits": 4, "kappa": 5.0},
}


def scenario_of(case, rows, folder, setting):
    algorithm = {"name": case["name"], "alpha": case["alpha"]}
    for key in ("theta", "c", "mixing", "bits", "resolution", "fixed", "batch"):
        algorithm |= {key: case[key]} if key in case else {}
    algorithm |= {"numbers": case["number"]} if "number" in case else {}
    algorithm |= {"kappa": case["kappa"]} if case["kappa"] else {}
    algorithm |= {"init": rows.init(folder)} if case.get("init") else {}
    noise = {"sigma": case["sigma"]}
    if case["name"] == "q-dpsgd-2":
        algorithm["deadline"] = "50 ms"
        noise |= {"kind": "discrete-gaussian", "resolution": case["resolution"]}
    scenario = {
        "seed": SEED,
        "problem": {
            **rows.problem(folder),
            "loss": case["loss"],
            "average": case["average"],
            "regularizer": {"l2": case["l2"]},
            **({"clip": case["clip"]} if case["clip"] < np.inf else {}),
        },
        "algorithm": algorithm,
        "privacy": {"noise": noise},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": case["rounds"]},
    }
    scenario = merged(scenario, setting)
    scenario["network"]["topology"] = {"edges": EDGES}
    return scenario


def batches_of(used, sizes):
    """The rows S_{i,t} behind counts `used` (rounds, agents)."""
    return [
        [
            np.arange(m) if n == m else keys.subset(SEED, Stream.BATCH, m, n, agent=i, round=t)
            for i, (n, m) in enumerate(zip(row, sizes, strict=True))
        ]
        for t, row in enumerate(used, 1)
    ]


def lattice_noise(case, used, dim):
    """resolution N_Z (rounds, agents, dim) at the ledger's addresses, where a release has noise."""
    rounds, agents = used.shape
    out = np.zeros((rounds, agents, dim))
    who = np.arange(agents)
    for t in range(rounds):
        some = used[t - 1] > 0 if t else np.zeros(agents, bool)
        some = some if case.get("fixed") else np.ones(agents, bool)
        _, k1, c0, _ = keys.words(0, Stream.NOISE, agent=who, round=np.full(agents, t + 1), step=0)
        sigma = np.where(some, case["sigma"] / case["resolution"], 0.0)
        levels = discrete_gaussian.draws(keys.seed_word(SEED), k1, c0, sigma, dim)
        out[t] = case["resolution"] * levels
    return out


def twin_of(case, twins, rows, used):
    """The naive run's x."""
    sgd, quantised = twins
    loss = case["loss"] if isinstance(case["loss"], str) else "huber"
    knee = case["loss"]["huber"] if loss == "huber" else 1.0
    gradient = naive.q_dpsgd_1.linear_model(
        rows.A, rows.b, loss=loss, knee=knee, clip=case["clip"], l2=case["l2"],
        average=case["average"],
    )  # fmt: skip
    rounds, n = used.shape
    W = naive.q_dpsgd_1.mixing_matrix(EDGES, n, case["kappa"])
    x0 = rows.x0 if case.get("init") else np.zeros((n, rows.dim))
    u = drawn("uniforms", Stream.CODEC, rounds, n, rows.dim)
    normals = drawn("normals", Stream.NOISE, rounds, n, rows.dim)
    place = gradient, x0, W, batches_of(used, rows.sizes)
    if case["name"] == "q-dpsgd-2":
        some = {key: case[key] for key in ("alpha", "mixing", "bits", "resolution")}
        zeta = lattice_noise(case, used, rows.dim) if case["sigma"] else None
        return quantised.q_dpsgd_2(*place, u, zeta, **some, fixed=case.get("fixed", False))[0]
    some = {key: case[key] for key in ("alpha", "sigma")}
    some |= {"number": case.get("number", "float64")}
    if case["name"] == "dsgd":
        return sgd.dsgd(*place, normals, **some)
    masks = u < case["c"]
    return sgd.sdm_dsgd(*place, masks, normals, theta=case["theta"], c=case["c"], **some)


def twin_gap(folder, name, setting, twins=(naive.dsgd, naive.q_dpsgd_2), seed=1):
    """Largest difference of x, and the samples used."""
    case = {**BASE, **CASES[name]}
    rows = Rows(seed, case["loss"])
    run = desim.run(scenario_of(case, rows, folder, setting))
    used = samples_in(run, case["rounds"], rows.agents)
    return gap(run.iterates, twin_of(case, twins, rows, used)), used


@pytest.mark.thin(3)
@pytest.mark.parametrize("name", CASES)
def test_desim_equals_the_twin(tmp_path, name):
    for seed, setting in enumerate(PLAYS):
        found, used = twin_gap(tmp_path, name, setting, seed=seed)
        assert found < TOLERANCE
        assert (used == 0).any() == (name.startswith("q2") and seed == 1)


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("dsgd-half", "heard[j])", "x[j])"),
        ("dsgd-batches", "+ zeta)", "+ 0.5 * zeta)"),
        ("sdm", "masks[t]) * (y", "masks[t - 1]) * (y"),
        ("sdm-noise", "written(sent, number)", "sent"),
        ("sdm-huber", "theta * ahead", "ahead"),
        ("q2", "own = z if fixed else x[t]", "own = z"),
        ("q2-noise", "z + np.asarray(zeta[t])", "z"),
        ("q2-fixed", "own = z if fixed else x[t]", "own = x[t]"),
        ("q2-fixed", "np.minimum(np.maximum(z, -half * resolution), (half - 1) * resolution)", "z"),
    ],
)
def test_another_twin_is_noticed(tmp_path, name, right, wrong):
    sgd, quantised = naive.dsgd, naive.q_dpsgd_2
    if name.startswith("q2"):
        quantised = mutant(quantised, right, wrong)
    else:
        sgd = mutant(sgd, right, wrong)
    found = twin_gap(tmp_path, name, SLOW, (sgd, quantised))[0]
    assert found > 1e-5


# Reference values of desim itself --------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_desim_equals_the_reference_on_a_network_with_a_hidden_layer(golden, tmp_path, engine):
    g = golden("dissertation")["dpsgd"]
    np.savez(tmp_path / "data.npz", A=np.array(g["X"]), b=np.array(g["Y"]))
    np.savez(tmp_path / "init.npz", x0=np.array(g["x0"]))
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": str(tmp_path / "data.npz")},
            "loss": {"mlp": {"hidden": 3, "activation": "sigmoid"}},
        },
        "algorithm": {
            "name": "dsgd", "alpha": g["alpha"], "kappa": 5.0,
            "init": {"npz": str(tmp_path / "init.npz")},
        },
        "network": {"topology": "ring"},
        "engine": engine,
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 3},
    }  # fmt: skip
    found = desim.run(scenario).iterates[1:]
    assert gap(found, g["dsgd_fullbatch_noclip"]) < TOLERANCE
    other = desim.run(merged(scenario, {"problem": {"clip": g["K"]}})).iterates[1:]
    assert gap(other, g["dsgd_fullbatch_noclip"]) > 1e-3
