"""Where a play can be listened to: a signal is fired once for a batch of agents, or for nobody.

    sending    what agents send, or reply to a coordinator -> what is received
    releasing  what agents release, with its noise -> what goes out
    waiting    releases wait for a message that carries them, or do so no more
    rows       rows of the log, the metrics, the ledger that are final, in order of time
    ended      the play is over -> entries of the summary

Batches differ between engines: one sends for all agents at once, another for one after the other.
A listener that treats each row by itself gets the same from all of them. Listeners are asked in
their order, each with what the one before has made of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.columns import Words
from desim.engine.settings import Settings
from desim.errors import ListenerError, refusal, show
from desim.privacy.ledger.terms import Terms

CHANGING = ("sending", "releasing", "waiting")  # that are fired inside rounds
SIGNALS = (*CHANGING, "rows")
HEARD = ("begun", *SIGNALS, "ended")  # what a listener may define
Rows = Callable[[str, Mapping[str, Any]], None]


class Sink(Protocol):
    """Where tables go: events, metrics, releases."""

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of table `name`; to read the columns may be what computes them."""


@dataclass(frozen=True)
class Message:
    """What agents who (n,) send in round (n,): payload (n, dim), zeros where they are silent.

    release (n,): ids of the latest releases that they carry, -1 for none; traffic: arrays (n,) of
    what is seen of messages that are not read, times s, sizes in bits, silences.
    """

    who: Int
    round: Int
    release: Int
    payload: Array
    traffic: tuple[NDArray[Any], ...]


@dataclass(frozen=True)
class Release:
    """What agents who (n,) release in round (n,), with ids release (n,), -1 for none.

    value (n, dim): what noise was added to (of noise in a kernel: the result without it); output
    (n, dim): with noise; terms[rows] are those of these agents.
    """

    who: Int
    round: Int
    release: Int
    value: Array
    output: Array
    terms: Terms
    rows: Any


class Listener:
    """Hangs on a play: a subclass defines the signals that it hears, and pays for no other one."""

    #: what a scenario calls it, in listeners; one without a name has no entries in the summary
    name: ClassVar[str] = ""
    #: one line for `desim list listeners`
    summary: ClassVar[str] = ""
    #: what a scenario may write beside the name: a class that is Strict
    Parameters: ClassVar[Any] = None
    #: what a scenario has written there
    parameters: Any = None

    def begun(self, settings: Settings) -> None:
        """A play begins; what was heard of an earlier one is to be forgotten."""

    def sending(self, message: Message) -> Array:
        """What is received (n, dim) of a message; the same array where nothing is changed."""
        return message.payload

    def releasing(self, release: Release) -> Array:
        """What goes out (n, dim) of a release."""
        return release.output

    def waiting(self, ids: Int, waits: bool) -> None:
        """Releases ids (n,), -1 for none, wait for a message that tells of them, or no more."""

    def rows(self, table: str, columns: Mapping[str, Any]) -> None:
        """Rows of `events`, `metrics` or `releases`: arrays (n,), of words `Words`."""

    def ended(self, time: float) -> Mapping[str, Any]:
        """The play is over at `time` s; entries of the run's summary, numbers, words or lists.

        Numbers that are not finite are stored as words, which JSON has.
        """
        return {}


