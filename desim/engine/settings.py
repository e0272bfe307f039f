"""What a scenario fixes of a run: the problem on its network and devices, and when it ends."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from desim.arrays import Array
from desim.network.conditions.codec import AS_THEY_ARE, Codecs
from desim.network.conditions.devices import Churn
from desim.network.conditions.participation import Participation
from desim.network.conditions.policy import Policy
from desim.network.conditions.topology import Changing, Graph
from desim.network.timeline.computations import AT_ONCE, Intake, Speeds
from desim.network.timeline.messages import Links
from desim.problem.problem import Problem

if TYPE_CHECKING:
    from desim.engine.signals import Feature
    from desim.engine.trusted import Trust
    from desim.engine.world import World
    from desim.network.conditions.hierarchy import Tree
    from desim.privacy.ledger.budget import Budget


@dataclass(frozen=True)
class Settings:
    """What the scenario fixes: network, devices, waiting and stopping.

    rounds and horizon (s) may be inf; targets: stop once any metric <= its value (accuracy: >=).
    met: the target whose time the horizon is; noise_seed: of the noise alone, by default the seed.
    budget: what privacy may cost each agent; over: why it stops everybody at the horizon. log: the
    level of the log, all, messages or rounds. changing: the graphs of all rounds, of which graph
    and links are the first. intake: what a coordinator's work takes. codecs: of messages. later:
    whether agents of a graph hear messages of later rounds than their own, too. trust: what a
    coordinator does that is trusted with replies. hung: what makes features of its calls. tree: the
    edges between clients and the cloud; links, policy and participation are then those of clients
    and their edges.
    """

    seed: int
    problem: Problem
    initial: Callable[[str], Array]
    speeds: Speeds
    participation: Participation
    policy: Policy
    rounds: float
    horizon: float
    targets: tuple[tuple[str, float], ...] = ()
    met: tuple[str, float] | None = None
    graph: Graph | None = None
    links: Links | None = None
    changing: Changing | None = None
    uplinks: Links | None = None
    downlinks: Links | None = None
    churn: Churn | None = None
    batch_limit: int = 1 << 30
    noise_seed: int | None = None
    budget: "Budget | None" = None
    over: str = ""
    log: str = "all"
    intake: Intake = AT_ONCE
    codecs: Codecs = AS_THEY_ARE
    later: bool = False
    trust: "Trust | None" = None
    hung: tuple[Callable[["World"], "Feature"], ...] = ()
    tree: "Tree | None" = None

    @property
    def afresh(self) -> "Settings":
        """The same before anything was sent: connections have carried nothing."""
        sides = self.links, self.uplinks, self.downlinks
        links, up, down = (None if one is None else one.unused for one in sides)
        tree = None if self.tree is None else self.tree.afresh
        return replace(self, links=links, uplinks=up, downlinks=down, tree=tree)

    @property
    def connections(self) -> dict[str, Array]:
        """What the connections of all links remember, by the name of the links."""
        sides = {"links": self.links, "uplinks": self.uplinks, "downlinks": self.downlinks}
        own = {name: links.transport for name, links in sides.items() if links is not None}
        return {name: carrier.memory for name, carrier in own.items() if not carrier.ideal}
