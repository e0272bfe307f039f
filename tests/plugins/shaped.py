"""Models in NumPy for rows of any shape, and a data set."""

import numpy as np

from desim.model import Dataset, Examples, Model


def softmax(scores):
    """Probabilities along the last axis."""
    shifted = np.exp(scores - scores.max(-1, keepdims=True))
    return shifted / shifted.sum(-1, keepdims=True)


class Scores(Model):
    """One score a class, linear in all numbers of a row."""

    name = "linear-scores"
    summary = "softmax regression on rows of any shape"

    def initial(self, seed):
        return np.zeros(int(np.prod(self.facts.shape)) * self.facts.classes)

    def _parts(self, x, rows):
        A = rows.inputs.reshape(len(rows.inputs), -1).astype(float)
        W = x.astype(float).reshape(A.shape[1], -1)
        return A, softmax(A @ W)

    def loss(self, x, rows):
        A, p = self._parts(x, rows)
        return -np.log(p[np.arange(len(A)), rows.labels])

    def example_gradients(self, x, rows):
        A, p = self._parts(x, rows)
        p[np.arange(len(A)), rows.labels] -= 1.0
        return (A[:, :, None] * p[:, None, :]).reshape(len(A), -1)

    def predict(self, x, rows):
        return self._parts(x, rows)[1].argmax(1)


class Bigrams(Model):
    """A table of scores of the next token."""

    name = "bigrams"
    summary = "the next token by the last one"
    labels = "arrays"

    def initial(self, seed):
        return np.zeros(self.facts.classes**2)

    def _parts(self, x, rows):
        return softmax(x.astype(float).reshape(self.facts.classes, -1)[rows.inputs])

    def loss(self, x, rows):
        p = np.take_along_axis(self._parts(x, rows), rows.labels[..., None], -1)
        return -np.log(p[..., 0]).mean(1)

    def example_gradients(self, x, rows):
        p = self._parts(x, rows) / rows.inputs.shape[1]
        out = np.zeros((len(p), self.facts.classes, self.facts.classes))
        for h, (tokens, following) in enumerate(zip(rows.inputs, rows.labels, strict=True)):
            np.add.at(out[h], tokens, p[h])
            np.add.at(out[h], (tokens, following), -1.0 / len(tokens))
        return out.reshape(len(p), -1)

    def predict(self, x, rows):
        return self._parts(x, rows).argmax(-1)


class Spoken(Dataset):
    """Rows of speakers."""

    name = "spoken"
    summary = "generated rows of two speakers"

    def read(self, rows, wrong=""):
        A = np.arange(rows * 6.0).reshape(rows, 2, 3) / (6 * rows)
        labels, who = np.arange(rows) % 3, np.repeat(["b", "a"], [rows - rows // 2, rows // 2])
        if wrong == "labels":
            labels = labels[1:]
        if wrong == "nan":
            A[1, 0, 2] = np.nan
        if wrong == "column":
            who = who[1:]
        if wrong == "rows":
            return A
        return Examples(A, labels, {"speaker": who}, np.arange(rows) % 5 == 4)
