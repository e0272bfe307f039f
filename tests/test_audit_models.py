"""The audit of a user's network: half the noise is refuted, the declared noise is not."""

from pathlib import Path

import numpy as np
import pytest

from desim.experiments.audit.of_method import audit
from desim.experiments.audit.of_one_run import audit_one_run

pytest.importorskip("torch", reason="torch is not installed")

PLUGIN = Path(__file__).parent / "plugins" / "networks.py"
CLIP, SIGMA, RUNS = 1.0, 0.13, 200


def private(train=30, sigma=SIGMA, hidden=8, scale="none"):
    """DSGD of a network of two agents, full clipped gradients with noise.

    Where scales are of all rows, the network is looked at anew for every record that is tried.
    """
    return {
        "name": "private", "seed": 2, "plugins": [str(PLUGIN)],
        "problem": {
            "agents": 2, "model": {"name": "layers", "hidden": hidden}, "clip": CLIP,
            "data": {"source": "sklearn", "name": "digits", "scale": scale, "train": train},
        },
        "algorithm": {"name": "dsgd", "alpha": 0.2, "weights": "metropolis"},
        "network": {"topology": "path", "link": {"latency": "10 ms"}},
        "privacy": {"noise": {"sigma": sigma}},
        "observe": {"metrics": []}, "stop": {"rounds": 1},
    }  # fmt: skip


@pytest.mark.slow
def test_the_declared_noise_is_not_refuted():
    found = audit(private(), runs=RUNS, claims=["rigorous"])
    assert found.scores.exact
    assert found.scores.noise == pytest.approx(1.0, abs=0.02)
    assert found.findings[0].verdict == "not refuted"


@pytest.mark.slow
def test_half_the_noise_is_refuted(drawn):
    drawn(0.5)
    found = audit(private(), runs=RUNS, claims=["rigorous"])
    assert found.findings[0].verdict == "refuted"


@pytest.mark.slow
def test_one_run_tells_them_apart(drawn):
    """Of 300 canaries of one agent most coins are guessed where there is hardly any noise."""
    found = audit_one_run(private(600, 1e-4, 32, "max"), claims=["rigorous"], agent=0)
    assert ((found.scores.scores > 0.0) == found.scores.coins).mean() > 0.75  # 5 deviations of luck
    loud = audit_one_run(private(600, 2.0 / 300, 32, "max"), claims=["rigorous"], agent=0)
    assert loud.findings[0].verdict == "not refuted"
    drawn(0.05)
    quiet = audit_one_run(private(600, 2.0 / 300, 32, "max"), claims=["rigorous"], agent=0)
    assert quiet.findings[0].verdict == "refuted"
    assert np.isfinite(quiet.scores.scores).all()
