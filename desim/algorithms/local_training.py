"""Local training of federated methods: steps, moduli, privacy terms and the call of the kernel.

An agent minimises d(w) = f_i(w) + (q/2) ||w - v||^2, with q = 1/rho in Fed-PLT (Bastianello, Liu,
Johansson 2024, eqs. 11-13 with the moduli of d; notes on eq. 12's misprint in the README).
"""

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from desim.algorithms.method import Array
from desim.algorithms.steps import auto_step, best_momentum, beyond, stable_step, tied_momentum
from desim.errors import InputError
from desim.fields import Local
from desim.kernels.exact import solve_rows
from desim.kernels.local import Trainer
from desim.kernels.plan import Plan, plan_for, without_noise
from desim.keys import seed_word
from desim.privacy.bounds.noisy_steps import amplification, geometric
from desim.privacy.ledger import Mechanism, Terms, View, plain
from desim.privacy.mechanisms import DynamicZcdp, Noise
from desim.problem import Problem

if TYPE_CHECKING:
    from desim.engine.clients import Clients
    from desim.engine.cohort import Cohort
    from desim.engine.star_compiled import Compiled
    from desim.engine.world import Settings

STABLE = "the bound of stable steps, 2/(smoothness + q) without momentum,"


def oversized(key: str, batch: int | None, problem: Problem) -> list[str]:
    """What is wrong with a batch that no agent can fill; who has fewer rows takes all of them."""
    most = int(problem.rows.max())
    if batch is None or batch <= most:
        return []
    return [f"{key}: found {batch}; allowed: 1 to {most}, the most rows that an agent has"]


