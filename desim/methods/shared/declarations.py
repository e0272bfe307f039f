"""What every method declares about itself, and the settings that it is made from."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from desim.arrays import Array
from desim.fields import Strict
from desim.privacy.ledger.ledger import Terms, View
from desim.privacy.ledger.mechanisms import Noise, terms, unbounded
from desim.privacy.papers.claims import Bound, Inputs
from desim.problem.problem import Problem
from desim.unplayed import of_unplayed

if TYPE_CHECKING:
    from desim.engine.settings import Settings
    from desim.problem.kernels.compilable import Compilable

Program = Generator[Any, Any, None]  # yields requests, gets their answers
LOGISTIC = "the logistic loss"  # as `wants` has it
Kind = Literal["coordinator", "graph", "central"]
RULES = ("all", "deadline", "adaptive", "quorum", "buffer", "each")  # policies, in words
BESIDE = ("__init__", "planned", "charges", "most", "claim_inputs")  # functions that no round calls


@dataclass(frozen=True)
class Ingredients:
    """What a method is made from: parameters, settings of the run, noise on what it perturbs."""

    parameters: Any
    settings: "Settings"
    noise: Noise | None


class Prices(dict[Any, tuple[Array, Terms]]):
    """Terms that are known already, by what they are of."""

    cached: ClassVar[bool] = True  # nothing that a program does depends on what is in it


class Method:
    """A method: what it needs and admits; its program is `coordinator(hub)` or `agents(us)`.

    A subclass is registered by its `name`. Errors in the combination of problem and parameters are
    returned by `problems` as lines "key: found ...; allowed ...".
    """

    #: what a scenario calls it
    name: ClassVar[str]
    #: coordinator (the program is `coordinator(hub)`), graph (`agents(us)`) or central (one agent)
    kind: Kind
    #: a coordinator method that runs on a graph, too, by `agents(us)`
    peers: ClassVar[bool] = False
    #: one line for `desim list`
    summary: ClassVar[str]
    #: authors and year, or where it is from
    paper: ClassVar[str]
    #: what a scenario may write below `algorithm`
    Parameters: ClassVar[type[Strict]]
    #: whether losses and regularisers must have gradients
    smooth_only: ClassVar[bool] = True
    #: linear, convex (softmax, too) or any (networks, too)
    models: ClassVar[Literal["linear", "convex", "any"]] = "linear"
    #: whether it asks for values of the loss only: of a linear model, or of a user's
    values_only: ClassVar[bool] = False
    #: whether its jobs train on the rows by themselves, so that a user's model needs no gradients
    trains_itself: ClassVar[bool] = False
    #: whether it treats a nonsmooth regulariser by its prox
    has_prox: ClassVar[bool] = False
    #: ways of waiting with which it makes sense, of all, deadline, quorum, buffer and each
    policies: ClassVar[tuple[str, ...]] = ("all",)
    #: how often a coordinator calls an agent in a round, for different things
    calls: ClassVar[int] = 1
    #: policies with which an agent may begin anew that has lost its state
    restarts: ClassVar[tuple[str, ...]] = ()
    #: what hinders that there, or what it costs
    forgetting: ClassVar[str] = ""
    #: why replies to older models cannot be weighed by their staleness, empty where they are:
    #: where its program takes `replies.weighed`, or `replies.weight`
    unweighable: ClassVar[str] = "it does not say that its replies may be weighed"
    #: the policy of scenarios that say none
    waiting: ClassVar[Any] = "all"
    #: whether links without an opposite one will do
    directed: ClassVar[bool] = False
    #: on a graph, where a wait may close early: whether agents hear messages of later rounds than
    #: their own, too; then the agent engine runs, as rounds cannot be computed one after the other
    hears_later: ClassVar[bool] = False
    #: whether neighbours may be others in every round
    changing: ClassVar[bool] = False
    #: why they may not, where `changing` is false
    keeping: ClassVar[str] = "duals, or weights, that belong to neighbours who stay"
    #: what its messages hold: changes that are added up, models that are used as they are, or more
    #: than one of them, or else; where they are models, lossy codecs code differences to the latest
    messages: ClassVar[Literal["changes", "models", "other"]] = "other"
    #: codecs that its messages may have, of ROUNDED and LOSSY
    codecs: ClassVar[tuple[str, ...]] = ()
    #: why not the others
    uncoded: ClassVar[str] = "its class does not say with which codecs it works"
    #: why no audit of it says anything, empty where one does
    unaudited: ClassVar[str] = ""
    #: whether the speed decides what an agent computes
    timed: ClassVar[bool] = False
    #: what the models are that agents of a graph report: released (functions of what was released
    #: before, so that they cost nothing), next (what they release next, without its noise), or own;
    #: not inherited, as another program may report another model
    shown: ClassVar[Literal["released", "next", "own"]] = "own"
    #: on a graph: whether messages are linear in noise and in what jobs give, which are gradients;
    #: not inherited, as another program may send something else
    linear: ClassVar[bool] = False
    #: on a graph: whether an agent releases one value in every round, of the same sensitivity, so
    #: that noise may be correlated over its rounds; not inherited
    chained: ClassVar[bool] = False
    #: on a graph: whether models are averaged by `Averages.sum` alone, so that what is heard may be
    #: clipped; not inherited
    mixes: ClassVar[bool] = False
    #: on a graph: noise that the ends of a link share, as in decor, or None
    shared: Any = None
    #: whether answers about the data decide how often it releases
    asks: ClassVar[bool] = False
    #: a protocol of one round, after which the run is over
    once: ClassVar[bool] = False
    #: with a coordinator: whether rounds may go on without some agents
    partial: ClassVar[bool] = True
    #: with a coordinator: whether an agent's model x, once it has replied, is what it was sent;
    #: not inherited, as another job may train it
    sent_model: ClassVar[bool] = False
    #: with a coordinator: whether a reply follows from the call alone, as agents keep nothing of
    #: earlier ones; not inherited
    forgetful: ClassVar[bool] = False
    #: whether its program takes replies by `hub.total` alone, so that a coordinator may be trusted
    #: with them; or values of parameters with which it does; not inherited
    summed: ClassVar[bool | Mapping[str, Any]] = False
    #: who is trusted with replies, in words, where its program writes the rows of sums itself
    trusts: str = ""
    #: features that hang on the calls of its coordinator, each made of the world of a play
    hung: tuple[Any, ...] = ()
    #: noise that it can add: gaussian, laplace, l2-laplace, discrete-gaussian, and the forms
    #: schedule {phi, growth}, classical and allotted; () for none
    noises: ClassVar[tuple[str, ...]] = ("gaussian", "schedule")
    #: whether noise in proportion to its sensitivities needs problem.clip
    needs_clip: ClassVar[bool] = False
    #: whether noise lowers all of the cost, for a target
    proportional: ClassVar[bool] = True
    #: relations of neighbours for which its sensitivities are known
    relations: ClassVar[tuple[str, ...]] = ("replace-one", "add-or-remove-one", "agent")
    #: keys to change when a model diverges
    cures: ClassVar[tuple[str, ...]] = ("the step",)
    #: what else it needs of data, loss or problem, in words
    wants: ClassVar[tuple[str, ...]] = ()
    #: theorems of a plug-in's paper, one of which `claim_inputs` may name
    bounds: ClassVar[tuple[Bound, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Let what a round's releases cost be asked for before the round is played."""
        if isinstance(own := vars(cls).get("terms"), FunctionType):
            cls.terms = of_unplayed(2)(own)  # type: ignore[attr-defined]

    def __init__(self, ingredients: Ingredients) -> None:
        self.parameters = ingredients.parameters
        self.settings = ingredients.settings
        self.noise = ingredients.noise
        self.problem: Problem = ingredients.settings.problem
        self._priced = Prices()
        self.warnings: list[str] = []
        churn, policy = ingredients.settings.churn, ingredients.settings.policy
        if churn is not None and churn.forgets and self.forgetting and policy.kind != "each":
            self.warnings.append(f"churn.memory: {self.forgetting}")
        if self.peers and ingredients.settings.graph is not None:
            self.kind = "graph"

    @of_unplayed(1, columns=True)
    def priced(self, k: Any, key: Any, costs: Callable[[], tuple[Array, Array | None]]) -> Terms:
        """Terms (n,) of a release to neighbours in round k; the ledger asks less of known ones.

        costs(): its sensitivity and sampling (n,), which a key has for good.
        """
        before = self._priced.get(key)
        if before and getattr(self.noise, "constant", self.noise is None):
            return before[1]
        sensitivity, sampling = (before[0], before[1].sampling) if before else costs()
        k = k if (several := isinstance(k, np.ndarray)) else int(k)
        found = terms(self.noise, View.NEIGHBOURS, k, sensitivity, self.problem.dim, sampling)
        if several:
            return found
        if len(self._priced) * len(sensitivity) > 8 * self.problem.agents:
            self._priced.clear()
        again = before[1].scaled(found.scale) if before and found.chain is None else found
        self._priced[key] = sensitivity, again
        return self._priced[key][1]

    @classmethod
    def kind_on(cls, topology: str) -> Kind:
        """Return what the method is on a topology: on a star one for peers has a coordinator."""
        return "graph" if cls.peers and topology not in ("star", "tree") else cls.kind

    @classmethod
    def admitted(cls, kind: Kind) -> tuple[str, ...]:
        """Return its policies, on a star or a graph, with those that a deadline stands for.

        Who goes on when a deadline is over also does when a limit follows what was seen, or, on a
        graph, when some neighbours are heard.
        """
        known = {*cls.policies}
        if "deadline" in known and cls.calls == 1:
            known |= {"adaptive", "quorum"} if kind == "graph" else {"adaptive"}
        return tuple(one for one in RULES if one in known)

    @classmethod
    def shows(cls) -> Literal["released", "next", "own"]:
        """Return what its own class says that its agents' models are, see `shown`."""
        found: Literal["released", "next", "own"] = vars(cls).get("shown", "own")
        return found

    @classmethod
    def totals(cls) -> "bool | Mapping[str, Any]":
        """Return what its own class says of hub.total, see `summed`."""
        found: bool | Mapping[str, Any] = vars(cls).get("summed", False)
        return found

    def in_turn(self) -> Callable[[Array, Array], tuple[Array, float]] | None:
        """What sums of replies of several rounds in turn come to as those of one round.

        A function of totals (k, width) and of how many replies are in each (k,), that gives a total
        (width,) and how many it counts: what an edge of a tree replies after k rounds of its own.
        None where the coordinator's state is not what such a sum makes of it.
        """
        return None

    @classmethod
    def needs(cls) -> list[str]:
        """Return what it needs, in words: network, models and loss, then what is its own."""
        kinds = {"coordinator": "a star", "graph": "a graph", "central": "one agent"}
        places = [kinds[cls.kind], *(["a graph"] if cls.peers else [])]
        models = {"linear": "a linear model", "convex": "a linear or softmax model", "any": ""}
        smooth = "a smooth loss" if cls.smooth_only else "a convex loss"
        needs = [" or ".join(places), models[cls.models], "" if LOGISTIC in cls.wants else smooth]
        needs += ["speeds of agents" if cls.timed else "", *cls.wants]
        return [text for text in needs if text]

    @classmethod
    def problems(cls, parameters: Any, problem: Problem, noise: Noise | None) -> list[str]:
        """Return what is wrong with this combination, one line each."""
        return unbounded(noise, problem.clipped) if cls.needs_clip else []

    def workload(self, rounds: int) -> tuple[Array, int, Array] | None:
        """What models have of noise: M (agents, agents), a power p, weights a (rounds,).

        The models of round k hold sum_t a_t M^(p + k - t) of the noise of rounds t = 1 .. k. None
        where that differs from run to run.
        """
        return None

    def compiled(self) -> "Compilable | None":
        """What the compiled engine plays in place of `coordinator`, with the same numbers.

        None where there is no such thing: then the cohort engine runs.
        """
        return None

    @classmethod
    def overrides(cls) -> str:
        """The first function in which a class below that of `compiled` differs, empty if none.

        Its compiled rounds would be those of another method.
        """
        order = cls.__mro__
        owner = next(place for place, one in enumerate(order) if "compiled" in vars(one))
        names = [
            name
            for one in order[:owner]
            for name, value in vars(one).items()
            if isinstance(value, FunctionType) and hasattr(order[owner], name)
        ]
        return next((name for name in names if name not in BESIDE), "")

    def planned(self, k: int) -> Terms | None:
        """Terms (agents,) of what every agent releases in round k = 1, 2, ... if it takes part.

        None where a method cannot say; then no target calibrates its noise. Every scale must grow
        in proportion to the noise's deviation.
        """
        return None

    def charges(self, k: int) -> "Sequence[Terms | None]":
        """Terms (agents,) of what an agent replies to its calls of round k, in their order.

        Of a coordinator method; None for a reply without noise. Deployed agents whose states are
        private reply to no others.
        """
        return (self.planned(k),) * self.calls

    def most(self, rounds: int) -> "Sequence[tuple[Terms, int]] | None":
        """All that any agent may release in so many rounds: terms (agents,), each so often.

        None where nobody can say.
        """
        plan = [self.planned(k) for k in range(1, rounds + 1)]
        return [(terms, 1) for terms in plan if terms is not None] if None not in plan else None

    def claim_inputs(self) -> Inputs | None:
        """Public numbers from which the paper's claim about a run follows, with its releases.

        Made by `inputs`; they name a theorem of desim's own or of `bounds`. None where the paper
        says nothing: no noise, or noise of another kind.
        """
        return None

    def claimed(self) -> Inputs | None:
        """What `claim_inputs` gives; None with a codec, of which no theorem speaks."""
        return self.claim_inputs() if self.settings.codecs.plain else None
