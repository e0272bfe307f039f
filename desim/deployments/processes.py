"""How processes end, in words."""

import os
import signal


def ending(status: int) -> str:
    """How a process ended, by what os.waitpid says of it."""
    return ended(os.waitstatus_to_exitcode(status))


def ended(code: int) -> str:
    """How a process ended: its exit code, negative for the number of a signal."""
    if code < 0:
        return f"was killed by signal {-code} ({signal_name(-code)})"
    return f"ended with exit code {code}"


def signal_name(number: int) -> str:
    """Such as SIGKILL; real-time signals have numbers alone."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
