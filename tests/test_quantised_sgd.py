"""Messages of decentralised SGD and what they cost: quantiser, masks, bits, seconds, epsilon."""

import numpy as np
import pandas as pd
import pytest
from cases import CASES, LATTICE, Q2SGD, SDM, deadline, merged
from mutant import mutant
from test_transcript import with_method

import desim
from analysis.reproductions.printed import theorem_15
from desim.columns import columns_of
from desim.errors import InputError
from desim.experiments.audit.transcript_check import transcript_check
from desim.methods import q_dpsgd_1, q_dpsgd_2, sdm_dsgd
from desim.privacy.accounting.accountants import account
from desim.privacy.papers import q_dpsgd
from desim.problem.kernels import codecs
from desim.runs.privacy import statement
from desim.scenario.build import build
from desim.scenario.load import load

SEED, ROWS = 7, 4000


# Codecs ----------------------------------------------------------------------------------------


def quantiser_bias(module):
    """Standard errors that the mean of Q(x) is away from x, at levels and between them."""
    x = np.tile(np.array([-0.31, -0.2, -0.013, 0.0, 0.049, 0.26]), (ROWS, 1))
    place = SEED, np.arange(ROWS), np.ones(ROWS, np.int64)
    error = module.quantize(*place, x, 0.1, 3) - x
    deviation = np.sqrt(x / 0.1 % 1 * (1 - x / 0.1 % 1)) * 0.1
    return np.abs(error.mean(axis=0)) / (deviation / np.sqrt(ROWS) + 1e-12)


def test_the_quantiser_is_unbiased_within_its_range():
    """Q(x) is a Bernoulli variable between two levels: its standard deviation is known."""
    assert quantiser_bias(codecs).max() < 5.0
    rounding = mutant(
        codecs,
        "uniform(seed, k1, c0, j))\n        row[j] = res",
        "0.5)\n        row[j] = res",
    )
    assert quantiser_bias(rounding).max() > 5.0


def test_outside_its_range_the_quantiser_cuts():
    x = np.array([[-9.0, 9.0, -0.41, 0.31]])
    found = codecs.quantize(SEED, np.array([0]), np.array([1]), x, 0.1, 3)
    np.testing.assert_allclose(found, [[-0.4, 0.3, -0.4, 0.3]], atol=1e-12)
    np.testing.assert_allclose(codecs.clamp(x, 0.1, 3), [[-0.4, 0.3, -0.4, 0.3]])
    np.testing.assert_array_equal(codecs.clamp(found, 0.1, 3), found)


def mask_bias(module):
    """Standard errors that the mean of S(x) is away from x = 1."""
    place = SEED, np.arange(ROWS), np.ones(ROWS, np.int64)
    found, kept = module.sparsify(*place, np.ones((ROWS, 5)), 0.3)
    assert np.array_equal(kept, np.count_nonzero(found, axis=1))
    return np.abs(found.mean(axis=0) - 1.0) / np.sqrt(0.7 / 0.3 / ROWS)


def test_sparse_vectors_are_unbiased():
    assert mask_bias(codecs).max() < 5.0
    wrong = mutant(codecs, "x[r, j] / share if", "x[r, j] if")
    assert mask_bias(wrong).max() > 5.0


# Bits and seconds ------------------------------------------------------------------------------


def sdm(**algorithm):
    """sdm-dsgd on 4 parameters: half precision and 2 bits of an index are 18 bits an entry."""
    network = {"topology": "ring", "link": {"latency": "0 s", "bandwidth": 64}}
    keys = {**SDM, "numbers": "float16", **algorithm}
    return deadline(algorithm=keys, network=network, compute={"speed": 30}, stop={"rounds": 30})


