"""A clipped gradient step of a network, beside its two wide products and NumPy with the same trick.

    python -m analysis.benchmarks.layers

MLP 784-50-10, 20 rows, one thread. The NumPy loop takes norms from activations and deltas, too.
"""

import os

os.environ["DESIM_THREADS"] = "1"
os.environ["OPENBLAS_NUM_THREADS"] = "1"

from typing import Any

import numpy as np

from analysis.benchmarks.timing import interleaved, machine
from desim.numerics.jit import kernel, one_blas_thread
from desim.numerics.keys import seed_word
from desim.problem.kernels.gradients import batch_gradient
from desim.problem.kernels.local import Trainer
from desim.problem.kernels.plan import plan_for
from desim.problem.losses.layers import LayeredLoss
from desim.problem.problem import Problem

FEATURES, HIDDEN, CLASSES, BATCH, STEPS, CLIP, GAMMA = 784, 50, 10, 20, 20, 1.0, 0.01
Array = np.ndarray[Any, Any]


def problem(precision: Any, rows: int) -> Problem:
    """One agent with random images."""
    random = np.random.default_rng(0)
    A, b = random.random((rows, FEATURES)), random.integers(0, CLASSES, rows).astype(float)
    loss = LayeredLoss("mlp", classes=CLASSES, hidden=HIDDEN)
    return Problem(A, b, np.array([0, rows]), loss, clip=CLIP, precision=precision)


def training(made: Problem, solver: str) -> Any:
    """STEPS local steps in one call: on all rows, or on fresh batches."""
    plan = plan_for(1, solver, GAMMA, batch=BATCH)
    trainer, x = Trainer(plan, made.data), start(made)[None]
    who, round_, epochs, seed = np.array([0]), np.array([1]), np.array([STEPS]), seed_word(1)
    return lambda: trainer(who, x, x, round_, epochs, seed)


def start(made: Problem) -> Array:
    """A random model (dim,)."""
    return 0.05 * np.random.default_rng(1).normal(size=made.dim)


def single(made: Problem) -> Any:
    """STEPS gradients on fresh batches, each of a float64 model in a call of its own."""
    x = start(made)[None]

    def gradients() -> None:
        for k in range(STEPS):
            batch_gradient([0], x, BATCH, k, 1, made.data)

    return gradients


@kernel
def _products(times, X, W, D, H, G):  # type: ignore[no-untyped-def]
    for _ in range(times):
        np.dot(X, W, H)
        np.dot(X.T, D, G)


def products(made: Problem) -> Any:
    """Nothing but X W1 and X' D1, as often."""
    kind, random = made.data.A.dtype, np.random.default_rng(2)
    X = np.ascontiguousarray(made.data.A[:BATCH])
    W = start(made)[: FEATURES * HIDDEN].reshape(FEATURES, HIDDEN).astype(kind)
    D = random.normal(size=(BATCH, HIDDEN)).astype(kind)
    H, G = np.empty((BATCH, HIDDEN), kind), np.empty((FEATURES, HIDDEN), kind)

    def run() -> None:
        with one_blas_thread():
            _products(STEPS, X, W, D, H, G)

    return run


def in_numpy(made: Problem) -> Any:
    """The same steps in NumPy, norms from activations and deltas."""
    X, kind = made.data.A[:BATCH], made.data.A.dtype
    hot = np.eye(CLASSES, dtype=kind)[made.data.label[:BATCH]]
    square = np.sum(X * X, axis=1) + 1

    def run() -> None:
        w = start(made).astype(kind)
        ends = np.cumsum([FEATURES * HIDDEN, HIDDEN, HIDDEN * CLASSES])
        W1, b1, W2, b2 = np.split(w, ends)
        W1, W2 = W1.reshape(FEATURES, HIDDEN), W2.reshape(HIDDEN, CLASSES)
        with one_blas_thread():
            for _ in range(STEPS):
                H = 1 / (1 + np.exp(-(X @ W1 + b1)))
                e = np.exp(H @ W2 + b2)
                out = e / e.sum(axis=1, keepdims=True) - hot
                back = (out @ W2.T) * H * (1 - H)
                norm = square * np.sum(back * back, axis=1)
                norm = np.sqrt(norm + (np.sum(H * H, axis=1) + 1) * np.sum(out * out, axis=1))
                weight = (np.minimum(1, CLIP / norm) * (GAMMA / BATCH)).astype(kind)[:, None]
                out, back = out * weight, back * weight
                W1 -= X.T @ back
                b1 -= back.sum(axis=0)
                W2 -= H.T @ out
                b2 -= out.sum(axis=0)

    return run


def main() -> None:
    """Measure and print."""
    print(machine())
    for precision in ("float32", "float64"):
        few, many = problem(precision, BATCH), problem(precision, 1000)
        measured = interleaved(
            {
                "the two wide products alone": products(few),
                "a clipped step on 20 rows": training(few, "gradient"),
                "with a fresh batch of 1000": training(many, "sgd"),
                "a clipped gradient, one call each": single(many),
                "NumPy, norms from activations": in_numpy(few),
            },
            400,
        )
        least = measured["the two wide products alone"][0]
        print(f"\n{precision}\n\n| | min us | median us | ratio of minima |\n|---|---|---|---|")
        for name, (low, middle) in measured.items():
            per = 1e6 / STEPS
            print(f"| {name} | {low * per:.1f} | {middle * per:.1f} | {low / least:.2f} |")


if __name__ == "__main__":
    main()
