"""The coordinator's station on sockets: it posts calls, counts replies and writes rows."""

import time
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.deployments.accounts import Accounts, Sent
from desim.deployments.fleet import Fleet
from desim.deployments.frames import (
    CALL,
    COORDINATOR,
    POST,
    REPLY,
    Frame,
    body_of,
    size_of,
    values_of,
)
from desim.deployments.jobs import named, terms_for
from desim.deployments.real import RealWorld
from desim.deployments.wire import Message, Torn
from desim.engine.patience import at
from desim.errors import RunError
from desim.network.timeline.record import Kind, release_id

STEP = 0.1  # s after which the user is told how far the run is, and heard
SYNC = 1.0  # s between two questions whether all reports until then are in


class Station(Accounts):
    """How a coordinator's calls are carried out by processes that speak TCP."""

    ahead = False

    def __init__(self, world: RealWorld, fleet: Fleet) -> None:
        super().__init__(world, fleet)
        agents = world.settings.problem.agents
        self.number = 0
        self.orders: list[dict[str, Any]] = [{} for _ in range(agents)]  # the latest of each
        self.ordered = 0
        self.arrived: set[int] = set()
        self.after: set[int] = set()  # those that came after a deadline had passed
        self.lost: set[int] = set()
        self.told: list[list[tuple[dict[str, Any], Array, dict[str, Any]]]] = [
            [] for _ in range(agents)
        ]  # jobs on news that an agent has not been sent yet
        self.hub: Any = None
        self.closed: float | None = None  # when s the collection closed that is being accepted
        self.opened: float | None = (
            None  # when s the first call since the latest collection was made
        )
        self._came = 0.0  # when s the latest reply did
        self._synced = np.zeros(agents)
        self._asked = 0.0
        fleet.told, fleet.heard, fleet.buried = self._report, self._receive, self._bury

    @property
    def now(self) -> float:
        """Time of the run, s; while a collection is accepted, that at which it closed."""
        return self.fleet.now if self.closed is None else self.closed

    def call(self, hub: Any, who: Int, bits: int, reply_bits: int, work: Array) -> None:
        """Post a call to agents who (n,): orders first, then all frames one right after another."""
        self.fleet.begin()
        now, frames, world = self.now, [], self.world
        if self.opened is None:
            self.opened = now
        mechanism, view, amounts = hub.terms.compiled
        given = hub.assignments.given[hub.assignments.number]
        job, bound = named(given.job, hub.method, "bound ")
        self.fleet.allow(size_of(reply_bits))
        for i in who.tolist():
            world.log.add(Kind.ACTIVATE, 0, i, hub.round, now)
            hub.calls.pending[i], hub.calls.round_[i] = 1, hub.round
            hub.calls.due[i] = np.inf
            self.arrived.discard(i)
            self.after.discard(i)
            self.lost.discard(i)
            if i in self.fleet.dead:
                self.lost.add(i)
                continue
            price = np.zeros(3) if hub.spending is None else hub.spending.prices[:, i].copy()
            terms = mechanism, view, *amounts[:, i].tolist()
            down, up = size_of(bits), size_of(reply_bits)
            before, sent = self.latest[i], Sent(i, hub.round, hub.exchange, down, up, now)
            sent.terms, sent.price = terms, price
            self.latest[i] = self._next(sent)
            self.forget(before)
            order = {"job": job, "exchange": hub.exchange, "work": float(work[i]), "size": up}
            order["terms"] = terms_for(hub.terms, i)
            frames.append(self._order(CALL, hub.payloads.of(np.array([i]))[0], order, dict(bound)))
            if world.filter is not None:
                world.filter.spend(i, price)
        self._let_go(frames)

    def post(self, hub: Any, who: Int, bits: int) -> None:
        """Send agents who (n,) a message that asks for no reply: news for their jobs."""
        frames = []
        for i in who.tolist():
            if i not in self.fleet.dead:
                self._next(Sent(i, hub.round, hub.exchange, size_of(bits), -1, self.now))
                frames.append(self._order(POST, np.empty(0), {}, {}))
        self._let_go(frames)

    def _next(self, sent: Sent) -> int:
        self.number += 1
        self.sent[self.number] = sent
        return self.number

    def _order(
        self, kind: int, payload: Array, fields: dict[str, Any], arrays: dict[str, Any]
    ) -> tuple[int, bytes]:
        """The frame of the newest message; what it asks for is told, unless it is as before."""
        number, sent = self.number, self.sent[self.number]
        i = sent.agent
        body, inside = body_of(payload, sent.down)
        if not inside:
            arrays["payload"] = payload
        told = []
        for place, (job, news, bound) in enumerate(self.told[i]):
            arrays |= {f"news{place}": news, **bound}
            told.append(job)
        self.told[i] = []
        fields |= {"told": told}
        known = self.orders[i]
        if arrays or fields != {key: known.get(key) for key in fields}:
            self.ordered += 1
            self.orders[i] = {} if arrays else fields | {"number": self.ordered}
            self.fleet.tell(i, "order", fields | {"number": self.ordered}, arrays)
        order = int(self.orders[i].get("number", self.ordered))
        frame = Frame(
            kind, COORDINATOR, number, sent.round_, order, self.used[i], inside=inside
        )  # fmt: skip
        return number, frame.header(self.fleet.keys.between(-1, i), sent.down) + body

    def _let_go(self, frames: list[tuple[int, bytes]]) -> None:
        """Send the frames, and write when each left."""
        for number, frame in frames:
            sent = self.sent[number]
            sent.time = self.hub.calls.sent[sent.agent] = self.now
            line = self.fleet.lines.get(sent.agent)
            stream = line or self.fleet.connect(sent.agent)
            stream.closing = line is None
            stream.push(frame)
        for number, _ in frames:
            sent = self.sent[number]
            self.row(Kind.SEND, 0, -1, sent.agent, sent.round_, sent.down, -1, sent.time, 0.0)

    def _receive(self, frame: Frame, time: float) -> None:
        """A reply is here; it counts if it answers a call that is still open."""
        sent = self.sent.get(frame.number)
        if sent is None or sent.agent != frame.source or sent.came < np.inf:
            raise Torn(f"found a reply of agent {frame.source} to no call of its own")
        told = sent.report
        if told is not None and told.kind != "done":
            raise Torn(f"found a reply of agent {frame.source} to a call that it has given up")
        if frame.kind != REPLY or len(frame.body) != sent.up or (frame.inside and sent.up % 8):
            raise Torn(f"found {len(frame.body)} bytes of agent {frame.source}, which are no reply")
        sent.came, sent.body, sent.inside = time, frame.body, frame.inside
        self.settle(frame.number)
        i = sent.agent
        if self.latest[i] == frame.number and self.hub.calls.pending[i]:
            self.arrived.add(i)
            self.hub.calls.due[i] = time
            self._came = time

    def _report(self, agent: int, message: Message) -> None:
        """An agent tells what it has done."""
        fields = message.fields
        if message.kind == "synced":
            self._synced[agent] = min(float(fields["time"]), self.now)
        elif message.kind == "failed" and not self.fleet.dismissing:
            raise at(float(fields["time"]), f"agent {agent}: {fields['why']}")
        elif message.kind in ("done", "aborted", "got"):
            sent = self.sent.get(int(fields["number"]))
            if message.kind == "aborted" and sent is not None and sent.came < np.inf:
                raise Torn("gave up a call to which it has replied")
            if sent is not None and sent.agent == agent and sent.report is None:
                sent.report = message
                self.settle(int(fields["number"]))

    def _bury(self, agent: int) -> None:
        """An agent has died: what it sent is charged, what it owes is lost."""
        for sent in self.sent.values():
            if sent.agent == agent and sent.report is None and sent.came < np.inf:
                release = release_id(len(self.latest), agent, sent.round_, sent.exchange)
                self.world.ledger.charge_one(
                    sent.came, agent, sent.round_, int(release), sent.terms, 1
                )
        self._synced[agent] = np.inf
        self.world.caution(f"agent {agent} {self.fleet.dead[agent]} at {self.now:.3g} s")
        if agent not in self.arrived:
            self.lost.add(agent)

    def collect(self, opened: float) -> float:
        """Wait until the policy closes the collection; when s that was, inf if the run is over."""
        world, until = self.world, self.hub.until(opened)
        horizon, over = world.settings.horizon, False
        self.arrived |= {i for i in self.after if self.hub.calls.pending[i]}  # others: discarded
        self.after.clear()
        while not self._satisfied(over):
            now = self.fleet.now
            if world.settings.policy.adaptive and not over:
                until = self.hub.until(opened)
            if now >= min(until, horizon):
                self.fleet.wait(0.0)  # what the kernel had in time counts
                if horizon <= until:
                    return np.inf
                if self._satisfied(True):
                    return self._cut(until)
                until, over = np.inf, True  # the least number is not there yet
                continue
            self._require_alive()
            step = min(until, horizon, now + STEP)
            if not self.fleet.wait(self.fleet.origin + (now if world.busy else step)):
                self._idle()
        return max(opened, self._came)

    def _cut(self, until: float) -> float:
        """A deadline closes the collection at `until` s; what came later waits for the next."""
        for i in list(self.arrived):
            if self.sent[self.latest[i]].came > until:
                self.arrived.discard(i)
                self.after.add(i)
        return until

    def _satisfied(self, over: bool) -> bool:
        """Whether the policy closes the collection, whose limit may be over."""
        calls = self.hub.calls
        policy, fresh = self.world.settings.policy, calls.round_ == self.hub.round
        return bool(policy.closed(calls.pending > 0, self.arrived, fresh, over))

    def _require_alive(self) -> None:
        """RunError where a collection never closes because agents have died."""
        calls, policy = self.hub.calls, self.world.settings.policy
        some_live = len(self.fleet.dead) < len(self.latest)
        if not self.lost or (policy.limited and some_live and not policy.at_least):
            return
        awaited = calls.pending > 0
        if policy.kind == "quorum":
            awaited &= calls.round_ == self.hub.round
        coming = int(awaited.sum()) - sum(bool(awaited[i]) for i in self.lost)
        least = policy.at_least if policy.limited else policy.number(int(awaited.sum()))
        if (policy.limited and not some_live) or coming < min(least, int(awaited.sum())):
            raise self.hopeless()

    def hopeless(self) -> RunError:
        """The error for a run that dead agents have ended."""
        first, how = next(iter(self.fleet.dead.items()))
        others = len(self.fleet.dead) - 1
        more = f" and {others} more" if others else ""
        wait = f"policy {self.world.settings.policy.kind} waits for it{more}"
        text = f"nobody can go on: agent {first} {how} in round {self.hub.round}, and {wait}"
        return at(self.now, text)

    def _idle(self) -> None:
        """Nothing has come: see to what is not urgent."""
        if self.now - self._asked > SYNC:
            self._asked = self.now
            for i in self.fleet.alive:
                self.fleet.tell(i, "sync", {"time": self._asked})
        self.world.spare(float(self._synced.min()), self.now)

    def need(self, who: Any) -> None:
        """Wait for the reports of agents who, whose replies are used: they come at once."""
        until = time.monotonic() + 5.0
        for i in who:
            while self._unreported(i) and i not in self.fleet.dead and time.monotonic() < until:
                self.fleet.wait(time.monotonic() + STEP)

    def _unreported(self, i: int) -> bool:
        sent = self.sent.get(self.latest[i])
        return sent is not None and sent.came < np.inf and sent.report is None

    def reply(self, i: int) -> Array:
        """Reply (dim,) of agent i to its latest call, which is here."""
        reply = self.world.released[i] = self._values(i)
        return reply

    def _values(self, i: int) -> Array:
        sent = self.sent[self.latest[i]]
        if sent.inside:
            return values_of(sent.body)
        self.need([i])
        if sent.report is None:
            raise at(
                self.now, f"agent {i} {self.fleet.dead.get(i, 'is silent')}: its reply is lost"
            )
        return np.asarray(sent.report.arrays["reply"], float)

    def use(self, i: int) -> None:
        """The latest reply of agent i is used: its state is what its job has made of it."""
        number = self.used[i] = self.latest[i]
        if (report := self.sent[number].report) is not None:
            self.take_over(number, i, report)
