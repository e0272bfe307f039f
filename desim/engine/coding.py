"""Where a coordinator's messages are coded: replies, and what agents are sent.

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
from desim.engine.settings import Settings
from desim.engine.signals import Feature
from desim.memory import Tree, recall
from desim.problem.kernels import codecs
from desim.shapes import refuse, rows_given

MEMORY = "codec_memory"  # the agents' state e or h


class Coding(Feature):
    """The codecs of one play; reference (agents, dim): what agents have been sent, if it counts."""

    name = "coding"

    def __init__(self, settings: Settings) -> None:
        self.up, self.down = settings.codecs
        self.seed, self.shape = settings.seed, (settings.problem.agents, settings.problem.dim)
        self.reference = np.zeros(self.shape if self.down.lossy else (0, 0))

    def state(self) -> dict[str, Array]:
        """What agents need to code their replies."""
        return {} if self.up.memory == "none" else {MEMORY: np.zeros(self.shape)}

    def sized(self, size: int, bits: Any, reply_bits: Any) -> tuple[int, int]:
        """The codecs' bits."""
        for name, number in (("bits", bits), ("reply_bits", reply_bits)):
            if number is not None:
                allowed = "none with a codec, which says how long messages are"
                refuse(f"hub.call: {name}", number, allowed)
        return self.down.bits(size), self.up.bits(size)

    def calling(self, hub: Any, who: Int, payload: Array) -> tuple[Int, Array]:
        """What agents who (n,) hear of a payload, (p,) or (n, p)."""
        if not self.down.lossy:
            return who, self._rounded(payload)
        if payload.shape[-1] != (dim := self.shape[1]):
            allowed = f"{dim} numbers with a lossy codec of the downlink"
            refuse("hub.call: payload", payload, allowed)
        place = {"peer": who, "round": hub.round + (hub.exchange << 24), "step": codecs.OWN}
        change = payload - self.reference[who]
        self.reference[who] += self.down.coded(self.seed, change, False, **place)
        return who, self.reference[who]

    def news(self, payload: Array) -> Array:
        """What agents hear of news (p,)."""
        if self.down.lossy:
            raise ValueError(
                "hub.tell: found with a lossy codec of the downlink; allowed: hub.call"
            )
        return self._rounded(payload)

    def _rounded(self, payload: Array) -> Array:
        """A payload (p,) or (n, p) through a codec that leaves out digits alone."""
        return self.down.coded(self.seed, payload, False)

    def replied(self, us: Any, reply: Array) -> Array:
        """What a coordinator hears of the replies (n, dim) of agents `us`."""
        codec, place = self.up, {"agent": us.who, "round": us.address, "step": codecs.OWN}
        if codec.memory == "none":
            return codec.coded(self.seed, reply, True, **place)
        rows_given("a reply that is coded with a memory", reply, len(us.who), self.shape[1])
        before = getattr(us, MEMORY)
        if codec.memory == "known":
            heard = before + codec.coded(self.seed, reply - before, False, **place)
            setattr(us, MEMORY, heard)
            return np.asarray(heard)
        whole = reply + before
        heard = codec.coded(self.seed, whole, False, **place)
        setattr(us, MEMORY, whole - heard)
        return heard

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return {"reference": self.reference}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        recall(self, tree, "reference")
