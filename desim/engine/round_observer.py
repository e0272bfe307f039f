"""The observer of a coordinator method, whose models are true from one collection to the next."""

import math
from collections.abc import Sequence

import numpy as np

from desim.arrays import Array, Int
from desim.engine.metrics import MetricRows, diverged
from desim.engine.observer import Alive, bounded, unheeding
from desim.engine.patience import Patience
from desim.errors import RunError
from desim.memory import Tree, attributes, fill, recall
from desim.problem.kernels.tally import Tally, move, tally_for

COORDINATOR = np.zeros(1, np.int64)  # whose clock is looked at
SEEN_NUMBERS = 1 << 20  # of the models that are kept before they are looked at


class RoundObserver:
    """Observes a coordinator method: one row per collection, or per `every` seconds if not 0.

    A collection costs in proportion to the agents that moved since the last one, not to all.
    """

    def __init__(
        self, rows: MetricRows, every: float, keep: bool, patience: Patience,
        cures: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.cures, self.patience = cures, patience
        self.alive: Alive = unheeding
        self.rows = rows
        self.every = every
        self.keep = keep
        self.rounds = 0
        self.failed: RunError | None = None
        self.models: list[Array] = []
        self.kept: list[Array] = []
        self._instant = 0
        self._ended: list[Array] = []  # when rounds did, s, but for those before a checkpoint
        self._held: tuple[int, Array, Array] | None = None
        self._tally: Tally | None = None

    def publish(
        self, time: float, round_: int, x: Array, model: Array, moved: Int | None = None
    ) -> None:
        """Observe models x (agents, dim) and the coordinator's (dim,), true from `time` s on.

        moved (n,): the agents whose models may differ from those last observed; None for all.
        """
        news = x if moved is None else x[moved]
        if not math.isfinite(np.add.reduce(news, None) + np.add.reduce(model)):
            bad = np.flatnonzero(~np.isfinite(x).all(1))
            if bad.size or not np.isfinite(model).all():
                raise diverged(int(bad[0]) if bad.size else -1, round_, time, self.cures)
        if self.keep:
            self.kept.append(x.copy())
        self.rounds = round_
        self._ended.append(np.array([time]))
        self.models.append(model[None].copy())
        model = self.models[-1][0]  # the program may change its own
        error = self._error(x, moved) if self.tallied else None
        if self.every == 0.0:
            self.rows.network(time, round_, x, model, error)
            self._judge(round_, time)
            return
        self.settle(time)
        if self._held is None or moved is None:
            self._held = (round_, x.copy(), model)
        else:
            self._held[1][moved] = news
            self._held = (round_, self._held[1], model)
        self._stop(time, round_, x, model, error)
        self._judge(round_, time)

    def _judge(self, round_: int, time: float) -> None:
        """RunError if the run would never end, unless it ends here."""
        failure = self.patience.judged(round_, np.array([time]), COORDINATOR)
        if failure is not None and self.rows.reached is None:
            raise failure

    def passed(
        self, times: Array, models: Array, x: Array, errors: Array, before: dict[int, Array]
    ) -> None:
        """Observe the next rounds, which have passed in one compiled call with finite models.

        times (n,) s; models (n, dim): the coordinator's; x (agents, dim): the agents' at the end,
        held until there is another call; errors (n,), or none unless `tallied`; before: by place in
        times, the agents' models before the rounds in whose course an observation was due; the
        round after the last, if it has one, went wrong. Only the last may meet a target.
        """
        first, n = self.rounds + 1, len(times)
        if n:
            self.models.append(models)
            self.rounds += n
            self._ended.append(times)
        if self.every:
            self._hold(times, models, x, before)
        if n and not self.idle:
            error = float(errors[-1]) if len(errors) else None
            if self.every == 0.0:
                self.rows.rounds(times, first, x, models, errors)
            else:
                self._stop(float(times[-1]), self.rounds, x, models[-1], error)
        if n:
            self._judge(self.rounds, float(times[-1]))

    def _hold(self, times: Array, models: Array, x: Array, before: dict[int, Array]) -> None:
        """Settle what was due in the course of rounds, and hold what is true at their end."""
        n, first = len(times), self.rounds - len(times) + 1
        for k, earlier in before.items():
            assert self._held is not None
            self._held = (first + k - 1, earlier, models[k - 1] if k else self._held[2])
            if k < n:
                self.settle(float(times[k]))
        if n and n not in before:
            self._held = (self.rounds, x, models[-1])

    def _stop(self, time: float, round_: int, x: Array, model: Array, error: float | None) -> None:
        """Add the row of a target that holds now, between two instants."""
        if self.rows.check(time, x, model, error):
            self.rows.network(time, round_, x, model)
            self._instant += time == self._instant * self.every  # that is the row of this instant

    def rounds_by(self, end: float) -> int:
        """How many rounds were over at `end` s, when some may not have been."""
        later = sum(int(np.count_nonzero(times > end)) for times in self._ended)
        return max(0, self.rounds - later)

    @property
    def idle(self) -> bool:
        """Whether nothing is measured or kept but the coordinator's models."""
        measured = self.rows.metrics.names or self.rows.targets
        return not (self.keep or measured)

    @property
    def instant(self) -> int:
        """Number of the next observation at instants."""
        return self._instant

    @property
    def full(self) -> bool:
        """Whether every round's models of all agents are wanted."""
        return self.keep or (self.every == 0.0 and "consensus" in self.rows.metrics.names)

    @property
    def tallied(self) -> bool:
        """Whether every round's error is wanted."""
        names = () if self.every else self.rows.metrics.names
        return "error" in (*names, *dict(self.rows.targets))

    def tally(self, x: Array) -> Tally:
        """The squared distances of models x (agents, dim), which were last observed."""
        if self._tally is None:
            self._tally = tally_for(len(x), self.rows.metrics.optimum)
            move(np.arange(len(x)), x, tuple(self._tally))
        return self._tally

    def _error(self, x: Array, moved: Int | None) -> float:
        known, tally = self._tally is not None, self.tally(x)
        if known:
            move(np.arange(len(x)) if moved is None else moved, x, tuple(tally))
        return float(tally.sums[0]) / self.rows.metrics.norm

    def settle(self, frontier: float) -> None:
        """Record the observations due before `frontier` s; nothing to do for `every: round`."""
        if self._held is not None:
            bounded(self.every, frontier, self._instant)
            (round_, x, model), first = self._held, True
            while self.due < frontier:
                if first:
                    self.rows.network(self.due, round_, x, model)
                else:
                    self.alive()
                    self.rows.again(self.due, round_)
                self._instant, first = self._instant + 1, False

    @property
    def due(self) -> float:
        """When the next observation at instants is to be made, s."""
        return self._instant * self.every if self.every else math.inf

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        if len(self.models) > 1:
            self.models = [np.concatenate(self.models)]
        held = self._held and dict(zip("round x model".split(), self._held, strict=True))
        own = {"held": held, "rows": self.rows.remembered(), "looked": self.patience.looked}
        return own | attributes(self, "rounds _instant model iterates")

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""
        self.models = [tree["model"]] if "model" in tree else []
        self.kept = list(tree.get("iterates", ()))
        if held := tree.get("held"):
            self._held = int(held["round"]), held["x"], held["model"]
        recall(self, tree, "rounds _instant")
        self.rows.recall(tree["rows"])
        fill(self.patience.looked, tree["looked"])

    def leave(self, agent: int, time: float) -> None:
        """Nothing to note: the coordinator's rounds go on without the agent."""

    @property
    def ends(self) -> tuple[Array, Array] | None:
        """The coordinator's models (1, dim) at the start and at the end; None before any."""
        return (self.models[0][:1], self.models[-1][-1:]) if self.models else None

    @property
    def iterates(self) -> Array | None:
        """Models (rounds + 1, agents, dim), if kept."""
        return np.array(self.kept) if self.keep else None

    @property
    def model(self) -> Array | None:
        """The coordinator's models (rounds + 1, dim)."""
        return np.concatenate(self.models) if self.models else None
