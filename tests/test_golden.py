"""desim through its public interface against reference values of other code, in both engines.

Every check has a wrong twin: a reference read wrongly, or a scenario that asks for something else.
"""

import numpy as np
import pytest
from cases import merged

import desim

TOLERANCE = 1e-10
ENGINES = ("cohort", "agents")
NETWORKS = {
    "cohort": {"link": {"latency": {"uniform": ["1 ms", "2 s"]}, "jitter": {"lognormal": 0.5}}},
    "agents": {"link": {"latency": "0 s", "bandwidth": "inf"}},
}


def gap(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return np.max(np.abs(found - expected))


def npz(folder, **arrays):
    """Write arrays to files and return their paths: data (A, b) and init (x0, z0)."""
    np.savez(folder / "data.npz", A=arrays.pop("A"), b=arrays.pop("b"))
    np.savez(folder / "init.npz", **arrays)
    return str(folder / "data.npz"), str(folder / "init.npz")


# Fed-PLT ---------------------------------------------------------------------------------------

L1, L2 = {"l1": 0.5}, {"l2": 2.0, "at": "coordinator"}
FED_PLT = {
    "fedplt_gd_full": {},
    "fedplt_gd_Ne1": {"epochs": 1},
    "fedplt_gd_partial": {"partial": True},
    "fedplt_acc_full": {"solver": "accelerated"},
    "fedplt_acc_partial": {"solver": "accelerated", "partial": True},
    "fedplt_uncoordinated_gd,acc,gd,acc": {"solver": ["gradient", "accelerated"] * 2},
    "fedplt_gd_localsteps": {"step": "per-agent"},
    "fedplt_gd_h_l1_w0.5": {"h": L1},
    "fedplt_gd_h_l2sq_w2": {"h": L2},
    "fedplt_gd_h_box_-0.1_0.05": {"h": {"box": [-0.1, 0.05]}},
}
ABSENT = {"fedplt_exact", "fedplt_gd_h_l2norm_w0.5"}  # a logistic argmin, and the norm's prox


def fed_plt(reference, folder, average, name, **changes):
    """The scenario of one trace; changes are merged in."""
    case = {"solver": "gradient", "epochs": 10, "partial": False, "step": "auto", "h": None}
    case |= FED_PLT[name]
    x0 = reference["x0"]
    data, init = npz(folder, A=reference["A"], b=reference["b"], x0=x0, z0=x0)
    const = reference["variants"][average]["const"]
    sets = [np.flatnonzero(mask).tolist() for mask in reference["masks"]]
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": data},
            "loss": "logistic",
            "average": average,
            "regularizer": [{"l2": const["reg"] * 4}, *([case["h"]] if case["h"] else [])],
        },
        "algorithm": {
            "name": "fed-plt",
            "rho": const["rho"],
            "init": {"npz": init},
            "local": {key: case[key] for key in ("solver", "epochs", "step")},
        },
        "participation": {"schedule": sets} if case["partial"] else "all",
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": len(reference["masks"])},
    }
    return merged(scenario, changes)


def fed_plt_gap(reference, scenario, engine, average, name):
    """Largest difference of x, z and y from the trace."""
    trace = reference["variants"][average][name]
    network = {"network": NETWORKS[engine], "engine": engine}
    run = desim.run({**scenario, **network})
    found = (run.iterates, run.state["z"], run.model[:-1])
    return max(map(gap, found, (trace["X"], trace["Z"][-1], trace["Y"])))


@pytest.mark.thin(3)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("name", FED_PLT)
def test_fed_plt_equals_its_reference(golden, tmp_path, average, name, engine):
    reference = golden("fed-plt")
    scenario = fed_plt(reference, tmp_path, average, name)
    assert fed_plt_gap(reference, scenario, engine, average, name) < TOLERANCE


def test_no_fed_plt_reference_is_left_out(golden):
    for variant in golden("fed-plt")["variants"].values():
        known = {name for name in variant if name.startswith("fedplt_")}
        assert known == set(FED_PLT) | ABSENT


WRONG = [
    ("fedplt_gd_full", {"problem": {"regularizer": {"l2": 1.25}}}),
    ("fedplt_gd_full", {"algorithm": {"rho": 0.31}}),
    ("fedplt_gd_full", {"algorithm": {"local": {"step": "per-agent"}}}),
    ("fedplt_gd_full", {"problem": {"clip": 0.5}}),
    ("fedplt_gd_partial", {"participation": "all"}),
    ("fedplt_acc_full", {"algorithm": {"local": {"solver": "gradient"}}}),
    ("fedplt_uncoordinated_gd,acc,gd,acc", {"algorithm": {"local": {"solver": "accelerated"}}}),
    ("fedplt_gd_localsteps", {"algorithm": {"local": {"step": "auto"}}}),
    ("fedplt_gd_h_l1_w0.5", {"problem": {"regularizer": [{"l2": 5.0}, {"l1": 0.45}]}}),
    ("fedplt_gd_h_l2sq_w2", {"problem": {"regularizer": [{"l2": 5.0}, {"l2": 2.0}]}}),
    (
        "fedplt_gd_h_box_-0.1_0.05",
        {"problem": {"regularizer": [{"l2": 5.0}, {"box": [-0.1, "inf"]}]}},
    ),
]


