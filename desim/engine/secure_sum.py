"""Sums that nobody sees the parts of, on the clock: SecAgg's four exchanges for each of a method's.

A method's program asks for replies once; here agents exchange keys, then shares, then they are sent
what the method sends and answer with numbers that are masked, and then those that are left unmask
the sum. Each exchange goes to those that answered the one before, and is collected as the policy
says. Where too few are left the round is void: the method hears of no reply. What messages are like
and how numbers are noised is in desim.privacy.sums; masks cancel exactly, so that none is drawn.

A sum is a row of the ledger, of agent -1, by the shares of noise that are in it; of a void round
one that reveals nothing. The calls of the other three exchanges carry no data.
"""

import math
from collections.abc import Callable, Generator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.engine.requests import COLLECT, Replies
from desim.engine.trusted import Trust, Trusted
from desim.errors import RunError
from desim.network.timeline.computations import speeds_into
from desim.privacy.ledger.ledger import Mechanism, View, plain
from desim.privacy.sums.lattice import Lattice, Law, finest
from desim.privacy.sums.protocol import EXCHANGES, Circle, Protocol
from desim.privacy.sums.shares import reach

if TYPE_CHECKING:
    from desim.engine.world import World

INPUT = EXCHANGES.index("input")  # the exchange of the method's own call
NOBODY = np.empty(0, np.int64)
Program = Callable[[Any], Generator[Any, Any, None]]
LAWS = {"ddgauss": Mechanism.LATTICE_SUM, "skellam": Mechanism.SKELLAM_SUM}


@dataclass(frozen=True)
class Secure(Trust):
    """What agents do that trust nobody with their numbers.

    protocol, bits, noising: of the sum and of the noise; planned: how many shares are to carry the
    noise that is asked for; most: how many agents a sum may hold; risk: at which it may wrap around
    in a round; gamma: distance of levels, None for the least that does not; dim: of a model.
    """

    protocol: Protocol = field(default=Protocol())
    bits: int = 24
    noising: Law = "ddgauss"
    planned: float = 1.0
    most: int = 1
    risk: float = 1e-6
    gamma: float | None = None
    dim: int = 1

    def feature(self, world: "World") -> Trusted:
        """What hangs on a coordinator's calls."""
        return Secured(world)

    @property
    def says(self) -> str:
        """Who is trusted with what, in words."""
        kind, law, lattice = self.protocol.kind, self.noising, self.lattice(self.dim)
        share = f"{law} shares of {lattice.sigma:.6g}, levels {lattice.gamma:.3g} apart"
        return f"secure-sum: {kind}, {self.bits} bits, {share}; clips replies to"

    def program(self, program: Program) -> Program:
        """The program of a coordinator with the exchanges in place of its calls."""
        return exchanged(program)

    def lattice(self, dim: int) -> Lattice:
        """How replies (dim,) become whole numbers; gamma inf where so many bits do not do."""
        sigma = self.deviation(1, self.clip) / math.sqrt(self.planned)
        return _lattice(
            Lattice(dim, self.clip, self.gamma or 0.0, sigma, self.bits, self.noising),
            self.most,
            self.risk,
        )

    def terms(self, round_: int, clip: float) -> tuple[int, int, float, float, float]:
        """As planned, with so many shares as are to carry the noise."""
        moved = 2.0 * reach(self.lattice(self.dim), math.ceil(self.planned), False)
        return self._row(moved, self.deviation(round_, clip))

    def summed(self, lattice: Lattice, shares: int) -> tuple[int, int, float, float, float]:
        """Terms of a sum with so many shares of noise; without any it is void."""
        if not shares:
            return self._row(0.0, 0.0)
        return self._row(2.0 * reach(lattice, shares, False), lattice.sigma * math.sqrt(shares))

    def _row(self, moved: float, scale: float) -> tuple[int, int, float, float, float]:
        return int(LAWS[self.noising]), int(View.PUBLIC), moved, scale, np.nan


@lru_cache(maxsize=256)
def _lattice(like: Lattice, most: int, risk: float) -> Lattice:
    """The lattice, with the least gamma for sums of `most` agents where it has none."""
    if like.gamma > 0.0:
        return like
    return replace(like, gamma=finest(like, most, risk) or math.inf)


