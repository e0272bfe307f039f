"""When things happen if every duration is known: max-plus recursions, no events, no queue."""

from heapq import heappop, heappush

import numpy as np

SLACK = 1.0 + 1e-12  # sums round: what takes as long as it did before comes before a learnt limit


def graph_clocks(compute, delay, neighbours, order="compute-send-gather"):
    """Barrier over the neighbourhood in every round. Returns computed, ready (rounds, agents) in s.

    compute[k][i]: duration of agent i's computation in round k; delay[k][j][i]: from the sending
    of j's message of round k to its arrival at i; neighbours[i]: whom i waits for. ready[k][i]: the
    end of i's round k, when it holds its own result and every message. order says what a round is:
    compute-send-gather (zCDP-NFL), send-gather-compute (Q-DPSGD-1 as printed) or
    send-compute-gather (messages travel while the agent computes).
    """
    compute, delay = np.asarray(compute, float), np.asarray(delay, float)
    rounds, agents = compute.shape
    computed, ready = np.zeros((rounds, agents)), np.zeros((rounds, agents))
    start = np.zeros(agents)
    for k in range(rounds):
        sent = start + compute[k] if order == "compute-send-gather" else start
        for i in range(agents):
            arrived = max([sent[i]] + [sent[j] + delay[k, j, i] for j in neighbours[i]])
            if order == "send-gather-compute":
                computed[k, i] = arrived + compute[k, i]
            else:
                computed[k, i] = start[i] + compute[k, i]
            ready[k, i] = max(arrived, computed[k, i])
        start = ready[k]
    return computed, ready


def first(times, law):
    """When a wait closes of which nothing is known before: each message may move the limit."""
    for n, time in enumerate(times, 1):
        limit = max(time, law([*times[:n], *[np.inf] * (len(times) - n)], True))
        if n == len(times) or limit < times[n]:
            return limit


def coordinator_clocks(
    down, compute, up, *, policy="all", value=None, late="discard", invited=None,
    at_least=0, at_most=np.inf, law=None,
):  # fmt: skip
    """Returns close (rounds,) s, and issued (rounds, agents): the round of the call whose reply is
    collected in round k, -1 where agent i gives none (the `issued` of naive.fed_plt).

    down, compute, up (rounds, agents): durations of a call of round k. Round k opens when k - 1
    closes; invited agents that owe no reply are called; it closes
      all       when every outstanding reply is in,
      deadline  as `all`, but at most `value` seconds after it opened,
      quorum    with the value-th reply to a call of round k, or with all of them,
      buffer    with the value-th outstanding reply, or with all of them,     each   with the first,
      adaptive  as `deadline`, after law(seconds) s: what every agent's latest reply took, or twice
                what it was waited for if that is longer than what was known and it did not come;
                while nothing is known law(seconds, True) of this collection, inf: not in yet.
    It closes at most `at_most` s after it opened, but then not before at_least of these replies are
    in. With nobody to wait for it closes at once. Replies not in by then are forgotten and their
    agents free (discard) or stay due (carry). An agent takes calls in the order in which they were
    sent; a new one ends what it still does for the last. inf: a call or reply that is lost; a limit
    that closes after that no longer waits for it.
    """
    down, compute, up = (np.asarray(d, float) for d in (down, compute, up))
    rounds, agents = compute.shape
    close, issued = np.zeros(rounds), np.full((rounds, agents), -1)
    due, called, taken, now = {}, {}, np.zeros(agents), 0.0
    over = np.zeros(agents)  # when a call that is lost is known to be
    took, since = {}, {}
    for k in range(rounds):
        for i in range(agents) if invited is None else np.flatnonzero(invited[k]):
            if i not in due:
                due[i], called[i], over[i], since[i] = np.inf, k, now, now
                if now + down[k, i] < np.inf:
                    taken[i] = max(now + down[k, i], taken[i])
                    over[i] = taken[i] + compute[k, i]
                    due[i] = over[i] + up[k, i]
        times = sorted(t for i, t in due.items() if policy != "quorum" or called[i] == k)
        most = now + (value if policy == "deadline" else at_most)
        if policy == "adaptive" and took:
            learnt = law([t * (2 if waits else 1) for t, waits in took.values()])
            most = min(most, (now + learnt) * SLACK)
        elif policy == "adaptive" and times:
            most = min(most, (now + first([t - now for t in times], law)) * SLACK)
        if at_least and times:
            most = max(most, times[min(at_least, len(times)) - 1])
        need = {"each": 1, "quorum": value, "buffer": value}.get(policy, len(times))
        if not times:
            close[k] = now
        elif policy == "all":
            close[k] = max(times)
        elif policy in ("deadline", "adaptive"):
            close[k] = min(most, max(times))
        else:
            close[k] = min(most, max(now, times[min(need, len(times)) - 1]))
        for i in due if policy == "adaptive" else ():
            if due[i] <= close[k]:
                took[i] = due[i] - since[i], False
            elif i not in took or close[k] - since[i] > took[i][0]:
                took[i] = close[k] - since[i], True
        for i in [i for i in due if due[i] <= close[k]]:
            issued[k, i] = called[i]
            del due[i]
        short = sum(t <= close[k] for t in times) < min(need, len(times))
        for i in [i for i in due if due[i] == np.inf]:
            if short and over[i] <= close[k]:
                del due[i]
        if late == "discard":
            due.clear()
        now = close[k]
    return close, issued


def hearings(seconds, delay, near, end, *, limit=np.inf, quorum=None):
    """What agents do that do not wait for all, until `end` s: steps and what each newly hears.

    seconds[i]: of a computation of agent i; delay[i, j] s of its messages to j; near[i]: whom i
    hears. An agent computes, sends, and waits `limit` s at most for messages of its own round or a
    later one of all (or quorum) of near. Then it hears the newest of everybody. Returns ("step", i,
    k) and ("hear", i, k, {j: round}) in order of time, what comes at an instant before what closes
    then.
    """
    here = {i: dict.fromkeys(near[i], 0) for i in near}
    heard, k, waits = {i: dict(here[i]) for i in near}, dict.fromkeys(near, 1), set()
    queue, done = [], []
    for i in near:
        heappush(queue, (seconds[i], 0, i, ("done", 1)))

    def look(i, now):
        came = sum(round_ >= k[i] for round_ in here[i].values())
        if i in waits and came >= min(quorum or len(near[i]), len(near[i])):
            heappush(queue, (now, 1, i, ("close", k[i])))

    while queue and queue[0][0] <= end:
        now, _, i, (what, *about) = heappop(queue)
        if what == "done":
            done.append(("step", i, k[i]))
            for j in near:
                if i in near[j]:
                    heappush(queue, (now + delay[i, j], 0, j, ("come", i, k[i])))
            waits.add(i)
            heappush(queue, (now + limit, 1, i, ("close", k[i])))
            look(i, now)
        elif what == "come":
            here[i][about[0]] = max(here[i][about[0]], about[1])
            look(i, now)
        elif i in waits and about[0] == k[i]:
            waits.remove(i)
            news = {j: round_ for j, round_ in here[i].items() if round_ > heard[i][j]}
            heard[i] |= news
            done.append(("hear", i, k[i], news))
            k[i] += 1
            heappush(queue, (now + seconds[i], 0, i, ("done", k[i])))
    return done
