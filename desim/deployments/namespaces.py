"""Networks without names, one for each host of one machine, and the links that are to join them.

One process makes them all and hands out sockets that stay in them, so that hosts need no rights and
may be any processes. A network ends with those who hold its sockets: nothing is left behind. A host
is a number, -1 the coordinator and 0, 1, ... the agents. A packet passes the line of its own
direction; to or from a host behind a site it passes the site's line, too, on the host's far side.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from ipaddress import IPv4Address
from math import inf, isfinite
from pathlib import Path
from typing import Any

from desim.errors import InputError

# Links: what each direction does to packets, and who reaches whom.

COORDINATOR = -1
FIRST = int(IPv4Address("10.0.0.0"))
MAX_LINKS = 1 << 22  # networks of four addresses in 10.0.0.0/8


@dataclass(frozen=True)
class Line:
    """One direction: packets of MTU 1500 with all headers pass at `rate`, `latency` s long.

    Args:
        latency: s from the last bit sent to the last bit received.
        rate: bit/s on the wire, IP and TCP headers included.
        queue: packets that may wait or be under way onto the wire; a packet more is dropped. inf:
            as many as come.
        loss: probability that a packet is lost after it was sent, outside bursts.
        bursts: rate 1/s at which the link's state is drawn anew, the same one for both directions,
            the share of time in bursts, and the probability of a loss in them.
    """

    latency: float = 0.0
    rate: float = inf
    queue: float = inf
    loss: float = 0.0
    bursts: tuple[float, float, float] | None = None

    def __post_init__(self) -> None:
        wrong = [
            f"{name}: found {value:g}; allowed: {allowed}"
            for name, value, fits, allowed in [
                ("latency", self.latency, 0 <= self.latency < inf, "seconds, at least 0"),
                ("rate", self.rate, self.rate > 0, "bit/s, more than 0"),
                ("queue", self.queue, self.queue >= 1, "packets, at least 1"),
                ("loss", self.loss, 0 <= self.loss <= 1, "a probability"),
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
        seed: of what packets are lost; each line draws by its own name.
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
        if len(pairs) > MAX_LINKS:
            raise InputError(f"links: found {len(pairs)}; allowed: at most {MAX_LINKS}")
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
            Link(one["one"], one["other"], _line_of(one["there"]), _line_of(one["back"]))
            for one in stored["links"]
        )
        sites = tuple(
            Site(tuple(one["hosts"]), _line_of(one["up"]), _line_of(one["down"]), one["fair"])
            for one in stored["sites"]
        )
        return cls(links, sites, stored["congestion"], stored["seed"], stored["restarts"])


def _line_of(stored: dict[str, Any]) -> Line:
    """What a Line was before it was stored, as JSON has no tuples."""
    bursts = stored["bursts"]
    return Line(**{**stored, "bursts": None if bursts is None else tuple(bursts)})


# Networks: the kernel's numbers for them, and the sockets in them.

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # linux/sched.h
SET_INTERFACE, TUN, NO_HEADER = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
UP, NO_ARP = 0x1, 0x80  # linux/if.h
SET_FLAGS, SET_ADDRESS, SET_PEER, SET_MASK = 0x8914, 0x8916, 0x8918, 0x891C
NEW_LINK, REQUEST_ACK, LENGTH_ATTRIBUTE = 16, 0x5, 13  # linux/rtnetlink.h
DEVICES = "/dev/net/tun"
LENGTH = 10000  # packets between a device and the process that forwards: it drops, not the device
BUFFERS = {  # bytes: at least, at first, at most; the window is 158 / 256 of what is received into
    "ipv4/tcp_rmem": "4096 131072 4864000",
    "ipv4/tcp_wmem": "4096 33554432 33554432",
}
STAMPED = "2"  # segments bear the ms of the monotonic clock at which they were made
INSTEAD = "links need Linux with network namespaces and /dev/net/tun; --loopback does without"


class Network:
    """A network of its own for one host of a plan: devices that lead to its peers, and sockets.

    Any number of them can be held by one process, which must have a single thread. What is made
    here stays in this network, whoever holds it later.

    Args:
        devices: descriptors of the ends of the host's links, by number of the link.
    """

    def __init__(self, plan: Plan, host: int):
        _unshare(NEW_NET)
        self._congestion = plan.congestion
        self._descriptor = os.open("/proc/self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        _set("ipv6/conf/default/disable_ipv6", "1", needed=False)
        _set("ipv4/tcp_no_metrics_save", "1")
        for key, sizes in BUFFERS.items():
            _set(key, sizes, needed=False)
        self.stamped = _set("ipv4/tcp_timestamps", STAMPED, needed=False)
        if not plan.restarts:
            _set("ipv4/tcp_slow_start_after_idle", "0")
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inet:
            _ioctl(inet.fileno(), SET_FLAGS, struct.pack("16sh22x", b"lo", UP), "lo")
        self.devices = {
            number: device(f"link{number}", plan.address(peer, host), plan.address(host, peer))
            for number, peer in plan.ends(host)
        }

    def socket(self) -> socket.socket:
        """A new TCP socket of this network, with the plan's congestion control, without Nagle.

        What a listener accepts has its settings; switched later a connection keeps its pacing.
        """
        if _libc().setns(self._descriptor, NEW_NET):
            raise InputError(f"network namespace: {os.strerror(ctypes.get_errno())}: {INSTEAD}")
        end = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, self._congestion.encode())
        except OSError as error:
            raise InputError(f"congestion control {self._congestion}: {error.strerror}") from None
        return end


def leave() -> None:
    """Leave the machine's network; whoever is not root becomes it in a user namespace of its own.

    Raises:
        InputError: the machine does not allow that; the message says what and why.
    """
    if sys.platform != "linux":
        raise InputError(f"this is {sys.platform}: {INSTEAD}")
    user, group = os.geteuid(), os.getegid()
    try:
        _unshare(NEW_NET)
    except InputError:
        _unshare(NEW_USER | NEW_NET)
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")


def device(name: str, own: str, peer: str) -> int:
    """The descriptor of a new tun device, up, under the address `own`, that leads to `peer`."""
    try:
        end = os.open(DEVICES, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"{DEVICES}: {error.strerror}: {INSTEAD}") from None
    word = name.encode()
    _ioctl(end, SET_INTERFACE, struct.pack("16sH22x", word, TUN | NO_HEADER), name)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inet:
        at = inet.fileno()
        addresses = (SET_ADDRESS, own), (SET_PEER, peer), (SET_MASK, "255.255.255.255")
        for request, address in addresses:
            packed = struct.pack("16sHH4s16x", word, 2, 0, socket.inet_aton(address))
            _ioctl(at, request, packed, name)
        _ioctl(at, SET_FLAGS, struct.pack("16sh22x", word, UP | NO_ARP), name)
    _lengthen(name)
    return end


def _lengthen(name: str) -> None:
    """Let the device hold `LENGTH` packets: by netlink, for the ioctl asks for the real root."""
    body = struct.pack("BxHiII", 0, 0, socket.if_nametoindex(name), 0, 0)
    body += struct.pack("HHI", 8, LENGTH_ATTRIBUTE, LENGTH)
    head = struct.pack("IHHII", 16 + len(body), NEW_LINK, REQUEST_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as route:
        route.sendall(head + body)
        (error,) = struct.unpack_from("i", route.recv(4096), 16)
    if error:
        raise InputError(f"device {name}: {os.strerror(-error)}: {INSTEAD}")


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _unshare(flags: int) -> None:
    if _libc().unshare(flags):
        why = os.strerror(ctypes.get_errno())
        raise InputError(f"no network namespace for user {os.geteuid()} ({why}): {INSTEAD}")


def _ioctl(descriptor: int, request: int, argument: bytes, name: str) -> None:
    try:
        fcntl.ioctl(descriptor, request, argument)
    except OSError as error:
        raise InputError(f"device {name}: {error.strerror}: {INSTEAD}") from None


def _set(key: str, value: str, needed: bool = True) -> bool:
    """Set net.KEY of this network, unless it has the value; whether it has it now."""
    path = Path("/proc/sys/net", key)
    try:
        if path.read_text().strip() != value:
            path.write_text(value)
    except OSError as error:
        if needed:
            found = f"net.{key.replace('/', '.')} cannot be set to {value}"
            raise InputError(f"{found} ({error.strerror}): {INSTEAD}") from None
        return False
    return True
