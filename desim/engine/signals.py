"""Where a play can be listened to: a signal is fired once for a batch of agents, or for nobody.

    sending    what agents send, or reply to a coordinator -> what is received
    releasing  what agents release, with its noise -> what goes out
    waiting    releases wait for a message that carries them, or do so no more
    rows       rows of the log, the metrics, the ledger that are final, in order of time
    ended      the play is over -> entries of the summary

Two more come from whoever stores a run (`desim.runs.recording`), around its play: `opened` with the
run that begins, and `stored` with what is left of it.

Batches differ between engines: one sends for all agents at once, another for one after the other.
A listener that treats each row by itself gets the same from all of them. Listeners are asked in
their order, each with what the one before has made of it. What they are shown is theirs to keep and
not to write to; what they return is copied.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import methodcaller
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from desim.arrays import Array, Int, Mask
from desim.columns import Words
from desim.errors import ListenerError, refusal
from desim.memory import Tree
from desim.privacy.ledger.mechanisms import Terms
from desim.shapes import rows_given

if TYPE_CHECKING:
    from desim.engine.settings import Settings

CHANGING = ("sending", "releasing", "waiting")  # that are fired inside rounds
SIGNALS = (*CHANGING, "rows")
OF_RUNS = ("opened", "stored")  # that whoever stores a run fires
HEARD = ("begun", *SIGNALS, "ended", *OF_RUNS)  # what a listener may define
Rows = Callable[[str, Mapping[str, Any]], None]
RELEASED = (
    "what has its noise is charged as it is; allowed: another listener, which hears no release"
)


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

    def begun(self, settings: "Settings") -> None:
        """A play begins; what was heard of an earlier one is to be forgotten."""

    def sending(self, message: Message) -> Array:
        """What is received (n, dim) of a message; the same array where nothing is changed."""
        return message.payload

    def releasing(self, release: Release) -> Array:
        """What goes out (n, dim) of a release: release.output.

        Who hears values before their noise may change neither releases nor messages, of which no
        epsilon would hold then; one without a name, that replays what was released, may.
        """
        return release.output

    def waiting(self, ids: Int, waits: bool) -> None:
        """Releases ids (n,), -1 for none, wait for a message that tells of them, or no more."""

    def rows(self, table: str, columns: Mapping[str, Any]) -> None:
        """Rows of `events`, `metrics` or `releases`: arrays (n,).

        Of words `Words`, but for the names of metrics, which are texts.
        """

    def ended(self, time: float) -> Mapping[str, Any]:
        """The play is over at `time` s; entries of the run's summary, numbers, words or lists.

        Of numbers that are not finite JSON has the words alone.
        """
        return {}

    def opened(self, run: Any) -> None:
        """A run (`desim.Run`) is about to be played: its scenario and manifest, and no row yet.

        InputError refuses it, with nothing written.
        """

    def stored(self, run: Any) -> None:
        """The run as far as it came: `done`, `stopped` or `failed`; if it was killed, `running`.

        It is stored by then: what is raised here becomes a warning.
        """


class Feature:
    """What hangs on a coordinator's calls: a budget, a codec, a choice, asked in this order.

    A subclass defines what it changes; each has what the one before has made of it.
    """

    #: what a checkpoint calls it
    name: ClassVar[str] = ""
    #: bits that a reply is longer
    beside: int = 0

    def state(self) -> Mapping[str, Array]:
        """State (agents, ...) that agents need for it, by name."""
        return {}

    def invited(self, hub: Any, who: Int) -> Int:
        """Those of agents who (n,), ascending, that take part in the round."""
        return who

    def calling(self, hub: Any, who: Int, payload: Array) -> tuple[Int, Array]:
        """Whom of agents who (n,) a call goes to, and what they hear of its payload."""
        return who, payload

    def news(self, payload: Array) -> Array:
        """What agents hear of news (p,) beside their calls."""
        return payload

    def sized(self, size: int, bits: Any, reply_bits: Any) -> tuple[Any, Any]:
        """Bits of a call of so many numbers and of its reply, None for what is not said."""
        return bits, reply_bits

    def called(self, hub: Any, who: Int) -> None:
        """Agents who (n,) are called, by an engine that knows when they will reply."""

    def charged(self, first: int) -> None:
        """The ledger has rows of replies from number `first` on."""

    def replied(self, us: Any, reply: Array) -> Array:
        """What is heard of replies (n, dim) of agents `us`."""
        return reply

    def total(self, hub: Any, replies: Any) -> tuple[Array, float] | None:
        """The sum (dim,) of weighed replies, and how many it counts; None: as it is."""
        return None

    def labour(self, hub: Any, who: Int) -> float:
        """Seconds that a coordinator is at work on replies of agents who (n,), beside its law."""
        return 0.0

    def taken(self, hub: Any, who: Int, rounds: Int, exchange: Int) -> None:
        """Replies of agents who (n,) to calls of rounds and exchanges (n,) are in."""

    def remembered(self) -> Tree:
        """What a checkpoint needs."""
        return {}

    def recall(self, tree: Tree) -> None:
        """Go on from a checkpoint."""


class Signals:
    """The listeners of one play; `sending` and the others are empty where nobody listens."""

    sending: tuple[Callable[[Message], Array], ...]
    releasing: tuple[Callable[[Release], Array], ...]
    waiting: tuple[Callable[[Int, bool], None], ...]
    rows: tuple[Rows, ...]

    def __init__(self, listeners: Sequence[Listener] = ()) -> None:
        self.listeners = tuple(listeners)
        self.said: dict[str, dict[str, Any]] = {}  # by named ones, once the play is over
        for signal in SIGNALS:
            setattr(self, signal, tuple(self._hearing(signal)))
        #: whether somebody listens inside rounds, of which compiled ones say nothing
        self.inside = any(getattr(self, signal) for signal in CHANGING)

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

    def sent(
        self, who: Int, round_: Int, release: Int, payload: Array, traffic: tuple[Any, ...],
        out: Mask | None = None,
    ) -> Array:  # fmt: skip
        """Fire `sending` for the messages that go `out` (n,); return what is received (n, dim).

        The others reach nobody: of what an agent computes once the run is over for it nothing is
        released, so that its numbers may depend on data.
        """
        where = slice(None) if out is None or out.all() else out
        seen = tuple(_own(part[where]) for part in traffic)
        who, round_, release = (_own(part[where]) for part in (who, round_, release))
        message = Message(who, round_, release, _own(payload[where]), seen)
        for hear in self.sending:
            message = replace(message, payload=_answer(hear, message, message.payload))
        received = payload.copy()
        received[where] = message.payload
        return received

    def released(
        self, who: Int, round_: Int, ids: Int, value: Array, output: Array, terms: Terms,
        rows: Any = slice(None),
    ) -> Array:  # fmt: skip
        """Fire `releasing`; return what goes out (n, dim)."""
        who, round_, ids = map(_own, (who, round_, ids))
        release = Release(who, round_, ids, _own(value), _own(output), terms, rows)
        for hear in self.releasing:
            release = replace(release, output=_answer(hear, release, release.output))
        return release.output.copy()

    def waits(self, ids: Int, waits: bool) -> None:
        """Fire `waiting`."""
        for hear in self.waiting:
            hear(ids, waits)

    def begun(self, settings: "Settings") -> None:
        """Say to all that a play begins."""
        for one in self.listeners:
            one.begun(settings)

    def ended(self, time: float) -> None:
        """Fire `ended`, take down what is said, and raise what one of them has after all."""
        failures = []
        for one in self.listeners:
            if one.name:
                try:
                    self.said[one.name] = _entries(one, one.ended(time))
                except KeyboardInterrupt:
                    raise
                except BaseException as failure:
                    failures.append(failure)
        if failures:
            raise failures[0]

    def over(self, sink: Sink) -> Sink:
        """The sink, and before it whoever listens to rows."""
        return Overheard(sink, self.rows) if self.rows else sink


class Overheard:
    """A sink of tables whose rows are listened to; who raises ends that, and no row is lost."""

    def __init__(self, sink: Sink, rows: Sequence[Rows]) -> None:
        self.sink, self.rows = sink, rows

    def append(self, name: str, columns: Mapping[str, Any]) -> None:
        """Take rows of table `name`."""
        hearing, self.rows = self.rows, ()
        try:
            for hear in hearing:
                hear(name, Shown(columns))
            self.rows = hearing
        finally:
            self.sink.append(name, columns)


class Shown(Mapping[str, Any]):
    """Columns that are read, and not written to, one by one as they are asked for."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self._columns = columns

    def __getitem__(self, name: str) -> Any:
        column = self._columns[name]
        if isinstance(column, Words):
            return Words(_locked(column.codes), list(column.words))
        return _locked(column if isinstance(column, np.ndarray) else np.array(column, object))

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)


