"""A run's batches of jobs on several machines: `desim.run(..., workers=2)`, or a Dask cluster.

Agents of a user's model that train, or whose losses are wanted, at one time are rows of one call of
a pure function of arrays (desim.problem.kernels.modelled). Here such a call is cut into parts, that
workers compute. The rows of the data and the model go once to each of them, and stay; with a part
go the agents' numbers, vectors and rounds; the result comes back. The state of agents, the noise of
releases, the ledger and the clock stay in the process that plays the run.

No bit may depend on who computed it. A worker with other libraries, another file of the plug-in or
another kind of graphics card is refused; of the first part of each kind that a worker sends, one
row is computed here, too. On a processor that row is computed alone, so that a model whose numbers
depend on their company is found out; on a graphics card parts are the groups of one machine.
"""

import os
import pickle
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import chain, pairwise
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np

from desim.arrays import Array
from desim.errors import InputError, RunError, raised, shortened
from desim.loggers import logger
from desim.numerics.jit import threads
from desim.problem.kernels import modelled
from desim.runs.directory import versions
from desim.runs.processes import (
    PATIENCE,
    Worker,
    Workers,
    connected,
    in_turn,
    refuse_unfit,
)
from desim.scenario import registry
from desim.scenario.schema import Scenario

# What travels.


class Packed(NamedTuple):
    """An array of n rows: one row if all are the same bits, in half of the bytes if these do."""

    rows: Array
    n: int
    kind: Any

    @classmethod
    def of(cls, array: Array) -> "Packed":
        """The array, packed."""
        n, kind = len(array), array.dtype
        rows: Any = np.ascontiguousarray(array)
        if n > 1 and rows.size:
            bits = rows.reshape(n, -1).view(np.uint8)
            alike = all((one == bits[0]).all() for one in bits[1:])  # ends with one that differs
            rows = rows[:1] if alike else rows
        if kind == np.float64:
            with np.errstate(all="ignore"):
                half = rows.astype(np.float32)
                rows = half if np.array_equal(half, rows) else rows  # of what is no number: no
        return cls(rows, n, kind)

    @property
    def array(self) -> Array:
        """The array (n, ...), to be written to."""
        rows = self.rows.astype(self.kind)
        return rows if len(rows) == self.n else np.repeat(rows, self.n, axis=0)


class Part(NamedTuple):
    """Some rows of a call: job(*arrays, *common, data) (rows, ...), shape being that of a row.

    data: without its rows and its loss, which the shipment `token` has.
    """

    place: slice
    job: modelled.Job
    arrays: tuple[Packed, ...]
    common: tuple[Any, ...]
    data: modelled.Modelled
    shape: tuple[int, ...]
    token: int

    @property
    def rows(self) -> int:
        """How many."""
        return int(self.place.stop - self.place.start)

    def result(self, data: modelled.Modelled, rows: slice = slice(None)) -> Array:
        """What the job gives for some of its rows, in this process."""
        whole = [one.array[rows] for one in self.arrays]
        out = np.empty((len(whole[0]), *self.shape))

        def arrays(part: slice) -> modelled.Arrays:
            return tuple(one[part] for one in whole)

        with _one:  # at a time in a process: how many threads a library has is the process's
            if data.loss.model.hardware:  # on a card a part is one group, wherever it is computed
                with data.loss.model.computing():
                    out[:] = self.job(*whole, *self.common, data)
            else:
                modelled.computed(self.job, arrays, len(out), self.common, data, out)
        return out


class Answer(NamedTuple):
    """What a worker, by its name, says of a part: its result, and the seconds that it took.

    raised: what the model raised instead; refused: why the worker cannot take any part.
    """

    place: slice
    name: str
    found: Packed | None = None
    seconds: float = 0.0
    raised: str = ""
    refused: str = ""


_one = threading.RLock()


def circumstances(loss: Any) -> dict[str, str]:
    """What bits rest on, by a name."""
    known = {name: one for name, one in versions().items() if name != "python"}
    libraries = loss.recorded["libraries"]
    card = loss.model.hardware or "the processor"
    return {**known, **libraries, "device": card, "model": repr(loss)}


class Shipment:
    """Rows A and b and the loss of a run's data, and what its bits rest on `here`.

    It arrives packed, and is unpacked by who needs it: then the plug-ins are imported.
    """

    def __init__(self, whole: Any, plugins: tuple[Path, ...], here: dict[str, str]) -> None:
        self.whole, self.plugins, self.here = whole, plugins, here
        self.packed, self.checked = b"", False

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.packed or pickle.dumps(self.whole), self.plugins, self.here)

    def unpacked(self) -> Any:
        """Rows and loss; InputError where they are not what they are where they come from."""
        with _one:
            if self.packed:
                for path in self.plugins:
                    if registry.module_of(path) not in sys.modules:
                        registry.load_plugin(path)
                self.whole, self.packed = pickle.loads(self.packed), b""
            if not self.checked:
                self._check()
                self.checked = True  # here, and not where a worker hands it on to
        return self.whole

    def _check(self) -> None:
        now = circumstances(self.whole[2])
        for name, value in self.here.items():
            if now.get(name) != value:
                if name == "model":
                    raise InputError("found another file of the model; allowed: the same one")
                raise InputError(f"found {name} {now.get(name)}; allowed: {value}, as here")


