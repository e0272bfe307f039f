"""What a run came to, in words: how it ended, what it cost, what it spent and whom it waited for.

Every fact is told as far as the run has it: a killed run, one whose scenario cannot be read any
more, or one whose log leaves events out says so instead.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd

from desim.amounts import NO_NOISE, epsilon, size
from desim.errors import DesimError
from desim.runs.directory import written_by
from desim.timing.occupation import utilisation
from desim.timing.waits import DEADLINE, NOBODY, waits

if TYPE_CHECKING:
    from desim.privacy.accountants import Account
    from desim.runs.store import Store
    from desim.scenario.schema import Scenario

NETWORK = -1
MANY = 2_000_000  # events above which whom a run waited for is told on demand only
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

    @property
    def metrics(self) -> pd.DataFrame:
        """Table metrics."""

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
    events = run.store.table("events", columns) if deep or "counts" not in manifest else None
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
    told += [("", f"more than {MANY:,} events: desim show tells whom it waited for")] * (not deep)
    return [*told, *(("warning", text) for text in manifest.get("warnings", []))]


def _joined(first: str, second: str) -> str:
    return f"{first} ({second})" if second else first


def _times(run: Played, events: pd.DataFrame | None) -> str:
    manifest = run.manifest
    if "time" not in manifest:
        last = float(events["time"].max()) if events is not None and len(events) else 0.0
        return f"{last:.6g} s at the last event that was stored"
    text = f"{manifest['time']:.6g} s, {manifest['rounds']} rounds"
    return f"{text}; wall clock {manifest['wall_seconds']:.3g} s"


def _messages(run: Played, events: pd.DataFrame | None, level: str) -> str:
    """What was counted, or, where the run was killed before, what can be counted."""
    count = run.manifest.get("counts")
    if not count and level == "rounds":
        return "unknown: the run was killed, and its log leaves messages out"
    if not count and events is not None:
        kinds = events.groupby("kind", observed=True)["bytes"].agg(["size", "sum"])
        count = {kind: int(n) for kind, n in kinds["size"].items()}
        count["deliver_bytes"] = float(kinds["sum"].get("deliver", 0.0))
    count = count or {}
    delivered = size(count.get("deliver_bytes", 0.0))
    text = f"{count.get('send', 0)} sent, {count.get('deliver', 0)} delivered ({delivered})"
    return text + (f", {count['lost']} lost" if count.get("lost") else "")


def _releases(run: Played) -> Facts:
    mechanisms = run.store.table("releases", ["mechanism"])["mechanism"].value_counts()
    counted = [f"{n} {mechanism}" for mechanism, n in mechanisms.items() if n]
    return [("releases", ", ".join(counted))] if counted else []


def _privacy(run: Played) -> Facts:
    """One line: the largest epsilon of an agent in the scenario's terms, all of them named."""
    try:
        if run.scenario.privacy is None:
            return [("privacy", NO_NOISE)] if bare(run) else []
        told = run.account()
    except DesimError as error:
        return [("privacy", f"not told: {str(error).splitlines()[0]}")]
    terms = f"view {told.view}, {told.relation}, delta {told.delta:g}, {told.method}"
    text = f"epsilon {epsilon(told.worst)} of the agent that spends most ({terms})"
    why = next((one for one in told.flags if one.startswith("infinite")), "")
    return [("privacy", f"{text}; {why}" if why and np.isinf(told.worst) else text)]


def bare(run: Played) -> bool:
    """Whether something private was released without noise."""
    rows = run.store.table("releases", ["mechanism", "scale", "sensitivity"])
    silent = (rows["mechanism"] == "none") | (rows["scale"] == 0.0)
    return bool((silent & (rows["sensitivity"] != 0.0)).any())


def _metrics(run: Played) -> Facts:
    rows = run.metrics[run.metrics["agent"] == NETWORK]
    last = rows.groupby("metric", observed=True, sort=False)[["value", "time", "round"]]
    return [(str(name), _metric(*part.to_numpy(float)[-1])) for name, part in last]


def _metric(value: float, time: float, round: float) -> str:
    told = f"{value:.6g}" if np.isfinite(value) else "not finite"
    return f"{told} (true from {time:.6g} s, round {round:.0f})"


def _waits(events: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """The three most frequent closers of collections, or of the waits of a graph's agents."""
    closed = waits(events)
    hub = bool((closed["agent"] == NETWORK).any())
    shares = closed["closer"].value_counts(normalize=True).sort_index()
    shares = shares.sort_values(ascending=False, kind="stable")
    names = {DEADLINE: "the deadline", NOBODY: "nobody", NETWORK: "the coordinator"}
    told = [
        f"{names.get(who, f'agent {who}')} {share:.0%}"
        for who, share in zip(shares.index[:3].tolist(), shares[:3], strict=True)
    ]
    if told:
        yield "waited for", f"{', '.join(told)} of {'collections' if hub else 'waits'}"
    between = closed[(closed["agent"] >= 0) & (closed["closer"] >= 0)]
    spent = between.groupby(["agent", "closer"], as_index=False)["waited"].sum()
    if len(spent) and spent["waited"].max() > 0.0:
        who, whom, most = spent.to_numpy()[int(spent["waited"].to_numpy().argmax())]
        yield "longest", f"agent {who:.0f} for agent {whom:.0f}, {most:.4g} s in all"


def _busy(run: Played, events: pd.DataFrame) -> Iterator[tuple[str, str]]:
    """Which share of the run agents computed: on average, and who least and most."""
    end = float(run.manifest.get("time", events["time"].max() if len(events) else 0.0))
    if not (events["kind"] == "compute").any() or end <= 0.0:
        return
    share = utilisation(events, end)["utilisation"].to_numpy()
    text = f"{share.mean():.0%} of the time"
    if len(share) > 1:
        least, most = int(share.argmin()), int(share.argmax())
        text += f"; agent {least} least, {share[least]:.0%}, agent {most} most, {share[most]:.0%}"
    yield "computing", text
