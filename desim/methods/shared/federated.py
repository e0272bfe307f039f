"""Federated methods: a coordinator, its optimiser, and agents that train between two messages."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
from numba.extending import register_jitable
from numpy.typing import NDArray

from desim.arrays import Array
from desim.errors import InputError
from desim.fields import Form, Positive, Squared, Strict
from desim.fields.numbers import within
from desim.memory import Tree, attributes, recall
from desim.methods.shared.declarations import Ingredients, Method
from desim.methods.shared.local_training import LocalTraining, misfits
from desim.network.conditions.codec import KEEPS, ROUNDED
from desim.numerics.jit import LEAN
from desim.privacy.ledger.ledger import Terms
from desim.privacy.ledger.mechanisms import Gaussian, Noise
from desim.problem.kernels.formulas import aggregate, begin, finish, formulas, model
from desim.problem.kernels.sums import column_sums, replace_rows
from desim.problem.problem import Problem

# What a coordinator makes of the mean change of its agents' models: a step of its own optimiser.


_BELOW_ONE = within(
    "a number >= 0 and below 1", lambda x: 0 <= x < 1, minimum=0, exclusiveMaximum=1
)
BelowOne = Annotated[float, *_BELOW_ONE]


class Adagrad(Strict):
    """FedAdagrad: v is the sum of all squares so far."""

    rate: Positive
    """the paper's eta: step of the coordinator, in place of global_step"""
    beta1: BelowOne = 0.0
    """weight of the earlier changes in m"""
    tau: Squared = 1e-3
    """what is added to the root of v, which starts at tau^2"""


class Adaptive(Adagrad):
    """FedAdam or FedYogi: v forgets."""

    beta1: BelowOne = 0.9
    """weight of the earlier changes in m"""
    beta2: BelowOne = 0.99
    """weight of the earlier squares in v"""


class Server(Form):
    """The coordinator's optimiser, which takes the mean change for a descent direction."""

    words = ("none",)
    examples = {
        "momentum": 0.9, "adam": {"rate": 0.1}, "yogi": {"rate": 0.1}, "adagrad": {"rate": 0.1},
    }  # fmt: skip

    momentum: BelowOne | None = None
    """FedAvgM: m = beta m + mean change, with this beta; global_step is its step"""
    adam: Adaptive | None = None
    """FedAdam: {rate: .., beta1: 0.9, beta2: 0.99, tau: 0.001}"""
    yogi: Adaptive | None = None
    """FedYogi: {rate: .., beta1: 0.9, beta2: 0.99, tau: 0.001}"""
    adagrad: Adagrad | None = None
    """FedAdagrad: {rate: .., beta1: 0, tau: 0.001}"""


KINDS = ("none", "momentum", "adam", "yogi", "adagrad")
NONE, MOMENTUM, ADAM, YOGI, ADAGRAD = range(5)


class Steps(NamedTuple):
    """A place in KINDS, and the numbers of an optimiser of this kind."""

    kind: int = NONE
    rate: float = 1.0
    beta1: float = 0.0
    beta2: float = 0.0
    tau: float = 0.0


def step_along(own: Steps, m: Any, v: Any, total: Any, n: float) -> tuple[Any, Any, Any, float]:
    """The new m and v, and what n replies of which `total` is the sum move the model along.

    That is a direction times a number: (m, v, total, n) where there is no optimiser. For arrays or
    numbers.
    """
    if own.kind == NONE or n == 0:
        return m, v, total, n
    mean = total / n  # Delta_t
    if own.kind == MOMENTUM:
        m = own.beta1 * m + mean  # v <- beta v + Delta w
        return m, v, m, 1
    m = own.beta1 * m + (1.0 - own.beta1) * mean  # m_t
    square = mean * mean
    if own.kind == ADAGRAD:  # v_t
        v = v + square
    elif own.kind == ADAM:
        v = own.beta2 * v + (1.0 - own.beta2) * square
    else:
        v = v - (1.0 - own.beta2) * square * np.sign(v - square)
    return m, v, own.rate * (m / (np.sqrt(v) + own.tau)), 1


