"""The naive twins against reference values of other code; every check has a mutant that fails."""

import naive.fed_plt as fed_plt
import naive.losses as losses
import naive.q_dpsgd_1 as q_dpsgd_1
import naive.zcdp_nfl as zcdp_nfl
import numpy as np
import pytest
from mutant import mutant

TOLERANCE = 1e-10


def gap(found, expected):
    found, expected = np.asarray(found), np.asarray(expected)
    assert found.shape == expected.shape
    return np.max(np.abs(found - expected))


# Fed-PLT ---------------------------------------------------------------------------------------


def l2_norm(weight):
    def prox(v, t):
        norm = np.linalg.norm(v)
        return v * max(0.0, 1 - t * weight / norm) if norm else v

    return prox


FED_PLT = {
    "fedplt_gd_full": {},
    "fedplt_gd_Ne1": {"epochs": 1},
    "fedplt_gd_partial": {"partial": True},
    "fedplt_acc_full": {"solver": "accelerated"},
    "fedplt_acc_partial": {"solver": "accelerated", "partial": True},
    "fedplt_exact": {"solver": "exact", "epochs": 12},
    "fedplt_uncoordinated_gd,acc,gd,acc": {"solver": ["gradient", "accelerated"] * 2},
    "fedplt_gd_localsteps": {"per_agent": True},
    "fedplt_gd_h_l1_w0.5": {"h": lambda twin: twin.prox(l1=0.5)},
    "fedplt_gd_h_l2sq_w2": {"h": lambda twin: twin.prox(l2=2)},
    "fedplt_gd_h_l2norm_w0.5": {"h": lambda twin: l2_norm(0.5)},
    "fedplt_gd_h_box_-0.1_0.05": {"h": lambda twin: twin.prox(lower=-0.1, upper=0.05)},
}


def fed_plt_gap(twin, reference, average, name):
    """Largest difference of x, z and y from the trace, with steps from the twin's moduli."""
    case = {"solver": "gradient", "epochs": 10, "partial": False, "per_agent": False, "h": None}
    case |= FED_PLT[name]
    A, b = np.array(reference["A"]), np.array(reference["b"])
    const, trace = reference["variants"][average]["const"], reference["variants"][average][name]
    l2 = const["reg"] * len(A)
    lo, hi = twin.moduli(A, loss="logistic", average=average, l2=l2)
    if not case["per_agent"]:
        lo, hi = np.full(len(A), lo.min()), np.full(len(A), hi.max())
    solvers = np.broadcast_to(case["solver"], (len(A),))
    steps = [twin.auto_step(solvers[i], lo[i], hi[i], const["rho"]) for i in range(len(A))]
    step, momentum = np.array(steps).T
    x, z, y = twin.fed_plt(
        A, b, reference["x0"], reference["x0"], len(trace["Y"]), rho=const["rho"], solver=solvers,
        epochs=case["epochs"], step=step, momentum=momentum, average=average, l2=l2,
        h=case["h"] and case["h"](twin), active=reference["masks"] if case["partial"] else None,
    )  # fmt: skip
    return max(gap(x, trace["X"]), gap(z, trace["Z"]), gap(y, trace["Y"]))


@pytest.mark.thin(3)
@pytest.mark.parametrize("average", ["mean", "sum"])
@pytest.mark.parametrize("name", FED_PLT)
def test_fed_plt_equals_its_reference(golden, average, name):
    reference = golden("fed-plt")
    assert fed_plt_gap(fed_plt, reference, average, name) < TOLERANCE


def test_no_fed_plt_reference_is_left_out(golden):
    for variant in golden("fed-plt")["variants"].values():
        assert {name for name in variant if name.startswith("fedplt_")} == set(FED_PLT)


