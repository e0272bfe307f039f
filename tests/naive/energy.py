"""Energy by hand: a sweep over the moments of a log at which anything changes, in plain Python."""

from collections import defaultdict
from itertools import pairwise


def carried(rows, shared=(False, False)):
    """(agent, begin, end, bytes, sent or not) of what each agent sends and receives.

    shared: whether agents' messages, and the coordinator's, share a line: then a message is on it
    from when it is sent to when it has arrived, at both ends.
    """
    sends = [row for row in rows if row["kind"] == "send"]
    links, arrivals = defaultdict(list), {}
    for row in sends:
        links[row["agent"], row["peer"], row["value"]].append(row)
    for row in rows:
        if row["kind"] != "deliver":
            continue
        those = links[row["peer"], row["agent"], row["value"]]
        if row["value"] == 0:
            left = row["time"] - row["seconds"]
            one = min(those, key=lambda sent: abs(sent["time"] - left))
        else:
            one = max((s for s in those if s["time"] <= row["time"]), key=lambda sent: sent["time"])
        arrivals[id(one)] = row["time"]
        if row["agent"] < 0:
            continue
        size = row["bytes"] or max(
            sent["bytes"]
            for sent in sends
            if sent["agent"] == row["peer"] and sent["time"] == one["time"]
        )
        first = row["time"] - one["seconds"]
        if shared[row["peer"] < 0]:
            first = one["time"]
        yield row["agent"], first, row["time"], size, False
    for row in sends:
        if row["agent"] >= 0:
            end = row["time"] + row["seconds"]
            if shared[0]:
                end = arrivals.get(id(row), float("inf"))
            yield row["agent"], row["time"], end, row["bytes"], True


def energy(rows, agents, until, watts, shared=(False, False)):
    """{(agent, cause): joules}; watts: of each cause a list by agent, and lasts, s of tails."""
    found = defaultdict(float)
    messages = list(carried(rows, shared))
    for agent in range(agents):
        busy = [
            (row["time"] - row["seconds"], row["time"])
            for row in rows
            if row["kind"] in ("compute", "abort") and row["agent"] == agent
        ]
        turns = [
            (row["time"], row["kind"])
            for row in rows
            if row["kind"] in ("down", "up") and row["agent"] == agent
        ]
        own = [one for one in messages if one[0] == agent]
        moments = {0.0, until, *(time for time, _ in turns)}
        moments |= {edge for span in busy for edge in span}
        moments |= {edge for one in own for edge in (*one[1:3], one[2] + watts["lasts"][agent])}
        moments = sorted(time for time in moments if 0.0 <= time <= until)
        for start, stop in pairwise(moments):
            middle, lasts = (start + stop) / 2, stop - start
            past = [kind for time, kind in turns if time <= middle]
            up = not past or past[-1] == "up"
            if up:
                found[agent, "idle"] += watts["idle"][agent] * lasts
            if any(first <= middle < last for first, last in busy):
                found[agent, "computing"] += watts["computing"][agent] * lasts
            if any(first <= middle < last for _, first, last, *_ in own):
                found[agent, "radio"] += watts["radio"][agent] * lasts
            else:
                over = [last for _, _, last, *_ in own if last <= middle]
                gone = [time for time, kind in turns if kind == "down" and time <= middle]
                fresh = over and middle - max(over) < watts["lasts"][agent]
                if fresh and not any(max(over) <= time for time in gone):
                    found[agent, "tail"] += watts["tail"][agent] * lasts
        for _, first, last, size, sent in own:
            share = 1.0 if last <= until else max(until - first, 0.0) / (last - first)
            cause = "sending" if sent else "receiving"
            found[agent, cause] += share * size * watts[cause][agent]
    return found
