"""What Python does inside blocks of rounds: a compiled round stops there, and goes on with it.

A codec, noise that no compiled step draws, and functions that say `@of_unplayed(..., gives=...)`,
such as an exact minimisation. They are called once a round, in the program's order, on the arrays
of that round. All else is played in one call, which costs some 10 us more for each stop.
"""

from dataclasses import fields, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from desim.engine.at_work import Rows
from desim.engine.compiled import machine
from desim.engine.compiled.turns import Later
from desim.engine.world import Unforeseen
from desim.network.timeline.together import span
from desim.privacy.ledger.ledger import AMOUNTS, Terms
from desim.shapes import whole_given

HERE = 3  # an operand that is none of THIS, BEFORE, GIVEN: `us`, or the round (n,) of each agent
US, ROUND = (HERE, 0), (HERE, 1)
COUNTS = np.dtype(np.int64), np.dtype(float)  # what one number of each agent may be
PLAIN = (bool, int, float, str, type(None), np.float64, np.int64, np.uint64)


def noted(tape: Any, value: Any, function: Any, arguments: Any, names: Any, gives: Any) -> Any:
    """Note that the function is called once there are numbers; return what stands for its own.

    gives: its columns for those of `value`, None for one number of each agent.
    """

    def operand(one: Any) -> Any:
        if one is tape.us or (tape.job is not None and one is tape.job):
            return US
        if one is (tape.us.unseen if tape.job is None else tape.job.round):
            return ROUND
        if type(one := tape.opened(one)) is type(value):
            return tape.operand(one)
        return tape.thing(one if type(one) is Later else _fixed(tape, one))

    operands = tuple(map(operand, (*arguments, *names.values())))
    words = "call", function, operands, tuple(names), tape.job is not None
    many = gives(value.shape[1] if value.ndim > 1 else 1)
    widths = many if isinstance(many, tuple) else (many,)
    edges = [0, *accumulate(1 if width is None else width for width in widths)]
    whole = tape.note((*words, widths), (len(value), edges[-1]))
    if many is not widths and many is not None:
        return whole
    parts = zip(widths, pairwise(edges), strict=True)
    found = [whole[:, a] if width is None else whole[:, a:b] for width, (a, b) in parts]
    return found[0] if many is None else tuple(found)


def called(us: Any, value: Any, function: Any, operands: Any, names: Any, job: bool,
           widths: Any) -> Any:  # fmt: skip
    """What the function gives (n, columns), or its arrays side by side; value(operand): its own."""
    own = {US: us, ROUND: us.__dict__["round"]}
    given = [own[one] if one in own else value(one) for one in operands]
    given = [one.copy() if isinstance(one, np.ndarray) else one for one in given]
    first = len(given) - len(names)
    found = function(*given[:first], **dict(zip(names, given[first:], strict=True)))
    parts = found if type(found) is tuple else (found,)
    n = len(us.who)
    kinds = [(np.shape(x), getattr(x, "dtype", None) in COUNTS[np.ndim(x) > 1 :]) for x in parts]
    if kinds != [((n,) if w is None else (n, w), True) for w in widths]:
        raise Unforeseen("a function that gives something else")
    return np.column_stack(parts) if len(parts) > 1 else np.reshape(found, (n, -1)).astype(float)


def _fixed(tape: Any, one: Any) -> Any:
    """A constant that nobody changes before it is used."""
    if type(one) is tuple:
        return tuple(_fixed(tape, x) for x in one)
    if type(one) is np.ndarray and one.dtype != object:
        return one.copy()
    room = type(one).__module__
    own = room.startswith("desim.") and not room.startswith("desim.engine")
    return one if own or type(one) in PLAIN else tape.refuse(f"a constant {type(one)}")


def same(one: Any, before: Any) -> Any:
    """Terms or a tuple, or what was there in the round before if it is the same to the last bit."""
    return before if type(before) is type(one) and _bits(before) == _bits(one) else one


