"""What a tape says of a round as steps of `machine`: places in memory instead of operations."""

from typing import Any

import numpy as np

from desim.engine.compiled import machine as m
from desim.engine.compiled.tape import GIVEN, THIS, Operand, Round
from desim.privacy.ledger.ledger import Mechanism, View

ARITHMETIC = {
    "add": m.ADD, "subtract": m.SUBTRACT, "multiply": m.MULTIPLY, "divide": m.DIVIDE,
    "load": m.COPY, "column": m.COPY, "float32": m.NARROW, "negative": m.NEGATE,
}  # fmt: skip
DRAWN = (Mechanism.NONE, Mechanism.GAUSSIAN, Mechanism.LAPLACE)
NOTHING = (THIS, 0, 0, 0)
TOLD = ("compute", "release", "keep", "send", "meet")
Place = tuple[int, int, int, int]  # of an operand: kind, where it begins, to the next row, column


class Unplayable(Exception):
    """A round in which something happens that compiled rounds do not know."""


class Steps:
    """Steps of a round, as of all others that are like it, of n agents and so many links.

    code (steps, STEP); half: numbers of what a round gives; timed: how many steps have a time. By
    step: draws (timed, constant), sends (timed, draws before it, constants bits and turn; widths),
    works (timed, constants work and seconds), waits (timed), gradients (constant). shown: after how
    many timed steps models are, None where they are not; states: {name: operand}. slots: numbers of
    the constants in the arithmetic. calls (operation, its name and words): what Python does. bare:
    whether a round leaves what it computed to the message of the next one. to: the constant with
    the neighbour that each agent sends to, if that is one.
    """

    def __init__(self, round_: Round, n: int) -> None:
        self.round, self.n, self.half, self.timed = round_, n, 0, 0
        self.places: list[int] = []
        sent, self.to = -1, None
        for shape in round_.results:
            self.places.append(self.half)
            self.half += n * (shape[1] if len(shape) > 1 else 1)
        for number, (name, *words) in enumerate(round_.operations):  # what is there already
            if name == "compute" or name == "set":
                self._alias(number, words[-1])
            elif name in ("send", "meet"):
                sent = number
                self.to = words[2][1] if name == "meet" else self.to
            elif name == "gather":
                self._alias(number, (THIS, sent))
        self.steps, self.waits, self.gradients = list[list[int]](), list[int](), list[int]()
        self.draws, self.works = list[tuple[int, int]](), list[tuple[int, int, int]]()
        self.sends, self.widths = list[tuple[int, int, int | None, int]](), list[int]()
        self.latest = -1  # the operation that sends last
        self.shown: int | None = None
        self.states, self.slots = dict[str, Operand](), set[int]()
        self.calls = list[tuple[int, str, tuple[Any, ...]]]()
        self._ahead = list[int]()  # draws that the next computation takes, and the message tells
        self._covered = False  # whether there are some, and no computation since
        self.ones = len(round_.shapes)  # slots of what all rounds have, behind their constants
        self.plain = self.ones + 1
        told = [name for name, *_ in round_.operations if name in TOLD]
        self.bare = self._bare = told[-1:] == ["compute"]  # when a round begins, and now
        self._unsent = 0
        for number, (name, *words) in enumerate(round_.operations):
            if name in ARITHMETIC:
                self._arithmetic(number, ARITHMETIC[name], words)
            elif name == "call" or name == "coded":
                self._python(number, name, *words)
            else:
                getattr(self, f"_{name}", self._unknown)(number, *words)
        kept = "keep" in told
        if kept and (len(self.draws) > 1 or self.to is None):
            raise Unplayable("releases for later, and others")
        if self.to is not None and (len(self.sends) > 1 or kept is not bool(self.draws)):
            raise Unplayable("messages to chosen neighbours, and others, or releases for now")
        if self.to is not None and self.calls:
            raise Unplayable("messages to chosen neighbours, and what Python does")
        if self.draws and any(one[1] == 0 for one in self.sends) and not kept:
            raise Unplayable("a message before the first release")
        if (self._unsent < len(self.draws) and not kept) or not self.timed:
            raise Unplayable("a release that no message of its round carries")
        self.code = np.array(self.steps, np.int64)

    def _alias(self, number: int, operand: Operand) -> None:
        """What operation `number` gives is what another one of this round gave."""
        if operand[0] == THIS and operand[1] >= 0:
            self.places[number] = self.places[operand[1]]

    def _unknown(self, number: int, *_: Any) -> None:
        raise Unplayable(f"us.{self.round.operations[number][0]} in every round")

    def _width(self, number: int) -> int:
        """Columns of what an operation gives."""
        shape = self.round.results[number]
        return shape[1] if len(shape) > 1 else 1

    def _place(self, operand: Operand) -> Place:
        """Where an operand is."""
        kind, number = operand
        if kind != GIVEN:
            return kind, self.places[number], self._width(number), 1
        self.slots.add(number)
        shape = self.round.shapes[number]
        if shape == ():
            return GIVEN, number, 0, 0
        if len(shape) == 1:
            return (GIVEN, number, 1, 1) if shape[0] == self.n else (GIVEN, number, 0, 1)
        return GIVEN, number, shape[1] if shape[0] > 1 else 0, 1

    def _step(self, what: int, number: int, one: Place = NOTHING, other: Place = NOTHING,
              timed: int = 0, more: int = 0) -> None:  # fmt: skip
        columns = self._width(number)
        place = [what, self.places[number], columns, self.n, columns, timed, more]
        self.steps.append([*place, *one, *other])

    def _on_clocks(self, what: int, more: int) -> None:
        """A step of no numbers but clocks, at a time of its own."""
        self.steps.append([what, 0, 0, self.n, 0, self.timed, more, *NOTHING, *NOTHING])
        self.timed += 1

    def _arithmetic(self, number: int, what: int, operands: Any) -> None:
        """A step of `combine`: rows of one column stand for a number, whole arrays for a row."""
        columns, both = self._width(number), (operands * 2)[:2]
        one, other = (list(self._place(operand)) for operand in both)
        for place, width in zip((one, other), map(self._wide, both), strict=True):
            if width == 1 and columns > 1:
                place[m.COLUMN] = 0
            elif columns == 1:
                place[m.COLUMN] = 1 if place[m.ROW] else 0
        whole = all(p[m.ROW] == columns or p[m.ROW] == p[m.COLUMN] == 0 for p in (one, other))
        rows, columns_ = (1, self.n * columns) if whole else (self.n, columns)
        if whole:
            for place in (one, other):
                place[m.COLUMN] = 1 if place[m.ROW] else 0
        if one[m.COLUMN] == other[m.COLUMN] == 0:
            raise Unplayable("numbers beside numbers")
        head = [what, self.places[number], columns, rows, columns_, 0, 0]
        self.steps.append([*head, *one, *other])

    def _rows(self, operand: Operand, number: int) -> Place:
        """Where the operand of a verb is, an array (n, columns)."""
        place = self._place(operand)
        if place[2:] != (self._width(number), 1):
            raise Unplayable("a number for rows")
        return place

    def _wide(self, operand: Operand) -> int:
        """Columns of an operand."""
        kind, number = operand
        if kind != GIVEN:
            return self._width(number)
        shape = self.round.shapes[number]
        if len(shape) == 1 and shape[0] != self.n:
            return int(shape[0])
        return int(shape[1]) if len(shape) > 1 else 1

    def _copied(self, out: int, wide: int, columns: int, place: Place) -> None:
        """Copy columns of an operand to number `out` of a round's values."""
        self.steps.append([m.COPY, out, wide, self.n, columns, 0, 0, *place, *place])

    def _columns(self, number: int, operand: Operand, low: int, _: int) -> None:
        kind, place, row, _ = self._place(operand)
        columns = self._width(number)
        self._copied(self.places[number], columns, columns, (kind, place + low, row, 1))

    _numbers = _columns

    def _hstack(self, number: int, operands: Any, widths: Any) -> None:
        out = self.places[number]
        for operand, width in zip(operands, widths, strict=True):
            self._copied(out, self._width(number), width, self._place(operand))
            out += width

    def _gradient(self, number: int, point: Operand, rows: Operand, step: int) -> None:
        place = self._rows(point, number)
        self._step(m.GRADIENT, number, place, NOTHING, len(self.gradients), step)
        self.gradients.append(rows[1])

    def _compute(self, number: int, job: Any, inputs: Any, work: Operand, seconds: Operand,
                 first: int, result: Operand) -> None:  # fmt: skip
        if self._unsent + len(self._ahead) < len(self.draws):
            raise Unplayable("a release before a computation")
        if result[0] != THIS:
            raise Unplayable("a job that gives what it was given")
        self.works.append((self.timed, work[1], seconds[1]))
        self._on_clocks(m.WORK, len(self.works) - 1)
        self._bare = self._bare or not self._covered
        self._covered = False

    def _release(self, number: int, terms: Operand, mechanism: Any, view: Any,
                 value: Operand) -> None:  # fmt: skip
        if mechanism not in DRAWN:
            return self._python(number, "release", terms, mechanism, view, value)
        return self._charged(number, terms[1], mechanism, view, self._rows(value, number))

    def _python(self, number: int, name: str, *words: Any) -> None:
        """A step that Python does; noise is charged by it, too."""
        place = [m.CALL, 0, 0, 0, 0, self.timed, len(self.calls), *NOTHING, *NOTHING]
        place[m.OTHER + m.ROW] = len(self.draws)
        self.steps.append(place)
        self.calls.append((number, name, words))
        if name == "release":
            self.draws.append((self.timed, words[0][1]))
            self.timed, self._bare = self.timed + 1, False

    def _perturbation(self, number: int, *words: Any) -> None:
        self._python(number, "perturbation", *words)
        self._ahead.append(len(self.draws))
        self.draws.append((-1, words[0][1]))
        self._covered = True

    def _keep(self, *release: Any) -> None:
        if release[2] not in DRAWN:
            raise Unplayable("noise of that kind, released for later")
        self._release(*release)
        self.steps[-1][m.WHAT] = m.KEEP

    def _charged(self, number: int, slot: int, mechanism: Any, view: Any, rows: Place) -> None:
        """A step that adds noise to rows by the terms in a slot, and charges it."""
        self.slots.add(slot)
        costs = GIVEN, slot, int(mechanism), int(view)
        self._step(m.RELEASE, number, rows, costs, self.timed, len(self.draws))
        self.draws.append((self.timed, slot))
        self.timed, self._bare = self.timed + 1, False

    def _send(self, number: int, bits: Operand, turn: Operand, payload: Operand) -> None:
        if len(self.sends) > len(self.waits):
            raise Unplayable("two messages before a wait")
        place = self._rows(payload, number)
        if self._bare:  # as `Releasing._bare` does: a release without noise
            self._charged(number, self.plain, Mechanism.NONE, View.NEIGHBOURS, place)
            place = THIS, self.places[number], *place[2:]
        known = bits[1] if bits[0] == GIVEN else None
        if known is None:
            self._python(number, "bits", bits, len(self.sends))
        for draw in self._ahead:
            self.draws[draw] = self.timed, self.draws[draw][1]
            self._on_clocks(m.STAMP, draw)
        self._ahead = []
        carried = THIS, 0, self._unsent, len(self.draws)
        self._step(m.SEND, number, place, carried, self.timed, len(self.sends))
        self.sends.append((self.timed, len(self.draws), known, turn[1]))
        self.widths.append(self._width(number))
        self.timed, self._unsent, self.latest = self.timed + 1, len(self.draws), number

    def _meet(self, number: int, bits: Operand, turn: Operand, _: Operand, rows: Operand) -> None:
        self._send(number, bits, turn, rows)
        self.steps[-1][m.WHAT] = m.MEET

    def _sum_fresh(self, number: int, heard: Operand, other: Operand) -> None:
        if heard != other or heard[0] != THIS or self.to is None:
            raise Unplayable("messages of another round")
        self._step(m.SUM_FRESH, number, self._rows(heard, number))

    def _count(self, number: int, heard: Operand) -> None:
        if heard[0] != THIS or self.to is None:
            raise Unplayable("messages of another round")
        self._step(m.COUNT, number)

    def _gather(self, number: int) -> None:
        if not self.sends:
            raise Unplayable("messages of the round before")
        self.waits.append(self.timed)
        self._on_clocks(m.WAIT, len(self.waits) - 1)

    def _sum(self, number: int, heard: Operand, weights: Operand | None) -> None:
        if self.to is not None:
            raise Unplayable("sums of what was heard in other rounds")
        used = (GIVEN, self.ones, 0, 0) if weights is None else self._place(weights)
        self.slots.add(used[1])
        self._step(m.SUM, number, self._rows(heard, number), used)

    def _set(self, number: int, name: str, value: Operand) -> None:
        if len(self.round.results[number]) != 2:
            raise Unplayable("state that is not rows")
        if value[0] != THIS:
            columns = self._width(number)
            self._copied(self.places[number], columns, columns, self._rows(value, number))
        self.states[name] = THIS, number

    def _report(self, number: int, models: Operand) -> None:
        if self.shown is not None or not self.timed:
            raise Unplayable("a second report")
        self.shown = self.timed
        self._step(m.SHOW, number, self._rows(models, number))
