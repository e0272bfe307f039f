"""Distributions of durations: laws against SciPy, means, addresses."""

import numpy as np
import pytest
from scipy import stats

from desim.numerics import distributions as d
from desim.numerics import keys
from desim.numerics.distributions import Distribution
from desim.numerics.keys import Stream

N = 200_000
BOUND = np.sqrt(np.log(2e6) / (2 * N))  # P(D > e) <= 2 exp(-2 n e^2) = 1e-6 (Massart 1990)
LAWS = {
    Distribution(d.UNIFORM, 2, 5): stats.uniform(2, 3),
    Distribution(d.NORMAL, 10, 1): stats.norm(10, 1),
    Distribution(d.LOGNORMAL, 0.02, 0.5): stats.lognorm(0.5, scale=0.02),
    Distribution(d.EXPONENTIAL, 3): stats.expon(scale=3),
    Distribution(d.HALF_NORMAL, 3): stats.halfnorm(scale=3),
    Distribution(d.GAMMA, 3, 2.5): stats.gamma(2.5, scale=3 / 2.5),
    Distribution(d.GAMMA, 3, 0.4): stats.gamma(0.4, scale=3 / 0.4),
}
MISREAD = {  # the same numbers under another convention must be told apart
    Distribution(d.UNIFORM, 2, 5): stats.uniform(2, 5),
    Distribution(d.NORMAL, 10, 2): stats.norm(10, np.sqrt(2)),
    Distribution(d.LOGNORMAL, 0.02, 0.5): stats.lognorm(0.5, scale=0.02 * np.exp(-0.125)),
    Distribution(d.EXPONENTIAL, 3): stats.expon(scale=1 / 3),
    Distribution(d.HALF_NORMAL, 3): stats.halfnorm(scale=3 * np.sqrt(np.pi / 2)),
    Distribution(d.GAMMA, 3, 2.5): stats.gamma(2.5, scale=3),
    Distribution(d.GAMMA, 3, 0.4): stats.gamma(1.4, scale=3 / 1.4),
}


def sample(distribution):
    return d.draw(
        distribution, 1, Stream.SPEED, agent=np.arange(400)[:, None], round=np.arange(500)
    )


@pytest.mark.parametrize("distribution", LAWS)
def test_law_and_mean(distribution):
    drawn = sample(distribution)
    assert drawn.shape == (400, 500)
    law = LAWS[distribution]
    assert stats.kstest(drawn.ravel(), law.cdf).statistic < BOUND
    np.testing.assert_allclose(d.mean(distribution), law.mean(), rtol=1e-12)


@pytest.mark.parametrize("distribution", MISREAD)
def test_misread_law_is_noticed(distribution):
    law = MISREAD[distribution]
    assert stats.kstest(sample(distribution).ravel(), law.cdf).statistic > BOUND


def test_normal_is_cut_at_zero():
    cut = Distribution(d.NORMAL, 1, 1)
    drawn = sample(cut).ravel()
    share = stats.norm.cdf(-1)
    assert drawn.min() == 0.0
    spread = np.sqrt(share * (1 - share) / N)
    assert abs((drawn == 0).mean() - share) < 5 * spread
    assert abs(drawn.mean() - d.mean(cut)) < 5 / np.sqrt(N)
    assert abs(drawn.mean() - 1) > 5 / np.sqrt(N)  # the mean before the cut


def test_constant_and_degenerate():
    assert d.draw(Distribution(d.CONSTANT, 4), 1, Stream.LINK).tolist() == 4.0
    assert d.mean(Distribution(d.CONSTANT, 4)) == 4
    assert d.mean(Distribution(d.NORMAL, 4, 0)) == 4
    assert d.mean(Distribution(d.NORMAL, -4, 0)) == 0
    assert d.draw(Distribution(d.NORMAL, -4, 0), 1, Stream.LINK) == 0
    assert d.draw(Distribution(d.UNIFORM, 2, 2), 1, Stream.LINK) == 2


@pytest.mark.parametrize("distribution", LAWS)
def test_kernel_and_python_agree_at_every_index(distribution):
    word, k1 = keys.seed_word(9), keys.address(int(Stream.CHURN), 3, -1)
    kind, a, b = distribution
    values = []
    for index in range(5):
        one = d.draw(distribution, 9, Stream.CHURN, agent=3, round=2, index=index)
        assert one == d.sample(kind, float(a), float(b), word, k1, keys.counter(2, 0), index)
        values.append(float(one))
    assert len(set(values)) == 5
