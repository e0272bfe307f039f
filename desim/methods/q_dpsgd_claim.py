"""What the dissertation's claims about Q-DPSGD follow from: Theorems 11 and 15."""

from typing import Any

from desim.method import Inputs, Problem, inputs


def claimed(problem: Problem, theorem: str, **numbers: Any) -> Inputs:
    """Inputs of a theorem: K = m clip for a sum over an agent's m records, and what is its own."""
    unmet = [] if problem.clipped else ["gradients are not clipped, so K is infinite"]
    K = problem.clip * problem.scale * problem.rows
    return inputs(theorem, problem.agents, unmet, K=K, rows=problem.rows, **numbers)


def theorem_15(problem: Problem, p: Any) -> Inputs:
    """Inputs of Theorem 15 for the parameters p of Q-DPSGD-2."""
    return claimed(
        problem, "q-dpsgd-2/theorem-15", dim=problem.dim, mixing=p.mixing,
        resolution=p.resolution, alpha=p.alpha.initial, power=p.alpha.decay.exponent,
    )  # fmt: skip
