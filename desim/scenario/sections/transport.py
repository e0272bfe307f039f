"""What carries messages on a link: nothing that takes time, or TCP as Linux speaks it."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from desim.fields import Flag, Form, Strict
from desim.fields.numbers import counted, sized, wholes

LONGEST = 1 << 15  # segments under way at once: what a kernel keeps of each is in memory


class Tcp(Strict):
    """Connections of TCP. A connection serves one direction and remembers its window."""

    examples = {
        "congestion": "reno",
        "connection": "new",
        "initial_window": 4,
        "segment": 1400,
        "header": 40,
        "queue": 100,
        "buffer": "128 kB",
    }

    congestion: Literal["cubic", "reno", "bbr"] = "cubic"
    """how the window grows: as CUBIC (Linux's default), Reno, or by BBR's model of the path"""
    connection: Literal["kept", "new"] = "kept"
    """whether one connection is kept for the run, open since before it, or each message opens its
    own, which takes a round trip more"""
    initial_window: Annotated[int, *wholes(1, 1000)] = 10
    """segments that a connection sends before it hears of the first (RFC 6928)"""
    segment: Annotated[int, *wholes(1, 65_495)] = 1448
    """bytes of a message in one segment"""
    header: Annotated[int, *wholes(0, 1000)] = 52
    """bytes of headers that travel with a segment: IPv4, and TCP with timestamps"""
    idle_restart: Flag = True
    """whether a window that was idle for longer than a timeout begins anew (RFC 2861); BBR: no"""
    queue: Annotated[float, *counted("packets, at least 1, or inf")] = math.inf
    """packets that may wait for the link; what finds it full is lost"""
    buffer: Annotated[float, *sized("3 MB")] = 3e6
    """bytes under way at most: what a receiver's window grows to"""

    @property
    def most(self) -> int:
        """Segments under way at most."""
        return max(1, min(LONGEST, int(self.buffer // self.segment)))


class Transport(Form):
    """What carries messages: ideal, tcp, or tcp with its parameters."""

    words = ("ideal", "tcp")
    examples = {"tcp": {"congestion": "reno"}}

    tcp: Tcp | None = None
    """connections of TCP: {congestion: cubic, connection: kept, ...}"""

    @classmethod
    def mapping(cls, data: object) -> Mapping[str, Any]:
        """What was written; the word tcp stands for its defaults."""
        return super().mapping({"tcp": {}} if data == "tcp" else data)


IDEAL = Transport.of("ideal")