@pytest.mark.parametrize(("name", "changes"), WRONG)
def test_another_fed_plt_is_noticed(golden, tmp_path, name, changes):
    reference = golden("fed-plt")
    scenario = fed_plt(reference, tmp_path, "sum", name, **changes)
    assert fed_plt_gap(reference, scenario, "cohort", "sum", name) > 1e-7


LIMITS = {
    "xstar": "fedplt_gd_full",
    "composite_opt_l1_w0.5": "fedplt_gd_h_l1_w0.5",
    "composite_opt_l2sq_w2": "fedplt_gd_h_l2sq_w2",
    "composite_opt_box_-0.1_0.05": "fedplt_gd_h_box_-0.1_0.05",
}


def limit(reference, average, name):
    const = reference["variants"][average]
    return np.array(const["const"]["xstar"] if name == "xstar" else const[name]["x"])


@pytest.mark.thin(3)
@pytest.mark.parametrize(("average", "engine"), [("mean", "agents"), ("sum", "cohort")])
@pytest.mark.parametrize("name", LIMITS)
def test_fed_plt_ends_at_the_optimum(golden, tmp_path, average, name, engine):
    reference = golden("fed-plt")
    scenario = fed_plt(
        reference, tmp_path, average, LIMITS[name], stop={"rounds": 450},
        observe={"metrics": ["error"], "iterates": False}, engine=engine,
    )  # fmt: skip
    run = desim.run(scenario)
    optimum = limit(reference, average, name)
    found = np.linalg.norm(run.model[-1] - optimum) / np.linalg.norm(optimum)
    assert found < TOLERANCE
    assert run.curve("error").value.iloc[-1] < 4 * TOLERANCE**2
    assert np.linalg.norm(run.model[0] - optimum) / np.linalg.norm(optimum) > 0.1


def test_partial_participation_ends_at_the_same_optimum(golden, tmp_path):
    reference = golden("fed-plt")
    scenario = fed_plt(reference, tmp_path, "sum", "fedplt_acc_partial", stop={"rounds": 450})
    optimum = limit(reference, "sum", "xstar")
    assert gap(desim.run(scenario).model[-1], optimum) < TOLERANCE
    shifted = merged(scenario, {"problem": {"regularizer": {"l2": 5.1}}})
    assert gap(desim.run(shifted).model[-1], optimum) > 1e-3


def by_hand(folder, **changes):
    """f1 = x^2/2 - x and f2 = x^2 (up to constants) as one squared row each."""
    a = np.sqrt(0.5)
    data, init = npz(
        folder, A=[[[a]], [[1.0]]], b=[[a], [0.0]], x0=np.zeros((2, 1)), z0=[[1.0], [3.0]]
    )
    scenario = {
        "problem": {"data": {"source": "npz", "file": data}, "loss": "squared"},
        "algorithm": {
            "name": "fed-plt",
            "rho": 1,
            "init": {"npz": init},
            "local": {"epochs": 2, "step": 0.25},
        },
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 3},
    }
    return desim.run(merged(scenario, changes))


def hand_gap(run, trace):
    found = run.iterates[..., 0], run.state["z"][:, 0], run.model[:-1, 0]
    return max(map(gap, found, (trace["X"], trace["Z"][-1], trace["Y"])))


@pytest.mark.parametrize("engine", ENGINES)
def test_fed_plt_by_hand(golden, tmp_path, engine):
    reference = golden("fed-plt")
    assert hand_gap(by_hand(tmp_path, engine=engine), reference["hand"]) < TOLERANCE
    once = {"engine": engine, "stop": {"rounds": 1}}
    composite = by_hand(tmp_path, problem={"regularizer": {"l1": 2.0}}, **once)
    assert hand_gap(composite, reference["hand_l1"]) < TOLERANCE
    assert hand_gap(by_hand(tmp_path, **once), reference["hand_l1"]) > 0.1
    assert hand_gap(by_hand(tmp_path, algorithm={"rho": 1.1}), reference["hand"]) > 0.01


# zCDP-NFL --------------------------------------------------------------------------------------

ZCDP = ("ridge", "enet", "lad", "enet_clip2")