def _arrived(packed: bytes, plugins: tuple[Path, ...], here: dict[str, str]) -> Shipment:
    found = Shipment(None, plugins, here)
    found.packed = packed
    return found


def answer(part: Part, shipment: Shipment, name: str) -> Answer:
    """What a worker of that name does with a part."""
    try:
        A, b, loss = shipment.unpacked()
    except Exception as error:  # whatever a plug-in's import raises
        return Answer(part.place, name, refused=shortened(raised(error), 600))
    began = time.perf_counter()
    try:
        with np.errstate(all="ignore"):  # as in a play
            found = part.result(part.data._replace(A=A, b=b, loss=loss))
    except Exception as error:
        return Answer(part.place, name, raised=shortened(raised(error), 600))
    return Answer(part.place, name, Packed.of(found), time.perf_counter() - began)


# Who computes: processes here, or a cluster.


class Crew(Protocol):
    """Workers: how many there are, and what they say of parts, as they say it."""

    where: dict[str, Any]
    lost: int

    def slots(self) -> int:
        """How many parts they compute at a time."""

    def answers(self, parts: list[Part], shipment: Shipment) -> Generator[Answer, None, None]:
        """An answer to each part; nothing is left of parts whose answers nobody waits for."""


say = logger("workers").warning  # a sentence for who waits for the run


_shipments: dict[int, Shipment] = {}  # of a local process


def _local(message: tuple[Part, Shipment | None]) -> Answer:
    part, shipment = message
    if shipment is not None:
        _shipments[part.token] = shipment
    return answer(part, _shipments[part.token], f"process {os.getpid()}")


class Local(Workers):
    """Processes of this machine."""

    def __init__(self, workers: int) -> None:
        super().__init__(_local)
        self.where: dict[str, Any] = {"processes": workers}
        self.lost, self._wanted = 0, workers
        self._parts: deque[tuple[Part, int]] = deque()
        self._shipment: Shipment | None = None
        self._have: dict[SpawnProcess, set[int]] = {}  # what each was sent

    def slots(self) -> int:
        """How many processes there may be."""
        return self._wanted

    def answers(self, parts: list[Part], shipment: Shipment) -> Generator[Answer, None, None]:
        """See Crew."""
        self._parts.extend((part, 0) for part in parts)
        self._shipment = shipment
        try:
            yield from self.results(self._wanted)
        finally:  # a run that fails measures its last model, and may be played a second time
            self._parts.clear()
            for worker in self.busy:
                self.end(worker)

    def waiting(self) -> int:
        """How many parts wait."""
        return len(self._parts)

    def next_for(self, worker: Worker) -> tuple[Part, int] | None:
        """The next part."""
        return self._parts.popleft() if self._parts else None

    def message(self, worker: Worker) -> tuple[Part, Shipment | None]:
        """The part, the first time with the data."""
        have, token = self._have.setdefault(worker.process, set()), worker.job.token
        first = token not in have
        have.add(token)
        return worker.job, self._shipment if first else None

    def again(self, job: Part, tries: int, cause: str) -> None:
        """Put back a part whose process was killed."""
        self.lost += 1
        say(f"a process ended ({cause}); another one does its {job.rows} jobs again")
        self._parts.appendleft((job, tries))

    def failed(self, worker: Worker, why: str) -> Any:
        """The run cannot go on."""
        raise RunError(f"workers: {why} at the same jobs; allowed: fewer workers, or none")