class Desk:
    """A coordinator's `hub` whose calls wait until replies are asked for."""

    def __init__(self, hub: Any) -> None:
        self._hub = hub
        self._asked: dict[str, Any] | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._hub, name)

    def call(self, who: Int, job: Any, payload: Array, **named: Any) -> None:
        """Note the call; RuntimeError for a second one before replies are asked for."""
        if self._asked is not None:
            raise RuntimeError("found two calls for one sum; allowed: one before hub.collect")
        order = np.argsort(who)
        rows = payload if np.ndim(payload) == 1 else payload[order]
        self._asked = {"who": np.asarray(who)[order], "job": job, "payload": rows, **named}

    def asked(self) -> dict[str, Any] | None:
        """The call, which is forgotten."""
        found, self._asked = self._asked, None
        return found


def exchanged(program: Program) -> Program:
    """The program, each of whose calls becomes four exchanges."""

    def coordinator(hub: Any) -> Generator[Any, Any, None]:
        desk = Desk(hub)
        inner, answer = program(desk), None
        while True:
            try:
                request = inner.send(answer)
            except StopIteration:
                return
            asked = desk.asked()
            if asked is None or request is not COLLECT:
                answer = yield request
            else:
                answer = yield from _summing(hub, **asked)

    return coordinator


def _nothing(us: Any, payload: Array) -> Array:
    """The job of an exchange that carries keys or shares alone."""
    return payload


def _summing(
    hub: Any, who: Int, job: Any, payload: Array, work: Array, charge: Any = None,
    bits: int | Int | None = None, reply_bits: int | Int | None = None,
) -> Generator[Any, Any, Replies]:  # fmt: skip
    """The four exchanges of one sum; the replies that are in it, none where it is void."""
    own = next(one for one in hub.features if isinstance(one, Secured))
    own.opened(hub, who, np.shape(payload)[-1])
    silent = plain(hub.agents, View.COORDINATOR, 0.0)
    sent: Any = 64 * np.shape(payload)[-1] if bits is None else bits
    replies = Replies(NOBODY, np.empty((0, own.lattice.dim)), NOBODY, np.ones(0))
    nothing = replies
    for number in range(len(EXCHANGES)):
        left = own.left
        down, up, seconds = own.exchange(number)
        effort = own.gradients(who, hub.round, seconds)
        sizes: Any = {"bits": 8 * int(np.ceil(down)), "reply_bits": 8 * int(np.ceil(up))}
        if number == INPUT:
            rows = payload if np.ndim(payload) == 1 else payload[left]
            sizes["bits"] = sizes["bits"] + (sent if np.ndim(sent) == 0 else sent[left])
            hub.call(who[left], job, rows, work=work + effort, charge=charge, **sizes)
            replies = yield COLLECT
        else:
            zeros = np.zeros(1)
            hub.call(who[left], _nothing, zeros, work=effort, charge=silent, **sizes)
        heard = replies if number == INPUT else (yield COLLECT)
        if own.voided(hub, number, heard.who):
            replies = nothing
            break
    own.parts = replies.payload
    return replies


class Sum(NamedTuple):
    """Where a sum stands: who is asked, who shared secrets, and who is left, masks of these."""

    circle: Circle
    sharing: Mask
    left: Mask