def zcdp_nfl(reference, folder, case, **changes):
    """The scenario of a case on the four-node graph; R = l1 |w| + l2 w^2 in the reference."""
    small, kw = reference["small"], reference[case]["kw"]
    shape = small["K"], small["P"]
    data, _ = npz(folder, A=small["X"], b=small["y"], x0=np.zeros(shape))
    net = {"l1": kw["lam"] * kw.get("l1", 0.0), "l2": 2 * kw["lam"] * kw.get("l2", 0.0)}
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": data},
            "loss": {"sq": "squared", "abs": "absolute"}[kw["loss"]],
            "regularizer": {"elastic_net": net},
            **({"clip": kw["clip"]} if "clip" in kw else {}),
        },
        "algorithm": {
            "name": "zcdp-nfl",
            "rho": reference[case]["rho"],
            "eta": {"initial": 0.2, "decay": "sqrt"},
        },
        "network": {"topology": {"edges": small["edges"]}},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": len(small["xi"])},
    }
    return merged(scenario, changes)


def zcdp_gap(reference, scenario, engine, case):
    """Largest difference of all w, and of the last w~ and gamma."""
    rows = reference[case]["nfl_noiseless"]
    network = {**scenario["network"], **NETWORKS[engine]}
    run = desim.run({**scenario, "network": network, "engine": engine})
    found = run.iterates[1:], run.state["w"], run.state["dual"]
    expected = [row["W"] for row in rows], rows[-1]["Wt"], rows[-1]["G"]
    return max(map(gap, found, expected))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", ZCDP)
def test_zcdp_nfl_equals_its_reference(golden, tmp_path, case, engine):
    reference = golden("zcdp-nfl-and-d-zoa")
    scenario = zcdp_nfl(reference, tmp_path, case)
    assert np.allclose(reference[case]["eta"], 0.2 / np.sqrt(np.arange(1, 7)), rtol=1e-15, atol=0)
    assert zcdp_gap(reference, scenario, engine, case) < TOLERANCE


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("ridge", {"problem": {"regularizer": {"l2": 1.0}}}),
        ("ridge", {"algorithm": {"eta": 0.2}}),
        ("ridge", {"algorithm": {"rho": 0.35}}),
        ("ridge", {"network": {"topology": {"edges": [[0, 1], [1, 2], [2, 3]]}}}),
        ("ridge", {"problem": {"average": "sum"}}),
        ("ridge", {"privacy": {"noise": {"sigma": 1e-6}}}),
        ("enet", {"problem": {"regularizer": {"elastic_net": {"l1": 0.15, "l2": 2.0}}}}),
        ("lad", {"problem": {"loss": {"huber": 0.5}}}),
        ("enet_clip2", {"problem": {"clip": 2.1}}),
    ],
)
def test_another_zcdp_nfl_is_noticed(golden, tmp_path, case, changes):
    reference = golden("zcdp-nfl-and-d-zoa")
    scenario = zcdp_nfl(reference, tmp_path, case, **changes)
    assert zcdp_gap(reference, scenario, "cohort", case) > 1e-7


@pytest.mark.parametrize("engine", ENGINES)
def test_zcdp_nfl_on_two_nodes(golden, tmp_path, engine):
    reference = golden("zcdp-nfl-and-d-zoa")["two_node_nfl"]
    data, _ = npz(tmp_path, A=np.ones((2, 1, 1)), b=[[v] for v in reference["y"]])
    scenario = {
        "problem": {"data": {"source": "npz", "file": data}, "loss": "squared"},
        "algorithm": {"name": "zcdp-nfl", "rho": reference["rho"], "eta": reference["eta"]},
        "network": {"topology": "path"},
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 4},
        "engine": engine,
    }
    expected = [row["W"] for row in reference["iters"]]
    run = desim.run(scenario)
    assert gap(run.iterates[1:, :, 0], expected) < TOLERANCE
    assert gap(run.state["dual"][:, 0], reference["iters"][-1]["gamma"]) < TOLERANCE
    other = merged(scenario, {"algorithm": {"rho": 1.01 * reference["rho"]}})
    assert gap(desim.run(other).iterates[1:, :, 0], expected) > 1e-4


@pytest.mark.parametrize("case", ZCDP)
def test_error_is_measured_from_the_reference_optimum(golden, tmp_path, case):
    reference = golden("zcdp-nfl-and-d-zoa")
    scenario = zcdp_nfl(reference, tmp_path, case, observe={"metrics": ["error"]})
    run = desim.run(scenario)
    central = np.array(reference[case]["central"])

    def error(optimum):
        distances = np.sum((run.iterates - optimum) ** 2, axis=(1, 2))
        return distances / np.sum(optimum**2)

    found = run.curve("error").value
    assert np.max(np.abs(found - error(central)) / found) < TOLERANCE
    assert np.max(np.abs(found - error(1.001 * central)) / found) > 1e-4
