"""Links between hosts of one machine: what each direction does to packets, and who reaches whom.

A host is a number, -1 the coordinator and 0, 1, ... the agents. A packet passes the line of its own
direction; one between a host behind a site and a host elsewhere passes the site's line, too: after
its own on the way up, before its own on the way down.
"""

from dataclasses import asdict, dataclass
from functools import cached_property
from ipaddress import IPv4Address
from math import inf, isfinite
from typing import Any

from desim.errors import InputError

COORDINATOR = -1
FIRST = int(IPv4Address("10.0.0.0"))
MOST_LINKS = 1 << 22  # networks of four addresses in 10.0.0.0/8


@dataclass(frozen=True)
class Line:
    """One direction: packets of MTU 1500 with all headers pass at `rate`, `latency` s long.

    Args:
        latency: s from the last bit sent to the last bit received.
        rate: bit/s on the wire, IP and TCP headers included.
        queue: packets that may wait or be under way onto the wire; a packet more is dropped. inf:
            as many as come.
        buffer: bytes that may, as well.
        loss: probability that a packet is lost after it was sent, outside bursts.
        bursts: rate 1/s at which the link's state is drawn anew, the same one for both directions,
            the share of time in bursts, and the probability of a loss in them.
        jitter: largest extra delay in s, drawn uniformly for each packet; packets stay in order.
    """

    latency: float = 0.0
    rate: float = inf
    queue: float = inf
    buffer: float = inf
    loss: float = 0.0
    jitter: float = 0.0
    bursts: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"{name}: found {value:g}; allowed: {allowed}"
            for name, value, fits, allowed in [
                ("latency", self.latency, 0 <= self.latency < inf, "seconds, at least 0"),
                ("rate", self.rate, self.rate > 0, "bit/s, more than 0"),
                ("queue", self.queue, self.queue >= 1, "packets, at least 1"),
                ("buffer", self.buffer, self.buffer >= 1500, "bytes, at least 1500"),
                ("loss", self.loss, 0 <= self.loss <= 1, "a probability"),
                ("jitter", self.jitter, 0 <= self.jitter < inf, "seconds, at least 0"),
            ]
            if not fits
        ]
        if wrong:
            raise InputError([f"line: {one}" for one in wrong])

    def seconds(self, size: int) -> float:
        """Time of one packet of `size` bytes, headers included, on an idle line."""
        return self.latency + (8 * size / self.rate if isfinite(self.rate) else 0.0)


@dataclass(frozen=True)
class Link:
    """Two hosts and the lines between them: `there` from `one` to `other`, `back` the other way."""

    one: int
    other: int
    there: Line
    back: Line


@dataclass(frozen=True)
class Site:
    """Hosts behind one access line, which all that they send and receive shares.

    fair: packets of different hosts leave in turn (self-clocked fair queueing, Golestani 1994);
    otherwise as they come.
    """

    hosts: tuple[int, ...]
    up: Line
    down: Line
    fair: bool = False


@dataclass(frozen=True)
class Plan:
    """All links of a machine, at most one for a pair of hosts.

    Args:
        links: pairs of hosts and their lines.
        sites: access lines; a host is behind one at most.
        congestion: cubic, reno or bbr, for all connections.
        restarts: whether a window that was idle for longer than a timeout begins anew.
        seed: of what packets are lost and of jitter; each line draws by its own name.
    """

    links: tuple[Link, ...]
    sites: tuple[Site, ...] = ()
    congestion: str = "reno"
    seed: int = 0
    restarts: bool = True

    def __post_init__(self) -> None:
        pairs = [frozenset((link.one, link.other)) for link in self.links]
        behind = [host for site in self.sites for host in site.hosts]
        if any(len(pair) < 2 for pair in pairs) or len(set(pairs)) < len(pairs):
            raise InputError("links: each joins two hosts, and a pair has one at most")
        if len(pairs) > MOST_LINKS:
            raise InputError(f"links: found {len(pairs)}; allowed: at most {MOST_LINKS}")
        if len(set(behind)) < len(behind):
            raise InputError("sites: a host is behind one at most")
        if any(site.fair and site.up.latency + site.down.latency > 0.0 for site in self.sites):
            raise InputError("sites: whose hosts take turns have no latency; allowed: on links")

    @cached_property
    def hosts(self) -> tuple[int, ...]:
        """All hosts with a link, in order."""
        return tuple(sorted({host for link in self.links for host in (link.one, link.other)}))

    @cached_property
    def _numbers(self) -> dict[tuple[int, int], int]:
        ends = enumerate(self.links)
        return {pair: k for k, e in ends for pair in ((e.one, e.other), (e.other, e.one))}

    @cached_property
    def _behind(self) -> dict[int, int]:
        return {host: k for k, site in enumerate(self.sites) for host in site.hosts}

    def address(self, host: int, peer: int) -> str:
        """The IP address under which `host` reaches `peer`."""
        try:
            number = self._numbers[host, peer]
        except KeyError:
            raise InputError(f"links: none joins {host} and {peer}") from None
        return str(IPv4Address(FIRST + 4 * number + 1 + (self.links[number].other == peer)))

    def ends(self, host: int) -> list[tuple[int, int]]:
        """The links of a host: their numbers and the hosts at the other end."""
        return [(k, peer) for (one, peer), k in self._numbers.items() if one == host]

    def path(self, host: int, peer: int) -> list[tuple[str, Line]]:
        """The lines from host to peer in order, with their names."""
        link = self.links[self._numbers[host, peer]]
        away, home = self._behind.get(host), self._behind.get(peer)
        path = [(f"{host}>{peer}", link.there if link.one == host else link.back)]
        if away == home:
            return path
        if away is not None:
            path = [*path, (f"site {away}>", self.sites[away].up)]
        if home is not None:
            down = (f">site {home}", self.sites[home].down)
            path = [down, *path] if away is None else [*path, down]
        return path

    def as_json(self) -> dict[str, Any]:
        """All of it in numbers and words."""
        return asdict(self)

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> "Plan":
        """What `as_json` gave."""
        links = tuple(
            Link(one["one"], one["other"], _line(one["there"]), _line(one["back"]))
            for one in stored["links"]
        )
        sites = tuple(
            Site(tuple(one["hosts"]), _line(one["up"]), _line(one["down"]), one["fair"])
            for one in stored["sites"]
        )
        return cls(links, sites, stored["congestion"], stored["seed"], stored["restarts"])


def _line(stored: dict[str, Any]) -> Line:
    """What a Line was before it was stored, as JSON has no tuples."""
    bursts = stored["bursts"]
    return Line(**{**stored, "bursts": None if bursts is None else tuple(bursts)})
