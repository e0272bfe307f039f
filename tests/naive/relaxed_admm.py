"""Relaxed ADMM at 1/2 on a graph (Bastianello et al. 2021), in whatever order things happen."""

import numpy as np


def relaxed_admm(happenings, step, x0, neighbours, rho, noise):
    """Returns w {(agent, round): (P,)}, the models before noise[round - 1][agent] (P,) is added.

    happenings, in order of time: ("step", i, k), agent i takes its k-th step and sends, and
    ("hear", i, {j: k}), it takes in what neighbour j sent after its k-th step. step(i, w, pull):
    i's new model from w, to which the noise has been added, and the sum of z_ij.
    """
    z = {(i, j): rho * (x0[i] + x0[j]) for i, near in enumerate(neighbours) for j in near}
    noisy, sent, w = np.array(x0, float), {}, {}
    for what, i, which in happenings:
        if what == "step":
            pull = sum(z[i, j] for j in neighbours[i])
            w[i, which] = step(i, noisy[i], pull)
            noisy[i] = w[i, which] + noise[which - 1][i]
            for j in neighbours[i]:
                sent[i, j, which] = -z[i, j] + 4 * rho * noisy[i]
        else:
            for j, k in which.items():
                z[i, j] = (z[i, j] + sent[j, i, k]) / 2
    return w