def _entries(one: Listener, said: Any) -> dict[str, Any]:
    """What a listener has said in the end, as a manifest holds it; ListenerError where none can."""
    try:
        text = json.dumps(dict(said), default=methodcaller("tolist"))
        entries: dict[str, Any] = json.loads(text, parse_constant=str)
    except (AttributeError, TypeError, ValueError, RecursionError):
        text = refusal(said, "numbers, words or lists, by name")
        raise ListenerError(f"{one.name}: ended returns: {text}") from None
    return entries


def _locked(array: NDArray[Any]) -> Any:
    """A view of the array to which nobody can write."""
    shown = array.view()
    shown.flags.writeable = False
    return shown


def _own(array: Any) -> Any:
    """A copy of the array, for whoever is shown it, to which nobody can write."""
    return _locked(array.copy())


def _answer(hear: Callable[[Any], Any], batch: Any, shown: Array) -> Array:
    """What a listener makes of `given` (n, dim); ListenerError for what may not take its place."""
    found: Any = hear(batch)
    unchanged = found is shown
    if unchanged:
        return shown
    one: Any = hear.__self__  # type: ignore[attr-defined]
    where = f"{one.name or type(one).__name__}: {hear.__name__}"
    try:
        rows: Array = _own(rows_given(f"{where} returns", found, *shown.shape))
    except ValueError as error:
        raise ListenerError(str(error)) from None
    hears = type(one).releasing is not Listener.releasing
    if one.name and hears and not np.array_equal(rows, shown, equal_nan=True):
        raise ListenerError(f"{where}: found other numbers than it was shown; {RELEASED}")
    return rows
