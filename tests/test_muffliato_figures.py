"""The figure of Muffliato: losses by distance beside plain sums, verdicts that follow numbers."""

import numpy as np
import pytest
from mutant import mutant

from analysis.reproductions import muffliato_distance as figure
from analysis.reproductions import page
from desim.scenario.build import build
from desim.scenario.load import load

FAMILIES = "Florentine families"


def mixing():
    """W of the families' graph, and the neighbours of agent 0."""
    agents, topology = figure.GRAPHS[FAMILIES]
    asked = {"problem.agents": agents, "network.topology": topology}
    W = build(load(figure.SCENARIOS / "muffliato.yaml", asked)).method.averages.W
    return np.asarray(W), [w for w in range(1, agents) if W[0, w] > 0.0]


def plain_sum(W, heard, u, noise, power):
    """The paper's double sum, term by term."""
    T, total = figure.ROUNDS, 0.0
    for start in range(T) if noise == figure.FRESH else [0]:
        for t in range(start, T):
            P = np.linalg.matrix_power(W, t - start)
            total += sum(P[u, w] ** power / np.sum(P[w] ** 2) for w in heard)
    return min(total, T if noise == figure.FRESH else 1)


def check_losses(module, noise):
    """Of all agents towards agent 0: exact with fixed inputs in one direction, and both sums."""
    W, heard = mixing()
    _, exact, later, published = module.losses(FAMILIES, noise, 1)
    for u in range(1, len(W)):
        assert later[u - 1] == pytest.approx(plain_sum(W, heard, u, noise, 1))
        assert published[u - 1] == pytest.approx(plain_sum(W, heard, u, noise, 2))
    if noise == figure.ONE:
        rows = np.concatenate([np.linalg.matrix_power(W, t)[heard] for t in range(figure.ROUNDS)])
        U, s, _ = np.linalg.svd(rows[:, 1:], full_matrices=False)
        unknown = (U.T @ rows[:, 1:])[s > 1e-11 * s[0]] / s[s > 1e-11 * s[0], None]
        assert exact == pytest.approx(np.sum(unknown**2, axis=0), rel=1e-6)
    assert (exact <= (figure.ROUNDS if noise == figure.FRESH else 1) * (1.0 + 1e-9)).all()


@pytest.mark.parametrize("noise", figure.NOISES)
def test_losses_are_those_of_plain_sums(noise):
    check_losses(figure, noise)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(ROUNDS - t if noise == FRESH else 1)", "1"),
        ("added(W, 0, noise, 1)[of]", "added(W, 0, noise, 2)[of]"),
        ("heard = heard[heard != v]", "heard = heard[:]"),
        ("(mixed[heard] ** 2).sum(1)", "(mixed[heard]).sum(1)"),
        ("mixed = mixed @ W", "mixed = W"),
    ],
)
def test_a_wrong_sum_is_noticed(right, wrong):
    with pytest.raises(AssertionError):
        check_losses(mutant(figure, right, wrong), figure.FRESH)


def test_exact_losses_of_another_noise_are_noticed():
    with pytest.raises(AssertionError):
        check_losses(
            mutant(figure, '"algorithm.gossip": ROUNDS', '"algorithm.gossip": 3'), figure.ONE
        )


def told(rows):
    every = (*figure.falling(rows), *figure.bounding(rows), *figure.tightening(rows))
    return {said: words for said, _, words in every}


def test_sentences_are_judged_by_their_numbers():
    rows = page.read(page.RESULTS / f"{figure.NAME}.csv")
    words = told(rows)
    assert words["one noise: the published account is a bound"] == "differs: no bound"
    assert words["one noise, ring: falls with distance"] == "differs: not at 9 of 9 steps"
    for noise, text in (("one noise", "differs"), ("fresh noise", "agrees")):
        assert words[f"{noise}: the later account is a bound"].startswith(text)
    assert all(text.startswith("agrees") for said, text in words.items() if "tighter" in said)
    other = [
        {**row, "exact": 1.0 / row["exact"], "fell": -row["fell"], "tighter": -row["tighter"]}
        | {"above_published": 0, "above_later": row["hops"] - 1}
        for row in rows
    ]
    again = told(other)
    assert again["one noise: the published account is a bound"] == "agrees: no pair above"
    assert again["fresh noise: the later account is a bound"] == "differs: no bound"
    fresh = [text for said, text in again.items() if said.startswith("fresh noise, ")]
    assert len(fresh) == 8
    assert all(text.startswith("differs") for text in fresh)
