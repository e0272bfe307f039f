"""The laws that every log obeys: conservation, causality, monotone clocks."""

import numpy as np


def check_log(done):
    """The laws that every log obeys."""
    events, counts = done.events, done.manifest["counts"]
    kinds = events.groupby("kind", observed=True).bytes.agg(["size", "sum"])
    have = {
        k: (int(kinds["size"].get(k, 0)), int(kinds["sum"].get(k, 0)))
        for k in ("send", "deliver", "lost")
    }
    assert (counts["send"], counts["send_bytes"]) == have["send"]
    flying = have["send"][0] - have["deliver"][0] - have["lost"][0]
    assert flying == counts["in_flight"] >= 0
    assert have["send"][1] - have["deliver"][1] - have["lost"][1] >= 0
    assert (np.diff(events.time) >= 0).all()
    assert np.array_equal(events.seq, np.arange(len(events)))
    assert (events.seconds >= 0).all()
    arrivals = events[events.kind.isin(["deliver", "lost"])]
    sends = events[events.kind == "send"]
    key = ["peer", "agent", "round", "value"]
    sent = sends.rename(columns={"agent": "peer", "peer": "agent"})[[*key, "time", "bytes"]]
    sent, arrivals = (  # a round may have several exchanges, one after the other
        table.assign(exchange=table.groupby(key).cumcount()) for table in (sent, arrivals)
    )
    pairs = arrivals.merge(sent, on=[*key, "exchange"], suffixes=("", "_sent"))
    assert len(pairs) == len(arrivals)
    check_seconds(pairs, sent[sent.value == 0])
    assert (pairs.bytes == pairs.bytes_sent).all()
    if len(done.metrics):
        assert (np.diff(done.metrics.time) >= 0).all()
        assert done.metrics.time.max() <= done.manifest["time"]


def check_seconds(pairs, first):
    """Arrivals took as long as since the message's first attempt, losses since their own."""
    own, once = pairs.time - pairs.time_sent, (pairs.kind == "lost") | (pairs.value == 0)
    assert np.allclose(own[once], pairs.seconds[once], rtol=0, atol=1e-12)
    again = pairs[~once].assign(place=range((~once).sum()))
    link = ["peer", "agent", "round"]
    begun = again.merge(first[[*link, "time"]], on=link, suffixes=("", "_first"))
    near = (begun.time - begun.seconds - begun.time_first).abs() < 1e-12 + 1e-15 * begun.time
    assert set(begun.place[near]) == set(again.place)
    assert (again.seconds > again.time - again.time_sent).all()