class Cluster:
    """Workers of a Dask cluster, one part at a time in each."""

    LOOK, NEXT = 2.0, 0.002  # s between looks at who is there, and at what is done

    def __init__(self, client: Any, address: str) -> None:
        self.client, self.address = client, address
        self.where: dict[str, Any] = {"dask": address}
        self.lost, self._sent = 0, dict[int, Any]()
        try:
            client.wait_for_workers(1, timeout=PATIENCE)
        except TimeoutError:
            raise InputError(f"--dask: the scheduler at {address} has no workers") from None
        self._there = self._names()

    def slots(self) -> int:
        """How many workers there are."""
        self._look()
        return max(1, len(self._there))

    def answers(self, parts: list[Part], shipment: Shipment) -> Generator[Answer, None, None]:
        """See Crew. A part whose worker is killed goes to another one, as Dask does it."""
        from distributed import as_completed

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that what is sent is large
            token = parts[0].token
            if token not in self._sent:
                self._sent[token] = self.client.submit(_same, shipment, pure=False)
            data = self._sent[token]
            sent = [self.client.submit(_on_cluster, one, data, pure=False) for one in parts]
        completed, looked = as_completed(sent, loop=self.client.loop), time.monotonic()
        for _ in parts:
            while not completed.has_ready():
                time.sleep(self.NEXT)
                if time.monotonic() - looked > self.LOOK:
                    self._look()
                    looked = time.monotonic()
            yield self._answer(next(completed))

    def _answer(self, future: Any) -> Answer:
        if future.status == "finished":
            found: Answer = future.result()
            return found
        if future.status == "error":
            error = future.exception()
            text = shortened(f"{type(error).__name__}: {error}", 600)
            raise RunError(f"--dask: {text}; allowed: workers that bear these jobs") from None
        raise RunError(f"--dask: the scheduler at {self.address} is gone")

    def _names(self) -> set[str]:
        """The addresses of workers that are there."""
        try:
            return set(self.client.nthreads())
        except (OSError, TimeoutError, RuntimeError):
            raise RunError(f"--dask: the scheduler at {self.address} is gone") from None

    def _look(self) -> None:
        """Note who is there, and say who has gone."""
        now = self._names()
        for one in sorted(self._there - now):
            self.lost += 1
            rest = f"{len(now)} others do its jobs" if now else "nobody is left, and the run waits"
            say(f"worker {one} is gone; {rest}")
        self._there = now


def _same(shipment: Shipment) -> Shipment:
    """What the scheduler has a lost worker's shipment made from again."""
    return shipment


def _on_cluster(part: Part, shipment: Shipment) -> Answer:
    from distributed import get_worker

    in_turn()
    return answer(part, shipment, f"worker {get_worker().address}")


# The batches.
SHARES = 3, 2, 1  # of each worker's rows: parts, as jobs are of several sizes
WATCHED = 3  # batches after the first one, which tell whether workers gain


