"""`us` of a client's job: what a coordinator's agents see when they are called."""

from collections.abc import Callable

import numpy as np

from desim.arrays import Array, Int
from desim.engine.at_work import PROGRAM, Rounds, refused
from desim.engine.given import refuse_owned, state_rows
from desim.engine.world import World
from desim.network.timeline.record import release_id
from desim.privacy.ledger.ledger import Mechanism, Terms, View, plain
from desim.shapes import rows_given

NOISED = "; an agent that is called returns us.noised(value), with the charge of hub.call"


class Clients:
    """`us` of a client's job: rows of the agents' state for `who` (n,), called in `round` (n,)."""

    who: Int
    round: Rounds
    address: Int  # (n,) the round as draws inside jobs count it: exchanges of a round differ
    _world: World
    _terms: Terms | None
    _whole: bool
    _drawn: bool  # whether noise was asked for

    def __init__(
        self, world: World, who: Int, round_: Int, terms: Terms | None, exchange: int = 0
    ) -> None:
        own = self.__dict__
        own["address"] = round_ + (exchange << 24) if exchange else round_
        own["who"], own["round"] = who, round_.view(Rounds)
        own["_world"], own["_terms"] = world, terms
        own["_whole"] = len(who) == world.settings.problem.agents
        own["_drawn"] = False

    def __getattr__(self, name: str) -> Array:
        try:
            rows = self._world.state[name]
        except KeyError:
            if name in PROGRAM:
                raise refused(f"us.{name}") from None
            hint = NOISED if name == "release" else "; a coordinator gives it by hub.start"
            raise AttributeError(f"the agents have no state {name!r}{hint}") from None
        return np.array(rows) if self._whole else np.asarray(rows[self.who])

    def __setattr__(self, name: str, value: Array) -> None:
        state = self._world.state
        if name not in state:
            refuse_owned(f"us.{name} = ...", name, type(self))
        rows = state_rows(name, value, len(self.who), state.get(name))
        if self._whole:
            state[name] = np.array(rows)
            return
        if name not in state:
            state[name] = np.zeros((self._world.settings.problem.agents, *rows.shape[1:]))
        state[name][self.who] = rows

    @property
    def noise_key(self) -> np.uint64:
        """The key of noise drawn inside a kernel; only a call that was charged has one, once.

        Its draws are addressed by `us.address`: exchanges of one round share the key.
        """
        self._draw_once()
        return self._world.ledger.noise_key(self._terms)

    def _draw_once(self) -> None:
        if self._drawn:
            raise RuntimeError("a call asks twice for its noise, which may serve one value only")
        self.__dict__["_drawn"] = True

    @property
    def owing(self) -> bool:
        """Whether the call was charged for noise that has not been asked for."""
        terms = self._terms
        if terms is None or terms.mechanism is Mechanism.NONE or self._drawn:
            return False
        return bool((terms.scale[self.who] > 0.0).any())

    def noised(self, value: Array) -> Array:
        """Return value (n, dim) with the noise of the call's charge, which may serve it only."""
        terms, world = self._terms, self._world
        value = rows_given("us.noised: value", value, len(self.who))
        if terms is None or terms.mechanism is Mechanism.NONE:
            return value
        self._draw_once()
        exchange = int((self.address[0] - self.round[0]) >> 24)
        noisy = world.ledger.noise(self.who, np.asarray(self.round), exchange, value, terms)
        return self.released(noisy, lambda: value)

    def released(self, output: Array, value: Callable[[], Array]) -> Array:
        """Return what a kernel with noise inside gave, output (n, dim), to be used in its place.

        value(): the same (n, dim) without noise, asked for only where somebody listens.
        """
        world = self._world
        if not world.signals.releasing:
            return output
        rounds, agents = np.asarray(self.round), world.settings.problem.agents
        exchange = (self.address - rounds) >> 24
        ids = release_id(agents, self.who, rounds, exchange)
        terms = self._terms or plain(agents, View.COORDINATOR)
        return world.signals.released(self.who, rounds, ids, value(), output, terms, self.who)