register_jitable(**LEAN)(step_along)


@formulas
class Served(NamedTuple):
    """Formulas `own` of a coordinator that keeps a model x, with an optimiser's steps."""

    own: Any
    steps: Steps

    def begin(self, heard: Any, *state: Any) -> Any:
        """As without it."""
        return begin(self.own, heard, *state)

    def finish(self, heard: Any, y: Any, *state: Any) -> Any:
        """As without it."""
        return finish(self.own, heard, y, *state)

    def aggregate(self, memory: Any, total: Any, replies: float) -> Any:
        """The new x, m and v."""
        x, m, v = memory
        m, v, total, replies = step_along(self.steps, m, v, total, replies)
        return aggregate(self.own, x, total, replies), m, v

    def model(self, memory: Any) -> Any:
        """That of x."""
        return model(self.own, memory[0])


class ServerSteps:
    """The steps of one optimiser, on what a coordinator remembers: m and v, each (dim,)."""

    def __init__(self, server: Server, dim: int) -> None:
        self.kind, self.value, self.dim = server.kind, server.value, dim
        place = KINDS.index(self.kind)
        if place > MOMENTUM:
            own = self.value
            beta2 = getattr(own, "beta2", 0.0)
            self.steps = Steps(place, own.rate, own.beta1, beta2, own.tau)
        else:
            self.steps = Steps(place, beta1=self.value if place else 0.0)

    def memory(self) -> dict[str, Array]:
        """What it keeps from round to round, by name, as it starts."""
        if self.kind == "none":
            return {}
        m = np.zeros(self.dim)
        return {"m": m} if self.kind == "momentum" else {"m": m, "v": m + self.value.tau**2}

    def start(self) -> tuple[Array, Array]:
        """The first m and v, of zeros where they are not needed."""
        kept, zeros = self.memory(), np.zeros(self.dim)
        return kept.get("m", zeros), kept.get("v", zeros)

    def of(self, state: Any) -> tuple[Any, Any]:
        """The m and v of what a coordinator remembers; 0 for what it does not need."""
        kept = self.memory()
        return state.m if "m" in kept else 0.0, state.v if "v" in kept else 0.0

    def put(self, state: Any, m: Any, v: Any) -> None:
        """Remember m and v, if they are needed."""
        for name, value in zip(self.memory(), (m, v), strict=False):
            setattr(state, name, value)

    def along(self, state: Any, total: Array, n: float) -> tuple[Array, float]:
        """What n replies, of which `total` (dim,) is the sum, move the model along, times a number.

        (direction, number) is (total, n) where there is no optimiser.
        """
        m, v, direction, number = step_along(self.steps, *self.of(state), total, n)
        self.put(state, m, v)
        return direction, number

    def compiled(self, formulas: Any, x: Array) -> tuple[Any, Any]:
        """Formulas and memory of a coordinator with formulas for x (dim,), and these steps."""
        if self.kind == "none":
            return formulas, x
        return Served(formulas, self.steps), (x, *self.start())


def two_steps(server: Server, global_step: float) -> Iterator[str]:
    """What is wrong with a global step beside the rate of an optimiser, one line."""
    if server.kind not in ("none", "momentum") and global_step != 1.0:
        text = f"found {global_step:g} with server {server.kind}, whose rate is the step"
        yield f"algorithm.global_step: {text}; allowed: 1"


def means_in_turn(totals: Array, counts: Array) -> tuple[Array, float]:
    """Sums (k, dim) of counts (k,) replies whose means are added: as of their mean number.

    A round without replies changes nothing, and counts for nothing.
    """
    some = counts > 0.0
    number = average(counts)
    shares = np.where(some, number / np.where(some, counts, 1.0), 0.0)
    return np.asarray(np.add.reduce(totals * shares[:, None], axis=0)), number


def average(counts: Array) -> float:
    """The mean number of replies in rounds (k,) that have any; 0 of none."""
    return float(np.add.reduce(counts)) / max(1, int(np.count_nonzero(counts)))


