"""Local training for federated methods: steps, momenta, the call of the kernel, and its limits.

An agent minimises d(w) = f_i(w) + (q/2) ||w - v||^2, with q = 1/rho in Fed-PLT (Bastianello, Liu,
Johansson 2024, eqs. 11-13 with the moduli of d; on eq. 12's misprint analysis/docs/errata.md).
"""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from desim.arrays import Array, Int
from desim.errors import InputError
from desim.fields import Local
from desim.numerics.keys import seed_word
from desim.privacy.ledger.ledger import Terms, View, plain
from desim.privacy.ledger.mechanisms import DynamicZcdp, Noise
from desim.privacy.papers.fed_plt import end_of_steps
from desim.problem.kernels.local import Trainer
from desim.problem.kernels.plan import plan_for, without_noise
from desim.problem.kernels.sums import solve_rows
from desim.problem.problem import Problem
from desim.unplayed import of_unplayed

if TYPE_CHECKING:
    from desim.engine.clients import Clients
    from desim.engine.settings import Settings
    from desim.engine.us import Cohort
    from desim.network.conditions.topology import Graph
    from desim.problem.kernels.compilable import Compilable


# Steps of gradient methods: the best one for given moduli, and the range in which it is stable.


def auto_step(lo: Array, hi: Array, accelerated: Any) -> Array:
    """Steps (n,) that are best for moduli lo, hi (n,): 1/hi accelerated, else 2/(lo + hi).

    Where lo = 0 that would be 2/hi, the edge of the stable range: then 1/hi (Nesterov 2018, 2.1.5).
    """
    return np.where(accelerated | (lo <= 0.0), 1.0 / hi, 2.0 / (lo + hi))


def best_momentum(lo: Array, hi: Array) -> Array:
    """Momenta (n,) that belong to steps 1/hi, moduli lo, hi (n,) (Nesterov 2018, 2.2.22)."""
    return np.asarray((np.sqrt(hi) - np.sqrt(lo)) / (np.sqrt(hi) + np.sqrt(lo)))


def tied_momentum(lo: ArrayLike, gamma: ArrayLike) -> Array:
    """Momenta (n,) that belong to steps gamma on functions of strong convexity lo.

    A function whose smoothness is at most 1/gamma may be said to have 1/gamma. The scheme with this
    constant (Nesterov 2018, 2.2.22) steps by gamma, and has (1 - r)/(1 + r) with r = sqrt(gamma
    lo): `best_momentum` where gamma = 1/hi. From gamma lo = 1 on it is 0.
    """
    root = np.sqrt(np.minimum(np.multiply(lo, gamma), 1.0))
    return np.asarray((1.0 - root) / (1.0 + root))


def stable_step(hi: Array, beta: ArrayLike) -> Array:
    """The bound (n,) below which steps with momentum beta (n,) are stable on curvatures up to hi.

    r^2 - (1 + beta) a r + beta a with a = 1 - gamma hi has its roots inside the unit circle for
    gamma < 2 (1 + beta) / ((1 + 2 beta) hi): 2/hi without momentum.
    """
    beta = np.asarray(beta, float)
    return np.asarray(2.0 * (1.0 + beta) / ((1.0 + 2.0 * beta) * hi))


def linearised_bound(graph: "Graph", rho: float, hi: Array, eta: float) -> Array:
    """The bound (1,) on eta below which I/eta + rho (D + A) exceeds diag(smoothness hi) / 2.

    Linearised consensus ADMM with penalty rho on a graph of degrees D and adjacencies A gives g(w)
    + gamma+ + (I/eta + rho (D + A)) (w+ - w) = 0: a proximal method of multipliers with the
    gradient at the old point. Infinite where hi is, or where `eta` will do in any case.
    """
    if np.isinf(hi).any() or eta * hi.max() < 2.0:  # D + A is semidefinite
        return np.array([np.inf])
    from desim.network.conditions.mixing import DENSE, greatest

    if graph.agents <= DENSE:
        signless = 2.0 * np.diag(graph.degree) - graph.laplacian()
        least = float(np.linalg.eigvalsh(rho * signless - np.diag(0.5 * hi))[0])
    else:
        link = np.full(len(graph.source), -rho)
        least = -greatest(graph, 0.5 * hi - rho * graph.degree, link, 0.5 * float(hi.max()))
    return np.array([-1.0 / least if least < 0.0 else np.inf])


