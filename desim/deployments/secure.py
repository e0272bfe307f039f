"""Secure sums of a deployment: the exchanges of `engine.secure_sum` with keys and masks in them.

The program of the coordinator is that of the simulation, and so are who is asked, how long messages
are and when a round is void. Frames of the links carry what `masking` makes: the coordinator's
process has public keys, encrypted shares and masked numbers, and in the end the shares that it asks
for. Agents take for secrets what they take, after their jobs; devices that the scenario has slower
than this machine wait as much longer.
"""

import math
import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.client import Client, Letter
from desim.deployments.formats import CALL, REPLY, Declined, Frame, Message, body_of
from desim.deployments.masking import (
    INPUT,
    KEYS,
    UNMASKING,
    Member,
    Relay,
    Words,
    rehearse,
    unpacked,
)
from desim.deployments.station import Sent, Station
from desim.engine import secure_sum
from desim.engine.settings import Settings
from desim.errors import RunError

SILENT = np.zeros(1)  # what stands for the reply to an exchange that is not for the method


def masking(settings: Settings) -> Settings:
    """The settings of what is played by processes; the same where no sum is a secret."""
    trust = settings.trust
    if not isinstance(trust, secure_sum.Secure):
        return settings
    own = {one.name: getattr(trust, one.name) for one in fields(trust)}
    return replace(settings, trust=Masking(**own))


@dataclass(frozen=True)
class Masking(secure_sum.Secure):
    """See Secure; station, client: classes of those that play."""

    def feature(self, world: Any) -> "Masked":
        """What hangs on a coordinator's calls."""
        return Masked(world)

    @property
    def station(self) -> type[Station]:
        """Of the coordinator."""
        return MaskedStation

    @property
    def client(self) -> type[Client]:
        """Of an agent."""
        return MaskedClient


class Masked(secure_sum.Secured):
    """The sums of one play, of which this process, the coordinator's, sees masked numbers alone.

    In an agent's process: how its numbers become whole ones.
    """

    def __init__(self, world: Any) -> None:
        super().__init__(world)
        self.relay: Relay | None = None
        self.down = 0  # bytes of the letter of the present exchange
        self.masks: Words | None = None

    def opened(self, hub: Any, who: Int, dim: int) -> None:
        """See Secured."""
        super().opened(hub, who, dim)
        assert self.now is not None
        self.relay, self.masks = Relay(self.now.circle, self.trust.bits), None

    def exchange(self, number: int) -> Any:
        """Bytes down and up; real secrets take the time that they take."""
        counted = super().exchange(number)
        self.down = math.ceil(counted.down)
        return counted._replace(seconds=np.zeros_like(counted.seconds))

    def letter(self, number: int, agent: int) -> bytes:
        """What an agent is sent in an exchange, filled up to the bytes that are counted."""
        assert self.relay is not None
        assert self.now is not None
        _, sharing, left = self.now
        return self.relay.letter(number, agent, left, sharing).ljust(self.down, b"\0")

    def heard(self, number: int, agent: int, body: bytes) -> Array:
        """What the method's program is to have of an answer: the numbers, masked."""
        assert self.relay is not None
        if number != INPUT:
            self.relay.hear(number, agent, body)
            return SILENT
        return unpacked(body, self.lattice.width, self.trust.bits).astype(float)

    def voided(self, hub: Any, number: int, who: Int) -> bool:
        """See Secured; where the last exchange has told enough, masks are made."""
        void, began = super().voided(hub, number, who), hub.now
        if number == UNMASKING and not void:
            assert self.relay is not None
            assert self.now is not None
            self.masks = self.relay.masks(self.lattice.width, self.now.sharing, self.came)
            hub.worked(who, began)
        return void

    def added(self, parts: Array) -> Array:
        """The sum (width,) without masks."""
        total = super().added(parts)
        return total if self.masks is None else self.lattice.wrapped(total - self.masks)

    def replied(self, us: Any, reply: Array) -> Array:
        """See Secured; an agent's process has a sum for each call."""
        self.lattice = self.trust.lattice(reply.shape[1])
        return super().replied(us, reply)