@pytest.mark.parametrize(("indices", "entry"), [("sent", 18), ("seeded", 16)])
def test_a_sparse_message_is_as_long_as_its_entries(indices, entry):
    run = desim.run(sdm(indices=indices))
    masks = desim.numerics.keys.uniforms(
        5,
        desim.numerics.keys.Stream.CODEC,
        agent=np.arange(8),
        round=np.arange(1, 31)[:, None],
        size=4,
    )
    kept = (masks < SDM["c"]).sum(axis=2)
    sent = run.events[run.events.kind == "send"]
    bits = np.maximum(entry * kept[sent["round"] - 1, sent.agent], 1)
    np.testing.assert_array_equal(sent.bytes, (bits + 7) // 8)
    np.testing.assert_allclose(sent.seconds, bits / 64.0, rtol=1e-12)
    assert len(np.unique(bits)) == 5


@pytest.mark.parametrize("speed", [40, {"uniform": [10, 90]}])
def test_an_iteration_of_dsgd_takes_what_the_dissertation_says_at_most(speed):
    """max_i B / V_i + T_c, T_c = 3 s of 16 bits a number; the slowest waits for the others only."""
    algorithm = {"name": "dsgd", "alpha": 0.1, "batch": 2, "numbers": "float16"}
    network = {"topology": "complete", "link": {"latency": "0 s", "bandwidth": 4 * 16 / 3}}
    compute = {"speed": speed, "slow": {"fraction": 0, "factor": 1}}
    run = desim.run(deadline(algorithm=algorithm, network=network, compute=compute))
    computed = run.events[run.events.kind == "compute"]
    ends = run.events[run.events.kind == "aggregate"].groupby("round").time.max()
    two = np.sort(computed.seconds.to_numpy().reshape(12, 8), axis=1)[1:, -2:]
    assert (np.diff(ends) <= two[:, 1] + 3.0 + 1e-9).all()
    assert (np.diff(ends) >= two[:, 0] + 3.0 - 1e-9).all()
    assert np.allclose(np.diff(ends), 3.05) == (speed == 40)


# Privacy ---------------------------------------------------------------------------------------


def test_what_was_computed_at_no_deadline_costs_nothing():
    """Agent 0 never has a sample: pure mixing, no noise, no row; the others are charged."""
    scenario = deadline(
        algorithm={**Q2SGD, "fixed": True, "bits": 8},
        privacy=LATTICE,
        compute={"speed": 400, "redraw": "run", "slow": {"fraction": 0.5, "factor": 100}},
    )
    run = desim.run(scenario)
    used = run.events[run.events.kind == "compute"].groupby("agent").value.sum()
    idle = used.index[used == 0]
    assert 0 < len(idle) < 8
    assert not run.releases.agent.isin(idle).any()
    assert set(run.releases.agent) == set(used.index[used > 0])
    assert set(run.releases["round"]) == set(range(2, 13))
    final = run.epsilon().groupby("agent").epsilon.last()
    assert (final[idle] == 0).all()
    assert (final.drop(idle) > 0).all()


def test_small_batches_are_left_out_where_asked():
    whole, some = (
        desim.run(merged(CASES["qsgd"], {"algorithm": {**CASES["qsgd"]["algorithm"], "least": n}}))
        for n in (1, 3)
    )
    sizes = [np.unique(one.releases.sampling * 9).round() for one in (whole, some)]
    assert sizes[0].min() == 1
    assert sizes[1].min() == 3
    assert set(sizes[1]) == set(sizes[0][sizes[0] >= 3])
    assert some.epsilon().epsilon.max() < whole.epsilon().epsilon.max()


def test_the_printed_form_has_no_epsilon_and_says_why():
    printed, fixed = desim.run(CASES["q2sgd-printed"]), desim.run(CASES["q2sgd"])
    assert np.isinf(printed.epsilon().epsilon.max())
    assert np.isinf(printed.releases.sensitivity[printed.releases["round"] > 1]).all()
    assert (printed.releases.sensitivity[printed.releases["round"] == 1] == 0).all()
    assert any("go on with their own models" in text for text in printed.manifest["warnings"])
    assert np.isfinite(fixed.epsilon().epsilon.max())
    assert not fixed.manifest["warnings"]


@pytest.mark.slow
def test_a_printed_form_that_declared_lemma_19_would_be_caught():
    """The leak is real: with the sensitivity of one step the transcript check finds more."""
    algorithm = {**Q2SGD, "bits": 16, "resolution": 1e-4, "alpha": 1.0, "mixing": 0.3}
    noise = {"noise": {**LATTICE["noise"], "resolution": 1e-4}}
    simulation = build(load(deadline(algorithm=algorithm, privacy=noise)))
    right = "if not p.fixed:\n            step"
    assert transcript_check(simulation).largest == 0.0
    declared = mutant(q_dpsgd_2, right, "if False:\n            step").QDPSGD2
    checked = transcript_check(with_method(simulation, declared))
    assert checked.largest > 1.2
    assert len(checked.violations)


def declares_half_of_a_step():
    right = "self.sensitivity(who, samples) * p.mixing"
    return mutant(q_dpsgd_2, right, f"0.5 * {right}").QDPSGD2


def test_a_halved_step_is_found():
    algorithm = {**Q2SGD, "fixed": True, "bits": 16, "resolution": 1e-4}
    noise = {"noise": {**LATTICE["noise"], "resolution": 1e-4}}
    simulation = build(load(deadline(algorithm=algorithm, privacy=noise)))
    assert 0.95 < transcript_check(simulation).largest <= 1.0 + 1e-9
    assert transcript_check(with_method(simulation, declares_half_of_a_step())).largest > 1.9


@pytest.mark.parametrize("fixed", [True, False])
def test_theorem_15_is_said_of_the_batches_that_fitted(fixed):
    algorithm = {**Q2SGD, "fixed": fixed, "bits": 8, "alpha": 0.5}
    noise = {"noise": {**LATTICE["noise"], "sigma": 8.0}}
    run = desim.run(deadline(algorithm=algorithm, privacy=noise))
    found = statement(run)
    computed = run.events[(run.events["kind"] == "compute") & (run.events["round"] < 12)]
    for agent, own in computed.groupby("agent"):
        size = own["value"].to_numpy()
        claimed = theorem_15(size[size > 0], 9, 2.0, 4.0, 0.25, 0.05, 4, 1e-5)
        assert found.claim.epsilon[agent] == pytest.approx(claimed, rel=1e-9)
    assert found.claim.bound.verdict == "wrong"
    wrong = mutant(q_dpsgd, 'rows["agent"], rows["round"] - 1', 'rows["agent"], rows["round"]')
    varying = desim.run(CASES["q2sgd"])
    place = varying.manifest["privacy"]["claim"], columns_of(varying.releases), 1e-5
    said = q_dpsgd.theorem_15(*place)[0].max()
    assert wrong.theorem_15(*place)[0].max() < 0.99 * said


def test_a_budget_is_kept_by_the_batches_that_were_drawn():
    """Small batches cost more: who has them often retires first, within the budget."""
    run = desim.run(CASES["qsgd-budget"])
    spent = account(run.releases, rows=np.full(8, 9), delta=1e-5)
    assert spent.worst <= 4.3 * (1.0 + 1e-9)
    retired = run.events[run.events.kind == "retire"]
    assert 0 < len(retired) < 8
    smallest = run.releases.groupby("agent").sampling.apply(lambda share: (1 / share**2).sum())
    assert smallest[retired.agent].min() > smallest.drop(retired.agent).min()


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("algorithm", "noise", "told"),
    [
        ({"bits": 53}, {}, r"algorithm\.bits: found 53; allowed: 2 to 52"),
        ({"deadline": 0}, {}, r"algorithm\.deadline: found 0; .* or a bare number > 0"),
        (
            {},
            {"resolution": 0.1},
            r"privacy\.noise\.resolution: found 0\.1; allowed: 0\.05, which is algorithm\.resol",
        ),
        ({}, {"kind": "gaussian"}, r"privacy\.noise: found gaussian; allowed with q-dpsgd-2"),
        ({"mixing": 1.5}, {}, r"algorithm\.mixing: found 1\.5"),
    ],
)
def test_what_makes_no_sense_is_refused(algorithm, noise, told):
    noise = {"sigma": 0.1, **noise} if "kind" in noise else {**LATTICE["noise"], **noise}
    scenario = deadline(algorithm={**Q2SGD, **algorithm}, privacy={"noise": noise})
    with pytest.raises(InputError, match=told):
        build(load(scenario))


