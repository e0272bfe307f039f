"""5GCS (Grudzien et al. 2022), Algorithm 1, on F_m = (f_m - mu/2 ||.||^2) / N as printed."""

import numpy as np

from naive.descent import local_steps, slope_of


def five_gcs(
    A, b, x0, issued, *, tau, gamma, mu, step, epochs, solver, normals, batches, momentum=0.0,
    noise=0.0, **f,
):  # fmt: skip
    """Returns the models (rounds + 1, dim), y and u (N, dim) after the last round.

    issued[k][i]: the round whose x_hat the reply used that arrives in round k, -1 for none; step is
    that of N psi_m.
    """
    N, dim = len(A), A[0].shape[1]
    y, u = np.array(x0, float), np.zeros((N, dim))
    model, hats, v = [y.mean(axis=0)], [], np.zeros(dim)
    for k in range(len(issued)):
        hats.append((model[k] - gamma * v) / (1 + gamma * mu))
        cohort = [i for i in range(N) if issued[k][i] >= 0]
        last = v.copy()
        for i in cohort:
            call = issued[k][i]
            y[i] = local_steps(
                hats[call], A[i], b[i], N, epochs, step=step, solver=solver, q=N * tau - mu,
                shift=-N * (tau * hats[call] + u[i]), momentum=momentum, tau=noise,
                normals=normals[call][i], batches=batches[call][i], **f,
            )  # psi_m(y) = F_m(y) + tau/2 ||y - (x_hat + u_m / tau)||^2  # fmt: skip
            ahead = (slope_of(y[i], A[i], b[i], N, **f) - mu * y[i]) / N
            v += ahead - u[i]
            u[i] = ahead
        model.append(hats[k] - gamma * N / max(len(cohort), 1) * (v - last))
    return np.array(model), y, u
