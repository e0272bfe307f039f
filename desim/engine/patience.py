"""Why a run comes to nothing, in words: time hardly passes, models go far away, a wait never ends.

Only a number of rounds ends a run whose time hardly passes; where one is given, its patience is not
asked. What is judged is virtual, so that all engines fail in the same round, at the same time. That
models have gone far away only adds words: no end and no record depends on it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from desim.arrays import Array, Int
from desim.engine.requests import Compute
from desim.errors import Deadlock, RunError, at, raised
from desim.network.conditions.policy import Policy
from desim.problem.kernels.sums import squared_distances
from desim.problem.problem import Problem

STANDSTILL = 50_000  # rounds between two looks at a clock, which has to move meanwhile
ROUNDS = 1e10  # more than any machine plays until stop.time
SILENCE = 100_000  # collections, or waits of an agent, in a row without a message
ABSENCES = 10  # times as many where agents may be away for long
GIVE = "give stop.rounds, or longer durations (network.link, compute, policy)"


class Patience:
    """What is known of how time passes; rounds: inf, or nothing is judged; horizon s, or inf."""

    def __init__(self, agents: int, rounds: float, horizon: float, away: bool = False) -> None:
        self.ends, self.horizon = rounds < np.inf, horizon
        self.silence = SILENCE * (ABSENCES if away else 1)
        self.looked = np.zeros(agents)  # clock s of each agent, or the coordinator's, at a look
        self.unheard = np.zeros(agents, np.int64)  # waits in a row without a message

    def left(self, round_: int, unheard: int) -> float:
        """How many more rounds may pass before the next judgement; unheard: as in `heard`."""
        if self.ends:
            return np.inf
        return min(STANDSTILL - round_ % STANDSTILL, max(1, self.silence - unheard))

    def judged(self, round_: int, time: Array, who: Int) -> RunError | None:
        """Why the run would never end, now that agents who (n,) did a round at time (n,) s."""
        if self.ends or round_ == 0 or round_ % STANDSTILL:
            return None
        still = time <= self.looked[who]
        self.looked[who] = time
        slow = time * ROUNDS < round_ * self.horizon if self.horizon < np.inf else still
        bad = np.flatnonzero(still | slow)
        if not len(bad):
            return None
        first = bad[np.lexsort((who[bad], time[bad]))[0]]
        now = float(time[first])
        if still[first]:
            text = "rounds take no time and stop.rounds is not given; give it, or durations"
            text = f"{text} (network.link, compute.speed), or more participation"
            return at(now, f"time stands still at {now:.6g} s: {text}")
        needed = round_ * self.horizon / now
        text = f"{round_} rounds took {now:.3g} s, so that stop.time {self.horizon:g} s would take"
        return at(now, f"time hardly passes: {text} {needed:.1g} rounds; {GIVE}")

    def require_reply(self, unheard: int, now: float) -> None:
        """RunError if so many collections in a row were without a reply until `now` s."""
        if not self.ends and unheard >= self.silence:
            raise at(now, f"{unheard} collections in a row closed without a reply, {_until(now)}")

    def waited(self, who: Int, fresh: Array, time: Array) -> RunError | None:
        """Why the run would never end, agents who (n,) having heard fresh (n,) news at time s."""
        if self.ends:
            return None
        self.unheard[who] = np.where(fresh > 0, 0, self.unheard[who] + 1)
        if self.unheard[who].max() < self.silence:
            return None
        deaf = np.flatnonzero(self.unheard[who] >= self.silence)
        one = deaf[np.lexsort((who[deaf], time[deaf]))[0]]
        agent, now = int(who[one]), float(time[one])
        text = f"agent {agent} did not hear from a neighbour {self.silence} times in a row"
        return at(now, f"{text}, {_until(now)}")


def _until(now: float) -> str:
    return f"the last at {now:.6g} s: time is spent on waits that are too short; {GIVE}"


def earlier(one: RunError | None, other: RunError | None) -> RunError | None:
    """The error that comes first, of those there are; at one time that of the first round, agent.

    That time stands still comes before all that happens in it.
    """
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda error: (error.time, getattr(error, "place", ())))


# Whether models have gone far away while staying finite: seen at the start and the end alone.

MANY = 1e6  # times what it was, or is of a model of zeros, from which on a run has diverged
WORSE = 1e3  # the same, from which on it is worth a word: noise alone makes it hundreds
DIVERGED = "diverged: "  # how the warning begins of a run whose last value says nothing


def grown(
    problem: Problem, start: Array, end: Array, optimum: Array | None, cures: Sequence[str]
) -> list[str]:
    """A warning where models end (n, dim) are worse than at the start, (n, dim); or none.

    Rows: all agents' models, or the coordinator's. Worse is a loss of more than WORSE times that of
    the start and of zeros, or an error, where the optimum (dim,) is known: sum_i ||x_i - x*||^2;
    from MANY times on, the run has diverged.
    """
    if np.array_equal(start, end):
        return []
    try:
        found = _worst(problem, start, end, optimum)
    except Exception as error:  # a user's loss may raise; the run has ended well
        return [f"whether the models have grown is unknown: their loss raised {raised(error)}"]
    if found is None:
        return []
    name, value, times = found
    cure = f"lower {' or change '.join(cures)}, or set problem.clip"
    far = f"{times:.2g} times that of the start" if np.isfinite(times) else "no longer finite"
    how = "" if times <= MANY else DIVERGED
    return [f"{how}the {name} of the last models is {value:.3g}, {far}; {cure}"]


def _worst(
    problem: Problem, start: Array, end: Array, optimum: Array | None
) -> tuple[str, float, float] | None:
    """The first measure that says most: its name, its value and how many times what it was."""
    zeros = np.zeros_like(start)
    measures: dict[str, Callable[[Array], float]] = {"loss": lambda x: _loss(problem, x)}
    if optimum is not None:
        norm = float(optimum @ optimum) or 1.0
        measures["error"] = lambda x: float(squared_distances(x, optimum).sum()) / norm
    found = []
    for name, measure in measures.items():
        before = [abs(measure(x)) for x in ((start, zeros) if start.any() else (start,))]
        scale = max((value for value in before if np.isfinite(value)), default=0.0)
        value = measure(end)
        if scale > 0.0 and not value <= WORSE * scale:
            found.append((name, value, value / scale))
    diverged = [one for one in found if not one[2] <= MANY]
    return next(iter(diverged or found), None)


def _loss(problem: Problem, models: Array) -> float:
    """The objective at a coordinator's model (1, dim), or the sum of f_i at the agents' own."""
    if len(models) == problem.agents:
        return float(np.sum(problem.agent_values(models)))
    return float(problem.objective(models[0]))


# Why nobody can go on: the first cause of a wait that never ends, in words.

RESENT = "use on_loss: resend with a higher limit"


class Waits:
    """Collects causes with the time at which they strike; the earliest is the root."""

    def __init__(self, policy: Policy) -> None:
        self.roots: list[tuple[float, str]] = []
        self.cure = cure(policy)

    def lost(self, time: float, sender: int, receiver: int, round_: int) -> None:
        """A message that is waited for was lost for good."""
        self.roots.append(
            (
                time,
                f"{_name(receiver)} waits for the message of round {round_} from "
                f"{_name(sender)}, which was lost after {time:.6g} s; {RESENT}, or {self.cure}",
            )
        )

    def endless(self, time: float, agent: int, round_: int) -> None:
        """A computation never ends."""
        self.roots.append(
            (
                time,
                f"agent {agent} began a computation in round {round_} at {time:.6g} s that "
                "never ends; its speed is 0: change compute.speed, or silent attackers",
            )
        )

    def away(self, time: float, agent: int) -> None:
        """An agent is needed that has left for good."""
        self.roots.append(
            (
                time,
                f"agent {agent} is needed at {time:.6g} s, but has left and never comes back; "
                f"churn.trace ends so: use end: loop, or {self.cure}",
            )
        )

    def note_graph(self, request: Any, us: Any, before: Any, wires: Any) -> None:
        """Note the agents that this request of the cohort engine has stopped for good."""
        for i in np.flatnonzero((us.clock == np.inf) & (before < np.inf)):
            if isinstance(request, Compute):
                self.endless(float(before[i]), int(i), int(us.round[i]))
                continue
            graph = wires.graph
            for e in range(graph.incoming[i], graph.incoming[i + 1]):
                source = int(graph.source[e])
                sent = us.ended[source] if us.gone[source] else wires.left[source]
                if wires.awaited[e] == np.inf and sent < np.inf:
                    self.lost(float(sent), source, int(i), int(us.round[i]))

    def deadlock(self, waiting: int) -> Deadlock:
        """The error that names the root."""
        time, root = min(self.roots, default=(0.0, "no cause is known"))
        others = f"; {waiting} in all wait, directly or in turn" if waiting > 1 else ""
        error = Deadlock(f"nobody can go on: {root}{others}")
        error.time = time
        return error


def cure(policy: Policy) -> str:
    """What of a policy that waits for ever makes it go on."""
    if policy.at_least:
        lower = f"policy.at_least below {policy.at_least}, or none"
        return lower if policy.at_least > 1 else "no policy.at_least"
    if policy.kind in ("quorum", "buffer"):
        return f"policy: {{{policy.kind}: {policy.value:g}, at_most: ...}}"
    return "policy.at_most" if policy.adaptive else "a policy with a deadline"


def _name(agent: int) -> str:
    return "the coordinator" if agent < 0 else f"agent {agent}"
