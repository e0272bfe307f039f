"""TAMUNA (Condat et al. 2023), Algorithm 1: cohorts, numbers of steps and masks are given."""

import numpy as np

from naive.descent import local_steps


def mask(c, dim, s, order):
    """q (c, dim): column order[r] of the paper's binary template belongs to member r."""
    template = np.zeros((dim, c))
    for row in range(dim):
        for t in range(s):
            template[row, (s * row + t) % c] = 1
    return np.array([template[:, column] for column in order])


def tamuna(
    A, b, x0, cohorts, lengths, masks, *, replies=None, p, chi, step, normals, batches, **local
):
    """Returns the models (rounds + 1, dim), x and h (N, dim) after the last round.

    cohorts[k]: the agents of round k; replies[k]: those of them that are heard; masks[k] (c, dim).
    """
    N = len(A)
    x, h = np.array(x0, float), np.zeros_like(x0, float)
    model = [x.mean(axis=0)]
    for k, cohort in enumerate(cohorts):
        heard = list(cohort) if replies is None else replies[k]
        total, senders = np.zeros(x.shape[1]), np.zeros(x.shape[1])
        for r, i in enumerate(cohort):
            if i not in heard:
                continue
            x[i] = local_steps(
                model[k], A[i], b[i], N, lengths[k], step=step, shift=-h[i],
                normals=normals[k][i], batches=batches[k][i], **local,
            )  # line 9  # fmt: skip
            total += masks[k][r] * x[i]
            senders += masks[k][r]
        model.append(np.where(senders > 0, total / np.maximum(senders, 1), model[k]))  # line 12
        for r, i in enumerate(cohort):
            if i in heard:
                h[i] += p * chi / step * masks[k][r] * (model[k + 1] - x[i])  # line 14
    return np.array(model), x, h
