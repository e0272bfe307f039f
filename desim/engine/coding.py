"""Where messages are coded: replies and what agents are sent, and a graph's messages.

A coordinator hears of what an agent codes (m is the reply, C the contraction, Q unbiased):
    memory none    Q(m), or C(m) with top-k
    memory error   C(m + e) with e <- m + e - C(m + e), e at the agent: Stich, Cordonnier, Jaggi
                   2018 (arXiv 1809.07599), Algorithm 1; Karimireddy et al. 2019 (arXiv 1901.09847)
    memory known   h <- h + C(m - h), h at both ends: Richtarik, Sokolov, Fatkhullin 2021 (arXiv
                   2106.05203), EF21's update of g_i, there of gradients
What agents are sent is w <- w + C(x - w), w at both ends, an own one for each agent: Gruntkowska,
Tyurin, Richtarik 2022 (arXiv 2209.15218), EF21-P's update of w. All memories begin at 0. A call
whose reply is not used changes no memory, as it changes nothing else of an agent's state.
"""

from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.network.conditions.codec import Codec
from desim.shapes import refuse, rows_given

OWN = 1  # step of the draws' addresses; methods with a codec of their own have 0
NOBODY = np.empty(0, np.int64)
MEMORY = "codec_memory"  # the agents' state e or h


def memories(world: Any, agents: int) -> dict[str, Array]:
    """The state (agents, dim) that agents need to code their replies, by name."""
    settings = world.settings
    if settings.codecs.up.memory == "none":
        return {}
    return {MEMORY: np.zeros((agents, settings.problem.dim))}


def reference(settings: Any, agents: int) -> Array:
    """What agents (agents, dim) have been sent at the start: 0 where differences are coded."""
    return np.zeros((agents, settings.problem.dim) if settings.codecs.down.lossy else (0, 0))


def sizes_coded(settings: Any, size: int, bits: Any, reply_bits: Any) -> tuple[Any, Any]:
    """Bits of a call of so many numbers and of its reply: the codecs', where there are any."""
    codecs = settings.codecs
    if codecs.plain:
        return bits, reply_bits
    for name, given in (("bits", bits), ("reply_bits", reply_bits)):
        if given is not None:
            refuse(
                f"hub.call: {name}", given, "none with a codec, which says how long messages are"
            )
    return codecs.down.bits(size), codecs.up.bits(size)


def replied(us: Any, world: Any, reply: Array) -> Array:
    """What a coordinator hears of the replies (n, dim) of agents `us`."""
    codec: Codec = world.settings.codecs.up
    seed = world.settings.seed
    place = {"agent": us.who, "round": us.address, "step": OWN}
    if codec.memory == "none":
        return codec.coded(seed, reply, True, **place)
    rows_given(
        "a reply that is coded with a memory", reply, len(us.who), world.settings.problem.dim
    )
    before = getattr(us, MEMORY)
    if codec.memory == "known":
        heard = before + codec.coded(seed, reply - before, False, **place)
        setattr(us, MEMORY, heard)
        return np.asarray(heard)
    whole = reply + before
    heard = codec.coded(seed, whole, False, **place)
    setattr(us, MEMORY, whole - heard)
    return heard


def told(hub: Any, who: Int, payload: Array) -> Array:
    """What agents who (n,) hear of a payload, (p,) or (n, p), that a coordinator sends."""
    settings = hub.world.settings
    codec: Codec = settings.codecs.down
    if not codec.lossy:
        rows = codec.coded(settings.seed, np.atleast_2d(payload), False)
        return rows if payload.ndim == 2 else rows[0]
    if payload.shape[-1] != (dim := settings.problem.dim):
        refuse("hub.call: payload", payload, f"{dim} numbers with a lossy codec of the downlink")
    address = hub.round + (hub.exchange << 24)
    place = {"peer": who, "round": address, "step": OWN}
    change = payload - hub.reference[who]
    heard = hub.reference[who] + codec.coded(settings.seed, change, False, **place)
    hub.reference[who] = heard
    return np.asarray(heard)


def news(hub: Any, payload: Array) -> Array:
    """What agents hear of news (p,) beside their calls."""
    if hub.world.settings.codecs.down.lossy:
        raise ValueError("hub.tell: found with a lossy codec of the downlink; allowed: hub.call")
    return told(hub, NOBODY, payload)


class Coding:
    """The verb of a graph's agents that codes what they send."""

    who: Int
    round: Int
    _world: Any
    _codings: tuple[int, int] = (0, 0)  # the round of the latest one, and its number there

    def coded(self, value: Array) -> Array:
        """Return Q(value) (n, dim), the scenario's codec as a contraction: what `send` takes.

        Every neighbour reads the same. The method remembers what Q leaves out. Without a codec it
        is the value.
        """
        self._world.outside("us.coded")
        settings = self._world.settings
        value = rows_given("us.coded: value", value, len(self.who))
        now, (before, number) = int(self.round[0]), self._codings
        number = number + 1 if now == before else 0
        place = {"agent": self.who, "round": self.round, "step": OWN + number}
        coded = settings.codecs.up.coded(settings.seed, value, False, **place)
        self.__dict__.update(_coded=coded, _codings=(now, number))
        return np.asarray(coded)


def bits_of(us: Any, payload: Array, bits: Any) -> Any:
    """Bits of us.send's messages where the method says none; ValueError for what is not coded."""
    codec = us._world.settings.codecs.up
    if codec.kind == "none":
        return 64 * payload.shape[1] if bits is None else bits
    if bits is not None:
        refuse("us.send: bits", bits, "none with a codec, which says how long messages are")
    if payload is not us.__dict__.get("_coded"):
        raise ValueError("us.send: found a payload that is not coded; allowed: us.coded(value)")
    return codec.bits(payload.shape[1])
