"""What `desim show` says about a run: how it ended, what it cost and whom it waited for."""

import pandas as pd

from desim.runs.run import NETWORK, Run
from desim.timing.waits import DEADLINE, NOBODY, closers


def summary(run: Run) -> list[str]:
    """Lines of text: a title, then one aligned line per fact."""
    manifest, log = run.manifest, run.scenario.log
    facts = [("stored in", str(run.directory))] if run.directory else []
    facts += [("ended", manifest["reason"])] if manifest.get("reason") else []
    facts += [("engine", _joined(manifest.get("engine", ""), manifest.get("why", "")))]
    events = run.store.table("events", ["time", "kind", "agent", "peer", "bytes"])
    facts += [("virtual time", _times(run, events)), ("messages", _messages(run, events))]
    facts += _releases(run) + _metrics(run)
    if log == "rounds":
        facts += [("not kept", "messages, work, and all but the first release without noise")]
    else:
        facts += [("waited for", text)] if (text := _waits(events)) else []
    facts += [("warning", text) for text in manifest.get("warnings", [])]
    width = max(len(name) for name, _ in facts) + 2
    lines = [f"  {name:{width}}{text}" for name, text in facts]
    return [f"{run.name}: {run.status}", *lines]


def size(count: float) -> str:
    """Bytes, readable: 1.23 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.4g} {unit}"
        count /= 1000
    return f"{count:.4g} TB"


def _joined(first: str, second: str) -> str:
    return f"{first} ({second})" if second else first


def _times(run: Run, events: pd.DataFrame) -> str:
    manifest = run.manifest
    if "time" not in manifest:
        last = float(events["time"].max()) if len(events) else 0.0
        return f"{last:.6g} s at the last event that was stored"
    text = f"{manifest['time']:.6g} s, {manifest['rounds']} rounds"
    return f"{text}; wall clock {manifest['wall_seconds']:.3g} s"


def _messages(run: Run, events: pd.DataFrame) -> str:
    """What was counted, or, where the run was killed before, what can be counted."""
    count = run.manifest.get("counts")
    if not count and run.scenario.log == "rounds":
        return "unknown: the run was killed, and its log leaves messages out"
    if not count:
        kinds = events.groupby("kind", observed=True)["bytes"].agg(["size", "sum"])
        count = {kind: int(n) for kind, n in kinds["size"].items()}
        count["deliver_bytes"] = float(kinds["sum"].get("deliver", 0.0))
    delivered = size(count.get("deliver_bytes", 0.0))
    text = f"{count.get('send', 0)} sent, {count.get('deliver', 0)} delivered ({delivered})"
    return text + (f", {count['lost']} lost" if count.get("lost") else "")


def _releases(run: Run) -> list[tuple[str, str]]:
    mechanisms = run.store.table("releases", ["mechanism"])["mechanism"].value_counts()
    counted = [f"{n} {mechanism}" for mechanism, n in mechanisms.items() if n]
    return [("releases", ", ".join(counted))] if counted else []


def _metrics(run: Run) -> list[tuple[str, str]]:
    rows = run.metrics[run.metrics["agent"] == NETWORK]
    last = rows.groupby("metric", observed=True, sort=False).last()
    return [
        (str(name), f"{row['value']:.6g} (true from {row['time']:.6g} s, round {row['round']:.0f})")
        for name, row in last.iterrows()
    ]


def _waits(events: pd.DataFrame) -> str:
    """The three most frequent closers and their share of all collections."""
    shares = closers(events).value_counts(normalize=True).sort_index()
    shares = shares.sort_values(ascending=False, kind="stable")
    names = {DEADLINE: "the deadline", NOBODY: "nobody", NETWORK: "the coordinator"}
    told = [
        f"{names.get(who, f'agent {who}')} {share:.0%}"
        for who, share in zip(shares.index[:3].tolist(), shares[:3], strict=True)
    ]
    return ", ".join(told) + (" of collections" if told else "")
