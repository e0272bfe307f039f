"""What was measured: messages and computations of deployed runs, or of csv files."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from desim.arrays import Array
from desim.deployments.fidelity.clock_errors import deployed, entry
from desim.engine.opening import opening
from desim.errors import DesimError, InputError
from desim.numerics.later import pd
from desim.readers import text_of
from desim.runs.reading.critical import computations, messages
from desim.runs.recording import run as play
from desim.runs.run import Run
from desim.scenario.build import build
from desim.scenario.sections.links import Tcp

if TYPE_CHECKING:
    import pandas as pd

NAMED = {  # what a column may be called -> what it is, and what a 1 in it means
    "seconds": ("seconds", 1.0), "s": ("seconds", 1.0), "ms": ("seconds", 1e-3),
    "us": ("seconds", 1e-6), "bytes": ("bytes", 1.0), "bits": ("bytes", 0.125),
    "kB": ("bytes", 1e3), "sender": ("sender", 1.0), "receiver": ("receiver", 1.0),
    "begin": ("begin", 1.0), "attempts": ("attempts", 1.0), "agent": ("agent", 1.0),
    "work": ("work", 1.0), "gradients": ("work", 1.0),
}  # fmt: skip
MESSAGES, COMPUTATIONS = ("bytes", "seconds"), ("work", "seconds")
WHO, MAX_AGENT = ("sender", "receiver", "agent"), 1e9  # columns of numbers of agents
REAL, EXACT = 1e-3, 1e-6  # relative error of a law beside a kernel, and beside itself
OPTIONAL = {"bytes": ("sender", "receiver", "begin", "attempts"), "work": ("agent",)}


@dataclass(frozen=True)
class Samples:
    """Messages and computations, a row each, of all sources together.

    messages: sender, receiver, bytes, begin s, seconds, attempts, sending s (nan where unknown) and
    source, a number; computations: agent, work in gradients of one row, seconds; lost: attempts
    that did not arrive, and timeouts (n,) s after which they were repeated; packets, packets_lost:
    of what lines counted, 0 where these are not known; star: whether node -1 is a coordinator;
    tcp: what is known of connections, None where these were none of TCP; sources: their names;
    notes: what is to be known; floor: relative error of seconds and laws that is not less of more
    messages.
    """

    messages: "pd.DataFrame"
    computations: "pd.DataFrame"
    lost: int = 0
    timeouts: Array = field(default_factory=lambda: np.empty(0))
    star: bool = True
    tcp: Tcp | None = None
    sources: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    packets: int = 0
    packets_lost: int = 0
    floor: float = REAL

    def and_these(self, other: "Samples") -> "Samples":
        """Both together."""
        later = other.messages.assign(source=other.messages["source"] + len(self.sources))
        return replace(
            self,
            messages=pd.concat([self.messages, later], ignore_index=True),
            computations=pd.concat([self.computations, other.computations], ignore_index=True),
            lost=self.lost + other.lost,
            timeouts=np.concatenate([self.timeouts, other.timeouts]),
            star=self.star or other.star,
            tcp=self.tcp or other.tcp,
            sources=(*self.sources, *other.sources),
            notes=tuple(dict.fromkeys((*self.notes, *other.notes))),
            packets=self.packets + other.packets,
            packets_lost=self.packets_lost + other.packets_lost,
            floor=max(self.floor, other.floor),
        )


def of_run(run: Run) -> Samples:
    """What a run has measured; InputError where its log has no messages and no computations."""
    run.require("calibrate", "send", "deliver")
    events = run.events
    sent, done = messages(events), computations(events)
    if sent.empty and done.empty:
        text = "it has no message and no computation that could be measured"
        raise InputError(f"calibrate: {run.directory or run.name}: {text}")
    notes = []
    if not deployed(run):
        notes.append(f"{run.directory or run.name} is simulated: its seconds are those of its laws")
    work = _work(run)
    known = work is not None and len(done) > 0
    done = done.assign(work=work[done["agent"].to_numpy()] if known else np.nan)  # type: ignore[index]
    if not known and len(done):
        notes.append("the method does not say how much work a computation is")
    if not known or "compute" not in set(events["kind"]):
        done = done[:0]
    lost, timeouts = _losses(events)
    star = bool((sent[["sender", "receiver"]] < 0).any(axis=None)) if len(sent) else True
    name = str(run.directory or run.name)
    table = done[["agent", "work", "seconds"]]
    network = run.scenario.network
    laws = [network.along(which).transport.tcp
            for which in network.sides("coordinator" if star else "graph")]  # fmt: skip
    tcp = next((one for one in laws if one is not None), Tcp() if deployed(run) else None)
    if tcp is not None and None in laws and not deployed(run):
        notes.append("one direction is ideal, the other TCP: they are told by one law")
    return Samples(
        sent.assign(source=0), table, lost, timeouts, star, tcp, (name,), tuple(notes),
        *_packets(run), REAL if deployed(run) else EXACT,
    )  # fmt: skip


def _packets(run: Run) -> tuple[int, int]:
    """How many packets the lines of a deployed run carried, and how many they lost; 0 of others."""
    sent, lost = (entry(run, "clock", "links", key) for key in ("packets", "lost"))
    known = isinstance(sent, int) and isinstance(lost, int) and 0 <= lost <= sent
    return (sent, lost) if known else (0, 0)


def _work(run: Run) -> Array | None:
    """Gradients of one row (agents,) in each agent's computation, as its first one has them.

    Of a method that does not begin with one: what it takes where a gradient takes a second.
    """
    first = opening(build(run.scenario))
    if first is None:
        return _counted(run)
    work = np.full(int(run.events[["agent", "peer"]].to_numpy().max()) + 1, np.nan)
    here = first.who < len(work)
    work[first.who[here]] = first.work[here]
    return np.where(np.isfinite(work), work, np.nanmedian(work))


def _counted(run: Run) -> Array | None:
    """The same by playing two rounds on devices that do one gradient in a second, or two.

    None where computations last as long on both, by the method's own seconds.
    """
    seconds, half = (_lasted(run, f"{speed} /s") for speed in (1, 2))
    if seconds is None or half is None or not (seconds > 1.5 * half).all():
        return None
    work = np.full(int(run.events[["agent", "peer"]].to_numpy().max()) + 1, np.nan)
    here = seconds.index.to_numpy(int) < len(work)
    work[seconds.index.to_numpy(int)[here]] = seconds.to_numpy(float)[here]
    return work if np.isfinite(work).any() else None


def _lasted(run: Run, speed: str) -> "pd.Series[float] | None":
    """How long s computations of each agent last on devices of one speed; None where unknown."""
    data = run.scenario.written()
    data |= {"compute": {"speed": speed}, "policy": "all", "stop": {"rounds": 2}, "log": "all"}
    data |= {"churn": "none", "observe": {"metrics": []}}
    data["network"] = {"topology": data["network"]["topology"]}
    try:
        events = play(data).events
    except DesimError:
        return None
    return events[events["kind"] == "compute"].groupby("agent")["seconds"].median()


def _losses(events: "pd.DataFrame") -> tuple[int, Array]:
    """Attempts that were lost, and how long s after the first one the second was made."""
    sent = events[events["kind"] == "send"]
    keys = ["agent", "peer", "round", "release"]
    times = [
        sent[sent["value"] == number].groupby(keys)["time"].min() for number in (0.0, 1.0)
    ]  # of messages with one name the first alone
    waited = (times[1] - times[0]).dropna().to_numpy(float)
    return int((events["kind"] == "lost").sum()), waited[waited > 0.0]


def of_files(sent: Path | None, done: Path | None) -> Samples:
    """What csv files say of messages (bytes, seconds, ..) and computations (work, seconds, ..)."""
    first = _table(sent, MESSAGES) if sent is not None else _empty(MESSAGES)
    second = _table(done, COMPUTATIONS) if done is not None else _empty(COMPUTATIONS)
    usual = {"sender": 0, "receiver": -1, "begin": np.nan, "attempts": 1.0, "source": 0}
    first = first.assign(
        **{name: value for name, value in usual.items() if name not in first}, sending=np.nan
    )
    if "agent" not in second:
        second = second.assign(agent=0)
    star = bool((first[["sender", "receiver"]].to_numpy() < 0).any())
    name = " and ".join(str(one) for one in (sent, done) if one is not None)
    whole = {one: np.int64 for one in ("sender", "receiver")}
    return Samples(
        first.astype(whole), second.astype({"agent": np.int64}), star=star, sources=(name,)
    )


def nothing_sent() -> "pd.DataFrame":
    """No messages."""
    return _empty([*MESSAGES, "sender", "receiver", "begin", "attempts", "sending", "source"])


def _empty(needed: Sequence[str]) -> "pd.DataFrame":
    return pd.DataFrame({name: np.empty(0) for name in needed})


def csv_rows(path: Path, blank: bool = True) -> tuple[list[str], list[list[str]]]:
    """The head of a csv file and the rows below it, blank ones, too; InputError for none."""
    try:
        rows = [row for row in csv.reader(text_of(path).splitlines()) if row or blank]
    except (OSError, ValueError, csv.Error) as error:
        why = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{path}: cannot be read as csv ({why})") from None
    return [name.strip() for name in rows[0]] if rows else [], rows[1:]


def _table(path: Path, needed: Sequence[str]) -> "pd.DataFrame":
    """The columns of a csv that are known, in s and bytes; InputError for others."""
    head, rows = csv_rows(path)
    known = [one for one, (what, _) in NAMED.items() if what in (*needed, *OPTIONAL[needed[0]])]
    odd = [name for name in head if name not in known]
    found = [NAMED[name][0] for name in head if name not in odd]
    if odd or len(set(found)) < len(found) or not set(needed) <= set(found):
        text = f"found the columns {', '.join(head) or 'none'}"
        raise InputError(
            f"{path}: {text}; allowed: {', '.join(known)}, with one each for {' and '.join(needed)}"
        )
    for line, row in enumerate(rows, 2):
        if len(row) > len(head):
            text = f"found {len(row)} values; allowed: {len(head)}, as in the head"
            raise InputError(f"{path}, line {line}: {text}")
    return pd.DataFrame({
        what: _numbers(path, rows, place, head[place]) * NAMED[head[place]][1]
        for place, what in enumerate(found)
    })  # fmt: skip


def _numbers(path: Path, rows: Sequence[Sequence[str]], place: int, name: str) -> Array:
    """A column of numbers; negative ones are only names of nodes."""
    values = []
    least, allowed = 0.0, "a number >= 0"
    if name in ("sender", "receiver"):
        least, allowed = -1.0, "an agent's number, or -1 or coordinator"
    elif name == "agent":
        allowed = "an agent's number"
    for line, row in enumerate(rows, 2):
        if not row:
            continue
        text = row[place].strip() if place < len(row) else ""
        try:
            value = -1.0 if text == "coordinator" else float(text)
        except ValueError:
            value = np.nan
        odd = name in WHO and (value % 1.0 > 0.0 or value > MAX_AGENT)
        if odd or not (np.isfinite(value) and value >= least):
            raise InputError(f"{path}, line {line}: {name}: found {text!r}; allowed: {allowed}")
        values.append(value)
    if not values:
        raise InputError(f"{path}: found no row below the head; allowed: one for each measurement")
    return np.array(values)
