"""Expected running time and simulated restarts by COCO's definitions, naively: arXiv:1605.03560."""


def expected_running_time(runs):
    """(spent, met) of each run: what all of them spent over how many met the target."""
    total, successes = 0.0, 0
    for spent, met in runs:
        total += spent
        if met:
            successes += 1
    return total / successes if successes else float("inf")


def restarted(runs, indices):
    """What a simulated run spends that goes through runs[i], i of indices, until one meets it."""
    total = 0.0
    for i in indices:
        spent, met = runs[i]
        total += spent
        if met:
            return total
    return float("inf")


def share_of(values, at):
    """How many of all values are at most `at`."""
    return sum(value <= at for value in values) / len(values)
