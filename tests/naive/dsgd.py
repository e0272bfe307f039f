"""DSGD (Yuan et al. 2016) and SDM-DSGD (Zhang et al. 2020), as Ding's dissertation states them."""

import numpy as np


def step(gradient, x, heard, W, batches, normals, alpha, sigma):
    """sum_j w_ij x_j - alpha (g_i(x_i) + zeta_i) for every i; of the others heard (n, p) is known.

    batches[i]: rows S_i (none: no gradient, no noise); normals[i] (p,).
    """
    new = np.zeros_like(x)
    for i in range(len(W)):
        for j in range(len(W)):
            new[i] += W[i][j] * (x[i] if j == i else heard[j])
        if len(batches[i]):
            zeta = sigma * np.asarray(normals[i]) if sigma else 0.0
            new[i] -= alpha * (gradient(i, x[i], batches[i]) + zeta)
    return new


def written(x, number):
    """x as a message holds it."""
    return np.asarray(x).astype(number).astype(float)


def dsgd(gradient, x0, W, batches, normals=None, *, alpha, sigma=0.0, number="float64"):
    """Returns x (T + 1, n, p); messages are written in the format `number`, the start is known."""
    x = [np.array(x0, float)]
    heard = x[0]
    for t in range(len(batches)):
        noise = None if normals is None else normals[t]
        x.append(step(gradient, x[t], heard, W, batches[t], noise, alpha, sigma))
        heard = written(x[-1], number)
    return np.array(x)


def sdm_dsgd(
    gradient, x0, W, batches, masks, normals=None, *, alpha, theta, c, sigma=0.0, number="float64"
):
    """Returns x (T + 1, n, p); masks[t][i] (p,) of 0 and 1: which coordinates are sent."""
    x = [np.array(x0, float)]
    for t in range(len(batches)):
        noise = None if normals is None else normals[t]
        ahead = step(gradient, x[t], x[t], W, batches[t], noise, alpha, sigma)
        y = (1 - theta) * x[t] + theta * ahead
        sent = np.asarray(masks[t]) * (y - x[t]) / c
        x.append(x[t] + written(sent, number))
    return np.array(x)
