"""A process moves into a network of its own, whose only devices are the ends of its links.

No `ip netns` and no names: a network ends with its processes, so nothing can be left behind. This
module loads no NumPy, for a process with threads cannot move.
"""

import ctypes
import fcntl
import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

from desim.deploy.lines import Plan
from desim.errors import InputError

NEW_USER, NEW_NET = 0x10000000, 0x40000000  # linux/sched.h
SET_INTERFACE, TUN, NO_HEADER = 0x400454CA, 0x0001, 0x1000  # linux/if_tun.h
UP, NO_ARP = 0x1, 0x80  # linux/if.h
SET_FLAGS, SET_ADDRESS, SET_PEER, SET_MASK = 0x8914, 0x8916, 0x8918, 0x891C
NEW_LINK, REQUEST_ACK, LENGTH_ATTRIBUTE = 16, 0x5, 13  # linux/rtnetlink.h
LENGTH = 10000  # packets between a device and the process that forwards: it drops, not the device
GO = b"all links are up"
INSTEAD = "links need Linux with network namespaces and /dev/net/tun; --loopback does without"


def refusal() -> str | None:
    """Why this machine does not let a process have links of its own; None where it does."""
    code = "from desim.deploy import namespaces; namespaces.attempt()"
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(one or "." for one in sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=here)
    return None if done.returncode == 0 else done.stdout.strip() or done.stderr.strip()


def attempt() -> None:
    """Move this process into a network with one device; say on stdout why that fails."""
    try:
        move("reno")
        os.close(device("try", "10.0.0.1", "10.0.0.2"))
    except InputError as error:
        print(error)
        sys.exit(1)


def enter(plan: Plan, host: int, door: socket.socket) -> None:
    """Move this process into the network of `host`, and hand its devices to the forwarder.

    It must have a single thread. `door` is what `Carrier.door(host)` gave, and has to stay open for
    as long as the host lives.

    Raises:
        InputError: the machine does not allow that; the message says what and why.
    """
    move(plan.congestion)
    for number, peer in plan.ends(host):
        end = device(f"link{number}", plan.address(peer, host), plan.address(host, peer))
        socket.send_fds(door, [struct.pack("!i", number)], [end])
        os.close(end)


def tune(end: socket.socket, congestion: str) -> None:
    """Set congestion control and no Nagle on a socket before it listens or connects.

    What a listener accepts has its settings; a socket that is switched later keeps the old pacing.
    """
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    try:
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
    except OSError as error:
        raise InputError(f"congestion control {congestion}: {error.strerror}") from None


def wait(door: socket.socket, seconds: float = 60.0) -> None:
    """Return once the links of all hosts are up; InputError when they are not in time."""
    door.settimeout(seconds)
    try:
        if door.recv(64) != GO:
            raise InputError("links: the process that forwards packets has ended")
    except TimeoutError:
        raise InputError(f"links: not all hosts came within {seconds:g} s") from None
    finally:
        door.settimeout(None)


def move(congestion: str) -> None:
    """Leave the machine's network for an empty one with this congestion control."""
    if sys.platform != "linux":
        raise InputError(f"this is {sys.platform}: {INSTEAD}")
    if len(os.listdir("/proc/self/task")) > 1:
        raise RuntimeError("a process with threads cannot move: enter before NumPy is imported")
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(NEW_NET):
        if libc.unshare(NEW_USER | NEW_NET):
            why = os.strerror(ctypes.get_errno())
            raise InputError(f"no network namespace for user {user} ({why}): {INSTEAD}")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    _set("ipv6/conf/default/disable_ipv6", "1", needed=False)
    _set("ipv4/tcp_no_metrics_save", "1")
    _set("ipv4/tcp_congestion_control", congestion, needed=False)  # CUBIC: by socket alone
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as inet:
        _ioctl(inet.fileno(), SET_FLAGS, struct.pack("16sh22x", b"lo", UP), "lo")


def device(name: str, own: str, peer: str) -> int:
    """The descriptor of a new tun device, up, under the address `own`, that leads to `peer`."""
    try:
        end = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise InputError(f"/dev/net/tun: {error.strerror}: {INSTEAD}") from None
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


def _ioctl(descriptor: int, request: int, argument: bytes, name: str) -> None:
    try:
        fcntl.ioctl(descriptor, request, argument)
    except OSError as error:
        raise InputError(f"device {name}: {error.strerror}: {INSTEAD}") from None


def _set(key: str, value: str, needed: bool = True) -> None:
    """Set net.KEY of this network; one that has the value already need not be writable."""
    path = Path("/proc/sys/net", key)
    try:
        if path.read_text().strip() != value:
            path.write_text(value)
    except OSError as error:
        if needed:
            found = f"net.{key.replace('/', '.')} cannot be set to {value}"
            raise InputError(f"{found} ({error.strerror}): {INSTEAD}") from None
