"""Why nobody can go on: the first cause of a wait that never ends, in words."""

from typing import Any

import numpy as np

from desim.engine.requests import Compute
from desim.errors import Deadlock
from desim.network.conditions.policy import Policy

RESENT = "use on_loss: resend with a higher limit"


class Waits:
    """Collects causes with the time at which they strike; the earliest is the root."""

    def __init__(self, policy: Policy) -> None:
        self.roots: list[tuple[float, str]] = []
        self.cure = cure(policy)

    def lost(self, time: float, sender: int, receiver: int, round_: int) -> None:
        """A message that is waited for was lost for good."""
        self.roots.append(
            (
                time,
                f"{_name(receiver)} waits for the message of round {round_} from "
                f"{_name(sender)}, which was lost after {time:.6g} s; {RESENT}, or {self.cure}",
            )
        )

    def endless(self, time: float, agent: int, round_: int) -> None:
        """A computation never ends."""
        self.roots.append(
            (
                time,
                f"agent {agent} began a computation in round {round_} at {time:.6g} s that "
                "never ends; its speed is 0: change compute.speed",
            )
        )

    def away(self, time: float, agent: int) -> None:
        """An agent is needed that has left for good."""
        self.roots.append(
            (
                time,
                f"agent {agent} is needed at {time:.6g} s, but has left and never comes back; "
                f"churn.trace ends so: use end: loop, or {self.cure}",
            )
        )

    def note_graph(self, request: Any, us: Any, before: Any, wires: Any) -> None:
        """Note the agents that this request of the cohort engine has stopped for good."""
        for i in np.flatnonzero((us.clock == np.inf) & (before < np.inf)):
            if isinstance(request, Compute):
                self.endless(float(before[i]), int(i), int(us.round[i]))
                continue
            graph = wires.graph
            for e in range(graph.incoming[i], graph.incoming[i + 1]):
                source = int(graph.source[e])
                sent = us.ended[source] if us.gone[source] else before[source]
                if wires.awaited[e] == np.inf and sent < np.inf:
                    self.lost(float(sent), source, int(i), int(us.round[i]))

    def deadlock(self, waiting: int) -> Deadlock:
        """The error that names the root."""
        time, root = min(self.roots, default=(0.0, "no cause is known"))
        others = f"; {waiting} in all wait, directly or in turn" if waiting > 1 else ""
        error = Deadlock(f"nobody can go on: {root}{others}")
        error.time = time
        return error


def cure(policy: Policy) -> str:
    """What of a policy that waits for ever makes it go on."""
    if policy.at_least:
        lower = f"policy.at_least below {policy.at_least}, or none"
        return lower if policy.at_least > 1 else "no policy.at_least"
    if policy.kind in ("quorum", "buffer"):
        return f"policy: {{{policy.kind}: {policy.value:g}, at_most: ...}}"
    return "policy.at_most" if policy.adaptive else "a policy with a deadline"


def _name(agent: int) -> str:
    return "the coordinator" if agent < 0 else f"agent {agent}"
