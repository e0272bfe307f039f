"""Losses of models with a score for each class: the cross-entropy of softmax(scores).

softmax: scores W'a, parameters W (features, classes) row-major. mlp: scores W2's(W1'a + b1) + b2
with one hidden layer, parameters W1 (features, hidden) row-major, b1, W2 (hidden, classes), b2.
Labels are class numbers 0 .. classes - 1.
"""

from dataclasses import dataclass, replace

import numpy as np

from desim.arrays import Array
from desim.problem.losses.scalar import Loss

ACTIVATIONS = ("sigmoid", "relu")
CLASS_LIMIT = 100  # more different labels than this are no classes but a scale


@dataclass(frozen=True)
class LayeredLoss(Loss):
    """One model: `hidden` units (0: softmax); classes 0 means that the labels will tell."""

    classes: int = 0
    hidden: int = 0
    activation: str = "sigmoid"

    def __post_init__(self) -> None:
        if (self.name == "mlp") != (self.hidden > 0) or self.name not in ("softmax", "mlp"):
            raise ValueError(f"loss: {self.name!r} with {self.hidden} hidden units; allowed: mlp")
        if self.activation not in ACTIVATIONS:
            allowed = ", ".join(ACTIVATIONS)
            raise ValueError(f"loss.mlp.activation: {self.activation!r}; allowed: {allowed}")

    @property
    def linear(self) -> bool:
        """Whether the loss of an example depends on the model through one number a.x alone."""
        return False

    @property
    def convex(self) -> bool:
        """Whether the loss is convex in the parameters."""
        return self.hidden == 0

    @property
    def smooth(self) -> bool:
        """Whether gradients are what methods need; relu's have kinks, but of measure zero."""
        return True

    @property
    def classifies(self) -> bool:
        """Whether labels are classes, so that accuracy has a meaning."""
        return True

    @property
    def curvature(self) -> float:
        """Largest eigenvalue of the Hessian in the scores (Böhning 1992); inf through layers."""
        return 0.5 if self.convex else np.inf

    def dimension(self, features: int) -> int:
        """How many parameters a model on so many features has."""
        if self.hidden == 0:
            return features * self.classes
        return (features + 1) * self.hidden + (self.hidden + 1) * self.classes

    def with_classes(self, *labels: Array | None) -> "LayeredLoss":
        """The loss with as many classes as these labels (rows,) have, unless it knows."""
        if self.classes:
            return self
        highest = max(float(np.max(one, initial=0.0)) for one in labels if one is not None)
        return replace(self, classes=max(2, int(min(highest, CLASS_LIMIT)) + 1))

    def problems(self, b: Array) -> list[str]:
        """What is wrong with labels b (rows,), one line each."""
        if self.classes > CLASS_LIMIT:
            return [f"problem.loss: {self.classes} classes; allowed: at most {CLASS_LIMIT}"]
        odd = b[(b < 0) | (b >= self.classes) | (b != np.floor(b))]
        if not len(odd):
            return []
        allowed = f"class numbers 0 to {self.classes - 1}"
        return [f"problem.loss: {self.name} needs {allowed}; found label {odd[0]:g}"]

    def scores(self, A: Array, x: Array) -> Array:
        """Scores (rows, classes) of rows A (rows, features) at parameters x (dim,)."""
        if self.hidden == 0:
            return np.asarray(A @ x.reshape(A.shape[1], self.classes))
        ends = np.cumsum([A.shape[1] * self.hidden, self.hidden, self.hidden * self.classes])
        W1, b1, W2, b2 = np.split(x, ends)
        z = A @ W1.reshape(A.shape[1], self.hidden) + b1
        if self.activation == "relu":
            inner = np.maximum(z, 0.0)
        else:
            inner = 1.0 / (1.0 + np.exp(-np.clip(z, -700.0, 700.0)))
        return np.asarray(inner @ W2.reshape(self.hidden, self.classes) + b2)

    def row_losses(self, A: Array, b: Array, x: Array) -> Array:
        """Losses (rows,) of rows A (rows, features) with classes b at parameters x (dim,)."""
        scores = self.scores(A, x)
        highest = scores.max(axis=1)
        spread = np.log(np.exp(scores - highest[:, None]).sum(axis=1)) + highest
        return np.asarray(spread - scores[np.arange(len(b)), b.astype(np.int64)])

    def predictions(self, A: Array, x: Array) -> Array:
        """The class (rows,) with the highest score, the first of equals."""
        return np.asarray(np.argmax(self.scores(A, x), axis=1), float)
