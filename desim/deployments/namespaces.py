"""Networks without names, one for each host, whose only devices are the ends of its links.

One process makes them all and hands out sockets that stay in them, so that hosts need no rights
and may be any processes. A network ends with those who hold its sockets: nothing is left behind.
"""

import ctypes
import fcntl
import os
import socket
import struct
import sys
from functools import cache
from pathlib import Path

from desim.deployments.lines import Plan
from desim.errors import InputError

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
