"""What is so at a moment of a run, by hand: loops over the rows of its log, in plain Python."""

NOBODY, DEADLINE = -3, -2


def journeys(rows):
    """(begin, end, source, target, lost) of every attempt that is over, found by its sending."""
    for row in rows:
        if row["kind"] not in ("deliver", "lost"):
            continue
        lost = row["kind"] == "lost"
        begin = row["time"] - row["seconds"]
        if not lost and row["value"] > 0:
            same = ("round", "value")
            begin = max(
                sent["time"]
                for sent in rows
                if sent["kind"] == "send"
                and (sent["agent"], sent["peer"]) == (row["peer"], row["agent"])
                and all(sent[name] == row[name] for name in same)
                and sent["time"] <= row["time"]
            )
        yield begin, row["time"], row["peer"], row["agent"], lost


def under_way(rows, when):
    """{(source, target, lost): shares of their way, sorted} of what is on its way at `when` s."""
    found = {}
    for begin, end, source, target, lost in journeys(rows):
        if begin <= when < end:
            found.setdefault((source, target, lost), []).append((when - begin) / (end - begin))
    return {key: sorted(shares) for key, shares in found.items()}


def computing(rows, when):
    """The agents in the middle of a computation, finished or interrupted later, at `when` s."""
    done = [row for row in rows if row["kind"] in ("compute", "abort") and row["agent"] >= 0]
    down = set()
    for row in rows:
        if row["time"] <= when and row["kind"] in ("down", "up"):
            (down.add if row["kind"] == "down" else down.discard)(row["agent"])
    at_work = (row for row in done if row["time"] - row["seconds"] <= when < row["time"])
    return {row["agent"] for row in at_work} - down


def rounds_over(rows, when):
    """How many rounds of the coordinator are over by `when` s; of a graph, of all that closed."""
    closed = [row for row in rows if row["kind"] == "aggregate"]
    closed = [row for row in closed if row["agent"] < 0] or closed
    late = [row["round"] for row in closed if row["time"] > when]
    known = max((row["round"] for row in closed), default=0)
    return min(late) - 1 if late else known


def awaited(rows, when):
    """{(who waits, who will have ended it)} of the waits of a coordinator that are open."""
    found = set()
    for row in rows:
        if row["kind"] != "aggregate" or row["agent"] >= 0:
            continue
        if not row["time"] - row["seconds"] <= when < row["time"]:
            continue
        closer = NOBODY
        for cause in rows:
            if cause["time"] == row["time"] and cause["agent"] == -1:
                if cause["kind"] == "deliver":
                    closer = cause["peer"]
                elif cause["kind"] == "deadline":
                    closer = DEADLINE
        found.add((-1, closer))
    return found
