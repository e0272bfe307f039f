"""Programs of decentralised SGD equal reference values, dither, masks, batches, noise being given.

What draws is replaced by what was recorded; all else is desim. Every comparison has a wrong twin.
"""

import naive.q_dpsgd_1
import numpy as np
import pytest
from mutant import mutant
from test_against_naive import TOLERANCE, gap
from test_naive_golden import mlp_gradient
from test_transcript import with_method

from desim.log.parquet import Tables
from desim.methods import decentralised_sgd, q_dpsgd_1, q_dpsgd_2, sdm_dsgd
from desim.privacy.ledger import ledger
from desim.scenario.build import build
from desim.scenario.load import load

TRACES = ("q1_noise0", "q1_sigma0_7", "q2_sigma0", "q2fix_sigma0", "sdm_theta0_6_c0_3_noise0")
SIGMA = 0.7 * 0.5


def simulation(g, trace, folder, engine):
    """The reference's setting; rows are drawn nowhere, so that any batch key is as good."""
    np.savez(folder / "data.npz", A=np.array(g["X"]), b=np.array(g["Y"]))
    np.savez(folder / "init.npz", x0=np.array(g["x0"]))
    algorithm = {"alpha": g["alpha"], "kappa": 5.0, "init": {"npz": str(folder / "init.npz")}}
    if trace.startswith("sdm"):
        algorithm |= {"name": "sdm-dsgd", "theta": 0.6, "c": 0.3}
    else:
        algorithm |= {"mixing": g["eps"], "bits": g["s"], "resolution": g["eta"], "deadline": 1.0}
        algorithm |= {"name": f"q-dpsgd-{trace[1]}"}
        algorithm |= {"fixed": trace == "q2fix_sigma0"} if trace[1] == "2" else {}
    scenario = {
        "problem": {
            "data": {"source": "npz", "file": str(folder / "data.npz")},
            "loss": {"mlp": {"hidden": 3, "activation": "sigmoid"}},
            "clip": g["K"],
        },
        "algorithm": algorithm,
        "network": {"topology": "ring"},
        "engine": engine,
        "observe": {"metrics": [], "iterates": True},
        "stop": {"rounds": 3},
    }
    if trace == "q1_sigma0_7":
        scenario["privacy"] = {"noise": {"sigma": SIGMA}}
    return build(load(scenario))


def record(monkeypatch, g, modules):
    """Put what was recorded in the place of what draws."""
    gradient = mlp_gradient(np.array(g["X"]), np.array(g["Y"]), g["K"])
    u, zeta, mask = (np.array(g[name]) for name in ("u", "zeta", "mask"))

    def quantize(seed, who, round_, x, resolution, bits):
        return naive.q_dpsgd_1.quantize(x, u[round_ - 1, who], resolution, bits)

    def batch_gradient(self, us, x, samples):
        rows = [g["S"][t - 1][i] for t, i in zip(us.round, us.who, strict=True)]
        found = [gradient(i, x[r], rows[r]) if rows[r] else 0 * x[r] for r, i in enumerate(us.who)]
        return np.array(found)

    def sparsify(seed, who, round_, x, share):
        kept = mask[round_ - 1, who]
        return kept * x / share, kept.sum(axis=1)

    def add_normal(seed, who, round_, step, scale, where, value):
        return value + np.where(where, scale, 0.0)[:, None] * zeta[round_ - 1, who]

    one, two, sparse = modules
    for module in (one, two):
        monkeypatch.setattr(module, "quantize", quantize)
    monkeypatch.setattr(sparse, "sparsify", sparsify)
    monkeypatch.setattr(ledger, "add_normal", add_normal)
    monkeypatch.setattr(decentralised_sgd.DecentralisedSGD, "batch_gradient", batch_gradient)


def played(monkeypatch, g, trace, folder, engine, modules=(q_dpsgd_1, q_dpsgd_2, sdm_dsgd)):
    """Largest difference of x from the reference's."""
    record(monkeypatch, g, modules)
    made = simulation(g, trace, folder, engine)
    one, two, sparse = modules
    name = {"q-dpsgd-1": "QDPSGD1", "q-dpsgd-2": "QDPSGD2", "sdm-dsgd": "SDMDSGD"}[made.method.name]
    method = getattr({"q1": one, "q2": two}.get(trace[:2], sparse), name)
    made = with_method(made, method)
    sizes = np.array([[len(rows) for rows in row] for row in g["S"]])
    asked = np.zeros(4, int)

    def samples(*place):
        who = place[-1]
        asked[who] += 1
        return sizes[asked[who] - 1, who]

    if not trace.startswith("sdm"):
        monkeypatch.setattr(made.method, "samples", samples)
    return gap(made.play(Tables(None), None).iterates[1:], g[trace])


@pytest.mark.parametrize("engine", ["cohort", "agents"])
@pytest.mark.parametrize("trace", TRACES)
def test_programs_equal_the_reference(golden, monkeypatch, tmp_path, trace, engine):
    g = golden("dissertation")["dpsgd"]
    assert played(monkeypatch, g, trace, tmp_path, engine) < TOLERANCE


@pytest.mark.parametrize(
    ("trace", "right", "wrong"),
    [
        ("q1_noise0", "(1.0 - eps + eps * w_own)", "(1.0 - eps)"),
        ("q1_sigma0_7", ", where=has_batch, kept=True)", ", kept=True)"),
        ("q2_sigma0", "z if p.fixed else us.x,", "z,"),
        ("q2fix_sigma0", "* own + eps", "* us.x + eps"),
        ("sdm_theta0_6_c0_3_noise0", "p.theta * d", "d"),
    ],
)
def test_another_program_is_noticed(golden, monkeypatch, tmp_path, trace, right, wrong):
    modules = [q_dpsgd_1, q_dpsgd_2, sdm_dsgd]
    place = {"q1": 0, "q2": 1}.get(trace[:2], 2)
    modules[place] = mutant(modules[place], right, wrong)
    g = golden("dissertation")["dpsgd"]
    assert played(monkeypatch, g, trace, tmp_path, "cohort", modules) > 1e-3