FED_PLT_MUTANTS = [
    ("fedplt_gd_full", "z[k][i] + 2 * (w", "z[k][i] + (w"),  # line 10 without its 2
    ("fedplt_gd_full", "v = 2 * y[call] - z", "v = y[call] - z"),  # line 5 without its 2
    ("fedplt_gd_full", "* np.sign(w)) / N +", "* np.sign(w)) +"),  # all of it in each f_i
    ("fedplt_gd_full", "return 2 / (lo + hi)", "return 1 / hi"),
    ("fedplt_gd_partial", "if call < 0 or (active is not None and not active[k][i]):", "if False:"),
    ("fedplt_acc_full", "lo, hi = lo + 1 / rho, hi + 1 / rho", "hi = hi + 1 / rho"),  # (12)
    ("fedplt_acc_full", "w = u + momentum[i] * (u - last)", "w = u"),
    ("fedplt_exact", "(w - v) / rho", "(w - v) / (2 * rho)"),
    (
        "fedplt_uncoordinated_gd,acc,gd,acc",
        'elif solver[i] == "accelerated"',
        'elif solver[0] == "accelerated"',
    ),
    ("fedplt_gd_h_l1_w0.5", "h(mean, rho / N)", "h(mean, rho)"),
    ("fedplt_gd_h_l2sq_w2", "(1 + t * l2)", "(1 + 2 * t * l2)"),
    ("fedplt_gd_h_l2norm_w0.5", "h(mean, rho / N)", "h(mean, rho)"),
    ("fedplt_gd_h_box_-0.1_0.05", "np.maximum(shrunk, lower)", "shrunk"),
]


@pytest.mark.parametrize(("name", "right", "wrong"), FED_PLT_MUTANTS)
def test_a_wrong_fed_plt_is_noticed(golden, name, right, wrong):
    twin = mutant(fed_plt, right, wrong)
    assert fed_plt_gap(twin, golden("fed-plt"), "sum", name) > 1e-4


def hand(twin, reference, h=None):
    """f1 = x^2/2 - x and f2 = x^2 as single squared rows (up to constants)."""
    a = np.sqrt(0.5)
    x, z, y = twin.fed_plt(
        [np.array([[a]]), np.array([[1.0]])], [np.array([a]), np.array([0.0])],
        np.zeros((2, 1)), np.array([[1.0], [3.0]]), len(reference["Y"]),
        rho=1, solver="gradient", epochs=2, step=0.25, loss="squared", h=h,
    )  # fmt: skip
    found = x[..., 0], z[..., 0], y[..., 0]
    return max(map(gap, found, (reference["X"], reference["Z"], reference["Y"])))


def test_fed_plt_by_hand(golden):
    reference = golden("fed-plt")
    assert hand(fed_plt, reference["hand"]) < TOLERANCE
    assert hand(fed_plt, reference["hand_l1"], fed_plt.prox(l1=2)) < TOLERANCE
    wrong = mutant(fed_plt, "(w - v) / rho", "(w + v) / rho")
    assert hand(wrong, reference["hand"]) > 0.1
    assert hand(fed_plt, reference["hand_l1"]) > 0.1


# Losses ----------------------------------------------------------------------------------------


def test_values_and_gradients_of_the_reference_start(golden):
    reference = golden("fed-plt")
    x0 = np.array(reference["x0"])
    for variant in reference["variants"].values():
        const = variant["const"]
        for i, (A, b) in enumerate(zip(reference["A"], reference["b"], strict=True)):
            A, b, x = np.array(A), np.array(b), x0[i]
            ridge = const["reg"]
            total = sum(
                losses.value("logistic", a @ x, label) for a, label in zip(A, b, strict=True)
            )
            f = const["lw"] * total + ridge / 2 * x @ x
            g = const["lw"] * losses.data_gradient(x, A, b, loss="logistic") + ridge * x
            assert abs(f - const["f0"][i]) < TOLERANCE
            assert gap(g, const["grad0"][i]) < TOLERANCE
            assert gap(-g, const["grad0"][i]) > 0.01


# zCDP-NFL --------------------------------------------------------------------------------------


