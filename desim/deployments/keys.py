"""Keys of the measured links: 8 bytes for each pair of nodes, which no third node has.

Only the coordinator can make them all. A frame bears the key of the node that it says it is from
and of the one that reads it, so nobody can speak for somebody else.
"""

import secrets
import struct
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from desim.deployments.frames import COORDINATOR

SIZE = 8  # bytes
PAIR = struct.Struct("!qq")


class Keys:
    """All keys of one run, made from what its coordinator alone knows."""

    def __init__(self) -> None:
        self._root = secrets.token_bytes(32)

    def between(self, one: int, other: int) -> bytes:
        """The key of two nodes, agents or -1 for the coordinator."""
        pair = PAIR.pack(min(one, other), max(one, other))
        return blake2b(pair, digest_size=SIZE, key=self._root).digest()

    def table(self, node: int, agents: int) -> NDArray[np.uint8]:
        """The keys (agents + 1, SIZE) of a node with each agent, and last with the coordinator."""
        with_each = b"".join(self.between(node, other) for other in (*range(agents), -1))
        return np.frombuffer(with_each, np.uint8).reshape(agents + 1, SIZE)


def by_source(table: NDArray[np.uint8], node: int) -> dict[int, bytes]:
    """A table's keys by the other node as frames name it; a node has none with itself."""
    keys = {i: row.tobytes() for i, row in enumerate(table[:-1])} | {
        COORDINATOR: table[-1].tobytes()
    }
    keys.pop(node & COORDINATOR)
    return keys
