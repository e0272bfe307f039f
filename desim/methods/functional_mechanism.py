"""Functional mechanism: noisy coefficients of the objective go to the coordinator, once.

Zhang, Zhang, Xiao, Yang, Winslett 2012 (doi 10.14778/2350229.2350253), Algorithm 1 with Laplace
noise; its relaxed form with Gaussian noise is Algorithm 7 of Ding 2021, dissertation. Every agent
adds noise to its own coefficients; the coordinator adds them up and minimises (98) with J = 2. The
sensitivity is that of features in the unit ball or box, not of the printed ordered pairs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PlainValidator, WithJsonSchema

from desim.fields.numbers import number
from desim.method import (
    LOGISTIC,
    Allotted,
    Array,
    Clients,
    Hub,
    Ingredients,
    Inputs,
    Method,
    Noise,
    NonNegative,
    Problem,
    Program,
    Strict,
    Terms,
    Text,
    View,
    refusal,
    spelling,
)
from desim.privacy.papers.functional import Reach, Rule, allotted_inputs, cost_of

# Parameters of the functional mechanism and of fair methods, and what may be wrong with them.


ALLOWED = "data, or a public share of the protected group, above 0 and below 1"


def _inside(value: object, allowed: str) -> float:
    return number(value, allowed, lambda x: 0.0 < x < 1.0)


def _zbar(value: object) -> str | float:
    return "data" if value == "data" else _inside(value, ALLOWED)


OPEN = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
Zbar = Annotated[
    str | float, PlainValidator(_zbar), WithJsonSchema({"anyOf": [{"enum": ["data"]}, OPEN]})
]
Part = Annotated[
    float,
    PlainValidator(lambda value: _inside(value, "above 0 and below 1: both parts need something")),
    WithJsonSchema(OPEN),
]


class Parameters(Strict):
    """domain: of the features; sensitivity: what noise is scaled to."""

    domain: Literal["ball", "box"] = "ball"
    """rows are brought into the unit ball, divided by their norm, or their features into [-1, 1]"""
    sensitivity: Literal["own", "printed"] = "own"
    """own: of the domain, and exact Gaussian noise; printed: the papers', and their deviation"""


class FairParameters(Parameters):
    """alpha, zbar, penalty: the fairness term; share: the budget of c."""

    examples: ClassVar[Mapping[str, Any]] = {"zbar": 0.5, "share": 0.3}

    alpha: NonNegative = 1.0
    """weight of the penalty; 0 for none"""
    zbar: Zbar = "data"
    """mean of z: data, of each agent's own rows, which the sensitivity pays for; or a public one"""
    penalty: Literal["exact", "printed"] = "exact"
    """exact: alpha |c.w|; printed: alpha sum_h |z_h - zbar| x_h.w"""
    share: Part = 0.5
    """part of epsilon (Gaussian: of mu^2) for c, exact only; the rest is for the objective"""


class GroupedParameters(FairParameters):
    """x_s: the special attribute."""

    x_s: Text | None = None
    """attribute whose coefficients have epsilon_s: a feature, or a column that became several"""


class StarParameters(FairParameters):
    """As for the other fair methods, and the penalties of PFLR*."""

    penalty: Literal["exact", "printed", "shifted", "shifted-rows"] = "exact"  # type: ignore[assignment]
    """PFLR: exact alpha |c.w| or printed alpha sum_h |z_h - zbar| x_h.w; PFLR*: noise of mean
    alpha |c_j| (shifted), or of mean alpha sum_h |z_h - zbar| x_hj (shifted-rows)"""


def special(parameters: Any, problem: Problem) -> Any:
    """Which features (d,) are special: x_s itself, or those that encode its values."""
    x_s = getattr(parameters, "x_s", None)
    if x_s is None:
        return np.zeros(problem.dim, bool)
    return np.array([_of(name, x_s) for name in problem.names], bool)