class Secured(Trusted):
    """The sums of one play."""

    name = "secured"

    def __init__(self, world: "World") -> None:
        super().__init__(world)
        self.trust: Secure
        self.lattice: Lattice
        self.now: Sum | None = None
        self.came: Mask = np.zeros(0, bool)
        self.parts: Array | None = None  # what the method is to have the sum of

    def opened(self, hub: Any, who: Int, dim: int) -> None:
        """A sum of replies (dim,) of agents who (n,) begins."""
        if hub.exchange:
            text = f"found a second sum in round {hub.round} with trust: secure-sum"
            raise RunError(f"algorithm: {text}; allowed: one a round")
        self.lattice = self.trust.lattice(dim)
        left = np.ones(len(who), bool)
        circle = Circle(self.trust.protocol, self.world.settings.seed, hub.round, who)
        self.now = Sum(circle, left, left)

    @property
    def left(self) -> Mask:
        """Who of those that are asked (n,) has answered all exchanges."""
        assert self.now is not None
        return self.now.left

    def exchange(self, number: int) -> Any:
        """Bytes down and up of exchange `number`, and seconds (n,)."""
        assert self.now is not None
        circle, sharing, left = self.now
        return circle.exchange(number, left, sharing, self.lattice.width, self.trust.bits)

    def gradients(self, who: Int, round_: int, seconds: Array) -> Array:
        """Work (agents,) that takes agents who (n,) so many seconds (n,), slow devices longer.

        Of agents to whom gradients take no time nothing does.
        """
        settings = self.world.settings
        speed, work = np.empty(len(who)), np.zeros(settings.problem.agents)
        speeds_into(settings.speeds, who, np.full(len(who), round_), speed)
        paced = np.where(speed < np.inf, speed * settings.speeds.devices[0, who], 0.0)
        work[who] = seconds * paced
        return work

    def voided(self, hub: Any, number: int, who: Int) -> bool:
        """Whether the sum is void now that agents who (n,) have answered exchange `number`."""
        assert self.now is not None
        circle, sharing, _ = self.now
        left = circle.among(who)
        sharing = left if number < INPUT else sharing
        self.now = Sum(circle, sharing, left)
        if number == INPUT:
            self.came = left
        parts = circle.parts(left) if number == INPUT else 1
        if not circle.void(sharing, left) and parts == 1:
            return False
        here, asked = int(np.count_nonzero(left)), len(circle.who)
        text = f"{here} of {asked} agents have answered for {EXCHANGES[number]}"
        why = f"{circle.least} of {circle.degree + 1} shares make a secret known"
        if parts > 1:
            why = f"they are in {parts} parts of the circle, each of which would have its own sum"
        self.world.caution(f"privacy.secure: round {hub.round} is void: {text}, and {why}")
        return True

    def labour(self, hub: Any, who: Int) -> float:
        """Seconds to unmask a sum once those that answered its last exchange are known."""
        if self.now is None or hub.exchange != len(EXCHANGES):
            return 0.0
        circle, sharing, _ = self.now
        if circle.void(sharing, circle.among(who)):
            return 0.0
        return circle.unmasked(sharing, self.came, self.lattice.width, self.trust.bits)

    def replied(self, us: Any, reply: Array) -> Array:
        """What agents `us` answer (n, width): whole numbers with their noise, modulo 2^bits."""
        rounds = np.asarray(us.round)
        if int(us.address[0] - rounds[0]) >> 24 != INPUT:
            return reply
        lattice, seed = self.lattice, self.world.settings.seed
        if reply.shape[1] != lattice.dim:
            found = f"found replies of {reply.shape[1]} numbers to {lattice.dim}"
            raise RunError(f"algorithm: {found} with trust: secure-sum; allowed: as many")
        levels = lattice.levels(seed, us.who, rounds, reply)
        return lattice.wrapped(levels + lattice.noise(self.world.ledger.seed, us.who, rounds))

    def total(self, hub: Any, replies: Any) -> tuple[Array, float]:
        """The sum (dim,) of clipped replies with the shares of noise that came with them."""
        trust, lattice, shares = self.trust, self.lattice, len(replies.who)
        if self.parts is None or replies.payload is not self.parts:
            found = "found hub.total of other replies than hub.collect gave, with trust: secure-sum"
            raise RunError(f"algorithm: {found}; allowed: these, as they are")
        self.refuse_more(int(hub.round), replies.who)
        self.charge(hub, replies, trust.summed(lattice, shares))
        if not shares or self.parts.shape[1] != lattice.width:  # or it is played blind
            return np.zeros(lattice.dim), trust.number
        seed, whole = self.world.settings.seed, self.added(self.parts)
        return lattice.decoded(seed, int(hub.round), whole), trust.number

    def added(self, parts: Array) -> Array:
        """The sum (width,) of what agents have answered (n, width), modulo 2^bits."""
        return self.lattice.added(parts)
