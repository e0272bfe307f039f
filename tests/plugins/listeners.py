"""Listeners for tests: an energy meter, an attacker, and two wrong ones beside them."""

import numpy as np

from desim.signals import Count, Listener, NonNegative, Strict, Text


class Meter(Listener):
    name = "meter"
    summary = "joules by agent"

    class Parameters(Strict):
        watts: NonNegative = 4.0
        joules_per_byte: NonNegative = 1e-6

    def begun(self, settings):
        self.joules = np.zeros(settings.problem.agents)

    def mine(self, columns):
        return columns["agent"] >= 0

    def rows(self, table, columns):
        if table != "events":
            return
        amounts = {
            "compute": self.parameters.watts * columns["seconds"],
            "send": self.parameters.joules_per_byte * columns["bytes"],
        }
        for word, amount in amounts.items():
            counted = columns["kind"].equal(word) & self.mine(columns)
            np.add.at(self.joules, columns["agent"][counted], amount[counted])

    def ended(self, time):
        return {"joules": self.joules.tolist(), "until": time}


class Forgetful(Meter):
    """A wrong twin: what was heard in an earlier batch is lost."""

    name = "forgetful"
    summary = "of the last batch alone"

    def rows(self, table, columns):
        if table == "events":
            self.joules[:] = 0.0
        super().rows(table, columns)


class Flip(Listener):
    name = "flip"
    summary = "the first agents send the opposite"

    class Parameters(Strict):
        agents: Count = 2

    def attacks(self, message):
        return message.who < self.parameters.agents

    def sending(self, message):
        return np.where(self.attacks(message)[:, None], -message.payload, message.payload)


class ByPlace(Flip):
    """A wrong twin: who attacks hangs on how the engine makes batches."""

    name = "by-place"
    summary = "the first of each batch"

    def attacks(self, message):
        return np.arange(len(message.who)) < self.parameters.agents


class Watch(Listener):
    name = "watch"
    summary = "hears all, changes nothing"

    def begun(self, settings):
        self.counts = dict.fromkeys(("messages", "releases"), 0)

    def sending(self, message):
        self.counts["messages"] += len(message.who)
        return message.payload

    def releasing(self, release):
        self.counts["releases"] += int((release.release >= 0).sum())
        return release.output

    def ended(self, time):
        return self.counts


class Noiseless(Watch):
    """A wrong twin: what goes out has no noise, though it is charged for with it."""

    name = "noiseless"
    summary = "takes the noise off, in the release or in what is sent"

    class Parameters(Strict):
        where: Text = "releasing"

    def releasing(self, release):
        self.value = release.value
        return release.value if self.parameters.where == "releasing" else release.output

    def sending(self, message):
        return self.value if self.parameters.where == "sending" else message.payload


class Scribbler(Listener):
    """A wrong twin: writes to what it is shown."""

    name = "scribbler"
    summary = "writes to what it is shown"

    class Parameters(Strict):
        where: Text = "payload"

    def begun(self, settings):
        self.kept = []

    def sending(self, message):
        if self.parameters.where in ("payload", "who"):
            getattr(message, self.parameters.where)[:] = 0
        self.kept.append((message.payload, message.payload.copy()))
        return message.payload

    def rows(self, table, columns):
        if table == "releases" and self.parameters.where == "scale":
            columns["scale"][:] = 1e6
        if table == "events" and self.parameters.where == "kind":
            columns["kind"].codes[:] = 0

    def ended(self, time):
        return {"moved": sum(not np.array_equal(*pair) for pair in self.kept)}


class Buffer(Flip):
    """As Flip, but all that it returns is one array, which it writes to again."""

    name = "buffer"
    summary = "the first agents send the opposite, from one array"

    def sending(self, message):
        if getattr(self, "one", np.empty(0)).shape != message.payload.shape:
            self.one = np.empty_like(message.payload)
        self.one[:] = super().sending(message)
        return self.one


class Odd(Listener):
    """A wrong twin: returns what cannot be sent, or told of."""

    name = "odd"
    summary = "returns what nobody can use"

    class Parameters(Strict):
        where: Text = "ended"

    def sending(self, message):
        odd = {"nothing": None, "number": 0.0, "narrow": message.payload[:, :1]}
        return odd.get(self.parameters.where, message.payload)

    def ended(self, time):
        if self.parameters.where == "raises":
            raise ArithmeticError("no sum")
        said = {"ended": {"object": object()}, "numpy": {"sum": np.float64(2), "all": np.arange(3)}}
        return said.get(self.parameters.where, {})


class Columns(Listener):
    name = "columns"
    summary = "which kinds of columns it is shown"

    def begun(self, settings):
        self.kinds = set()

    def rows(self, table, columns):
        for name, column in columns.items():
            self.kinds.add(f"{table}.{name} {type(column).__name__}")

    def ended(self, time):
        return {"kinds": sorted(self.kinds)}
