"""Links of one machine under a deployment: a network for each node, lines between them."""

import socket
from contextlib import suppress
from typing import Any

from desim.deployments.carrier import Carrier, Report
from desim.deployments.ground import Loopback, Transport
from desim.deployments.lines import Plan
from desim.errors import InputError

ANY = "0.0.0.0"  # of a network that nobody else is in


class Linked(Loopback):
    """Networks and lines; processes are forked between `open` and `close`, and stay where they are.

    Their sockets are opened in the networks of the plan's hosts, and stay there.
    """

    def __init__(self, plan: Plan, transport: Transport) -> None:
        super().__init__(transport)
        self.plan = plan
        self.carrier: Carrier | None = None

    def open(self) -> None:
        """Start what carries packets; InputError where that is refused."""
        try:
            self.carrier = Carrier(self.plan)
        except InputError as error:
            raise InputError([f"deploy: {one}" for one in error.problems]) from None
        self.alarm = self.carrier.orders

    def fate(self) -> str:
        """See Ground."""
        assert self.carrier is not None
        return self.carrier.fate()

    def own(self, node: int) -> str:
        """See Loopback."""
        return ANY

    def address(self, node: int, to: int) -> str:
        """See Loopback."""
        return self.plan.address(node, to)

    def _fresh(self, node: int) -> socket.socket:
        assert self.carrier is not None
        return self.carrier.socket(node)

    def report(self) -> Report | None:
        """What the lines did, if they still can be asked."""
        with suppress(InputError, OSError, AssertionError):
            assert self.carrier is not None
            return self.carrier.report()
        return None

    def told(self) -> dict[str, Any]:
        """See Ground."""
        from desim.deployments.plan import told

        said, report = told(self.plan), self.report()
        if report is not None:
            done = report.lines
            said |= {
                "packets": sum(one.packets for one in done),
                "dropped": sum(one.dropped for one in done),
                "lost": sum(one.lost for one in done),
                "late": report.late,
                "stalled": report.longest,
                "priority": report.priority,
            }
        return said

    def close(self) -> None:
        """End what `open` has started."""
        if self.carrier is not None:
            self.carrier.close()
            self.carrier = self.alarm = None
