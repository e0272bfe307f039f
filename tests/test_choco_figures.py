"""The figures of CHOCO: averages have the rates that they must, sentences are judged by numbers."""

import numpy as np
import pytest

from analysis.reproductions import choco_gossip, choco_sgd_bits, page
from analysis.reproductions.choco_gossip import errors_of, rate_of
from analysis.reproductions.choco_sgd_words import verdicts
from desim.network.conditions.codec import Codec


@pytest.fixture
def small(monkeypatch):
    """Vectors of 20 numbers."""
    monkeypatch.setattr(choco_gossip, "DIM", 20)


def test_exact_averages_have_the_rate_of_the_ring(small):
    second = 1.0 / 3.0 + 2.0 / 3.0 * np.cos(2.0 * np.pi / choco_gossip.AGENTS)
    assert np.isclose(rate_of(errors_of("choco", "none", 1.0, 1, 300)), second**2, atol=1e-5)
    fine = errors_of("q1", Codec("quantise", 30), 1.0, 1, 100)
    exact = errors_of("q2", Codec(), 1.0, 1, 100)
    assert np.allclose(fine, exact, rtol=1e-3)


def test_coarse_rounding_stalls(small):
    coarse = errors_of("q1", Codec("quantise", 4), 1.0, 1, 100)
    assert coarse[-1] > 1e-3
    assert rate_of(np.array([1.0, np.inf])) == np.inf


def kept():
    return page.read(page.RESULTS / f"{choco_sgd_bits.NAME}.csv")


def test_sentences_are_judged_by_their_numbers():
    told = {said: words for said, _, words in verdicts(kept())}
    assert told["shuffled, top 1 %: about 100 times fewer bits"].startswith("agrees")
    fewer = [{**row, "log_fewer": 0.5 * row["log_fewer"]} for row in kept()]
    again = {said: words for said, _, words in verdicts(fewer)}
    assert again["shuffled, top 1 %: about 100 times fewer bits"].startswith("differs")
    stuck = [{**row, "rate": 2.0 - row["rate"], "end": 1e-30} for row in kept()]
    other = {said: words for said, _, words in verdicts(stuck)}
    assert other["choco, top 1 %: linear convergence"].startswith("differs")
    assert other["Q1, qsgd 9 bits: does not converge"].startswith("differs")