class Signals:
    """The listeners of one play; `sending` and the others are empty where nobody listens."""

    sending: tuple[Callable[[Message], Array], ...]
    releasing: tuple[Callable[[Release], Array], ...]
    waiting: tuple[Callable[[Int, bool], None], ...]
    rows: tuple[Rows, ...]

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = tuple(listeners)
        self.said: dict[str, dict[str, Any]] = {}  # by named listeners, when the play was over
        for signal in SIGNALS:
            setattr(self, signal, tuple(self._hearing(signal)))

    def _hearing(self, signal: str) -> Iterator[Callable[..., Any]]:
        for one in self.listeners:
            if getattr(type(one), signal) is not getattr(Listener, signal):
                yield getattr(one, signal)

    @property
    def muted(self) -> "Signals":
        """Those that change what happens, of a play whose rows nobody is to see."""
        changing = [one for one in self.listeners if Signals((one,)).inside]
        other = Signals(changing)
        other.rows = ()
        return other

    @property
    def inside(self) -> bool:
        """Whether somebody listens inside rounds, of which compiled ones say nothing."""
        return any(getattr(self, signal) for signal in CHANGING)

    def sent(
        self, who: Int, round_: Int, release: Int, payload: Array, traffic: tuple[Any, ...],
        out: Mask | None = None,
    ) -> Array:  # fmt: skip
        """Fire `sending` for the messages that go `out` (n,); return what is received (n, dim).

        The others reach nobody: of what an agent computes once the run is over for it nothing is
        released, so that its numbers may depend on data.
        """
        where = slice(None) if out is None or out.all() else out
        seen = tuple(part[where] for part in traffic)
        message = Message(who[where], round_[where], release[where], payload[where], seen)
        heard = message.payload
        for hear in self.sending:
            given = hear(replace(message, payload=_fixed(heard)))
            heard = _changed(hear, heard, given)
        if isinstance(where, slice):
            return heard
        received = payload.copy()
        received[where] = heard
        return received

    def released(
        self, who: Int, round_: Int, ids: Int, value: Array, output: Array, terms: Terms,
        rows: Any = slice(None),
    ) -> Array:  # fmt: skip
        """Fire `releasing`; return what goes out (n, dim)."""
        release = Release(who, round_, ids, _fixed(value), output, terms, rows)
        for hear in self.releasing:
            given = hear(replace(release, output=_fixed(output)))
            output = _changed(hear, output, given)
        return output

    def waits(self, ids: Int, waits: bool) -> None:
        """Fire `waiting`."""
        for hear in self.waiting:
            hear(ids, waits)

    def begun(self, settings: Settings) -> None:
        """Say to all that a play begins."""
        for one in self.listeners:
            one.begun(settings)

    def ended(self, time: float) -> None:
        """Fire `ended` and take down what named listeners say; raise what one has, after all."""
        failures = []
        for one in self.listeners:
            if one.name:
                try:
                    self.said[one.name] = _entries(one.name, one.ended(time))
                except KeyboardInterrupt:
                    raise
                except BaseException as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]

    @property
    def notes(self) -> dict[str, Any]:
        """Entries of the manifest: {"listeners": {name: entries}} once the play is over."""
        return {"listeners": self.said} if self.said else {}

    def over(self, sink: Sink) -> Sink:
        """The sink, and before it whoever listens to rows."""
        return Overheard(sink, self.rows) if self.rows else sink


class Overheard:
    """A sink of tables whose rows are listened to; whoever raises ends that, and loses no row."""

    def __init__(self, sink: Sink, rows: Sequence[Rows]) -> None:
        self.sink, self.rows = sink, rows

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of table `name`."""
        hearing, self.rows = self.rows, ()
        try:
            for hear in hearing:
                hear(name, Unchanged(columns))
            self.rows = hearing
        finally:
            self.sink.append(name, columns)


class Unchanged(Mapping[str, Any]):
    """Columns of a table to look at: who writes to them hears that they are not to be written."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns = columns

    def __getitem__(self, name: str) -> Any:
        one = self.columns[name]
        return Words(_fixed(one.codes), [*one.words]) if isinstance(one, Words) else _fixed(one)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def __len__(self) -> int:
        return len(self.columns)


def _fixed(array: Any) -> Any:
    """The same numbers, not to be written: the sender, or the log, works with them."""
    if isinstance(array, np.ndarray):
        array = array.view()
        array.flags.writeable = False
    return array


def _changed(hear: Any, was: Array, given: Any) -> Array:
    """What a listener has made of an array; ListenerError unless it is one of the same shape."""
    if isinstance(given, np.ndarray):
        if given.shape == was.shape and np.can_cast(given.dtype, was.dtype):
            now = given.astype(was.dtype, copy=False)
            return now if now.flags.writeable else now.copy()
        found = f"found an array {given.shape} of {given.dtype}"
    else:
        found = f"found {show(given)}"
    of = getattr(hear, "__self__", None)
    place = f"{getattr(of, 'name', '') or type(of).__name__}.{getattr(hear, '__name__', '')}"
    raise ListenerError(f"{place}: {found}; allowed: an array {was.shape} of {was.dtype}")


def _entries(name: str, said: Any) -> dict[str, Any]:
    """What a listener says, as JSON has it; ListenerError for what it has not."""
    allowed = "{name: a number, a word or a list of these}"
    if not isinstance(said, Mapping):
        raise ListenerError(f"{name}.ended: {refusal(said, allowed)}")
    found = {}
    for key, value in said.items():
        try:
            if not isinstance(key, str):
                raise TypeError
            found[key] = _plain(value)
        except (TypeError, RecursionError):
            text = f"{name}.ended: found {show(key)}: {show(value)}; allowed: {allowed}"
            raise ListenerError(text) from None
    return found


def _plain(value: Any) -> Any:
    """A value as JSON has it; TypeError where it has none."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping) and all(isinstance(key, str) for key in value):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, float):
        return float(value) if isfinite(value) else str(float(value))
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError
