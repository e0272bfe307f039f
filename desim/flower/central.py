"""What averages tell to which a strategy adds noise: Flower's central differential privacy.

Its wrappers with fixed clipping average what nodes i of weight n_i were changed by, shortened to a
norm C, and add N(0, s^2 I) with s = z C / m, z being noise_multiplier and m num_sampled_clients
(McMahan, Ramage, Talwar, Zhang 2018, arXiv 1710.06963, as flwr has it). Another change of node i
moves the average by 2 C n_i / sum_j n_j, over those whose replies came: that is the sensitivity of
its row, beside the scale s, on the average itself. A deadline that leaves out nodes makes shares
larger, and not the noise.

Adaptive clipping (Andrew et al. 2021, arXiv 1905.03871) is not counted: flwr shortens to a norm C,
moves it by the noised count of those that were longer, and then adds noise in proportion to the
moved norm, so that the ratio of the two follows from data; the paper's account has one C for both.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from desim.engine.signals import Feature
from desim.method import Mechanism, View
from desim.network.timeline.record import BESIDE, SUMMED, release_id

FAMILIES = "DifferentialPrivacy", "DPFedAvg"  # how names of such strategies begin
HARMLESS = "message_size_mod", "arrays_size_mod", "parameters_size_mod"  # mods that only look
PARTED = SUMMED | BESIDE  # of an average itself, all of whose parts have rows of their own
MOVED = "noise follows the moved norm, and changes the one before it, so that their ratio has no"


class Average(NamedTuple):
    """An average with noise: nodes (n,) and weights (n,) of its replies, C, and s, 0 for none."""

    nodes: list[int]
    weights: list[float]
    clip: float
    scale: float

    def parts(self, agents: Mapping[int, int]) -> dict[int, float]:
        """The weight of each agent in it, of whom several replies may be; agents: by node."""
        found: dict[int, float] = {}
        for node, weight in zip(self.nodes, self.weights, strict=True):
            found[agents[node]] = found.get(agents[node], 0.0) + weight
        return found


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
        return f"{text}, and weights such as num-examples are taken to be public"


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
    if getattr(inner, verb) is not getattr(plain, verb):
        return f"noise is added to what {inner.__name__} makes of an average; counted: FedAvg's own"
    if "ClientSide" in kind.__name__ and not _clipped(chains):
        return "not every function that trains has fixedclipping_mod around all that changes arrays"
    return "" if strategy.noise_multiplier > 0.0 else "noise_multiplier is 0"


def _clipped(chains: list[list[Any]]) -> bool:
    """Whether what leaves a node is what fixedclipping_mod has made of it."""
    names = [[getattr(mod, "__name__", "") for mod in one] for one in chains]
    first = [next((name for name in one if name not in HARMLESS), "") for one in names]
    return {*first} == {"fixedclipping_mod"}


def watched(strategy: Any, heard: list[Average], function: Callable[..., Any]) -> Any:
    """The function with which a strategy aggregates, which notes each average with noise."""
    if not family(strategy):
        return function

    def noted(server_round: int, replies: Any, *others: Any, **named: Any) -> Any:
        whole = list(replies)
        answer = function(server_round, whole, *others, **named)
        if answer is not None and answer[0] is not None:
            heard.append(_average(strategy, whole))
        return answer

    return noted


def _average(strategy: Any, replies: list[Any]) -> Average:
    """What a strategy has averaged, of messages or of pairs (proxy, result)."""
    nodes, weights = list[int](), list[float]()
    key = getattr(strategy.strategy, "weighted_by_key", "")
    for one in replies:
        if isinstance(one, tuple):
            nodes.append(one[0].node_id)
            weights.append(float(one[1].num_examples))
            continue
        nodes.append(one.metadata.src_node_id)
        said: Any = next(iter(one.content.metric_records.values()), {})
        weights.append(float(said.get(key, 0.0)))
    clip = float(getattr(strategy, "clipping_norm", 0.0))
    scale = float(strategy.noise_multiplier) * clip / strategy.num_sampled_clients
    return Average(nodes, weights, clip, scale)


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

    def charge(self, average: Average, parts: dict[int, float], trained: set[int]) -> None:
        """Write the rows of an average: its own, of agent -1, and one for each agent in it.

        parts: weights by agent; trained: agents whose arrays the app has heard since the last
        average. Where these are others, as with a secure sum, nobody knows who moves it by how
        much: its noise counts as none.
        """
        hub, total, scale = self.hub, sum(parts.values()), average.scale
        if {*parts} != trained or not total > 0.0:
            parts, total, scale = dict.fromkeys({*parts} | trained, 1.0), 1.0, 0.0
        for i, weight in [(-1, max(parts.values(), default=0.0)), *sorted(parts.items())]:
            moved = 2.0 * average.clip * weight / total
            terms = int(Mechanism.SUM), int(View.PUBLIC), moved, scale, np.nan
            mark = PARTED if i < 0 else SUMMED
            id_ = int(release_id(hub.agents, max(i, 0), int(hub.round), mark))
            self.ledger.charge_one(hub.now, i, int(hub.round), id_, terms, 1)