def beyond(key: str, gamma: ArrayLike, bound: Array, what: str) -> list[str]:
    """A warning that steps gamma (n,) are not below `bound` (n,), of agents where these differ.

    A bound of 0 is none: nothing is known of the smoothness.
    """
    steps = np.broadcast_to(np.asarray(gamma, float), bound.shape)
    bad = np.flatnonzero((steps >= bound) & (bound > 0.0))
    if not len(bad):
        return []
    i = int(bad[np.argmax(steps[bad] / bound[bad])])
    owner = "" if np.ptp(steps) == 0.0 == np.ptp(bound) else f" of agent {i}"
    text = f"{steps[i]:g}{owner} is not below {what} = {bound[i]:g}"
    return [f"{key}: {text}; it may diverge"]


STABLE = "the bound of stable steps, 2/(smoothness + q) without momentum,"


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
        self.seed_word, n = seed_word(settings.seed), problem.agents
        self.warnings: list[str] = []
        solvers = np.broadcast_to(local.solver, n)
        self.exact, noisy = "exact" in local.solvers, solvers == "noisy"
        self.private = bool(noisy.any()) or sigma is not None
        self.gamma, beta = self._steps(solvers == "accelerated")
        tau = local.tau if sigma is None else sigma / np.sqrt(2.0 * self.gamma)
        self.tau = np.where(noisy, tau, 0.0)
        self.noisy = bool(self.tau.any())
        if not self.exact:
            self.plan = plan_for(
                n, solvers, self.gamma, beta=beta, q=np.full(n, q), tau=self.tau,
                batch=local.batch or 1, printed=local.scaling == "printed",
            )  # fmt: skip
            self.trainer = Trainer(self.plan, problem.data)
            self.silent_trainer = Trainer(without_noise(self.plan), problem.data)
        else:
            self._factorise()
        batch = np.minimum(local.batch or 0, problem.rows)
        rows = np.where(solvers == "sgd", batch, problem.rows)
        self.epochs = np.full(n, local.epochs)
        self.work = (1 if self.exact else local.epochs) * rows.astype(float)
        self.terms = self.terms_of(local.epochs)
        if self.noisy and problem.clipped and local.epochs > 1 and "nothing" in self.terms.basis:
            self.warnings.append(f"privacy: {self.terms.basis}, as if all had been sent")

    def _steps(self, accelerated: Any) -> tuple[Array, Array]:
        """Steps and momenta (agents,) from the moduli of d, for all agents or each.

        With noise they come from moduli that hold for every data set, where these do.
        """
        lo, hi = self.problem.moduli
        step, public = self.local.step, self.problem.public_moduli
        auto = isinstance(step, str)
        if auto and self.private and np.isfinite(public[1]).all():
            lo, hi = public
        if step != "per-agent":
            lo, hi = np.full_like(lo, lo.min()), np.full_like(hi, hi.max())
        self.lo, self.hi = lo, hi = lo + self.q, hi + self.q
        if auto:
            gamma = auto_step(lo, hi, accelerated)
            return gamma, self._momenta(gamma)
        steps = np.broadcast_to(np.asarray(step, float), lo.shape)
        gamma = steps * self.unit
        beta = self._momenta(gamma)
        if not self.exact:
            bound = stable_step(hi, np.where(accelerated, beta, 0.0)) / self.unit
            self.warnings += beyond("algorithm.local.step", steps, bound, STABLE)
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
        """Terms (agents,) of n_e noisy steps of which only the end is seen; plain without noise."""
        if "noisy" not in self.local.solvers:
            return plain(self.problem.agents, View.COORDINATOR)
        return end_of_steps(self.problem, self.gamma, self.tau, self.q, n_e)

    def compiled(
        self, formulas: Any, memory: Array | tuple[Array, ...], latest: Array | None = None,
        beside: tuple[Array, ...] = (), **state: Array,
    ) -> "Compilable | None":  # fmt: skip
        """A method that trains so, for the compiled engine; None where training is not in steps."""
        from desim.problem.kernels.compilable import Compilable

        steps = not self.exact and self.problem.loss.linear
        return Compilable(formulas, self, state, memory, latest, beside) if steps else None

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
        self, us: "Clients", x: Array, v: Array, shift: Array | None = None,
        steps: int | Int | None = None,
    ) -> Array:  # fmt: skip
        """Train agents `us` from x towards v, all (n, dim); shift (n, dim): linear term of d.

        steps: local steps of this round, or (n,) of agents', where they are not `local.epochs`.
        """
        if self.exact:
            right = self.linear[us.who] + self.q * v - (0.0 if shift is None else shift)
            return np.asarray(solve_rows(us.who, self.inverse, right))
        epochs = self.epochs[: len(us.who)] if steps is None else np.full(len(us.who), steps)
        key = us.noise_key if self.noisy else self.seed_word
        job = us.who, x, v, us.address, epochs, key, shift
        trained: Array = self.trainer(*job)
        if self.noisy:
            trained = us.released(trained, partial(self.silent_trainer, *job))
        return trained

    @of_unplayed(3, gives=lambda columns: columns)
    def descend(
        self, us: "Cohort", key: Any, x: Array, shift: Array, silent: bool = False
    ) -> Array:
        """Train agents `us` of a graph from x on f_i + <shift, w>; key (n,): of the noise."""
        trainer = self.silent_trainer if silent else self.trainer
        epochs = self.epochs[: len(us.who)]
        return np.asarray(trainer(us.who, x, x, us.round, epochs, key[0], shift))