def two_node_gap(twin, reference):
    X, y = np.ones((2, 1, 1)), np.array(reference["y"], float).reshape(2, 1)
    w, _, gamma = twin.zcdp_nfl(X, y, [[1], [0]], 4, rho=reference["rho"], eta=reference["eta"])
    expected = reference["iters"]
    return max(
        gap(w[..., 0], [row["W"] for row in expected]),
        gap(gamma[..., 0], [row["gamma"] for row in expected]),
    )


def small_gap(twin, reference, case, trace):
    """Largest difference of w, w~ and gamma on the four-node graph of the reference."""
    small, kw = reference["small"], reference[case]["kw"]
    neighbours = [[] for _ in range(small["K"])]
    for i, j in small["edges"]:
        neighbours[i].append(j)
        neighbours[j].append(i)
    lam, l1, l2 = kw["lam"], kw.get("l1", 0.0), kw.get("l2", 0.0)  # R = l1 |w| + l2 w^2
    found = twin.zcdp_nfl(
        np.array(small["X"]), np.array(small["y"]), neighbours, len(small["xi"]),
        rho=reference[case]["rho"], eta=reference[case]["eta"],
        loss={"sq": "squared", "abs": "absolute"}[kw["loss"]], l1=lam * l1, l2=2 * lam * l2,
        clip=kw.get("clip", np.inf), noise=np.array(small["xi"]) if "xi" in trace else None,
    )  # fmt: skip
    rows = reference[case][trace]
    return max(
        gap(f, [row[key] for row in rows]) for f, key in zip(found, ("W", "Wt", "G"), strict=True)
    )


@pytest.mark.parametrize("trace", ["nfl_noiseless", "nfl_with_xi"])
@pytest.mark.parametrize("case", ["ridge", "enet", "lad", "enet_clip2"])
def test_zcdp_nfl_equals_its_reference(golden, case, trace):
    assert small_gap(zcdp_nfl, golden("zcdp-nfl-and-d-zoa"), case, trace) < TOLERANCE


def test_zcdp_nfl_on_two_nodes(golden):
    reference = golden("zcdp-nfl-and-d-zoa")["two_node_nfl"]
    assert two_node_gap(zcdp_nfl, reference) < TOLERANCE
    flipped = mutant(zcdp_nfl, "pull - gamma[k] - g", "pull + gamma[k] - g")
    assert two_node_gap(flipped, reference) > 0.01


ZCDP_MUTANTS = [
    ("ridge", "pull - gamma[k] - g", "pull + gamma[k] - g"),  # the dual's sign
    ("ridge", "(2 * rho * d + 1", "(rho * d + 1"),
    ("ridge", "rho * sum((wt[k] + wt[l]", "rho / 2 * sum((wt[k] - wt[l]"),  # (A.1) as printed
    ("ridge", "wt = w + noise[n]", "wt = w"),
    ("ridge", "l2 * w) / K", "l2 * w)"),
    ("enet", "l1 * np.sign(w)", "l1 * (np.sign(w) + (w == 0))"),  # sign(0) = 1
    ("lad", "wt[k] / eta[n] + pull", "wt[k] / eta[0] + pull"),
    ("enet_clip2", "knee=knee, clip=clip)", "knee=knee)"),
]


@pytest.mark.parametrize(("case", "right", "wrong"), ZCDP_MUTANTS)
def test_a_wrong_zcdp_nfl_is_noticed(golden, case, right, wrong):
    twin = mutant(zcdp_nfl, right, wrong)
    assert small_gap(twin, golden("zcdp-nfl-and-d-zoa"), case, "nfl_with_xi") > 1e-4


# Q-DPSGD-1 -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("trace", "u"), [("u_0_3", 0.3), ("u_0_9", 0.9)])
def test_quantizer(golden, trace, u):
    reference = golden("dissertation")["quantizer"]
    x, eta, s = np.array(reference["x"]), reference["eta"], reference["s"]
    assert gap(q_dpsgd_1.quantize(x, u, eta, s), reference[trace]) < TOLERANCE
    printed = mutant(q_dpsgd_1, "2 ** (bits - 1) - 1)", "2 ** bits - 1)")  # 1.5 * 2^s levels
    assert gap(printed.quantize(x, u, eta, s), reference[trace]) > 0.01


def mlp_gradient(X, Y, clip, hidden=3, classes=3):
    """Sigmoid hidden layer, softmax cross-entropy, parameters W1 (row-major), b1, W2, b2."""

    def one(theta, a, label):
        W1, b1, W2, b2 = np.split(theta, np.cumsum([a.size * hidden, hidden, hidden * classes]))
        W1, W2 = W1.reshape(a.size, hidden), W2.reshape(hidden, classes)
        s = 1 / (1 + np.exp(-(a @ W1 + b1)))
        logits = s @ W2 + b2
        out = np.exp(logits) / np.exp(logits).sum()
        out[label] -= 1
        back = (W2 @ out) * s * (1 - s)
        g = np.concatenate([np.outer(a, back).ravel(), back, np.outer(s, out).ravel(), out])
        return g * min(1.0, clip / np.linalg.norm(g))

    def gradient(i, theta, rows):
        return np.mean([one(theta, X[i][h], Y[i][h]) for h in rows], axis=0)

    return gradient


def q1_gap(twin, reference, trace):
    g = reference
    gradient = mlp_gradient(np.array(g["X"]), np.array(g["Y"]), g["K"])
    sigma = 0.7 * g["K"] if trace == "q1_sigma0_7" else 0.0
    x, _ = twin.q_dpsgd_1(
        gradient, g["x0"], g["W"], g["S"], g["u"], g["zeta"],
        alpha=g["alpha"], mixing=g["eps"], bits=g["s"], resolution=g["eta"], sigma=sigma,
    )  # fmt: skip
    return gap(x[1:], g[trace])


@pytest.mark.parametrize("trace", ["q1_noise0", "q1_sigma0_7"])
def test_q_dpsgd_1_equals_its_reference(golden, trace):
    assert q1_gap(q_dpsgd_1, golden("dissertation")["dpsgd"], trace) < TOLERANCE


Q1_MUTANTS = [
    ("(1 - mixing + mixing * W[i][i])", "(1 - mixing)"),
    ("mixing * W[i][j] * z[t][j]", "mixing * W[i][j] * x[t][j]"),
    (  # noise although no sample was taken
        "            if len(batches[t][i]):",
        "            if not len(batches[t][i]):\n"
        "                new[i] -= alpha * mixing * sigma * np.array(normals[t][i])\n"
        "            if len(batches[t][i]):",
    ),
    ("alpha * mixing * (grad", "alpha * (grad"),
    ("resolution + u)", "resolution + 0.5)"),
    ("gradient(i, x[t][i], batches[t][i])", "gradient(i, z[t][i], batches[t][i])"),
]


@pytest.mark.parametrize(("right", "wrong"), Q1_MUTANTS)
def test_a_wrong_q_dpsgd_1_is_noticed(golden, right, wrong):
    twin = mutant(q_dpsgd_1, right, wrong)
    assert q1_gap(twin, golden("dissertation")["dpsgd"], "q1_sigma0_7") > 1e-3


def test_step_without_samples_is_pure_mixing(golden):
    g = golden("dissertation")["dpsgd"]
    x = np.array(g["q1_sigma0_7"][1])
    z = q_dpsgd_1.quantize(x, np.array(g["u"][2]), g["eta"], g["s"])
    W = np.array(g["W"])
    own = (1 - g["eps"] + g["eps"] * np.diag(W))[:, None]
    off = W - np.diag(np.diag(W))
    assert gap(own * x + g["eps"] * off @ z, g["q1_sigma0_7"][2]) < TOLERANCE
