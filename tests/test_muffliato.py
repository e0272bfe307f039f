"""muffliato: its naive twin, what gossip keeps and how fast it forgets, what it refuses."""

import naive.muffliato
import numpy as np
import pytest
from cases import merged
from laws import check_log
from mutant import mutant
from test_against_naive import INSTANT, TOLERANCE, Rows, gap
from test_engines import differences
from test_gossip_methods import (
    ALPHA,
    EDGES,
    SIGMA,
    SLOW,
    averaging,
    batches,
    gradient,
    metropolis,
    noise_of,
    scenario,
)  # fmt: skip

import desim
from desim.errors import InputError
from desim.privacy.papers.theorems import theorems

FORMS = {
    "plain": {"weights": "metropolis", "gossip": 3},
    "chebyshev": {"weights": "metropolis", "gossip": 4, "chebyshev": True},
}  # fmt: skip


def twin_gap(folder, form, setting=INSTANT, twin=naive.muffliato, engine="auto"):
    keys = FORMS[form]
    given = {k: one for k, one in keys.items() if k != "weights"}
    made = scenario(folder, "muffliato", setting, EDGES, SIGMA, algorithm=keys, engine=engine)
    run = desim.run(made)
    check_log(run)
    start = Rows(1, "logistic", (5, 2, 4, 6, 3)).x0
    place = gradient(), start, metropolis(), batches(), noise_of(SIGMA)
    return gap(run.iterates, twin.muffliato(*place, alpha=ALPHA, **given))


@pytest.mark.parametrize("form", FORMS)
def test_it_is_its_naive_twin(tmp_path, form):
    assert twin_gap(tmp_path, form) < TOLERANCE
    assert twin_gap(tmp_path, form, SLOW, engine="agents") < TOLERANCE


@pytest.mark.parametrize(
    ("form", "right", "wrong"),
    [
        ("plain", "range(gossip)", "range(gossip - 1)"),
        ("plain", "+ noise[t][i]", ""),
        ("chebyshev", "and k > 0", ""),
        ("chebyshev", "[-2]", "[0]"),
        ("chebyshev", "now, old = mean, now", "now = mean"),
    ],
)
def test_another_twin_is_noticed(tmp_path, form, right, wrong):
    assert twin_gap(tmp_path, form, twin=mutant(naive.muffliato, right, wrong)) > 1e-4


@pytest.mark.parametrize("form", FORMS)
def test_compiled_blocks_have_the_same_bits(tmp_path, form):
    made = scenario(tmp_path, "muffliato", INSTANT, EDGES, SIGMA, algorithm=FORMS[form])
    made = merged(made, {"stop": {"rounds": 60}, "observe": {"iterates": False}})
    runs = [desim.run(made, overrides={"engine": one}) for one in ("auto", "cohort", "agents")]
    assert runs[0].manifest["engine"] == "compiled"
    assert [differences(runs[0], other) for other in runs[1:]] == [[], []]


def left(folder, **keys):
    """How far models are from the mean of all starts after three rounds, no gradient anywhere."""
    keys = {"weights": "metropolis", **keys}
    ring = [[i, (i + 1) % 5] for i in range(5)]
    run, x0 = averaging(folder, "muffliato", INSTANT, ring, algorithm=keys, stop={"rounds": 3})
    assert np.abs(run.iterates.mean(axis=1) - x0.mean(axis=0)).max() < 1e-12
    return np.abs(run.iterates[-1] - x0.mean(axis=0)).max()


def test_acceleration_keeps_the_mean_and_comes_closer(tmp_path):
    assert left(tmp_path, gossip=6, chebyshev=True) < 0.2 * left(tmp_path, gossip=6)
    assert left(tmp_path, gossip=1, chebyshev=True) == left(tmp_path, gossip=1)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"algorithm": {"gossip": 0}}, "gossip: found 0"),
        ({"policy": {"deadline": "1 s"}}, "policy: found deadline"),
        ({"codec": {"top-k": 0.5}}, "codec"),
    ],
)
def test_what_it_cannot_do_is_refused(tmp_path, changes, text):
    with pytest.raises(InputError, match=text):
        desim.run(scenario(tmp_path, "muffliato", **changes))


def test_its_published_account_has_a_verdict():
    """tests/test_pairwise_attack.py has the counterexamples."""
    (bound,) = theorems("muffliato")
    assert bound.verdict == "wrong"
    assert bound.formula is None
    assert "Run.pairwise" in bound.rigorous
