"""Who is invited, worked out round by round from a run's log alone, in plain Python and NumPy.

A round of the log: {"sent": {agent: s}, "came": {agent: s}, "closed": s}; agents that were invited
are in `sent`, those whose replies were taken in `came`. said[k][i]: what a reply to round k says.
lots(k, n): lot n of all agents in round k, exponential; coin(k): one uniform number.
"""

import math

import numpy as np

TIES, CANDIDATES, EXPLOITED, EXPLORED, REST = 0, 1, 3, 4, 5


class Past:
    """What is known after some rounds."""

    def __init__(self, agents):
        self.took, self.picks, self.heard, self.said = {}, [0] * agents, [0] * agents, {}

    def add(self, k, entry, said):
        """Take in round k of the log."""
        for i, sent in entry["sent"].items():
            self.picks[i] += 1
            if i in entry["came"]:
                self.took[i] = entry["came"][i] - sent
                self.heard[i] = k
                self.said[i] = said[k][i]
            else:
                waited = entry["closed"] - sent
                self.took[i] = max(waited, self.took.get(i, waited))


def fastest(past, k, n, agents, lots):
    """Least time first; agents never invited come before all."""
    lot = lots(k, TIES)
    rank = [(past.took[i] if past.picks[i] else -1.0, lot[i], i) for i in range(agents)]
    return {i for *_, i in sorted(rank)[:n]}


def oldest(past, k, n, agents, lots):
    """Longest not heard first."""
    lot = lots(k, TIES)
    rank = [(-(k - past.heard[i]), lot[i], i) for i in range(agents)]
    return {i for *_, i in sorted(rank)[:n]}


def round_robin(past, k, n, agents, lots):
    """In turn; everybody is free."""
    first = (k - 1) * n
    return {(first + j) % agents for j in range(n)}


def power_of_choice(past, k, n, agents, lots, rows, d):
    """Of d candidates, drawn by rows, the n with the greatest losses; unseen: infinite."""
    draw, tie = lots(k, CANDIDATES), lots(k, TIES)
    share = np.array(rows) / sum(rows)
    candidates = sorted(range(agents), key=lambda i: draw[i] / share[i])[:d]
    rank = [(-past.said.get(i, math.inf), tie[i], i) for i in candidates]
    return {i for *_, i in sorted(rank)[:n]}


class Oort:
    """Oort's state beside the past: steps of the pacer and utilities of rounds."""

    def __init__(self, rows, speed, alpha=2.0, first=0.9, decay=0.98, least=0.2, c=0.95, clip=0.95,
                 W=20, pace=None, most=None):  # fmt: skip
        self.rows, self.speed, self.alpha, self.eps = rows, speed, alpha, first
        self.decay, self.least, self.c, self.clip = decay, least, c, clip
        self.W, self.pace, self.most, self.steps, self.achieved = W, pace, most, 1, [0.0]

    def utility(self, said, i):
        """|B_i| sqrt(mean of squared losses)."""
        return self.rows[i] * math.sqrt(max(said[i], 0.0))

    def heard(self, past, came):
        """A round is over."""
        self.achieved.append(sum(self.utility(past.said, i) for i in sorted(came)))

    def __call__(self, past, k, n, agents, lots):
        """SelectParticipant of Algorithm 1."""
        if k > 1 and self.eps > self.least:
            self.eps *= self.decay
        W = self.W
        if k - 1 >= 2 * W and (k - 1) % W == 0:
            if sum(self.achieved[k - 2 * W : k - W]) > sum(self.achieved[k - W : k]):
                self.steps += 1
        known = sorted(past.said)
        if self.pace is not None:
            T = self.steps * self.pace
        elif known:
            T = sorted(past.took[i] for i in known)[: self.steps * W * n][-1]
        util = {}
        if known:
            cap = np.quantile([self.utility(past.said, i) for i in known], self.clip)
        for i in known:
            if self.most is not None and past.picks[i] > self.most:
                continue
            util[i] = min(self.utility(past.said, i), cap)
            util[i] += math.sqrt(0.1 * math.log(k) / past.heard[i])
            if T < past.took[i]:
                util[i] *= (T / past.took[i]) ** self.alpha
        new = [i for i in range(agents) if i not in past.said]
        explorers = min(round(self.eps * n), len(new))
        chosen = []
        if (want := min(n - explorers, len(util))) > 0:
            bar = self.c * sorted(util.values(), reverse=True)[want - 1]
            lot = lots(k, EXPLOITED)
            admitted = [i for i in util if util[i] >= bar]
            chosen = sorted(admitted, key=lambda i: lot[i] / util[i])[:want]
        lot = lots(k, EXPLORED)
        chosen += sorted(new, key=lambda i: lot[i] / self.speed[i])[: n - len(chosen)]
        lot = lots(k, REST)
        rest = [i for i in range(agents) if i not in chosen]
        return {*chosen, *sorted(rest, key=lambda i: lot[i])[: n - len(chosen)]}


class Tiers:
    """TiFL's state beside the past."""

    def __init__(self, m, probabilities=None, credits=None, interval=None, profile=1):
        self.m, self.interval, self.profile = m, interval, profile
        self.p = probabilities or [1 / m] * m
        self.credits = credits or [math.inf] * m
        self.tier, self.before, self.current = None, None, 0

    def heard(self, past, came):
        """A round is over."""

    def losses(self, past):
        """Mean loss of each tier."""
        return [np.mean([past.said[i] for i in members]) for members in self.tier]

    def __call__(self, past, k, n, agents, lots, coin):
        """Algorithm 2."""
        if k <= self.profile:
            return set(range(agents))
        if self.tier is None:
            order = sorted(range(agents), key=lambda i: past.took[i])
            self.tier = [part.tolist() for part in np.array_split(order, self.m)]
        r = k - self.profile - 1
        if self.interval and r % self.interval == 0:
            now = self.losses(past)
            if self.before and now[self.current] >= self.before[self.current]:
                worst_first = sorted(range(self.m), key=lambda t: -now[t])
                total = self.m * (self.m + 1) / 2
                for t in range(self.m):  # tiers that tie share their places
                    alike = [k for k, one in enumerate(worst_first)
                             if math.isclose(now[one], now[t], rel_tol=1e-10)]  # fmt: skip
                    self.p[t] = sum(self.m - place for place in alike) / len(alike) / total
            self.before = now
        weight = [p if left > 0 else 0.0 for p, left in zip(self.p, self.credits, strict=True)]
        if not any(weight):
            weight = [1.0 if left > 0 else 0.0 for left in self.credits]
        u, self.current = coin(k) * sum(weight), 0
        while u >= weight[self.current]:
            u -= weight[self.current]
            self.current += 1
        self.credits[self.current] -= 1
        lot = lots(k, TIES)
        return {*sorted(self.tier[self.current], key=lambda i: lot[i])[:n]}