class MaskedStation(Station):
    """See Station; what its messages carry is the relay's."""

    letter = b""  # of the message that is being made

    @property
    def secured(self) -> Masked:
        """The sums of its hub."""
        return next(one for one in self.hub.features if isinstance(one, Masked))

    def _job(self, hub: Any, job: Any) -> Any:
        return super()._job(hub, job) if hub.exchange == INPUT else ({}, {})

    def _order(self, kind: int, payload: Array, said: Any, arrays: Any) -> tuple[int, bytes]:
        sent, self.letter = self.sent[self.number], b""
        if kind == CALL:
            own = self.secured
            assert own.now is not None
            self.letter = own.letter(sent.exchange, sent.agent)
            said |= {"sealed": len(self.letter), "asked": len(own.now.circle.who)}
            payload = payload if sent.exchange == INPUT else np.empty(0)
        return super()._order(kind, payload, said, arrays)

    def _body(self, payload: Array, size: int) -> tuple[bytes, bool]:
        body, inside = body_of(payload, size - len(self.letter))
        return self.letter + body, inside

    @staticmethod
    def _fits(frame: Frame, sent: Sent) -> bool:
        return frame.kind == REPLY and frame.inside and len(frame.body) == sent.up

    def _values(self, i: int) -> Array:
        sent = self.sent[self.latest[i]]
        try:
            return self.secured.heard(sent.exchange, i, sent.body)
        except ValueError as error:
            raise RunError(f"privacy.secure: an answer of agent {i}: {error}") from error

    def owed(self, who: Int) -> list[tuple[int, int]]:
        """See Station; other exchanges change no state."""
        return [one for one in super().owed(who) if self.sent[one[1]].exchange == INPUT]

    def take_over(self, number: int, agent: int, report: Message) -> None:
        """See Station."""
        if self.sent[number].exchange == INPUT:
            super().take_over(number, agent, report)


class MaskedClient(Client):
    """See Client; it has secrets of its own for each sum, which nobody else is sent."""

    member: Member | None = None
    latest = 0  # round of the latest sum
    answer = b""

    def __init__(self, place: Any, world: Any, method: Any, asked: Any = None) -> None:
        super().__init__(place, world, method, asked)
        trust = world.settings.trust
        rehearse(trust.lattice(trust.dim).width, trust.bits)

    def _reply(self, letter: Letter) -> Array:
        fields_, frame = letter.order.fields, letter.frame
        if int(fields_["exchange"]) != INPUT:
            return SILENT
        rest = frame._replace(body=frame.body[int(fields_["sealed"]) :])
        return super()._reply(replace(letter, frame=rest))

    def _send(
        self, letter: Letter, reply: Array, state: Any, begin: float, late: float
    ) -> None:  # fmt: skip
        began = time.process_time()
        self.answer = self._answer(letter, reply)
        self._slow(time.process_time() - began)
        if int(letter.order.fields["exchange"]) != INPUT:
            state, late = {}, 0.0
        super()._send(letter, reply, state, begin, late)

    def _answer(self, letter: Letter, reply: Array) -> bytes:
        said, round_ = letter.order.fields, letter.frame.round_
        trust, number = self.world.settings.trust, int(said["exchange"])
        assert isinstance(trust, secure_sum.Secure)
        if number == KEYS:
            if not self.latest < round_ <= self.world.settings.rounds:
                raise Declined(f"a call: found a sum of round {round_} after {self.latest}")
            self.latest = round_
            self.member = Member(self.place.agent, round_, trust.protocol, trust.bits)
        member = self.member
        if member is None or member.round != round_:
            raise Declined(f"a call: found exchange {number} of a sum of round {round_}, not begun")
        sealed = letter.frame.body[: int(said["sealed"])]
        try:
            return member.answer(number, sealed, int(said["asked"]), reply)
        except ValueError as error:  # of a key that is none
            raise Declined(f"a call of round {round_}: {error}") from error

    def _slow(self, seconds: float) -> None:
        """Let pass what a slower device takes longer for what has taken so many s."""
        factor = float(self.world.settings.speeds.devices[0, self.place.agent])
        until = self.place.now + seconds * (factor - 1.0)
        while self.place.now < until:
            self.place.wait(until)

    def _body(self, reply: Array, size: int) -> tuple[bytes, bool]:
        return self.answer.ljust(size, b"\0"), True
