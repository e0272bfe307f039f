"""The laws of what a trusted coordinator believes: replies count by their sum, and agents forget.

Noise on a sum, and accounts of who is in it, rest on what a class says of itself (`summed`,
`forgetful`). Here a program is shown other replies than those that were added up, and agents hear
other messages in the rounds before: what is said is so where nothing else comes out.
"""

from collections.abc import Callable, Container, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, cast

import numpy as np

from desim.arrays import Array, Int
from desim.engine.requests import Replies
from desim.engine.signals import Feature
from desim.errors import raised
from desim.experiments.audit.pairs import completed, unobserved
from desim.experiments.contract.stage import BrokenError, SkippedError, Stage
from desim.log.event_log import Outcome
from desim.log.parquet import Tables
from desim.methods.shared.declarations import Method
from desim.scenario.build import build
from desim.scenario.schema import Scenario

AGENTS = 4  # that are shown in the place of others
Call = tuple[int, int, int]  # agent, the round of its call, which one of the round


class Adding(Feature):
    """Stands for whoever is trusted with the replies of one play: they are added up.

    shown: how many replies, of other numbers, agents and rounds, a program sees in their place;
    None: them. sums_of: a play whose sums there are in place of its own.
    """

    def __init__(self, shown: int | None = None, sums_of: "Adding | None" = None) -> None:
        self.shown, self.sums_of, self.sums = shown, sums_of, list[tuple[Array, float]]()
        self.seen: Replies | None = None
        self.own: Replies | None = None

    def feature(self, world: Any) -> Feature:
        """What hangs on a coordinator's calls: this."""
        return self

    def closed(self, hub: Any, replies: Replies) -> Replies:
        """What the program sees of replies."""
        self.own = self.seen = replies
        if self.shown is not None:
            who = np.arange(min(self.shown, hub.agents))
            rows = np.cos(np.arange(len(who) * replies.payload.shape[1], dtype=float))
            payload, rounds = rows.reshape(len(who), -1), np.maximum(hub.round - who, 0)
            self.seen = Replies(who, payload, rounds, np.full(len(who), 0.75))
        return self.seen

    def program(self, program: Any) -> Any:
        """The program of a coordinator that sees these."""

        def coordinator(hub: Any) -> Generator[Any, Any, None]:
            inner, answer = program(hub), None
            while True:
                try:
                    request = inner.send(answer)
                except StopIteration:
                    return
                answer = yield request
                if isinstance(answer, Replies):
                    answer = self.closed(hub, answer)

        return coordinator

    def total(self, hub: Any, replies: Replies) -> tuple[Array, float]:
        """The sum of what came, and how many replies it holds; BrokenError for others."""
        if replies is not self.seen or self.own is None:
            raise BrokenError(
                "it says summed, but gives hub.total other replies than hub.collect gave"
            )
        one = np.sum(self.own.weighed, axis=0), float(len(self.own.who))
        if self.sums_of is not None and len(self.sums) < len(self.sums_of.sums):
            one = self.sums_of.sums[len(self.sums)]
        self.sums.append(one)
        return one[0].copy(), one[1]


class Hearing(Adding):
    """Notes what agents hear and reply; with `before`, agents hear what they did there.

    apart: rounds in which they hear something else.
    """

    def __init__(
        self, before: "Hearing | None" = None, apart: Container[int] = (),
        sums_of: Adding | None = None,
    ) -> None:  # fmt: skip
        super().__init__(sums_of=sums_of)
        self.before, self.apart = before, apart
        self.heard, self.replies = dict[Call, Array](), dict[Call, Array]()

    def calling(self, hub: Any, who: Int, payload: Array) -> tuple[Int, Array]:
        """Whom a call goes to, and what is heard of its payload, a row each."""
        rows = np.array(np.broadcast_to(payload, (len(who), payload.shape[-1])))
        for place, i in enumerate(who.tolist()):
            call = i, int(hub.round), int(hub.exchange)
            if self.before is not None:
                rows[place] = self.before.heard.get(call, rows[place])
            if hub.round in self.apart:
                rows[place] = 0.5 * rows[place] + 0.125
            self.heard[call] = rows[place].copy()
        return who, rows

    def replied(self, us: Any, reply: Array) -> Array:
        """What is heard of replies (n, dim)."""
        rounds = np.asarray(us.round)
        exchange = (us.address - rounds) >> 24
        for i, k, number, row in zip(us.who, rounds, exchange, reply, strict=True):
            self.replies[int(i), int(k), int(number)] = row.copy()
        return reply


