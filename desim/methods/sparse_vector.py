"""The sparse vector of IPP-ADMM: what a question may move by, and the noise of its answers."""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.methods.pp_admm import PerturbedObjective
from desim.methods.shared.numerics import capped_losses
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.problem.problem import Problem


class SparseVector:
    """Questions: by how much does the loss, cut to C_loss in each row, fall to a new solution?

    With G_i a bound on that loss's slope and m_i the objective's modulus, one row moves the fall by
    2 C_loss scale_i + (G_i / m_i) (2 beta + 2 clip scale_i) if only the noise inside is fixed, and
    2 C_loss scale_i + (G_i / m_i) 2 beta if `charged` noise has paid for the minimiser.
    """

    def __init__(self, problem: Problem, objective: PerturbedObjective, p: Any) -> None:
        first = p.answers / (1.0 + (2.0 * p.c) ** (2.0 / 3.0))
        self.epsilons = first, p.answers - first  # in the proportion 1 : (2c)^(2/3)
        self.data, self.cap = problem.data, p.C_loss
        self.noise, self.c, self.charged = objective.noise, p.c, p.variant != "fresh"
        self.printed = 2.0 * p.C_loss if p.variant == "printed" else None  # Lemma 12
        of_ridge = np.sqrt(2.0 * problem.ridge * p.C_loss)
        slope = problem.clip * problem.scale * problem.rows + of_ridge
        least, G_m = 2.0 * p.C_loss * problem.scale, slope / objective.modulus
        given_minimiser = least + G_m * 2.0 * objective.beta
        self.inside = least + G_m * (2.0 * objective.beta + objective.sensitivity)
        self.sensitivity = given_minimiser if self.charged else self.inside

    def fall(self, who: Int, old: Array, new: Array, where: Any) -> Array:
        """By how much (n,) the losses of agents who (n,) fall, of those `where` (n,); else 0."""
        before, after = (capped_losses(who, x, self.cap, where, self.data) for x in (old, new))
        return np.asarray(before - after)

    def terms(self, who: Int) -> tuple[Terms, Any]:
        """Terms (n,) of an answer with its query's noise, and the scale of its threshold's."""
        if self.noise is None:
            return plain(len(who), View.NEIGHBOURS), 0.0
        D, (first, second) = self.sensitivity[who], self.epsilons
        size = D if self.printed is None else np.full(len(who), self.printed)
        query, nothing = 2.0 * self.c * size / second, np.full(len(who), np.nan)
        inside = self.inside[who] if self.charged else None
        kind = Mechanism.SPARSE_VECTOR
        terms = Terms(kind, View.NEIGHBOURS, D, query, nothing, coupled=inside)
        return terms, self.c * size / first
