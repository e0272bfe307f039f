"""Fed-PLT in NumPy: all agents in one array (batched), or one after the other (per agent)."""

import sys

import numpy as np
from worker import Problem, Run, serve


def batched(p: Problem) -> Run:
    """All agents in one array."""
    transposed = np.ascontiguousarray(p.A.transpose(0, 2, 1))
    agents, rows, dim = p.A.shape

    def run(rounds: int) -> np.ndarray:
        x, z = np.zeros((agents, dim)), np.zeros((agents, dim))
        for _ in range(rounds):
            y = z.mean(axis=0)
            v = 2.0 * y - z
            for _ in range(p.epochs):
                slope = -p.b / (1.0 + np.exp(p.b * np.matmul(p.A, x[:, :, None])[:, :, 0]))
                g = np.matmul(transposed, slope[:, :, None])[:, :, 0] / rows + p.weight * x
                x = x - p.gamma * (g + (x - v) / p.rho)
            z = z + 2.0 * (x - y)
        return x

    return run


def single(p: Problem) -> Run:
    """One agent after the other."""
    agents, rows, dim = p.A.shape

    def run(rounds: int) -> np.ndarray:
        x, z = np.zeros((agents, dim)), np.zeros((agents, dim))
        for _ in range(rounds):
            y = z.mean(axis=0)
            for i in range(agents):
                A, b, w, v = p.A[i], p.b[i], x[i], 2.0 * y - z[i]
                for _ in range(p.epochs):
                    g = A.T @ (-b / (1.0 + np.exp(b * (A @ w)))) / rows + p.weight * w
                    w = w - p.gamma * (g + (w - v) / p.rho)
                x[i] = w
                z[i] = z[i] + 2.0 * (w - y)
        return x

    return run


if __name__ == "__main__":
    serve(batched if sys.argv[5] == "batched" else single, ("numpy",))