def misfits(method: Any, parameters: Any, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What is wrong with the loss, its gradients or the noise, of any of these methods."""
    name = method.name
    if problem.loss.name != "logistic":
        yield (
            f"problem.loss: found {problem.loss.name}, but {name} expands the logistic "
            "loss of labels in two classes; allowed: logistic"
        )
    if problem.clipped:
        yield (
            f"problem.clip: found {problem.clip:g}, but {name} uses no gradients and "
            "bounds features instead (algorithm.domain); allowed: leave it out"
        )
    if isinstance(noise, Allotted) and noise.mechanism.name.lower() not in method.noises:
        kinds = ", ".join(kind for kind in method.noises if kind != "allotted")
        found = noise.mechanism.name.lower()
        yield f"privacy.noise.kind: found {found}; allowed with {name}: {kinds}"
    if isinstance(noise, Allotted) and noise.epsilon_s is not None and not method.grouped:
        yield f"privacy.noise.epsilon_s: {name} has no special attribute; allowed: epsilon"


def unfair(method: Any, parameters: Any, problem: Problem, noise: Noise | None) -> Iterator[str]:
    """What is wrong with the protected group, and with the special attribute where there is one."""
    if problem.protected is None:
        yield (
            f"problem.data.protected: missing; {method.name} needs the protected group; allowed: "
            "{column: ..., value: ...} or {column: ..., above: ...}"
        )
    x_s = getattr(parameters, "x_s", None)
    if x_s is not None and not special(parameters, problem).any():
        near = spelling(x_s, problem.names)
        yield f"algorithm.x_s: {refusal(x_s, ', '.join(problem.names))}{near}"
    elif method.grouped and isinstance(noise, Allotted):
        yield from _split(special(parameters, problem), noise)


def _of(name: str, attribute: str) -> bool:
    return name == attribute or name.startswith(f"{attribute}=")


def _split(special: Any, noise: Allotted) -> list[str]:
    """What is wrong with how epsilon and delta are split between the two groups."""
    if noise.epsilon_s is None:
        return []
    if not special.any():
        return ["algorithm.x_s: missing; privacy.noise.epsilon_s is for its coefficients"]
    share = float(special.mean())
    _, (epsilon, delta) = noise.groups(share)
    found = []
    if epsilon <= 0.0:
        most = (noise.epsilon or 0.0) / share
        found.append(
            f"privacy.noise.epsilon_s: found {noise.epsilon_s:g}, which leaves nothing of epsilon "
            f"{noise.epsilon:g} for the other features; allowed: below {most:g}"
        )
    if noise.delta_s is not None and delta <= 0.0:
        found.append(
            f"privacy.noise.delta_s: found {noise.delta_s:g}, which leaves nothing of delta "
            f"{noise.delta:g} for the other features; allowed: below {noise.delta:g}"
        )
    return found


# Coefficients of a quadratic objective and of a covariance as one vector, and the minimiser.


RANK = 1e-12  # eigenvalues below so much of the largest are rounding


@dataclass(frozen=True)
class Layout:
    """Where coefficients stand in a vector (size,): a, then M by unordered pairs, then c.

    d: features; covariance: whether c is sent; special (d,): which features are special.
    """

    d: int
    covariance: bool
    special: NDArray[np.bool_]

    @property
    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Rows and columns of the unordered pairs."""
        rows, columns = np.triu_indices(self.d)
        return rows, columns

    @property
    def size(self) -> int:
        """How many numbers an agent sends."""
        return self.d + self.d * (self.d + 1) // 2 + self.d * self.covariance

    def spread(self, objective: tuple[float, float], covariance: tuple[float, float]) -> Array:
        """(size,) with one number for coefficients with a special feature, one for all others."""
        rows, columns = self.pairs
        either = self.special[rows] | self.special[columns]
        first = np.where(np.concatenate([self.special, either]), *objective)
        last = np.where(self.special, *covariance)[: self.d * self.covariance]
        return np.concatenate([first, last])

    def joined(self, a: Array, M: Array, c: Array) -> Array:
        """The vector (size,); an unordered pair has both entries of M (d, d)."""
        rows, columns = self.pairs
        both = np.where(rows == columns, 1.0, 2.0) * M[rows, columns]
        return np.concatenate([a, both, c[: self.d * self.covariance]])

    def parts(self, vector: Array) -> tuple[Array, Array, Array | None]:
        """The parts a (d,), M (d, d) and c (d,), None where it is not sent."""
        rows, columns = self.pairs
        d, n = self.d, self.d + len(rows)
        M = np.zeros((d, d))
        M[rows, columns] = vector[d:n]
        return vector[:d], 0.5 * (M + M.T), vector[n:] if self.covariance else None


def projected(A: Array, domain: str) -> Array:
    """Rows A (rows, d) in the ball ||x||_2 <= 1 (divided by their norm) or the box |x_j| <= 1."""
    if domain == "box":
        return np.clip(A, -1.0, 1.0)
    norms = np.sqrt(np.einsum("hj,hj->h", A, A))
    return np.asarray(A / np.maximum(norms, 1.0)[:, None])


def minimiser(
    a: Array, M: Array, ridge: float = 0.0, c: Array | None = None, alpha: float = 0.0
) -> Array:
    """Argmin (d,) of a.w + w'Mw + (ridge/2) ||w||^2 + alpha |c.w|, trimmed.

    Noise makes M indefinite: only eigenvectors of M + (ridge/2) I with positive eigenvalues stay
    ("spectral trimming", Zhang et al. 2012, Section 6.2). |c.w| = max s c.w over |s| <= 1 gives s.
    """
    values, vectors = np.linalg.eigh(M + 0.5 * ridge * np.eye(len(a)))
    keep = values > RANK * np.abs(values).max()
    curvature, V = values[keep], vectors[:, keep]
    linear = a @ V
    if c is not None and alpha > 0.0:
        along = c @ V
        steep = alpha * float(np.sum(along**2 / curvature))
        if steep > 0.0:
            slope = -float(np.sum(along * linear / curvature))  # 2 c.w of the minimum without
            linear = linear + np.clip(slope / steep, -1.0, 1.0) * alpha * along
    return np.asarray(V @ (-0.5 * linear / curvature))


Penalty = Literal["none", "printed", "exact", "shifted"]


class FunctionalMechanism(Method):
    """The coordinator's model is the minimiser; the agents hear of it at the end."""

    name = "functional-mechanism"
    kind = "coordinator"
    summary = "one round: noisy coefficients of the logistic loss to order 2; Laplace or Gaussian"
    paper = "Zhang, Zhang, Xiao, Yang, Winslett 2012"
    wants: ClassVar[tuple[str, ...]] = (LOGISTIC,)
    Parameters: ClassVar[type[Strict]] = Parameters
    once = True
    uncoded = "its one message is of coefficients, from which noise and rounding cannot be told"
    policies = ("all", "deadline", "quorum")
    noises: ClassVar[tuple[str, ...]] = ("laplace", "gaussian", "allotted")
    grouped: ClassVar[bool] = False  # whether a special attribute has an epsilon of its own

    penalty: Penalty = "none"
    alpha: float = 0.0
    zbar: float | None = None
    share: float = 0.0
    reach = Reach(0.5, 0.5, 0.5, 0.0)  # what one record does to linear coefficients

    def __init__(self, ingredients: Ingredients) -> None:
        super().__init__(ingredients)
        p, problem, d = self.parameters, self.problem, self.problem.dim
        self.layout = Layout(d, self.penalty == "exact", special(p, problem))
        k, printed = int(self.layout.special.sum()), p.sensitivity == "printed"
        self.cost = cost_of(self.noise, Rule(p.domain, d, k, self.reach, self.share, printed))
        self.weights = self.layout.spread(self.cost.objective, self.cost.covariance)
        self.work = problem.rows.astype(float)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return [*misfits(cls, parameters, problem, noise)]

    def coordinator(self, hub: Hub) -> Program:
        """Ask, add up, minimise, tell; lines are those of Ding's Algorithm 7."""
        w = np.zeros(self.problem.dim)
        hub.start(x=np.zeros((hub.agents, len(w))))
        hub.publish(w)
        bits, terms = 64 * self.layout.size, self.planned(1)
        hub.call(
            hub.invite(), self.noisy, np.empty(0), work=self.work, charge=terms,
            bits=1, reply_bits=bits,
        )  # fmt: skip
        replies = yield hub.collect()
        if not len(replies.who):  # nobody answered in time: the model stays as it was
            hub.publish(w)
            return
        a, M, c = self.layout.parts(np.add.reduce(replies.payload))  # line 9
        w = minimiser(a, M, self.problem.regularizer.l2, c, self.alpha)  # line 10
        hub.inform(replies.who, self.hear, w)
        hub.publish(w)

    def noisy(self, us: Clients, request: Array) -> Array:
        """Coefficients (n, size) of agents `us` with their noise (Algorithm 7, line 6)."""
        how = self.parameters.domain, self.penalty, self.alpha, self.zbar
        exact = [self.layout.joined(*coefficients(self.problem, i, *how)) for i in us.who]
        return np.asarray(us.noised(np.array(exact) * self.weights) / self.weights)

    def hear(self, us: Clients, w: Array) -> Array:
        """The agents `us` take the model w (n, d) over."""
        us.x = w
        return w

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of the one round; nothing after it."""
        cost, scale = self.cost, self.problem.scale
        terms = Terms(
            cost.mechanism, View.COORDINATOR, cost.sensitivity * scale, cost.scale * scale,
            np.full(len(scale), np.nan), coupled=cost.coupled * scale,
        )  # fmt: skip
        return terms if k == 1 else replace(terms, sensitivity=0.0 * scale)

    def claim_inputs(self) -> Inputs | None:
        """Epsilon as it was allotted."""
        return allotted_inputs(self, self.theorems)

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says with Laplace noise, and with Gaussian noise."""
        return "functional-mechanism/theorem-1", "adfc/theorem-19"


def coefficients(
    problem: Problem, agent: int, domain: str, penalty: Penalty, alpha: float, zbar: float | None
) -> tuple[Array, Array, Array]:
    """The a (d,), M (d, d), c (d,) of one agent, times its `scale`; zbar None: the mean of its z.

    As in the proof of Lemma 23: log(1 + e^u) - y u about u = 0 is (1/2 - y) u + u^2/8 to order 2
    and a constant, u = x.w and y in {0, 1}. The penalty alpha |c.w| of (101) needs c = sum_h (z_h -
    zbar) x_h; `printed` and `shifted` change a. Loops have one order, whatever the threads.
    """
    i, j = problem.start[agent], problem.start[agent + 1]
    X, y = projected(problem.A[i:j], domain), 0.5 * (problem.b[i:j] + 1.0)
    a = np.einsum("h,hj->j", 0.5 - y, X)
    M = np.einsum("hj,hl->jl", X, X) / 8.0
    c = np.zeros(len(a))
    if problem.protected is not None and penalty != "none":
        z = problem.protected[i:j]
        z_centred = z - (z.mean() if zbar is None else zbar)
        c = np.einsum("h,hj->j", z_centred, X)
        if penalty == "printed":
            a = a + alpha * np.einsum("h,hj->j", np.abs(z_centred), X)  # proof of Lemma 24
        if penalty == "shifted":
            a = a + alpha * np.abs(c)
    scale = problem.scale[agent]
    return scale * a, scale * M, scale * c


class PFLR(FunctionalMechanism):
    """PFLR and PFLR*: fair logistic regression with the same Laplace noise on every coefficient.

    Xu, Yuan, Wu 2019, "Achieving differential privacy and fairness in logistic regression" (doi
    10.1145/3308560.3317584). PFLR adds noise to the coefficients of the fair objective, which has
    alpha |c.w|, c = sum_h (z_h - zbar) x_h, z_h = 1 in the protected group. That is no polynomial:
    for (102) of Ding 2021, dissertation, the proofs of Lemmas 22 and 24 have the coefficients of
    alpha sum_h |z_h - zbar| x_h.w, which only makes all scores fall. Here c is sent by itself, with
    noise of its own, and the coordinator minimises what (101) says. PFLR* adds noise to the
    coefficients of the plain objective, whose smaller sensitivity it uses, and moves the mean of
    that noise to the fairness term. That mean comes from the data: what is sent is the fair
    objective all the same, and its sensitivity is what is charged. It is read in two ways.
    """

    name = "pflr"
    summary = "one round: noisy coefficients of the fair logistic loss, one epsilon; PFLR*"
    paper = "Xu, Yuan, Wu 2019"
    wants = (LOGISTIC, "a protected attribute")
    Parameters: ClassVar[type[Strict]] = StarParameters
    noises: ClassVar[tuple[str, ...]] = ("laplace", "allotted")

    def __init__(self, ingredients: Ingredients) -> None:
        p = ingredients.parameters
        self.shifted, self.alpha = p.penalty.startswith("shifted"), p.alpha
        self.penalty = "printed" if p.penalty == "shifted-rows" else p.penalty
        self.zbar = None if p.zbar == "data" else p.zbar
        self.share = p.share if p.penalty == "exact" else 0.0
        # |z - zbar| <= 1, and through zbar of the data a record moves all others by 1 in all: as
        # sensitivities are twice this, 3/2 would do where 2 stands
        z_range = 2.0 if self.zbar is None else max(self.zbar, 1.0 - self.zbar)
        fair = 0.5 + self.alpha * z_range
        if self.penalty == "exact":
            self.reach = Reach(0.5, 0.5, 0.5, z_range)
        elif self.shifted:
            self.reach = Reach(fair, 0.5, 0.5, z_range)
        else:
            self.reach = Reach(fair, fair, 0.5 + self.alpha, z_range)
        super().__init__(ingredients)

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = super().problems(parameters, problem, noise)
        return [*found, *unfair(cls, parameters, problem, noise)]

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says with Laplace noise, and with Gaussian noise."""
        return ("pflr/pflr-star" if self.shifted else "pflr/pflr",) * 2


class PDFC(PFLR):
    """PDFC: purely private and fair classification, more Laplace noise for one attribute.

    Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 6
    with (101) and (102). Coefficients with the special attribute x_s get noise for epsilon_s, all
    others for epsilon_n. Theorem 18 (line 25: epsilon_s / d + (d - 1) / d epsilon_n) gives the
    first 1/d of the sensitivity, which a record that has only x_s disproves as a rule; what is
    charged is the largest loss of any pair of records.
    """

    name = "pdfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Laplace by attribute"
    paper = "Ding, Zhang, Li, Wang, Yu, Pan 2020"
    Parameters = GroupedParameters
    noises = ("laplace", "allotted")
    grouped = True

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says."""
        return "pdfc/theorem-18", "pdfc/theorem-18"


class ADFC(PFLR):
    """ADFC: approximately private and fair classification, Gaussian noise by attribute.

    Ding, Zhang, Li, Wang, Yu, Pan 2020 (arXiv 2001.04958); Ding 2021, dissertation, Algorithm 8. As
    PDFC, with the Extended Gaussian deviation (Theorem 19), or the exact one for `sensitivity:
    own`. Theorem 20 shares epsilon out as Theorem 18 does; what is charged is one Gaussian release
    in units of each group's noise.
    """

    name = "adfc"
    summary = "one round: noisy coefficients of the fair logistic loss, Gaussian by attribute"
    paper = PDFC.paper
    Parameters = GroupedParameters
    noises = ("gaussian", "allotted")
    grouped = True

    @property
    def theorems(self) -> tuple[str, str]:
        """Names of what the paper says."""
        return "adfc/theorem-20", "adfc/theorem-20"