def sums_in_turn(totals: Array, counts: Array) -> tuple[Array, float]:
    """Sums (k, dim) that are added as they are, of counts (k,) replies."""
    return np.asarray(np.add.reduce(totals, axis=0)), average(counts)


NO_SERVER = Server.of("none")
COHORTS = {"uniform": "for uniform cohorts that reply", "all": "with all agents in every round"}


class Federated(Method):
    """A method with parameters `init` and `local`: x0 (agents, dim) is its start.

    Where it has a parameter `server`, a global_step, too, `server` has the coordinator's steps.
    """

    kind = "coordinator"
    models: ClassVar[Literal["linear", "convex", "any"]] = "any"
    noises: ClassVar[tuple[str, ...]] = ("gaussian",)
    codecs: ClassVar[tuple[str, ...]] = ROUNDED
    uncoded: ClassVar[str] = KEEPS
    #: why local training has to be made of steps, where it has
    no_exact: str = ""
    #: why a reply that is late is of no use, where it is of none
    no_carry: str = ""
    #: what shows an agent's data whatever the noise of its local steps, if anything does
    exposed: str = ""
    #: local solvers with which its convergence is not proved
    unproved: ClassVar[tuple[str, ...]] = ("accelerated",)
    #: who has to take part in a round for what is proved
    cohorts: Literal["any", "uniform", "all"] = "any"
    #: what sums of rounds in turn come to, see `in_turn`, where no optimiser looks at each of them
    turns: Any = None

    def __init__(self, ingredients: Ingredients, q: float = 0.0, unit: float = 1.0) -> None:
        super().__init__(ingredients)
        local, settings = self.parameters.local, self.settings
        sigma = self.noise.sigma if isinstance(self.noise, Gaussian) else None
        self.x0 = settings.initial("x0")
        self.local = LocalTraining(local, settings, q, sigma, unit)
        self.server = ServerSteps(getattr(self.parameters, "server", NO_SERVER), self.problem.dim)
        self.warnings += self.local.warnings
        self.warnings += [
            f"algorithm.local.solver: convergence is not proved with {solver} local steps"
            for solver in self.unproved
            if solver in local.solvers
        ]
        if self.exposed and self.local.noisy:
            text = f"noisy protects nothing in {self.name}, {self.exposed}"
            self.warnings.append(f"algorithm.local.solver: {text}")
        if self.no_carry and settings.policy.late == "carry":
            text = f"policy.late: found carry, but {self.no_carry}"
            raise InputError(f"{text}; allowed: discard")
        who = settings.participation
        whole = who.uniform if self.cohorts == "uniform" else who.least >= self.problem.agents
        if self.cohorts != "any" and not (settings.policy.kind == "all" and whole):
            proved = f"{self.name} is proved {COHORTS[self.cohorts]}"
            self.warnings.append(f"participation: {proved}")

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        found = [*misfits(parameters.local, problem, noise)]
        if hasattr(parameters, "server"):
            found += two_steps(parameters.server, parameters.global_step)
        if cls.no_exact and "exact" in parameters.local.solvers:
            text = f"algorithm.local.solver: found exact, but {cls.no_exact}"
            found.append(f"{text}; allowed: gradient, accelerated, sgd, noisy")
        return found

    def in_turn(self) -> Any:
        """As `turns` says, without an optimiser."""
        return self.turns if self.server.kind == "none" else None

    def planned(self, k: int) -> Terms:
        """Terms (agents,) of round k: states follow from what was sent and heard before."""
        return self.local.terms


# The latest reply of every agent, as a coordinator keeps it, with their sum.


class Latest:
    """Rows (agents, dim); a reply costs its own row, whatever the number of agents."""

    def __init__(self, rows: Array) -> None:
        self.rows, self.total, self.since = rows.copy(), column_sums(rows), np.zeros(1)

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return attributes(self, "rows total since")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "rows total since")

    def replace(self, who: NDArray[np.int64], news: Array) -> Array:
        """Rows who (n,) become news (n, dim); return the new sum (dim,), which changes later."""
        replace_rows(self.rows, self.total, self.since, who, news)
        return np.asarray(self.total)
