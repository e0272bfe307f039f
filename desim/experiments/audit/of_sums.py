"""`desim audit` where a coordinator is trusted with changes: an agent is the canary, sums tell.

An adversary knows all but the noise, and sees the sums that go out, each of which is a function of
models. In every round the canary agent's change is replaced: on D it points in one direction, and
is longer than the clip; on D' it is the opposite, not longer than the clip (replace-one), or the
agent is in no sum (add-or-remove-one). A run is played again as the other side, with the sums that
the first has released: what these would have been before noise gives the likelihood ratio. A canary
moves every sum by all that the coordinator declares, whatever the data are.

Who takes part is public and the same in every run, as accounts without amplification have it. Where
an account relies on a draw of each agent by itself, it is drawn anew in every run, and the ratio of
a sum o is that of a mixture, (1 - q) + q p(o | in it) / p(o | not in it), q the probability that an
agent is called: who else is in it is known, and of an independent draw.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array
from desim.engine.play import Simulation
from desim.engine.requests import Replies
from desim.errors import InputError, RunError, refusal
from desim.experiments.audit.of_method import (
    NEVER,
    REAL,
    Reading,
    findings_of,
    numbers_wrong,
    play_game,
    reservations,
)
from desim.experiments.audit.pairs import BARE, ENDS, KINDS, TRAFFIC, ended, noised, unobserved
from desim.experiments.audit.stored import (
    Audit,
    Tell,
    require_agent,
    require_other,
    tables_of,
    terms,
)
from desim.experiments.audit.verdict import AuditedPlay, claims_of
from desim.log.event_log import Outcome
from desim.numerics import keys
from desim.numerics.cores import cores
from desim.numerics.keys import Stream
from desim.privacy.accounting.accountants import account
from desim.privacy.accounting.views import Adversary, adversary
from desim.privacy.ledger.mechanisms import Mechanism
from desim.scenario.build import build
from desim.scenario.check import explained
from desim.scenario.load import load, loaded
from desim.scenario.schema import Scenario
from desim.signals import Listener, Message

LONG = 10.0  # times the clip: a change that is to be shortened
WITHIN = 1.0 - 1e-9  # times the clip: one that is not
STILL = 1e-12  # of the numbers compared: rounding
SEEN = ("participants", "collusion", "neighbour")  # who see every model
KNOWN = (
    "who takes part is public, and that of the scenario's seed in every run: claims that count on "
    "secret participation are not tested"
)
SECRET = "who takes part is drawn anew in every run, the rest as the scenario's seed has it"


@dataclass(frozen=True)
class Sum:
    """A number (n,) that went out of its value before noise, and its declared scale.

    effect (n,): what the canary adds to the value where it takes part; round: of the sum,
    and of the count of short replies.
    """

    round: int
    output: Array
    value: Array
    scale: float
    effect: Array


class Canary(Listener):
    """One play in which an agent replies as a side has it; with `recorded`, that one's sums go out.

    apart: whether there were others than recorded.
    """

    def __init__(self, stage: "SumsStage", side: int, recorded: "Canary | None" = None) -> None:
        self.stage, self.side, self.recorded = stage, side, recorded
        trust = stage.simulation.settings.trust
        assert trust is not None
        self.trust, self.clip = trust, trust.clip
        self.sums, self.apart, self.failed = list[Sum](), False, False
        self.effect = np.zeros(0)

    def change(self, width: int) -> Array:
        """What the canary replies (width,)."""
        if self.side and self.stage.left_out:
            return np.zeros(width)
        ahead = -WITHIN if self.side else LONG
        return ahead * self.clip * self.stage.direction(width)

    def sending(self, message: Message) -> Array:
        """What is received: the canary's change in place of the agent's."""
        own = message.who == self.stage.agent
        if not own.any():
            return message.payload
        payload = np.array(message.payload)
        payload[own] = self.change(payload.shape[1])
        return payload

    def feature(self, world: Any) -> Any:
        """What adds up replies, overheard."""
        own: Any = self.trust.feature(world)
        total, noised, share = own.total, own.noised, own.share

        def summed(hub: Any, replies: Replies) -> Any:
            width, who = replies.payload.shape[1], np.array([self.stage.agent])
            alone = LONG * self.clip * self.stage.direction(width)[None]
            single = Replies(who, alone, np.array([hub.round]), np.ones(1))
            self.effect = np.asarray(own.shortened(single, alone))[0]
            if self.side and self.stage.left_out:
                stay = replies.who != self.stage.agent
                replies = Replies(*(each[stay] for each in replies))
            found = total(hub, replies)
            self.clip = own.clip
            return found

        def released(value: Array, round_: int) -> Array:
            scale = self.trust.deviation(round_, own.clip)
            return self.heard(round_, value, noised(value, round_), scale, self.effect)

        def counted(short: Any, round_: int) -> float:
            adaptive, many = self.trust.adaptive, self.trust.number
            assert adaptive is not None
            value = np.array([np.mean(short - 0.5) * len(short) / many + 0.5])
            said, scale = np.array([share(short, round_)]), adaptive.noise / many
            effect = np.array([-0.5 / many])
            return float(self.heard(round_, value, said, scale, effect)[0])

        vars(own).update(total=summed, noised=released, share=counted)
        return own

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["trust"], name)

    def heard(self, round_: int, value: Array, output: Array, scale: float, effect: Array) -> Array:
        """What goes out of a value (n,) and its noise: of a replay what was recorded."""
        if self.recorded is not None:
            theirs, number = self.recorded.sums, len(self.sums)
            if number < len(theirs) and theirs[number].round == round_:
                output = theirs[number].output
            else:
                self.apart = True
        self.sums.append(Sum(round_, np.array(output), np.array(value), scale, effect))
        return output


@dataclass(frozen=True)
class SumsStage:
    """A simulation whose `agent` is a canary, and how a run is read: likelihood or model.

    left_out: whether D' is without it; q: with what probability it takes part, 1 where that is
    known; seed: of the canary's direction.
    """

    simulation: Simulation
    agent: int
    left_out: bool
    q: float = 1.0
    reading: Reading = "likelihood"
    seed: int = 0

    def direction(self, width: int) -> Array:
        """A unit vector (width,)."""
        drawn = np.asarray(keys.normals(self.seed, Stream.USER, size=width))
        return drawn / float(np.linalg.norm(drawn))

    def played(
        self, side: int, seed: int, recorded: Canary | None = None
    ) -> tuple[Canary, Outcome]:
        """One play of a side, or a replay of the other one as this side."""
        canary = Canary(self, side, recorded)
        one: Any = canary
        settings = replace(self.simulation.settings, trust=one)
        if self.q < 1.0:
            drawn: Any = settings.participation
            settings = replace(settings, participation=replace(drawn, seed=seed))
        simulation = noised(unobserved(replace(self.simulation, settings=settings)), seed)
        return canary, ended(simulation, canary)  # type: ignore[arg-type]

    def numbers(self, side: int, seed: int) -> Array:
        """Of a run the final model (n,), or ratio, noisy numbers, their squares, exact, kind."""
        own, outcome = self.played(side, seed)
        if self.reading == "model":
            model = np.zeros(0) if outcome.model is None else np.ravel(outcome.model[-1])
            sound = np.isfinite(model)
            bad = outcome.status == "failed" or not sound.all()
            return np.concatenate([[float(bad)], np.where(sound, model, 0.0)])
        other, again = self.played(1 - side, seed, own)
        if own.failed and other.failed:
            raise again.error or RunError(again.reason)
        kind = _apart(own, other)
        ratio = np.inf if kind else self.ratio(own, other)
        noise = np.concatenate([np.zeros(0), *((s.output - s.value) / s.scale for s in own.sums)])
        exact = float(self.q == 1.0 or self.simulation.settings.policy.kind == "all")
        code = 1.0 + KINDS.index(kind) if kind else 0.0
        return np.array([ratio if side else -ratio, noise.size, noise @ noise, exact, code])

    def ratio(self, own: Canary, other: Canary) -> float:
        """The log-likelihood ratio of the side that was played to the other one."""
        if self.q == 1.0:
            pairs = zip(own.sums, other.sums, strict=True)
            return sum(_logs(s.output, s.value, t.value, s.scale) for s, t in pairs)
        within: dict[int, float] = {}
        for s, t in zip(own.sums, other.sums, strict=True):
            inside, without = (t.value, s.value) if own.side else (s.value, t.value)
            effect = inside - without
            effect = effect if effect.any() else s.effect
            found = _logs(s.output, without + effect, without, s.scale)
            within[s.round] = within.get(s.round, 0.0) + found
        every = np.array([*within.values()])
        total = float(np.logaddexp(np.log1p(-self.q), np.log(self.q) + every).sum())
        return -total if own.side else total


def _logs(output: Array, mean: Array, other: Array, scale: float) -> float:
    """Log-likelihood ratio of N(mean, scale^2) to N(other, scale^2) at an output, all (n,)."""
    return float((output - 0.5 * (mean + other)) @ (mean - other)) / scale**2


def _apart(own: Canary, other: Canary) -> str:
    """What tells a play from its replay as the other side for certain; empty for nothing."""
    if own.failed != other.failed:
        return ENDS
    if other.apart or len(own.sums) != len(other.sums):
        return TRAFFIC
    for s, t in zip(own.sums, other.sums, strict=True):
        size = STILL * (1.0 + float(np.abs(s.value).max(initial=0.0)))
        if np.abs(s.output - s.value).max() <= size < np.abs(s.value - t.value).max():
            return BARE
    return ""


def audit_sums(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    runs: int = 1000,
    claims: Sequence[str | float] = ("rigorous",),
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    known: bool = False,
    seed: int = 0,
    workers: int = 1,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute what is claimed of a trusted coordinator's sums, `runs` runs on each side.

    agent: whose changes are the canary, by default one that is in most sums; known: whether the
    adversary knows who takes part even where an account relies on it being secret. All else as in
    `of_method.audit`.
    """
    of = loaded(scenario, overrides)
    wrong = numbers_wrong(runs, workers)
    view, delta = terms(of, view, delta, level, claims, seed, wrong, of_sums=True)
    with explained(of):
        stage, audited = _staged(of, view, delta, agent, known, seed)
        testable, untestable = claims_of(claims, audited)
        again = partial(_again, of.written(), str(of.folder), (view, delta, agent, known, seed))
        workers = min(workers, cores())
        scores = play_game(stage, runs, seed=seed, workers=workers, again=again, tell=tell)
    notes = (
        *untestable, SECRET if audited.secret else KNOWN, *reservations(of, scores, audited), REAL,
        NEVER,
    )  # fmt: skip
    old, new = scores.old, scores.new
    sizes = [len(old), len(new)]
    side = "left out" if stage.left_out else "replaced"
    return Audit(
        name=of.name, view=audited.view, agent=stage.agent,
        findings=findings_of(testable, scores, level), notes=notes,
        title=f"agent {stage.agent}, {side}, seen by {audited.view}; {sizes[0]} + {sizes[1]} runs",
        played={"seed": seed, "runs": sizes, "exact_likelihood": scores.exact}, scores=scores,
        arrays={"old": old, "new": new}, samples=(old, new), of="runs", relation=audited.relation,
    )  # fmt: skip


