"""A coordinator that sends each agent a payload of its own."""

import numpy as np

from desim.method import Clients, Hub, Init, Method, Strict


class Parameters(Strict):
    """wrong: rows that are missing from the payload."""

    wrong: bool = False
    """too few rows"""
    init: Init = Init.of("zeros")
    """start"""


class Personal(Method):
    """Agent i is told (i + 1) x and replies with that."""

    name, kind, noises = "personal", "coordinator", ()
    summary, paper = "a payload for each", "none"
    Parameters, policies = Parameters, ("all", "deadline", "buffer")

    def coordinator(self, hub: Hub):
        """The coordinator."""
        own = hub.memory(x=np.ones(self.problem.dim))
        hub.start(x=self.settings.initial("x0"))
        hub.publish(own.x)
        while hub.open:
            who = hub.invite()[::-1]
            rows = (who[:, None] + hub.round) * own.x
            hub.call(who, self.echo, rows[self.parameters.wrong :], work=np.ones(hub.agents))
            yield hub.collect()
            hub.publish(own.x)

    def echo(self, us: Clients, rows):
        """What came."""
        us.x = rows
        return rows
