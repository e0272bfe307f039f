"""Performance profiles as Dolan and Moré (2002) define them, a loop at a time."""


def profile(taken, solver, tau):
    """rho_s(tau) of taken[solver][problem], inf where a solver fails."""
    problems = len(taken[solver])
    good = 0
    for p in range(problems):
        best = min(times[p] for times in taken)
        if taken[solver][p] != float("inf") and taken[solver][p] / best <= tau:
            good += 1
    return good / problems
