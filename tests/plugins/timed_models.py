"""A NumPy model that counts its operations and its memory, and one that says neither."""

from desim.model import Model


class Quadratic(Model):
    """(x.a - b)^2 / 2 of each row, written in NumPy."""

    name = "counted-quadratic"
    summary = "least squares that counts its operations"
    labels = "numbers"

    def initial(self, seed):
        import numpy as np

        return np.zeros(self.facts.shape[0])

    def loss(self, x, rows):
        return 0.5 * (rows.inputs @ x - rows.labels) ** 2

    def example_gradients(self, x, rows):
        return (rows.inputs @ x - rows.labels)[:, None] * rows.inputs

    def flops(self, m):
        return m * 1000.0

    def memory(self, m, clipped):
        return 1e6 + 1e3 * m


class Silent(Quadratic):
    """The same, of which nothing is known."""

    name = "silent-quadratic"
    summary = "least squares"

    def flops(self, m):
        return Model.flops(self, m)

    def memory(self, m, clipped):
        return Model.memory(self, m, clipped)
