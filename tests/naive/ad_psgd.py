"""AD-PSGD (Lian et al. 2018): in step, and by requests and answers in the order of a log."""

import numpy as np


def in_step(gradient, x0, partner, batches, noise, *, alpha):
    """Returns x (T + 1, n, p): x = (x_i + x_j) / 2 - alpha g_i(x_i), j = partner[t][i] or -1."""
    x = [np.array(x0, float)]
    for t in range(len(partner)):
        new = x[t].copy()
        for i, j in enumerate(partner[t]):
            mean = x[t][i] if j < 0 else (x[t][i] + x[t][j]) / 2
            new[i] = mean - alpha * (gradient(i, x[t][i], batches[t][i]) + noise[t][i])
        x.append(new)
    return np.array(x)


class Agent:
    """One agent: its model, what it has moved for whom, and what it waits for."""

    def __init__(self, x):
        self.x, self.start = np.array(x, float), np.array(x, float)
        self.moved, self.undone, self.done = {}, {}, {}
        self.asked, self.number, self.age = None, 0, 0

    def hear(self, letters):
        """Take in letters {neighbour: letter}, in the order of their numbers."""
        owed = set()
        for j, letter in sorted(letters.items()):
            if letter["answers"]:
                new = letter["moved"] - self.undone.get(j, 0.0)
                self.x = self.x - new
                self.undone[j] = letter["moved"]
                if self.asked == j and letter["answers"] == self.number:
                    self.asked = None
        for j, letter in sorted(letters.items()):
            if letter["asks"]:
                owed.add(j)
                if letter["asks"] > self.done.get(j, 0):
                    move = (letter["x"] - self.x) / 2
                    self.x = self.x + move
                    self.moved[j] = self.moved.get(j, 0.0) + move
                    self.done[j] = letter["asks"]
        return owed

    def speak(self, owed, choice, repeat):
        """Letters {neighbour: letter} to those who are owed an answer, and to who is asked."""
        self.age += 1
        if self.asked is None:
            self.asked, self.number, self.age = choice, self.number + 1, 0
        if self.age % repeat == 0:
            owed = {*owed, self.asked}
        return {
            j: {
                "asks": self.number if j == self.asked else 0, "x": self.x,
                "answers": self.done.get(j, 0), "moved": self.moved.get(j, 0.0),
            }
            for j in owed
        }  # fmt: skip


def ad_psgd(order, gradient, x0, choice, batches, noise, *, alpha, repeat):
    """Returns x {(agent, round): (p,)}, letters {(from, to, round)}, and the agents.

    order: ("step", i, k), i computes its k-th gradient, and ("hear", i, k, {j: l}), it hears what j
    sent it in its round l, steps and speaks. choice(i, k): whom it would ask.
    """
    agents, found, letters, g = [Agent(x) for x in x0], {}, {}, {}
    began = [a.x for a in agents]
    for what, i, k, *news in order:
        if what == "step":
            g[i] = gradient(i, began[i], batches[k - 1][i]) + noise[k - 1][i]
            continue
        owed = agents[i].hear({j: letters[j, i, m] for j, m in news[0].items()})
        agents[i].x = agents[i].x - alpha * g[i]
        agents[i].start = agents[i].start - alpha * g[i]
        found[i, k] = began[i] = agents[i].x
        for j, letter in agents[i].speak(owed, choice(i, k), repeat).items():
            letters[i, j, k] = letter
    return found, letters, agents
