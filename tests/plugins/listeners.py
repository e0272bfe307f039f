"""Listeners for tests: an energy meter, an attacker, and two wrong ones beside them."""

import numpy as np

from desim.signals import Count, Listener, NonNegative, Strict


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
