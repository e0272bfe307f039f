"""Clients' own test rows by hand: loops over rows, and sorted lists."""

import math


def sides(rows, share):
    """How many of an agent's rows are for training and for testing it, to the nearest row,
    of two that are as near the even one."""
    _, _, tested = min((abs(n - share * rows), n % 2, n) for n in range(rows + 1))
    tested = 1 if tested < 1 else tested
    tested = rows - 1 if tested >= rows else tested
    return rows - tested, tested


def accuracy(A, b, x):
    """Share of rows a in A whose label in b is the sign of a.x, where 0 counts as 1."""
    right = 0
    for a, label in zip(A, b, strict=True):
        score = math.fsum(float(p) * float(q) for p, q in zip(a, x, strict=True))
        right += (1.0 if score >= 0.0 else -1.0) == label
    return right / len(b)


def logistic(A, b, x):
    """Mean over the rows of log(1 + exp(-b a.x))."""
    scores = [
        math.fsum(float(p) * float(q) for p, q in zip(a, x, strict=True)) * float(label)
        for a, label in zip(A, b, strict=True)
    ]
    return math.fsum(math.log1p(math.exp(-one)) for one in scores) / len(scores)


def summaries(accuracies, rows):
    """{metric: value} of accuracies, one for each client, on so many rows each."""
    n, order = len(accuracies), sorted(accuracies)
    tenth = max(1, -(-n // 10))
    mean = math.fsum(accuracies) / n
    whole = math.fsum(a * m for a, m in zip(accuracies, rows, strict=True))
    return {
        "client_accuracy": mean,
        "client_accuracy_weighted": whole / math.fsum(rows),
        "client_accuracy_worst_decile": math.fsum(order[:tenth]) / tenth,
        "client_accuracy_min": order[0],
        "client_accuracy_spread": math.sqrt(math.fsum((a - mean) ** 2 for a in accuracies) / n),
    }
