"""The race's tests for candidates that have seeds of their own: ranks over all runs together.

Kruskal and Wallis (1952) with Conover's comparisons of pairs in the place of Friedman's, and of two
candidates Wilcoxon's rank sums in the place of his signed ranks; exact where there are no ties.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from desim.arrays import Array


def unpaired_worse(values: Array, error: float) -> NDArray[np.bool_]:
    """Which candidate (row) is worse than which (column): values (candidates, runs), least best."""
    k, n = values.shape
    found = np.zeros((k, k), bool)
    if k == 2:
        finite = np.where(np.isinf(values), np.finfo(float).max, values)
        test = stats.mannwhitneyu(finite[0], finite[1], method="auto")
        if test.pvalue <= error:
            first = test.statistic > 0.5 * n * n
            found[0, 1], found[1, 0] = first, not first
        return found
    ranked = stats.rankdata(values).reshape(k, n)
    total = k * n
    spread = ((ranked**2).sum() - total * (total + 1) ** 2 / 4.0) / (total - 1)
    if spread <= 0.0:
        return found
    sums = ranked.sum(axis=1)
    kruskal = ((sums**2).sum() / n - total * (total + 1) ** 2 / 4.0) / spread
    if stats.chi2.sf(kruskal, k - 1) > error:
        return found
    freedom = total - k
    within = spread * max(total - 1 - kruskal, 0.0) / freedom
    critical = stats.t.ppf(1.0 - 0.5 * error, freedom) * np.sqrt(within * 2.0 / n)
    means = sums / n
    return np.asarray(means[:, None] - means[None, :] > critical)
