"""`desim audit --pairs`: what an observer has received of an agent, against `Run.pairwise`.

The method is played as it is, with noise of another seed in every run. On D' all gradients of one
agent are moved along one direction v by as much as its sensitivity allows, with the signs that tell
most; all else is as on D. Of every message that the observer received the part along v counts.
What the observer knows (the starts, all inputs on D, its own noise) is taken from it; the rest
y = C w + b A d, b = 0 on D and 1 on D', is whitened: x = Z (C w + b A d), Z C C' Z' = I, and

    log p' / p = <x, s> - |s|^2 / 2,  s = Z A d,

is the likelihood ratio, of mean -+ |s|^2 / 2. |s| is the mu of this pair of data sets. Inputs are
given, as in the account: where agents compute from noise that the observer has not seen, what these
computations tell of it is not tested.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.play import Simulation
from desim.errors import InputError, refusal
from desim.experiments.audit.of_method import (
    NEVER,
    REAL,
    Reading,
    findings_of,
    numbers_wrong,
    play_game,
)
from desim.experiments.audit.pairs import Transcript, completed, ended, noised, unobserved
from desim.experiments.audit.stored import Audit, Tell, require_agent, require_other, terms
from desim.experiments.audit.verdict import RELATION, Claim
from desim.numerics.cores import cores
from desim.privacy.accounting.gaussian import epsilon_of
from desim.privacy.accounting.linear_views import whitened
from desim.privacy.accounting.views import adversary
from desim.runs.pairwise import EXACT, FIXED, Pairs
from desim.runs.symbols import NOISE, START, Seen, Symbols, seen_in, symbols_of
from desim.scenario.build import build
from desim.scenario.check import explained
from desim.scenario.load import load, loaded
from desim.scenario.schema import Scenario

OBSERVERS = "neighbour:3 or collusion:[3, 7], whose messages are tested"
NAMES = ("pairwise",)


@dataclass(frozen=True)
class PeerStage:
    """What an observer reads of a play, whitened, and how `agent` is moved on D'.

    places: agent and number of the messages that it received, and of how many vectors each is;
    Z (r, m): what whitens these; known (n,): columns whose values the observer knows, W (r, n)
    what they add to it; moved: by (agent, number of the result) what D' adds along the direction
    (dim,); shift (r,): what that adds.
    """

    simulation: Simulation
    agent: int
    own: Symbols
    places: tuple[tuple[int, int, int], ...]
    direction: Array
    Z: Array
    known: Int
    W: Array
    moved: Mapping[tuple[int, int], float]
    shift: Array
    reading: Reading = "likelihood"

    @property
    def mu(self) -> float:
        """What the best test of the two sides has."""
        return float(np.linalg.norm(self.shift))

    def numbers(self, side: int, seed: int) -> Array:
        """Of a run log-likelihood ratio, noisy numbers, their squares, exact, nothing apart."""
        seen, moved = Seen(), {k: m * self.direction for k, m in self.moved.items() if side}
        seen.moved.update(moved)
        seen_in(noised(self.simulation, seed), seen)
        x = self.Z @ self.received(seen) - self.W @ self.values(seen, side)
        ratio, noise = x @ self.shift - 0.5 * self.mu**2, x - side * self.shift
        return np.array([ratio, len(x), noise @ noise, 1.0, 0.0])

    def received(self, seen: Seen) -> Array:
        """The observer's messages (m,) along the direction."""
        own, parts = self.own, [np.zeros(0)]
        for agent, number, many in self.places:
            real = seen.sent[agent][number]
            beside = len(real) - many * own.dim
            low = own.place * own.dim if beside else 0
            vectors = np.delete(real, np.arange(low, low + beside)).reshape(many, own.dim)
            parts.append(vectors @ self.direction)
        return np.concatenate(parts)

    def values(self, seen: Seen, side: int) -> Array:
        """What the observer knows (n,), along the direction, as it is on D."""
        own, found = self.own, np.zeros(len(self.known))
        unit = float(np.linalg.norm(own.directions[:, 0]))
        for place, c in enumerate(self.known.tolist()):
            if own.kind[c] == START:
                found[place] = own.values[c, 0] / unit
                continue
            agent, kind, number = own.numbered[c]
            found[place] = seen.values[agent, kind, number] @ self.direction
            if side and kind != NOISE:
                found[place] -= self.moved.get((agent, number), 0.0)
        return found


def signs_of(effect: Array) -> Array:
    """Signs (k,) of the columns of an effect (r, k) so that their sum is long, a local maximum."""
    gram = effect.T @ effect
    if gram.min(initial=0.0) >= 0.0:
        return np.ones(len(gram))
    signs = np.where(np.linalg.eigh(gram)[1][:, -1] < 0.0, -1.0, 1.0)
    for _ in range(10 * len(gram)):
        gains = np.diag(gram) - signs * (gram @ signs)  # of turning each, a quarter
        if gains.max() <= 0.0:
            break
        signs[int(np.argmax(gains))] *= -1.0
    return signs