def _bits(one: Any) -> Any:
    if type(one) is Terms:
        return tuple(_bits(getattr(one, field.name)) for field in fields(one))
    if type(one) is tuple:
        return tuple(map(_bits, one))
    if type(one) is np.ndarray:
        return one.shape, one.dtype, one.tobytes()
    return (type(one), repr(one)) if type(one) in PLAIN else id(one)


class Calls:
    """What Python does in one block of rounds from k + 1 on."""

    def __init__(self, player: Any, us: Any, k: int, stretch: Any, told: Any) -> None:
        self.player, self.us, self.k, self.stretch, self.told = player, us, k, stretch, told
        self.views: dict[Any, Any] = {}

    def done(self, at: Any) -> bool:
        """Do the step that the block has stopped at; False where the cohort engine is to."""
        player, b = self.player, int(at[0])
        step = player.steps.code[at[1] - 1]
        number, name, words = player.steps.calls[step[machine.MORE]]
        side = player.side ^ (b & 1)
        round_ = self.us.__dict__["round"] = player.cohort[1].copy()

        def value(operand: Any) -> Any:
            kind, number = operand
            return self._view(kind, number, side) if kind < 2 else self._given(number, b)

        try:
            if name == "bits":
                self._sized(b, words[0], words[1], value)
                return True
            if name == "call":
                found = called(self._seen(round_, words[3]), value, *words)
            elif name == "coded":
                found = self.us.coded(value(words[0]))
            else:
                found = self._drawn(b, step, name, words, value)
        except (Exception, Unforeseen):  # of which it will tell itself
            return False
        self._view(0, number, side)[...] = found
        return True

    def _sized(self, b: int, bits: Any, s: int, value: Any) -> None:
        """How many bits (n,) the messages have that are sent next."""
        player, size = self.player, value(bits).astype(np.int64)
        player.bits[s] = whole_given("us.send: bits", size, len(size))
        player.sized.setdefault(s, np.empty((player.most, len(size))))[b] = player.bits[s]

    def _seen(self, round_: Any, job: bool) -> Any:
        """What stands for `us` in a function: who, round, and that all are live."""
        own, everybody = self.us.__dict__, self.player.cohort[3]
        seen = Rows(self.us.who, round_, int(own["_world"].ledger.seed))
        vars(seen).update({} if job else {"round": round_, "live": everybody})
        return seen

    def _view(self, kind: int, number: int, side: int) -> Any:
        """What an operation of this round, or of the one before, gave."""
        key = number, side ^ kind
        if key not in self.views:
            self.views[key] = self.player.view(*key)
        return self.views[key]

    def _given(self, place: int, b: int) -> Any:
        """A constant as it is in a round."""
        if (column := self.stretch.varying.get(place)) is None:
            return self.stretch.first.constants[place]
        if not isinstance(column, Terms):
            return column[b]
        rows = {name: getattr(column, name) for name in AMOUNTS}
        return replace(column, **{n: x[b] if x.ndim > 1 else x for n, x in rows.items()})

    def _drawn(self, b: int, step: Any, name: str, words: Any, value: Any) -> Any:
        """Noise (n, dim), or rows with it, that is charged: see `us.perturbation`, `us.release`."""
        who, round_, clock, everybody, *_ = self.player.cohort
        draw, v = int(step[machine.OTHER + machine.ROW]), step[machine.NUMBER]
        ledger: Any = self.us.__dict__["_world"].ledger
        times, spans, ids, *_ = self.told
        place = who, round_, draw
        if name == "perturbation":
            found, ids[draw, b] = ledger.ahead(*place, words[-1], value(words[0]), everybody)
            return found
        terms, rows = value(words[0]), value(words[-1])
        found, ids[draw, b] = ledger.release(clock, *place, rows, terms, everybody)
        times[v, b], spans[v, b] = clock, span(clock)
        return found
