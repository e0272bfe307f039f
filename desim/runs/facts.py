"""What a run came to, in words: how it ended, what it cost, what it spent and whom it waited for.

Every fact is told as far as the run has it: a killed run, one whose scenario cannot be read any
more, or one whose log leaves events out says so instead.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from desim.amounts import NO_NOISE, epsilon, size
from desim.columns import Columns, Words
from desim.errors import DesimError
from desim.runs.directory import written_by
from desim.timing.waits import DEADLINE, closers

if TYPE_CHECKING:
    from desim.privacy.accountants import Account
    from desim.runs.store import Store
    from desim.scenario.schema import Scenario

NETWORK = -1
SEEN = 0.05  # s of compiling that are worth a word
MANY = 2_000_000  # events above which whom a run waited for is read on demand only
NEEDED = ["time", "kind", "agent", "peer", "round", "bytes", "seconds"]
Facts = list[tuple[str, str]]


class Played(Protocol):
    """What is told of: a run."""

    manifest: dict[str, Any]
    directory: Path | None
    store: "Store"

    @property
    def name(self) -> str:
        """Of the scenario."""

    @property
    def scenario(self) -> "Scenario":
        """What was played."""

    @property
    def level(self) -> str:
        """Of the log."""

    def account(self) -> "Account":
        """What the releases cost."""


def facts(run: Played, quick: bool = False) -> Facts:
    """What is known of a run, as pairs of a name and a text.

    quick: leave out what takes seconds where a run has millions of events.
    """
    manifest, level = run.manifest, run.level
    counted = sum(n for name, n in manifest.get("counts", {}).items() if "bytes" not in name)
    deep = not quick or counted < MANY
    columns = NEEDED if deep else ["time", "kind", "bytes"]
    events = run.store.columns("events", columns) if deep or "counts" not in manifest else None
    told = [("stored in", str(run.directory))] if run.directory else []
    told += [("version", text)] if (text := written_by(manifest)) else []
    told += [("ended", manifest["reason"])] if manifest.get("reason") else []
    told += [("engine", _joined(manifest.get("engine", ""), manifest.get("why", "")))]
    told += [("virtual time", _times(run, events)), ("messages", _messages(run, events, level))]
    told += [*_releases(run), *(_privacy(run) if deep else ()), *_metrics(run)]
    if level == "rounds":
        told += [("not kept", "messages, work, and all but the first release without noise")]
    elif deep and events is not None:
        told += [*_waits(events), *_busy(run, events)]
    told += [("", f"more than {MANY:,} events: desim show says which agents were slowest")] * (
        not deep
    )
    return [*told, *(("warning", text) for text in manifest.get("warnings", []))]


def _joined(first: str, second: str) -> str:
    return f"{first} ({second})" if second else first


def _times(run: Played, events: Columns | None) -> str:
    manifest = run.manifest
    if "time" not in manifest:
        last = 0.0 if events is None else _end(events)
        return f"{last:.6g} s at the last event that was stored"
    text = f"{manifest['time']:.6g} s, {manifest['rounds']} rounds"
    compiling = float(manifest.get("compile_seconds", 0.0))
    text += f"; wall clock {manifest['wall_seconds'] - compiling:.3g} s"
    return text + (f", after compiling for {compiling:.3g} s" if compiling >= SEEN else "")


def _end(events: Columns) -> float:
    """Time s of the last event; 0 without one."""
    return float(events["time"].max(initial=0.0))


def _messages(run: Played, events: Columns | None, level: str) -> str:
    """What was counted, or, where the run was killed before, what can be counted."""
    count = run.manifest.get("counts")
    if not count and level == "rounds":
        return "unknown: the run was killed, and its log leaves messages out"
    if not count and events is not None:
        count = _counted(events["kind"])
        count["deliver_bytes"] = float(events["bytes"][events["kind"].equal("deliver")].sum())
    count = count or {}
    delivered = size(count.get("deliver_bytes", 0.0))
    text = f"{count.get('send', 0)} sent, {count.get('deliver', 0)} delivered ({delivered})"
    return text + (f", {count['lost']} lost" if count.get("lost") else "")


def _counted(column: Words) -> dict[str, float]:
    """How often each word occurs, the most frequent first."""
    codes, counts = np.unique(column.codes, return_counts=True)
    found = {column.words[code]: int(n) for code, n in zip(codes, counts, strict=True)}
    return dict(sorted(found.items(), key=lambda one: (-one[1], one[0])))


def _releases(run: Played) -> Facts:
    counted = _counted(run.store.columns("releases", ["mechanism"])["mechanism"])
    told = ", ".join(
        f"{n} messages without noise" if mechanism == "none" else f"{n} with noise ({mechanism})"
        for mechanism, n in counted.items()
    )
    return [("releases", told)] if told else []


def _privacy(run: Played) -> Facts:
    """One line: the largest epsilon of an agent in the scenario's terms, all of them named."""
    try:
        if run.scenario.privacy is None:
            return [("privacy", NO_NOISE)] if bare(run) else []
        told = run.account()
    except DesimError as error:
        return [("privacy", f"not known: {str(error).splitlines()[0]}")]
    terms = f"view {told.view}, {told.relation}, delta {told.delta:g}, {told.method}"
    text = f"epsilon {epsilon(told.worst)} of the agent that spends most ({terms})"
    why = next((one for one in told.flags if one.startswith("infinite")), "")
    return [("privacy", f"{text}; {why}" if why and np.isinf(told.worst) else text)]


