"""What averages tell to which a strategy adds noise: Flower's central differential privacy.

Its wrappers with fixed clipping average what nodes i of weight n_i were changed by, shortened to a
norm C, and add N(0, s^2 I) with s = z C / m, z being noise_multiplier and m num_sampled_clients
(McMahan, Ramage, Talwar, Zhang 2018, arXiv 1710.06963, as flwr has it). Another change of node i
moves the average by 2 C n_i / sum_j n_j, over those whose replies came: that is the sensitivity of
its row, beside the scale s, on the average itself. A deadline that leaves out nodes makes shares
larger, and not the noise. A node that is left out takes its weight with it, so that the shares of
the others grow: that moves the average by n_i / sum_j n_j times the distance of its change from the
mean of the others', which is 2 C at most, and not half of that.

Adaptive clipping (Andrew et al. 2021, arXiv 1905.03871) is not counted: flwr shortens to a norm C,
moves it by the noised count of those that were longer, and then adds noise in proportion to the
moved norm, so that the ratio of the two follows from data; the paper's account has one C for both.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from desim.engine.signals import Feature
from desim.flower.flower_messages import EXAMPLES
from desim.method import Mechanism, View
from desim.network.timeline.record import BESIDE, SUMMED, release_id

FAMILIES = "DifferentialPrivacy", "DPFedAvg"  # how names of such strategies begin
HARMLESS = "message_size_mod", "arrays_size_mod", "parameters_size_mod"  # mods that only look
AVERAGED = SUMMED | BESIDE  # of averages, whose divisor is a sum of weights of those in them
MOVED = "noise follows the moved norm, and changes the one before it, so that their ratio has no"


ASSUMED = (  # what no program can see, and an epsilon of an app rests on
    "no function of its own hands metrics on to nodes, nothing keeps or changes records that mods "
    "still have to clip, and nobody knows or sets the seeds of noise"
)


class Average(NamedTuple):
    """An average with noise: nodes (n,) and weights (n,) of its replies, C, and s, 0 for none.

    strategy: which has made it; model: whether there is one, as replies with errors leave none.
    """

    nodes: list[int]
    weights: list[float]
    clip: float
    scale: float
    strategy: Any
    model: bool

    def parts(self, agents: Mapping[int, int]) -> dict[int, float]:
        """The weight of each agent in it, of whom several replies may be; agents: by node."""
        found: dict[int, float] = {}
        for node, weight in zip(self.nodes, self.weights, strict=True):
            found[agents[node]] = found.get(agents[node], 0.0) + weight
        return found

    def counts(self, parts: Mapping[int, float], trained: set[int]) -> bool:
        """Whether each agent moves it by its share, and its noise hides that.

        parts: weights by agent; trained: agents whose arrays the app has heard since the average
        before: where these are others, as with a secure sum, nobody knows who moves it by how much.
        """
        fine = {*parts} == trained and min(parts.values(), default=-1.0) >= 0.0
        return fine and self.scale > 0.0 and 0.0 < sum(parts.values()) < np.inf


class Central(NamedTuple):
    """A strategy that adds noise: its name, and why what that hides is not known, if it is not."""

    name: str
    why: str

    @property
    def trusts(self) -> str:
        """Who is trusted with what; empty where no row says what averages tell."""
        return "" if self.why else f"flower: {self.name}"

    @property
    def says(self) -> str:
        """What a reader of an epsilon has to know."""
        if self.why:
            return f"is infinite: {self.name}: {self.why}"
        text = (
            f"of views participants and final-model is that of {self.name}: its server is trusted"
        )
        text = f"{text}, metrics stay there"
        text = f"{text}, and weights such as num-examples are taken to be public"
        return f"{text}; assumed of the app: {ASSUMED}"


def family(strategy: Any) -> str:
    """The name of a strategy's class of Flower's that adds noise; empty for all others."""
    names = (kind.__name__ for kind in type(strategy).__mro__ if kind.__module__[:5] == "flwr.")
    return next((name for name in names if name.startswith(FAMILIES)), "")


def central(strategy: Any, chains: list[list[Any]]) -> Central | None:
    """What is known of a strategy; None for one without noise. chains: of mods, see `noise`."""
    name = family(strategy)
    return Central(name, _unknown(strategy, chains)) if name else None


def _unknown(strategy: Any, chains: list[list[Any]]) -> str:
    """Why nothing is known of what the noise of a strategy hides; empty where it is."""
    from flwr.server import strategy as classic
    from flwr.serverapp import strategy as new

    kind, head = type(strategy), "DifferentialPrivacy"
    known: dict[Any, tuple[Any, str]] = {}
    for module, plain, verb in ((new, new.FedAvg, "train"), (classic, classic.FedAvg, "fit")):
        for side in ("ServerSide", "ClientSide"):
            own = getattr(module, f"{head}{side}FixedClipping")
            known[own] = plain, f"aggregate_{verb}"
    if "Adaptive" in kind.__name__:
        return f"{MOVED} bound that is known"
    if kind not in known:
        return f"{kind.__name__} is none of Flower's with fixed clipping, as it is"
    plain, verb = known[kind]
    inner = type(strategy.strategy)
    if getattr(inner, verb, None) is not getattr(plain, verb):
        return f"noise is added to what {inner.__name__} makes of an average; counted: FedAvg's own"
    if (
        not inner.__module__.startswith("flwr.")
        or _changed(strategy)
        or _changed(strategy.strategy)
    ):
        return f"functions of {kind.__name__} or {inner.__name__} are not Flower's own"
    if (key := getattr(strategy.strategy, "weighted_by_key", EXAMPLES[0])) not in EXAMPLES:
        return f"weights are {key}, of which it is not known that no data moves them"
    if "ClientSide" in kind.__name__ and not _clipped(chains):
        return "not every function that trains has fixedclipping_mod around all that changes arrays"
    return "" if strategy.noise_multiplier > 0.0 else "noise_multiplier is 0"


def _changed(strategy: Any) -> bool:
    """Whether functions of a strategy's class were replaced in it, by others than desim."""
    own = [
        one for name, one in vars(strategy).items() if callable(getattr(type(strategy), name, 0))
    ]
    return any(not str(getattr(one, "__module__", "")).startswith("desim.") for one in own)


