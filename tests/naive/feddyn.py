"""FedDyn (Acar et al. 2021), Algorithm 1."""

import numpy as np

from naive.descent import local_steps


def feddyn(
    A, b, x0, issued, *, alpha, epochs, agents, normals, batches, reply="change", **local
):  # fmt: skip
    """Returns theta (rounds + 1, dim), theta_k and grad_k (m, dim) after the last round.

    issued, agents, normals, batches: as in fedavg. reply change: a late change is one of the
    present model; share: so many replies of all take that share of the step; model: as printed.
    """
    m = len(A)
    theta_k, grad_k = np.array(x0, float), np.zeros_like(x0, float)
    theta, h = [theta_k.mean(axis=0)], np.zeros(theta_k.shape[1])
    for t in range(len(issued)):
        active = [k for k in range(m) if issued[t][k] >= 0]
        arrived = []
        for k in active:
            call = issued[t][k]
            sent = theta[call]
            theta_k[k] = local_steps(
                sent, A[k], b[k], m, epochs, q=alpha, shift=-grad_k[k] - alpha * sent,
                normals=normals[call][k], batches=batches[call][k], **agents[k], **local,
            )  # fmt: skip
            grad_k[k] = grad_k[k] - alpha * (theta_k[k] - sent)
            one = theta_k[k] if reply == "model" else theta[t] + theta_k[k] - sent
            arrived.append(one)  # theta_k, where the call is of round t
        if not active:
            theta.append(theta[t])
            continue
        h = h - alpha / m * sum(one - theta[t] for one in arrived)
        step = np.mean(arrived, axis=0) - h / alpha - theta[t]
        theta.append(theta[t] + step * (len(arrived) / m if reply == "share" else 1.0))
    return np.array(theta), theta_k, grad_k