def bare(run: Played) -> bool:
    """Whether something private was released without noise."""
    rows = run.store.columns("releases", ["mechanism", "scale", "sensitivity"])
    silent = rows["mechanism"].equal("none") | (rows["scale"] == 0.0)
    return bool((silent & (rows["sensitivity"] != 0.0)).any())


def _metrics(run: Played) -> Facts:
    rows = run.store.columns("metrics", ["metric", "agent", "value", "time", "round"])
    of_all = np.flatnonzero(rows["agent"] == NETWORK)
    metric = rows["metric"].codes[of_all]
    codes, first = np.unique(metric, return_index=True)
    last = [of_all[metric == code][-1] for code in codes]
    return [(rows["metric"].words[codes[k]], _metric(rows, last[k])) for k in np.argsort(first)]


def _metric(rows: Columns, last: int) -> str:
    value, time = float(rows["value"][last]), float(rows["time"][last])
    told = f"{value:.6g}" if np.isfinite(value) else "not finite"
    return f"{told} (measured at {time:.6g} s, round {rows['round'][last]})"


def _waits(events: Columns) -> Iterator[tuple[str, str]]:
    """The three most frequent closers of collections, or of the waits of a graph's agents."""
    closed, closer = events["kind"].equal("aggregate"), closers(events)
    agent, waited = events["agent"][closed], events["seconds"][closed]
    who, counts = np.unique(closer, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:3]
    unit = "rounds" if (agent == NETWORK).any() else "waits"
    told = [_closed(int(who[k]), f"{counts[k] / len(closer):.0%}", unit) for k in order]
    if told:
        rest = [text.removesuffix(f" of {unit}").replace(", last", "") for text in told[1:]]
        yield "slowest" if who[order[0]] >= 0 else "waiting", "; ".join([told[0], *rest])
    between = (agent >= 0) & (closer >= 0)
    pairs, pair = np.unique(np.column_stack([agent, closer])[between], axis=0, return_inverse=True)
    spent = np.bincount(pair.ravel(), waited[between], minlength=len(pairs))
    if spent.max(initial=0.0) > 0.0:
        most = int(spent.argmax())
        one, other = pairs[most]
        yield "longest", f"agent {one} for agent {other}, {spent[most]:.4g} s in all"


def _closed(who: int, share: str, unit: str) -> str:
    """Who or what ended this share of the waits."""
    if who >= 0:
        return f"agent {who}, last in {share} of {unit}"
    names = {DEADLINE: "the deadline", NETWORK: "the coordinator"}
    ended = f"ended by {names[who]}" if who in names else "nobody had to wait"
    return f"{ended} in {share} of {unit}"


def _busy(run: Played, events: Columns) -> Iterator[tuple[str, str]]:
    """Which share of the run agents computed: on average, and who least and most."""
    end = float(run.manifest.get("time", _end(events)))
    computed = events["kind"].equal("compute")
    if not computed.any() or end <= 0.0:
        return
    agents = 1 + int(events["agent"].max())
    seconds = np.bincount(events["agent"][computed], events["seconds"][computed], agents)
    share = np.round(seconds / end, 9)  # sums of equal times differ in their last bits
    text = f"{share.mean():.0%} of the time"
    if len(share) > 1:
        least, most = int(share.argmin()), int(share.argmax())
        text += f"; agent {least} least, {share[least]:.0%}, agent {most} most, {share[most]:.0%}"
    yield "computing", text
