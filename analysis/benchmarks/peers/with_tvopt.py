"""Fed-PLT with the costs of tvopt, which has no such method: their gradients, in a loop.

Its logistic cost sums over rows and has an intercept, which is why the data's first column is 1.
"""

import numpy as np
from tvopt.costs import LogisticRegression
from worker import Problem, Run, serve


def make(p: Problem) -> Run:
    """One cost for each agent."""
    agents, rows, dim = p.A.shape
    costs = [
        LogisticRegression(p.A[i, :, 1:].copy(), p.b[i].copy(), weight=rows * p.weight)
        for i in range(agents)
    ]

    def run(rounds: int) -> np.ndarray:
        x, z = np.zeros((agents, dim, 1)), np.zeros((agents, dim, 1))
        for _ in range(rounds):
            y = z.mean(axis=0)
            for i, cost in enumerate(costs):
                w, v = x[i], 2.0 * y - z[i]
                for _ in range(p.epochs):
                    w = w - p.gamma * (cost.gradient(w) / rows + (w - v) / p.rho)
                x[i] = w
                z[i] = z[i] + 2.0 * (w - y)
        return x[:, :, 0]

    return run


if __name__ == "__main__":
    serve(make, ("tvopt", "numpy"))
