"""What a coordinator has asked of each agent: a reply is computed, and noised, as its call said.

A reply may come after later calls to others, which ask for another job or charge another price.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from desim.arrays import Array, Int, Mask
from desim.errors import RunError
from desim.memory import Tree
from desim.privacy.ledger.ledger import AMOUNTS, Mechanism, Terms, View
from desim.shapes import is_ascending

Train = Callable[..., Array]


def ascending(who: Int, payload: Array) -> tuple[Int, Array]:
    """Agents who (n,) in the order of their numbers, and payload (p,) or (n, p) in theirs."""
    if is_ascending(who):
        return who, payload
    order = np.argsort(who)
    return who[order], payload if payload.ndim == 1 else payload[order]


def job_name(job: Any) -> str:
    """The name of a job's function."""
    while isinstance(job, partial):
        job = job.func
    return getattr(job, "__name__", "")


class Assignment(NamedTuple):
    """job(us, payload rows), terms (agents,) of its reply, and the number of the call in its round.

    job: None of a call that an earlier process made; all calls have one job then.
    """

    job: Any
    terms: Terms
    exchange: int

    def alike(self, other: "Assignment") -> bool:
        """Whether one batch can answer both, each agent with its own amounts."""
        one, two = self.terms, other.terms
        return (self.job, self.exchange) == (other.job, other.exchange) and (
            one is two or _kind(one) == _kind(two)
        )


class Assignments:
    """The latest call of each agent: `latest` (agents,) is its number among those `given`."""

    def __init__(self, agents: int) -> None:
        self.latest, self.number = np.zeros(agents, np.int64), 0
        self.given: dict[int, Assignment] = {}
        self.job: Any = None  # the first one
        self.single = True  # whether all calls had that job: no checkpoint can hold one
        self.before = ""  # the name of the job of calls that an earlier process made
        self._room = 2

    def note(self, rows: Any, new: Assignment, pending: Mask) -> None:
        """Agents `rows` are called; pending (agents,): who owed a reply before."""
        self.job = self.job or new.job
        self.single = self.single and new.job == self.job
        newest = self.given.get(self.number)
        same = newest is not None and newest.terms is new.terms and newest.alike(new)
        if not same:
            self.number += 1
            self.given[self.number] = new
        self.latest[rows] = self.number
        if len(self.given) > self._room:
            used = {*self.latest[pending > 0].tolist(), self.number}
            self.given = {number: self.given[number] for number in sorted(used)}
            self._room = 2 * len(self.given) + 2

    @property
    def ready(self) -> bool:
        """Whether a job is known."""
        return self.number in self.given

    def exchange(self, agent: int) -> int:
        """Which call of its round the agent's latest one is."""
        return self.given[int(self.latest[agent])].exchange

    @property
    def one(self) -> Assignment | None:
        """What is asked of all agents that were called, None where it differs."""
        return self._of(self.number) if len(self.given) == 1 else None

    def groups(self, who: Int) -> Iterator[tuple[Assignment, Int]]:
        """What is asked of agents who (n,), with the places in `who` of those it is asked of."""
        numbers, batches = self.latest[who], list[tuple[Assignment, list[int]]]()
        for number in np.unique(numbers).tolist():
            one = self._of(number)
            for first, alike in batches:
                if one.alike(first):
                    alike.append(number)
                    break
            else:
                batches.append((one, [number]))
        for first, alike in batches:
            rows = np.flatnonzero(np.isin(numbers, alike))
            yield first._replace(terms=self._terms(alike, who[rows])), rows

    def remembered(self, owing: Int) -> Tree:
        """What a checkpoint needs of the calls of agents owing (n,): a row of numbers for each."""
        calls = [self.given[number] for number in self.latest[owing].tolist()]
        rows = [
            [one.exchange, int(one.terms.mechanism), int(one.terms.view), one.terms.resolution]
            + [float(amount[i]) for amount in _amounts(one.terms)]
            for one, i in zip(calls, owing.tolist(), strict=True)
        ]
        return {
            "number": self.number,
            "single": int(self.single),
            "job": job_name(self.job),
            "rows": np.array(rows, float).reshape(len(owing), 8),
        }

    def recall(self, owing: Int, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.number, agents = int(tree["number"]), len(self.latest)
        self.single, self.before = bool(tree["single"]), str(tree["job"])
        rows = tree["rows"]
        kinds, which = np.unique(rows[:, :4], axis=0, return_inverse=True)
        for place, (exchange, mechanism, view, resolution) in enumerate(kinds.tolist()):
            mine, number = which.ravel() == place, place - len(kinds)
            amounts = np.zeros((4, agents))
            amounts[:, owing[mine]] = rows[mine, 4:].T
            terms = Terms(
                Mechanism(int(mechanism)), View(int(view)), amounts[0], amounts[1], amounts[2],
                resolution, coupled=amounts[3],
            )  # fmt: skip
            self.given[number] = Assignment(None, terms, int(exchange))
            self.latest[owing[mine]] = number

    def _of(self, number: int) -> Assignment:
        """The call of that number; one of an earlier process has a job of the same name."""
        one, job = self.given[number], self.given[self.number].job
        if one.job is not None:
            return one
        if job_name(job) != self.before:
            job = getattr(getattr(job, "__self__", None), self.before, None)
        if job is None:
            found = f"found replies to a job {self.before} of before the run was stopped"
            raise RunError(f"algorithm: {found}; allowed: jobs that are methods of one object")
        return one._replace(job=job)

    def _terms(self, numbers: list[int], who: Int) -> Terms:
        """Terms (agents,) that have each of agents who (n,) at what its call is charged."""
        terms = [self.given[number].terms for number in numbers]
        if all(one is terms[0] for one in terms):
            return terms[0]
        amounts = np.array(_amounts(terms[0]), float)
        for number, one in zip(numbers, terms, strict=True):
            rows = who[self.latest[who] == number]
            amounts[:, rows] = np.array(_amounts(one), float)[:, rows]
        named = dict(zip((*AMOUNTS, "coupled"), amounts, strict=True))
        return replace(terms[0], **named)


def _kind(terms: Terms) -> tuple[Any, ...]:
    return terms.mechanism, terms.view, terms.resolution


def _amounts(terms: Terms) -> tuple[Array, ...]:
    """Sensitivity, scale, sampling and coupled (agents,)."""
    coupled = terms.sensitivity if terms.coupled is None else terms.coupled
    return terms.sensitivity, terms.scale, terms.sampling, coupled