def played(scenario: Scenario, adding: Adding) -> tuple[Outcome, Tables]:
    """What a scenario comes to with it, and its log."""
    made, trust = unobserved(build(scenario)), cast(Any, adding)
    settings = replace(made.settings, trust=trust, budget=None)
    made = replace(made, settings=settings, engine="agents")
    made.method.coordinator = adding.program(made.method.coordinator)
    return completed(made.play(tables := Tables())), tables


def _apart(one: tuple[Outcome, Tables], two: tuple[Outcome, Tables]) -> str:
    """What of two plays differs; empty for nothing."""
    (first, tables), (second, others) = one, two
    both: Any = ({"the model": out.model, **out.state} for out in (first, second))
    arrays, news = both
    for name, array in arrays.items():
        if array is not None and not np.array_equal(array, news.get(name), equal_nan=True):
            return str(name)
    same = (tables.read(name).equals(others.read(name)) for name in ("events", "releases"))
    return "" if all(same) else "the log"


def sums(stage: Stage) -> str:
    """Nothing follows from replies but what hub.total gives."""
    said = stage.method.totals()
    own = said.items() if isinstance(said, Mapping) else ()
    changes: dict[str, Any] = {f"algorithm__{key}": value for key, value in own}
    scenarios = [stage.possible(**changes)]
    with suppress(SkippedError):
        scenarios.append(stage.possible(**changes, participation={"bernoulli": 0.5}))
    for scenario in scenarios:
        true = played(scenario, adding := Adding())
        if not adding.sums:
            raise BrokenError("it says summed, but never takes hub.total(replies)")
        for shown in (1, AGENTS):
            cause = None
            try:
                apart = _apart(true, played(scenario, Adding(shown)))
            except Exception as error:
                apart, cause = raised(error), error
            if apart:
                raise BrokenError(
                    f"it says summed, but where it sees other replies of the same sum: {apart}; "
                    "hub.total(replies) is to be all that a program takes, not their number or who"
                ) from cause
        _refuse_seen(scenario)
    return "other replies of the same sum change nothing"


def _refuse_seen(scenario: Scenario) -> None:
    """BrokenError for a model that follows from what agents do, at sums that stay what they were.

    What a job keeps where a coordinator finds it is no reply, and shows none in its place.
    """
    every = (true := Hearing()), Hearing(apart=range(1, 1 << 40), sums_of=true)
    one, other = (np.asarray(played(scenario, each)[0].model) for each in every)
    if not np.array_equal(one, other, equal_nan=True):
        raise BrokenError(
            "it says summed, but where agents reply other things of the same sum its model is "
            "another; hub.total(replies) is to be all that a program knows of what agents do"
        )


def forgets(stage: Stage) -> str:
    """A reply follows from its call alone, whatever an agent has heard before."""
    scenario, number = stage.possible(codec="none"), 0
    played(scenario, true := Hearing())
    last = max((k for _, k, _ in true.heard), default=0)
    for apart in (range(1, last + 1, 2), range(2, last + 1, 2), range(1, last // 2 + 1)):
        played(scenario, news := Hearing(true, apart))
        for i, k, exchange in sorted(call for call in true.replies if call[1] not in apart):
            number += k > min(apart, default=last)
            one, two = (side.replies.get((i, k, exchange)) for side in (true, news))
            if two is None or one is None or one.tobytes() != two.tobytes():
                raise BrokenError(
                    f"it says forgetful, but what agent {i} replies in round {k} depends on what "
                    "it heard in the rounds before"
                )
    if not number:
        raise SkippedError("nobody is called in a second round")
    return f"{number} replies, each the same after other rounds"


def believed(method: type[Method]) -> list[tuple[str, Callable[[Stage], str]]]:
    """The laws that an algorithm is to keep for what its class says."""
    forgetful = vars(method).get("forgetful", False)
    every = ((method.totals(), sums), (forgetful, forgets))
    hub = method.kind == "coordinator"
    return [(law.__name__, law) for says, law in every if hub and says]