def test_a_batch_that_no_agent_has_is_refused():
    with pytest.raises(InputError, match=r"algorithm\.batch: found 10; allowed: 1 to 9"):
        build(load(deadline(algorithm={**SDM, "batch": 10})))


@pytest.mark.parametrize(
    ("algorithm", "told"),
    [
        ({**Q2SGD, "fixed": True, "bits": 2}, "2 bits hold -0.1 to 0.05, less than noise of sigma"),
        ({**Q2SGD, "fixed": True, "init": {"normal": 3.0}}, "messages are cut and biased"),
        ({**SDM, "theta": 1.0, "c": 0.1}, sdm_dsgd.BOUND),
        ({**SDM, "kappa": 2.0}, "allowed without this warning: at least the largest degree"),
    ],
)
def test_what_may_go_wrong_is_said(algorithm, told):
    noise = LATTICE if algorithm["name"] == "q-dpsgd-2" else {"noise": {"sigma": 0.1}}
    noise = merged(noise, {"noise": {**noise["noise"], "sigma": 0.15}})
    warnings = build(load(deadline(algorithm=algorithm, privacy=noise))).method.warnings
    assert any(told in text for text in warnings)


def test_a_common_start_is_shared_by_all_and_by_no_other_start():
    starts = [
        desim.run(deadline(algorithm={**SDM, "init": {kind: 0.3}}, stop={"rounds": 1})).iterates[0]
        for kind in ("common", "normal")
    ]
    assert np.ptp(starts[0], axis=0).max() == 0.0
    assert np.ptp(starts[1], axis=0).min() > 0.0
    assert not np.isin(starts[0][0], starts[1]).any()
    assert 0.1 < starts[0].std() < 0.6


def last_told(run):
    """The last round of which something was charged, and the last one in which agents computed."""
    computed = run.events[run.events.kind == "compute"]
    return int(run.releases["round"].max()), int(computed["round"].max())


def test_a_gradient_that_no_message_tells_of_is_not_charged(monkeypatch):
    """Agents step once more in the end and keep their models; all else is the same."""
    run = desim.run(CASES["qsgd"])
    charged, computed = last_told(run)
    assert charged == computed - 1
    twin = mutant(q_dpsgd_1, ", kept=True", "")
    monkeypatch.setattr(q_dpsgd_1.QDPSGD1, "agents", twin.QDPSGD1.agents)
    other = desim.run(CASES["qsgd"])
    assert last_told(other) == (computed, computed)
    assert other.account().worst > run.account().worst
    assert other.iterates.tobytes() == run.iterates.tobytes()
    same = other.releases[other.releases["round"] < computed].reset_index(drop=True)
    pd.testing.assert_frame_equal(run.releases, same)
