"""Stochastic gradient push (Assran et al. 2019), with running sums (Spiridonoff et al. 2020)."""

import numpy as np


def push_sum(gradient, x0, links, batches, noise, *, alpha):
    """Returns z (T + 1, n, p). links[t]: pairs (j, i) of round t, i hears j."""
    n = len(x0)
    x, w, z = np.array(x0, float), np.ones(n), [np.array(x0, float)]
    for t in range(len(links)):
        P = np.eye(n)
        for j, i in links[t]:
            P[i, j] = 1.0
        P /= P.sum(axis=0)
        g = [gradient(i, z[t][i], batches[t][i]) + noise[t][i] for i in range(n)]
        x, w = P @ (x - alpha * np.array(g)), P @ w
        z.append(x / w[:, None])
    return np.array(z)


def robust_push_sum(order, gradient, x0, links, batches, noise, *, alpha):
    """Returns z {(agent, round): (p,)}, the sums of x and w with what is on its way, and of steps.

    order: ("step", i, k) and ("hear", i, k, {j: l}): i has newly heard what j sent in round l.
    """
    n, near = len(x0), [[i for j, i in links if j == one] for one in range(len(x0))]
    x, w, z = np.array(x0, float), np.ones(n), np.array(x0, float)
    sent, sums = {}, {i: (np.zeros_like(x[i]), 0.0) for i in range(n)}
    heard = {(j, i): (np.zeros_like(x[i]), 0.0) for j, i in links}
    found, start = {}, x.sum(axis=0)
    for what, i, k, *news in order:
        if what == "step":
            step = alpha * (gradient(i, z[i], batches[k - 1][i]) + noise[k - 1][i])
            x[i], start = x[i] - step, start - step
            parts = 1 + len(near[i])
            x[i], w[i] = x[i] / parts, w[i] / parts
            sums[i] = sums[i][0] + x[i], sums[i][1] + w[i]
            sent[i, k] = sums[i]
        else:
            for j, round_ in news[0].items():
                x[i] += sent[j, round_][0] - heard[j, i][0]
                w[i] += sent[j, round_][1] - heard[j, i][1]
                heard[j, i] = sent[j, round_]
            z[i] = x[i] / w[i]
            found[i, k] = z[i].copy()
    away = [(sums[j][0] - got[0], sums[j][1] - got[1]) for (j, _), got in heard.items()]
    whole = x.sum(axis=0) + sum(a for a, _ in away), w.sum() + sum(b for _, b in away)
    return found, (whole, start)
