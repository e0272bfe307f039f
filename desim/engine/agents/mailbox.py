"""What has arrived at one agent of a graph and was not read, in the agent engine."""

from collections.abc import Callable
from typing import Any

import numpy as np
import simpy
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.engine.releasing import outgoing_part
from desim.engine.requests import Gather, Heard
from desim.network.conditions.policy import until
from desim.network.conditions.topology import Changing, Graph
from desim.network.timeline.record import DISTANT, Kind
from desim.network.timeline.waiting_rule import FIXED, WAITING, enough, learn, nothing_seen


class Box:
    """Where an agent's messages lie until it reads them."""

    last: Array  # (neighbours, dim), as heard latest

    def __init__(self, agent: int) -> None:
        self.agent = agent
        self.rule, self.over = WAITING, False  # what closes the wait, whether its limit is over
        self.later = False  # whether a message of a later number does as well
        self.awaited: Mask | None = None  # neighbours that have something for the agent, or all
        self.wanted = 0
        self.limit: Callable[[], None] | None = None  # called with each message of a wait
        self.complete: simpy.Event | None = None

    def routes(self, us: Any, graph: Graph, used: Mask | None) -> tuple[tuple[Int, Int], Int]:
        """Links of the graph that are used, and those of them on which the agent sends.

        From now on it awaits messages of its used links alone.
        """
        i, part = self.agent, None if us.leaving[0] else used
        self.awaited = None if used is None else used[graph.incoming[i] : graph.incoming[i + 1]]
        routes = (graph.outgoing, graph.out_links) if part is None else outgoing_part(graph, part)
        return routes, routes[1][routes[0][i] : routes[0][i + 1]]

    def check(self: Any) -> None:
        """Wake the agent if what it waits for is here."""
        if self.complete is not None and self.has(self.wanted):
            self.complete.succeed()
            self.complete = None

    def hear(
        self: Any, us: Any, request: Gather, number: int, begin: float, now: float
    ) -> Heard:  # fmt: skip
        """What agent `us` hears that has waited for messages `number` from `begin` to `now` s."""
        fresh = self.newest() if request.newest or request.later else self.read(number)
        place, world, news = (self.agent, int(us.round[0]), now), us._world, float(fresh.sum())
        world.log.add(Kind.AGGREGATE, DISTANT, *place, seconds=now - begin, value=news)
        if not request.patient:
            world.waited(us.who, np.array([news]), np.array([now]))
        heard: Heard = self._heard(fresh)
        return heard

    def announced(self, values: Array) -> Heard:
        """What the agent hears if its neighbours have announced values (neighbours, dim)."""
        self.last = np.ascontiguousarray(values)
        return self._heard(np.ones(len(values), bool))

    def _heard(self, fresh: NDArray[np.bool_]) -> Heard:
        neighbours = len(self.last)
        return Heard(np.array([0, neighbours]), np.arange(neighbours), self.last.copy(), fresh)