def stage_of(pairs: Pairs, simulation: Simulation, agent: int, who: Sequence[int]) -> PeerStage:
    """How `agent` is moved so that observers `who` see most of it, and what they look at."""
    own, rows = pairs.own, pairs.rows(who)
    inputs, A, C = pairs.apart(who)
    place = {
        id(one): (i, n, len(one.vectors)) for i, sent in enumerate(own.sent)
        for n, one in enumerate(sent)
    }  # fmt: skip
    heard = tuple(place[id(one)] for _, one in pairs.heard(who) if len(one.vectors))
    view, mine = whitened(np.eye(len(rows)), C), own.owner[inputs] == agent
    bound = np.where(A[:, mine].any(0), pairs.bound[inputs[mine]], 0.0)
    effect = view.Z @ A[:, mine] * bound
    amount = bound * signs_of(effect)
    unknown = ~np.isin(pairs.owner, who) & ~np.isin(own.other[: own.count], who)
    known = np.flatnonzero(rows.any(0) & ~((pairs.kind == NOISE) & unknown))
    numbers = [own.numbered[c] for c in inputs[mine].tolist()]
    moved = {(i, n): by for (i, _, n), by in zip(numbers, amount.tolist(), strict=True) if by}
    direction = own.directions[:, 0] / np.linalg.norm(own.directions[:, 0])
    return PeerStage(
        simulation, agent, own, heard, direction, view.Z, known, view.Z @ rows[:, known], moved,
        view.Z @ A[:, mine] @ amount,
    )  # fmt: skip


def audit_pair(
    scenario: Scenario | str | Path | Mapping[str, Any],
    *,
    overrides: Mapping[str, Any] | None = None,
    runs: int = 1000,
    claims: Sequence[str | float] = NAMES,
    view: str | None = None,
    delta: float | None = None,
    level: float = 0.01,
    agent: int | None = None,
    seed: int = 0,
    workers: int = 1,
    tell: Tell | None = None,
) -> Audit:
    """Try to refute what `Run.pairwise` says that observers have learnt of `agent`.

    claims: pairwise, or an epsilon; view: neighbour:J or collusion:[J, K], the observers; agent: by
    default the one of which they learn most, short of everything. All else as in `of_method.audit`.
    InputError where a method is not linear in inputs and noise, or epsilon is infinite.
    """
    of = loaded(scenario, overrides)
    numbers = [one for one in claims if one not in NAMES]
    wrong = [*numbers_wrong(runs, workers), (not claims, "claims: found none; allowed: pairwise")]
    view, delta = terms(of, view, delta, level, numbers or ["rigorous"], seed, wrong)
    with explained(of):
        stage, claim, about = _staged(of, view, delta, agent)
        tested = [
            claim if one in NAMES else Claim("given", float(one), delta, about="as it was given")
            for one in claims
        ]
        again = partial(_again, of.written(), str(of.folder), view, delta, agent)
        workers = min(workers, cores())
        scores = play_game(stage, runs, seed=seed, workers=workers, again=again, tell=tell)
    notes = [about, f"the two sides that are played are {stage.mu:.6g} apart", REAL, NEVER]
    sizes = [len(scores.old), len(scores.new)]
    return Audit(
        name=of.name, view=view, agent=stage.agent, findings=findings_of(tested, scores, level),
        notes=tuple(notes), title=f"agent {stage.agent}, its gradients moved, seen by {view}; "
        f"{sizes[0]} + {sizes[1]} runs",
        played={"seed": seed, "runs": sizes, "exact_likelihood": scores.exact, "mu": stage.mu},
        scores=scores, arrays={"old": scores.old, "new": scores.new},
        samples=(scores.old, scores.new), of="runs",
    )  # fmt: skip


def _staged(
    of: Scenario, view: str, delta: float, agent: int | None
) -> tuple[PeerStage, Claim, str]:
    """What is played, the account's claim, and what that takes for granted."""
    simulation = build(of)
    agents = simulation.problem.agents
    who = adversary(view, agents)
    if who.kind not in ("neighbour", "collusion"):
        raise InputError(f"view: {refusal(view, OBSERVERS)}")
    require_agent(agent, agents)
    if agent is not None:
        require_other(agent, who)
    if simulation.method.shared is not None:
        raise InputError(
            "algorithm: found noise that the ends of links share; allowed: noise of agents"
        )
    own, log = symbols_of(simulation)
    time = completed(ended(unobserved(simulation), Transcript())).time
    pairs = Pairs(own, log, RELATION, simulation.problem.rows, time)
    mu = pairs.towards(who.agents)
    if agent is None:
        agent = int(np.argmax(np.where(np.isfinite(mu), mu, -1.0)))
    if not 0.0 < mu[agent] < np.inf:
        what = "nothing" if mu[agent] == 0.0 else "everything"
        allowed = "one of whom they learn something, and not everything"
        raise InputError(f"agent: found {agent}, of whom {who} learns {what}; allowed: {allowed}")
    epsilon = float(epsilon_of(np.array([mu[agent]]), delta)[0])
    about = FIXED if own.feedback else EXACT
    claim = Claim("pairwise", epsilon, delta, mu=float(mu[agent]), about="what was received")
    return stage_of(pairs, simulation, agent, who.agents), claim, about


def _again(
    written: Mapping[str, Any], folder: str, view: str, delta: float, agent: int | None
) -> tuple[Scenario, PeerStage]:
    """The same stage in another process, where relative names count from the same folder."""
    os.chdir(folder)
    scenario = load(written)
    with explained(scenario):
        return scenario, _staged(scenario, view, delta, agent)[0]
