"""A method that changes in place what it was given; `own`: a name that it sets on `us`."""

import numpy as np

from desim.method import Array, Clients, Hub, Init, Method, Program, Strict, Us


class Parameters(Strict):
    """own: a name of `us`, or of the variables of `hub`; in_place: x -= 1 of a copy, or not."""

    own: str = ""
    """name that is set"""
    in_place: bool = True
    """change copies"""
    init: Init = Init.of("zeros")
    """start"""


class Copies(Method):
    """x_i <- x_i + 1, as often as there are rounds."""

    name = "copies"
    kind = "coordinator"
    peers = True
    summary = "counts"
    paper = "none"
    Parameters = Parameters
    policies = ("all", "each")

    def agents(self, us: Us) -> Program:
        """On a graph."""
        start = self.settings.initial("x0")[us.who]
        us.x = start
        self.spoil(start)
        for _ in us.rounds():
            us.x += yield us.compute(self.one, us.x, work=1.0)
            self.spoil(us.x)
            if self.parameters.own:
                setattr(us, self.parameters.own, us.x)
            us.report(us.x)

    def coordinator(self, hub: Hub) -> Program:
        """On a star."""
        start = self.settings.initial("x0")
        own = hub.memory(x=start[0])
        hub.start(x=start)
        self.spoil(start[0])
        hub.publish(own.x)
        while hub.open:
            hub.call(hub.invite(), self.count, own.x, work=np.ones(hub.agents))
            replies = yield hub.collect()
            own.x += np.mean(replies.payload - own.x, axis=0)
            self.spoil(own.x)
            hub.publish(own.x)

    def one(self, us: Us, x: Array) -> Array:
        """Ones (n, dim)."""
        return np.ones_like(x)

    def count(self, us: Clients, x: Array) -> Array:
        """The models x (n, dim) and 1."""
        us.x += 1.0
        self.spoil(us.x)
        reply = us.x
        us.last = reply
        self.spoil(reply)
        us.x = us.last
        if self.parameters.own:
            setattr(us, self.parameters.own, us.x)
        return us.x

    def spoil(self, rows: Array) -> None:
        """Change an array in place, which no state may notice."""
        if self.parameters.in_place:
            rows -= 100.0
