"""The ledger: what each release reveals, in closed form, and no draw that serves twice."""

from pathlib import Path

import numpy as np
import pytest
from cases import LOSSY, deadline, graph, local, merged, star

import desim
from desim.numerics.keys import Stream, normals

TWICE = str(Path(__file__).parent / "plugins" / "twice.py")


@pytest.mark.parametrize("engine", ["cohort", "agents"])
def test_two_releases_of_a_round_have_two_draws_and_two_rows(engine):
    scenario = {**graph(), "plugins": [TWICE], "algorithm": {"name": "twice"}, "engine": engine}
    del scenario["privacy"]
    done = desim.run(scenario)
    assert len(done.releases) == 2 * 8 * 12
    assert done.releases.release.is_unique
    first, second = done.state["first"], done.state["second"]
    assert np.abs(first - second).min() > 1e-6
    everybody = np.arange(8)
    drawn = normals(scenario["seed"], Stream.NOISE, agent=everybody, round=12, size=4)
    np.testing.assert_array_equal(first - done.state["x"], drawn)


def test_zcdp_nfl_spends_phi_over_growth_to_the_n_in_round_n():
    """Numbers of the paper's setting: c1 = rho = 1, three neighbours, eta = .5, 50 rows."""
    done = desim.run(
        graph(
            problem={
                "agents": 4,
                "data": {"source": "synthetic", "kind": "regression", "rows": 50, "dim": 3},
                "clip": 1.0,
            },
            algorithm={"name": "zcdp-nfl", "rho": 1.0, "eta": 0.5},
            network={"topology": "complete"},
            privacy={"noise": {"phi": 1e-3, "growth": 0.99}},
            stop={"rounds": 200},
        )
    )
    rows = done.releases[done.releases.agent == 2].sort_values("round")
    sensitivity, scale = rows.sensitivity.to_numpy(), rows.scale.to_numpy()
    np.testing.assert_allclose(sensitivity, 0.005, rtol=1e-12)
    np.testing.assert_allclose(scale[[0, -1]], [0.111803, 0.041130], atol=1e-6)
    spent = (sensitivity**2 / (2.0 * scale**2)).sum()
    assert spent == pytest.approx(0.639918049, rel=1e-8)
    assert spent != pytest.approx((sensitivity[1:] ** 2 / (2.0 * scale[1:] ** 2)).sum(), rel=1e-4)


@pytest.mark.parametrize(("average", "rows"), [("mean", 8), ("sum", 1)])
def test_fed_plt_reveals_the_end_of_noisy_steps(average, rows):
    """One step is a Gaussian mechanism of sensitivity 2 gamma C / q; many contract (Bok et al.)."""
    tau, clip = 0.3, 0.7
    for epochs, bound in ((1, {}), (6, {}), (6, {"row_norm": 6.0})):
        done = desim.run(
            star(
                **local(solver="noisy", epochs=epochs, tau=tau, step=0.05),
                problem={"clip": clip, "average": average, **bound},
            )
        )
        row = done.releases.iloc[0]
        assert row.scale == pytest.approx(np.sqrt(2 * 0.05) * tau, rel=1e-12)
        reach = 2 * 0.05 * clip / rows
        if epochs == 1:
            assert row.sensitivity == pytest.approx(reach, rel=1e-12)
            assert row.sensitivity != pytest.approx(2 * reach, rel=1e-3)
        elif not bound or average == "sum":  # eight rows of norm 6 need not contract
            assert row.sensitivity == pytest.approx(np.sqrt(epochs) * reach, rel=1e-12)
        else:
            assert reach < row.sensitivity < 0.99 * np.sqrt(epochs) * reach


def test_without_clipping_the_sensitivity_has_no_bound():
    done = desim.run(star(**local(solver="noisy", epochs=2, tau=0.1)))
    assert np.isinf(done.releases.sensitivity).all()
    assert (done.releases.mechanism == "noisy-gradient").all()
    plain = desim.run(star())
    assert (plain.releases.mechanism == "none").all()
    assert (plain.releases.scale == 0).all()


def test_q_dpsgd_is_charged_for_the_samples_of_each_deadline():
    done = desim.run(deadline())
    computed = done.events[done.events.kind == "compute"]
    samples = computed.set_index(["agent", "round"]).value
    last = computed["round"].max()  # whose gradients no message tells of
    assert (samples == 0).any()
    assert (samples[:, last] > 0).any()
    samples = samples[samples.index.get_level_values("round") < last]
    rows = done.releases.set_index(["agent", "round"])
    assert set(rows.index) == set(samples[samples > 0].index)
    taken = samples.loc[rows.index]
    np.testing.assert_allclose(rows.sensitivity, 2 * 4.0 / taken, rtol=1e-12)
    np.testing.assert_allclose(rows.sampling, taken / 9, rtol=1e-12)


def test_a_lost_message_is_charged_and_says_so():
    drop = merged(LOSSY, {"link": {"on_loss": "drop", "loss": 0.3}})
    done = desim.run(star(network=drop, policy={"deadline": "400 ms"}, stop={"rounds": 20}))
    lost = done.events[(done.events.kind == "lost") & (done.events.agent == -1)]
    assert len(lost) > 5
    undelivered = done.releases[done.releases.delivered == 0]
    assert set(lost.release) == set(undelivered.release)
