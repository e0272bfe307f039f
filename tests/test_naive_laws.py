"""What the reference values leave open in the naive twins: solvers, losses, stale replies."""

import naive.fed_plt as fed_plt
import naive.losses as losses
import naive.q_dpsgd_1 as q_dpsgd_1
import numpy as np
import pytest
from mutant import mutant


def gap(found, expected):
    return np.max(np.abs(np.asarray(found) - np.asarray(expected)))


def quadratic(solver, **arguments):
    """Two agents with three rows each of a squared loss; one round."""
    A = np.array([[[1.0, 2.0], [0.5, -1.0], [2.0, 0.0]], [[1.0, 1.0], [0.0, 1.5], [-1.0, 0.5]]])
    b = np.array([[1.0, 0.0, 2.0], [-1.0, 0.5, 1.0]])
    start = np.array([[0.3, -0.2], [0.1, 0.4]])
    case = {"epochs": 3, "step": 0.05, "rho": 0.3, "loss": "squared", "l2": 0.4} | arguments
    return A, b, fed_plt.fed_plt(A, b, start, start, 1, solver=solver, **case)


@pytest.mark.parametrize("average", ["mean", "sum"])
def test_exact_is_the_prox_of_footnote_6(average):
    A, b, (x, _, y) = quadratic("exact", epochs=1, average=average)
    z0 = np.array([[0.3, -0.2], [0.1, 0.4]])
    scale = 1 / 3 if average == "mean" else 1
    for i in range(2):
        Q = 2 * scale * A[i].T @ A[i] + 0.2 * np.eye(2)
        q = -2 * scale * A[i].T @ b[i]
        v = 2 * y[0] - z0[i]
        prox = np.linalg.solve(np.eye(2) + 0.3 * Q, v - 0.3 * q)
        assert gap(x[1, i], prox) < 1e-12
        assert gap(x[1, i], np.linalg.solve(np.eye(2) + 0.3 * Q, v - q)) > 0.01  # as printed


def test_sgd_with_all_rows_is_gradient_descent():
    every = [[[[0, 1, 2]] * 3] * 2]
    *_, plain = quadratic("gradient")
    for scaling in ("unbiased", "printed"):
        *_, full = quadratic("sgd", batches=every, scaling=scaling)
        assert gap(full[0], plain[0]) < 1e-14
    one = [[[[0]] * 3] * 2]
    *_, unbiased = quadratic("sgd", batches=one)
    *_, printed = quadratic("sgd", batches=one, scaling="printed")
    assert gap(unbiased[0], printed[0]) > 0.01


def test_sgd_gradient_is_unbiased():
    *_, plain = quadratic("gradient", epochs=1)
    runs = [quadratic("sgd", epochs=1, batches=[[[[h]]] * 2])[2][0] for h in range(3)]
    assert gap(np.mean(runs, axis=0), plain[0]) < 1e-14
    printed = [
        quadratic("sgd", epochs=1, batches=[[[[h]]] * 2], scaling="printed")[2][0] for h in range(3)
    ]
    assert gap(np.mean(printed, axis=0), plain[0]) > 0.01


def test_noise_enters_with_deviation_sqrt_2_gamma_tau():
    normals = np.array([[[[1.0, -2.0]], [[0.5, 0.25]]]])
    *_, plain = quadratic("gradient", epochs=1)
    *_, noisy = quadratic("noisy", epochs=1, tau=0.7, normals=normals)
    shift = np.sqrt(0.1) * 0.7 * normals[0, :, 0]
    assert gap(noisy[0][1] - plain[0][1], shift) < 1e-14
    assert gap(noisy[0][1] - plain[0][1], np.sqrt(0.05) * 0.7 * normals[0, :, 0]) > 0.01


def test_a_stale_reply_uses_the_y_of_its_call():
    A, b, _ = quadratic("gradient")
    start = np.array([[0.3, -0.2], [0.1, 0.4]])
    case = {"rho": 0.3, "solver": "gradient", "epochs": 2, "step": 0.05, "loss": "squared"}
    x, z, y = fed_plt.fed_plt(A, b, start, start, 2, issued=[[0, -1], [-1, 0]], **case)
    both, *_ = fed_plt.fed_plt(A, b, start, start, 1, **case)
    assert gap(x[2], both[1]) == 0
    assert gap(z[2, 1], z[0, 1] + 2 * (x[2, 1] - y[0])) == 0
    fresh, *_ = fed_plt.fed_plt(A, b, start, start, 2, issued=[[0, -1], [-1, 1]], **case)
    assert gap(fresh[2], both[1]) > 0.01


def slope_error(twin, loss):
    """Largest gap between the slope and a central difference, away from corners."""
    error = 0.0
    for b in (-1.0, 1.0):
        for u in (-2.3, -0.4, 0.2, 1.7, 3.1):
            h = 1e-6
            difference = (twin.value(loss, u + h, b) - twin.value(loss, u - h, b)) / (2 * h)
            error = max(error, abs(twin.slope(loss, u, b) - difference))
    return error


LOSS_MUTANTS = {
    "squared": ("return 2 * r\n", "return r\n"),
    "absolute": ("return np.sign(r)", "return r"),
    "huber": ("* knee * np.sign(r)", "* np.sign(-r)"),
    "hinge": ("return -b if b * u < 1", "return b if b * u < 1"),
    "logistic": ("return -b * np.exp(-np.logaddexp(0.0, b * u))", "return -b * np.exp(-b * u)"),
}


@pytest.mark.parametrize("loss", LOSS_MUTANTS)
def test_slopes_are_derivatives(loss):
    # |u|, |value| < 20: rounding 20 eps/h = 4e-9, truncation h^2 = 1e-12
    assert slope_error(losses, loss) < 1e-8
    assert slope_error(mutant(losses, *LOSS_MUTANTS[loss]), loss) > 1e-3


def test_corners_and_clips():
    assert losses.slope("absolute", 2.0, 2.0) == 0
    A, b = np.array([[3.0, 4.0], [0.1, 0.0]]), np.array([0.0, 0.0])
    clipped = losses.data_gradient(np.array([1.0, 1.0]), A, b, loss="squared", clip=2.0)
    assert gap(clipped, [2 * 0.6 + 0.02, 2 * 0.8]) < 1e-15


def test_mixing_matrix():
    W = q_dpsgd_1.mixing_matrix([(0, 1), (1, 2)], 3)  # path: eigenvalues of L are 0, 1, 3
    assert gap(W, np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]]) / 3) < 1e-15
    assert gap(q_dpsgd_1.mixing_matrix([(0, 1), (1, 2)], 3, kappa=4), W) > 0.01
    assert q_dpsgd_1.batch_size(14.9, 0.4, 20) == 5
    assert q_dpsgd_1.batch_size(80, 0.4, 20) == 20


def test_linear_model_gradient():
    A, b = np.array([[[1.0, 2.0], [0.0, 1.0]]]), np.array([[1.0, -1.0]])
    x = np.zeros(2)
    gradient = q_dpsgd_1.linear_model(A, b, l2=0.5)
    assert gap(gradient(0, x, [0, 1]), [-0.25, -0.25]) < 1e-15  # mean of -(1, 2)/2 and (0, 1)/2
    assert gap(q_dpsgd_1.linear_model(A, b, average="sum")(0, x, [0]), [-1, -2]) < 1e-15
    assert gap(q_dpsgd_1.linear_model(A, b, clip=0.5)(0, x, [1]), [0, 0.5]) < 1e-15