class Mailbox(Box):
    """What has arrived at one agent: per neighbour its messages by number, a null being None."""

    def __init__(self, agent: int, neighbours: int) -> None:
        super().__init__(agent)
        self.letters: list[dict[int, Array | None]] = [{} for _ in range(neighbours)]
        self.came: list[dict[int, float]] = [{} for _ in range(neighbours)]  # when, s
        self.seen = nothing_seen(neighbours)  # how long messages were waited for
        self.last = np.empty((neighbours, 0))
        self.number = np.zeros(neighbours, np.int64)
        self.farewell = np.full(neighbours, 1 << 60)  # number of the last message ever

    def widen(self, dim: int) -> None:
        """Until something is heard it is zeros of dimension `dim`."""
        if self.last.shape[1] == 0:
            self.last = np.zeros((len(self.letters), dim))

    def put(self, place: int, number: int, letter: Array | None, last: bool, time: float) -> None:
        """Take a message of the neighbour at `place`, here at `time` s, the last one ever or not.

        It wakes the agent if nothing more is wanted.
        """
        self.letters[place][number] = letter
        self.came[place][number] = time
        if last:
            self.farewell[place] = number
        self.check()
        if self.limit is not None:
            self.limit()

    def here(self, number: int) -> list[bool]:
        """Whether each awaited message `number` is here, or will never be sent."""
        return [
            bool(
                number in letters or heard >= number or last < number or not awaited
                or (self.later and max(letters, default=0) > number)
            )
            for letters, heard, last, awaited in zip(
                self.letters, self.number, self.farewell,
                [True] * len(self.letters) if self.awaited is None else self.awaited, strict=True,
            )
        ]  # fmt: skip

    def has(self, number: int, over: bool = False) -> bool:
        """Whether enough messages `number` are here for the rule to close the wait.

        over: as it will be once its limit is over, if that is not so yet.
        """
        here = self.here(number)
        return enough(self.rule, len(here), sum(here), over or self.over)

    def until(self, number: int, opened: float) -> float:
        """When the limit is of a wait for messages `number` that was opened at `opened` s."""
        times = [] if self.rule.law == FIXED else self._times(number, opened, np.inf)
        return until(self.rule, opened, self.seen, np.array([took for _, took, _ in times]))

    def learn(self, number: int, opened: float, closed: float) -> None:
        """Note how long the messages `number` were waited for, from `opened` to `closed` s."""
        for place, took, here in self._times(number, opened, closed):
            learn(self.seen, place, took, here)

    def _times(self, number: int, opened: float, else_: float) -> list[tuple[int, float, bool]]:
        """Of each awaited message its place, how many s it took, and whether it is here."""
        found = []
        for place, here in enumerate(self.here(number)):
            if self.awaited is None or self.awaited[place]:
                last = min(number, int(self.farewell[place]))
                came = self._arrival(place, last, opened) if here else else_
                found.append((place, max(opened, came) - opened, here))
        return found

    def _arrival(self, place: int, number: int, opened: float) -> float:
        """When the message, or the first that does as well, came; `opened` s if it was read."""
        came = self.came[place]
        if not self.later:
            return came.get(number, opened)
        return min((time for n, time in came.items() if n >= number), default=opened)

    def read(self, number: int) -> NDArray[np.bool_]:
        """Bring `last` up to the newest messages not after `number`; say which have that number."""
        for place in range(len(self.letters)):
            self._take(place, number)
        return np.asarray(self.number == number)

    def newest(self) -> NDArray[np.bool_]:
        """Bring `last` up to all that is here; say which neighbours it has news of."""
        return np.array([self._take(place, 1 << 60) for place in range(len(self.letters))])

    def _take(self, place: int, number: int) -> bool:
        """Read the neighbour's messages up to `number`; return whether they hold a value."""
        letters, spoken = self.letters[place], False
        for n in sorted(k for k in letters if k <= number):
            letter = letters.pop(n)
            self.came[place].pop(n, None)
            if n > self.number[place]:
                self.number[place] = n
                if letter is not None:
                    if self.last.shape[1] != len(letter):
                        self.last = np.zeros((len(self.letters), len(letter)))
                    self.last[place], spoken = letter, True
        return spoken


# Messages of neighbours that change from round to round.


class Meetings(Box):
    """The messages of each turn by sender: those of a turn are heard together and then forgotten.

    A mailbox for agents that wait for every neighbour of a turn, and have heard no other before.
    """

    def __init__(self, agent: int, changing: Changing) -> None:
        super().__init__(agent)
        self.changing = changing
        self.letters: dict[int, dict[int, Array]] = {}
        self.last = np.empty((0, 0))

    def widen(self, dim: int) -> None:
        """Messages are of dimension `dim`."""
        if self.last.shape[1] == 0:
            self.last = np.empty((0, dim))

    def put(self, turn: int, sender: int, letter: Array) -> None:
        """Take the message of a neighbour of `turn`; wake the agent if it was the last wanted."""
        self.letters.setdefault(turn, {})[sender] = letter
        self.check()

    def _neighbours(self, turn: int) -> NDArray[np.int64]:
        graph = self.changing.at(turn)[0]
        return graph.source[graph.incoming[self.agent] : graph.incoming[self.agent + 1]]

    def has(self, turn: int, over: bool = False) -> bool:
        """Whether every neighbour's message of `turn` is here."""
        return len(self.letters.get(turn, ())) == len(self._neighbours(turn))

    def until(self, _turn: int, _opened: float) -> float:
        """When the limit of a wait is: never."""
        return np.inf

    def read(self, turn: int) -> NDArray[np.bool_]:
        """Hear the messages of `turn`, in the order of the neighbours; all are of that turn."""
        letters, dim = self.letters.pop(turn, {}), self.last.shape[1]
        rows = [letters[int(j)] for j in self._neighbours(turn)]
        self.last = np.array(rows).reshape(len(rows), dim)
        return np.ones(len(rows), bool)
