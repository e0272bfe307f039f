"""The laws that every log obeys: conservation, causality, monotone clocks."""

from collections import Counter, defaultdict

import numpy as np

COLUMNS = ("kind", "time", "seq", "seconds", "agent", "peer", "round", "value", "bytes")


def check_log(done):
    """The laws that every log obeys."""
    log, counts = {name: done.events[name].to_numpy() for name in COLUMNS}, done.manifest["counts"]
    sends, delivers, lost = (of_kinds(log, kind) for kind in ("send", "deliver", "lost"))
    have = [len(rows["bytes"]) for rows in (sends, delivers, lost)]
    sizes = [rows["bytes"].sum() for rows in (sends, delivers, lost)]
    assert (counts["send"], counts["send_bytes"]) == (have[0], sizes[0])
    assert have[0] - have[1] - have[2] == counts["in_flight"] >= 0
    assert sizes[0] - sizes[1] - sizes[2] >= 0
    assert (np.diff(log["time"]) >= 0).all()
    assert np.array_equal(log["seq"], np.arange(len(log["seq"])))
    assert (log["seconds"] >= 0).all()
    arrivals = of_kinds(log, "deliver", "lost")
    rows = {key: row for row, key in enumerate(numbered(sends, "agent", "peer"))}
    found = [rows.get(key) for key in numbered(arrivals, "peer", "agent")]
    assert None not in found
    sent = np.array(found, int)
    check_seconds(arrivals, sends["time"][sent], sends)
    assert (arrivals["bytes"] == sends["bytes"][sent]).all()
    if len(done.metrics):
        assert (np.diff(done.metrics.time) >= 0).all()
        assert done.metrics.time.max() <= done.manifest["time"]


def of_kinds(log, *kinds):
    """The rows of these kinds."""
    those = np.isin(log["kind"].astype(str), kinds)
    return {name: column[those] for name, column in log.items()}


def numbered(rows, *ends):
    """Of each row ends, round and attempt, and which exchange of the round between them it is."""
    before = Counter()
    for key in zip(*(rows[name].tolist() for name in (*ends, "round", "value")), strict=True):
        yield (*key, before[key])
        before[key] += 1


def check_seconds(arrivals, sent, sends):
    """Arrivals took as long as since the message's first attempt, losses since their own."""
    time, seconds = arrivals["time"], arrivals["seconds"]
    once = (arrivals["kind"] == "lost") | (arrivals["value"] == 0)
    assert np.allclose((time - sent)[once], seconds[once], rtol=0, atol=1e-12)
    assert (seconds > time - sent)[~once].all()
    first, begun = sends["value"] == 0, defaultdict(list)
    starts = (sends[name][first] for name in ("agent", "peer", "round", "time"))
    for *link, at in zip(*starts, strict=True):
        begun[tuple(link)].append(at)
    ends = (arrivals[name][~once] for name in ("peer", "agent", "round", "time", "seconds"))
    for *link, end, took in zip(*ends, strict=True):
        gaps = np.abs(end - took - np.array(begun[tuple(link)]))
        assert (gaps < 1e-12 + 1e-15 * end).any()
