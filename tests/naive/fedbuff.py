"""FedAvg, FedProx and FedBuff with the coordinator's optimisers, staleness weights and clipping.

McMahan et al. 2017; Li et al. 2020, Algorithm 2; Nguyen et al. 2022, Algorithms 1 and 2; Reddi et
al. 2021, Algorithm 2; Hsu, Qi, Brown 2019; weights of Xie, Koyejo, Gupta 2019, Section 5.2.
"""

import numpy as np

from naive.descent import local_steps


def s_of(t, kind, a=0.0, b=0.0):
    """What a reply weighs before which t rounds were published since its call."""
    if kind == "polynomial":
        return float(t + 1) ** -a
    if kind == "hinge":
        return 1.0 if t <= b else 1.0 / (a * (t - b) + 1.0)
    return 1.0


def shortened(x, C):
    """X, no longer than C."""
    norm = np.linalg.norm(x)
    return x if norm <= C else x * (C / norm)


def server_step(kind, own, delta, m, v):
    """(Step of the model, m, v) of an optimiser whose pseudo-gradient is delta."""
    if kind == "none":
        return delta, m, v
    if kind == "momentum":
        m = own * m + delta
        return m, m, v
    m = own["beta1"] * m + (1 - own["beta1"]) * delta
    if kind == "adagrad":
        v = v + delta**2
    if kind == "adam":
        v = own["beta2"] * v + (1 - own["beta2"]) * delta**2
    if kind == "yogi":
        v = v - (1 - own["beta2"]) * delta**2 * np.sign(v - delta**2)
    return own["rate"] * m / (np.sqrt(v) + own["tau"]), m, v


def fedbuff(
    A, b, x0, issued, *, global_step, epochs, agents, normals, batches, mu=0.0, C=np.inf,
    sigma=0.0, noise=None, staleness=("constant",), server=("none", None), **local,
):  # fmt: skip
    """Returns the models (rounds + 1, dim) and x (N, dim), the model each agent was sent last.

    issued, agents, normals, batches: as in fedavg; C: largest norm of a change; noise[k][i] (dim,):
    of what agent i sends that was called in round k + 1.
    """
    N = len(A)
    x = np.array(x0, float)
    model = [x.mean(axis=0)]
    kind, own = server
    m = np.zeros(x.shape[1])
    v = m + (own["tau"] ** 2 if isinstance(own, dict) else 0.0)
    for k in range(len(issued)):
        changes = []
        for i in range(N):
            call = issued[k][i]
            if call < 0:
                continue
            x[i] = model[call]
            y = local_steps(
                x[i], A[i], b[i], N, epochs, q=mu, shift=-mu * x[i], normals=normals[call][i],
                batches=batches[call][i], **agents[i], **local,
            )  # fmt: skip
            change = shortened(y - x[i], C)
            if sigma:
                change = change + sigma * noise[call][i]
            changes.append(s_of(k - call, *staleness) * change)
        if not changes:
            model.append(model[k])
            continue
        step, m, v = server_step(kind, own, sum(changes) / len(changes), m, v)
        model.append(model[k] + global_step * step)
    return np.array(model), x
