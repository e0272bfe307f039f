"""IPP-ADMM: PP-ADMM whose agents send a solution only where it lowers their loss enough.

Ding 2021, dissertation, Algorithm 3. An agent asks a sparse vector whether its clipped loss falls
by alpha from its last model to its new solution; "no" is a message of one bit. Corrected: what
one record moves the question by, 2 C_loss / |D_i| and what it moves the solution by; after c
releases no data are read. Threshold noise is drawn for every answer, so that every answer is
charged. variant: `fresh` draws b_1 anew for the solution that is sent, `charge-all` sends what was
asked about and charges every b_1, and `printed` has noise for 2 C_loss besides.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from desim.arrays import Int
from desim.method import (
    Array,
    Count,
    Ingredients,
    Inputs,
    Noise,
    NonNegative,
    Positive,
    Problem,
    Program,
    Terms,
    Us,
    minimise,
)
from desim.methods.pp_admm import PPADMM, PerturbedObjective
from desim.methods.pp_admm import Parameters as Plausible
from desim.methods.shared.checked_kernels import capped_losses
from desim.privacy.ledger.ledger import Mechanism, View, plain
from desim.privacy.papers.pp_admm import rounds_inputs

# The sparse vector: what a question may move by, and the noise of its answers.


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


UNANSWERABLE = (
    "privacy.noise: noise on an answer is in proportion to what one row moves it by; set "
    "problem.clip (the largest gradient norm of one example)"
)


# The method.


class Parameters(Plausible):
    """PP-ADMM's; c, alpha, C_loss, answers: of the sparse vector; variant."""

    c: Count
    """largest number of solutions that an agent sends"""
    alpha: NonNegative = 1e-3
    """by how much a solution's loss has to be less"""
    C_loss: Positive = 2.0
    """what the loss of a row, and the regulariser's, is cut to in the question"""
    answers: Positive = 1.0
    """epsilon_1 + epsilon_2 of the sparse vector as the paper counts them, for c answers `yes`"""
    variant: Literal["fresh", "charge-all", "printed"] = "fresh"
    """fresh: b_1 anew for what is sent; charge-all: the same; printed: noise for 2 C_loss too"""


class IPPADMM(PPADMM):
    """The agents' models us.x are the x-hat that they sent last; us.w is the dissertation's x."""

    name = "ipp-admm"
    summary = "PP-ADMM that asks a sparse vector which solutions to send"
    paper = "Ding 2021, Algorithm 3"
    Parameters = Parameters
    policies = ("all",)
    asks = True

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        self.fresh = self.parameters.variant == "fresh"
        self.svt = SparseVector(self.problem, self.cost, self.parameters)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        unbounded = noise is not None and not problem.clipped
        return super().problems(parameters, problem, noise) + [UNANSWERABLE] * unbounded

    def agents(self, us: Us) -> Program:
        """Algorithm 3 for agents `us` with d_i neighbours."""
        p, eta, d = self.parameters, self.rho, us.degree[:, None]
        us.x = us.w = self.x0[us.who]
        us.count, curved = np.zeros(len(us.who)), 2.0 * eta * d
        edges, work = self.edges(us), self.work[us.who]
        for k in us.rounds():
            queries = np.asarray(us.count) < p.c
            v = eta * (d * us.w + edges.neighbours()) - us.dual
            allowed = us.public(queries)  # by the answers so far
            b = self.noise_where(us, k, allowed, charged=not self.fresh)  # line 6
            rows_read = np.where(queries, work + self.problem.rows[us.who], 0.0)
            answer = yield us.compute(self.question, us.w, v - b, curved, queries, work=rows_read)
            fall, x = answer[:, 0], self.checked(us, answer[:, 1:])  # line 8
            above = us.above(fall - p.alpha, *self.svt.terms(us.who), where=allowed)  # line 9
            if self.fresh:
                b = self.noise_where(us, k, above, charged=True)
                rows_read = np.where(above, work, 0.0)
                solution = yield us.compute(self.solve, us.w, v - b, curved, above, work=rows_read)
                x = self.checked(us, solution)
            us.count = us.count + above  # line 10
            us.x = np.where(above[:, None], x, us.x)
            us.report(us.x)
            sent = us.release(x, self.cost.solution(us.who, k), where=above)  # lines 11, 12
            us.w = np.where(above[:, None], sent, us.w)  # lines 13, 15
            yield from edges.exchange(us.w, above)
            us.dual = edges.agreed(us.dual + eta * (d * us.w - edges.neighbours()))  # 17-22

    def most(self, rounds: int) -> Sequence[tuple[Terms, int]] | None:
        """An answer in every round, and c solutions: those whose noise is least.

        b_1 is in each of these, or, where answers are charged for it, in every round.
        """
        if self.noise is None:
            return None
        everybody, c = np.arange(self.problem.agents), min(self.parameters.c, rounds)
        answer, threshold = self.svt.terms(everybody)
        wide = replace(answer, scale=np.maximum(answer.scale, threshold))
        slopes = [self.cost.objective(everybody, k) for k in range(1, rounds + 1)]
        sent = [self.cost.solution(everybody, k) for k in range(1, rounds + 1)]
        dear = np.argsort([-np.max(one.sensitivity / one.scale) for one in slopes])[:c]
        charged = [slopes[k] for k in dear] if self.fresh else slopes
        return [(wide, rounds), *((one, 1) for one in [*charged, *(sent[k] for k in dear)])]

    def noise_where(self, us: Us, k: int, where: Any, charged: bool) -> Array | float:
        """b_1 (n, dim) of those `where`; of what only an answer tells nothing else is charged."""
        if self.noise is None:
            return 0.0
        terms = self.cost.objective(us.who, k)
        if not charged:
            terms = replace(terms, sensitivity=np.zeros(len(us.who)))
        return us.perturbation(self.problem.dim, terms, where)

    def question(self, us: Us, w: Array, v: Array, c: Array, queries: Any) -> Array:
        """By how much the clipped f_i falls from w to its solution, and `solve`: (n, dim + 3)."""
        solution = self.solve(us, w, v, c, queries)
        fall = self.svt.fall(us.who, w, solution[:, : w.shape[1]], queries)
        return np.column_stack([fall, solution])

    def solve(self, us: Us, w: Array, v: Array, c: Array, where: Any) -> Array:
        """Solutions up to beta, and what is left (n, dim + 2); w where no data are read."""
        goal = np.where(where, self.goal, np.inf)
        return np.hstack(minimise(us.who, w, c[:, 0], v, goal, self.problem.data, self.demanded))

    def claim_inputs(self) -> Inputs | None:
        """Theorem 10."""
        if self.noise is None:
            return None
        return rounds_inputs("ipp-admm/theorem-10", self, 1.0, answers=self.svt.epsilons)
