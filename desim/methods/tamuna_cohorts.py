"""Cohorts and numbers of senders that TAMUNA allows, and its largest chi with a guarantee."""

from desim.method import InputError, Settings


def largest_chi(settings: Settings, s: int | None) -> float:
    """Return N (s - 1) / (s (N - 1)), s by default the cohort c, below which chi has a guarantee.

    InputError for cohorts, numbers s of senders and links that make no sense.
    """
    who, n = settings.participation, settings.problem.agents
    c = max(int(who.least), 2)
    if n == 1:
        return 1.0
    if who.uniform and who.least < 2:
        raise InputError(f"participation: found cohorts of 1 agent; allowed: 2 to {n}")
    if s is not None and not 2 <= s <= c:
        raise InputError(f"algorithm.s: found {s}; allowed with cohorts of {c}: 2 to {c}")
    downlinks = settings.downlinks
    if downlinks is not None and downlinks.lossy and downlinks.limit == 0:
        reason = "h_i of an agent that misses a model no longer fits the others'"
        raise InputError(f"network.link.on_loss: found drop, but {reason}; allowed: resend")
    s = s or c
    return n * (s - 1.0) / (s * (n - 1.0))