class LocalTraining:
    """The scenario's `local` section on one problem.

    q: weight of the proximal term; sigma: standard deviation of the noise of one local step, the
    other way to give tau (sigma = sqrt(2 gamma) tau). unit: the scenario's steps are on d times
    `unit`, which is what the method's paper minimises.
    """

    def __init__(
        self, local: Local, settings: "Settings", q: float, sigma: float | None, unit: float = 1.0
    ) -> None:
        problem = settings.problem
        self.local, self.problem, self.q, self.unit = local, problem, q, unit
        self.seed_word = seed_word(settings.seed)
        n = problem.agents
        self.warnings: list[str] = []
        self.solvers = [local.solver] * n if isinstance(local.solver, str) else list(local.solver)
        noisy = np.array([s == "noisy" for s in self.solvers])
        self.gamma, beta = self._steps()
        self.tau = np.where(noisy, local.tau, 0.0)
        if sigma is not None:
            self.tau = np.where(noisy, sigma / np.sqrt(2.0 * self.gamma), 0.0)
        self.noisy = bool(self.tau.any())
        self.exact = "exact" in self.solvers
        if not self.exact:
            self.plan: Plan = plan_for(
                n, self.solvers, self.gamma, beta=beta, q=np.full(n, q), tau=self.tau,
                batch=local.batch or 1, printed=local.scaling == "printed",
            )  # fmt: skip
            self.trainer = Trainer(self.plan, problem.data)
            self.silent_trainer = Trainer(without_noise(self.plan), problem.data)
        else:
            self._factorise()
        sgd = np.array([s == "sgd" for s in self.solvers])
        rows = np.where(sgd, np.minimum(local.batch or 0, problem.rows), problem.rows)
        self.epochs = np.full(n, local.epochs)
        self.work = (1 if self.exact else local.epochs) * rows.astype(float)
        self.terms = self.terms_of(local.epochs)
        if self.noisy and problem.clipped and local.epochs > 1 and "nothing" in self.terms.basis:
            self.warnings.append(f"privacy: {self.terms.basis}, as if all had been sent")

    @staticmethod
    def problems(local: Local, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found, n = [], problem.agents
        for key in ("solver", "step", "momentum"):
            given = getattr(local, key)
            if isinstance(given, tuple) and len(given) != n:
                found.append(
                    f"algorithm.local.{key}: found {len(given)} entries; allowed: one, or one for "
                    f"each of the {n} agents"
                )
        found += oversized("algorithm.local.batch", local.batch, problem)
        if "exact" in local.solvers:
            if len(local.solvers) > 1:
                found.append("algorithm.local.solver: exact cannot be mixed with other solvers")
            if not problem.loss.quadratic or problem.clipped:
                found.append(
                    f"algorithm.local.solver: exact solves quadratics only; found loss "
                    f"{problem.loss.name}{' with clip' if problem.clipped else ''}; allowed: "
                    "squared without clip, or another solver"
                )
        if isinstance(noise, DynamicZcdp):
            found.append(
                "privacy.noise: {phi, growth} belongs to zcdp-nfl; give sigma or local.tau"
            )
        elif noise is not None and not noise.constant:
            found.append("privacy.noise.decay: local steps have constant noise; allowed: 1")
        if noise is not None and "noisy" not in local.solvers:
            found.append(
                "privacy.noise: this method perturbs its local steps; set "
                "algorithm.local.solver: noisy"
            )
        if noise is not None and local.tau > 0.0:
            found.append(
                "algorithm.local.tau: found together with privacy.noise; allowed: one of them"
            )
        return found

    def _steps(self) -> tuple[Array, Array]:
        """Steps and momenta (agents,) from the moduli of d, for all agents or each.

        Steps of noisy training come from moduli that hold for every data set, where these do.
        """
        lo, hi = self.problem.moduli
        step, public = self.local.step, self.problem.public_moduli
        if isinstance(step, str) and "noisy" in self.solvers and np.isfinite(public[1]).all():
            lo, hi = public
        if step != "per-agent":
            lo, hi = np.full_like(lo, lo.min()), np.full_like(hi, hi.max())
        lo, hi = lo + self.q, hi + self.q
        accelerated = np.array([s == "accelerated" for s in self.solvers])
        self.lo, self.hi = lo, hi
        if isinstance(step, str):
            gamma = auto_step(lo, hi, accelerated)
            return gamma, self._momenta(gamma)
        given = np.broadcast_to(np.asarray(step, float), lo.shape)
        gamma = given * self.unit
        beta = self._momenta(gamma)
        if "exact" not in self.solvers:
            bound = stable_step(hi, np.where(accelerated, beta, 0.0)) / self.unit
            self.warnings += beyond("algorithm.local.step", given, bound, STABLE)
        return gamma, beta

    def _momenta(self, gamma: Array) -> Array:
        """Momenta (agents,) of accelerated steps gamma (agents,) on d; 0 where d is not convex."""
        momentum = self.local.momentum
        if not isinstance(momentum, str):
            return np.broadcast_to(np.asarray(momentum, float), gamma.shape)
        if not self.problem.loss.convex:
            return np.zeros_like(gamma)
        if momentum == "from-step":
            return tied_momentum(self.lo, gamma)
        return best_momentum(self.lo, self.hi)

    def _factorise(self) -> None:
        """Invert each agent's H = 2 s A'A + (ridge + q) I; keep its linear part c = 2 s A'b."""
        problem, eye = self.problem, np.eye(self.problem.dim)
        inverse, linear = [], []
        for (i, j), scale, ridge in zip(problem.spans(), problem.scale, problem.ridge, strict=True):
            A, b = problem.A[i:j], problem.b[i:j]
            inverse.append(np.linalg.inv(2.0 * scale * (A.T @ A) + (ridge + self.q) * eye))
            linear.append(2.0 * scale * (A.T @ b))
        self.inverse, self.linear = np.array(inverse), np.array(linear)

    def terms_of(self, n_e: int) -> Terms:
        """Terms (agents,) of n_e noisy steps of which only the end is seen; plain without noise.

        One record moves a step by gamma L, L = 2 clip scale_i, under noise of variance 2 gamma
        tau^2: a Gaussian release of sensitivity gamma L times the root of `amplification`, for
        which a step's Lipschitz constant must hold for every data set, not for the one at hand.
        """
        problem, gamma = self.problem, self.gamma
        if "noisy" not in self.solvers:
            return plain(problem.agents, View.COORDINATOR)
        reach = 2.0 * problem.clip * problem.scale
        chi, here = self._lipschitz(problem.public_moduli), self._lipschitz(problem.moduli)
        with np.errstate(invalid="ignore"):
            seen = gamma * reach * np.sqrt(amplification(chi, n_e))
            coupled = gamma * reach * geometric(here, n_e)
        return Terms(
            Mechanism.NOISY_GRADIENT,
            View.COORDINATOR,
            np.where(self.tau > 0.0, seen, np.inf),
            np.sqrt(2.0 * gamma) * self.tau,
            np.full(problem.agents, np.nan),
            coupled=np.where(self.tau > 0.0, coupled, np.inf),
            basis=self._basis(float(chi.max()), n_e),
        )

    def _lipschitz(self, moduli: tuple[Array, Array]) -> Array:
        """Lipschitz constants (agents,) of one step on f_i with these moduli (lo, hi) (agents,).

        A layered model's clipped gradient is that of no convex function: its part is only bounded.
        """
        lo, hi = (one + self.q for one in moduli)
        if self.problem.loss.linear:
            ends = 1.0 - self.gamma * np.array([lo, hi])
            return np.asarray(np.abs(ends).max(axis=0))
        certain = self.problem.ridge + self.q
        return np.abs(1.0 - self.gamma * certain) + self.gamma * (hi - certain)

    def _basis(self, chi: float, n_e: int) -> str:
        """What the sensitivity rests on, in words."""
        norm, loss = self.problem.row_norm, self.problem.loss
        if chi < 1.0:
            return f"rows of norm at most {norm:.6g}: a local step contracts by {chi:.4g}"
        if np.isinf(norm) and loss.smooth and loss.convex:
            why = "nothing bounds the norm of rows (problem.row_norm)"
        else:
            why = "a local step need not contract"
        return f"{why}: each of {n_e} local steps is charged"

    @staticmethod
    def no_exact(local: Local, reason: str) -> list[str]:
        """The problem of a method whose local training is made of steps."""
        if "exact" not in local.solvers:
            return []
        others = "gradient, accelerated, sgd, noisy"
        return [f"algorithm.local.solver: found exact, but {reason}; allowed: {others}"]

    def unproved(self, *solvers: str) -> list[str]:
        """Warnings about local solvers for which the method has no guarantee."""
        return [
            f"algorithm.local.solver: convergence is not proved with {solver} local steps"
            for solver in solvers
            if solver in self.solvers
        ]

    def compiled(
        self, rule: Any, state: dict[str, Array], centre: tuple[Array, ...], model: Array
    ) -> "Compiled | None":
        """A method that trains so, for the compiled engine; None where training is not in steps."""
        from desim.engine.star_compiled import Compiled

        if self.exact or not self.problem.loss.linear:
            return None
        plan, data, madds = self.trainer.parts
        return Compiled(
            rule, state, centre, model, plan, data, madds * self.local.epochs, self.epochs,
            self.work, self.terms, self.noisy, self.seed_word,
        )  # fmt: skip

    def work_of(self, steps: int) -> Array:
        """Per-example gradient evaluations (agents,) of so many local steps."""
        return self.work / self.local.epochs * steps

    @property
    def common_step(self) -> float:
        """The step of all agents; InputError where they have different ones."""
        if np.ptp(self.gamma) > 0.0:
            raise InputError(
                "algorithm.local.step: found a different step for each agent, but the corrections "
                "of this method weigh all agents by one; allowed: a number, or auto with solvers "
                "that have the same step"
            )
        return float(self.gamma[0])

    def train(
        self,
        us: "Clients",
        x: Array,
        v: Array,
        shift: Array | None = None,
        steps: int | None = None,
    ) -> Array:
        """Train agents `us` from x towards v, all (n, dim); shift (n, dim): linear term of d.

        steps: local steps of this round, where they are not `local.epochs`.
        """
        if self.exact:
            right = self.linear[us.who] + self.q * v - (0.0 if shift is None else shift)
            return np.asarray(solve_rows(us.who, self.inverse, right))
        seed = us.noise_key if self.noisy else self.seed_word
        epochs = self.epochs[: len(us.who)] if steps is None else np.full(len(us.who), steps)
        trained: Array = self.trainer(us.who, x, v, us.address, epochs, seed, shift)
        if not self.noisy:
            return trained
        quiet = partial(self.silent_trainer, us.who, x, v, us.address, epochs, seed, shift)
        released: Array = us.released(trained, quiet)
        return released

    def descend(
        self, us: "Cohort", key: Any, x: Array, shift: Array, silent: bool = False
    ) -> Array:
        """Train agents `us` of a graph from x on f_i + <shift, w>; key (n,): of the noise."""
        trainer = self.silent_trainer if silent else self.trainer
        epochs = self.epochs[: len(us.who)]
        return np.asarray(trainer(us.who, x, x, us.round, epochs, key[0], shift))
