"""Pairwise gossip (Boyd et al. 2006), with steps (Koloskova et al. 2020), gossip learning."""

import numpy as np


def stepped(gradient, i, x, batches, noise, alpha):
    """x (p,) of agent i after a step on each of its batches, lists of rows."""
    for rows in batches:
        x = x - alpha * (gradient(i, x, rows) + noise)
    return x


def gossip(gradient, x0, partner, batches, noise, *, alpha):
    """Returns x (T + 1, n, p). partner[t][i]: whom i meets in round t, -1 for nobody.

    batches[t][i]: the batches of its steps; noise[t][i] (p,): added to their gradients.
    """
    x = [np.array(x0, float)]
    for t in range(len(partner)):
        half = [
            stepped(gradient, i, x[t][i], batches[t][i], noise[t][i], alpha) for i in range(len(x0))
        ]
        new = [
            half[i] if j < 0 else 0.5 * half[i] + 0.5 * half[j] for i, j in enumerate(partner[t])
        ]
        x.append(np.array(new))
    return np.array(x)


def gossip_learning(order, gradient, x0, batches, noise, *, alpha):
    """Returns x {(agent, round): (p,)}, after the mean.

    order: ("step", i, k), agent i updates its model for the k-th time and pushes it, and ("hear",
    i, k, {j: l}), it takes the mean of it and of what the js pushed in their rounds l.
    """
    x, pushed, found = [np.array(row, float) for row in x0], {}, {}
    for what, i, k, *news in order:
        if what == "step":
            x[i] = stepped(gradient, i, x[i], batches[k - 1][i], noise[k - 1][i], alpha)
            pushed[i, k] = x[i]
        else:
            x[i] = np.mean([x[i], *(pushed[j, m] for j, m in news[0].items())], axis=0)
            found[i, k] = x[i]
    return found