# Limits: what does not fit the problem or its noise, and what of its mean has no proof.


def oversized(key: str, batch: int | None, problem: Problem) -> list[str]:
    """What is wrong with a batch that no agent can fill; who has fewer rows takes all of them."""
    most = int(problem.rows.max())
    text = f"{key}: found {batch}; allowed: 1 to {most}, the most rows that an agent has"
    return [text] if batch is not None and batch > most else []


def misfits(local: Local, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What in the section `local` does not fit the problem and its noise, one line each."""
    n, loss, key = problem.agents, problem.loss, "algorithm.local"
    clip = " with clip" if problem.clipped else ""
    for name in ("solver", "step", "momentum"):
        entries = len(value) if isinstance(value := getattr(local, name), tuple) else n
        if entries != n:
            allowed = f"one, or one for each of the {n} agents"
            yield f"{key}.{name}: found {entries} entries; allowed: {allowed}"
    yield from oversized(f"{key}.batch", local.batch, problem)
    if "exact" in local.solvers and len(local.solvers) > 1:
        yield f"{key}.solver: exact cannot be mixed with other solvers"
    if "exact" in local.solvers and (clip or not loss.quadratic):
        text = f"exact solves quadratics only; found loss {loss.name}{clip}"
        yield f"{key}.solver: {text}; allowed: squared without clip, or another solver"
    if isinstance(noise, DynamicZcdp):
        yield "privacy.noise: {phi, growth} belongs to zcdp-nfl; give sigma or local.tau"
    elif noise is not None and not noise.constant:
        yield "privacy.noise.decay: local steps have constant noise; allowed: 1"
    if noise is not None and "noisy" not in local.solvers:
        yield f"privacy.noise: this method perturbs its local steps; set {key}.solver: noisy"
    if noise is not None and local.tau > 0.0:
        yield f"{key}.tau: found together with privacy.noise; allowed: one of them"


def unproved(name: str, gamma: Array, global_step: float, late: bool) -> Iterator[str]:
    """Warnings of a mean of what local steps gamma (agents,) changed; late: of older models."""
    if np.ptp(gamma) > 0.0:
        text = f"algorithm.local.step: agents with larger steps weigh more in {name}, whose limit"
        yield f"{text} is then not the optimum of the sum even with one local step"
    if global_step > 1.0:
        text = f"algorithm.global_step: {global_step:g} is above 1, up to which every local step"
        yield f"{text} below 2/smoothness is stable; {name} may diverge"
    if late:
        yield f"policy: {name} is not proved with replies to older models"


def unfit_for_noise(
    name: str, local: Local, noise: Noise | None, clip: float | None
) -> Iterator[str]:
    """What does not fit noise on changes that agents send, of norm `clip`, one line each."""
    if noise is not None and clip is None:
        yield "privacy.noise: nothing bounds what an agent changes; set algorithm.clip"
    if "noisy" in local.solvers:
        text = f"found noisy, but {name} adds noise to what an agent sends"
        yield f"algorithm.local.solver: {text}; allowed: privacy.noise, or fedavg"
