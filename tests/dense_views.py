"""What an agent sees of a linear method, found by moving one gradient or one noise at a time.

The scenario's own program, engine and log: listeners put in the noise and take down messages, and
jobs give what a test says. A change of one number is a column of A or B, dense from then on.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import optimize

from desim.engine.play import BLIND, Simulation
from desim.engine.signals import Listener
from desim.engine.world import Discard
from desim.privacy.ledger.ledger import Mechanism

JOBS = ("batch_gradient", "subgradient", "slope")
TINY = 1e-9  # of the largest singular value: below, doubles tell nothing apart


class Tape(Listener):
    """One play: gradients and noise (agent, number) -> vector, zero for none; what came of it."""

    def __init__(self, given=None, noise=None, drawn=None):
        self.given, self.noise, self.drawn = given or {}, noise or {}, drawn
        self.inputs, self.releases, self.payloads = [], [], defaultdict(list)
        self.counts, self.tables, self.terms = defaultdict(int), [], []

    def number(self, kind, agent):
        self.counts[kind, agent] += 1
        return agent, self.counts[kind, agent] - 1

    def job(self, us, x, *_):
        out = np.zeros(np.shape(x))
        for r, agent in enumerate(us.who.tolist()):
            self.inputs.append(key := self.number("input", agent))
            out[r] = self.given.get(key, 0.0)
        return out

    def releasing(self, release):
        out = release.value.copy()
        amounts = release.terms.sensitivity[release.rows], release.terms.scale[release.rows]
        for r, agent in enumerate(release.who.tolist()):
            key = self.number("noise", agent)
            loud = release.terms.mechanism is not Mechanism.NONE
            terms = float(amounts[0][r]), float(amounts[1][r]) if loud else 0.0
            self.releases.append((key, terms, release.value[r].copy()))
            if self.drawn is not None and agent not in self.drawn:
                out[r] = release.output[r]
            elif loud:
                out[r] += self.noise.get(key, 0.0)
        return out

    def sending(self, message):
        silent = np.asarray(message.traffic[2])
        for r, agent in enumerate(message.who.tolist()):
            if not silent[r]:
                self.payloads[agent, int(message.round[r])].append(message.payload[r].copy())
        return message.payload

    def rows(self, table, columns):
        if table == "events":
            names = ("time", "agent", "peer", "round")
            for kind in ("send", "deliver"):
                here = columns["kind"].equal(kind)
                self.tables += zip(
                    [kind] * int(here.sum()), *(columns[name][here].tolist() for name in names),
                    strict=True,
                )  # fmt: skip

    def received(self):
        """{receiver: [(sender, payload), ...]} in the order of time, by the log alone."""
        links, before, found = defaultdict(dict), defaultdict(int), defaultdict(list)
        for kind, _, agent, peer, k in self.tables:
            if kind == "send":
                links[agent, k][peer] = links[agent, k].get(peer, 0) + 1
        sent = {}
        for (agent, k), peers in links.items():
            payloads = self.payloads[agent, k]
            if set(peers.values()) == {len(payloads)}:
                sent |= {(agent, peer, k): payloads for peer in peers}
            elif len(payloads) == 1:  # and again where it was lost
                sent |= {(agent, peer, k): payloads * times for peer, times in peers.items()}
            else:  # each to another one
                assert len(peers) == len(payloads)
                sent |= {
                    (agent, peer, k): [one] * peers[peer]
                    for peer, one in zip(peers, payloads, strict=True)
                }
        for kind, _, agent, peer, k in self.tables:
            if kind == "deliver":
                m, before[peer, agent, k] = before[peer, agent, k], before[peer, agent, k] + 1
                found[agent].append((peer, sent[peer, agent, k][m]))
        return found


def play(simulation: Simulation, given=None, noise=None, drawn=None) -> Tape:
    """Play a simulation with these gradients and this noise.

    drawn: with its own noise instead, but for that of agents `drawn`, who would take it away.
    """
    tape, method = Tape(given, noise, drawn), simulation.method
    before = dict(vars(method))
    for name in JOBS:
        if hasattr(method, name):
            setattr(method, name, tape.job)
    try:
        ended = Simulation(method, simulation.settings, BLIND, simulation.engine, "").play(
            Discard(), listeners=[tape]
        )
    finally:
        vars(method).clear()
        vars(method).update(before)
    if ended.error is not None:
        raise ended.error
    return tape


def vectors(payload, dim):
    """The vectors (k, dim) of a message; numbers come last, or, of ad-psgd, the first two."""
    k, numbers = divmod(len(payload), dim)
    return (payload[2:] if numbers == 2 else payload[: k * dim]).reshape(k, dim)


@dataclass
class Views:
    """Coefficients of what each agent receives; sender (m,) of each row.

    A, B {agent: (m, symbols)}; inputs, noises: [(agent, number)] of the columns; bound, scale.
    """

    agents: int
    A: dict[int, Any] = field(default_factory=dict)
    B: dict[int, Any] = field(default_factory=dict)
    sender: dict[int, Any] = field(default_factory=dict)
    inputs: list[Any] = field(default_factory=list)
    noises: list[Any] = field(default_factory=list)
    bound: Any = None
    scale: Any = None

    def seen(self, who, left_out=(), own_noise=False, rows=slice(None)):
        """A, B with deviations, owners of the inputs: what agents `who` see and do not know."""
        A, B = (
            np.concatenate([one[i][~np.isin(self.sender[i], who)] for i in who])[rows]
            for one in (self.A, self.B)
        )
        use = np.ones(len(A), bool)
        use[list(left_out)] = False
        owner = np.array([i for i, _ in self.inputs])
        theirs = np.isin([i for i, _ in self.noises], who)
        return A[use], (B * self.scale)[use][:, ~theirs | own_noise], owner

    def mu2(self, who, u, **more):
        """Mu^2 of agent u towards agents `who`, to a millionth."""
        A, C, owner = self.seen(who, **more)
        mine = (owner == u) & (np.abs(A) > 1e-13).any(0)
        return largest_mean(A[:, mine], C, self.bound[mine])[0]


def views_of(simulation: Simulation, bound=None) -> Views:
    """All views of a simulation. bound(sensitivity, coefficient): of an input, default: ratio."""
    dim, agents = simulation.problem.dim, simulation.problem.agents
    empty = play(simulation)
    noises = [key for key, terms, _ in empty.releases if terms[1] > 0.0]
    found = Views(agents, inputs=empty.inputs, noises=noises)
    scale = {key: terms[1] for key, terms, _ in empty.releases}
    found.scale = np.array([scale[key] for key in noises])
    base = empty.received()
    symbols = [("given", key) for key in empty.inputs] + [("noise", key) for key in noises]
    rows = {i: np.concatenate([vectors(p, dim) for _, p in base[i]]) for i in base}
    whole = {i: np.zeros((len(rows[i]), len(symbols))) for i in rows}
    values = np.zeros((len(empty.releases), len(empty.inputs)))
    for low in range(0, len(symbols), dim):
        some, changes = symbols[low : low + dim], {"given": {}, "noise": {}}
        for place, (kind, key) in enumerate(some):
            changes[kind][key] = np.eye(dim)[place]
        moved = play(simulation, **changes)
        for i, messages in moved.received().items():
            now = np.concatenate([vectors(p, dim) for _, p in messages])
            whole[i][:, low : low + dim] = (now - rows[i])[:, : len(some)]
        if low < len(empty.inputs):
            for n, ((_, _, now), (_, _, was)) in enumerate(
                zip(moved.releases, empty.releases, strict=True)
            ):
                part = values[n, low : low + dim]
                part[:] = (now - was)[: len(part)]
    for i in range(agents):
        count = [j for j, p in base.get(i, []) for _ in vectors(p, dim)]
        found.sender[i] = np.array(count, int)
        table = whole.get(i, np.zeros((0, len(symbols))))
        found.A[i], found.B[i] = table[:, : len(empty.inputs)], table[:, len(empty.inputs) :]
    found.bound = np.full(len(empty.inputs), np.inf)
    for ((agent, _), (sensitivity, _), _), row in zip(empty.releases, values, strict=True):
        for column in np.flatnonzero(row):
            if empty.inputs[column][0] == agent and np.isinf(found.bound[column]):
                found.bound[column] = sensitivity / abs(row[column])
    return found


def largest_mean(A, C, bound, regular=None):
    """Largest mu^2 of y = A d + C w over |d_k| <= bound_k, and such d / bound (K, r).

    regular: the wrong pseudo-inverse, of C C' + regular I.
    """
    if not A.shape[1] or not len(A):
        return 0.0, np.zeros((A.shape[1], 1))
    U, s, _ = np.linalg.svd(C, full_matrices=False) if C.size else (np.zeros((len(A), 0)), [0], 0)
    if regular is not None:
        G = A.T @ np.linalg.solve(C @ C.T + regular * np.eye(len(A)), A)
    else:
        r = int(np.sum(s > TINY * max(1e-300, s[0])))
        white = U[:, :r].T @ A
        if (np.abs(A - U[:, :r] @ white) > TINY * np.abs(A).max()).any():
            return np.inf, None
        white /= s[:r, None]
        G = white.T @ white
    H = G * np.outer(bound, bound)
    if not np.isfinite(H).all():
        return np.inf, None
    if H.min() >= -1e-9 * H.max():
        return float(np.abs(H).sum()), np.ones((len(H), 1))
    return climbed(H)


def climbed(H):
    """A largest value of sum_kl H_kl <v_k, v_l> over unit vectors, and these (K, r)."""
    shape, scale = (len(H), int(np.sqrt(2 * len(H))) + 2), np.abs(H).sum()

    def away(flat):
        V = flat.reshape(shape)
        size = np.linalg.norm(V, axis=1, keepdims=True)
        V = V / size
        slope = 2.0 * (H @ V) / scale
        inward = (slope - (slope * V).sum(1, keepdims=True) * V) / size
        return -float((V * (H @ V)).sum()) / scale, -inward.ravel()

    start = np.random.default_rng(0).normal(size=shape).ravel()
    at = {"maxiter": 20000, "maxfun": 20000, "ftol": 1e-15, "gtol": 1e-9}
    found = optimize.minimize(away, start, jac=True, method="L-BFGS-B", options=at).x.reshape(shape)
    V = found / np.linalg.norm(found, axis=1, keepdims=True)
    return float((V * (H @ V)).sum()), V