class Batches:
    """What computes for the kernels, in their place: see `modelled.elsewhere`."""

    def __init__(self, crew: Crew, plugins: tuple[Path, ...]) -> None:
        self.crew, self.plugins = crew, plugins
        self.jobs = {"sent": 0, "here": 0}
        self.seconds = {"computing": 0.0, "waiting": 0.0}
        self._shipments: dict[tuple[int, ...], tuple[int, Shipment]] = {}
        self._compared: set[tuple[str, str, bool]] = set()
        self._times: dict[str, list[tuple[float, float]]] = {}
        self._left: set[str] = set()  # jobs too small for them

    def __call__(
        self, job: modelled.Job, arrays: Callable[[slice], modelled.Arrays], rows: int,
        common: tuple[Any, ...], data: modelled.Modelled, out: Array,
    ) -> bool:  # fmt: skip
        """Set `out` to what the job gives; False, and nothing done, where there is no gain."""
        name = job.__name__
        if rows < 2 or name in self._left:
            self.jobs["here"] += rows
            return False
        token, shipment = self._shipped(data)
        none: Any = None
        rest = common, data._replace(A=none, b=none, loss=none), out.shape[1:], token
        parts = [
            Part(place, job, tuple(map(Packed.of, arrays(place))), *rest)
            for place in self._places(rows, data)
        ]
        by_place = {(part.place.start, part.place.stop): part for part in parts}
        began, busy, computing = time.perf_counter(), 0.0, 0.0
        raising: list[Answer] = []
        with closing(self.crew.answers(parts, shipment)) as answers:
            for said in answers:
                if said.refused:
                    raise RunError(f"workers: {said.name}: {said.refused}")
                if said.found is None:
                    raising.append(said)
                    continue
                part = by_place[said.place.start, said.place.stop]
                before = time.perf_counter()
                out[part.place] = self._checked(part, said.found.array, said.name, data)
                busy += time.perf_counter() - before  # which no worker waited for
                computing += said.seconds
        if raising:  # of several the first by row: which one is heard first is chance
            said = min(raising, key=lambda one: one.place.start)
            by_place[said.place.start, said.place.stop].result(data)  # raises, and says where
            raise RunError(f"workers: {said.name}: {said.raised}, which does not happen here")
        self.jobs["sent"] += rows
        self._note(name, rows, computing, time.perf_counter() - began - busy)
        return True

    @property
    def facts(self) -> dict[str, Any]:
        """For the manifest: who computed, how many jobs, for how long, and how many were lost."""
        seconds = {f"{name}_seconds": round(one, 3) for name, one in self.seconds.items()}
        return {**self.crew.where, **self.jobs, **seconds, "lost": self.crew.lost}

    def _shipped(self, data: modelled.Modelled) -> tuple[int, Shipment]:
        """The shipment of the data, and its number: once, for as long as the run lasts."""
        whole = data.A, data.b, data.loss
        key = tuple(map(id, whole))
        if key not in self._shipments:
            try:
                pickle.dumps(data.loss)
            except Exception as error:
                text = f"the model cannot be sent ({shortened(raised(error), 300)})"
                raise RunError(f"workers: {text}; allowed: one of a file in `plugins`") from error
            there = Shipment(whole, self.plugins, circumstances(data.loss))
            self._shipments[key] = len(self._shipments), there
        return self._shipments[key]

    def _places(self, rows: int, data: modelled.Modelled) -> list[slice]:
        """How rows are cut: on a graphics card as `computed` would, whose bits may depend on it."""
        if data.loss.model.hardware:
            many = min(threads(), rows) if data.loss.model.threads else 1
            ends = pairwise(rows * k // many for k in range(many + 1))
            groups = (range(low, high, data.group) for low, high in ends)
            cuts = [*chain.from_iterable(groups), rows]
        else:
            slots = min(rows, self.crew.slots())
            parts = np.repeat(SHARES, slots).cumsum()  # small ones last: few wait for the slower
            cuts = [0, *(rows * parts // parts[-1]).tolist()]
        return [slice(low, high) for low, high in pairwise(cuts) if low < high]

    def _checked(self, part: Part, rows: Array, name: str, data: modelled.Modelled) -> Array:
        """The rows that a worker of that name gave, if they are those that this process gives."""
        kind = name, part.job.__name__, part.rows > 1  # a row alone shows nothing of company
        if not {kind, (*kind[:2], True)} & self._compared:
            some = slice(None) if data.loss.model.hardware else slice(-1, None)
            if not same(rows[some], part.result(data, some)):
                raise RunError(f"workers: {name}: {self._why(part, rows, data)}")
            self._compared.add(kind)
        return rows

    @staticmethod
    def _why(part: Part, rows: Array, data: modelled.Modelled) -> str:
        """Why its bits are not those of here."""
        if not data.loss.model.hardware and same(rows, part.result(data)):
            text = "an agent's numbers depend on who is computed with it"
            return f"{text}; allowed: a model that gives each agent what it gives it alone"
        text = f"{part.job.__name__} has other bits there than here"
        return f"{text}; allowed: this machine's kind of processor and of graphics card"

    def _note(self, name: str, rows: int, computing: float, waiting: float) -> None:
        """Note what a batch took; where workers take longer than their work alone, leave them."""
        self.seconds["computing"] += computing
        self.seconds["waiting"] += waiting
        times = self._times.setdefault(name, [])
        if len(times) > WATCHED:
            return
        times.append((computing, waiting))
        if len(times) > WATCHED:
            work, whole = np.sum(times[1:], axis=0) * 1e3 / WATCHED
            if whole >= work:
                self._left.add(name)
                took = f"{rows} took {work:.3g} ms to compute and {whole:.3g} ms with sending"
                say(f"jobs ({name}) too small for them: {took}; they are done here")


def same(one: Array, other: Array) -> bool:
    """Whether numbers are the same bits, those that are none anywhere the same."""
    none = np.isnan(one)
    bits = [np.where(none, 0.0, a).view(np.uint64) for a in (one, other)]
    return bool((none == np.isnan(other)).all() and (bits[0] == bits[1]).all())


@contextmanager
def shared_out(
    scenario: Scenario, workers: int | None = None, dask: str | None = None
) -> Iterator[None]:
    """Context in which this thread's runs of a scenario have their batches computed by workers.

    workers: how many local processes, 0 or None: this one; dask: address of a cluster's scheduler.
    InputError for both, for a scenario without a model of a user, and where nobody answers.
    """
    refuse_unfit(workers, dask)
    if not workers and dask is None:
        yield
        return
    if scenario.problem.model is None:
        what = "dask" if dask else "workers"
        text = f"found with loss {scenario.problem.loss.word}"
        allowed = "a problem.model of a plug-in; what desim computes itself has threads"
        raise InputError(f"{what}: {text}; allowed: {allowed} (DESIM_THREADS)")
    with ExitStack() as ends:
        if dask is not None:
            crew: Any = Cluster(ends.enter_context(connected(dask)), dask)
        else:
            crew = Local(workers or 0)
            ends.callback(crew.end)
        batches = Batches(crew, tuple(path.resolve() for path in scenario.plugins))
        ends.callback(modelled.elsewhere.reset, modelled.elsewhere.set(batches))
        yield


def facts() -> dict[str, Any]:
    """The manifest's entry on workers, of a run that has some."""
    found = modelled.elsewhere.get()
    return {"workers": found.facts} if isinstance(found, Batches) else {}
