"""A model in NumPy: the cross-entropy of linear scores."""

import numpy as np

from desim.model import Model


class Scores(Model):
    name = "numpy-scores"
    summary = "cross-entropy of linear scores"

    def initial(self, seed):
        return np.zeros(int(np.prod(self.facts.shape)) * self.facts.classes)

    def odds(self, x, rows):
        a = rows.inputs.reshape(len(rows.inputs), -1).astype(float)
        odds = np.exp(a @ x.astype(float).reshape(a.shape[1], -1))
        return a, odds / odds.sum(1, keepdims=True)

    def loss(self, x, rows):
        odds = self.odds(x, rows)[1]
        return -np.log(odds[np.arange(len(odds)), rows.labels])

    def example_gradients(self, x, rows):
        a, odds = self.odds(x, rows)
        odds[np.arange(len(odds)), rows.labels] -= 1.0
        return (a[:, :, None] * odds[:, None, :]).reshape(len(a), -1)

    def predict(self, x, rows):
        return self.odds(x, rows)[1].argmax(1)