def _clipped(chains: list[list[Any]]) -> bool:
    """Whether what leaves a node is what Flower's fixedclipping_mod has made of it."""
    from flwr.client import mod as classic
    from flwr.clientapp import mod as new

    names = "fixedclipping_mod", *HARMLESS
    known = {id(getattr(one, name, one)): name for one in (classic, new) for name in names}
    mods = [[known.get(id(mod), "") for mod in one] for one in chains]
    first = [next((name for name in one if name not in HARMLESS), "") for one in mods]
    return {*first} == {"fixedclipping_mod"}


def watched(strategy: Any, heard: list[Average], function: Callable[..., Any]) -> Any:
    """The function with which a strategy aggregates, which notes each average with noise."""
    if not family(strategy):
        return function
    foreign, clip = _changed(strategy), getattr(strategy, "clipping_norm", 0.0)

    def noted(server_round: int, replies: Any, *others: Any, **named: Any) -> Any:
        whole = list(replies)
        answer = function(server_round, whole, *others, **named)
        model = None if answer is None else answer[0]
        heard.append(_average(strategy, whole, model, clip, foreign))
        return answer

    return noted


def _average(strategy: Any, replies: list[Any], model: Any, first: float, foreign: bool) -> Average:
    """What a strategy has averaged, of messages or of pairs (proxy, result).

    first: the norm at the first message. Nodes that clip may do so by an older norm: where it
    changes nothing is known of theirs. foreign: whether others have replaced its functions.
    """
    nodes, weights = list[int](), list[float]()
    key = getattr(strategy.strategy, "weighted_by_key", "")
    for one in replies:
        if isinstance(one, tuple):
            nodes.append(one[0].node_id)
            weights.append(float(one[1].num_examples))
            continue
        if one.has_error():
            continue
        nodes.append(one.metadata.src_node_id)
        said: Any = next(iter(one.content.metric_records.values()), {})
        weights.append(float(said.get(key, 0.0)))
    clip = float(getattr(strategy, "clipping_norm", 0.0))
    scale = float(strategy.noise_multiplier) * clip / strategy.num_sampled_clients
    moving = "ClientSide" in type(strategy).__name__ and clip != first
    if foreign or moving or model is None or not hides(model, scale):
        scale = 0.0
    return Average(nodes, weights, clip, scale, strategy, model is not None)


def hides(model: Any, scale: float) -> bool:
    """Whether noise of that scale is in all numbers of a model, and not lost in their roundings.

    flwr draws real numbers and takes on the model's type: whole numbers round noise to nothing, and
    the imaginary part of complex ones has none. A change that is no number is not clipped at all.
    """
    if hasattr(model, "tensors"):
        from flwr.common import parameters_to_ndarrays

        arrays = parameters_to_ndarrays(model)
    else:
        arrays = [one.numpy() for one in model.values()]
    return all(
        one.dtype.kind == "f"
        and bool(np.isfinite(one).all())
        and float(np.spacing(np.abs(one)).max(initial=0.0)) <= scale
        for one in map(np.asarray, arrays)
    )


class Averages(Feature):
    """Writes the rows of averages with noise, whose parts are those of the replies that came."""

    name = "averages"

    def __init__(self, world: Any) -> None:
        self.ledger = world.ledger
        self.ledger.keep()
        self.hub: Any = None

    def taken(self, hub: Any, who: Any, rounds: Any, exchange: Any) -> None:
        """Replies are in."""
        self.hub = hub

    def charge(self, average: Average, parts: dict[int, float]) -> None:
        """Write the rows of an average: its own, of agent -1, and one for each agent in it.

        parts: weights by agent, of which the average `counts`.
        """
        total = sum(parts.values())
        for i, weight in [(-1, max(parts.values())), *sorted(parts.items())]:
            moved = 2.0 * average.clip * weight / total
            self._write(i, moved, average.scale)

    def bare(self, agents: set[int]) -> None:
        """Write rows without noise, of agents whose replies went into no average with noise."""
        for i in [-1, *sorted(agents)]:
            self._write(i, 1.0, 0.0)

    def _write(self, agent: int, moved: float, scale: float) -> None:
        hub = self.hub
        terms = int(Mechanism.SUM), int(View.PUBLIC), moved, scale, np.nan
        id_ = int(release_id(hub.agents, max(agent, 0), int(hub.round), AVERAGED))
        self.ledger.charge_one(hub.now, agent, int(hub.round), id_, terms, 1)