def _staged(
    of: Scenario, view: str, delta: float, agent: int | None, known: bool, seed: int
) -> tuple[SumsStage, AuditedPlay]:
    """What is played, and what claims are about."""
    simulation = build(of)
    trust, privacy, agents = simulation.settings.trust, of.privacy, simulation.problem.agents
    assert trust is not None
    assert privacy is not None
    who, relation = adversary(view, agents), privacy.neighbours
    if who.kind not in (*SEEN, "final-model"):
        allowed = "participants or final-model: all others see changes without noise"
        raise InputError(f"view: {refusal(view, allowed)}")
    if relation not in ("agent", "add-or-remove-agent"):
        allowed = "agent: the canary of an audit of sums is an agent"
        raise InputError(f"privacy.unit: {refusal(privacy.unit, allowed)}")
    if trust.noise is None:
        raise InputError("privacy.noise: found none; allowed in an audit: noise on sums")
    require_agent(agent, agents)
    left_out = relation == "add-or-remove-agent"
    secret = left_out and not known and trust.law is Mechanism.POISSON_SUM
    releases, events = tables_of(simulation)
    if agent is None:
        agent = _charged_most(releases, simulation, who, relation)
    require_other(agent, who)
    audited = AuditedPlay(simulation, releases, events, agent, str(who), delta, relation, secret)
    reading: Reading = "model" if who.kind == "final-model" else "likelihood"
    q = trust.share if secret else 1.0
    return SumsStage(simulation, agent, left_out, q, reading, seed), audited


def _charged_most(releases: Any, simulation: Simulation, who: Adversary, relation: str) -> int:
    """The agent that is charged most where it is known who takes part."""
    rows = simulation.problem.rows
    spent = account(
        releases, rows=rows, view=str(who), relation=relation, amplification=False
    ).final.copy()
    spent[list(who.agents)] = -1.0
    return int(np.argmax(spent))


def _again(
    written: Mapping[str, Any], folder: str, how: tuple[Any, ...]
) -> tuple[Scenario, SumsStage]:
    """The same stage in another process, where relative names count from the same folder."""
    os.chdir(folder)
    scenario = load(written)
    with explained(scenario):
        return scenario, _staged(scenario, *how)[0]
