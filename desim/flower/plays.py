"""The coordinator of a Flower app: what its ServerApp asks for becomes calls in virtual time.

A round of desim is one model of the app: it ends when the strategy has made it, or, of an app
without Flower's strategies, when the next message brings it. Evaluations of it come after that. Of
an app that sends no model a round is one question to nodes, with the replies to it.

Nodes compute when they are called, as only then the size of the reply is known, which decides when
it arrives; whose reply is late or lost has trained, too.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from desim.errors import RunError, at, raised
from desim.flower.central import Averages, central
from desim.flower.flower_messages import (
    bits,
    examples,
    figures,
    numbered,
    stamped,
    vector,
)
from desim.flower.grid import LOOKS
from desim.flower.nodes import Nodes, Times
from desim.flower.noise import Charges, chains, masked, opaque
from desim.flower.probe import Evaluator, Live
from desim.method import Program

DEFAULT_TIMEOUT = 3600.0  # s, of Flower's strategies, which nobody has chosen
MARK = 1.0  # the one number of a call's payload, and of its reply
BLIND = 0.0  # what stands for it where nothing is computed again, as in retime
INFERENCE = 1.0 / 3.0  # of a gradient's work: a forward pass of forward and backward


class Play:
    """One play of an app on a hub; `program` is the coordinator's."""

    def __init__(self, hub: Any, method: Any, evaluator: Evaluator) -> None:
        parameters, app = method.parameters, evaluator.app
        self.hub, self.method, self.evaluator = hub, method, evaluator
        parts = app.loaded()
        self.nodes = Nodes(app, parts.client, hub.agents, evaluator.seed)
        self.charges = Charges(parts, hub.agents, parameters.charge, evaluator.central)
        self.warn(*self.charges.warnings)
        self.times = Times(parameters.times and Path(parameters.times))
        self.work, self.passes = parameters.work, parameters.passes
        self.seam = Live.begun(app, parts.server, evaluator.seed)
        self.policy = method.settings.policy
        self.messages, self.models = 0, 0  # that were sent, and made
        self.waiting: dict[str, int] = {}  # messages that were pushed: to whom
        self.box: dict[int, Any] = {}  # the latest reply of each node, as it was computed
        self.here: dict[str, Any] = {}  # replies that came in, by the message that they answer
        self.chains = chains(parts.client)
        if self.policy.late == "carry" and masked(self.chains):
            text = "found late: carry with a secure sum, which takes a late reply for the next one"
            raise at(hub.now, f"flower: policy: {text}; allowed: late: discard")
        self.trained: set[int] = set()  # agents whose training the app heard of since an average
        self.loose: set[int] = set()  # agents of whom it heard what no average is made of
        self.heard = False  # whether the app heard of training since a model was shown
        self.counted = False  # whether a reply to train has said of how many examples it is
        self.questions, self.looks = 0, 0
        self.x = evaluator.start

    # The program.

    def program(self) -> Program:
        """Answer the app until it is done, or the run is."""
        try:
            while True:
                ask = self.seam.next()
                self.questions += 1
                for x in self.seam.take():
                    self.noised()
                    self.show(self.x if x is None else x)
                self.bare()
                if self.met():
                    return
                if ask.kind == "done":
                    self.last()
                    return
                if ask.kind == "failed":
                    raise self.failed(ask.value)
                if ask.kind == "nodes":
                    self.seam.nodes = self.present()
                    self.answer([*self.seam.nodes])
                    continue
                if ask.kind == "pull":
                    yield from self.pulled(ask.value)
                    continue
                self.bring(ask.value)
                if not self.hub.open and (self.trains(ask.value) or not self.evaluator.models):
                    if self.seam.rounds is None:
                        text = "the app would go on, but stop ends it"
                        self.warn(f"flower: {text}; --rounds N lets it make N models")
                    return
                self.refuse_timeout(ask.timeout)
                while self.owing(ask.value):
                    yield from self.collected()
                ids = self.send(ask.value)
                if ask.kind == "push":
                    self.answer(ids)
                    continue
                yield from self.awaited(ids, {_kind(one) for one in ask.value})
        except RunError as error:
            error.time = self.hub.now
            raise
        finally:
            Live.end(self.seam)

    def answer(self, value: Any) -> None:
        """Answer the app, with its draws of nodes by seed and question."""
        self.seam.answer(value, self.evaluator.seed, "draw", self.hub.round, self.questions)

    def failed(self, error: BaseException) -> RunError:
        """What to say of an error of the ServerApp."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        import traceback

        own = "".join(traceback.format_exception(error)).rstrip()
        where = f"flower: round {self.hub.round}: the ServerApp raised {raised(error)}"
        return at(self.hub.now, f"{where}\n{own}")

    def warn(self, *lines: str) -> None:
        """Say each of these once."""
        known = self.method.warnings
        known += [one for one in dict.fromkeys(lines) if one not in known]

    # Models and rounds.

    def trains(self, messages: Sequence[Any]) -> bool:
        """Whether some of these messages ask nodes to train."""
        return any(_kind(one) == "train" for one in messages)

    def bring(self, messages: Sequence[Any]) -> None:
        """A model that comes with a message, of an app whose strategies say nothing of theirs."""
        if self.seam.told or not self.heard:
            return
        for one in messages:
            if (x := vector(one.content)) is not None:
                return self.show(x)

    def show(self, x: Any) -> None:
        """The app has a new model (dim,): a round ends."""
        if len(x) != len(self.evaluator.start):
            found = f"found a model of {len(x)} numbers in round {self.hub.round}"
            allowed = f"{len(self.evaluator.start)}, as it began with"
            raise at(self.hub.now, f"flower: {found}; allowed: {allowed}")
        self.x, self.heard = x, False
        self.models += 1
        if self.work.kind == "examples" and not self.counted:
            text = "replies to train say no num-examples, so that they take no time"
            self.warn(f"flower: {text}; algorithm.work: {{seconds: 2}} gives it")
        self.hub.publish(x)

    def met(self) -> bool:
        """Whether the model that was shown ends the run before its rounds do: nobody evaluates it.

        The run takes until then, and not until the nodes have said what they make of that model.
        """
        return self.hub.round <= self.method.settings.rounds and not self.hub.open

    def noised(self) -> None:
        """Charge the averages to which the strategy has added noise.

        Of several from the same replies, or of a strategy of which nothing is known, all is bare.
        """
        heard = [one for one in self.seam.averages if one.model]
        for one in self.seam.averages:
            parts = one.parts(self.nodes.number)
            known = central(one.strategy, self.chains)
            if not one.model:  # its replies are dropped
                self.trained -= {*parts}
                continue
            counts = known is not None and not known.why and one.counts(parts, self.trained)
            if not counts or len(heard) > 1:
                self.loose |= {*parts} | self.trained
            else:
                for ledger in self.ledgers():
                    ledger.charge(one, parts)
            self.trained = set()
        self.seam.averages.clear()

    def ledgers(self) -> list[Averages]:
        """Who writes rows of averages: nobody where their noise is not known from the start."""
        return [one for one in self.hub.features if isinstance(one, Averages)]

    def bare(self) -> None:
        """Charge replies from which the app may have made what it likes, without noise."""
        loose, self.loose, self.trained = self.loose | self.trained, set(), set()
        for one in self.ledgers() if loose else ():
            one.bare(loose)
            text = "as replies went elsewhere than into one average with noise that is known"
            self.warn(f"flower: epsilon of nodes {sorted(loose)} is infinite, {text}")

    def hand(self, replies: list[Any]) -> None:
        """Hand over replies."""
        self.heard |= any(_kind(one) == "train" for one in replies)
        for one in replies:
            if not one.has_content():
                continue
            kind, agent = _kind(one), self.nodes.number[one.metadata.src_node_id]
            if vector(one.content) is not None or opaque(one.content):
                (self.trained if kind == "train" else self.loose).add(agent)
            elif kind not in ("train", "evaluate") and len(one.content):
                self.loose.add(agent)
        if not self.evaluator.models:
            self.hub.publish(self.x)
        self.answer(replies)

    def last(self) -> None:
        """The app is done: a round whose model nobody has seen ends with the one before."""
        if self.heard and not self.seam.told:
            text = "the last round's model was never sent, nor made by a strategy of Flower's"
            self.warn(f"flower: {text}: the one before stands for it")
            self.show(self.x)
        if (rounds := self.seam.rounds or 0) > self.models:
            text = f"the app made {self.models} models in {rounds} rounds: in the others it had"
            self.warn(f"flower: {text} too few replies, such as below a secure sum's threshold")

    # Who is there.

    def present(self) -> list[int]:
        """Ids of nodes that take part in this round and owe no reply."""
        who = self.hub.invite()  # who owed a reply when the round began may owe none by now
        self.looks += 1
        if self.looks > LOOKS:
            text = f"the app asked {LOOKS + 1} times who is there, and sent nothing: it waits for "
            text += f"more nodes than are there, {len(who)} of {self.hub.agents}"
            allowed = "a strategy that needs no more (min_available_nodes, fraction_train), or "
            allowed += "more of them in participation"
            raise at(self.hub.now, f"flower: round {self.hub.round}: {text}; allowed: {allowed}")
        return [self.nodes.ids[i] for i in who.tolist()]

    def refuse_timeout(self, timeout: float | None) -> None:
        """RunError where the app gives replies a time limit of its own, and the policy none."""
        if timeout is None or timeout >= DEFAULT_TIMEOUT or self.policy.kind != "all":
            return
        text = f"found timeout={timeout:g} in the app and policy: all"
        allowed = f"policy: {{deadline: {timeout:g} s}}, which is played"
        raise at(self.hub.now, f"flower: {text}; allowed: {allowed}")

    # Messages and replies.

    def owing(self, messages: Sequence[Any]) -> bool:
        """Whether a node that is sent one of these owes the reply to an earlier one.

        It does one thing after the other: that reply is waited for, whether it is pulled or not.
        """
        if self.policy.interrupts or not self.hub.pending.any():
            return False
        known = (self.nodes.number.get(one.metadata.dst_node_id) for one in messages)
        return any(self.hub.pending[agent] for agent in known if agent is not None)

    def send(self, messages: Sequence[Any]) -> list[str]:
        """Call the nodes that messages go to, in groups of one price; return the ids."""
        ids, calls = list[str](), dict[Any, list[int]]()
        work, sizes = np.zeros(self.hub.agents), np.zeros((2, self.hub.agents), np.int64)
        for one in messages:
            agent = self.nodes.addressed(one)
            self.messages += 1
            ids.append(numbered(one, self.messages))
            stamped(one, self.messages)
            reply, work[agent] = self.computed(agent, one)
            price = self.charges.of(one.metadata.message_type, reply)
            if any(agent in others for others in calls.values()):
                text = f"found two messages to node {agent} at once"
                raise at(self.hub.now, f"flower: {text}; allowed: one, and its reply first")
            calls.setdefault(price, []).append(agent)
            sizes[:, agent] = bits(one), bits(reply)
            self.box[agent], self.waiting[ids[-1]] = reply, agent
        self.times.written()
        self.looks = 0
        self.warn(*self.charges.warnings)
        for price, agents in calls.items():
            terms, who = self.charges.terms(price), np.array(sorted(agents))
            job = self.method.reply if price in ("bare", "nothing") else self.method.noised
            try:
                self.hub.call(
                    who, job, np.full(1, MARK), work=work, charge=terms, bits=sizes[0, who],
                    reply_bits=sizes[1, who],
                )  # fmt: skip
            except RuntimeError as error:
                allowed = f"a model before them, such as num_server_rounds counts ({error})"
                text = f"round {self.hub.round}: found too many questions to nodes"
                raise at(self.hub.now, f"flower: {text}; allowed: {allowed}") from None
        return ids

    def computed(self, agent: int, message: Any) -> tuple[Any, float]:
        """A node's reply, and the work that it was."""
        kind, round_ = message.metadata.message_type, self.hub.round
        address = ("evaluate",) if kind == "evaluate" else (kind, round_, self.questions)
        reply, seconds = self.nodes.call(agent, message, address, f"round {round_}")
        numbered(reply, self.messages + (1 << 40))
        reply.metadata.__dict__["_reply_to_message_id"] = message.metadata.message_id
        stamped(reply, self.messages)
        said = figures(reply.content) if reply.has_content() else {}
        if kind == "evaluate" and reply.has_content():
            if (x := vector(message.content)) is not None and len(x) == len(self.x):
                self.evaluator.note(agent, x, reply.content)
        return reply, self.load(agent, kind.split(".")[0], said, seconds)

    def load(self, agent: int, kind: str, said: dict[str, float], seconds: float) -> float:
        """The work of a call, in the unit of compute.speed: examples, or seconds."""
        if self.work.kind == "measured":
            return self.times.of(f"{agent} {self.questions} {kind}", seconds)
        if self.work.kind == "seconds":
            return float(self.work.value) if kind == "train" else 0.0
        if (number := examples(said)) is None:
            return 0.0
        self.counted |= kind == "train"
        if not 0.0 <= number < np.inf:
            text = f"node {agent}, round {self.hub.round}, {kind}: found num-examples {number:g}"
            raise at(self.hub.now, f"flower: {text}; allowed: 0 or more")
        return number * (self.passes if kind == "train" else INFERENCE)

    def awaited(self, ids: list[str], kinds: set[str]) -> Program:
        """Wait until the policy closes the collection, and hand over what came, by node.

        Late replies that are carried come with the next ones of their kind.
        """
        if not ids:
            self.answer([])
            return
        yield from self.collected()
        late = self.policy.late == "carry"
        carried = [one for one, reply in self.here.items() if late and _kind(reply) in kinds]
        came = [one for one in self.here if one in ids or one in carried]
        replies = [self.here.pop(one) for one in came]
        self.hand(sorted(replies, key=lambda one: self.nodes.number[one.metadata.src_node_id]))

    def pulled(self, ids: list[str]) -> Program:
        """Hand over replies to these messages: those here, or else those that come next."""
        owed = any(self.hub.pending[self.waiting[one]] for one in ids if one in self.waiting)
        if owed and not any(one in self.here for one in ids):
            yield from self.collected()
        found = [self.here.pop(one) for one in ids if one in self.here]
        self.looks = 0 if found else self.looks + 1
        if self.looks > LOOKS:
            text = "the app pulls replies that never come, as they are lost or too late"
            raise at(self.hub.now, f"flower: round {self.hub.round}: {text}; allowed: to go on "
                     "without them, or policy: each")  # fmt: skip
        self.hand(found)

    def collected(self) -> Program:
        """Wait for the policy; note whose replies are here."""
        replies = yield self.hub.collect()
        if not self.charges.noised and not np.isin(replies.payload, (MARK, BLIND)).all():
            text = "found replies that attackers, or a listener, changed"
            allowed = "neither, as the content of an app's messages is its own"
            raise at(self.hub.now, f"flower: {text}; allowed: {allowed}")
        for agent in replies.who.tolist():
            reply = self.box.pop(agent, None)
            if reply is not None:
                key = reply.metadata.reply_to_message_id
                self.here[key] = reply
                self.waiting.pop(key, None)


def _kind(message: Any) -> str:
    return str(message.metadata.message_type).split(".")[0]
