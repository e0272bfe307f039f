"""F-Race by loops over the textbook's formulas; imports nothing from desim."""

import itertools
import math

from scipy import stats


def midranks(row):
    """Ranks of the numbers of one seed; equal ones get the mean of their places."""
    order = sorted(range(len(row)), key=lambda i: row[i])
    found = [0.0] * len(row)
    place = 0
    while place < len(order):
        end = place
        while end + 1 < len(order) and row[order[end + 1]] == row[order[place]]:
            end += 1
        for i in range(place, end + 1):
            found[order[i]] = (place + end) / 2 + 1
        place = end + 1
    return found


def friedman_worse(values, error):
    """Pairs (j, l): j is significantly worse than l (Conover 1999, section 5.8)."""
    k, n = len(values), len(values[0])
    ranks = [midranks([values[j][i] for j in range(k)]) for i in range(n)]
    sums = [sum(ranks[i][j] for i in range(n)) for j in range(k)]
    a = sum(ranks[i][j] ** 2 for i in range(n) for j in range(k))
    c = n * k * (k + 1) ** 2 / 4
    if a == c:
        return set()
    t = (k - 1) * sum((s - n * (k + 1) / 2) ** 2 for s in sums) / (a - c)
    if t <= stats.chi2.ppf(1 - error, k - 1):
        return set()
    b = sum(s * s for s in sums) / n
    spread = math.sqrt(max(0.0, 2 * n * (a - b) / ((n - 1) * (k - 1))))
    critical = stats.t.ppf(1 - error / 2, (n - 1) * (k - 1)) * spread
    return {(j, m) for j in range(k) for m in range(k) if sums[j] - sums[m] > critical + 1e-8}


def signed_rank_p(one, other):
    """Two-sided p that `one` is larger, by every one of the 2^n choices of signs."""
    away = []
    for x, y in zip(one, other, strict=True):
        if x == y:
            continue
        if math.isinf(x) or math.isinf(y):
            away.append(math.inf if math.isinf(x) else -math.inf)
        else:
            away.append(math.log(x) - math.log(y))
    if not away:
        return 1.0
    ranks = midranks([abs(x) for x in away])
    seen = sum(r for r, x in zip(ranks, away, strict=True) if x > 0)
    every = itertools.product([0, 1], repeat=len(ranks))
    many = [sum(r * s for r, s in zip(ranks, signs, strict=True)) for signs in every]
    return min(1.0, 2 * sum(x >= seen - 1e-9 for x in many) / len(many))
