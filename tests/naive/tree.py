"""A tree of coordinators as an event simulation with FedAvg, in which nothing is played ahead.

Every node is an object, every message an event of one queue. Clients take constant times, links are
a latency and a rate, the loss of a client is the mean of (a x - b)^2 over its rows. Edges may leave
and come back: what comes for one that is away lies in its box until then.
"""

import heapq
import itertools

import numpy as np

ARRIVAL, CLOSING = 0, 1  # of one instant: what comes, then who has waited for it


class Queue:
    """Events by time."""

    def __init__(self):
        self.now, self.events, self.number = 0.0, [], itertools.count()

    def at(self, time, act, order=ARRIVAL):
        """Act at a time, in its order among all of that instant."""
        heapq.heappush(self.events, (time, order, next(self.number), act))

    def run(self, ended):
        """Let everything happen until `ended()`."""
        while self.events and not ended():
            self.now, _, _, act = heapq.heappop(self.events)
            act()


class Client:
    """Trains from what it is sent; a newer call ends an older one that it still works for."""

    def __init__(self, queue, world, number):
        self.queue, self.world, self.number = queue, world, number
        self.job = None

    def take(self, letter):
        """Clients are always there."""
        letter()

    def called(self, x, round_, answer):
        """A call with model x is here."""
        job = self.job = object()

        def done():
            if self.job is job:
                answer(self.world.trained(self.number, x) - x, 1.0)

        self.queue.at(self.queue.now + self.world.seconds[self.number], done)


class Coordinator:
    """The cloud, or an edge that plays `rounds` rounds for each call."""

    def __init__(self, queue, world, children, policy, down, up, rounds=1):
        self.queue, self.world, self.children, self.rounds = queue, world, children, rounds
        (self.kind, self.value, self.late), self.down, self.up = policy, down, up
        self.pending, self.here = {}, {}
        self.opened, self.serial, self.waiting, self.over = 0.0, 0, False, False
        self.here_now, self.box = True, []

    def leave(self):
        """It is away from now on."""
        self.here_now = False

    def come_back(self):
        """It takes what has come for it, then looks whether it has waited long enough."""
        self.here_now, letters, self.box = True, self.box, []
        for letter in letters:
            letter()
        self.check()

    def take(self, letter):
        """Something is at its door."""
        if self.here_now:
            letter()
        else:
            self.box.append(letter)

    def open(self, x, then):
        """Invite for a round with model x; `then(total, count)` once the collection closes."""
        self.opened, self.then, self.waiting, self.over = self.queue.now, then, True, False
        self.serial += 1
        serial = self.serial
        for k, child in enumerate(self.children):
            if self.late == "carry" and k in self.pending:
                continue
            self.pending[k] = serial
            self.here.pop(k, None)
            self.send(child, k, serial, x)
        if self.kind == "deadline":
            self.queue.at(self.opened + self.value, lambda: self.limit(serial))
        self.check()

    def send(self, child, k, serial, x):
        """A call to a child, and its reply on the way back."""

        def answer(total, count):
            letter = lambda: self.heard(k, serial, total, count)  # noqa: E731
            self.queue.at(self.queue.now + self.up[k], lambda: self.take(letter))

        self.queue.at(
            self.queue.now + self.down[k],
            lambda: child.take(lambda: child.called(x, serial, answer)),
        )

    def heard(self, k, serial, total, count):
        """A reply is here; it counts if it is awaited."""
        if self.pending.get(k) == serial:
            self.here[k] = total, count
            self.check()

    def limit(self, serial):
        """The time of a collection is over."""
        if self.waiting and serial == self.serial:
            self.over = True
            self.check()

    def enough(self):
        """Whether what is here closes the collection."""
        fresh = [k for k, serial in self.pending.items() if serial == self.serial]
        if self.kind == "quorum":
            return len(self.here.keys() & set(fresh)) >= min(self.value, len(fresh))
        if self.kind == "buffer":
            return len(self.here) >= min(self.value, len(self.pending))
        return self.over or len(self.here) == len(self.pending)

    def check(self):
        """Close after all else of this instant, if there is enough."""
        if self.waiting and self.here_now and self.enough():
            self.waiting = False
            self.queue.at(self.queue.now, self.close, CLOSING)

    def close(self):
        """The collection is over."""
        replies = [self.here[k] for k in sorted(self.here)]
        for k in [*self.here]:
            del self.pending[k], self.here[k]
        if self.late == "discard":
            self.pending.clear()
        total = sum((one for one, _ in replies), np.zeros(self.world.dim))
        self.then(total, sum(count for _, count in replies))

    def called(self, x, round_, answer):
        """An edge is called: it plays its rounds, and answers."""
        totals, counts = [], []

        def next_(x):
            def then(total, count):
                totals.append(total)
                counts.append(count)
                if len(totals) == self.rounds:
                    answer(*self.world.in_turn(totals, counts))
                else:
                    next_(x + total / max(count, 1.0))

            self.open(x, then)

        next_(x)


class World:
    """Rows A[i] (rows, dim), b[i] of each client, seconds of its training, step and steps."""

    def __init__(self, A, b, seconds, step, steps):
        self.A, self.b, self.seconds, self.step, self.steps = A, b, seconds, step, steps
        self.dim = A[0].shape[1]

    def trained(self, i, x):
        """Gradient descent of client i from x."""
        for _ in range(self.steps):
            x = x - self.step * 2.0 * self.A[i].T @ (self.A[i] @ x - self.b[i]) / len(self.b[i])
        return x

    def in_turn(self, totals, counts):
        """Means of rounds added up, as of the mean number of replies."""
        number = sum(counts) / max(1, sum(count > 0 for count in counts))
        moves = [total / count for total, count in zip(totals, counts, strict=True) if count]
        return number * sum(moves, np.zeros(self.dim)), number


def play(world, sizes, levels, client, rounds, absences=None, kind=Coordinator):
    """Times (rounds,) and models (rounds + 1, dim) of a tree's cloud.

    sizes: children of a node from the cloud down; levels: of each tier of edges from the cloud
    down, and client: policy (kind, value, late) of who is above, seconds down, up, own rounds.
    absences: by level from the cloud down, of each edge, when it leaves and when it is back.
    """
    queue = Queue()
    agents = int(np.prod(sizes))
    nodes = [Client(queue, world, i) for i in range(agents)]
    own = [*levels, client]
    for depth in range(len(sizes) - 1, -1, -1):
        policy, down, up, _ = own[depth]
        turns = levels[depth - 1][3] if depth else 1
        groups = [nodes[k : k + sizes[depth]] for k in range(0, len(nodes), sizes[depth])]
        nodes = [
            kind(queue, world, group, policy, [down] * len(group), [up] * len(group), turns)
            for group in groups
        ]
        gone = (absences or {}).get(depth - 1, [[]] * len(nodes))
        for node, spans in zip(nodes, gone, strict=True):
            for leaves, back in spans:
                queue.at(leaves, node.leave)
                queue.at(back, node.come_back)
    (cloud,) = nodes
    models, times = [np.zeros(world.dim)], []

    def then(total, count):
        models.append(models[-1] + total / max(count, 1.0))
        times.append(queue.now)
        if len(times) < rounds:
            cloud.open(models[-1], then)

    cloud.open(models[0], then)
    queue.run(lambda: len(times) >= rounds)
    return np.array(times), np.array(models)
